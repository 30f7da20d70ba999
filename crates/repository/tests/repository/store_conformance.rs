//! Every store of the engine passes the suite, on every kind of file system that is at hand.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bale_format::ObjectId;
use bale_pipeline::clock::{Clock, ManualClock, SystemClock};
use bale_pipeline::random::SeededRandom;
use bale_repository::store::disk::{DirEntryKind, Disk, Expect, FileStat, NewFile, OpenFile};
use bale_repository::store::local::TEMPORARY_AGE_MAX;
use bale_repository::store::{Area, LocalStore, MemoryStore, ObjectName, Store, conformance};
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
fn foreign_names_in_a_local_store_are_skipped_named_and_stay() {
    let scratch = tempfile::tempdir().unwrap();
    let store = LocalStore::create(scratch.path()).unwrap();
    let mut planted = Vec::new();
    conformance::foreign_names_are_skipped_and_named(&store, &mut |path, bytes| {
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

/// A disk whose directories go on naming what is not found, so often; then they name it no more.
struct NamingDisk {
    inner: SimulatedDisk,
    dir: &'static str,
    name: String,
    listings_left: AtomicU32,
}

impl NamingDisk {
    /// A store with one object in each area; `name` is listed in `dir` besides.
    fn store(dir: &'static str, name: String, listings: u32) -> LocalStore {
        let inner = SimulatedDisk::new();
        let random = || Arc::new(SeededRandom::new(1));
        let store = LocalStore::create_on(Arc::new(inner.clone()), random()).unwrap();
        for name in [
            ObjectName::pack(ObjectId([1; 32])),
            ObjectName::index(ObjectId([1; 32])),
            ObjectName::snapshot(ObjectId([1; 32])),
        ] {
            store.put(&name, b"bytes").unwrap();
        }
        let disk = NamingDisk {
            inner,
            dir,
            name,
            listings_left: AtomicU32::new(listings),
        };
        LocalStore::open_on(Arc::new(disk), random())
    }
}

impl Disk for NamingDisk {
    fn create(&self, path: &str, expect: Expect) -> io::Result<Box<dyn NewFile>> {
        self.inner.create(path, expect)
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn OpenFile>> {
        self.inner.open(path)
    }
    fn stat(&self, path: &str) -> io::Result<Option<FileStat>> {
        self.inner.stat(path)
    }
    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename_new(from, to)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.inner.unlink(path)
    }
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.inner.make_dir(path)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.inner.remove_dir(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn list(
        &self,
        path: &str,
        found: &mut dyn FnMut(&[u8], Option<DirEntryKind>),
    ) -> io::Result<()> {
        let left = self.listings_left.load(Ordering::Relaxed);
        if path == self.dir && left > 0 {
            self.listings_left.store(left - 1, Ordering::Relaxed);
            found(self.name.as_bytes(), None);
        }
        self.inner.list(path, found)
    }
    fn place(&self) -> String {
        self.inner.place()
    }
}

fn listed(store: &LocalStore, area: Area) -> Result<usize, String> {
    let mut count = 0;
    let listed = store.list(area, &mut |_| count += 1);
    listed.map_err(|error| error.to_string())?;
    Ok(count)
}

/// REP-10: what a prune does not see it deletes the packs of.
#[test]
fn what_a_local_store_goes_on_listing_and_does_not_find_is_damage() {
    let gone = ObjectId([2; 32]).to_string();
    for (area, dir, name) in [
        (Area::Snapshots, "snapshots", gone.clone()),
        (Area::Index, "index", gone.clone()),
        (Area::Packs, "packs/01", gone.replace("0202", "0102")),
        (Area::Runs, "runs", gone[..32].to_owned()),
        (Area::Condemned, "condemned", gone.clone()),
    ] {
        let store = NamingDisk::store(dir, name.clone(), u32::MAX);
        let error = listed(&store, area).unwrap_err();
        assert!(error.contains("is listed, and not found"), "{error}");
        assert!(error.contains(&name), "{error}");
        // Removed while it was listed, by a prune.
        let expected = usize::from(!matches!(area, Area::Runs | Area::Condemned));
        for listings in [1, 2] {
            let store = NamingDisk::store(dir, name.clone(), listings);
            assert_eq!(listed(&store, area), Ok(expected), "{area}");
        }
    }
}

#[test]
fn a_directory_without_which_a_local_store_is_not_whole_is_not_taken_for_an_empty_one() {
    let scratch = tempfile::tempdir().unwrap();
    let store = LocalStore::create(scratch.path()).unwrap();
    let away = scratch.path().join("away");
    let without = |dir: &str, area: Area| {
        std::fs::rename(scratch.path().join(dir), &away).unwrap();
        let found = listed(&store, area);
        std::fs::rename(&away, scratch.path().join(dir)).unwrap();
        found
    };
    for area in [Area::Keys, Area::Packs, Area::Index, Area::Snapshots] {
        let error = without(area.text(), area).unwrap_err();
        let path = scratch.path().join(area.text());
        let says = format!("{} is not there: bring it back", path.display());
        assert!(error.contains(&says), "{error}");
    }
    std::fs::rename(scratch.path().join("snapshots"), &away).unwrap();
    let put = store.put(&ObjectName::snapshot(ObjectId([1; 32])), b"bytes");
    let error = put.unwrap_err().to_string();
    assert!(error.contains("bring it back"), "{error}");
    std::fs::rename(&away, scratch.path().join("snapshots")).unwrap();
    // Tools that copy a repository leave out what is empty.
    for (dir, area) in [
        ("runs", Area::Runs),
        ("condemned", Area::Condemned),
        ("damaged", Area::Damaged),
        ("packs/7f", Area::Packs),
    ] {
        assert_eq!(without(dir, area), Ok(0), "{dir}");
    }
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
