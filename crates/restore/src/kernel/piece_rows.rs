//! Pieces of a group of large files, sorted by the place of their chunks: in memory while they are
//! few.

use crate::ChunkSource;
use crate::scratch::{PairSorter, ScratchSpace, SortedPairs};
use bale_format::ChunkId;
use std::collections::VecDeque;

/// Pieces of a group that are sorted in memory, at 88 bytes each; more go to a sorter.
const PIECES_IN_MEMORY_MAX: usize = 1 << 17;

/// Memory of the sorter of one group.
const SORTER_BYTES: usize = 16 << 20;

/// Pack and offset of a chunk, as bytes that sort.
pub type PlaceBytes = [u8; 12];

#[derive(Clone, Copy)]
pub struct PieceRow {
    /// Place of the chunk, number of the file, offset in the file.
    pub key: [u8; 24],
    pub id: ChunkId,
    pub length: u64,
    /// Of a part of the chunk: its first byte.
    pub start: Option<u32>,
}

impl PieceRow {
    pub fn place(&self) -> PlaceBytes {
        self.key[..12].try_into().expect("12 of 24 bytes")
    }

    /// Number of the file, and offset in it.
    pub fn goes_to(&self) -> (usize, u64) {
        let number = u32::from_be_bytes(self.key[12..16].try_into().expect("4 bytes"));
        let offset = u64::from_be_bytes(self.key[16..].try_into().expect("8 bytes"));
        (number as usize, offset)
    }

    /// Id, length and, of a part, its first byte.
    fn encode_value(&self) -> Vec<u8> {
        let start = self.start.map(u32::to_le_bytes);
        let mut value = [&self.id.0[..], &self.length.to_le_bytes()].concat();
        value.extend(start.iter().flatten());
        value
    }

    fn decode(key: &[u8], value: &[u8]) -> Option<PieceRow> {
        let (id, rest) = value.split_first_chunk::<32>()?;
        let (length, start) = rest.split_first_chunk::<8>()?;
        Some(PieceRow {
            key: key.try_into().ok()?,
            id: ChunkId(*id),
            length: u64::from_le_bytes(*length),
            start: match start {
                [] => None,
                start => Some(u32::from_le_bytes(start.try_into().ok()?)),
            },
        })
    }
}

/// Pieces that are said to be expected together, before their turn, where chunks are far away.
const EXPECTED_TOGETHER: usize = 16;

/// Pieces in order, of which whoever has their chunks far away learns before.
pub struct ExpectedPieces<'a, I> {
    pieces: I,
    chunks: &'a dyn ChunkSource,
    waiting: VecDeque<std::io::Result<PieceRow>>,
}

impl<'a, I: Iterator<Item = std::io::Result<PieceRow>>> ExpectedPieces<'a, I> {
    pub fn new(pieces: I, chunks: &'a dyn ChunkSource) -> ExpectedPieces<'a, I> {
        ExpectedPieces {
            pieces,
            chunks,
            waiting: VecDeque::new(),
        }
    }
}

impl<I: Iterator<Item = std::io::Result<PieceRow>>> Iterator for ExpectedPieces<'_, I> {
    type Item = std::io::Result<PieceRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.chunks.is_far_away() {
            return self.pieces.next();
        }
        if self.waiting.len() < EXPECTED_TOGETHER {
            let more: Vec<_> = self.pieces.by_ref().take(EXPECTED_TOGETHER).collect();
            let ids: Vec<ChunkId> = more.iter().flatten().map(|piece| piece.id).collect();
            self.chunks.expect(&ids);
            self.waiting.extend(more);
        }
        self.waiting.pop_front()
    }
}

/// Pieces of one group: in memory while they are few.
#[derive(Default)]
pub struct GroupPieces {
    rows: Vec<PieceRow>,
    sorter: Option<PairSorter>,
}

impl GroupPieces {
    pub fn push(&mut self, scratch: &ScratchSpace, row: PieceRow) -> std::io::Result<()> {
        if self.rows.len() < PIECES_IN_MEMORY_MAX {
            self.rows.push(row);
            return Ok(());
        }
        let sorter = (self.sorter).get_or_insert_with(|| scratch.sorter(SORTER_BYTES));
        for row in self.rows.drain(..).chain([row]) {
            sorter.push(&row.key, &row.encode_value())?;
        }
        Ok(())
    }

    pub fn sorted(
        mut self,
    ) -> std::io::Result<Box<dyn Iterator<Item = std::io::Result<PieceRow>>>> {
        let Some(mut sorter) = self.sorter.take() else {
            self.rows.sort_unstable_by_key(|row| row.key);
            return Ok(Box::new(self.rows.into_iter().map(Ok)));
        };
        for row in self.rows.drain(..) {
            sorter.push(&row.key, &row.encode_value())?;
        }
        let sorted: SortedPairs = sorter.finish()?;
        Ok(Box::new(sorted.map(|pair| {
            let (key, value) = pair?;
            let damaged = || std::io::Error::from(std::io::ErrorKind::InvalidData);
            PieceRow::decode(&key, &value).ok_or_else(damaged)
        })))
    }
}
