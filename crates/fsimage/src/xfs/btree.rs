//! Walks an on-disk btree from its first record to its last: inode btrees and extent btrees, whose
//! records are both 16 bytes.
//!
//! Damage cannot make the walk long: levels fall by one at each step, every block's keys must lie
//! between its own key and the next in its parent (so no block is believed twice), and blocks read
//! are counted against a budget. Memory is one block for each level.

use super::Xfs;
use super::bytes::{SEAL_BMBT, SEAL_INOBT, Seal, be16, be32, be64, read_into};
use super::error::{Result, XfsError};
use crate::ByteSource;

/// Bytes of a leaf record of either tree.
pub(super) const RECORD_BYTES: usize = 16;
/// The format's own limit; an extent btree of 2^48 records needs fewer.
pub(super) const LEVELS_MAX: usize = 9;

/// Which of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Inodes of an allocation group: keys and pointers of 4 bytes, block numbers inside the group.
    Inode {
        /// Allocation group.
        ag: u32,
    },
    /// Extents of a fork: keys and pointers of 8 bytes.
    Extent {
        /// Inode that owns the fork.
        inode: u64,
    },
}

impl Tree {
    fn seal(self) -> &'static Seal {
        match self {
            Tree::Inode { .. } => &SEAL_INOBT,
            Tree::Extent { .. } => &SEAL_BMBT,
        }
    }

    fn magic(self, has_checksums: bool) -> &'static [u8; 4] {
        match (self, has_checksums) {
            (Tree::Inode { .. }, true) => b"IAB3",
            (Tree::Inode { .. }, false) => b"IABT",
            (Tree::Extent { .. }, true) => b"BMA3",
            (Tree::Extent { .. }, false) => b"BMAP",
        }
    }

    fn header_bytes(self, has_checksums: bool) -> usize {
        match (self, has_checksums) {
            (_, true) => self.seal().header_bytes,
            (Tree::Inode { .. }, false) => 16,
            (Tree::Extent { .. }, false) => 24,
        }
    }

    /// Bytes of a key, which are also those of a pointer.
    fn word_bytes(self) -> usize {
        match self {
            Tree::Inode { .. } => 4,
            Tree::Extent { .. } => 8,
        }
    }

    fn word(self, bytes: &[u8], at: usize) -> u64 {
        match self {
            Tree::Inode { .. } => u64::from(be32(bytes, at)),
            Tree::Extent { .. } => be64(bytes, at),
        }
    }

    /// Key of a leaf record.
    fn record_key(self, record: &[u8; RECORD_BYTES]) -> u64 {
        match self {
            Tree::Inode { .. } => u64::from(be32(record, 0)),
            Tree::Extent { .. } => (be64(record, 0) & (u64::MAX >> 1)) >> 9,
        }
    }

    fn owner(self) -> u64 {
        match self {
            Tree::Inode { ag } => u64::from(ag),
            Tree::Extent { inode } => inode,
        }
    }

    fn device_offset(self, xfs: &Xfs, pointer: u64) -> Option<u64> {
        match self {
            Tree::Inode { ag } => xfs
                .superblock()
                .ag_block_offset(ag, u32::try_from(pointer).ok()?),
            Tree::Extent { .. } => xfs.superblock().block_offset(pointer, 1),
        }
    }
}

/// One level of the walk.
#[derive(Debug, Default)]
struct Frame {
    bytes: Vec<u8>,
    device_offset: u64,
    level: usize,
    /// Keys or leaf records begin here.
    entries_at: usize,
    pointers_at: usize,
    count: usize,
    next: usize,
    /// Keys of this block are at least this,
    key_min: u64,
    /// and less than this.
    key_end: u64,
    /// Keys already seen here are less than this.
    key_floor: u64,
}

/// The walk: yields leaf records in order. After an error it goes on behind the damaged block.
#[derive(Debug)]
pub(super) struct BtreeWalk {
    tree: Tree,
    /// Used frames are the first `depth`; the others keep their buffers for later.
    frames: Vec<Frame>,
    depth: usize,
    blocks_left: u64,
}

impl BtreeWalk {
    /// Begins at a root block of `levels` levels; reads at most `blocks_max` blocks.
    pub(super) fn from_block(
        xfs: &Xfs,
        source: &dyn ByteSource,
        tree: Tree,
        root: u64,
        levels: usize,
        blocks_max: u64,
    ) -> Result<BtreeWalk> {
        let mut walk = BtreeWalk {
            tree,
            frames: Vec::new(),
            depth: 0,
            blocks_left: blocks_max,
        };
        walk.descend(xfs, source, root, levels - 1, 0..u64::MAX)?;
        Ok(walk)
    }

    /// Begins at a root that lies in inode `inode` at `device_offset` (of the inode, for messages).
    pub(super) fn from_inode_root(
        root: &[u8],
        inode: u64,
        device_offset: u64,
        blocks_max: u64,
    ) -> Result<BtreeWalk> {
        const STRUCTURE: &str = "extent btree root";
        let damaged = |fault| Err(XfsError::damaged(STRUCTURE, device_offset, fault));
        if root.len() < 4 {
            return damaged("too short");
        }
        let level = usize::from(be16(root, 0));
        let count = usize::from(be16(root, 2));
        let count_max = (root.len() - 4) / 16;
        if level == 0 || level >= LEVELS_MAX {
            return damaged("impossible level");
        }
        if count == 0 || count > count_max {
            return damaged("impossible number of records");
        }
        let frame = Frame {
            bytes: root.to_vec(),
            device_offset,
            level,
            entries_at: 4,
            pointers_at: 4 + 8 * count_max,
            count,
            key_end: u64::MAX,
            ..Frame::default()
        };
        let tree = Tree::Extent { inode };
        Ok(BtreeWalk {
            tree,
            frames: vec![frame],
            depth: 1,
            blocks_left: blocks_max,
        })
    }

    /// The next leaf record, `None` behind the last.
    pub(super) fn next_record(
        &mut self,
        xfs: &Xfs,
        source: &dyn ByteSource,
    ) -> Option<Result<[u8; RECORD_BYTES]>> {
        loop {
            let frame = self.frames.get_mut(self.depth.checked_sub(1)?)?;
            if frame.next == frame.count {
                self.depth -= 1;
                continue;
            }
            if frame.level == 0 {
                return Some(frame.take_record(self.tree));
            }
            let step = frame.take_child(self.tree);
            let child_level = frame.level - 1;
            let descended =
                step.and_then(|(child, keys)| self.descend(xfs, source, child, child_level, keys));
            if let Err(error) = descended {
                return Some(Err(error));
            }
        }
    }

    /// Reads and checks one block and makes it the deepest frame.
    fn descend(
        &mut self,
        xfs: &Xfs,
        source: &dyn ByteSource,
        pointer: u64,
        level: usize,
        keys: std::ops::Range<u64>,
    ) -> Result<()> {
        let structure = self.tree.seal().structure;
        let parent_offset = self
            .depth
            .checked_sub(1)
            .map_or(0, |parent| self.frames[parent].device_offset);
        let Some(device_offset) = self.tree.device_offset(xfs, pointer) else {
            return Err(XfsError::damaged(
                structure,
                parent_offset,
                "points outside of the file system",
            ));
        };
        self.blocks_left = self.blocks_left.checked_sub(1).ok_or_else(|| {
            XfsError::damaged(structure, device_offset, "more blocks than its owner has")
        })?;
        if self.frames.len() == self.depth {
            self.frames.push(Frame::default());
        }
        let frame = &mut self.frames[self.depth];
        read_into(
            source,
            device_offset,
            xfs.superblock().block_bytes as usize,
            &mut frame.bytes,
        )?;
        frame.device_offset = device_offset;
        frame.level = level;
        frame.key_min = keys.start;
        frame.key_end = keys.end;
        let is_root = self.depth == 0;
        frame
            .check(xfs, self.tree, is_root)
            .inspect_err(|_| frame.count = 0)?;
        self.depth += 1;
        Ok(())
    }
}

impl Frame {
    /// Checks the block that was read and finds its records.
    fn check(&mut self, xfs: &Xfs, tree: Tree, is_root: bool) -> Result<()> {
        let has_checksums = xfs.superblock().has_checksums;
        let header_bytes = tree.header_bytes(has_checksums);
        let damaged = |fault| {
            Err(XfsError::damaged(
                tree.seal().structure,
                self.device_offset,
                fault,
            ))
        };
        if self.bytes.len() < header_bytes || &self.bytes[..4] != tree.magic(has_checksums) {
            return damaged("wrong magic");
        }
        if has_checksums {
            tree.seal()
                .check(xfs, &self.bytes, self.device_offset, tree.owner())?;
        }
        if usize::from(be16(&self.bytes, 4)) != self.level {
            return damaged("wrong level");
        }
        let entry_bytes = if self.level == 0 {
            RECORD_BYTES
        } else {
            2 * tree.word_bytes()
        };
        let count_max = (self.bytes.len() - header_bytes) / entry_bytes;
        let count = usize::from(be16(&self.bytes, 6));
        if count > count_max || (count == 0 && !(is_root && self.level == 0)) {
            return damaged("impossible number of records");
        }
        self.entries_at = header_bytes;
        self.pointers_at = header_bytes + count_max * tree.word_bytes();
        self.count = count;
        self.next = 0;
        self.key_floor = self.key_min;
        if count > 0 {
            let first = self.key(tree, 0);
            if first < self.key_min || first >= self.key_end {
                return damaged("keys do not fit its parent");
            }
        }
        Ok(())
    }

    fn key(&self, tree: Tree, index: usize) -> u64 {
        if self.level == 0 {
            tree.record_key(&self.record(index))
        } else {
            tree.word(&self.bytes, self.entries_at + index * tree.word_bytes())
        }
    }

    fn record(&self, index: usize) -> [u8; RECORD_BYTES] {
        let at = self.entries_at + index * RECORD_BYTES;
        self.bytes[at..at + RECORD_BYTES]
            .try_into()
            .expect("a slice of one record")
    }

    /// Moves on by one entry, whose key must be larger than all before it.
    fn advance(&mut self, tree: Tree) -> Result<(usize, u64)> {
        let index = self.next;
        let key = self.key(tree, index);
        if key < self.key_floor || key >= self.key_end {
            self.next = self.count; // Nothing behind a wrong order can be believed.
            return Err(XfsError::damaged(
                tree.seal().structure,
                self.device_offset,
                "keys out of order",
            ));
        }
        self.next += 1;
        self.key_floor = key + 1;
        Ok((index, key))
    }

    fn take_record(&mut self, tree: Tree) -> Result<[u8; RECORD_BYTES]> {
        let (index, _) = self.advance(tree)?;
        Ok(self.record(index))
    }

    /// Pointer to the next child and the keys it may hold.
    fn take_child(&mut self, tree: Tree) -> Result<(u64, std::ops::Range<u64>)> {
        let (index, key) = self.advance(tree)?;
        let pointer = tree.word(&self.bytes, self.pointers_at + index * tree.word_bytes());
        let key_end = if self.next < self.count {
            self.key(tree, self.next)
        } else {
            self.key_end
        };
        if key_end <= key {
            self.next = self.count;
            return Err(XfsError::damaged(
                tree.seal().structure,
                self.device_offset,
                "keys out of order",
            ));
        }
        Ok((pointer, key..key_end))
    }
}
