//! Counting a tree before it is written, so that every structure has its place before the first
//! byte.
//!
//! Counts are exact for inodes and file data and an upper bound for metadata blocks; what the bound
//! leaves over stays free space.

use std::ops::AddAssign;

use super::directory;
use super::entry::{NewEntry, NewKind};
use super::extents;
use super::inode::{DataRanges, SHORT_SYMLINK_BYTES_MAX};
use super::options::Ext4Options;
use super::sink::FileData;
use super::xattr;

/// What a tree needs, for the block and inode size it was counted with.
///
/// Parts of a tree can be counted apart and added, as long as no directory's run is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeTotals {
    /// Inodes that are final when they are pushed: all but directories and linked files.
    pub streamed_inodes: u64,
    /// Directories, and inodes with `more_links`.
    pub deferred_inodes: u64,
    /// Blocks of file data.
    pub data_blocks: u64,
    /// At most this many blocks for directories, long symbolic links, attributes and extent trees.
    pub meta_blocks_max: u64,
    /// Names, links included.
    pub names: u64,
}

impl AddAssign for TreeTotals {
    fn add_assign(&mut self, other: TreeTotals) {
        self.streamed_inodes += other.streamed_inodes;
        self.deferred_inodes += other.deferred_inodes;
        self.data_blocks += other.data_blocks;
        self.meta_blocks_max += other.meta_blocks_max;
        self.names += other.names;
    }
}

/// Counts entries in the order in which they will be pushed.
pub struct TotalsCounter {
    block_size: u32,
    inode_size: u32,
    totals: TreeTotals,
    run: Vec<u8>,
    run_dirent_bytes: u64,
    run_dirent_bytes_longest: u64,
}

impl TotalsCounter {
    /// Counts for the block size and inode size of these options.
    pub fn new(options: &Ext4Options) -> TotalsCounter {
        TotalsCounter {
            block_size: options.block_size,
            inode_size: options.inode_size,
            totals: TreeTotals::default(),
            run: Vec::new(),
            run_dirent_bytes: 0,
            run_dirent_bytes_longest: 0,
        }
    }

    /// Counts an entry; of `data` only `next_data` is asked. An entry that `push` will refuse may
    /// be counted.
    pub fn add(&mut self, entry: &NewEntry<'_>, data: &mut dyn FileData) {
        self.add_inode(entry, data);
        if !entry.name.is_empty() {
            self.add_name(entry.parent, entry.name.len());
        }
    }

    /// Counts what an entry takes without its name, which [`TotalsCounter::add_link`] counts: for
    /// those who learn which name comes first only after all names were counted.
    pub fn add_inode(&mut self, entry: &NewEntry<'_>, data: &mut dyn FileData) {
        self.meta_for_xattrs(entry);
        match entry.content {
            NewKind::Directory => self.totals.meta_blocks_max += 1,
            NewKind::Regular { size_bytes } => self.add_data(size_bytes, data),
            NewKind::Symlink { target } if target.len() > SHORT_SYMLINK_BYTES_MAX => {
                self.totals.meta_blocks_max += 1
            }
            _ => {}
        }
        if entry.name.is_empty() {
            return; // The root is always there.
        }
        if entry.more_links || entry.content == NewKind::Directory {
            self.totals.deferred_inodes += 1;
        } else {
            self.totals.streamed_inodes += 1;
        }
    }

    /// Counts a further name of an inode.
    pub fn add_link(&mut self, parent: &[u8], name: &[u8]) {
        self.add_name(parent, name.len());
    }

    /// What was counted.
    pub fn finish(mut self) -> TreeTotals {
        self.close_run();
        self.totals
    }

    fn add_name(&mut self, parent: &[u8], name_bytes: usize) {
        if self.run != parent {
            self.close_run();
            self.run.clear();
            self.run.extend_from_slice(parent);
        }
        let dirent_bytes = directory::dirent_bytes(name_bytes) as u64;
        self.run_dirent_bytes += dirent_bytes;
        self.run_dirent_bytes_longest = self.run_dirent_bytes_longest.max(dirent_bytes);
        self.totals.names += 1;
    }

    /// One block of every directory is counted with its entry.
    fn close_run(&mut self) {
        let blocks = directory::blocks_max(
            self.block_size,
            self.run_dirent_bytes,
            self.run_dirent_bytes_longest,
        );
        // An index of many blocks has extents of its own: the zone is contiguous but for fixed
        // structures.
        self.totals.meta_blocks_max +=
            blocks - 1 + extents::tree_blocks_max(self.block_size, 0, blocks);
        self.run_dirent_bytes = 0;
        self.run_dirent_bytes_longest = 0;
    }

    fn add_data(&mut self, size_bytes: u64, data: &mut dyn FileData) {
        let (mut blocks, mut ranges) = (0, 0);
        for range in DataRanges::new(data, size_bytes, self.block_size) {
            blocks += range.end - range.start;
            ranges += 1;
        }
        self.totals.data_blocks += blocks;
        self.totals.meta_blocks_max += extents::tree_blocks_max(self.block_size, ranges, blocks);
    }

    fn meta_for_xattrs(&mut self, entry: &NewEntry<'_>) {
        // The seed changes no size.
        let Ok(encoded) = xattr::encode(entry.xattrs, (self.inode_size, self.block_size), 0) else {
            return;
        };
        self.totals.meta_blocks_max += encoded.blocks();
        for large in &encoded.large {
            let blocks = (large.value.len() as u64).div_ceil(u64::from(self.block_size));
            self.totals.meta_blocks_max +=
                blocks + extents::tree_blocks_max(self.block_size, 1, blocks);
            self.totals.streamed_inodes += 1;
        }
    }
}
