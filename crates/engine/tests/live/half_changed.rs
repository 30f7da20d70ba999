//! Files of which the kernel tells another length and the ctime of before: a truncation shows for
//! some twenty microseconds like that, on ext4 and on XFS.

use super::backup::{Bench, INODE, WALK, backup_of, hardly_any};
use super::hooks::Meddler;
use super::mounts::*;
use bale_engine::backup::Outcome;
use bale_format::entry::EntryFlags;
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use bale_testkit::scene::STEP;
use bale_testkit::{Scene, Tree};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

fn walk(scene: &Scene, mounted: &Mounted) -> Outcome {
    scene.clock.advance(STEP);
    let (source, spill) = (mounted.path(), mounted.beside(""));
    backup_of(source, spill, WALK, "", &scene.repository())
}

fn is_racy(scene: &Scene, outcome: &Outcome, path: &Path) -> bool {
    let layers = outcome.snapshot.layers.clone();
    let catalog = CatalogReader::open(scene.repository().segment_source(), layers).unwrap();
    let row = catalog.lookup(&path.as_os_str().as_bytes()[1..]);
    row.unwrap().unwrap().flags.has(EntryFlags::RACY)
}

/// Nobody can be made to truncate slowly, so the length is changed behind the kernel's back.
#[test]
fn a_length_that_changed_under_its_old_ctime_is_read_again_by_the_next_backup() {
    if !can_mount() || !can_run(&["debugfs"]) {
        return;
    }
    let scene = Scene::new();
    let mounted = Mounted::new("ext4", 64);
    let (file, other) = (mounted.path().join("file"), mounted.path().join("other"));
    std::fs::write(&file, [b'a'; 4096]).unwrap();
    std::fs::write(&other, [b'b'; 4096]).unwrap();
    // Old enough to be settled.
    std::thread::sleep(Duration::from_millis(100));
    walk(&scene, &mounted);
    mounted.while_unmounted(|image| {
        let image = image.to_str().unwrap();
        run("debugfs", &["-w", "-R", "sif file size 1000", image]);
    });
    let second = walk(&scene, &mounted);
    assert_eq!(second.snapshot.counts.files_changed, 1);
    assert_eq!(second.snapshot.counts.bytes_read, 1000);
    assert!(is_racy(&scene, &second, &file), "it may be half a change");
    assert!(!is_racy(&scene, &second, &other), "nothing happened to it");
    let third = walk(&scene, &mounted);
    assert_eq!(third.snapshot.counts.bytes_read, 1000, "it was in doubt");
    assert!(!is_racy(&scene, &third, &file), "now it is not");
    let fourth = walk(&scene, &mounted);
    assert_eq!(fourth.snapshot.counts.bytes_read, 0);
}

/// A truncation that the kernel shows while the second pass asks, of which the device knows
/// nothing, and which is undone: what the kernel has in memory of two inodes is of another length
/// than what is on the device.
#[test]
fn a_truncation_that_is_undone_after_the_backup_leaves_no_empty_row() {
    if !can_mount() || !can_run(&["debugfs"]) {
        return;
    }
    let mut bench = Bench::on(Mounted::new("ext4", 64), INODE, hardly_any());
    let (before, after) = (bench.source().join("before"), bench.source().join("after"));
    std::fs::create_dir(&before).unwrap();
    let paths = [before.join("file"), bench.source().join("staying")];
    for path in &paths {
        std::fs::write(path, [b'a'; 4096]).unwrap();
    }
    run("sync", &["-f", before.to_str().unwrap()]);
    let inodes = [0, 1].map(|at: usize| paths[at].metadata().unwrap().ino());
    let device = bench.mounted.device();
    let set_size = |size: u64| {
        for inode in inodes {
            let command = format!("sif <{inode}> size {size}");
            run("debugfs", &["-w", "-R", &command, device.to_str().unwrap()]);
        }
    };
    let forget_unused = || std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    set_size(0);
    forget_unused();
    let held = [0, 1].map(|at: usize| File::open(&paths[at]).unwrap());
    set_size(4096);
    assert_eq!(held[0].metadata().unwrap().len(), 0);
    // Old enough to be settled, with what mkfs made.
    std::thread::sleep(Duration::from_millis(2_100));
    let meddler = Meddler {
        // Both directories are asked for; in one of them the file has no row yet.
        gathered: &|| {
            std::fs::rename(&before, &after).unwrap();
            run("sync", &["-f", after.to_str().unwrap()]);
        },
        looked_again: &|| (),
        recorder: Recorder::default(),
    };
    bench.backup_told_to(&meddler);
    let restored = Tree::read(&bench.restore().expect("the source"));
    let is_seen = |path: &str| restored.0[path.as_bytes()].content.is_empty();
    assert!(is_seen("after/file") && is_seen("staying"), "nobody asked");
    drop(held);
    forget_unused();
    bench.next_backup_has_every_byte();
    assert_eq!(after.join("file").metadata().unwrap().len(), 4096);
}
