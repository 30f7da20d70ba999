//! Every feature set of ext4 (and ext3, ext2) that mke2fs makes here: an image gives the snapshot
//! that its mount gives.

use super::fixture::{FULL, Scale, populate};
use super::image::{Image, can_run};
use super::snapshots::{Pair, settle};

const PROGRAMS: [&str; 5] = ["mke2fs", "mount", "umount", "setfacl", "chattr"];
const SMALL: Scale = Scale {
    names: 2_500,
    links: 120,
};

fn image_and_mount_agree(test: &str, mke2fs: &str, scale: Scale) {
    if !can_run(test, &PROGRAMS) {
        return;
    }
    let image = Image::make(320, mke2fs);
    populate(&image.mount("noatime,user_xattr,acl").path, scale);
    settle(&image.path);
    let pair = Pair::new();
    let walk = |pair: &Pair| pair.walk(&image.mount("ro,noload").path);
    pair.assert_same(walk, &image.path, mke2fs);
}

macro_rules! image_and_mount_agree {
    ($($name:ident: $mke2fs:expr;)*) => { $(
        #[test]
        fn $name() {
            image_and_mount_agree(stringify!($name), $mke2fs, SMALL);
        }
    )* };
}

image_and_mount_agree! {
    ext4_as_usual: "-t ext4";
    ext4_blocks_of_1k: "-t ext4 -b 1024";
    ext4_blocks_of_2k: "-t ext4 -b 2048";
    ext4_without_checksums: "-t ext4 -O ^metadata_csum";
    ext4_with_descriptor_crc16: "-t ext4 -O ^metadata_csum,uninit_bg,^64bit";
    ext4_without_64bit: "-t ext4 -O ^64bit";
    ext4_without_flex_bg: "-t ext4 -O ^flex_bg -b 1024";
    ext4_with_meta_bg: "-t ext4 -O meta_bg,^resize_inode -b 1024";
    ext4_with_inline_data: "-t ext4 -O inline_data -I 256";
    ext4_with_inline_data_in_large_inodes: "-t ext4 -O inline_data -I 1024";
    ext4_with_bigalloc: "-t ext4 -O bigalloc -C 16384";
    ext4_with_bigalloc_of_1k_blocks: "-t ext4 -O bigalloc -b 1024 -C 16384";
    ext4_with_ea_inode: "-t ext4 -O ea_inode";
    ext4_with_ea_inode_and_inline_data: "-t ext4 -O ea_inode,inline_data,^metadata_csum";
    ext4_with_large_dir: "-t ext4 -O large_dir -b 1024";
    ext4_with_orphan_file: "-t ext4 -O orphan_file";
    ext4_with_checksum_seed: "-t ext4 -O metadata_csum_seed -U \
        01234567-89ab-cdef-0123-456789abcdef";
    ext4_with_sparse_super2: "-t ext4 -O sparse_super2,^resize_inode -b 1024";
    ext4_with_mmp: "-t ext4 -O mmp";
    ext4_without_dir_index: "-t ext4 -O ^dir_index";
    ext4_without_filetype: "-t ext4 -O ^filetype,^metadata_csum";
    ext4_without_journal: "-t ext4 -O ^has_journal";
    ext4_inodes_of_128_bytes: "-t ext4 -I 128";
    ext4_inodes_of_512_bytes: "-t ext4 -I 512";
    ext4_inodes_of_1024_bytes: "-t ext4 -I 1024";
    ext2: "-t ext2 -b 1024 -I 128";
    ext2_with_4k_blocks_and_large_inodes: "-t ext2 -b 4096 -I 256";
    ext3: "-t ext3 -b 1024";
    ext4_odd_group_sizes: "-t ext4 -b 1024 -g 2048 -N 20000";
}

/// 65,000 names of one inode, and an index of two levels.
#[test]
fn ext4_as_many_hard_links_as_possible() {
    image_and_mount_agree("ext4_as_many_hard_links_as_possible", "-t ext4", FULL);
}

/// A walk finds a hole in a file, and an inode scan only zeros, or the other way round: the one
/// stores it in pieces and the other in the bundle of its neighbours, whose chunk is another then.
/// All of them are equal byte by byte, in this snapshot and in those that go on from it.
#[test]
fn a_file_that_only_one_of_both_bundles_takes_its_neighbours_along() {
    let test = "a_file_that_only_one_of_both_bundles_takes_its_neighbours_along";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Image::make(32, "-t ext4");
    let mount = || image.mount("noatime");
    let mut pair = Pair::new();
    let assert_same = |pair: &Pair, which: &str| {
        settle(&image.path);
        pair.assert_same(|pair| pair.walk(&mount().path), &image.path, which);
    };
    {
        let mounted = mount();
        let unwritten = std::fs::File::create(mounted.path.join("b")).unwrap();
        let keep = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&unwritten, keep, 0, 100 << 10).unwrap();
        unwritten.set_len(300_000).unwrap();
        for name in ["a", "c"] {
            std::fs::write(mounted.path.join(name), format!("neighbour {name}")).unwrap();
        }
    }
    assert_same(&pair, "all is new");
    pair.force = false;
    std::fs::write(mount().path.join("d"), "a later one").unwrap();
    assert_same(&pair, "the neighbours are reused");
    std::fs::remove_file(mount().path.join("b")).unwrap();
    assert_same(&pair, "it is gone, and its neighbours are not");
    pair.force = true;
    assert_same(&pair, "all is read again");
}
