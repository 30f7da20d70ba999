//! The inode scan: inode tables and directory blocks are read in the order of the device, and
//! joined into the order of the catalog.
//!
//! ```text
//! inode tables ──▶ inodes, by number ────────────────┐
//!       └──▶ places of directory blocks, by place    ├─ join ──▶ children, by directory ──▶ emit
//!                     └──▶ names, by inode ──────────┘
//! ```
//!
//! Everything that grows with the number of files is in unnamed files: what is sorted
//! ([`bale_pipeline::spill`]), the inodes, and the children. The last is read like a file system
//! made for this: the children of a directory stand together, by name. What it cannot read or
//! believe is a problem of the path that leads to it; a number of names that does not fit the
//! number of links is one, too.

mod append;
mod digest_file;
mod digests;
mod directory_blocks;
mod directory_lister;
mod emit;
mod faults;
mod few;
mod few_changed;
mod few_names;
mod gather;
mod inode_file;
mod join;
mod linked;
mod missing_directories;
mod piece_places;
mod sealed_blocks;
mod second_look;
mod table_piece;
mod tables;
mod tree;

pub use digest_file::{AllInodesDigest, DigestFile, IsReplaced, ParentDigests, Sealer};
pub use digests::{DigestKey, Digests};
pub use emit::{
    EmitOptions, IMAGE_DEVICE, ImageScanner, MountContext, UnchangedChildren, planned_reads,
};

pub use few_changed::FewChanged;
pub use few_names::{NamedInode, NamesSum};
pub use gather::{Gather, Gathered, GatheredFew, InodeTotals, TablesState};

use crate::image::TABLE_PIECE_BYTES;
use bale_fsimage::xfs::LOG_BYTES_MAX;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::ordered::PIECES_AHEAD_MAX;
use bale_pipeline::spill::{BLOCK_BYTES, sorter_bytes};

/// Memory for sorting names by inode.
pub(crate) const SORT_NAMES_BYTES: usize = 48 << 20;
/// Memory for sorting children, with their inodes, by directory.
pub(crate) const SORT_CHILDREN_BYTES: usize = 88 << 20;
/// Memory for sorting places of directory blocks.
pub(crate) const SORT_PLACES_BYTES: usize = 8 << 20;
/// Gap between two directory blocks that is read rather than skipped.
pub(crate) const GAP_BYTES_MAX: u64 = 64 << 10;
/// Inodes and directories of which it is remembered what is wrong with them.
pub(crate) const DAMAGED_MAX: usize = 64 << 10;
/// Sorted runs of children that are read side by side; more are merged.
pub(crate) const TREE_RUNS_MAX: usize = 16;
/// Blocks of the sorted children kept in memory.
pub(crate) const TREE_BLOCKS_CACHED: usize = 128;

const PIECES_BYTES: usize =
    PIECES_AHEAD_MAX * (2 * TABLE_PIECE_BYTES + tables::PARENT_DIGESTS_PER_PIECE_BYTES);
/// Of the inode file, and of digests.
const STRETCHES_BYTES: usize = append::STRETCHES_AHEAD_MAX * (TABLE_PIECE_BYTES + DIGESTS_BYTES);
/// Sixteen bytes for each inode of a piece, which has 128 or more.
const DIGESTS_BYTES: usize = TABLE_PIECE_BYTES / 8;
/// Rows on their way.
const BATCHES_BYTES: usize = 2 << 20;

/// Memory of the first half of a scan. Names are sorted while pieces are read, or directories
/// listed; while children are sorted, names that fit in memory (in one of the two buffers of their
/// sort) or the buffers of their merge are there, too.
pub const fn gather_bytes(memory: &MemoryPlan) -> usize {
    let names = sorter_bytes(memory.inode_share(SORT_NAMES_BYTES));
    let places = sorter_bytes(memory.inode_share(SORT_PLACES_BYTES));
    let children = sorter_bytes(memory.inode_share(SORT_CHILDREN_BYTES));
    let few = 2 * memory.inode_share(few::FEW_BYTES_MAX);
    let read =
        names + places + few + PIECES_BYTES + STRETCHES_BYTES + directory_lister::LISTER_BYTES;
    let directories = memory.inode_share(missing_directories::SORT_DIRECTORIES_BYTES);
    let join = names / 2 + children + sorter_bytes(directories) + STRETCHES_BYTES;
    if read > join { read } else { join }
}

/// Memory of what hands out the rows of a scan: readers of the tree, of the scanner and of the one
/// that plans what is read, and batches on their way.
pub const fn emit_bytes(memory: &MemoryPlan) -> usize {
    let blocks = memory.inode_share(TREE_BLOCKS_CACHED) + TREE_RUNS_MAX;
    2 * (blocks * BLOCK_BYTES + linked::linked_bytes(memory)) + BATCHES_BYTES
}

/// Memory of the second look: pieces, the log with a copy for reading directly and one of its
/// records, and the inodes that changed, copied while they become more.
pub const fn second_look_bytes(memory: &MemoryPlan) -> usize {
    PIECES_BYTES + 3 * LOG_BYTES_MAX + 2 * super::changed_bytes(memory)
}
