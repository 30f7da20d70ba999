//! Group descriptors: where the inode tables are and how much of them was ever used.
//!
//! Descriptors are decoded once on opening and kept as 16 bytes per group (bounded by
//! `GROUPS_MAX`). A descriptor with a wrong checksum is looked up in its backup copies; those do
//! not tell how much of the table is used, so all of it is read. A group without any good
//! descriptor is remembered as a problem: its inodes are missing and the caller must know.

use super::bytes::{join_u64, u16_at, u32_at};
use super::checksum::{crc16, crc32c};
use super::error::{Damage, Ext4Error, Structure};
use super::features::{COMPAT_SPARSE_SUPER2, INCOMPAT_META_BG, RO_GDT_CSUM};
use super::limits::*;
use super::superblock::Superblock;
use crate::ByteSource;

/// Used part of one or more neighbouring inode tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItableRange {
    /// Where the first inode lies on the device; a multiple of the block size except within
    /// [`ItableRange::pieces`].
    pub device_offset: u64,
    /// Number of the first inode.
    pub first_inode: u64,
    /// How many inodes follow each other without a gap, in numbers and in bytes.
    pub inodes_count: u64,
    /// Size of one inode.
    pub inode_bytes: u32,
}

impl ItableRange {
    /// Length on the device.
    pub fn len_bytes(&self) -> u64 {
        self.inodes_count * u64::from(self.inode_bytes)
    }

    /// Cuts the range into reads of at most `piece_bytes_max` (at least one inode each).
    pub fn pieces(self, piece_bytes_max: u64) -> impl Iterator<Item = ItableRange> {
        let step = (piece_bytes_max / u64::from(self.inode_bytes)).max(1);
        (0..self.inodes_count.div_ceil(step)).map(move |index| ItableRange {
            device_offset: self.device_offset + index * step * u64::from(self.inode_bytes),
            first_inode: self.first_inode + index * step,
            inodes_count: step.min(self.inodes_count - index * step),
            inode_bytes: self.inode_bytes,
        })
    }
}

/// A group whose inodes cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupProblem {
    pub group: u32,
    /// First inode number that is lost.
    pub first_inode: u64,
    /// How many inode numbers are lost.
    pub inodes_count: u32,
    pub damage: Damage,
}

/// Sums over all group descriptors: current even while the file system is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Inodes in use, the reserved ones included.
    pub inodes_used: u64,
    pub directories: u64,
    /// Inodes that a scan reads: the used parts of the tables.
    pub inodes_scanned: u64,
    /// Free blocks (whole clusters, counted in blocks).
    pub blocks_free: u64,
}

pub(super) struct GroupTable {
    groups: Vec<Group>,
    pub(super) totals: GroupTotals,
    pub(super) problems: Vec<GroupProblem>,
}

/// `itable_block` 0 marks a group without a usable descriptor.
#[derive(Clone, Copy)]
struct Group {
    itable_block: u64,
    inodes_used: u32,
}

/// One decoded descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) itable_block: u64,
    pub(super) block_bitmap_block: u64,
    pub(super) block_bitmap_csum: u32,
    pub(super) inode_bitmap_block: u64,
    pub(super) inode_bitmap_csum: u32,
    pub(super) free_clusters: u32,
    pub(super) free_inodes: u32,
    pub(super) directories: u32,
    pub(super) itable_unused: u32,
    pub(super) flags: u16,
}

pub(super) const FLAG_INODE_UNINIT: u16 = 1;
pub(super) const FLAG_BLOCK_UNINIT: u16 = 2;
const CHECKSUM_OFFSET: usize = 30;

impl Descriptor {
    /// Decodes one descriptor; `bytes` is `desc_bytes` long.
    pub(super) fn parse(sb: &Superblock, group: u32, bytes: &[u8]) -> Result<Descriptor, Damage> {
        if !checksum_matches(sb, group, bytes) {
            return Err(Damage::Checksum(Structure::GroupDescriptor));
        }
        let wide = bytes.len() >= 64;
        let high32 = |offset: usize| if wide { u32_at(bytes, offset) } else { 0 };
        let wide16 = |low: usize, high: usize| {
            u32::from(u16_at(bytes, low))
                | if wide {
                    u32::from(u16_at(bytes, high)) << 16
                } else {
                    0
                }
        };
        let descriptor = Descriptor {
            itable_block: join_u64(high32(40), u32_at(bytes, 8)),
            block_bitmap_block: join_u64(high32(32), u32_at(bytes, 0)),
            block_bitmap_csum: wide16(24, 56),
            inode_bitmap_block: join_u64(high32(36), u32_at(bytes, 4)),
            inode_bitmap_csum: wide16(26, 58),
            free_clusters: wide16(12, 44),
            free_inodes: wide16(14, 46),
            directories: wide16(16, 48),
            itable_unused: wide16(28, 50),
            flags: u16_at(bytes, 18),
        };
        if sb
            .run_offset(descriptor.itable_block, sb.itable_blocks())
            .is_none()
        {
            return Err(Damage::BlockOutside(descriptor.itable_block));
        }
        Ok(descriptor)
    }

    fn inodes_used(&self, sb: &Superblock) -> u32 {
        if !sb.has_group_flags() {
            return sb.inodes_per_group;
        }
        if self.flags & FLAG_INODE_UNINIT != 0 {
            return 0;
        }
        // An impossible count must not hide inodes.
        sb.inodes_per_group
            .checked_sub(self.itable_unused)
            .unwrap_or(sb.inodes_per_group)
    }
}

fn checksum_matches(sb: &Superblock, group: u32, bytes: &[u8]) -> bool {
    let (head, tail) = bytes.split_at(CHECKSUM_OFFSET.min(bytes.len()));
    let tail = tail.get(2..).unwrap_or(&[]);
    let stored = u16_at(bytes, CHECKSUM_OFFSET);
    if sb.has_checksums() {
        let crc = crc32c(crc32c(sb.checksum_seed, &group.to_le_bytes()), head);
        return crc32c(crc32c(crc, &[0, 0]), tail) as u16 == stored;
    }
    if sb.features.ro_compat & RO_GDT_CSUM != 0 {
        let crc = crc16(crc16(!0, &sb.uuid), &group.to_le_bytes());
        return crc16(crc16(crc, head), tail) == stored;
    }
    true
}

impl GroupTable {
    /// Reads and checks all descriptors.
    pub(super) fn read(source: &dyn ByteSource, sb: &Superblock) -> Result<GroupTable, Ext4Error> {
        let mut table = GroupTable {
            groups: Vec::new(),
            totals: GroupTotals::default(),
            problems: Vec::new(),
        };
        let per_block = sb.block_bytes / sb.desc_bytes;
        let blocks_per_read = (DESCRIPTORS_READ_BYTES / sb.block_bytes as usize) as u32;
        let blocks_count = sb.groups_count.div_ceil(per_block);
        let mut index = 0;
        let mut buffer = Vec::new();
        while index < blocks_count {
            let run = contiguous_blocks(sb, index, blocks_per_read).min(blocks_count - index);
            buffer.resize(run as usize * sb.block_bytes as usize, 0);
            let offset = descriptor_block(sb, index, 0).and_then(|block| sb.block_offset(block));
            let read =
                offset.is_some_and(|offset| source.read_exact_at(offset, &mut buffer).is_ok());
            for (i, bytes) in buffer.chunks_exact(sb.desc_bytes as usize).enumerate() {
                let group = index * per_block + i as u32;
                if group < sb.groups_count {
                    let parsed = if read {
                        Descriptor::parse(sb, group, bytes)
                    } else {
                        Err(Damage::Unreadable)
                    };
                    // On a mounted device the kernel may just have been writing it: look again
                    // before the backups.
                    let parsed = parsed.or_else(|_| read_descriptor(source, sb, group));
                    table.add(source, sb, group, parsed)?;
                }
            }
            index += run;
        }
        Ok(table)
    }

    fn add(
        &mut self,
        source: &dyn ByteSource,
        sb: &Superblock,
        group: u32,
        parsed: Result<Descriptor, Damage>,
    ) -> Result<(), Ext4Error> {
        let (descriptor, inodes_used) = match parsed {
            Ok(descriptor) => (descriptor, descriptor.inodes_used(sb)),
            // Backups are written by mke2fs and resizes only: the place is right, the counters are
            // old.
            Err(damage) => match backup_descriptor(source, sb, group) {
                Some(descriptor) => (descriptor, sb.inodes_per_group),
                None if self.problems.len() >= GROUP_PROBLEMS_MAX => {
                    return Err(Ext4Error::Group {
                        group,
                        source: damage,
                    });
                }
                None => {
                    self.problems.push(GroupProblem {
                        group,
                        first_inode: first_inode(sb, group),
                        inodes_count: sb.inodes_per_group,
                        damage,
                    });
                    (
                        Descriptor {
                            free_inodes: sb.inodes_per_group,
                            ..Descriptor::default()
                        },
                        0,
                    )
                }
            },
        };
        self.groups.push(Group {
            itable_block: descriptor.itable_block,
            inodes_used,
        });
        self.totals.inodes_used +=
            u64::from(sb.inodes_per_group.saturating_sub(descriptor.free_inodes));
        self.totals.directories += u64::from(descriptor.directories);
        self.totals.inodes_scanned += u64::from(inodes_used);
        self.totals.blocks_free += u64::from(descriptor.free_clusters) << sb.cluster_ratio_log;
        Ok(())
    }

    /// Used parts of all tables in the order of inode numbers, neighbours joined.
    pub(super) fn itable_ranges(&self, sb: &Superblock) -> Vec<ItableRange> {
        let mut ranges: Vec<ItableRange> = Vec::new();
        for (group, entry) in (0..).zip(&self.groups) {
            if entry.itable_block == 0 || entry.inodes_used == 0 {
                continue;
            }
            let range = ItableRange {
                device_offset: entry.itable_block * u64::from(sb.block_bytes),
                first_inode: first_inode(sb, group),
                inodes_count: entry.inodes_used.into(),
                inode_bytes: sb.inode_bytes,
            };
            match ranges.last_mut() {
                Some(last)
                    if last.first_inode + last.inodes_count == range.first_inode
                        && last.device_offset + last.len_bytes() == range.device_offset =>
                {
                    last.inodes_count += range.inodes_count;
                }
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Where an inode lies on the device; `None` in a group without descriptor.
    pub(super) fn inode_offset(&self, sb: &Superblock, number: u32) -> Option<u64> {
        let index = number.checked_sub(1)?;
        let group = self.groups.get((index / sb.inodes_per_group) as usize)?;
        let in_table = u64::from(index % sb.inodes_per_group) * u64::from(sb.inode_bytes);
        (group.itable_block != 0).then(|| group.itable_block * u64::from(sb.block_bytes) + in_table)
    }
}

fn first_inode(sb: &Superblock, group: u32) -> u64 {
    u64::from(group) * u64::from(sb.inodes_per_group) + 1
}

/// Reads the current descriptor of one group again, the primary copy only.
pub(super) fn read_descriptor(
    source: &dyn ByteSource,
    sb: &Superblock,
    group: u32,
) -> Result<Descriptor, Damage> {
    read_copy(source, sb, group, 0).ok_or(Damage::Unreadable)?
}

fn backup_descriptor(source: &dyn ByteSource, sb: &Superblock, group: u32) -> Option<Descriptor> {
    (1..=BACKUP_COPIES_MAX).find_map(|copy| read_copy(source, sb, group, copy).and_then(Result::ok))
}

/// Copies that are tried for a damaged descriptor.
const BACKUP_COPIES_MAX: u32 = 3;

fn read_copy(
    source: &dyn ByteSource,
    sb: &Superblock,
    group: u32,
    copy: u32,
) -> Option<Result<Descriptor, Damage>> {
    let per_block = sb.block_bytes / sb.desc_bytes;
    let block = descriptor_block(sb, group / per_block, copy)?;
    let offset = sb.block_offset(block)? + u64::from(group % per_block) * u64::from(sb.desc_bytes);
    let mut bytes = [0; DESC_BYTES_MAX as usize];
    let bytes = bytes.get_mut(..sb.desc_bytes as usize)?;
    source.read_exact_at(offset, bytes).ok()?;
    Some(Descriptor::parse(sb, group, bytes))
}

/// Descriptor blocks from `index` on that lie behind each other on the device, at most `max`.
fn contiguous_blocks(sb: &Superblock, index: u32, max: u32) -> u32 {
    match sb.incompat(INCOMPAT_META_BG) {
        true if index >= sb.first_meta_bg => 1,
        true => max.min(sb.first_meta_bg - index),
        false => max,
    }
}

/// Block of the `index`-th descriptor block; `copy` 0 is the one the kernel uses, others are
/// backups.
pub(super) fn descriptor_block(sb: &Superblock, index: u32, copy: u32) -> Option<u64> {
    if !sb.incompat(INCOMPAT_META_BG) || index < sb.first_meta_bg {
        // With 1 KiB blocks the superblock is in block 1, also where bigalloc begins counting at
        // block 0.
        let superblock_block = match copy {
            0 => u64::from(sb.block_bytes == 1024),
            _ => sb.group_start(nth_backup_group(sb, copy)?),
        };
        return Some(superblock_block + 1 + u64::from(index));
    }
    let per_block = sb.block_bytes / sb.desc_bytes;
    let first_group = index.checked_mul(per_block)?;
    let group = match copy {
        0 => first_group,
        1 => first_group.checked_add(1)?,
        2 => first_group.checked_add(per_block - 1)?,
        _ => return None,
    };
    if group >= sb.groups_count {
        return None;
    }
    let shifted = sb.block_bytes == 1024 && group == 0 && sb.first_data_block == 0;
    Some(sb.group_start(group) + u64::from(sb.group_has_superblock(group)) + u64::from(shifted))
}

/// The `nth` group (counted from 1) that holds a backup of superblock and descriptors.
fn nth_backup_group(sb: &Superblock, nth: u32) -> Option<u32> {
    let index = nth.checked_sub(1)? as usize;
    if sb.features.compat & COMPAT_SPARSE_SUPER2 != 0 {
        return sb
            .backup_groups
            .into_iter()
            .filter(|group| (1..sb.groups_count).contains(group))
            .nth(index);
    }
    (1..sb.groups_count.min(8))
        .filter(|group| sb.group_has_superblock(*group))
        .nth(index)
}

/// Blocks at the start of a group that hold copies of the superblock and of descriptors, with what
/// is reserved for further descriptors.
pub(super) fn base_meta_blocks(sb: &Superblock, group: u32) -> u64 {
    let per_block = sb.block_bytes / sb.desc_bytes;
    let has_superblock = sb.group_has_superblock(group);
    let is_meta = sb.incompat(INCOMPAT_META_BG) && group / per_block >= sb.first_meta_bg;
    if is_meta {
        let in_meta = group % per_block;
        let has_descriptors = in_meta <= 1 || in_meta == per_block - 1;
        return u64::from(has_superblock) + u64::from(has_descriptors);
    }
    let descriptors = match sb.incompat(INCOMPAT_META_BG) {
        true => sb.first_meta_bg,
        false => sb.groups_count.div_ceil(per_block),
    };
    let all = 1 + u64::from(descriptors) + u64::from(sb.reserved_descriptor_blocks);
    if has_superblock { all } else { 0 }
}

/// One bit of a group's inode bitmap.
pub(super) fn inode_bitmap_bit(
    source: &dyn ByteSource,
    sb: &Superblock,
    group: u32,
    bit: u32,
) -> Result<bool, Damage> {
    let descriptor = read_descriptor(source, sb, group)?;
    if sb.has_group_flags() && descriptor.flags & FLAG_INODE_UNINIT != 0 {
        return Ok(false);
    }
    let block = descriptor.inode_bitmap_block;
    let offset = sb.block_offset(block).ok_or(Damage::BlockOutside(block))?;
    let mut bitmap = vec![0; sb.inodes_per_group.div_ceil(8) as usize];
    source
        .read_exact_at(offset, &mut bitmap)
        .map_err(|_| Damage::Unreadable)?;
    let crc = crc32c(
        sb.checksum_seed,
        &bitmap[..sb.inodes_per_group as usize / 8],
    );
    let mask = if sb.desc_bytes >= 64 {
        u32::MAX
    } else {
        0xFFFF
    };
    if sb.has_checksums() && crc & mask != descriptor.inode_bitmap_csum {
        return Err(Damage::Checksum(Structure::InodeBitmap));
    }
    Ok(bitmap[bit as usize / 8] & (1 << (bit % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range_exactly_and_stay_under_the_limit() {
        let range = ItableRange {
            device_offset: 4096,
            first_inode: 33,
            inodes_count: 1000,
            inode_bytes: 256,
        };
        for piece_bytes_max in [1, 256, 4096, 100_000, 256_000, 1 << 30] {
            let mut next = (range.device_offset, range.first_inode);
            for piece in range.pieces(piece_bytes_max) {
                assert_eq!((piece.device_offset, piece.first_inode), next);
                assert!(piece.len_bytes() <= piece_bytes_max.max(256) && piece.inodes_count > 0);
                next = (
                    piece.device_offset + piece.len_bytes(),
                    piece.first_inode + piece.inodes_count,
                );
            }
            assert_eq!(next, (4096 + range.len_bytes(), 1033));
        }
    }
}
