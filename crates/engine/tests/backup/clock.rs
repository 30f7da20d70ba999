//! What a backup compares with when clocks are wrong, records are damaged, or another file system
//! is at the place of the source (SRC-11, issue 13).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bale_engine::backup::{BackupOptions, Outcome};
use bale_format::{ObjectId, Snapshot};
use bale_pipeline::clock::Clock;
use bale_pipeline::monitor::Recorder;
use bale_repository::repository::Repository;
use bale_repository::snapshots::{SnapshotFilter, SourceKey, find, newest_first};
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::Scene;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

struct Bench {
    scene: Scene,
    repository: Arc<Repository>,
}

impl Bench {
    fn new() -> Bench {
        let scene = Scene::new();
        scene.write_tree();
        let repository = scene.repository();
        Bench { scene, repository }
    }

    fn now(&self) -> SystemTime {
        self.scene.clock.now()
    }

    fn backup(&self) -> (Outcome, Vec<String>) {
        let monitor = Recorder::default();
        let repository = self.scene.repository();
        let outcome = self
            .scene
            .backup_with(&repository, &BackupOptions::default(), &monitor);
        let notes = monitor.notes.into_inner().unwrap();
        (outcome.unwrap(), notes)
    }

    /// Backs up at another time and comes back.
    fn backup_at(&self, moment: SystemTime) -> ObjectId {
        let now = self.now();
        self.scene.clock.set(moment);
        let (outcome, _) = self.backup();
        self.scene.clock.set(now);
        outcome.id.unwrap()
    }

    fn found(&self, text: &str) -> ObjectId {
        let all = self.repository.snapshots().unwrap();
        let now = self.repository.clock().time();
        find(&all, text, &SnapshotFilter::default(), now).unwrap().0
    }
}

fn told(notes: &[String], words: &[&str]) -> bool {
    let has_all = |note: &String| words.iter().all(|word| note.contains(word));
    notes.iter().any(has_all)
}

/// M2: once made by a clock in the future, a snapshot would be parent and `latest` for ever.
#[test]
fn a_snapshot_dated_in_the_future_is_neither_parent_nor_latest_and_is_named() {
    let bench = Bench::new();
    let (first, notes) = bench.backup();
    assert!(notes.is_empty(), "{notes:?}");
    let ahead = bench.backup_at(bench.now() + 70 * YEAR);
    let (second, notes) = bench.backup();
    assert_eq!(second.snapshot.parent, first.id);
    assert!(
        told(&notes, &[&ahead.short(), "in the future"]),
        "{notes:?}"
    );
    let (third, _) = bench.backup();
    assert_eq!(third.snapshot.parent, second.id);
    assert_eq!(bench.found("latest"), third.id.unwrap());
    assert_eq!(bench.found("latest~2"), first.id.unwrap());
    assert_eq!(bench.found(&ahead.short()), ahead, "ids go on");
}

#[test]
fn clocks_that_differ_by_minutes_are_believed() {
    let bench = Bench::new();
    bench.backup();
    let ahead = bench.backup_at(bench.now() + Duration::from_secs(10 * 60));
    let (next, notes) = bench.backup();
    assert_eq!(next.snapshot.parent, Some(ahead));
    assert!(notes.is_empty(), "{notes:?}");
}

/// A rescue system with an empty battery finds what there is, and a backup says that its clock is
/// wrong.
#[test]
fn if_all_snapshots_are_in_the_future_it_is_our_clock_that_is_doubted() {
    let bench = Bench::new();
    bench.backup();
    let (newest, _) = bench.backup();
    bench.scene.clock.set(bench.now() - 20 * YEAR);
    assert_eq!(bench.found("latest"), newest.id.unwrap());
    let (outcome, notes) = bench.backup();
    assert_eq!(outcome.snapshot.parent, newest.id);
    assert!(told(&notes, &["clock of this machine"]), "{notes:?}");
    let all = bench.repository.snapshots().unwrap();
    let now = bench.repository.clock().time();
    assert!(!newest_first(&all, now).is_clock_behind(), "one is of now");
}

/// An unfinished run of a wrong clock is not gone on from for ever, and does not stay for ever.
#[test]
fn a_run_dated_in_the_future_goes_with_the_next_backup() {
    let bench = Bench::new();
    bench.backup();
    let now = bench.now();
    bench.scene.clock.set(now + YEAR);
    let monitor = Recorder::default();
    monitor
        .interrupt
        .store(true, std::sync::atomic::Ordering::SeqCst);
    bench.scene.write("new", b"new");
    let options = BackupOptions::default();
    let interrupted = bench
        .scene
        .backup_with(&bench.scene.repository(), &options, &monitor);
    assert!(interrupted.is_err());
    bench.scene.clock.set(now + DAY);
    bench.backup();
    assert_eq!(bench.scene.store.names(Area::Runs), []);
}

/// H3 for backups: it goes on, and never silently with an older parent.
#[test]
fn a_damaged_newest_snapshot_is_named_by_the_backup_that_compares_with_an_older_one() {
    let bench = Bench::new();
    let (first, _) = bench.backup();
    let (second, _) = bench.backup();
    let name = ObjectName::snapshot(second.id.unwrap());
    let bytes = bench.scene.store.get(&name, 1 << 20).unwrap();
    bench.scene.store.delete(&name).unwrap();
    bench.scene.store.put(&name, &bytes[..40]).unwrap();
    let (third, notes) = bench.backup();
    assert_eq!(third.snapshot.parent, first.id);
    let id = second.id.unwrap().to_string();
    assert!(told(&notes, &[&id, "cannot be read"]), "{notes:?}");
}

/// S3: two containers of one name, or two disks at one place.
#[test]
fn another_file_system_at_the_same_place_is_another_source() {
    let bench = Bench::new();
    let (first, _) = bench.backup();
    let elsewhere = |uuid: &str| Snapshot {
        source_filesystems: vec![uuid.to_owned()],
        ..first.snapshot.clone()
    };
    let write = |snapshot: &Snapshot| bench.repository.write_snapshot(snapshot).unwrap();
    let (one, other) = (elsewhere("a"), elsewhere("b"));
    assert!(!SourceKey::of(&one).may_be(&SourceKey::of(&other)));
    // One that does not know its file systems may be of this one; others are not, however new.
    write(&one);
    bench.scene.clock.advance(DAY);
    let unknown = write(&Snapshot {
        time: bench.repository.clock().time(),
        source_filesystems: vec![],
        ..first.snapshot.clone()
    });
    bench.scene.clock.advance(DAY);
    write(&Snapshot {
        time: bench.repository.clock().time(),
        ..other
    });
    assert_eq!(bench.backup().0.snapshot.parent, Some(unknown));
}
