//! Pieces of a group of large files, sorted by the place of their chunks: in memory while they are
//! few.

use crate::ChunkSource;
use crate::scratch::{PairSorter, ScratchSpace, SortedPairs};
use bale_format::ChunkId;
use std::collections::VecDeque;

/// Pieces of a group that are sorted in memory, at 80 bytes each; more go to a sorter.
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
            let mut value = [0; 40];
            value[..32].copy_from_slice(&row.id.0);
            value[32..].copy_from_slice(&row.length.to_le_bytes());
            sorter.push(&row.key, &value)?;
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
            let mut value = [0; 40];
            value[..32].copy_from_slice(&row.id.0);
            value[32..].copy_from_slice(&row.length.to_le_bytes());
            sorter.push(&row.key, &value)?;
        }
        let sorted: SortedPairs = sorter.finish()?;
        Ok(Box::new(sorted.map(|pair| {
            let (key, value) = pair?;
            let damaged = || std::io::Error::from(std::io::ErrorKind::InvalidData);
            let (id, length) = value.split_at_checked(32).ok_or_else(damaged)?;
            Ok(PieceRow {
                key: key.try_into().map_err(|_| damaged())?,
                id: ChunkId::from_slice(id).map_err(|_| damaged())?,
                length: u64::from_le_bytes(length.try_into().map_err(|_| damaged())?),
            })
        })))
    }
}
