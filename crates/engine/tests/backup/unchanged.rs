//! What a backup may take for unchanged: what it has looked at, and what cannot have changed since
//! without a trace in its times (SRC-05, SRC-06, OBJ-11).

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::{Duration, UNIX_EPOCH};

use bale_engine::backup::Outcome;
use bale_engine::restore::SnapshotRestore;
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use bale_restore::{Everything, RestoreOptions, ScratchSpace};
use bale_testkit::Scene;

/// On a machine whose threads wait long for their turn, a file may be old when it is looked at.
const TRIES_MAX: usize = 200;
/// Longer than the doubt about the clock of ctimes.
const SETTLED: Duration = Duration::from_millis(100);

/// Was the ctime of this file, as the snapshot has it, before the barrier of its file system?
fn is_not_racy(scene: &Scene, outcome: &Outcome, name: &str) -> bool {
    let repository = scene.repository();
    let snapshot = &outcome.snapshot;
    let catalog = CatalogReader::open(repository.segment_source(), snapshot.layers.clone());
    let path = scene.source().join(name);
    let row = catalog.unwrap().lookup(&path.as_os_str().as_bytes()[1..]);
    let row = row.unwrap().unwrap();
    let barrier = snapshot.filesystems[row.filesystem as usize].barrier;
    barrier.is_some_and(|barrier| row.ctime < barrier)
}

/// SRC-06: a file as young as the scan could change once more in the same tick of the clock. It is
/// read again by the next backup, though everything that `stat` tells is equal; once it is older,
/// it is not.
#[test]
fn what_is_as_young_as_the_scan_is_read_again_and_what_is_older_is_not() {
    let young = (0..TRIES_MAX).find_map(|_| {
        let mut scene = Scene::new();
        scene.write("file", b"as young as the scan");
        let outcome = scene.backup(&scene.repository()).unwrap();
        scene.kept.clear();
        (!is_not_racy(&scene, &outcome, "file")).then_some(scene)
    });
    let scene = young.expect("a file is written and backed up within a few ticks of the clock");
    std::thread::sleep(SETTLED);
    let second = scene.backup(&scene.repository()).unwrap();
    assert_eq!(
        second.snapshot.counts.bytes_read, 20,
        "it was young, and is read"
    );
    assert_eq!(
        second.snapshot.counts.files_unmodified, 1,
        "and is found to be the same"
    );
    assert!(is_not_racy(&scene, &second, "file"), "now it is old");
    let third = scene.backup(&scene.repository()).unwrap();
    assert_eq!(
        third.snapshot.counts.bytes_read, 0,
        "and is not read any more"
    );
}

/// SRC-06: a direct write stamps when it begins and holds no lock that a reader could wait for. Who
/// writes has the file open, so it is read again by the next backup, though nothing in its times
/// tells; once nobody has it open, it is not.
#[test]
fn what_somebody_has_open_for_writing_is_read_again() {
    let mut scene = Scene::new();
    let sizes = [("small", 20), ("large", 3 << 20)];
    let all: u64 = sizes.iter().map(|(_, size)| *size as u64).sum();
    for (name, size) in sizes {
        scene.write(name, &vec![b'x'; size]);
    }
    let open = |(name, _): (&str, usize)| {
        let path = scene.source().join(name);
        File::options().append(true).open(path).unwrap()
    };
    let writers = sizes.map(open);
    std::thread::sleep(SETTLED);
    scene.backup(&scene.repository()).unwrap();
    drop(writers);
    let second = scene.backup(&scene.repository()).unwrap();
    assert_eq!(second.snapshot.counts.bytes_read, all, "could be written");
    assert_eq!(second.snapshot.counts.files_unmodified, 2);
    let third = scene.backup(&scene.repository()).unwrap();
    assert_eq!(third.snapshot.counts.bytes_read, 0, "nobody writes");
    scene.kept.clear();
}

/// SRC-05 between two backups: other content of the same length under the old mtime.
#[test]
fn a_file_rewritten_under_its_old_mtime_is_stored_again() {
    let mut scene = Scene::new();
    scene.write("file", b"old content");
    let moment = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let path = scene.source().join("file");
    let set = |path| {
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(moment)
    };
    set(&path).unwrap();
    std::thread::sleep(SETTLED);
    scene.keep();
    std::fs::write(&path, b"new content").unwrap();
    set(&path).unwrap();
    let outcome = scene.backup(&scene.repository()).unwrap();
    assert_eq!(outcome.snapshot.counts.files_changed, 1);
    let store = scene.store.clone();
    scene.assert_restorable(&store, "rewritten under its old mtime");
}

/// OBJ-11: what a path is changes from backup to backup; each snapshot has what it was then.
#[test]
fn a_path_that_becomes_something_else_is_that_in_its_snapshot() {
    let mut scene = Scene::new();
    let path = scene.source().join("path");
    // Names that differ by case only are two.
    scene.write("Path", b"another one");
    for round in 0..2 {
        scene.write("path", b"a file");
        scene.keep();
        std::fs::remove_file(&path).unwrap();
        scene.write("path/below/deep", b"in a directory");
        scene.keep();
        std::fs::remove_dir_all(&path).unwrap();
        std::os::unix::fs::symlink("Path", &path).unwrap();
        scene.keep();
        std::fs::remove_file(&path).unwrap();
        if round == 0 {
            scene.keep();
        }
    }
    let store = scene.store.clone();
    scene.assert_restorable(&store, "a path that was everything");
}

/// OBJ-10: three files of 8 EiB, nearly all of it holes, are together more than a number holds.
/// Anybody may make such files.
#[test]
fn sizes_whose_sum_no_number_holds_are_no_trouble() {
    let scene = Scene::new();
    let largest = i64::MAX as u64;
    for number in 0..3 {
        let file = File::create(scene.source().join(format!("huge{number}"))).unwrap();
        if let Err(error) = file.set_len(largest) {
            assert!(std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_none());
            return eprintln!("SKIPPED: a file of 8 EiB: {error}");
        }
        // The kernel does not tell of data in the last page of all.
        file.write_all_at(b"data", largest - 100_000).unwrap();
    }
    let store = scene.store.clone();
    for _ in 0..2 {
        let outcome = scene.backup(&scene.repository()).unwrap();
        assert_eq!(outcome.snapshot.totals.files, 3);
    }
    let repository = scene.repository();
    let snapshot = repository.snapshots().unwrap().pop().unwrap();
    let target = scene.source().with_file_name("target");
    std::fs::create_dir(&target).unwrap();
    let monitor = Recorder::default();
    let restore = SnapshotRestore {
        repository: &repository,
        snapshot: &snapshot,
        target: &target,
        options: RestoreOptions::new(&Everything),
    };
    let spill = ScratchSpace::new(repository.spill_dir().unwrap());
    restore.restore(&spill, &monitor).unwrap();
    assert!(monitor.problems.lock().unwrap().is_empty());
    let below = scene.source();
    let below = below.strip_prefix("/").unwrap();
    for number in 0..3 {
        let file = File::open(target.join(below).join(format!("huge{number}"))).unwrap();
        assert_eq!(file.metadata().unwrap().len(), largest);
        let mut data = [0; 6];
        file.read_exact_at(&mut data, largest - 100_001).unwrap();
        assert_eq!(&data, b"\0data\0");
    }
    let report = scene.check(&store).unwrap();
    assert!(report.is_clean(), "{report:?}");
}
