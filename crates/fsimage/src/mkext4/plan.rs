//! Sizing: from totals and options to the place of everything, before anything is written.

use super::directory::lost_found_blocks;
use super::error::{MkError, Result};
use super::extents;
use super::geometry::Geometry;
use super::inode::FIRST_FREE_INODE;
use super::options::Ext4Options;
use super::totals::TreeTotals;

/// Spare inodes where nobody chose their number: one for sixteen used, and these.
const SPARE_INODES: u64 = 64;
/// Bytes per inode of the free part of a file system, as is customary.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Sizes are found by trying; each try adds at least a group's worth, so a handful is enough.
const SIZING_TRIES_MAX: u32 = 64;
/// Metadata blocks besides those that the totals count: the root, and slack for the journal's
/// extents.
const META_BLOCKS_EXTRA: u64 = 4;

/// A checked answer to "does it fit, and where". Print it before anything is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) options: Ext4Options,
    pub(super) totals: TreeTotals,
    pub(super) geometry: Geometry,
    pub(super) journal_blocks: u32,
    pub(super) meta_zone_blocks: u64,
    pub(super) stream_start: u64,
    needed_bytes: u64,
}

impl Plan {
    /// Plans a file system for a tree of `totals`.
    pub fn new(options: Ext4Options, totals: TreeTotals) -> Result<Plan> {
        options.check()?;
        let inodes_per_block = u64::from(options.block_size / options.inode_size);
        let stream_start =
            (FIRST_FREE_INODE - 1 + totals.deferred_inodes).next_multiple_of(inodes_per_block) + 1;
        let needed_inodes = stream_start - 1 + totals.streamed_inodes;
        let meta_zone_blocks =
            totals.meta_blocks_max + lost_found_blocks(options.block_size) + META_BLOCKS_EXTRA;
        let content_blocks = meta_zone_blocks + totals.data_blocks;
        let with_free = content_blocks + content_blocks * u64::from(options.free_percent) / 100;
        let wanted = |blocks| wanted_inodes(&options, needed_inodes, blocks);
        let least = fit(
            &options,
            &Demand::new(&options, content_blocks, content_blocks),
            needed_inodes,
        )?;
        let least_inodes = options.inodes.unwrap_or(0).max(needed_inodes);
        let (geometry, demand) = match options.size_bytes {
            None => {
                let demand = Demand::new(&options, with_free, with_free);
                (
                    fit(&options, &demand, wanted(with_free).max(needed_inodes))?,
                    demand,
                )
            }
            Some(bytes) => {
                let blocks = bytes / u64::from(options.block_size);
                let geometry = [wanted(blocks), least_inodes]
                    .into_iter()
                    .find_map(|inodes| fixed(&options, blocks, inodes).transpose())
                    .unwrap_or(Err(MkError::TooSmall {
                        needed_bytes: least.bytes(),
                        needed_inodes: least_inodes,
                        bytes,
                        inodes: 0,
                    }))?;
                (geometry, Demand::new(&options, content_blocks, blocks))
            }
        };
        let free = geometry.blocks.saturating_sub(geometry.fixed_blocks());
        if free < demand.blocks() || geometry.inodes() < least_inodes {
            return Err(MkError::TooSmall {
                needed_bytes: least.bytes(),
                needed_inodes: least_inodes,
                bytes: geometry.bytes(),
                inodes: geometry.inodes(),
            });
        }
        let needed_bytes = least.bytes();
        let meta_zone_blocks = meta_zone_blocks + demand.journal_tree;
        let journal_blocks = demand.journal;
        Ok(Plan {
            options,
            totals,
            geometry,
            journal_blocks: journal_blocks as u32,
            meta_zone_blocks,
            stream_start,
            needed_bytes,
        })
    }

    /// Size of the file system.
    pub fn bytes(&self) -> u64 {
        self.geometry.bytes()
    }

    /// Least size that would have held the tree, with its journal.
    pub fn needed_bytes(&self) -> u64 {
        self.needed_bytes
    }

    /// Inodes of the file system.
    pub fn inodes(&self) -> u64 {
        self.geometry.inodes()
    }

    pub fn journal_bytes(&self) -> u64 {
        u64::from(self.journal_blocks) * u64::from(self.options.block_size)
    }

    /// Blocks of file data, in bytes: what a plain copy of the tree's data blocks would write.
    pub fn data_bytes(&self) -> u64 {
        self.totals.data_blocks * u64::from(self.options.block_size)
    }
}

impl Geometry {
    fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }
}

/// Blocks that must be free of fixed structures.
struct Demand {
    content: u64,
    journal: u64,
    journal_tree: u64,
}

impl Demand {
    /// For `content` blocks, with the journal that suits a file system of `blocks`.
    fn new(options: &Ext4Options, content: u64, blocks: u64) -> Demand {
        let journal = u64::from(options.journal.blocks(blocks));
        // In a small file system every group may break the journal's run.
        let journal_tree = extents::tree_blocks_max(options.block_size, 2, journal);
        Demand {
            content,
            journal,
            journal_tree,
        }
    }

    fn blocks(&self) -> u64 {
        self.content + self.journal + self.journal_tree
    }
}

fn wanted_inodes(options: &Ext4Options, needed: u64, blocks: u64) -> u64 {
    let by_size = blocks * u64::from(options.block_size) / BYTES_PER_INODE;
    let spare = needed + needed / 16 + SPARE_INODES;
    options
        .inodes
        .unwrap_or_else(|| spare.max(by_size).min(u64::from(u32::MAX) / 2).max(needed))
}

/// Most inodes of a group: one bitmap block, and tables that leave half of the group to files.
fn inodes_per_group_max(options: &Ext4Options) -> u64 {
    let bitmap_bits = u64::from(options.block_size) * 8;
    bitmap_bits.min(bitmap_bits / 2 * u64::from(options.block_size / options.inode_size))
}

/// Inodes of each of `groups` groups: whole table blocks and whole bytes of the bitmap.
fn inodes_per_group(options: &Ext4Options, groups: u64, inodes: u64) -> Result<u32> {
    let step = u64::from(options.block_size / options.inode_size).max(8);
    let per_group = inodes.div_ceil(groups).max(16).next_multiple_of(step);
    if per_group > inodes_per_group_max(options) || per_group * groups > u64::from(u32::MAX) {
        return Err(MkError::Options(format!(
            "{inodes} inodes are too many for {groups} groups of blocks"
        )));
    }
    Ok(per_group as u32)
}

fn geometry(options: &Ext4Options, blocks: u64, inodes_per_group: u32) -> Geometry {
    Geometry {
        block_size: options.block_size,
        blocks,
        inode_size: options.inode_size,
        inodes_per_group,
        groups_per_flex: options.groups_per_flex,
    }
}

/// The layouts that can fail are that of the first flex group (descriptors too large) and that of a
/// short last one.
fn is_possible(geometry: &Geometry) -> bool {
    let flexes = geometry.flexes();
    geometry.flex_layout(0).is_some() && geometry.flex_layout(flexes - 1).is_some()
}

/// The least geometry with the blocks in demand and at least `inodes` inodes.
fn fit(options: &Ext4Options, demand: &Demand, inodes: u64) -> Result<Geometry> {
    let free = demand.blocks();
    let group_blocks = u64::from(options.block_size) * 8;
    let first = u64::from(options.block_size == 1024);
    let mut groups = free
        .div_ceil(group_blocks)
        .max(inodes.div_ceil(inodes_per_group_max(options)))
        .max(1);
    for _ in 0..SIZING_TRIES_MAX {
        check_groups(options, groups)?;
        let per_group = inodes_per_group(options, groups, inodes)?;
        let full = geometry(options, first + groups * group_blocks, per_group);
        let least = full.fixed_blocks() + free;
        if least > full.blocks {
            groups += (least - full.blocks).div_ceil(group_blocks);
            continue;
        }
        let short = geometry(options, least, per_group);
        if least > first && u64::from(short.groups()) == groups && is_possible(&short) {
            return Ok(short);
        }
        if is_possible(&full) {
            return Ok(full);
        }
        groups += 1;
    }
    Err(MkError::Options(
        "no layout found for this size, number of inodes and block size".to_owned(),
    ))
}

/// The largest geometry within `blocks` that has room for the tables of so many inodes.
fn fixed(options: &Ext4Options, blocks: u64, inodes: u64) -> Result<Option<Geometry>> {
    let group_blocks = u64::from(options.block_size) * 8;
    let first = u64::from(options.block_size == 1024);
    let mut blocks = blocks;
    while blocks > first {
        let groups = (blocks - first).div_ceil(group_blocks);
        check_groups(options, groups)?;
        let most = inodes_per_group_max(options) * groups;
        let per_group = inodes_per_group(options, groups, inodes.min(most))?;
        let candidate = geometry(options, blocks, per_group);
        if is_possible(&candidate) {
            return Ok(Some(candidate));
        }
        // The last group is too short for what must lie in it: the device's tail stays unused.
        blocks = first + (groups - 1) * group_blocks;
    }
    Ok(None)
}

fn check_groups(options: &Ext4Options, groups: u64) -> Result<()> {
    let group_blocks = u64::from(options.block_size) * 8;
    let descriptor_blocks =
        (groups * super::geometry::DESCRIPTOR_BYTES).div_ceil(u64::from(options.block_size));
    if descriptor_blocks > group_blocks / 4 * 3 {
        return Err(MkError::Options(format!(
            "{groups} groups are too many for blocks of {} bytes; choose larger blocks",
            options.block_size
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(inodes: u64, data_blocks: u64) -> TreeTotals {
        TreeTotals {
            streamed_inodes: inodes,
            deferred_inodes: 10,
            data_blocks,
            meta_blocks_max: 20,
            names: inodes + 10,
        }
    }

    #[test]
    fn the_needed_size_is_enough_and_one_group_less_is_not() {
        for block_size in [1024, 2048, 4096] {
            for (inodes, blocks) in [(1, 1), (1000, 5000), (3_000_000, 100), (100_000, 900_000)] {
                let options = Ext4Options {
                    block_size,
                    ..Ext4Options::default()
                };
                let plan = Plan::new(options.clone(), totals(inodes, blocks)).unwrap();
                let fixed = |bytes| Ext4Options {
                    size_bytes: Some(bytes),
                    ..options.clone()
                };
                // The journal follows the size, so a little more than the least may be needed;
                // never a tenth.
                let roomy = plan.needed_bytes() + plan.needed_bytes() / 10 + (8 << 20);
                Plan::new(fixed(roomy), totals(inodes, blocks)).unwrap();
                let small = Plan::new(
                    fixed(blocks * u64::from(block_size) / 2),
                    totals(inodes, blocks),
                );
                assert!(
                    matches!(small, Err(MkError::TooSmall { .. } | MkError::Options(_))),
                    "{small:?}"
                );
            }
        }
    }

    #[test]
    fn too_few_inodes_are_refused_with_the_number_needed() {
        let options = Ext4Options {
            size_bytes: Some(64 << 20),
            inodes: Some(16),
            ..Ext4Options::default()
        };
        match Plan::new(options, totals(5000, 100)) {
            Err(MkError::TooSmall { needed_inodes, .. }) => assert!(needed_inodes >= 5010),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_petabyte_is_planned_or_refused_without_a_panic() {
        for block_size in [1024, 4096] {
            let options = Ext4Options {
                block_size,
                size_bytes: Some(1 << 50),
                ..Ext4Options::default()
            };
            let _ = Plan::new(options, totals(1000, 1000));
        }
    }
}
