//! Piece lists: which chunks make up a large file. docs/FORMAT.md, section 7.
//!
//! A list holds at most 16,384 entries; larger files get lists of lists, at most three levels above
//! the leaves. Writing and reading hold one list of each level: 2.7 MB for a file of any size.

mod build;
mod walk;

pub use build::{PieceListBuilder, PieceRoot};
pub use walk::{PieceStep, PieceWalk, Promised};

use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::ChunkId;
use crate::limits::{CHUNK_BYTES_MAX, PIECES_DEPTH_MAX, PIECES_ENTRIES_MAX};
use std::ops::Range;

const WHAT: &str = "piece list";
/// Tag, length, chunk id, offset in the chunk.
pub(crate) const LEAF_ENTRY_BYTES_MAX: usize = 45;
const TAG_DATA: u8 = 0;
const TAG_HOLE: u8 = 1;
const TAG_UNREADABLE: u8 = 2;
const TAG_PART: u8 = 3;

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of a data chunk: those from `start` on, or all of it.
    Data {
        bytes: u64,
        chunk: ChunkId,
        start: Option<u32>,
    },
    /// Zeroes that the file system does not store.
    Hole { bytes: u64 },
    /// Could not be read; restored as a hole and named.
    Unreadable { bytes: u64 },
}

impl Piece {
    /// All of a data chunk of this length.
    pub fn whole(bytes: u64, chunk: ChunkId) -> Piece {
        Piece::Data {
            bytes,
            chunk,
            start: None,
        }
    }

    /// Where its bytes are in its chunk, which has `chunk_bytes`. `None`: the chunk is not as long
    /// as the piece says, or the piece has no chunk.
    pub fn range_in(&self, chunk_bytes: usize) -> Option<Range<usize>> {
        let Piece::Data { bytes, start, .. } = *self else {
            return None;
        };
        let bytes = usize::try_from(bytes).ok()?;
        match start {
            None => (bytes == chunk_bytes).then_some(0..bytes),
            Some(start) => {
                let start = start as usize;
                let end = start.checked_add(bytes)?;
                (end <= chunk_bytes).then_some(start..end)
            }
        }
    }

    pub fn bytes(&self) -> u64 {
        match *self {
            Piece::Data { bytes, .. } | Piece::Hole { bytes } | Piece::Unreadable { bytes } => {
                bytes
            }
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let tag = match self {
            Piece::Data { start: None, .. } => TAG_DATA,
            Piece::Data { start: Some(_), .. } => TAG_PART,
            Piece::Hole { .. } => TAG_HOLE,
            Piece::Unreadable { .. } => TAG_UNREADABLE,
        };
        out.push(tag);
        out.extend_from_slice(&self.bytes().to_le_bytes());
        if let Piece::Data { chunk, start, .. } = self {
            out.extend_from_slice(&chunk.0);
            out.extend(start.iter().flat_map(|start| start.to_le_bytes()));
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Piece, FormatError> {
        let tag = fields.u8()?;
        let bytes = fields.u64()?;
        let piece = match tag {
            TAG_DATA => Piece::whole(bytes, ChunkId(fields.array()?)),
            TAG_PART => Piece::Data {
                bytes,
                chunk: ChunkId(fields.array()?),
                start: Some(fields.u32()?),
            },
            TAG_HOLE => Piece::Hole { bytes },
            TAG_UNREADABLE => Piece::Unreadable { bytes },
            _ => return Err(fields.value("tag", u64::from(tag))),
        };
        piece.check_length()?;
        Ok(piece)
    }

    fn check_length(&self) -> Result<(), FormatError> {
        let max = match self {
            Piece::Data { start, .. } => {
                (CHUNK_BYTES_MAX as u64).saturating_sub(u64::from(start.unwrap_or(0)))
            }
            _ => u64::MAX,
        };
        if self.bytes() == 0 || self.bytes() > max {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Value {
                    field: "length of a piece",
                    found: self.bytes(),
                },
            ));
        }
        Ok(())
    }
}

/// A list below a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubList {
    /// Sum of the lengths in it.
    pub bytes: u64,
    /// Chunk of kind pieces.
    pub list: ChunkId,
}

/// One decoded piece list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceList {
    /// Depth 0.
    Leaf(Vec<Piece>),
    /// Depth 1 to 3.
    Inner {
        /// Levels below.
        depth: u8,
        /// Lists of the depth below.
        lists: Vec<SubList>,
    },
}

impl PieceList {
    /// From a chunk of kind pieces.
    pub fn decode(plain: &[u8]) -> Result<PieceList, FormatError> {
        let mut fields = Fields::new(WHAT, plain);
        let depth = fields.u8()?;
        if depth > PIECES_DEPTH_MAX {
            return Err(fields.value("depth", u64::from(depth)));
        }
        fields.zero(3)?;
        let count = fields.u32()? as usize;
        if count == 0 || count > PIECES_ENTRIES_MAX {
            return Err(fields.value("number of entries", count as u64));
        }
        let list = if depth == 0 {
            let pieces: Result<_, _> = (0..count).map(|_| Piece::decode(&mut fields)).collect();
            PieceList::Leaf(pieces?)
        } else {
            let lists: Result<Vec<_>, FormatError> = (0..count)
                .map(|_| {
                    let bytes = fields.u64()?;
                    let list = ChunkId(fields.array()?);
                    if bytes == 0 {
                        return Err(fields.value("length of a list", bytes));
                    }
                    Ok(SubList { bytes, list })
                })
                .collect();
            PieceList::Inner {
                depth,
                lists: lists?,
            }
        };
        fields.end()?;
        list.bytes()?;
        Ok(list)
    }

    /// As the plaintext of a chunk of kind pieces: the one that it was decoded from.
    pub fn encode(&self) -> Vec<u8> {
        let mut plain = vec![self.depth(), 0, 0, 0];
        let count = match self {
            PieceList::Leaf(pieces) => pieces.len(),
            PieceList::Inner { lists, .. } => lists.len(),
        };
        plain.extend_from_slice(&(count as u32).to_le_bytes());
        match self {
            PieceList::Leaf(pieces) => pieces.iter().for_each(|piece| piece.encode(&mut plain)),
            PieceList::Inner { lists, .. } => lists.iter().for_each(|below| {
                plain.extend_from_slice(&below.bytes.to_le_bytes());
                plain.extend_from_slice(&below.list.0);
            }),
        }
        plain
    }

    /// Levels below this one.
    pub fn depth(&self) -> u8 {
        match self {
            PieceList::Leaf(_) => 0,
            PieceList::Inner { depth, .. } => *depth,
        }
    }

    /// Sum of the lengths.
    pub fn bytes(&self) -> Result<u64, FormatError> {
        let mut sum: u64 = 0;
        let mut add = |bytes: u64| {
            sum = sum.checked_add(bytes)?;
            Some(())
        };
        let added = match self {
            PieceList::Leaf(pieces) => pieces.iter().try_for_each(|piece| add(piece.bytes())),
            PieceList::Inner { lists, .. } => lists.iter().try_for_each(|list| add(list.bytes)),
        };
        added.map(|()| sum).ok_or_else(|| {
            FormatError::damaged(
                WHAT,
                Fault::Value {
                    field: "sum of lengths",
                    found: u64::MAX,
                },
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u32, bytes: u64) -> Piece {
        Piece::Data {
            bytes,
            chunk: ChunkId([7; 32]),
            start: Some(start),
        }
    }

    #[test]
    fn a_piece_is_all_of_its_chunk_or_a_part_that_lies_in_it() {
        let whole = Piece::whole(10, ChunkId([7; 32]));
        assert_eq!(whole.range_in(10), Some(0..10));
        assert_eq!((whole.range_in(9), whole.range_in(11)), (None, None));
        assert_eq!(part(3, 7).range_in(10), Some(3..10));
        assert_eq!(part(0, 10).range_in(10), Some(0..10));
        assert_eq!(
            (part(4, 7).range_in(10), part(11, 1).range_in(10)),
            (None, None)
        );
        assert_eq!(Piece::Hole { bytes: 10 }.range_in(10), None);
    }

    #[test]
    fn a_part_that_no_chunk_can_hold_is_refused_when_it_is_read_and_when_it_is_written() {
        let last = CHUNK_BYTES_MAX as u64 - 1;
        for (piece, fits) in [
            (part(1, last), true),
            (part(1, last + 1), false),
            (part(CHUNK_BYTES_MAX as u32, 1), false),
            (part(u32::MAX, 1), false),
            (part(5, 0), false),
        ] {
            let plain = PieceList::Leaf(vec![piece]).encode();
            let decoded = PieceList::decode(&plain);
            assert_eq!(decoded.is_ok(), fits, "{piece:?}");
            let mut store = |_: &[u8]| Ok::<_, FormatError>(ChunkId([1; 32]));
            let pushed = PieceListBuilder::new().push(piece, &mut store);
            assert_eq!(pushed.is_ok(), fits, "{piece:?}");
        }
    }
}
