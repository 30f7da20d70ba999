//! Loads that need a file system of their own kind, or all of its room: blocks that files come to
//! share, and a full disk.

use super::backup::{Bench, INODE, UNFROZEN, load};
use super::mounts::*;
use bale_testkit::live_tree::Load;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files of each kind.
const TWINS: u32 = 48;
const TWIN_BYTES: usize = 64 << 10;
const ROUNDS: usize = 3;

/// Few writers besides: this is about something else.
fn few() -> Load {
    Load {
        files: 20,
        quiet_files: 20,
        large_files: 0,
        ..load(5)
    }
}

/// Stops a writer when the backup is over, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn pattern(number: u32, len_bytes: usize) -> Vec<u8> {
    let stamp = number.wrapping_mul(0x9e37_79b1).to_le_bytes();
    stamp.iter().copied().cycle().take(len_bytes).collect()
}

fn twin(source: &Path, kind: &str, number: u32) -> PathBuf {
    source.join("twins").join(format!("{kind}{number}"))
}

/// A `b` is told to share the blocks of its `a`, which changes no time; a `c` becomes a clone of
/// another `a` again and again.
fn share(source: &Path, stop: &AtomicBool) {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        for number in 0..TWINS {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let a = twin(source, "a", number);
            let clone = format!(
                "reflink {} 0 0 0",
                twin(source, "a", (number + rounds) % TWINS).display()
            );
            let dedupe = format!("dedupe {} 0 0 {TWIN_BYTES}", a.display());
            // What the two gave up is soon another file's.
            File::create(twin(source, "d", number))
                .unwrap()
                .write_all(&pattern(number + 900, TWIN_BYTES))
                .unwrap();
            for (command, kind) in [(dedupe, "b"), (clone, "c")] {
                let shared = Command::new("xfs_io")
                    .args(["-c", &command])
                    .arg(twin(source, kind, number))
                    .output();
                let shared = shared.unwrap();
                let told = String::from_utf8_lossy(&shared.stderr);
                assert!(
                    shared.status.success() && told.is_empty(),
                    "{command}: {told}"
                );
            }
        }
        rounds += 1;
        // Apart again, for the next round.
        for number in 0..TWINS {
            std::fs::write(twin(source, "b", number), pattern(number, TWIN_BYTES)).unwrap();
        }
    }
}

#[test]
fn files_that_come_to_share_blocks_while_they_are_read_are_right() {
    if !can_mount() || !can_run(&["xfs_io"]) {
        return;
    }
    let mounted = Mounted::with("xfs", 1024, &["-m", "reflink=1"], "");
    let mut bench = Bench::on(mounted, INODE, few());
    let source = bench.source();
    std::fs::create_dir(source.join("twins")).unwrap();
    for number in 0..TWINS {
        for kind in ["a", "b", "c"] {
            std::fs::write(twin(&source, kind, number), pattern(number, TWIN_BYTES)).unwrap();
        }
    }
    bench.backup();
    for round in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            let stop_when_done = Stop(&stop);
            scope.spawn(|| share(&source, &stop));
            std::thread::sleep(Duration::from_millis(200));
            let outcome = bench.backup();
            drop(stop_when_done);
            outcome
        });
        let whole: Vec<_> = (0..TWINS)
            .map(|number| pattern(number, TWIN_BYTES))
            .collect();
        for seen in bench.seen(&outcome) {
            let path = String::from_utf8(seen.path).unwrap();
            let Some(name) = path.strip_prefix("twins/") else {
                continue;
            };
            let (kind, number) = name.split_at(1);
            let number: usize = number.parse().unwrap();
            let content = seen.content.expect("nothing is deleted here");
            let is_right = match kind {
                "a" => content == whole[number],
                // Read while it was being written: as long as it says so.
                "b" => content == whole[number] || !seen.settled,
                "c" => whole.contains(&content),
                _ => true,
            };
            assert!(
                is_right,
                "{round}: {path}: {} bytes, settled: {}",
                content.len(),
                seen.settled
            );
        }
    }
    bench.next_backup_has_every_byte();
}

/// Appends to files until there is no room, and deletes them.
fn fill(source: &Path, stop: &AtomicBool, times_full: &AtomicBool) {
    for turn in 0u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let number = turn % 40;
        let file = File::create(source.join("full").join(number.to_string())).unwrap();
        let block = pattern(number, 1 << 20);
        for at in 0..3 {
            if let Err(error) = file.write_all_at(&block, at << 20) {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                times_full.store(true, Ordering::Relaxed);
                for other in 0..20 {
                    let _ = std::fs::remove_file(source.join("full").join(other.to_string()));
                }
                break;
            }
        }
    }
}

#[test]
fn a_file_system_that_runs_full_again_and_again_is_right_once_it_does_no_more() {
    if !can_mount() {
        return;
    }
    let both = [INODE, UNFROZEN].map(|way| FILESYSTEMS.map(|kind| (kind, way)));
    for (kind, way) in both.into_iter().flatten() {
        let mut bench = Bench::on(Mounted::new(kind, 512), way, few());
        let source = bench.source();
        std::fs::create_dir(source.join("full")).unwrap();
        // All but a little is taken.
        let room = rustix::fs::statvfs(&source).unwrap();
        let taken = (room.f_bavail * room.f_frsize).saturating_sub(64 << 20);
        let ballast = File::create(bench.mounted.path().join("ballast")).unwrap();
        rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, taken).unwrap();
        bench.backup();
        for round in 0..ROUNDS {
            let (stop, was_full) = (AtomicBool::new(false), AtomicBool::new(false));
            let outcome = std::thread::scope(|scope| {
                let stop_when_done = Stop(&stop);
                scope.spawn(|| fill(&source, &stop, &was_full));
                until("it is full", || was_full.load(Ordering::Relaxed));
                let outcome = bench.backup();
                drop(stop_when_done);
                outcome
            });
            for seen in bench.seen(&outcome) {
                let path = String::from_utf8(seen.path).unwrap();
                if let (Some(number), true) = (path.strip_prefix("full/"), seen.settled) {
                    let content = seen.content.expect("settled");
                    let whole = pattern(number.parse().unwrap(), content.len());
                    assert!(content == whole, "{kind} {round}: {path} is torn");
                }
            }
        }
        bench.next_backup_has_every_byte();
    }
}
