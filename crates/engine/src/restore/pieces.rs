//! Piece lists: what a large file is made of, walked without holding more than one list of each level.
//!
//! A list is untrusted: its lengths must add up to what the level above said, so no list can make a file longer than its row.

use super::{ChunkSource, ChunkUse};
use bale_format::ChunkId;
use bytes::{Buf, Bytes};

/// Levels above the leaves.
const DEPTH_MAX: u8 = 3;

/// Entries of one list.
const ENTRIES_MAX: u32 = 16384;

/// One stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The whole of a data chunk.
    Data(ChunkId),
    /// Nothing allocated.
    Hole,
    /// Could not be read when the backup ran.
    Unreadable,
}

/// Calls `found` with each piece in order: its offset and length in the file. `Err` says why the list cannot be used.
pub fn walk(
    list: &ChunkId,
    size: u64,
    chunks: &dyn ChunkSource,
    found: &mut dyn FnMut(u64, u64, Piece) -> Result<(), String>,
) -> Result<(), String> {
    let mut walk = Walk::new(list, size, chunks)?;
    while let Some((offset, length, piece)) = walk.next_piece()? {
        found(offset, length, piece)?;
    }
    Ok(())
}

/// The pieces of a list, one by one.
pub struct Walk<'a> {
    chunks: &'a dyn ChunkSource,
    stack: Vec<Level>,
    /// Where the stretch that each level describes must end.
    ends: Vec<u64>,
    offset: u64,
}

impl<'a> Walk<'a> {
    /// Begins with the list of a file of `size` bytes.
    pub fn new(list: &ChunkId, size: u64, chunks: &'a dyn ChunkSource) -> Result<Walk<'a>, String> {
        Ok(Walk {
            chunks,
            stack: vec![Level::read(list, None, chunks)?],
            ends: vec![size],
            offset: 0,
        })
    }

    /// The next piece: its offset and length in the file. After an `Err` there is nothing more to ask.
    pub fn next_piece(&mut self) -> Result<Option<(u64, u64, Piece)>, String> {
        while let Some(level) = self.stack.last_mut() {
            let end = *self.ends.last().expect("one end for each level");
            if level.left == 0 {
                if self.offset != end {
                    return Err(damaged("a list is shorter than it should be"));
                }
                self.stack.pop();
                self.ends.pop();
                continue;
            }
            let (length, what) = level.next()?;
            let stop = self
                .offset
                .checked_add(length)
                .filter(|stop| *stop <= end)
                .ok_or_else(|| damaged("a list is longer than it should be"))?;
            match what {
                Next::Piece(piece) => {
                    let offset = std::mem::replace(&mut self.offset, stop);
                    return Ok(Some((offset, length, piece)));
                }
                Next::List(id) => {
                    let below = level.depth - 1;
                    self.stack.push(Level::read(&id, Some(below), self.chunks)?);
                    self.ends.push(stop);
                }
            }
        }
        Ok(None)
    }
}

fn damaged(what: &str) -> String {
    format!("damaged piece list: {what}")
}

struct Level {
    depth: u8,
    left: u32,
    entries: Bytes,
}

enum Next {
    Piece(Piece),
    List(ChunkId),
}

impl Level {
    fn read(id: &ChunkId, depth: Option<u8>, chunks: &dyn ChunkSource) -> Result<Level, String> {
        let mut entries = chunks
            .read(id, ChunkUse::Pieces)
            .map_err(|trouble| trouble.to_string())?;
        if entries.len() < 8 {
            return Err(damaged("too short"));
        }
        let found = entries.get_u8();
        entries.advance(3);
        let left = entries.get_u32_le();
        if found > DEPTH_MAX || depth.is_some_and(|depth| depth != found) {
            return Err(damaged("wrong depth"));
        }
        if left == 0 || left > ENTRIES_MAX {
            return Err(damaged("wrong number of entries"));
        }
        Ok(Level {
            depth: found,
            left,
            entries,
        })
    }

    fn next(&mut self) -> Result<(u64, Next), String> {
        self.left -= 1;
        let next = if self.depth > 0 {
            let length = self.u64()?;
            (length, Next::List(self.id()?))
        } else {
            if self.entries.is_empty() {
                return Err(damaged("too short"));
            }
            let tag = self.entries.get_u8();
            let length = self.u64()?;
            let piece = match tag {
                0 => Piece::Data(self.id()?),
                1 => Piece::Hole,
                2 => Piece::Unreadable,
                _ => return Err(damaged("unknown tag")),
            };
            (length, Next::Piece(piece))
        };
        if next.0 == 0 {
            return Err(damaged("an empty piece"));
        }
        Ok(next)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.entries
            .try_get_u64_le()
            .map_err(|_| damaged("too short"))
    }

    fn id(&mut self) -> Result<ChunkId, String> {
        if self.entries.len() < 32 {
            return Err(damaged("too short"));
        }
        let id = self.entries.split_to(32);
        ChunkId::from_slice(&id).map_err(|_| damaged("too short"))
    }
}

/// A leaf list, for tests and writers of tests.
pub fn encode_leaf(pieces: &[(u64, Piece)]) -> Vec<u8> {
    let mut list = vec![0; 4];
    list.extend_from_slice(&(pieces.len() as u32).to_le_bytes());
    for (length, piece) in pieces {
        let (tag, id) = match piece {
            Piece::Data(id) => (0, Some(id)),
            Piece::Hole => (1, None),
            Piece::Unreadable => (2, None),
        };
        list.push(tag);
        list.extend_from_slice(&length.to_le_bytes());
        list.extend(id.iter().flat_map(|id| id.0));
    }
    list
}

/// A list of lists, for tests.
pub fn encode_node(depth: u8, lists: &[(u64, ChunkId)]) -> Vec<u8> {
    let mut list = vec![depth, 0, 0, 0];
    list.extend_from_slice(&(lists.len() as u32).to_le_bytes());
    for (length, id) in lists {
        list.extend_from_slice(&length.to_le_bytes());
        list.extend_from_slice(&id.0);
    }
    list
}
