//! File systems whose times are whole seconds: a second change within one leaves no trace in any of
//! them.

use super::backup::{Bench, INODE, UNFROZEN, WALK, backup_into, hardly_any};
use super::hooks::Meddler;
use super::mounts::*;
use bale_pipeline::monitor::Recorder;
use bale_testkit::Scene;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// On a slow machine a backup may take longer than a second.
const TRIES_MAX: usize = 60;

fn stamps(path: &Path) -> ([i64; 4], u64) {
    let found = path.metadata().unwrap();
    let (mtime, ctime) = (found.mtime(), found.ctime());
    let times = [mtime, found.mtime_nsec(), ctime, found.ctime_nsec()];
    (times, found.size())
}

fn await_a_new_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let into = Duration::from_nanos(now.subsec_nanos().into());
    // The clock of ctimes lags behind by a tick.
    std::thread::sleep(Duration::from_millis(1020) - into);
}

#[test]
fn what_changes_again_within_the_second_of_its_backup_is_in_the_next_one() {
    if !can_mount() {
        return;
    }
    for way in [WALK, INODE, UNFROZEN] {
        // Inodes of this size have no room for nanoseconds.
        let mounted = Mounted::with("ext4", 64, &["-I", "128"], "");
        let mut bench = Bench::on(mounted, way, hardly_any());
        let path = bench.source().join("file");
        let is_same = (0..TRIES_MAX).any(|_| {
            await_a_new_second();
            fs::write(&path, b"before").unwrap();
            let before = stamps(&path);
            // So that the barrier lies well within the second.
            std::thread::sleep(Duration::from_millis(60));
            bench.backup();
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"behind", 0).unwrap();
            before == stamps(&path)
        });
        assert!(is_same, "{way:?}: no backup took less than a second");
        bench.next_backup_has_every_byte();
    }
}

/// The image itself lies where times are whole seconds.
#[test]
fn an_image_that_is_written_to_in_the_second_in_which_it_was_made_is_told() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with("ext4", 64, &["-I", "128"], "");
    let image = mounted.path().join("image");
    File::create_new(&image).unwrap().set_len(8 << 20).unwrap();
    run("mkfs.ext4", &["-q", image.to_str().unwrap()]);
    let write = || {
        let file = File::options().write(true).open(&image).unwrap();
        // Boot code: no file system looks at it.
        file.write_all_at(b"x", 0).unwrap();
    };
    await_a_new_second();
    write();
    let meddler = Meddler {
        gathered: &write,
        looked_again: &|| (),
        recorder: Recorder::default(),
    };
    let (scene, spill) = (Scene::new(), mounted.beside(""));
    let repository = scene.repository();
    backup_into(image.clone(), spill, INODE, "", &repository, &meddler).unwrap();
    let problems = meddler.recorder.problems.into_inner().unwrap();
    assert_eq!(problems.len(), 1, "{problems:?}");
}
