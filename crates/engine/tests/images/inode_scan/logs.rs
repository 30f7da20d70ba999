//! Images taken while they were mounted: a journal of ext4 is replayed in memory, a dirty log of
//! XFS is refused.

use super::image::{Image, can_run};
use super::snapshots::{Pair, Taken, settle};
use crate::xfs_image::operations::operate;
use crate::xfs_image::{self, Random};
use bale_source::scan::ScanMode;
use std::fs::File;

const ROUNDS: u64 = 8;
const OPERATIONS: u64 = 60;

/// The kernel replays another copy, through a mount.
fn replays_as_a_mount_does(test: &str, mke2fs: &str, options: &str) {
    if !can_run(test, &["mke2fs", "mount", "umount", "cp", "cmp"]) {
        return;
    }
    let image = Image::make(64, mke2fs);
    let mut copies = Vec::new();
    {
        let mount = image.mount(options);
        for round in 0..ROUNDS {
            let mut random = Random(round);
            for _ in 0..OPERATIONS {
                let _ = operate(&mount.path, &mut random);
            }
            let last = mount.path.join(format!("last{round}"));
            std::fs::write(&last, b"in the journal, and perhaps nowhere else").unwrap();
            match round % 2 {
                0 => mount.sync(),
                // Committed, and not written back.
                _ => File::open(&last).unwrap().sync_all().unwrap(),
            }
            copies.push(image.still_copy());
        }
    }
    settle(&image.path);
    let pair = Pair::new();
    for (round, copy) in copies.iter().enumerate() {
        let for_kernel = copy.copy();
        // Orphans are deleted by the mount and passed over by the scan.
        let walk = |pair: &Pair| pair.walk(&for_kernel.mount("noatime").path);
        pair.assert_same(walk, &copy.path, &format!("{mke2fs} {options}: {round}"));
    }
}

#[test]
fn a_journal_is_replayed_in_memory() {
    let mke2fs = "-t ext4 -b 1024 -J size=4";
    replays_as_a_mount_does("a_journal_is_replayed_in_memory", mke2fs, "noatime");
}

#[test]
fn a_journal_with_data_is_replayed_in_memory() {
    let test = "a_journal_with_data_is_replayed_in_memory";
    let mke2fs = "-t ext4 -b 1024 -J size=4";
    replays_as_a_mount_does(test, mke2fs, "noatime,data=journal");
}

#[test]
fn a_journal_of_ext3_is_replayed_in_memory() {
    let mke2fs = "-t ext3 -b 1024 -J size=4";
    replays_as_a_mount_does("a_journal_of_ext3_is_replayed_in_memory", mke2fs, "noatime");
}

#[test]
fn a_dirty_log_of_xfs_is_refused_with_a_sentence() {
    if !xfs_image::can_run(&["mkfs.xfs", "mount", "cp"]) {
        return;
    }
    let image = xfs_image::Image::make(320, "");
    let mounted = image.mount();
    std::fs::write(mounted.path().join("file"), b"content").unwrap();
    File::open(mounted.path().join("file"))
        .unwrap()
        .sync_all()
        .unwrap();
    let copy = image.copy();
    let pair = Pair::new();
    let refused = pair.take(&copy.path(), ScanMode::Inode);
    let refused = refused.map(|taken: Taken| taken.rows.len()).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("its log has to be replayed first"), "{text}");
    assert_eq!(pair.data_chunks(), 0);
    // Mounted and unmounted once, as the sentence says.
    copy.mount().unmount();
    let taken = pair.inode_scan(&copy.path());
    assert!(taken.rows.contains_key(&b"/file"[..]) && taken.problems.is_empty());
}
