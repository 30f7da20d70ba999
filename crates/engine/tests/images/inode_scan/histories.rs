//! Random histories of file operations: after each, the image gives the snapshot that its mount
//! gives. Most snapshots are compared with their predecessors, so that what an inode scan takes for
//! unchanged is proven, too.
//!
//! `BALE_HISTORIES` sets how many per feature set; `BALE_SEED` where the random numbers begin.

use super::image;
use super::snapshots::{Pair, TICKS, WHOLE_SECONDS, settle_for};
use crate::xfs_image::operations::operate;
use crate::xfs_image::{self, Random};
use std::path::Path;

const HISTORIES: u64 = 40;
/// Where times are whole seconds, because they take two each to settle.
const HISTORIES_OF_WHOLE_SECONDS: u64 = 12;
const OPERATIONS: u64 = 40;
/// Of so many snapshots one is compared with nothing.
const FORCED_EVERY: u64 = 4;

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `mounted` mounts, lets work, and unmounts.
#[allow(
    clippy::type_complexity,
    reason = "mounts, lets somebody work there, unmounts"
)]
fn histories(which: &str, image: &Path, mounted: &dyn Fn(&mut dyn FnMut(&Path))) {
    let (usual, rest) = match which.contains("-I 128") {
        false => (HISTORIES, TICKS),
        true => (HISTORIES_OF_WHOLE_SECONDS, WHOLE_SECONDS),
    };
    let mut pair = Pair::new();
    let mut done = 0;
    let seed = setting("BALE_SEED", 1);
    for history in 0..setting("BALE_HISTORIES", usual) {
        mounted(&mut |root| {
            let mut random = Random(seed << 32 | history);
            for _ in 0..OPERATIONS {
                done += u64::from(operate(root, &mut random).is_ok());
            }
            if history % 10 == 9 {
                thin_out(root);
            }
        });
        settle_for(image, rest);
        pair.force = history % FORCED_EVERY == 0;
        let walk = |pair: &Pair| {
            let mut taken = None;
            mounted(&mut |root| taken = Some(pair.walk(root)));
            taken.unwrap()
        };
        pair.assert_same(
            walk,
            image,
            &format!("{which}: history {history} of {seed}"),
        );
    }
    assert!(done > 0);
}

/// Keeps the tree small, and frees inodes in large numbers now and then.
fn thin_out(root: &Path) {
    for entry in std::fs::read_dir(root).unwrap().step_by(2) {
        let path = entry.unwrap().path();
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
}

fn ext4_histories(test: &str, mke2fs: &str) {
    if !image::can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = image::Image::make(48, mke2fs);
    histories(mke2fs, &image.path, &|work| {
        work(&image.mount("noatime").path)
    });
}

#[test]
fn histories_on_ext4() {
    ext4_histories("histories_on_ext4", "-t ext4 -b 1024 -N 6000");
}

#[test]
fn histories_on_ext4_with_inline_data_and_ea_inodes() {
    let mke2fs = "-t ext4 -O inline_data,ea_inode,orphan_file -b 1024 -N 6000";
    ext4_histories("histories_on_ext4_with_inline_data_and_ea_inodes", mke2fs);
}

#[test]
fn histories_on_ext4_with_bigalloc() {
    let mke2fs = "-t ext4 -O bigalloc -C 16384 -I 512 -N 4000";
    ext4_histories("histories_on_ext4_with_bigalloc", mke2fs);
}

#[test]
fn histories_on_ext3() {
    ext4_histories("histories_on_ext3", "-t ext3 -b 1024 -I 128 -N 6000");
}

fn xfs_histories(mkfs_arguments: &str) {
    if !xfs_image::can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = xfs_image::Image::make(320, mkfs_arguments);
    histories(mkfs_arguments, &image.path(), &|work| {
        let mounted = image.mount();
        work(&mounted.path());
        mounted.unmount();
    });
}

#[test]
fn histories_on_xfs() {
    xfs_histories("--unsupported -l size=1368b");
}

#[test]
fn histories_on_xfs_with_small_blocks() {
    xfs_histories("-b size=1k -n size=8k -m rmapbt=1");
}
