//! Backups while everybody writes.

use super::mounts::*;
use bale_engine::backup::{BackupOptions, Outcome, backup};
use bale_engine::restore::SnapshotRestore;
use bale_format::Time;
use bale_format::entry::{EntryFlags, Kind};
use bale_pipeline::monitor::{Monitor, Recorder};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use bale_restore::{Everything, RestoreOptions, ScratchSpace};
use bale_source::scan::freeze::BarrierKind;
use bale_source::scan::{Protocol, ScanMode, ScanOptions, Sources, UNSEEN_WRITE_SECONDS_MAX};
use bale_testkit::live_tree::{LiveTreeReport, Load, Moment, Seen};
use bale_testkit::scene::STEP;
use bale_testkit::{LiveTree, Scene, Tree};
use std::fs::File;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How far the clock of ctimes may lag behind on a machine whose ticks come late.
const LAG_MAX: Duration = Duration::from_millis(50);

/// How much older than its moment the barrier of a scan without a freeze says that it is.
const UNFROZEN_DOUBT: Duration = Duration::from_secs(UNSEEN_WRITE_SECONDS_MAX as u64);

/// Backups within which a protocol that is not whole must be caught.
const ROUNDS_TO_GO_WRONG: usize = 12;

/// A tree under writers and a repository.
pub struct Bench {
    pub mounted: Mounted,
    tree: LiveTree,
    scene: Scene,
    way: EmitOptions,
    restored: usize,
}

/// How it is backed up.
#[derive(Clone, Copy, Debug)]
pub struct EmitOptions {
    mode: ScanMode,
    protocol: Protocol,
    freeze: bool,
}

impl EmitOptions {
    pub fn freezes(&self) -> bool {
        self.freeze
    }

    pub fn is_by_inodes(&self) -> bool {
        self.mode == ScanMode::Inode
    }
}

pub const WALK: EmitOptions = EmitOptions {
    mode: ScanMode::Walk,
    protocol: FULL,
    freeze: true,
};
pub const INODE: EmitOptions = EmitOptions {
    mode: ScanMode::Inode,
    ..WALK
};
pub const UNFROZEN: EmitOptions = EmitOptions {
    freeze: false,
    ..INODE
};
const FULL: Protocol = Protocol {
    barrier: BarrierKind::Freeze,
    verify: true,
    respect_t0: true,
    direct: true,
    memory_is_racy: true,
};

impl Bench {
    fn new(kind: &'static str, way: EmitOptions, load: Load) -> Bench {
        Bench::on(Mounted::new(kind, 1024), way, load)
    }

    pub fn on(mounted: Mounted, way: EmitOptions, load: Load) -> Bench {
        let source = mounted.path().join("tree");
        std::fs::create_dir(&source).unwrap();
        Bench {
            tree: LiveTree::create(&source, load),
            scene: Scene::new(),
            mounted,
            way,
            restored: 0,
        }
    }

    pub fn source(&self) -> PathBuf {
        self.mounted.path().join("tree")
    }

    pub fn backup(&self) -> Outcome {
        self.backup_told_to(&Recorder::default())
    }

    pub fn backup_told_to(&self, monitor: &dyn Monitor) -> Outcome {
        self.backup_as(&BackupOptions::default(), monitor)
    }

    pub fn backup_as(&self, options: &BackupOptions, monitor: &dyn Monitor) -> Outcome {
        self.backup_faultily("", options, monitor)
    }

    /// What the freezer shall do to itself: see `mounts`.
    pub fn backup_with_freezer(&self, fault: &str, monitor: &dyn Monitor) -> Outcome {
        self.backup_faultily(fault, &BackupOptions::default(), monitor)
    }

    fn backup_faultily(
        &self,
        fault: &str,
        options: &BackupOptions,
        monitor: &dyn Monitor,
    ) -> Outcome {
        let spill = self.mounted.beside("");
        self.scene.clock.advance(STEP);
        let (repository, way) = (self.scene.repository(), (self.way, fault));
        backup_with(self.source(), spill, way, options, &repository, monitor).unwrap()
    }

    /// Removes everything that is in the source.
    pub fn empty(&self) {
        std::fs::remove_dir_all(self.source()).unwrap();
        std::fs::create_dir(self.source()).unwrap();
    }

    pub fn repository(&self) -> Arc<Repository> {
        self.scene.repository()
    }

    /// A backup while everybody writes, and what is wrong with it.
    pub fn backup_under_writers(&mut self) -> LiveTreeReport {
        let before = self.tree.steps();
        let (source, spill) = (self.source(), self.mounted.beside(""));
        let (way, repository) = (self.way, self.scene.repository());
        self.scene.clock.advance(STEP);
        let outcome = self.tree.write_while(|steps| {
            until("much is written", || steps() > before + 200);
            let outcome = backup_of(source, spill, way, "", &repository);
            until("more is written", || steps() > before + 400);
            outcome
        });
        self.check(&outcome)
    }

    /// The newest snapshot, restored; `None` if the source is not even in it.
    pub fn restore(&mut self) -> Option<PathBuf> {
        self.restored += 1;
        let target = self.mounted.beside(&format!("restored{}", self.restored));
        restore_newest(&self.scene, &self.source(), &target).then_some(target)
    }

    /// Every file of the newest snapshot, with its content.
    pub fn seen(&mut self, outcome: &Outcome) -> Vec<Seen> {
        let Some(target) = self.restore() else {
            return Vec::new();
        };
        let layers = outcome.snapshot.layers.clone();
        let repository = self.scene.repository();
        let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
        let below = self.source().as_os_str().as_bytes()[1..].to_vec();
        let rows = catalog.subtree(&below).unwrap().map(|row| row.unwrap());
        let files = rows.filter(|row| row.kind == Kind::File);
        let seen = files.map(|row| {
            let path = row.path()[below.len() + 1..].to_vec();
            let place = target.join(std::ffi::OsStr::from_bytes(&path));
            let filesystem = &outcome.snapshot.filesystems[row.filesystem as usize];
            let is_quiet = row.ctime < filesystem.barrier.unwrap();
            let is_whole = !row.flags.has(EntryFlags::CHANGED);
            Seen {
                settled: filesystem.scanner == "inode" && is_quiet && is_whole,
                content: match row.flags.has(EntryFlags::UNREADABLE) {
                    true => None,
                    false => Some(std::fs::read(place).unwrap()),
                },
                told: format!(
                    "inode {}, {} bytes, ctime {:?}, flags {:?}, of a {} scan with barrier {:?}",
                    row.inode,
                    row.size,
                    row.ctime,
                    row.flags,
                    filesystem.scanner,
                    filesystem.barrier
                ),
                path,
            }
        });
        let seen = seen.collect();
        std::fs::remove_dir_all(&target).unwrap();
        seen
    }

    fn check(&mut self, outcome: &Outcome) -> LiveTreeReport {
        let barriers = outcome.snapshot.filesystems.iter();
        let t0 = barriers
            .filter_map(|filesystem| filesystem.barrier)
            .max()
            .unwrap();
        let t0 = match self.way.freeze {
            true => t0,
            false => later(t0, UNFROZEN_DOUBT),
        };
        let moment = Moment::of_barrier(t0, later(t0, LAG_MAX));
        let seen = self.seen(outcome);
        self.tree.check(moment, seen)
    }
}

pub fn backup_of(
    source: PathBuf,
    spill_directory: PathBuf,
    way: EmitOptions,
    fault: &str,
    repository: &Arc<Repository>,
) -> Outcome {
    let monitor = Recorder::default();
    backup_into(source, spill_directory, way, fault, repository, &monitor).unwrap()
}

pub fn backup_into(
    source: PathBuf,
    spill_directory: PathBuf,
    way: EmitOptions,
    fault: &str,
    repository: &Arc<Repository>,
    monitor: &dyn Monitor,
) -> Result<Outcome, Error> {
    let options = BackupOptions::default();
    backup_with(
        source,
        spill_directory,
        (way, fault),
        &options,
        repository,
        monitor,
    )
}

pub fn backup_with(
    source: PathBuf,
    spill_directory: PathBuf,
    (way, fault): (EmitOptions, &str),
    options: &BackupOptions,
    repository: &Arc<Repository>,
    monitor: &dyn Monitor,
) -> Result<Outcome, Error> {
    let (sources, _) = Sources::resolve(&[source]).unwrap();
    let scan = ScanOptions {
        mode: way.mode,
        protocol: way.protocol,
        freezer: way.freeze.then(|| freezer_command(fault)),
        spill_directory,
        ..ScanOptions::default()
    };
    let options = BackupOptions {
        host: "host".to_owned(),
        ..options.clone()
    };
    let outcome = backup(repository, &sources, scan, &options, monitor)?;
    let (counts, totals) = (outcome.snapshot.counts, outcome.snapshot.totals);
    let counted = counts.files_new + counts.files_changed + counts.files_unmodified;
    assert_eq!(
        counted, totals.files,
        "each file is one of these: {counts:?}"
    );
    Ok(outcome)
}

fn later(time: Time, by: Duration) -> Time {
    let nanos =
        i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos) + by.as_nanos() as i128;
    Time {
        seconds: (nanos / 1_000_000_000) as i64,
        nanos: (nanos % 1_000_000_000) as u32,
    }
}

pub fn load(seed: u64) -> Load {
    Load {
        seed,
        large_files: 1,
        large_bytes: 16 << 20,
        pause_max: Duration::from_millis(5),
        ..Load::default()
    }
}

/// For what is about files of its own.
pub fn hardly_any() -> Load {
    Load {
        files: 3,
        quiet_files: 3,
        large_files: 0,
        ..load(1)
    }
}

/// Backs up again and again under writers; then they stop, and the next backup must be exactly what
/// is there.
fn back_up_under_writers(kind: &'static str, way: EmitOptions) {
    back_up_what_is_written_on(Mounted::new(kind, 1024), way);
}

fn back_up_what_is_written_on(mounted: Mounted, way: EmitOptions) {
    let kind = mounted.kind;
    let mut bench = Bench::on(mounted, way, load(7));
    let first = bench.backup();
    let scanners: Vec<_> = first
        .snapshot
        .filesystems
        .iter()
        .map(|fs| &fs.scanner[..])
        .collect();
    assert_eq!(scanners.contains(&"inode"), way.mode == ScanMode::Inode);
    let mut settled = 0;
    for round in 0..3 {
        let report = bench.backup_under_writers();
        assert_eq!(report.wrong(), 0, "{kind} {way:?} {round}: {report:#?}");
        settled += report.settled;
        eprintln!("{kind} {:?} {round}: {report:?}", way.mode);
    }
    // Without a freeze nothing is as old as that here.
    let can_settle = way.mode == ScanMode::Inode && way.freeze;
    let must_settle = if can_settle { 600 } else { 0 };
    assert!(
        settled >= must_settle,
        "{kind}: only {settled} files were settled"
    );
    bench.next_backup_has_every_byte();
}

impl Bench {
    /// To be called when nobody writes any more.
    pub fn next_backup_has_every_byte(&mut self) {
        self.backup();
        let restored = Tree::read(&self.restore().expect("the source"));
        let differing = restored.differences(&Tree::read(&self.source()));
        let paths: Vec<_> = differing
            .iter()
            .map(|path| String::from_utf8_lossy(path))
            .collect();
        let (kind, way) = (self.mounted.kind, self.way);
        assert!(paths.is_empty(), "{kind} {way:?}: differ: {paths:?}");
    }
}

#[test]
fn an_inode_scan_without_a_freeze_has_every_byte_once_the_writers_stop() {
    if can_mount() {
        back_up_under_writers("ext4", UNFROZEN);
    }
}

/// From what the kernel lists.
#[test]
fn a_scan_of_an_xfs_that_is_not_frozen_has_every_byte_once_the_writers_stop() {
    if can_mount() {
        back_up_under_writers("xfs", UNFROZEN);
    }
}

#[test]
fn times_that_stay_in_memory_are_no_trouble() {
    if can_mount() {
        let both = [INODE, UNFROZEN].map(|way| FILESYSTEMS.map(|kind| (kind, way)));
        for (kind, way) in both.into_iter().flatten() {
            back_up_what_is_written_on(Mounted::with(kind, 1024, &[], "lazytime"), way);
        }
    }
}

#[test]
fn once_the_writers_stop_the_next_walk_has_every_byte() {
    if can_mount() {
        FILESYSTEMS
            .into_iter()
            .for_each(|kind| back_up_under_writers(kind, WALK));
    }
}

#[test]
fn an_inode_scan_under_writers_is_right_and_once_they_stop_the_next_has_every_byte() {
    if can_mount() {
        FILESYSTEMS
            .into_iter()
            .for_each(|kind| back_up_under_writers(kind, INODE));
    }
}

/// Backs up under writers until something is wrong.
fn must_go_wrong(kind: &'static str, protocol: Protocol, load: Load) {
    let mode = ScanMode::Inode;
    let way = EmitOptions {
        mode,
        protocol,
        freeze: true,
    };
    let mut bench = Bench::new(kind, way, load);
    bench.backup();
    for _ in 0..ROUNDS_TO_GO_WRONG {
        let report = bench.backup_under_writers();
        if report.wrong() > 0 {
            eprintln!("{kind} {protocol:?}: {report:?}");
            return;
        }
    }
    panic!("{kind}: nothing goes wrong with {protocol:?}");
}

#[test]
fn without_a_second_look_files_are_wrong() {
    let protocol = Protocol {
        verify: false,
        ..FULL
    };
    if can_mount() {
        for kind in FILESYSTEMS {
            must_go_wrong(kind, protocol, load(11));
        }
    }
}

#[test]
fn content_read_through_the_page_cache_is_wrong() {
    let protocol = Protocol {
        direct: false,
        ..FULL
    };
    if can_mount() {
        for kind in FILESYSTEMS {
            must_go_wrong(kind, protocol, load(12));
        }
    }
}

/// When a file is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overwrite {
    /// By one long write that begins before the first barrier.
    LongBefore,
    /// The same, and it begins only when the `syncfs` is about to.
    LongAtSync,
    /// By a short one right after it.
    After,
}

const LONG_PART: usize = 1 << 20;
const LONG_PARTS: usize = 192;

fn overwrite(path: &Path, letter: u8, parts: usize) {
    let bytes = vec![letter; LONG_PART];
    let mut options = File::options();
    let file = options
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .unwrap();
    let written = rustix::io::writev(file, &vec![IoSlice::new(&bytes); parts]).unwrap();
    assert_eq!(written, parts * LONG_PART);
}

/// A file of A is overwritten with B while it is backed up. What the backup after that restores:
/// must be B.
fn letters_after_overwriting(kind: &'static str, protocol: Protocol, when: Overwrite) -> [u8; 2] {
    let way = EmitOptions { protocol, ..INODE };
    letters_of(kind, way, when)
}

fn letters_of(kind: &'static str, way: EmitOptions, when: Overwrite) -> [u8; 2] {
    let mut bench = Bench::new(kind, way, hardly_any());
    let (path, mark) = (bench.source().join("file"), bench.mounted.beside("mark"));
    let parts = match when {
        Overwrite::LongBefore | Overwrite::LongAtSync => LONG_PARTS,
        Overwrite::After => 1,
    };
    overwrite(&path, b'A', parts);
    bench.backup();
    let before = path.metadata().unwrap().ctime_nsec();
    let (source, spill) = (bench.source(), bench.mounted.beside(""));
    let repository = bench.scene.repository();
    bench.scene.clock.advance(STEP);
    let has_begun = || path.metadata().unwrap().ctime_nsec() != before;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            if when != Overwrite::LongBefore {
                until("the barrier is reached", || mark.exists());
            }
            overwrite(&path, b'B', parts);
        });
        let fault = match when {
            Overwrite::LongBefore => {
                until("the write has begun", has_begun);
                String::new()
            }
            Overwrite::LongAtSync => {
                scope.spawn(|| {
                    until("the barrier is reached", || mark.exists());
                    while !has_begun() {
                        std::thread::yield_now();
                    }
                    std::fs::remove_file(&mark).unwrap();
                });
                format!("wait:Asked:{}", mark.display())
            }
            Overwrite::After => format!("pause:Finished:{}", mark.display()),
        };
        backup_of(source, spill, way, &fault, &repository);
        writer.join().unwrap();
    });
    bench.backup();
    let Some(restored) = bench.restore() else {
        return *b"??";
    };
    // Without a barrier not even its name need be on the device yet.
    let Ok(restored) = std::fs::read(restored.join("file")) else {
        return *b"??";
    };
    assert_eq!(restored.len(), parts * LONG_PART);
    [restored[0], restored[restored.len() - 1]]
}

#[test]
fn what_is_overwritten_around_the_first_barrier_is_right_in_the_next_backup() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        for when in [Overwrite::LongBefore, Overwrite::After] {
            let letters = letters_after_overwriting(kind, FULL, when);
            assert_eq!(letters, *b"BB", "{kind} {when:?}");
        }
    }
}

#[test]
fn without_a_freeze_a_long_write_is_waited_for_all_the_same() {
    if can_mount() {
        for kind in FILESYSTEMS.into_iter().cycle().take(6) {
            let letters = letters_of(kind, UNFROZEN, Overwrite::LongBefore);
            assert_eq!(letters, *b"BB", "{kind}");
        }
    }
}

#[test]
fn with_syncfs_instead_of_a_freeze_a_long_write_is_torn_for_ever() {
    if !can_mount() {
        return;
    }
    let protocol = Protocol {
        barrier: BarrierKind::SyncOnly,
        ..FULL
    };
    for kind in FILESYSTEMS {
        // Who waits for a turn too long finds the write over, and looks once more.
        let mut tries = 0..4 * ROUNDS_TO_GO_WRONG;
        let is_caught = tries
            .any(|_| letters_after_overwriting(kind, protocol, Overwrite::LongAtSync) != *b"BB");
        assert!(is_caught, "{kind}: syncfs seems to be enough");
    }
}

/// On ext4 only: a raw read of XFS does not show what came after the barrier, whatever its time,
/// until the second one.
#[test]
fn without_the_time_of_the_first_barrier_old_content_is_kept_for_ever() {
    let protocol = Protocol {
        respect_t0: false,
        ..FULL
    };
    if can_mount() {
        let letters = letters_after_overwriting("ext4", protocol, Overwrite::After);
        assert_ne!(
            letters, *b"BB",
            "the time of the barrier seems not to be needed"
        );
    }
}

/// Restores what the newest snapshot has below a path to a new directory; false if the path is not
/// even in it.
pub fn restore_newest(scene: &Scene, below: &Path, target: &Path) -> bool {
    let repository = scene.repository();
    let snapshot = repository.snapshots().unwrap().pop().unwrap();
    std::fs::create_dir(target).unwrap();
    let restore = SnapshotRestore {
        repository: &repository,
        snapshot: &snapshot,
        target,
        options: RestoreOptions {
            below: below.as_os_str().as_bytes()[1..].to_vec().into(),
            threads: 1,
            ..RestoreOptions::new(&Everything)
        },
    };
    let spill = ScratchSpace::new(repository.spill_dir().unwrap());
    match restore.restore(&spill, &Recorder::default()) {
        Err(Error::NoPath { .. }) => false,
        result => result.map(|_| true).unwrap(),
    }
}
