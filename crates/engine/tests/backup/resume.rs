//! A run that is interrupted, by a person or a crash, is kept, can be looked at, and is gone on
//! from (CRA-05, I9).

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bale_engine::backup::BackupOptions;
use bale_format::snapshot::Counts;
use bale_format::{Content, Entry, Snapshot};
use bale_pipeline::monitor::{Monitor, Problem, Recorder};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use bale_repository::store::Area;
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, FaultyStore, Scene, Tree};

const DIRECTORIES: usize = 40;
const FILES: usize = 40;
/// Rows with long targets weigh much: a few thousand fill several catalog segments, the unit that a
/// record keeps.
const LINKS: usize = 100;

/// Enough files in enough directories to be stopped among them.
fn many() -> Scene {
    let scene = Scene::new();
    for dir in 0..DIRECTORIES {
        for file in 0..FILES {
            let number = (dir * FILES + file) as u64;
            scene.write(&format!("d{dir:02}/f{file:02}"), &noise(number, 1_500));
        }
        for link in 0..LINKS {
            let target = format!("{}/{dir}/{link}", "long/".repeat(790));
            let name = scene.source().join(format!("d{dir:02}/l{link:02}"));
            std::os::unix::fs::symlink(target, name).unwrap();
        }
    }
    // Younger entries than the clock's grain are always read again: let them age.
    std::thread::sleep(Duration::from_millis(50));
    scene
}

fn often() -> BackupOptions {
    BackupOptions {
        checkpoint_every: Some(Duration::ZERO),
        ..BackupOptions::default()
    }
}

/// Interrupts once it was asked so often.
struct After(AtomicU64);

impl After {
    fn asked(times: u64) -> After {
        After(AtomicU64::new(times))
    }
}

impl Monitor for After {
    fn problem(&self, _: &Problem) {}

    fn interrupted(&self) -> bool {
        let left = self.0.load(Ordering::SeqCst);
        self.0.store(left.saturating_sub(1), Ordering::SeqCst);
        left == 0
    }
}

/// Rows of the source, with the chunks they point at. Directories above it are other people's.
fn rows(scene: &Scene, repository: &Arc<Repository>, snapshot: &Snapshot) -> Vec<Entry> {
    repository.reload_index().unwrap();
    let catalog =
        CatalogReader::open(repository.segment_source(), snapshot.layers.clone()).unwrap();
    let source = scene.source();
    let rows = catalog
        .subtree(&source.as_os_str().as_bytes()[1..])
        .unwrap();
    rows.map(|row| row.unwrap()).collect()
}

/// The same rows without saying where content lies: a record closes bundles early.
fn wherever(mut rows: Vec<Entry>) -> Vec<Entry> {
    for row in &mut rows {
        if matches!(row.content, Content::Bundled { .. }) {
            row.content = Content::None;
        }
    }
    rows
}

/// What an uninterrupted run of the same tree into the same repository makes.
fn uninterrupted(scene: &Scene) -> Vec<Entry> {
    let repository = scene.open(scene.store.fork()).unwrap();
    let outcome = scene.backup(&repository).unwrap();
    rows(scene, &repository, &outcome.snapshot)
}

/// A backup interrupted among its files, after as many questions as that takes.
fn interrupted_among_files(scene: &Scene) -> DatedStore {
    for times in (10..4_000).step_by(10) {
        let store = scene.store.fork();
        let repository = scene.open(store.clone()).unwrap();
        let done = scene.backup_with(&repository, &BackupOptions::default(), &After::asked(times));
        assert!(matches!(done, Err(Error::Interrupted)), "{times}: {done:?}");
        assert!(store.names(Area::Snapshots).is_empty());
        let (runs, _) = scene.open(store.clone()).unwrap().runs_readable().unwrap();
        let rows = |run: &Snapshot| run.layers.iter().map(|layer| layer.rows).sum::<u64>();
        if runs.iter().any(|(_, run)| rows(run) > 1_000) {
            return store;
        }
    }
    panic!("no backup was interrupted among its files");
}

#[test]
fn an_interrupted_backup_is_kept_listed_restored_in_part_and_gone_on_from() {
    let scene = many();
    let expected = uninterrupted(&scene);
    let store = interrupted_among_files(&scene);
    let repository = scene.open(store.clone()).unwrap();
    let (runs, damaged) = repository.runs_readable().unwrap();
    assert!(damaged.is_empty());
    let [run] = &runs[..] else {
        panic!("{} runs", runs.len())
    };
    assert!(run.1.partial && run.1.until.is_some());
    let monitor = Recorder::default();
    let (tree, report) = scene.restore(&repository, run, &monitor);
    report.unwrap();
    let whole = Tree::read(&scene.source());
    let files = tree.0.iter().filter(|(path, node)| {
        node.metadata.0 & 0o170000 == 0o100000 && whole.0[*path].content == node.content
    });
    let files = files.count();
    assert!(
        files > 0 && files < DIRECTORIES * FILES,
        "{files} files in the partial snapshot"
    );

    let repository = scene.open(store.clone()).unwrap();
    let outcome = scene.backup(&repository).unwrap();
    let read = outcome.snapshot.counts.bytes_read;
    let all = (DIRECTORIES * FILES * 1_500) as u64;
    assert!(
        read <= all - files as u64 * 1_500 + all / 10,
        "read {read} of {all} again, {files} files were done"
    );
    let resumed = rows(&scene, &repository, &outcome.snapshot);
    assert_eq!(wherever(resumed), wherever(expected), "the same tree");
    assert!(store.names(Area::Runs).is_empty(), "the run has served");
    scene.assert_sound(&store, "resumed");
}

/// Killed at every 7th call with a record after every item: whatever there is of a run serves or
/// does no harm, and the catalog in the end is the same.
#[test]
fn a_backup_killed_between_its_records_ends_in_the_same_catalog() {
    let scene = Scene::new();
    scene.write_tree();
    for dir in 0..6 {
        for file in 0..4 {
            scene.write(&format!("d{dir}/f{file}"), &noise(dir * 10 + file, 3_000));
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    let (mut after, mut resumed) = (1, 0);
    let expected = uninterrupted(&scene);
    loop {
        let store = scene.store.fork();
        let faulty = FaultyStore::over(store.clone());
        let repository = scene.open(faulty.clone()).unwrap();
        faulty.crash_after(after, after % 2 == 0);
        let done = scene.backup_with(&repository, &often(), &Recorder::default());
        if done.is_ok() {
            break;
        }
        let story = format!("killed at call {after}");
        resumed += usize::from(!store.names(Area::Runs).is_empty());
        scene.assert_restorable(&store, &story);
        if store.names(Area::Snapshots).is_empty() {
            let repository = scene.open(store.clone()).unwrap();
            let outcome = scene.backup(&repository).expect(&story);
            let resumed = rows(&scene, &repository, &outcome.snapshot);
            assert_eq!(wherever(resumed), wherever(expected.clone()), "{story}");
        }
        scene.assert_sound(&store, &story);
        after += 7;
    }
    assert!(resumed > 3, "{resumed} runs were there to go on from");
}

/// I9: the same tree makes the same chunks and segments, whatever the threads do.
#[test]
fn the_same_tree_makes_the_same_catalog_every_time() {
    let scene = many();
    scene.write("large", &noise(1, 3 << 20));
    let expected = uninterrupted(&scene);
    for _ in 0..3 {
        assert_eq!(uninterrupted(&scene), expected);
    }
}

/// Interrupted in the middle of a large file, what came before it is kept.
#[test]
fn interrupting_while_a_large_file_is_read_keeps_what_is_finished() {
    let scene = Scene::new();
    scene.write("a-first", b"finished");
    scene.write("b-large", &noise(2, 24 << 20));
    let repository = scene.open(scene.store.clone()).unwrap();
    let done = scene.backup_with(&repository, &BackupOptions::default(), &After::asked(14));
    assert!(matches!(done, Err(Error::Interrupted)), "{done:?}");
    assert_eq!(
        scene.store.names(Area::Runs).len(),
        1,
        "the finished part is recorded"
    );
    scene.assert_sound(&scene.store, "interrupted in a large file");
}

/// A backup with many records whose store is full after 32 MiB, and what the next one counts that
/// has room.
fn gone_on_after_32_mib(scene: &Scene) -> (DatedStore, Counts) {
    let store = scene.store.fork();
    let faulty = FaultyStore::over(store.clone());
    faulty.full_after(32 << 20);
    let repository = scene.open(faulty).unwrap();
    scene
        .backup_with(&repository, &often(), &Recorder::default())
        .unwrap_err();
    let repository = scene.open(store.clone()).unwrap();
    let outcome = scene.backup(&repository).unwrap();
    (store, outcome.snapshot.counts)
}

/// There is no row of it, so that there is no record either.
#[test]
fn a_run_that_died_in_a_large_file_has_named_what_it_stored_of_it() {
    let scene = Scene::new();
    scene.write("large", &noise(1, 48 << 20));
    let (_, counts) = gone_on_after_32_mib(&scene);
    let stored = counts.bytes_stored;
    assert!(stored < 24 << 20, "{stored}");
}

/// Few rows fill no segment of a catalog; of large files each is worth a record of its own.
#[test]
fn large_files_that_are_in_a_record_are_not_read_again() {
    let scene = Scene::new();
    for number in 0..8 {
        scene.write(&format!("f{number}"), &noise(number, 6 << 20));
    }
    std::thread::sleep(Duration::from_millis(50));
    let (store, counts) = gone_on_after_32_mib(&scene);
    assert!(counts.bytes_read <= 5 * (6 << 20), "{counts:?}");
    scene.assert_sound(&store, "gone on from a record");
}
