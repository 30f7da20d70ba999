//! Extent trees, built from the left while a file's blocks are written.
//!
//! Memory is one unfinished block per level: at most six blocks for the largest file there can be.

use super::checksum::crc32c;
use super::field::{put_u16, put_u32};

/// Longest initialised extent, blocks.
pub(super) const EXTENT_BLOCKS_MAX: u64 = 32768;
/// Logical blocks are 32-bit.
pub(super) const FILE_BLOCKS_MAX: u64 = 0xffff_ffff;
const HEADER_BYTES: usize = 12;
const EXTENT_BYTES: usize = 12;
const MAGIC: u16 = 0xf30a;
const ROOT_ENTRIES_MAX: usize = 4;

/// One run of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub logical: u32,
    pub physical: u64,
    pub blocks: u16,
}

/// A tree that grows at its right edge.
#[derive(Debug, Default)]
pub(super) struct ExtentTree {
    leaf: Vec<Extent>,
    /// Unfinished index nodes, lowest first: (first logical block, child).
    index: Vec<Vec<(u32, u64)>>,
    tree_blocks: u64,
    data_blocks: u64,
}

/// Entries of a block below the root.
fn entries_per_block(block_size: u32) -> usize {
    (block_size as usize - HEADER_BYTES) / EXTENT_BYTES
}

/// At most this many tree blocks for a file of `blocks` in `ranges` stretches.
///
/// Between fixed structures lie free runs; an extent breaks at each, and a group holds at most two
/// of them (a superblock copy, and the tables of its flex group).
pub(super) fn tree_blocks_max(block_size: u32, ranges: u64, blocks: u64) -> u64 {
    let run = EXTENT_BLOCKS_MAX.min(u64::from(block_size) * 8);
    let extents = ranges + 3 * blocks.div_ceil(run) + 3;
    if blocks == 0 || (ranges <= 1 && blocks < run / 8) && extents <= 7 {
        // A short run crosses at most one structure: two or three extents, all in the root.
        return 0;
    }
    let per_block = entries_per_block(block_size) as u64;
    let (mut level, mut total) = (extents, 0);
    while level > ROOT_ENTRIES_MAX as u64 {
        level = level.div_ceil(per_block);
        total += level;
    }
    total
}

/// Where full tree blocks go.
pub(super) trait TreeBlocks {
    type Error;
    /// Writes one block and says where.
    fn write(&mut self, block: &[u8]) -> Result<u64, Self::Error>;
}

impl ExtentTree {
    pub fn clear(&mut self) {
        self.leaf.clear();
        self.index.clear();
        self.tree_blocks = 0;
        self.data_blocks = 0;
    }

    /// Data and tree blocks so far.
    pub fn blocks(&self) -> u64 {
        self.data_blocks + self.tree_blocks
    }

    /// Appends a run, which lies behind everything so far.
    pub fn push<B: TreeBlocks>(
        &mut self,
        run: (u64, u64, u64),
        shape: (u32, u32),
        out: &mut B,
    ) -> Result<(), B::Error> {
        let (mut logical, mut physical, mut blocks) = run;
        self.data_blocks += blocks;
        while blocks > 0 {
            let mut taken = 0;
            if let Some(last) = self.leaf.last_mut()
                && u64::from(last.logical) + u64::from(last.blocks) == logical
                && last.physical + u64::from(last.blocks) == physical
            {
                taken = blocks.min(EXTENT_BLOCKS_MAX - u64::from(last.blocks));
                last.blocks += taken as u16;
            }
            if taken == 0 {
                if self.leaf.len() == entries_per_block(shape.0) {
                    self.write_leaf(shape, out)?;
                }
                taken = blocks.min(EXTENT_BLOCKS_MAX);
                self.leaf.push(Extent {
                    logical: logical as u32,
                    physical,
                    blocks: taken as u16,
                });
            }
            logical += taken;
            physical += taken;
            blocks -= taken;
        }
        Ok(())
    }

    /// Writes what is unfinished and gives the 60 bytes of the root.
    pub fn finish<B: TreeBlocks>(
        &mut self,
        shape: (u32, u32),
        out: &mut B,
    ) -> Result<[u8; 60], B::Error> {
        let mut root = [0u8; 60];
        if self.index.is_empty() && self.leaf.len() <= ROOT_ENTRIES_MAX {
            put_leaf(&mut root, &self.leaf, ROOT_ENTRIES_MAX);
            return Ok(root);
        }
        if !self.leaf.is_empty() {
            self.write_leaf(shape, out)?;
        }
        let mut level = 0;
        while level + 1 < self.index.len() || self.index[level].len() > ROOT_ENTRIES_MAX {
            if !self.index[level].is_empty() {
                self.write_index(level, shape, out)?;
            }
            level += 1;
        }
        put_index(
            &mut root,
            &self.index[level],
            ROOT_ENTRIES_MAX,
            level as u16 + 1,
        );
        Ok(root)
    }

    fn write_leaf<B: TreeBlocks>(
        &mut self,
        shape: (u32, u32),
        out: &mut B,
    ) -> Result<(), B::Error> {
        let mut block = vec![0; shape.0 as usize];
        put_leaf(&mut block, &self.leaf, entries_per_block(shape.0));
        seal(&mut block, shape);
        let first = self.leaf.first().map_or(0, |extent| extent.logical);
        self.leaf.clear();
        let place = out.write(&block)?;
        self.tree_blocks += 1;
        self.push_index(0, (first, place), shape, out)
    }

    fn push_index<B: TreeBlocks>(
        &mut self,
        level: usize,
        child: (u32, u64),
        shape: (u32, u32),
        out: &mut B,
    ) -> Result<(), B::Error> {
        if self.index.len() == level {
            self.index.push(Vec::new());
        }
        if self.index[level].len() == entries_per_block(shape.0) {
            self.write_index(level, shape, out)?;
        }
        self.index[level].push(child);
        Ok(())
    }

    fn write_index<B: TreeBlocks>(
        &mut self,
        level: usize,
        shape: (u32, u32),
        out: &mut B,
    ) -> Result<(), B::Error> {
        let mut block = vec![0; shape.0 as usize];
        let children = std::mem::take(&mut self.index[level]);
        put_index(
            &mut block,
            &children,
            entries_per_block(shape.0),
            level as u16 + 1,
        );
        seal(&mut block, shape);
        let place = out.write(&block)?;
        self.tree_blocks += 1;
        self.push_index(
            level + 1,
            (children.first().map_or(0, |child| child.0), place),
            shape,
            out,
        )
    }
}

fn put_header(node: &mut [u8], entries: usize, max: usize, depth: u16) {
    put_u16(node, 0, MAGIC);
    put_u16(node, 2, entries as u16);
    put_u16(node, 4, max as u16);
    put_u16(node, 6, depth);
}

fn put_leaf(node: &mut [u8], extents: &[Extent], max: usize) {
    put_header(node, extents.len(), max, 0);
    for (position, extent) in extents.iter().enumerate() {
        let entry = &mut node[HEADER_BYTES + position * EXTENT_BYTES..][..EXTENT_BYTES];
        put_u32(entry, 0, extent.logical);
        put_u16(entry, 4, extent.blocks);
        put_u16(entry, 6, (extent.physical >> 32) as u16);
        put_u32(entry, 8, extent.physical as u32);
    }
}

fn put_index(node: &mut [u8], children: &[(u32, u64)], max: usize, depth: u16) {
    put_header(node, children.len(), max, depth);
    for (position, (logical, place)) in children.iter().enumerate() {
        let entry = &mut node[HEADER_BYTES + position * EXTENT_BYTES..][..EXTENT_BYTES];
        put_u32(entry, 0, *logical);
        put_u32(entry, 4, *place as u32);
        put_u16(entry, 8, (place >> 32) as u16);
    }
}

/// `shape` is the block size and the inode's checksum seed.
fn seal(block: &mut [u8], (block_size, inode_seed): (u32, u32)) {
    let tail = HEADER_BYTES + entries_per_block(block_size) * EXTENT_BYTES;
    let checksum = crc32c(inode_seed, &block[..tail]);
    put_u32(block, tail, checksum);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(u64);
    impl TreeBlocks for Count {
        type Error = ();
        fn write(&mut self, _: &[u8]) -> Result<u64, ()> {
            self.0 += 1;
            Ok(self.0)
        }
    }

    #[test]
    fn neighbouring_runs_become_one_extent_up_to_its_limit() {
        let (mut tree, mut out) = (ExtentTree::default(), Count(0));
        tree.push((0, 100, 5), (4096, 1), &mut out).unwrap();
        tree.push((5, 105, 40000), (4096, 1), &mut out).unwrap();
        assert_eq!(
            tree.leaf
                .iter()
                .map(|extent| extent.blocks)
                .collect::<Vec<_>>(),
            [32768, 7237]
        );
    }

    #[test]
    fn the_bound_on_tree_blocks_holds_for_scattered_files() {
        for runs in [1u64, 4, 5, 84, 85, 340, 341, 40_000] {
            for block_size in [1024, 4096] {
                let (mut tree, mut out) = (ExtentTree::default(), Count(0));
                for run in 0..runs {
                    tree.push((run * 2, run * 2 + 9, 1), (block_size, 1), &mut out)
                        .unwrap();
                }
                tree.finish((block_size, 1), &mut out).unwrap();
                assert_eq!(tree.tree_blocks, out.0);
                assert!(
                    out.0 <= tree_blocks_max(block_size, runs, runs),
                    "{runs} runs took {} blocks",
                    out.0
                );
            }
        }
    }
}
