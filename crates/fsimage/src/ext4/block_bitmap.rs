//! Which blocks are in use, by the block bitmaps of the groups.
//!
//! A group whose bitmap has another checksum or another number of free clusters than its descriptor
//! says, or does not count the group's own tables, is in use as a whole. So is everything in front
//! of the first group and behind the last. A file system that was not left cleanly is refused if it
//! has no journal: nothing says then which bitmaps are old. One with a journal to be replayed is
//! seen as it is after that, and what its bitmaps on the device say is added: whoever mounts it
//! replays, whoever does not finds all that is there now.

use std::ops::Range;
use std::sync::Arc;

use super::error::{Damage, Structure};
use super::features::*;
use super::groups::{Descriptor, FLAG_BLOCK_UNINIT, base_meta_blocks, descriptor_block};
use super::limits::DESC_BYTES_MAX;
use super::superblock::{SUPERBLOCK_BYTES, Superblock};
use super::{Ext4, Origin};
use crate::ByteSource;
use crate::ext4::checksum::crc32c;
use crate::in_use::{
    InUse, UseDoubt, UsePortion, are_set, count_zeros, push_range, runs_of_ones, set_bits,
};

/// Bitmaps of one portion: at most half a million ranges come of them.
const PORTION_BITMAP_BYTES: u32 = 128 << 10;
const PORTION_GROUPS_MAX: u32 = 64;

/// Features that only a writer must know, and that leave the bitmaps what they are.
const RO_BITMAPS_UNCHANGED: u32 = 0x7
    | RO_HUGE_FILE
    | RO_GDT_CSUM
    | 0x60
    | RO_QUOTA
    | RO_BIGALLOC
    | RO_METADATA_CSUM
    | 0x1000
    | RO_PROJECT
    | 0x4000
    | 0x8000
    | 0x1_0000;

const STATE_VALID: u16 = 1;
const STATE_ERRORS: u16 = 2;

/// The block bitmaps of a file system.
pub struct BlockBitmaps {
    fs: Ext4,
    /// The device without what its journal changes, if there is a journal to be replayed.
    unreplayed: Option<Arc<dyn ByteSource>>,
    /// Of the source, which may be longer than the file system.
    len_bytes: u64,
}

/// What is known of one group.
struct GroupUse {
    /// A bit for each cluster.
    bitmap: Vec<u8>,
    doubt: Option<Damage>,
}

impl BlockBitmaps {
    /// Opens the file system at the start of a source.
    pub fn open(source: Arc<dyn ByteSource>) -> Result<BlockBitmaps, UseDoubt> {
        let len_bytes = source.len_bytes();
        let fs = Ext4::open_replayed(source.clone()).map_err(UseDoubt::damage)?;
        let superblock = fs.superblock();
        let why = if fs.origin != Origin::Primary {
            "its superblock is damaged"
        } else if superblock.state & STATE_ERRORS != 0 {
            "the kernel found errors in it (run e2fsck)"
        } else if superblock.state & STATE_VALID == 0 {
            "it was not unmounted, and has no journal"
        } else if superblock.features.ro_compat & !RO_BITMAPS_UNCHANGED != 0 {
            "it has features of which it is not known what they change"
        } else if !copies_are_in_place(&fs) {
            "a copy of its superblock is not where it should be"
        } else {
            return Ok(BlockBitmaps {
                unreplayed: fs.replayed.is_some().then_some(source),
                fs,
                len_bytes,
            });
        };
        Err(UseDoubt::Because(why))
    }

    /// The opened file system, with its journal replayed.
    pub fn ext4(&self) -> &Ext4 {
        &self.fs
    }

    /// Had the journal to be replayed?
    pub fn is_replayed(&self) -> bool {
        self.unreplayed.is_some()
    }

    /// Groups from `first` on, one behind the other.
    fn groups(&self, first: u32, count: u32) -> Vec<GroupUse> {
        let descriptors = self.descriptors(first, count);
        let bitmaps = self.bitmaps(&descriptors);
        (first..)
            .zip(descriptors.into_iter().zip(bitmaps))
            .map(|(group, (descriptor, bitmap))| {
                let found = descriptor.and_then(|descriptor| {
                    if self.is_uninit(&descriptor) {
                        return never_used(&self.fs.superblock, group, &descriptor);
                    }
                    let bitmap = bitmap?;
                    check(&self.fs.superblock, group, &descriptor, &bitmap)?;
                    Ok(self.with_unreplayed(&descriptor, bitmap))
                });
                match found {
                    Ok(bitmap) => GroupUse {
                        bitmap,
                        doubt: None,
                    },
                    Err(damage) => GroupUse {
                        bitmap: Vec::new(),
                        doubt: Some(damage),
                    },
                }
            })
            .collect()
    }

    fn is_uninit(&self, descriptor: &Descriptor) -> bool {
        self.fs.superblock.has_group_flags() && descriptor.flags & FLAG_BLOCK_UNINIT != 0
    }

    /// Each block of descriptors is read once.
    fn descriptors(&self, first: u32, count: u32) -> Vec<Result<Descriptor, Damage>> {
        let sb = &self.fs.superblock;
        let per_block = sb.block_bytes / sb.desc_bytes;
        let mut block = None;
        let mut bytes = vec![0; sb.block_bytes as usize];
        let mut found = Vec::new();
        for group in first..first.saturating_add(count) {
            let index = group / per_block;
            if block != Some(index) {
                let offset = descriptor_block(sb, index, 0).and_then(|at| sb.block_offset(at));
                let read = offset.map(|at| self.fs.source.read_exact_at(at, &mut bytes));
                block = matches!(read, Some(Ok(()))).then_some(index);
            }
            const { assert!(DESC_BYTES_MAX <= 1024) };
            let at = (group % per_block) as usize * sb.desc_bytes as usize;
            let descriptor = bytes.get(at..at + sb.desc_bytes as usize);
            found.push(match (block, descriptor) {
                (Some(_), Some(descriptor)) => Descriptor::parse(sb, group, descriptor),
                _ => Err(Damage::Unreadable),
            });
        }
        found
    }

    /// Those that lie side by side are read at once, as flexible groups have them.
    fn bitmaps(&self, descriptors: &[Result<Descriptor, Damage>]) -> Vec<Result<Vec<u8>, Damage>> {
        let sb = &self.fs.superblock;
        let block_bytes = sb.block_bytes as usize;
        let place = |descriptor: &Result<Descriptor, Damage>| {
            let descriptor = descriptor.as_ref().ok()?;
            (!self.is_uninit(descriptor)).then_some(descriptor.block_bitmap_block)
        };
        let mut found = Vec::new();
        while let Some(first) = descriptors.get(found.len()) {
            let Some(start) = place(first) else {
                found.push(Err(Damage::Unreadable));
                continue;
            };
            let run = (descriptors[found.len()..].iter().zip(start..))
                .take_while(|(descriptor, block)| place(descriptor) == Some(*block))
                .count();
            let mut bytes = vec![0; run * block_bytes];
            let read = sb
                .run_offset(start, run as u64)
                .ok_or(Damage::BlockOutside(start))
                .and_then(|offset| {
                    let read = self.fs.source.read_exact_at(offset, &mut bytes);
                    read.map_err(|_| Damage::Unreadable)
                });
            found.extend(
                bytes
                    .chunks_exact(block_bytes)
                    .map(|bytes| read.map(|()| bytes.to_vec())),
            );
        }
        found
    }

    /// With what the bitmap says that the journal replaces.
    fn with_unreplayed(&self, descriptor: &Descriptor, mut bitmap: Vec<u8>) -> Vec<u8> {
        let offset = self
            .fs
            .superblock
            .block_offset(descriptor.block_bitmap_block);
        if let (Some(source), Some(offset)) = (&self.unreplayed, offset) {
            let mut old = vec![0; bitmap.len()];
            match source.read_exact_at(offset, &mut old) {
                Ok(()) => bitmap
                    .iter_mut()
                    .zip(old)
                    .for_each(|(new, old)| *new |= old),
                Err(_) => bitmap.fill(u8::MAX),
            }
        }
        bitmap
    }

    fn group_end(&self, group: u32) -> u64 {
        let sb = &self.fs.superblock;
        let end = sb.group_start(group) + u64::from(sb.blocks_per_group);
        end.min(sb.blocks_count)
    }
}

impl InUse for BlockBitmaps {
    fn portion(&mut self, at: u64) -> UsePortion {
        let sb = &self.fs.superblock;
        let block_bytes = u64::from(sb.block_bytes);
        let start = u64::from(sb.first_data_block);
        let block = at / block_bytes;
        if block < start {
            return UsePortion::whole(at..start * block_bytes, None);
        }
        if block >= sb.blocks_count {
            return UsePortion::whole(at..self.len_bytes, None);
        }
        let per_portion = (PORTION_BITMAP_BYTES / sb.block_bytes).clamp(1, PORTION_GROUPS_MAX);
        // Less than groups_count, which is a u32.
        let group = ((block - start) / u64::from(sb.blocks_per_group)) as u32;
        let count = (per_portion - group % per_portion).min(sb.groups_count - group);
        let end = self.group_end(group + count - 1) * block_bytes;
        let mut used = Vec::new();
        let mut doubt = None;
        for (group, found) in (group..).zip(self.groups(group, count)) {
            let first = sb.group_start(group);
            let last = self.group_end(group);
            let mut push = |blocks: Range<u64>| {
                let bytes = blocks.start * block_bytes..blocks.end.min(last) * block_bytes;
                push_range(&mut used, bytes.start.max(at)..bytes.end);
            };
            match found.doubt {
                Some(damage) => {
                    push(first..last);
                    doubt = doubt.or(Some(UseDoubt::damage(super::Ext4Error::Group {
                        group,
                        source: damage,
                    })));
                }
                None => runs_of_ones(&found.bitmap, clusters(sb, group), |run| {
                    push(
                        first + (run.start << sb.cluster_ratio_log)
                            ..first + (run.end << sb.cluster_ratio_log),
                    );
                }),
            }
        }
        UsePortion { end, used, doubt }
    }
}

/// Whether blocks are where they say they are, far from the superblock: in the data of a thin pool,
/// or on one disk of several, they are not. The first and the last copy are looked at.
fn copies_are_in_place(fs: &Ext4) -> bool {
    let sb = fs.superblock();
    let has_copy = |group: &u32| sb.group_has_superblock(*group);
    let first = (1..sb.groups_count).find(has_copy);
    let last = (1..sb.groups_count).rev().find(has_copy);
    first.into_iter().chain(last).all(|group| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let offset = sb.block_offset(sb.group_start(group));
        let read = offset.map(|offset| fs.source.read_exact_at(offset, &mut bytes));
        matches!(read, Some(Ok(()))) && sb.is_copied_by(&bytes)
    })
}

/// Of a group; the last may have fewer.
fn clusters(sb: &Superblock, group: u32) -> u64 {
    let blocks = (sb.blocks_count - sb.group_start(group)).min(sb.blocks_per_group.into());
    blocks.div_ceil(1 << sb.cluster_ratio_log)
}

/// Clusters of a group that hold blocks `start..end`, of those that are in it.
fn clusters_of(sb: &Superblock, group: u32, start: u64, count: u64) -> Range<u64> {
    let first = sb.group_start(group);
    let end = first + u64::from(sb.blocks_per_group);
    let inside = start.clamp(first, end)..start.saturating_add(count).clamp(first, end);
    let cluster = |block: u64| (block - first) >> sb.cluster_ratio_log;
    if inside.is_empty() {
        return 0..0;
    }
    cluster(inside.start)..cluster(inside.end - 1) + 1
}

/// A group's own tables, wherever they are.
fn tables(sb: &Superblock, descriptor: &Descriptor) -> [(u64, u64); 3] {
    [
        (descriptor.block_bitmap_block, 1),
        (descriptor.inode_bitmap_block, 1),
        (descriptor.itable_block, sb.itable_blocks()),
    ]
}

/// Does a bitmap agree with its descriptor?
fn check(
    sb: &Superblock,
    group: u32,
    descriptor: &Descriptor,
    bitmap: &[u8],
) -> Result<(), Damage> {
    let damage = Damage::Checksum(Structure::BlockBitmap);
    let checked = (sb.blocks_per_group >> sb.cluster_ratio_log) as usize / 8;
    let mask = if sb.desc_bytes >= 64 {
        u32::MAX
    } else {
        0xFFFF
    };
    if sb.has_checksums() {
        let checked = bitmap.get(..checked).ok_or(damage)?;
        if crc32c(sb.checksum_seed, checked) & mask != descriptor.block_bitmap_csum {
            return Err(damage);
        }
    }
    let free = count_zeros(bitmap, clusters(sb, group));
    if free != u64::from(descriptor.free_clusters) {
        return Err(Damage::FreeCount(free));
    }
    for (start, count) in tables(sb, descriptor) {
        if !are_set(bitmap, clusters_of(sb, group, start, count)) {
            return Err(Damage::TableFree(start));
        }
    }
    Ok(())
}

/// The bitmap of a group to which nothing was written since the file system was made: it is not on
/// the device, and follows from the layout.
fn never_used(sb: &Superblock, group: u32, descriptor: &Descriptor) -> Result<Vec<u8>, Damage> {
    let mut bitmap = vec![0; sb.block_bytes as usize];
    let base = (sb.group_start(group), base_meta_blocks(sb, group));
    for (start, count) in tables(sb, descriptor).into_iter().chain([base]) {
        set_bits(&mut bitmap, clusters_of(sb, group, start, count));
    }
    let free = count_zeros(&bitmap, clusters(sb, group));
    match free == u64::from(descriptor.free_clusters) {
        true => Ok(bitmap),
        false => Err(Damage::FreeCount(free)),
    }
}
