//! Every store of the engine passes the suite, on every kind of file system that is at hand.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bale_engine::clock::{Clock, ManualClock, SystemClock};
use bale_engine::random::SeededRandom;
use bale_engine::store::local::TEMPORARY_AGE_MAX;
use bale_engine::store::{Area, LocalStore, MemoryStore, ObjectName, Store, conformance};
use bale_format::ObjectId;
use bale_testkit::{FaultyStore, RecordingStore, SimulatedDisk};
use rustix::fs::{FileType, Mode};

/// Makes stores in directories of their own.
fn local_stores(scratch: &Path) -> impl Fn() -> Box<dyn Store> {
    let number = AtomicU32::new(0);
    move || {
        let number = number.fetch_add(1, Ordering::Relaxed);
        Box::new(LocalStore::create(&scratch.join(format!("a/b/{number}"))).unwrap())
    }
}

#[test]
fn the_memory_store_conforms() {
    conformance::run(|| Box::new(MemoryStore::new()));
}

#[test]
fn the_local_store_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    conformance::run_slow(local_stores(scratch.path()));
}

#[test]
fn the_local_store_conforms_on_tmpfs() {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        let scratch = tempfile::tempdir_in(shm).unwrap();
        conformance::run(local_stores(scratch.path()));
    } else {
        assert!(
            std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_none(),
            "no tmpfs at /dev/shm"
        );
        eprintln!("SKIPPED: the_local_store_conforms_on_tmpfs: no tmpfs at /dev/shm");
    }
}

#[test]
fn the_local_store_conforms_on_a_simulated_disk() {
    conformance::run_slow(|| {
        let disk = Arc::new(SimulatedDisk::new());
        Box::new(LocalStore::create_on(disk, Arc::new(SeededRandom::new(1))).unwrap())
    });
}

#[test]
fn stores_that_record_or_may_fail_conform_while_they_do_not() {
    conformance::run_slow(|| Box::new(RecordingStore::over(FaultyStore::over(MemoryStore::new()))));
}

#[test]
fn foreign_names_in_a_local_store_are_skipped_and_stay() {
    let scratch = tempfile::tempdir().unwrap();
    let store = LocalStore::create(scratch.path()).unwrap();
    let mut planted = Vec::new();
    conformance::foreign_names_are_skipped(&store, &mut |path, bytes| {
        let path = scratch.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        planted.push(path);
    });
    let store: &dyn Store = &store;
    assert_eq!(store.place(), scratch.path().display().to_string());
    assert!(planted.iter().all(|path| path.exists()));
}

#[test]
fn a_repository_may_be_reached_through_a_link() {
    let scratch = tempfile::tempdir().unwrap();
    let (real, link) = (scratch.path().join("real"), scratch.path().join("link"));
    drop(LocalStore::create(&real).unwrap());
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let name = ObjectName::index(ObjectId([1; 32]));
    LocalStore::open(&link)
        .unwrap()
        .put(&name, b"bytes")
        .unwrap();
    assert_eq!(
        LocalStore::open(&real).unwrap().get(&name, 10).unwrap(),
        b"bytes"
    );
}

#[test]
fn pipes_links_and_directories_in_the_place_of_objects_are_no_objects() {
    let scratch = tempfile::tempdir().unwrap();
    let store = LocalStore::create(scratch.path()).unwrap();
    let names = [1, 2, 3].map(|seed| ObjectName::index(ObjectId([seed; 32])));
    let [pipe, link, dir] = names.map(|name| scratch.path().join(name.path()));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    std::fs::create_dir(&dir).unwrap();
    for name in names {
        store.get(&name, 1_000).unwrap_err();
        store.read_at(&name, 0, &mut [0]).unwrap_err();
        assert_eq!(store.stat(&name).unwrap(), None);
        store.put(&name, b"bytes").unwrap_err();
    }
    store
        .list(Area::Index, &mut |info| panic!("{} was listed", info.name))
        .unwrap();
}

#[test]
fn a_repository_is_for_its_owner_only() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("repository");
    let store = LocalStore::create(&root).unwrap();
    let name = ObjectName::pack(ObjectId([1; 32]));
    store.put(&name, b"bytes").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join("packs/01")), 0o700);
    assert_eq!(mode(&root.join(name.path())), 0o600);
}

#[test]
fn opening_to_write_sweeps_what_dead_processes_left_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let store = LocalStore::create(scratch.path()).unwrap();
    let name = ObjectName::pack(ObjectId([1; 32]));
    store.put(&name, b"bytes").unwrap();
    std::mem::forget(store.begin().unwrap());
    let foreign = scratch.path().join("tmp/notes");
    std::fs::write(&foreign, b"not ours").unwrap();
    let files_after = |clock: &ManualClock| {
        LocalStore::open_to_write(scratch.path(), clock).unwrap();
        std::fs::read_dir(scratch.path().join("tmp"))
            .unwrap()
            .count()
    };
    let now = SystemClock.now();
    assert_eq!(files_after(&ManualClock::at(now)), 2);
    assert_eq!(
        files_after(&ManualClock::at(now + 2 * TEMPORARY_AGE_MAX)),
        1
    );
    assert!(foreign.exists());
    assert_eq!(store.get(&name, 10).unwrap(), b"bytes");
}
