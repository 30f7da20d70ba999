//! One test per feature set: make, fill, unmount, read with both, compare everything.

use bale_fsimage::ext4::{Ext4, RawInode};

use crate::compare::assert_same;
use crate::fixture::{FULL, Scale, USUAL, populate};
use crate::image::{Image, can_run};
use crate::scan::scan;

const PROGRAMS: [&str; 6] = ["mke2fs", "mount", "umount", "setfacl", "chattr", "fsfreeze"];

fn same_as_kernel(test: &str, mke2fs: &str, mount_options: &str, scale: Scale) {
    if !can_run(test, &PROGRAMS) {
        return;
    }
    let image = Image::make(320, mke2fs);
    populate(&image.mount(mount_options).path, scale);
    let seen = scan(Ext4::open(image.source()).unwrap());
    assert!(!seen.fs.needs_recovery().unwrap(), "unmounted cleanly");
    let reserved = u64::from(seen.fs.superblock().first_inode) - 1;
    let used = seen.fs.totals().inodes_used;
    // All used inodes but the reserved ones (the root is one of them) are files, or hold quota,
    // orphans or attributes.
    assert!(
        seen.inodes.len() as u64 - 1 + reserved <= used,
        "{} inodes, {used} used",
        seen.inodes.len()
    );
    assert_same(&seen, &image.mount("ro,noload").path);
}

macro_rules! same_as_kernel {
    ($($name:ident: $mke2fs:expr;)*) => { $(
        #[test]
        fn $name() {
            same_as_kernel(stringify!($name), $mke2fs, "noatime,user_xattr,acl", USUAL);
        }
    )* };
}

same_as_kernel! {
    blocks_of_1k_read_as_the_kernel_reads_them: "-t ext4 -b 1024";
    blocks_of_2k_read_as_the_kernel_reads_them: "-t ext4 -b 2048";
    without_checksums: "-t ext4 -O ^metadata_csum";
    without_checksums_and_with_descriptor_crc16: "-t ext4 -O ^metadata_csum,uninit_bg,^64bit";
    without_64bit: "-t ext4 -O ^64bit";
    without_flex_bg: "-t ext4 -O ^flex_bg -b 1024";
    with_meta_bg: "-t ext4 -O meta_bg,^resize_inode -b 1024";
    with_inline_data: "-t ext4 -O inline_data -I 256";
    with_inline_data_in_large_inodes: "-t ext4 -O inline_data -I 1024";
    with_bigalloc: "-t ext4 -O bigalloc -C 16384";
    with_bigalloc_of_1k_blocks: "-t ext4 -O bigalloc -b 1024 -C 16384";
    with_ea_inode: "-t ext4 -O ea_inode";
    with_ea_inode_and_inline_data: "-t ext4 -O ea_inode,inline_data,^metadata_csum";
    with_large_dir: "-t ext4 -O large_dir -b 1024";
    with_orphan_file: "-t ext4 -O orphan_file";
    with_checksum_seed: "-t ext4 -O metadata_csum_seed -U 01234567-89ab-cdef-0123-456789abcdef";
    with_sparse_super2: "-t ext4 -O sparse_super2,^resize_inode -b 1024";
    with_mmp: "-t ext4 -O mmp";
    without_dir_index: "-t ext4 -O ^dir_index";
    without_filetype: "-t ext4 -O ^filetype,^metadata_csum";
    without_journal: "-t ext4 -O ^has_journal";
    inodes_of_128_bytes: "-t ext4 -I 128";
    inodes_of_512_bytes: "-t ext4 -I 512";
    inodes_of_1024_bytes: "-t ext4 -I 1024";
    ext2: "-t ext2 -b 1024 -I 128";
    ext2_with_4k_blocks_and_large_inodes: "-t ext2 -b 4096 -I 256";
    ext3: "-t ext3 -b 1024";
    odd_group_sizes: "-t ext4 -b 1024 -g 2048 -N 20000";
}

/// 65,000 is the most that ext4 allows.
#[test]
fn as_many_hard_links_as_possible() {
    same_as_kernel("as_many_hard_links_as_possible", "-t ext4", "noatime", FULL);
}

#[test]
fn generation_is_what_lsattr_says() {
    if !can_run(
        "generation_is_what_lsattr_says",
        &["mke2fs", "mount", "lsattr"],
    ) {
        return;
    }
    let image = Image::make(32, "-t ext4");
    let generation = {
        let mount = image.mount("noatime");
        let file = mount.path.join("file");
        std::fs::write(&file, "x").unwrap();
        let output = crate::image::run("lsattr", &["-v", file.to_str().unwrap()]).stdout;
        String::from_utf8(output)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u32>()
            .unwrap()
    };
    let seen = scan(Ext4::open(image.source()).unwrap());
    assert_eq!(seen.at("file").inode.generation, generation);
    assert_ne!(generation, 0);
}

/// More subdirectories than a link count can hold: the kernel says 1, and so must we.
#[test]
fn directory_with_too_many_subdirectories_has_link_count_one() {
    let test = "directory_with_too_many_subdirectories_has_link_count_one";
    if !can_run(test, &["mke2fs", "mount"]) {
        return;
    }
    // Inline directories take no blocks, so that this stays small.
    let image = Image::make(200, "-t ext4 -O inline_data -N 80000");
    {
        let mount = image.mount("noatime");
        for i in 0..65_010 {
            std::fs::create_dir(mount.path.join(format!("d{i}"))).unwrap();
        }
    }
    let seen = scan(Ext4::open(image.source()).unwrap());
    assert_eq!(seen.at("").inode.nlink, 1);
    assert_same(&seen, &image.mount("ro,noload").path);
}

/// What the verification of a live backup rests on: reading moves only the access time, everything
/// else shows.
#[test]
fn raw_inodes_tell_reading_from_changing() {
    if !can_run("raw_inodes_tell_reading_from_changing", &PROGRAMS) {
        return;
    }
    let image = Image::make(32, "-t ext4");
    let mount = image.mount("strictatime");
    let path = mount.path.join("file");
    std::fs::write(&path, "before").unwrap();
    mount.barrier();
    let fs = Ext4::open(image.source()).unwrap();
    let number = scan(fs.clone()).at("file").inode.number;
    let bytes = || {
        mount.barrier();
        fs.read_inode_bytes(number).unwrap()
    };
    let raw = |bytes| RawInode::new(number, bytes).unwrap();
    let before = bytes();
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::read(&path).unwrap();
    let read = bytes();
    assert_ne!(before, read);
    assert!(raw(&before).same_except_atime(&raw(&read)));
    std::fs::write(&path, "behind").unwrap();
    assert!(!raw(&read).same_except_atime(&raw(&bytes())));
}
