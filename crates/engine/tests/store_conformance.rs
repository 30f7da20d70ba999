//! Every store of the engine passes the suite, on every kind of file system that is at hand.

use std::path::Path;
use std::sync::Mutex;

use bale_engine::store::{LocalStore, MemoryStore, Store, conformance};

/// A store whose directory goes with the test.
fn run_in(parent: &Path) {
    let scratch = tempfile::tempdir_in(parent).unwrap();
    let number = Mutex::new(0);
    conformance::run(|| {
        let mut number = number.lock().unwrap();
        *number += 1;
        Box::new(LocalStore::create(&scratch.path().join(format!("a/b/{number}"))).unwrap())
    });
}

#[test]
fn the_memory_store_conforms() {
    conformance::run(|| Box::new(MemoryStore::new()));
}

#[test]
fn the_local_store_conforms() {
    run_in(&std::env::temp_dir());
}

#[test]
fn the_local_store_conforms_on_tmpfs() {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        run_in(shm);
    } else {
        assert!(
            std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_none(),
            "no tmpfs at /dev/shm"
        );
        eprintln!("SKIPPED: the_local_store_conforms_on_tmpfs: no tmpfs at /dev/shm");
    }
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
