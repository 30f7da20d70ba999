//! Files that are moved on their device after the inodes were read, and others that get their
//! blocks.

use super::backup::{Bench, INODE, hardly_any};
use super::hooks::Meddler;
use super::mounts::*;
use bale_pipeline::monitor::Recorder;
use bale_testkit::Tree;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const FILES: usize = 16;
const BLOCK: usize = 4096;

/// Files in two parts, of which a defragmenter makes one.
fn fill(directory: &Path) {
    fs::create_dir(directory).unwrap();
    for number in 0..FILES {
        let file = File::create_new(directory.join(number.to_string())).unwrap();
        for block in 0..8 {
            let bytes = [(16 * number + block) as u8; BLOCK];
            file.write_all_at(&bytes, (block * BLOCK) as u64).unwrap();
        }
        file.sync_all().unwrap();
        let (offset, len) = (2 * BLOCK as u64, BLOCK as u64);
        fallocate(&file, FallocateFlags::COLLAPSE_RANGE, offset, len).unwrap();
    }
    run("sync", &["-f", directory.to_str().unwrap()]);
}

/// Moves all of them, which changes none of their times, then writes on every block that is free.
fn move_and_overwrite(tool: &str, directory: &Path, filler: &Path) {
    for number in 0..FILES {
        let path = directory.join(number.to_string());
        run(tool, &["-v", path.to_str().unwrap()]);
    }
    run("sync", &["-f", directory.to_str().unwrap()]);
    let mut filler = File::create_new(filler).unwrap();
    let bytes = vec![b'#'; 1 << 20];
    while filler.write_all(&bytes).is_ok() {}
    let _the_disk_is_full = filler.sync_all();
}

#[test]
fn files_that_a_defragmenter_moves_while_they_are_read_are_read_again() {
    for (kind, tool) in [("ext4", "e4defrag"), ("xfs", "xfs_fsr")] {
        if !can_mount() || !can_run(&[tool]) {
            continue;
        }
        let mut bench = Bench::on(Mounted::new(kind, 320), INODE, hardly_any());
        let directory = bench.source().join("moved");
        fill(&directory);
        // Old enough to be settled.
        std::thread::sleep(Duration::from_millis(50));
        let filler = bench.mounted.path().join("filler");
        let meddler = Meddler {
            gathered: &|| move_and_overwrite(tool, &directory, &filler),
            looked_again: &|| (),
            recorder: Recorder::default(),
        };
        bench.backup_told_to(&meddler);
        let notes = meddler.recorder.notes.into_inner().unwrap();
        let is_told = |note: &String| note.contains("changed while it was read");
        assert!(notes.iter().any(is_told), "{kind}: nothing was moved");
        let restored = Tree::read(&bench.restore().expect("the source"));
        let differing = restored.differences(&Tree::read(&bench.source()));
        assert!(differing.is_empty(), "{kind}: {differing:?}");
    }
}

/// What the second pass reads is looked at by nobody afterwards: files whose directory got another
/// name, and that are moved while they are read once more.
#[test]
fn files_that_are_moved_while_the_second_pass_reads_them_are_right() {
    for (kind, tool) in [("ext4", "e4defrag"), ("xfs", "xfs_fsr")] {
        if !can_mount() || !can_run(&[tool]) {
            continue;
        }
        for is_first in [true, false] {
            let mut bench = Bench::on(Mounted::new(kind, 320), INODE, hardly_any());
            let (before, after) = (bench.source().join("before"), bench.source().join("after"));
            fs::create_dir(&before).unwrap();
            // What is in the directory that gets another name is asked of the kernel; what is
            // further down is not.
            fill(&before.join("moved"));
            // Old enough to be settled.
            std::thread::sleep(Duration::from_millis(50));
            if !is_first {
                bench.backup();
                fs::write(
                    bench.source().join("new"),
                    "so that not everything is known",
                )
                .unwrap();
            }
            let filler = bench.mounted.path().join("filler");
            let meddler = Meddler {
                gathered: &|| fs::rename(&before, &after).unwrap(),
                looked_again: &|| move_and_overwrite(tool, &after.join("moved"), &filler),
                recorder: Recorder::default(),
            };
            bench.backup_told_to(&meddler);
            let notes = meddler.recorder.notes.into_inner().unwrap();
            assert!(
                filler.exists(),
                "{kind} {is_first}: nothing was looked at again: {notes:?}"
            );
            bench.next_backup_has_every_byte();
        }
    }
}
