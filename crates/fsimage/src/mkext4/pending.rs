//! Directories that were named and whose own run has not come yet.
//!
//! Runs come depth first, so these form a stack of queues: one queue of children for each directory
//! on the way down. Queues beyond a bound wait in a scratch file, which is used as a stack too.

use std::collections::VecDeque;

use super::error::{MkError, Result};
use super::field::get_u32;
use super::sink::{Scratch, ScratchMaker};

/// Directories are moved to the scratch file in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// A directory whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextDirectory {
    pub inode: u32,
    pub parent_inode: u32,
}

/// The stack of queues.
#[derive(Default)]
pub(super) struct Pending {
    levels: Vec<Level>,
    open: Level,
    memory_bytes: usize,
    /// Bytes of waiting directories in memory, over all levels.
    memory_bytes_max: usize,
    scratch: Option<Box<dyn Scratch>>,
    scratch_top: u64,
}

/// Children of one directory: records of inode, length and name.
#[derive(Default)]
struct Level {
    parent_inode: u32,
    path_len: usize,
    /// Being read, from `cursor`.
    front: Vec<u8>,
    cursor: usize,
    pieces: VecDeque<Piece>,
    /// Being written.
    tail: Vec<u8>,
}

enum Piece {
    Memory(Vec<u8>),
    Spilled { start: u64, len: usize },
}

impl Pending {
    pub fn new(memory_bytes_max: usize) -> Pending {
        Pending {
            memory_bytes_max,
            ..Pending::default()
        }
    }

    /// Adds a child of the directory whose run is open.
    pub fn push(&mut self, name: &[u8], inode: u32, maker: &mut ScratchMaker) -> Result<()> {
        let tail = &mut self.open.tail;
        tail.extend_from_slice(&inode.to_le_bytes());
        tail.push(name.len() as u8);
        tail.extend_from_slice(name);
        if tail.len() >= PIECE_BYTES {
            let piece = std::mem::take(tail);
            let piece = self.place_piece(piece, maker)?;
            self.open.pieces.push_back(piece);
        }
        Ok(())
    }

    /// The open run is complete: its children come before everything that waits already.
    pub fn descend(&mut self, parent_inode: u32, path_len: usize) {
        let mut level = std::mem::take(&mut self.open);
        level.parent_inode = parent_inode;
        level.path_len = path_len;
        if !level.tail.is_empty() || !level.pieces.is_empty() {
            self.levels.push(level);
        }
    }

    /// The next directory in catalog order; `path` becomes its path.
    pub fn next(&mut self, path: &mut Vec<u8>) -> Result<Option<NextDirectory>> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            if level.cursor < level.front.len() {
                let record = &level.front[level.cursor..];
                let name = &record[5..5 + usize::from(record[4])];
                path.truncate(level.path_len);
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                let next = NextDirectory {
                    inode: get_u32(record, 0),
                    parent_inode: level.parent_inode,
                };
                level.cursor += 5 + name.len();
                return Ok(Some(next));
            }
            level.cursor = 0;
            match level.pieces.pop_front() {
                Some(Piece::Memory(bytes)) => {
                    self.memory_bytes -= bytes.len();
                    level.front = bytes;
                }
                Some(Piece::Spilled { start, len }) => {
                    level.front.resize(len, 0);
                    let scratch = self
                        .scratch
                        .as_deref()
                        .expect("made before the first piece went there");
                    scratch
                        .get_at(start, &mut level.front)
                        .map_err(|source| MkError::Scratch("waiting directories", source))?;
                    // The last piece in is the top of the stack; below it nothing is freed earlier.
                    if level.pieces.is_empty() {
                        self.scratch_top = self.scratch_top.min(start);
                    }
                }
                None if level.tail.is_empty() => {
                    self.levels.pop();
                }
                None => level.front = std::mem::take(&mut level.tail),
            }
        }
    }

    fn place_piece(&mut self, piece: Vec<u8>, maker: &mut ScratchMaker) -> Result<Piece> {
        if self.memory_bytes + piece.len() <= self.memory_bytes_max {
            self.memory_bytes += piece.len();
            return Ok(Piece::Memory(piece));
        }
        let failed = |source| MkError::Scratch("waiting directories", source);
        if self.scratch.is_none() {
            self.scratch = Some(maker().map_err(failed)?);
        }
        let scratch = self.scratch.as_deref_mut().expect("just made");
        let start = self.scratch_top;
        scratch.put_at(start, &piece).map_err(failed)?;
        self.scratch_top += piece.len() as u64;
        Ok(Piece::Spilled {
            start,
            len: piece.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(Vec<u8>);
    impl Scratch for Memory {
        fn get_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
            Ok(())
        }
        fn put_at(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
            self.0
                .resize(self.0.len().max(offset as usize + bytes.len()), 0);
            self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn directories_come_back_depth_first_and_in_order_even_through_the_scratch_file() {
        let mut maker: ScratchMaker = Box::new(|| Ok(Box::new(Memory(Vec::new()))));
        let mut pending = Pending::new(32 << 20);
        let count = 400_000u32;
        let long = "x".repeat(150);
        for child in 0..count {
            pending
                .push(format!("{child:08}{long}").as_bytes(), child, &mut maker)
                .unwrap();
        }
        pending.descend(2, 0);
        assert!(pending.scratch.is_some());
        let mut path = Vec::new();
        for child in 0..count {
            let next = pending.next(&mut path).unwrap().unwrap();
            assert_eq!(
                next,
                NextDirectory {
                    inode: child,
                    parent_inode: 2
                }
            );
            assert_eq!(path, format!("{child:08}{long}").as_bytes());
            if child % 100_000 == 7 {
                pending
                    .push(b"below", 1_000_000 + child, &mut maker)
                    .unwrap();
                pending.descend(child, path.len());
                let below = pending.next(&mut path).unwrap().unwrap();
                assert_eq!(
                    below,
                    NextDirectory {
                        inode: 1_000_000 + child,
                        parent_inode: child
                    }
                );
                assert!(path.ends_with(b"/below"));
            }
        }
        assert_eq!(pending.next(&mut path).unwrap(), None);
    }
}
