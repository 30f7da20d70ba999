//! Superblock, group descriptors and journal header as bytes.

use super::checksum::crc32c;
use super::field::{put_split_u32, put_split_u64, put_u16, put_u32};
use super::geometry::{DESCRIPTOR_BYTES, Geometry};
use super::inode::{BASE_INODE_BYTES, EXTRA_BYTES, JOURNAL_INODE};
use super::options::Ext4Options;

pub(super) const SUPERBLOCK_BYTES: usize = 1024;
/// Bytes in front of the first superblock.
pub(super) const SUPERBLOCK_OFFSET: u64 = 1024;

const COMPAT_HAS_JOURNAL: u32 = 0x4;
const COMPAT_XATTR: u32 = 0x8;
const COMPAT_DIR_INDEX: u32 = 0x20;
const INCOMPAT_FILETYPE: u32 = 0x2;
const INCOMPAT_EXTENTS: u32 = 0x40;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_FLEX_BG: u32 = 0x200;
const INCOMPAT_EA_INODE: u32 = 0x400;
const INCOMPAT_LARGE_DIR: u32 = 0x4000;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
const RO_COMPAT_LARGE_FILE: u32 = 0x2;
const RO_COMPAT_HUGE_FILE: u32 = 0x8;
const RO_COMPAT_DIR_NLINK: u32 = 0x20;
const RO_COMPAT_EXTRA_ISIZE: u32 = 0x40;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
const RO_COMPAT_PROJECT: u32 = 0x2000;
/// Directory hashes take characters as unsigned.
const FLAG_UNSIGNED_HASH: u32 = 0x2;
/// `user_xattr` and `acl`.
const MOUNT_OPTIONS: u32 = 0xc;
/// Bytes that the header of the journal counts as its own.
const JOURNAL_MAGIC: u32 = 0xc03b_3998;
const JOURNAL_SUPERBLOCK_V2: u32 = 4;

/// The bitmap and table of a group have not been initialised.
pub(super) const GROUP_INODE_UNINIT: u16 = 0x1;
/// The block bitmap has not been initialised.
pub(super) const GROUP_BLOCK_UNINIT: u16 = 0x2;
/// The whole inode table reads as zeros where it is unused.
pub(super) const GROUP_TABLE_ZEROED: u16 = 0x4;

/// What only the finished tree tells.
#[derive(Clone, Debug, Default)]
pub(super) struct FinalCounts {
    pub free_blocks: u64,
    pub free_inodes: u64,
    pub has_large_dir: bool,
    pub has_projects: bool,
    pub has_large_values: bool,
    pub kbytes_written: u64,
    /// The journal's block map and size, kept in the superblock too.
    pub journal: Option<([u8; 60], u64)>,
}

/// One copy of the superblock, the one in `group`.
pub(super) fn superblock(
    options: &Ext4Options,
    geometry: &Geometry,
    counts: &FinalCounts,
    group: u32,
) -> Vec<u8> {
    let mut block = vec![0; SUPERBLOCK_BYTES];
    let out = block.as_mut_slice();
    put_u32(out, 0x00, geometry.inodes() as u32);
    put_split_u64(out, 0x04, 0x150, geometry.blocks);
    put_split_u64(out, 0x0c, 0x158, counts.free_blocks);
    put_u32(out, 0x10, counts.free_inodes as u32);
    put_u32(out, 0x14, geometry.first_data_block() as u32);
    put_u32(out, 0x18, geometry.block_size.trailing_zeros() - 10);
    put_u32(out, 0x1c, geometry.block_size.trailing_zeros() - 10);
    put_u32(out, 0x20, geometry.blocks_per_group() as u32);
    put_u32(out, 0x24, geometry.blocks_per_group() as u32);
    put_u32(out, 0x28, geometry.inodes_per_group);
    put_u16(out, 0x36, u16::MAX); // No check after a number of mounts.
    put_u16(out, 0x38, 0xef53);
    put_u16(out, 0x3a, 1); // Cleanly unmounted.
    put_u16(out, 0x3c, 1); // On errors: continue.
    put_u32(out, 0x4c, 1);
    put_u32(out, 0x54, 11);
    put_u16(out, 0x58, geometry.inode_size as u16);
    put_u16(out, 0x5a, group as u16);
    put_features(out, geometry, counts);
    out[0x68..0x78].copy_from_slice(&options.uuid);
    out[0x78..0x78 + options.label.len()].copy_from_slice(&options.label);
    out[0xec..0xfc].copy_from_slice(&options.hash_seed);
    out[0xfc] = super::dirhash::HASH_VERSION_HALF_MD4;
    put_u16(out, 0xfe, DESCRIPTOR_BYTES as u16);
    put_u32(out, 0x100, MOUNT_OPTIONS);
    if let Some((map, size_bytes)) = &counts.journal {
        put_u32(out, 0xe0, JOURNAL_INODE);
        out[0xfd] = 1; // The next words are a copy of the journal's block map.
        out[0x10c..0x148].copy_from_slice(map);
        put_split_u64(out, 0x14c, 0x148, *size_bytes);
    }
    if geometry.inode_size as usize > BASE_INODE_BYTES {
        put_u16(out, 0x15c, EXTRA_BYTES as u16);
        put_u16(out, 0x15e, EXTRA_BYTES as u16);
    }
    put_u32(out, 0x160, FLAG_UNSIGNED_HASH);
    out[0x174] = geometry.groups_per_flex.trailing_zeros() as u8;
    out[0x175] = 1; // CRC-32C.
    put_split_u64(out, 0x178, 0x17c, counts.kbytes_written);
    put_times(out, options);
    let checksum = crc32c(!0, &out[..SUPERBLOCK_BYTES - 4]);
    put_u32(out, SUPERBLOCK_BYTES - 4, checksum);
    block
}

fn put_features(out: &mut [u8], geometry: &Geometry, counts: &FinalCounts) {
    let flag = |condition: bool, bit: u32| if condition { bit } else { 0 };
    let has_extra = geometry.inode_size as usize > BASE_INODE_BYTES;
    put_u32(
        out,
        0x5c,
        COMPAT_XATTR | COMPAT_DIR_INDEX | flag(counts.journal.is_some(), COMPAT_HAS_JOURNAL),
    );
    let incompat = INCOMPAT_FILETYPE | INCOMPAT_EXTENTS | INCOMPAT_64BIT | INCOMPAT_FLEX_BG;
    put_u32(
        out,
        0x60,
        incompat
            | flag(counts.has_large_dir, INCOMPAT_LARGE_DIR)
            | flag(counts.has_large_values, INCOMPAT_EA_INODE),
    );
    let ro_compat = RO_COMPAT_SPARSE_SUPER
        | RO_COMPAT_LARGE_FILE
        | RO_COMPAT_HUGE_FILE
        | RO_COMPAT_DIR_NLINK
        | RO_COMPAT_METADATA_CSUM;
    put_u32(
        out,
        0x64,
        ro_compat
            | flag(has_extra, RO_COMPAT_EXTRA_ISIZE)
            | flag(counts.has_projects, RO_COMPAT_PROJECT),
    );
}

/// Times of the superblock are 40 bits wide and never negative.
fn put_times(out: &mut [u8], options: &Ext4Options) {
    let created = options.created.seconds.clamp(0, (1 << 40) - 1) as u64;
    for (low, high) in [(0x30, 0x274), (0x40, 0x277), (0x108, 0x276)] {
        put_u32(out, low, created as u32);
        out[high] = (created >> 32) as u8;
    }
}

/// What a group descriptor says.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupFields {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
    pub flags: u16,
    pub block_bitmap_checksum: u32,
    pub inode_bitmap_checksum: u32,
    pub table_unused: u32,
}

impl GroupFields {
    /// The 64 bytes, with their checksum.
    pub fn encode(&self, group: u32, file_system_seed: u32) -> [u8; DESCRIPTOR_BYTES as usize] {
        let mut out = [0; DESCRIPTOR_BYTES as usize];
        put_split_u64(&mut out, 0, 32, self.block_bitmap);
        put_split_u64(&mut out, 4, 36, self.inode_bitmap);
        put_split_u64(&mut out, 8, 40, self.inode_table);
        put_split_u32(&mut out, 12, 44, self.free_blocks);
        put_split_u32(&mut out, 14, 46, self.free_inodes);
        put_split_u32(&mut out, 16, 48, self.directories);
        put_u16(&mut out, 18, self.flags);
        put_split_u32(&mut out, 24, 56, self.block_bitmap_checksum);
        put_split_u32(&mut out, 26, 58, self.inode_bitmap_checksum);
        put_split_u32(&mut out, 28, 50, self.table_unused);
        let checksum = crc32c(crc32c(file_system_seed, &group.to_le_bytes()), &out);
        put_u16(&mut out, 30, checksum as u16);
        out
    }
}

/// The first block of an empty journal. Journals are big-endian.
pub(super) fn journal_superblock(options: &Ext4Options, blocks: u32) -> Vec<u8> {
    let mut block = vec![0; options.block_size as usize];
    let mut put =
        |offset: usize, value: u32| block[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
    put(0x00, JOURNAL_MAGIC);
    put(0x04, JOURNAL_SUPERBLOCK_V2);
    put(0x0c, options.block_size);
    put(0x10, blocks);
    put(0x14, 1); // First block of the log,
    put(0x18, 1); // first transaction expected; the log starts nowhere: it is empty.
    put(0x40, 1); // One file system uses it.
    block[0x30..0x40].copy_from_slice(&options.uuid);
    block
}
