//! All names of a file system, children of one directory together and sorted by name, in unnamed
//! files.
//!
//! The children were sorted ([`bale_pipeline::spill`]) into a few runs, which are not merged: most
//! directories are in one of them, and those in several are merged when they are asked for. In
//! memory: where each block of a run begins and ends (32 bytes for 16 KiB of names), and the blocks
//! used last. What is read here was written by this process: a record that makes no sense is a
//! failing disk, and an error.

use super::inode_file::InodeFile;
use super::linked::LinkedInodes;
use super::{SORT_CHILDREN_BYTES, TREE_BLOCKS_CACHED, TREE_RUNS_MAX};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::spill::{Block, Runs, RunsSorter, Spill};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Of the value of a record: inode (8), marks (1); the packed inode follows. The key is the
/// directory and the name.
const HEAD_BYTES: usize = 9;

/// What is known of a child besides its inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(pub(super) u8);

impl Marks {
    /// A directory that has another name already: it is not entered twice.
    pub(super) const AGAIN: u8 = 1;
    /// Its inode is not in use, or is damaged.
    pub(super) const MISSING: u8 = 2;
    pub(super) const DIRECTORY: u8 = 4;
    /// Its inode digest is unchanged, and its bytes are not here.
    pub(super) const UNCHANGED: u8 = 8;
    /// Its inode has several names, and is in the file of inodes, at the place that is here. Not
    /// seen by who reads the tree.
    pub(super) const LINKED: u8 = 16;

    pub(super) fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }
}

/// One name.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) inode: u64,
    pub(super) marks: Marks,
    pub(super) name: Bytes,
    pub(super) packed: Bytes,
}

/// One name, where it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildHere<'p> {
    pub(super) inode: u64,
    pub(super) marks: Marks,
    pub(super) name: &'p [u8],
    pub(super) packed: &'p [u8],
}

impl ChildHere<'_> {
    pub(super) fn to_child(self) -> Child {
        Child {
            inode: self.inode,
            marks: self.marks,
            name: Bytes::copy_from_slice(self.name),
            packed: Bytes::copy_from_slice(self.packed),
        }
    }
}

/// Takes names in any order.
pub(super) struct TreeWriter {
    sorter: RunsSorter,
    /// Bytes of an inode number.
    number_bytes: usize,
    memory: MemoryPlan,
}

impl TreeWriter {
    /// Numbers of inodes take `number_bytes`, at most eight.
    pub(super) fn new(spill: Spill<'_>, number_bytes: usize) -> TreeWriter {
        TreeWriter {
            sorter: RunsSorter::new(
                spill.directory,
                spill.memory.inode_share(SORT_CHILDREN_BYTES),
            ),
            number_bytes,
            memory: spill.memory,
        }
    }

    pub(super) fn push(
        &mut self,
        directory: u64,
        name: &[u8],
        inode: u64,
        marks: Marks,
        packed: &[u8],
    ) -> io::Result<()> {
        let number = directory.to_be_bytes();
        let key = [&number[8 - self.number_bytes..], name];
        let value = [&inode.to_le_bytes()[..], &[marks.0], packed];
        self.sorter.push_parts(key, value).map_err(io::Error::other)
    }

    /// `inodes` has those with several names.
    pub(super) fn finish(self, inodes: Arc<InodeFile>) -> io::Result<Tree> {
        let runs = self.sorter.finish(TREE_RUNS_MAX);
        Ok(Tree {
            runs: Arc::new(runs.map_err(io::Error::other)?),
            number_bytes: self.number_bytes,
            cached: VecDeque::new(),
            cached_max: self.memory.inode_share(TREE_BLOCKS_CACHED),
            linked: LinkedInodes::new(inodes, &self.memory),
        })
    }
}

/// The finished files.
pub(super) struct Tree {
    runs: Arc<Runs>,
    number_bytes: usize,
    cached: VecDeque<CachedBlock>,
    cached_max: usize,
    linked: LinkedInodes,
}

/// A block, and where in it a directory was found last: those asked for are mostly behind it.
struct CachedBlock {
    number: BlockNumber,
    bytes: Bytes,
    found: (u64, usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct BlockNumber {
    run: usize,
    block: usize,
}

/// Where the rest of a directory's children begin: a record in each run that has some.
pub(super) struct Position {
    directory: u64,
    heads: Vec<Head>,
    /// The head whose record was handed out last.
    taken: Option<usize>,
    /// The inode of the child that was handed out last, if it has several names.
    linked: Vec<u8>,
}

struct Head {
    number: BlockNumber,
    block: Bytes,
    key: Range<usize>,
    value: Range<usize>,
}

impl Tree {
    /// The same files, for another reader.
    pub(super) fn again(&self) -> Tree {
        Tree {
            runs: self.runs.clone(),
            number_bytes: self.number_bytes,
            cached: VecDeque::new(),
            cached_max: self.cached_max,
            linked: self.linked.again(),
        }
    }

    /// The first child of a directory; `None` if it has none.
    pub(super) fn find(&mut self, directory: u64) -> io::Result<Option<Position>> {
        let mut heads = Vec::new();
        for run in 0..self.runs.count() {
            heads.extend(self.find_in(run, directory)?);
        }
        Ok((!heads.is_empty()).then_some(Position {
            directory,
            heads,
            taken: None,
            linked: Vec::new(),
        }))
    }

    fn find_in(&mut self, run: usize, directory: u64) -> io::Result<Option<Head>> {
        let beginnings = self.beginnings(directory);
        let blocks = self.runs.blocks(run);
        // The children begin in the first block that does not end before them.
        let block = blocks.partition_point(|block| block.last < *beginnings.start());
        let may_have_it = blocks.get(block).is_some_and(|block| {
            block.first <= *beginnings.end() && self.may_have(block, &beginnings)
        });
        if !may_have_it {
            return Ok(None);
        }
        let number = BlockNumber { run, block };
        let cached = self.keep(number)?;
        let (block, last) = (self.cached[cached].bytes.clone(), self.cached[cached].found);
        let mut at = if last.0 <= directory { last.1 } else { 0 };
        while at < block.len() {
            let (key, value) = Runs::record(&block, at)?;
            let found = self.directory_of(&block[key.clone()])?;
            if found >= directory {
                self.cached[cached].found = (found, at);
                return Ok((found == directory).then_some(Head {
                    number,
                    block,
                    key,
                    value,
                }));
            }
            at = value.end;
        }
        Ok(None)
    }

    /// Most blocks that could have a directory by their first and last key have it not.
    fn may_have(&self, block: &Block, beginnings: &RangeInclusive<u64>) -> bool {
        self.number_bytes < 4 || block.may_begin_with((beginnings.start() >> 32) as u32)
    }

    /// What the first eight bytes of keys of this directory can be.
    fn beginnings(&self, directory: u64) -> RangeInclusive<u64> {
        let name_bits = 64 - 8 * self.number_bytes as u32;
        let first = directory.checked_shl(name_bits).unwrap_or(0);
        first..=first | (1u64 << name_bits).wrapping_sub(1)
    }

    fn directory_of(&self, key: &[u8]) -> io::Result<u64> {
        let number = key.get(..self.number_bytes).ok_or_else(damaged)?;
        let mut bytes = [0; 8];
        bytes[8 - self.number_bytes..].copy_from_slice(number);
        Ok(u64::from_be_bytes(bytes))
    }

    /// The next child; `None` after the last.
    pub(super) fn next<'p>(
        &mut self,
        position: &'p mut Position,
    ) -> io::Result<Option<ChildHere<'p>>> {
        if let Some(taken) = position.taken.take()
            && !self.advance(&mut position.heads[taken], position.directory)?
        {
            position.heads.remove(taken);
        }
        let heads = &position.heads;
        let name = |at: &usize| &heads[*at].block[heads[*at].key.clone()];
        // Of equal names the one of the earlier run.
        let Some(least) = (0..heads.len()).min_by(|a, b| name(a).cmp(name(b))) else {
            return Ok(None);
        };
        position.taken = Some(least);
        let child = self.child_at(&position.heads[least])?;
        if !child.marks.has(Marks::LINKED) {
            return Ok(Some(child));
        }
        let place = child.packed.try_into().map_err(|_| damaged())?;
        let place = u64::from_le_bytes(place);
        self.linked.read(child.inode, place, &mut position.linked)?;
        Ok(Some(ChildHere {
            marks: Marks(child.marks.0 & !Marks::LINKED),
            packed: &position.linked,
            ..child
        }))
    }

    fn child_at<'p>(&self, head: &'p Head) -> io::Result<ChildHere<'p>> {
        let value = &head.block[head.value.clone()];
        let (fixed, packed) = value
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or_else(damaged)?;
        let [inode @ .., marks] = fixed;
        Ok(ChildHere {
            inode: u64::from_le_bytes(*inode),
            marks: Marks(*marks),
            name: &head.block[head.key.start + self.number_bytes..head.key.end],
            packed,
        })
    }

    /// Goes on to the next record of the same run; false if that is not of the same directory.
    fn advance(&mut self, head: &mut Head, directory: u64) -> io::Result<bool> {
        let mut at = head.value.end;
        if at >= head.block.len() {
            head.number.block += 1;
            if head.number.block >= self.runs.blocks(head.number.run).len() {
                return Ok(false);
            }
            head.block = self.block(head.number)?;
            at = 0;
        }
        (head.key, head.value) = Runs::record(&head.block, at)?;
        Ok(self.directory_of(&head.block[head.key.clone()])? == directory)
    }

    /// The child of this name.
    pub(super) fn child(&mut self, directory: u64, name: &[u8]) -> io::Result<Option<Child>> {
        let Some(mut position) = self.find(directory)? else {
            return Ok(None);
        };
        while let Some(child) = self.next(&mut position)? {
            if *child.name >= *name {
                return Ok((*child.name == *name).then(|| child.to_child()));
            }
        }
        Ok(None)
    }

    fn block(&mut self, number: BlockNumber) -> io::Result<Bytes> {
        let cached = self.keep(number)?;
        Ok(self.cached[cached].bytes.clone())
    }

    /// Position of a block among those that are kept.
    fn keep(&mut self, number: BlockNumber) -> io::Result<usize> {
        let is_it = |cached: &CachedBlock| cached.number == number;
        if let Some(cached) = self.cached.iter().rposition(is_it) {
            return Ok(cached);
        }
        let bytes = self.runs.read(number.run, number.block)?;
        if self.cached.len() >= self.cached_max {
            self.cached.pop_front();
        }
        self.cached.push_back(CachedBlock {
            number,
            bytes,
            found: (0, 0),
        });
        Ok(self.cached.len() - 1)
    }
}

fn damaged() -> io::Error {
    io::Error::other("a temporary file is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(number_bytes: usize) -> TreeWriter {
        let spill = Spill {
            directory: &std::env::temp_dir(),
            memory: MemoryPlan::default(),
        };
        TreeWriter::new(spill, number_bytes)
    }

    fn no_inodes() -> Arc<InodeFile> {
        let file = bale_pipeline::spill::unnamed_file(&std::env::temp_dir());
        Arc::new(InodeFile::new(file.unwrap()))
    }

    /// Directories of very different sizes, one of them over many blocks, and numbers that do not
    /// occur.
    fn count(directory: u64) -> u64 {
        match directory % 5 {
            0 => 0,
            1 => 1,
            2 => 3000,
            3 => 7,
            _ => 40,
        }
    }

    /// Pushes children round-robin over all directories, so that every directory is in every run.
    fn tree(directories: u64, packed_bytes: usize, number_bytes: usize) -> Tree {
        let mut writer = writer(number_bytes);
        let packed = vec![1; packed_bytes];
        for n in (0..3000).rev() {
            for directory in (0..directories).filter(|directory| n < count(*directory)) {
                let name = format!("name-{n:06}");
                writer
                    .push(directory, name.as_bytes(), n, Marks::default(), &packed)
                    .unwrap();
            }
        }
        writer.finish(no_inodes()).unwrap()
    }

    fn assert_all_found(tree: &mut Tree, directories: u64) {
        for directory in (0..directories + 1).rev() {
            let expected = if directory < directories {
                count(directory)
            } else {
                0
            };
            let mut found = 0;
            if let Some(mut position) = tree.find(directory).unwrap() {
                while let Some(child) = tree.next(&mut position).unwrap() {
                    assert_eq!(child.inode, found);
                    assert_eq!(child.name, format!("name-{found:06}").as_bytes());
                    found += 1;
                }
            }
            assert_eq!(found, expected, "directory {directory}");
        }
        assert_eq!(tree.child(2, b"name-002999").unwrap().unwrap().inode, 2999);
        assert!(tree.child(2, b"name-003000").unwrap().is_none());
        assert!(tree.child(0, b"name-000000").unwrap().is_none());
    }

    #[test]
    fn children_are_found_whatever_block_they_begin_in() {
        for number_bytes in [1, 4, 8] {
            let mut tree = tree(60, 90, number_bytes);
            assert_eq!(tree.runs.count(), 1);
            assert!(tree.runs.blocks(0).len() > 20);
            assert_all_found(&mut tree, 60);
        }
    }

    #[test]
    fn children_are_found_whatever_run_they_are_in() {
        let mut few = tree(60, 4000, 4);
        assert!(
            (2..=TREE_RUNS_MAX).contains(&few.runs.count()),
            "{}",
            few.runs.count()
        );
        assert_all_found(&mut few, 60);
    }

    #[test]
    fn more_runs_than_are_read_at_a_time_are_merged() {
        let mut many = tree(30, 60_000, 4);
        assert_eq!(many.runs.count(), TREE_RUNS_MAX);
        assert_all_found(&mut many, 30);
    }

    #[test]
    fn a_tree_without_names_has_none() {
        let writer = writer(4);
        assert!(
            writer
                .finish(no_inodes())
                .unwrap()
                .find(2)
                .unwrap()
                .is_none()
        );
    }
}
