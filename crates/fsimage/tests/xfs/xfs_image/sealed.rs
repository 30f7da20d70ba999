//! Changes to metadata of an image as if XFS had made them: with their checksum.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bale_fsimage::xfs::Xfs;

/// Where an inode, and a block of an extent btree, has its checksum.
pub const INODE_CRC_AT: usize = 100;
pub const BMBT_CRC_AT: usize = 64;

/// Changes `len` bytes at `offset`, and their checksum.
pub fn change(
    image: &File,
    (offset, len): (u64, usize),
    crc_at: usize,
    change: impl FnOnce(&mut [u8]),
) {
    let mut bytes = vec![0; len];
    image.read_exact_at(&mut bytes, offset).unwrap();
    change(&mut bytes);
    bytes[crc_at..crc_at + 4].fill(0);
    let checksum = crc32c::crc32c(&bytes);
    bytes[crc_at..crc_at + 4].copy_from_slice(&checksum.to_le_bytes());
    image.write_all_at(&bytes, offset).unwrap();
}

/// The root directory says that it was changed some seconds behind the last change of a file.
pub fn settle(image: &File) {
    let xfs = Xfs::open(image).unwrap();
    let superblock = xfs.superblock();
    let root = superblock.inode_offset(superblock.root_inode).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    let seconds = later.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let its = (root, superblock.inode_bytes.into());
    change(image, its, INODE_CRC_AT, |root| {
        let has_bigtime = root[127] & 8 != 0;
        let time = match has_bigtime {
            true => (seconds + (1 << 31)) * 1_000_000_000,
            false => seconds << 32,
        };
        root[48..56].copy_from_slice(&time.to_be_bytes());
    });
}
