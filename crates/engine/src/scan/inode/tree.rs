//! All names of a file system, children of one directory together and sorted by name, in an unnamed file.
//!
//! A table of the first directory of each block is in memory (16 bytes for 64 KiB of names), and the blocks used last. What
//! is read here was written by this process: a record that makes no sense is a failing disk, and an error.

use super::append::Appender;
use super::{TREE_BLOCK_BYTES, TREE_BLOCKS_KEPT};
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Directory (8), inode (8), marks (1), length of the name (1), length of the packed inode (4).
const HEAD_BYTES: usize = 22;

/// What is known of a child besides its inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(pub(super) u8);

impl Marks {
    /// A directory that has another name already: it is not entered twice.
    pub(super) const AGAIN: u8 = 1;
    /// Its inode is not in use, or is damaged.
    pub(super) const MISSING: u8 = 2;

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

/// Where a record begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    block: usize,
    at: usize,
}

#[derive(Clone, Copy)]
struct BlockStart {
    directory: u64,
    offset: u64,
}

/// Takes names in the order of (directory, name).
pub(super) struct TreeWriter {
    file: Appender,
    block: Vec<u8>,
    first_directory: u64,
    starts: Vec<BlockStart>,
    len: u64,
}

impl TreeWriter {
    pub(super) fn create(spill: &Path) -> io::Result<TreeWriter> {
        Ok(TreeWriter {
            file: Appender::create(spill)?,
            block: Vec::with_capacity(TREE_BLOCK_BYTES),
            first_directory: 0,
            starts: Vec::new(),
            len: 0,
        })
    }

    pub(super) fn push(
        &mut self,
        directory: u64,
        name: &[u8],
        inode: u64,
        marks: Marks,
        packed: &[u8],
    ) -> io::Result<()> {
        let bytes = HEAD_BYTES + name.len() + packed.len();
        if !self.block.is_empty() && self.block.len() + bytes > TREE_BLOCK_BYTES {
            self.end_block();
        }
        if self.block.is_empty() {
            self.first_directory = directory;
        }
        let name_len = u8::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        self.block.extend_from_slice(&directory.to_le_bytes());
        self.block.extend_from_slice(&inode.to_le_bytes());
        self.block.extend_from_slice(&[marks.0, name_len]);
        self.block
            .extend_from_slice(&(packed.len() as u32).to_le_bytes());
        self.block.extend_from_slice(name);
        self.block.extend_from_slice(packed);
        Ok(())
    }

    fn end_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        self.starts.push(BlockStart {
            directory: self.first_directory,
            offset: self.len,
        });
        self.len += self.block.len() as u64;
        let next = Vec::with_capacity(TREE_BLOCK_BYTES);
        // Should this fail, `finish` tells why.
        self.file.append(std::mem::replace(&mut self.block, next));
    }

    pub(super) fn finish(mut self) -> io::Result<Tree> {
        self.end_block();
        self.starts.shrink_to_fit();
        Ok(Tree {
            file: Arc::new(self.file.finish()?),
            starts: Arc::new(self.starts),
            len: self.len,
            kept: VecDeque::new(),
        })
    }
}

/// The finished file.
pub(super) struct Tree {
    file: Arc<File>,
    starts: Arc<Vec<BlockStart>>,
    len: u64,
    kept: VecDeque<(usize, Bytes)>,
}

impl Tree {
    /// The same file, for another reader.
    pub(super) fn again(&self) -> Tree {
        Tree {
            file: self.file.clone(),
            starts: self.starts.clone(),
            len: self.len,
            kept: VecDeque::new(),
        }
    }

    /// The first child of a directory; `None` if it has none.
    pub(super) fn find(&mut self, directory: u64) -> io::Result<Option<Position>> {
        // The first block that begins with this directory or a later one: the children begin in it or in the one before.
        let after = self
            .starts
            .partition_point(|start| start.directory < directory);
        let mut position = Position {
            block: after.saturating_sub(1),
            at: 0,
        };
        loop {
            let before = position;
            let Some(found) = self.pass_to(directory, &mut position)? else {
                return Ok(None);
            };
            if found {
                return Ok(Some(position));
            }
            if position == before {
                return Ok(None);
            }
        }
    }

    /// Goes to the first record of this directory or a later one in the block, or to the next block. `None`: the end.
    fn pass_to(&mut self, directory: u64, position: &mut Position) -> io::Result<Option<bool>> {
        if position.block >= self.starts.len() {
            return Ok(None);
        }
        let block = self.block(position.block)?;
        while position.at < block.len() {
            let head = head(&block, position.at)?;
            if head.directory >= directory {
                return Ok((head.directory == directory).then_some(true));
            }
            position.at += head.len;
        }
        *position = Position {
            block: position.block + 1,
            at: 0,
        };
        Ok(Some(false))
    }

    /// The child at a position, which moves on; `None` if the children of `directory` end before.
    pub(super) fn next(
        &mut self,
        directory: u64,
        position: &mut Position,
    ) -> io::Result<Option<Child>> {
        loop {
            if position.block >= self.starts.len() {
                return Ok(None);
            }
            let block = self.block(position.block)?;
            if position.at >= block.len() {
                *position = Position {
                    block: position.block + 1,
                    at: 0,
                };
                continue;
            }
            let head = head(&block, position.at)?;
            if head.directory != directory {
                return Ok(None);
            }
            let name_at = position.at + HEAD_BYTES;
            let packed_at = name_at + head.name_len;
            position.at += head.len;
            return Ok(Some(Child {
                inode: head.inode,
                marks: head.marks,
                name: block.slice(name_at..packed_at),
                packed: block.slice(packed_at..position.at),
            }));
        }
    }

    /// The child of this name.
    pub(super) fn child(&mut self, directory: u64, name: &[u8]) -> io::Result<Option<Child>> {
        let Some(mut position) = self.find(directory)? else {
            return Ok(None);
        };
        while let Some(child) = self.next(directory, &mut position)? {
            if child.name[..] >= *name {
                return Ok((child.name[..] == *name).then_some(child));
            }
        }
        Ok(None)
    }

    fn block(&mut self, number: usize) -> io::Result<Bytes> {
        if let Some((_, block)) = self.kept.iter().rev().find(|(kept, _)| *kept == number) {
            return Ok(block.clone());
        }
        let start = self.starts[number].offset;
        let end = self
            .starts
            .get(number + 1)
            .map_or(self.len, |next| next.offset);
        let block = Bytes::from(self.read_block((end - start) as usize, start)?);
        if self.kept.len() >= TREE_BLOCKS_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((number, block.clone()));
        Ok(block)
    }

    /// Without filling the buffer with zeros first: all of the tree comes through here.
    fn read_block(&self, len: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            match rustix::io::pread(&*self.file, spare_capacity(&mut bytes), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }
}

struct Head {
    directory: u64,
    inode: u64,
    marks: Marks,
    name_len: usize,
    len: usize,
}

fn head(block: &[u8], at: usize) -> io::Result<Head> {
    let damaged = || io::Error::other("a temporary file is damaged");
    let bytes = block
        .get(at..)
        .and_then(|rest| rest.first_chunk::<HEAD_BYTES>())
        .ok_or_else(damaged)?;
    let number =
        |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 of 22 bytes"));
    let packed_len = u32::from_le_bytes(bytes[18..22].try_into().expect("4 of 22 bytes"));
    let len = HEAD_BYTES + usize::from(bytes[17]) + packed_len as usize;
    if len > block.len() - at {
        return Err(damaged());
    }
    Ok(Head {
        directory: number(0),
        inode: number(8),
        marks: Marks(bytes[16]),
        name_len: usize::from(bytes[17]),
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_whatever_block_they_begin_in() {
        let mut writer = TreeWriter::create(&std::env::temp_dir()).unwrap();
        // Directories of very different sizes, one of them over many blocks, and numbers that do not occur.
        let counts = |directory: u64| match directory % 5 {
            0 => 0,
            1 => 1,
            2 => 3000,
            3 => 7,
            _ => 40,
        };
        for directory in 0..60u64 {
            for n in 0..counts(directory) {
                let name = format!("name-{n:06}");
                writer
                    .push(directory, name.as_bytes(), n, Marks::default(), &[1; 90])
                    .unwrap();
            }
        }
        let mut tree = writer.finish().unwrap();
        assert!(tree.starts.len() > 20);
        for directory in (0..61u64).rev() {
            let expected = if directory < 60 { counts(directory) } else { 0 };
            let mut found = 0;
            if let Some(mut position) = tree.find(directory).unwrap() {
                while let Some(child) = tree.next(directory, &mut position).unwrap() {
                    assert_eq!(child.inode, found);
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
    fn a_tree_without_names_has_none() {
        let writer = TreeWriter::create(&std::env::temp_dir()).unwrap();
        assert!(writer.finish().unwrap().find(2).unwrap().is_none());
    }
}
