//! What is in memory and not on the disk yet: changes that leave no trace in a time, or leave it
//! before they are there.

use super::backup::{Bench, INODE, UNFROZEN, WALK, backup_of, hardly_any, restore_newest};
use super::mounts::*;
use bale_engine::backup::{BackupOptions, backup};
use bale_pipeline::monitor::Recorder;
use bale_source::scan::snapshot_command::{SnapshotCommand, take_all};
use bale_source::scan::{ScanMode, ScanOptions, Sources, barrier_now};
use bale_testkit::scene::STEP;
use bale_testkit::{Scene, Tree};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Somebody else may have everything written back just then.
const TRIES_MAX: usize = 10;
/// Longer than the doubt about the clock of ctimes.
const SETTLED: Duration = Duration::from_millis(150);

/// A program that has a file mapped, and stores bytes where it is told to.
struct Mapper(Child);

impl Mapper {
    fn of(path: &Path) -> Mapper {
        let script = "import mmap, os, sys\n\
            m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)\n\
            for line in sys.stdin:\n\
            \x20   m[0] = int(line)\n\
            \x20   print('stored', flush=True)";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(path);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Mapper(piped.spawn().unwrap())
    }

    /// Stores a byte at the beginning of the file.
    fn store(&mut self, byte: u8) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{byte}").unwrap();
        let mut answer = String::new();
        let mut output = BufReader::new(self.0.stdout.as_mut().unwrap());
        output.read_line(&mut answer).unwrap();
        assert_eq!(answer, "stored\n");
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn ctime(path: &Path) -> (i64, i64) {
    let metadata = path.metadata().unwrap();
    (metadata.ctime(), metadata.ctime_nsec())
}

/// A store moves the ctime when its page becomes writable, and not again before the page was
/// written back.
#[test]
fn what_is_stored_through_a_map_after_a_backup_is_in_the_next_one() {
    if !can_mount() || !can_run(&["python3", "mkfs.btrfs"]) {
        return;
    }
    let inode = [
        ("ext4", INODE),
        ("ext4", UNFROZEN),
        ("xfs", INODE),
        ("xfs", UNFROZEN),
    ];
    let walk = ["ext4", "xfs", "btrfs"].map(|kind| (kind, WALK));
    for (kind, way) in walk.into_iter().chain(inode) {
        let mut bench = Bench::on(Mounted::new(kind, 320), way, hardly_any());
        let path = bench.source().join("mapped");
        fs::write(&path, [b'a'; 8192]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let mut mapper = Mapper::of(&path);
        mapper.store(b'b');
        std::thread::sleep(SETTLED);
        bench.backup();
        mapper.store(b'c');
        bench.next_backup_has_every_byte();
    }
}

/// In memory nothing is ever written back, so no store through a map leaves a trace; nor where
/// writing back is refused.
#[test]
fn what_is_stored_through_a_map_and_never_written_back_is_in_the_next_backup() {
    if !can_mount() || !can_run(&["python3"]) {
        return;
    }
    for mounted in [Mounted::in_memory(), Mounted::volatile_overlay()] {
        let mut bench = Bench::on(mounted, WALK, hardly_any());
        let path = bench.source().join("mapped");
        fs::write(&path, [b'a'; 8192]).unwrap();
        let mut mapper = Mapper::of(&path);
        // A page that memory was short of is mapped anew, and then its next store moves the ctime.
        let is_silent = (0..TRIES_MAX as u8).any(|round| {
            mapper.store(b'b' + 2 * round);
            std::thread::sleep(SETTLED);
            bench.backup();
            let before = ctime(&path);
            mapper.store(b'c' + 2 * round);
            ctime(&path) == before
        });
        assert!(is_silent, "it tells");
        bench.next_backup_has_every_byte();
    }
}

/// The journal is written every second here, and what is overwritten in place not for half a
/// minute: a crash, and a copy of the device, find the new time and the old bytes.
fn with_a_time_ahead_of_its_bytes(act: impl FnOnce(Mounted, &Path)) {
    let mounted = Mounted::with("ext4", 64, &[], "commit=1");
    let directory = mounted.path().join("tree");
    fs::create_dir(&directory).unwrap();
    let path = directory.join("file");
    fs::write(&path, [b'a'; 8192]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let offset = device_offset_of_end(&path);
    let is_ahead = (0..TRIES_MAX).any(|_| {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[b'a'; 8192], 0).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(&[b'b'; 8192], 0).unwrap();
        std::thread::sleep(Duration::from_millis(2_500));
        read_device(&mounted, offset) == b'a'
    });
    assert!(is_ahead, "it is always written back at once");
    act(mounted, &path);
}

#[test]
fn what_a_crash_takes_back_after_a_walk_is_what_the_next_backup_has() {
    if !can_mount() {
        return;
    }
    with_a_time_ahead_of_its_bytes(|mounted, path| {
        let scene = Scene::new();
        let (source, spill) = (path.parent().unwrap().to_path_buf(), mounted.beside(""));
        scene.clock.advance(STEP);
        backup_of(source.clone(), spill.clone(), WALK, "", &scene.repository());
        let crashed = mounted.beside("crashed");
        fs::copy(mounted.image(), &crashed).unwrap();
        mounted.while_unmounted(|image| fs::rename(&crashed, image).unwrap());
        scene.clock.advance(STEP);
        backup_of(source.clone(), spill, WALK, "", &scene.repository());
        assert_restores(&scene, &mounted, &source);
    });
}

/// As snapshots of the disks of virtual machines are.
#[test]
fn bytes_that_are_missing_in_an_image_of_a_mounted_file_system_are_in_the_next_backup() {
    if !can_mount() {
        return;
    }
    with_a_time_ahead_of_its_bytes(|mounted, path| {
        let scene = Scene::new();
        let (copy, spill) = (mounted.beside("copy"), mounted.beside(""));
        for _ in 0..2 {
            fs::copy(mounted.image(), &copy).unwrap();
            scene.clock.advance(STEP);
            backup_of(copy.clone(), spill.clone(), INODE, "", &scene.repository());
            File::open(path).unwrap().sync_all().unwrap();
        }
        let restored = restore(&scene, &mounted, &copy);
        let file = &restored.0[b"tree/file".as_slice()];
        assert_eq!(file.content.first(), Some(&b'b'));
    });
}

/// Somebody else's freeze holds up who writes, and nobody else.
#[test]
fn a_file_system_that_is_frozen_is_walked() {
    if !can_mount() || !can_run(&["mkfs.btrfs"]) {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"] {
        let bench = Bench::on(Mounted::new(kind, 320), WALK, hardly_any());
        fs::write(bench.source().join("file"), [b'a'; 8192]).unwrap();
        bale_sys::freeze::freeze(bench.mounted.open().as_fd()).unwrap();
        let outcome = bench.backup();
        assert!(bench.mounted.thaw(), "{kind} was frozen all the time");
        assert_eq!(outcome.snapshot.counts.problems, 0);
    }
}

/// A snapshot without a freeze: a copy of the device.
#[test]
fn what_is_in_memory_is_in_a_snapshot() {
    if !can_mount() {
        return;
    }
    with_a_time_ahead_of_its_bytes(|mounted, path| {
        let scene = Scene::new();
        let copy = mounted.beside("copy");
        let script = "cp \"$0\" \"$1\" && echo \"device $1\" && echo ready && cat > /dev/null";
        let command = SnapshotCommand {
            program: "sh".into(),
            arguments: vec![
                "-c".into(),
                script.into(),
                mounted.image().into(),
                copy.into(),
            ],
            wait_max: PATIENCE,
        };
        for _ in 0..2 {
            scene.clock.advance(STEP);
            let barrier = Some(barrier_now());
            let (mut sources, _) = Sources::resolve(&[mounted.path()]).unwrap();
            let (mode, spill_directory) = (ScanMode::Inode, mounted.beside(""));
            let held = take_all(&command, &mut sources, mode, "test", &mut |_| ()).unwrap();
            let scan = ScanOptions {
                mode,
                barrier,
                spill_directory,
                ..ScanOptions::default()
            };
            let options = BackupOptions::default();
            let monitor = Recorder::default();
            backup(&scene.repository(), &sources, scan, &options, &monitor).unwrap();
            drop(held);
            File::open(path).unwrap().sync_all().unwrap();
        }
        assert_restores(&scene, &mounted, path.parent().unwrap());
    });
}

fn restore(scene: &Scene, mounted: &Mounted, below: &Path) -> Tree {
    let target = mounted.beside("restored");
    assert!(restore_newest(scene, below, &target));
    Tree::read(&target)
}

fn assert_restores(scene: &Scene, mounted: &Mounted, source: &Path) {
    let differing = restore(scene, mounted, source).differences(&Tree::read(source));
    assert!(differing.is_empty(), "{differing:?}");
}
