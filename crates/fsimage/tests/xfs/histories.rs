//! After any short history of file operations, the reader sees behind a barrier exactly what the
//! kernel shows.
//!
//! Each history goes on in the tree that those before it left, so that later ones meet worn
//! allocation groups.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::xfs_image::operations::operate;
use crate::xfs_image::seen::{assert_same, by_kernel, by_reader};
use crate::xfs_image::{Image, Random, can_run, run};
use bale_fsimage::xfs::{LogPlace, LogState, Xfs};

const TOOLS: [&str; 4] = ["mkfs.xfs", "mount", "fsfreeze", "xfs_io"];
const HISTORIES: u64 = 70;
const OPERATIONS: u64 = 40;

fn histories_agree(mkfs_arguments: &str, seed: u64) {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(320, mkfs_arguments);
    let mounted = image.mount();
    let source = image.open();
    let mut done = 0;
    let mut told = 0;
    let mut before = None;
    for history in 0..HISTORIES {
        let mut random = Random(seed << 32 | history);
        for _ in 0..OPERATIONS {
            done += u64::from(operate(&mounted.path(), &mut random).is_ok());
        }
        if history % 10 == 9 {
            // Keeps the tree small, and frees whole inode chunks now and then.
            for entry in fs::read_dir(mounted.path()).unwrap().step_by(2) {
                let path = entry.unwrap().path();
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        }
        mounted.barrier();
        let log = Xfs::open(&source).unwrap().log_state(&source).unwrap();
        assert_eq!(log, LogState::Covered, "history {history}");
        let context = format!("history {history} of seed {seed}, {mkfs_arguments}");
        assert_same(&by_kernel(&mounted.path()), &by_reader(&source), &context);
        let now = Moment::of(&source);
        if let Some(before) = &before {
            told += u64::from(now.is_told_since(before, &source, &context));
        }
        before = Some(now);
    }
    // A log that came round is not read.
    eprintln!("the log told {told} times");
    assert!(told > HISTORIES / 2, "the log told only {told} times");
    assert!(
        done > HISTORIES * OPERATIONS / 4,
        "too few of the operations succeeded: {done}"
    );
    let last = by_kernel(&mounted.path());
    mounted.unmount();
    assert_same(
        &last,
        &by_reader(&image.open()),
        &format!("unmounted, {mkfs_arguments}"),
    );
}

/// All inodes as they are behind a barrier, without what reading changes, and the newest record of
/// the log.
struct Moment {
    record: LogPlace,
    inodes: BTreeMap<u64, Vec<u8>>,
}

impl Moment {
    fn of(source: &File) -> Moment {
        let xfs = Xfs::open(source).unwrap();
        let inode_bytes = xfs.superblock().inode_bytes;
        let mut inodes = BTreeMap::new();
        for ag in 0..xfs.superblock().ag_count {
            for chunk in xfs.inode_chunks(source, ag).unwrap() {
                let chunk = chunk.unwrap();
                let Some((offset, len)) = chunk.device_range(inode_bytes) else {
                    continue;
                };
                let mut bytes = vec![0; len];
                source.read_exact_at(&mut bytes, offset).unwrap();
                let used = (0..64).filter(|slot| chunk.used >> slot & 1 != 0);
                for slot in used {
                    let at = (slot - chunk.used.trailing_zeros()) as usize;
                    let at = at * usize::from(inode_bytes);
                    let mut raw = bytes[at..at + usize::from(inode_bytes)].to_vec();
                    // Access time, checksum, place in the log.
                    for range in [32..40, 100..104, 112..120] {
                        raw[range].fill(0);
                    }
                    inodes.insert(chunk.first_inode + u64::from(slot), raw);
                }
            }
        }
        let record = xfs.newest_log_record(source).unwrap();
        Moment {
            record: record.expect("a frozen log has a newest record"),
            inodes,
        }
    }

    /// Does the log tell of what changed? Then of all of it.
    fn is_told_since(&self, before: &Moment, source: &File, context: &str) -> bool {
        let xfs = Xfs::open(source).unwrap();
        let Some(logged) = xfs.inodes_logged_since(source, before.record).unwrap() else {
            return false;
        };
        let numbers = self.inodes.keys().chain(before.inodes.keys());
        let changed = |number: &&u64| self.inodes.get(*number) != before.inodes.get(*number);
        let untold: Vec<&u64> = numbers
            .filter(changed)
            .filter(|number| logged.binary_search(number).is_err())
            .collect();
        assert!(untold.is_empty(), "{context}: not in the log: {untold:?}");
        true
    }
}

#[test]
fn histories_are_seen_as_the_kernel_shows_them() {
    // The smallest log, so that it comes round several times.
    histories_agree("--unsupported -l size=1368b", 1);
}

#[test]
fn histories_with_small_blocks_are_seen_as_the_kernel_shows_them() {
    histories_agree("-b size=1k -n size=8k -m rmapbt=1", 2);
}

#[test]
fn histories_with_large_extent_counts_are_seen_as_the_kernel_shows_them() {
    histories_agree("-i nrext64=1,size=1024 -m bigtime=0", 3);
}

#[test]
fn histories_with_a_log_in_stripes_are_seen_as_the_kernel_shows_them() {
    // Records of 256 KiB, whose laps take several headers.
    histories_agree("-l su=256k,size=64m", 5);
}

/// A copy of the device at any moment, as a crash would leave it: if its log passes for done, then
/// mounting, which replays the log, must change nothing that the reader sees.
#[test]
fn a_log_that_passes_for_done_holds_nothing_that_a_mount_would_change() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(320, "--unsupported -l size=1368b");
    let mounted = image.mount();
    let mut random = Random(4 << 32);
    let mut states = BTreeMap::new();
    for round in 0..30 {
        burst(&mounted.path().join("burst"));
        for _ in 0..random.below(OPERATIONS) {
            let _ = operate(&mounted.path(), &mut random);
        }
        match random.below(3) {
            0 => drop(run("sync", &["-f", mounted.path().to_str().unwrap()])),
            1 => mounted.barrier(),
            _ => (),
        }
        let copy = image.copy();
        let source = copy.open();
        let state = Xfs::open(&source).unwrap().log_state(&source).unwrap();
        *states.entry(format!("{state:?}")).or_insert(0) += 1;
        let before = (state != LogState::Dirty).then(|| by_reader(&source));
        let recovered = copy.mount();
        let kernel = by_kernel(&recovered.path());
        if let Some(before) = before {
            assert_same(&kernel, &before, &format!("round {round}, {state:?}"));
        }
        recovered.unmount();
        assert_same(
            &kernel,
            &by_reader(&copy.open()),
            &format!("round {round}, recovered"),
        );
    }
    assert!(states.len() > 1, "only {states:?}");
    assert!(laps(&image) > 1, "the log did not come round");
}

/// Many small changes, so that the log comes round.
fn burst(directory: &Path) {
    fs::create_dir(directory).unwrap();
    for index in 0..700 {
        File::create(directory.join(format!("{index}{}", "b".repeat(200)))).unwrap();
    }
    run("sync", &["-f", directory.to_str().unwrap()]);
    fs::remove_dir_all(directory).unwrap();
}

/// How often the log has come round.
fn laps(image: &Image) -> u32 {
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let superblock = xfs.superblock();
    let offset = superblock
        .block_offset(superblock.log_start_block, 1)
        .unwrap();
    let mut header = [0; 8];
    source.read_exact_at(&mut header, offset).unwrap();
    let words = header.as_chunks::<4>().0;
    u32::from_be_bytes(if header[..4] == [0xfe, 0xed, 0xba, 0xbe] {
        words[1]
    } else {
        words[0]
    })
}
