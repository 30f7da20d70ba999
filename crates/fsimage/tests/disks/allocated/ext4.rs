//! ext2, ext3 and ext4, of every layout that changes where bitmaps are and what they mean.

use super::image::{Copied, Image, Mounted, can_run, run};
use super::tree::{churn, tree_of};
use bale_fsimage::allocated::PartContent;
use bale_fsimage::ext4::Ext4;
use bale_fsimage::recognize::Recognized;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const PROGRAMS: [&str; 6] = [
    "mke2fs", "mount", "umount", "e2fsck", "dumpe2fs", "fsfreeze",
];

/// A number that dumpe2fs lists.
fn listed(image: &Image, what: &str) -> u64 {
    let output = run("dumpe2fs", &["-h", &image.name()]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    line.unwrap_or_else(|| panic!("{what}: {text}"))
        .trim()
        .parse()
        .unwrap()
}

fn assert_exact(image: &Image, copied: &Copied) {
    copied.assert_believed("disk");
    let content = copied.part("disk").content;
    assert_eq!(content, PartContent::Content(Recognized::Ext));
    let block = listed(image, "Block size:");
    let blocks = listed(image, "Block count:") - listed(image, "Free blocks:");
    // Of a last cluster that is there in part, all is counted.
    let expected =
        blocks * block + (copied.part("disk").bytes - listed(image, "Block count:") * block);
    let first = listed(image, "First block:") * block;
    let difference = (expected + first).abs_diff(copied.bytes);
    assert!(
        difference <= 64 << 10,
        "{} instead of {expected}",
        copied.bytes
    );
}

fn is_as_good(mib: u64, mke2fs: &str) {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(mib, &format!("mke2fs -q -F {mke2fs}"));
    // Just made: most groups have no bitmap yet.
    let made = image.copied();
    assert_exact(&image, &made);
    run("e2fsck", &["-f", "-n", &made.image.name()]);
    let expected = {
        let mounted = image.mount("noatime");
        churn(&mounted.path, mib, 20);
        mounted.tree()
    };
    let copied = image.copied();
    assert_exact(&image, &copied);
    run("e2fsck", &["-f", "-n", &copied.image.name()]);
    assert_eq!(copied.image.mount("ro").tree(), expected);
    // Others may be written to it: what is free can be used.
    churn(&copied.image.mount("noatime").path, 77, 3);
    run("e2fsck", &["-f", "-n", &copied.image.name()]);
}

#[test]
fn of_an_ext4_everything_that_matters_is_read() {
    is_as_good(300, "-t ext4 -b 4096");
}

#[test]
fn of_an_ext4_with_small_blocks_everything_that_matters_is_read() {
    is_as_good(150, "-t ext4 -b 1024");
    is_as_good(70, "-t ext4 -b 2048 -g 4096 -E packed_meta_blocks=1");
}

#[test]
fn of_an_ext3_and_an_ext2_everything_that_matters_is_read() {
    is_as_good(151, "-t ext3 -b 1024");
    is_as_good(301, "-t ext2 -b 4096");
}

#[test]
fn of_an_ext4_with_clusters_everything_that_matters_is_read() {
    is_as_good(302, "-t ext4 -b 4096 -O bigalloc -C 65536");
    is_as_good(152, "-t ext4 -b 1024 -O bigalloc -C 16384");
}

#[test]
fn of_an_ext4_with_descriptors_all_over_it_everything_that_matters_is_read() {
    is_as_good(304, "-t ext4 -b 4096 -O meta_bg,^resize_inode");
    is_as_good(
        153,
        "-t ext4 -b 1024 -O meta_bg,^resize_inode,^flex_bg,uninit_bg,^metadata_csum",
    );
}

#[test]
fn of_an_ext4_of_older_and_other_features_everything_that_matters_is_read() {
    is_as_good(305, "-t ext4 -b 4096 -O ^flex_bg,^64bit");
    is_as_good(306, "-t ext4 -b 4096 -O uninit_bg,^metadata_csum,64bit");
    is_as_good(
        307,
        "-t ext4 -b 4096 -O sparse_super2,mmp,inline_data -I 512",
    );
    is_as_good(
        308,
        "-t ext4 -b 4096 -O ^has_journal,^resize_inode,^sparse_super",
    );
}

/// Commits to the journal; nothing is written to its place, so that bitmaps there are old.
fn commit(mounted: &Mounted) {
    let file = std::fs::File::create(mounted.path.join("last")).unwrap();
    file.sync_all().unwrap();
}

/// What has a journal to be replayed is read as it is before and after that.
#[test]
fn of_an_ext4_that_is_in_use_everything_that_a_replay_brings_back_is_read() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for mke2fs in [
        "-t ext4 -b 4096",
        "-t ext4 -b 1024 -O ^metadata_csum",
        "-t ext3",
    ] {
        let image = Image::make(200, &format!("mke2fs -q -F {mke2fs}"));
        let still = {
            let mounted = image.mount("noatime");
            churn(&mounted.path, 5, 4);
            run("fsfreeze", &["-f", mounted.name()]);
            run("fsfreeze", &["-u", mounted.name()]);
            churn(&mounted.path, 6, 4);
            commit(&mounted);
            image.still_copy()
        };
        let copied = still.copied();
        copied.assert_believed("disk");
        assert!(copied.bytes < copied.part("disk").bytes / 2);
        // The kernel replays both, and leaves the same.
        let expected = still.mount("noatime").tree();
        assert!(expected.len() > 100);
        assert_eq!(copied.image.mount("noatime").tree(), expected);
        run("e2fsck", &["-f", "-n", &copied.image.name()]);
    }
}

/// How many blocks of 4 KiB are others than on the device; each is said to be.
fn blocks_replaced(image: &Image) -> usize {
    const BLOCK_BYTES: u64 = 4096;
    let device = image.file();
    let fs = Ext4::open_replayed(Arc::new(image.file())).unwrap();
    let (mut had, mut seen) = ([0; BLOCK_BYTES as usize], [0; BLOCK_BYTES as usize]);
    let starts = (0..fs.source().len_bytes()).step_by(BLOCK_BYTES as usize);
    let differ = starts.filter(|at| {
        device.read_exact_at(&mut had, *at).unwrap();
        fs.source().read_exact_at(*at, &mut seen).unwrap();
        let differs = had != seen;
        let is_replaced = fs.is_replaced(&(*at..at + BLOCK_BYTES));
        assert!(is_replaced || !differs, "at {at}");
        differs
    });
    differ.count()
}

#[test]
fn blocks_that_a_replay_changes_are_told_from_those_of_the_device() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(100, "mke2fs -q -F -t ext4 -b 4096");
    let still = {
        let mounted = image.mount("noatime,data=journal");
        churn(&mounted.path, 5, 2);
        commit(&mounted);
        image.still_copy()
    };
    assert!(blocks_replaced(&still) > 10);
    drop(still.mount("noatime"));
    assert_eq!(blocks_replaced(&still), 0);
}

/// Whoever does not replay finds what was there before the journal.
#[test]
fn of_an_ext4_that_is_in_use_everything_that_is_there_without_a_replay_is_read() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(200, "mke2fs -q -F -t ext4");
    let still = {
        let mounted = image.mount("noatime");
        churn(&mounted.path, 5, 4);
        run("fsfreeze", &["-f", mounted.name()]);
        run("fsfreeze", &["-u", mounted.name()]);
        std::fs::remove_dir_all(mounted.path.join("dir5-1")).unwrap();
        commit(&mounted);
        image.still_copy()
    };
    let copied = still.copied();
    copied.assert_believed("disk");
    let expected = tree_of(&still.mount("ro,noload").path);
    assert_eq!(tree_of(&copied.image.mount("ro,noload").path), expected);
}

#[test]
fn of_an_ext4_that_is_frozen_everything_that_matters_is_read() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(200, "mke2fs -q -F -t ext4");
    let mounted = image.mount("noatime");
    churn(&mounted.path, 9, 5);
    let expected = mounted.tree();
    run("fsfreeze", &["-f", mounted.name()]);
    let copied = image.still_copy().copied();
    run("fsfreeze", &["-u", mounted.name()]);
    copied.assert_believed("disk");
    run("e2fsck", &["-f", "-n", &copied.image.name()]);
    assert_eq!(copied.image.mount("ro").tree(), expected);
}
