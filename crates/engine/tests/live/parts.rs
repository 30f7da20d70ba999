//! Directories that are a part of their file system: which way of scanning is chosen the first
//! time.

use super::mounts::*;
use bale_engine::backup::{BackupOptions, backup};
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use bale_source::scan::{ScanMode, ScanOptions, Sources};
use bale_testkit::Scene;
use bale_testkit::scene::STEP;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Of 12,000 inodes. More subdirectories than are listed of one level, in directories of several
/// levels.
const SHARES: [(&str, u32); 4] = [
    ("most/forty", 40),
    ("most/rest", 50),
    ("five", 5),
    ("other", 5),
];

fn mounted(kind: &'static str) -> Mounted {
    let mounted = Mounted::new(kind, 512);
    for (path, percent) in SHARES {
        // 120 inodes for each of the hundred: ten directories of eleven files.
        for number in 0..percent * 10 {
            let directory = mounted
                .path()
                .join(format!("{path}/{}/{}", number % 7, number));
            std::fs::create_dir_all(&directory).unwrap();
            for file in 0..11 {
                let file = directory.join(format!("{file}"));
                match number % 5 {
                    0 => std::fs::write(file, format!("{path} {number}")).unwrap(),
                    _ => drop(File::create(file).unwrap()),
                }
            }
        }
    }
    // Old enough to be settled.
    std::thread::sleep(Duration::from_millis(50));
    mounted
}

/// A first backup of a host: its rows, and what was said about the way.
fn first_backup(
    scene: &Scene,
    host: &str,
    source: &Path,
    mode: ScanMode,
    scratch: &Path,
) -> (Vec<String>, String) {
    let repository = scene.repository();
    scene.clock.advance(STEP);
    let (sources, _) = Sources::resolve(&[source]).unwrap();
    let scan = ScanOptions {
        mode,
        freezer: Some(freezer_command("")),
        spill_directory: scratch.to_owned(),
        ..ScanOptions::default()
    };
    let options = BackupOptions {
        host: host.to_owned(),
        ..BackupOptions::default()
    };
    let monitor = Recorder::default();
    let outcome = backup(&repository, &sources, scan, &options, &monitor).unwrap();
    let problems = monitor.problems.lock().unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let layers = outcome.snapshot.layers;
    let repository = scene.repository();
    let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
    let below = &source.as_os_str().as_bytes()[1..];
    let rows = catalog.subtree(below).unwrap().map(|row| row.unwrap());
    let rows = rows.map(|row| format!("{row:?}")).collect();
    let notes = monitor.notes.lock().unwrap();
    (rows, notes.join("\n"))
}

#[test]
fn a_directory_that_promises_a_third_of_its_file_system_is_read_by_inodes_at_once() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = mounted(kind);
        let scratch = mounted.beside("");
        for (path, by_inodes) in [("most", true), ("most/forty", true), ("five", false)] {
            let source = mounted.path().join(path);
            let scene = Scene::new();
            let backup = |host, mode| first_backup(&scene, host, &source, mode, &scratch);
            let (rows, notes) = backup("one", ScanMode::Auto);
            let said = match by_inodes {
                true => "inode scan of",
                false => "walking: only about 6",
            };
            assert!(notes.contains(said), "{kind}, {path}: {notes}");
            let (walked, _) = backup("another", ScanMode::Walk);
            assert!(!walked.is_empty());
            assert_eq!(rows, walked, "{kind}, {path}");
        }
    }
}

/// The device says nothing of what is mounted on the way to a source, nor that it was not mounted
/// when the parent was made.
#[test]
fn a_source_behind_a_bind_mount_of_its_own_file_system_is_what_is_mounted_there() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = mounted(kind);
        let scratch = mounted.beside("");
        let (from, onto) = (mounted.path().join("most"), mounted.path().join("other"));
        for part in ["", "forty"] {
            let source = match part {
                "" => onto.clone(),
                part => onto.join(part),
            };
            let scene = Scene::new();
            let backup = |host, mode| first_backup(&scene, host, &source, mode, &scratch);
            let before = source.exists().then(|| backup("one", ScanMode::Inode).0);
            let _bind = Bind::new(&from, &onto);
            let (walked, _) = backup("another", ScanMode::Walk);
            assert_ne!(before.as_ref(), Some(&walked), "{kind}, {part}");
            for (host, mode) in [
                ("one", ScanMode::Inode),
                ("two", ScanMode::Inode),
                ("three", ScanMode::Auto),
                ("three", ScanMode::Inode),
            ] {
                let (rows, notes) = backup(host, mode);
                assert_eq!(rows.len(), walked.len(), "{kind}, {part}, {host}: {notes}");
                assert_eq!(rows, walked, "{kind}, {part}, {host}");
                assert!(notes.contains("inode scan of"), "{kind}, {part}: {notes}");
            }
        }
    }
}
