//! The pieces of a large file in order, with the lists fetched from a [`ChunkSource`] as they are
//! needed.
//!
//! `bale_format` decodes the lists and refuses what FORMAT.md does not allow; one list of each
//! level is in memory.

use crate::ChunkSource;
use bale_format::{ChunkId, ChunkKind, Piece, PieceStep, PieceWalk};
use std::collections::VecDeque;

/// Pieces that are said to be expected before their turn, where chunks are far away.
const EXPECTED_AHEAD: usize = 64;

/// Bytes of data chunks in a file of `size` bytes; none of a list that cannot be used.
pub fn data_bytes(list: &ChunkId, size: u64, chunks: &dyn ChunkSource) -> u64 {
    let mut bytes = 0u64;
    let walked = walk(list, size, chunks, &mut |_, piece| {
        if matches!(piece, Piece::Data { .. }) {
            bytes = bytes.saturating_add(piece.bytes());
        }
        Ok(())
    });
    walked.map_or(0, |()| bytes)
}

/// Calls `found` with the offset of each piece in the file, and the piece. `Err` says why the list
/// cannot be used.
pub(crate) fn walk(
    list: &ChunkId,
    size: u64,
    chunks: &dyn ChunkSource,
    found: &mut dyn FnMut(u64, Piece) -> Result<(), String>,
) -> Result<(), String> {
    let mut pieces = PieceReader::new(list, size, chunks);
    while let Some((offset, piece)) = pieces.next_piece()? {
        found(offset, piece)?;
    }
    Ok(())
}

/// The same by who reads each piece in its turn: whoever has their chunks far away learns before.
pub(crate) fn walk_expecting(
    list: &ChunkId,
    size: u64,
    chunks: &dyn ChunkSource,
    found: &mut dyn FnMut(u64, Piece) -> Result<(), String>,
) -> Result<(), String> {
    let mut pieces = PiecesAhead::new(list, size, chunks);
    while let Some((offset, piece)) = pieces.next_piece()? {
        found(offset, piece)?;
    }
    Ok(())
}

/// Pieces in turn, of which whoever has their chunks far away learns before.
pub(crate) struct PiecesAhead<'a> {
    /// Until it has ended or failed.
    reader: Option<PieceReader<'a>>,
    chunks: &'a dyn ChunkSource,
    ahead_max: usize,
    waiting: VecDeque<Result<(u64, Piece), String>>,
    last: Option<ChunkId>,
}

impl<'a> PiecesAhead<'a> {
    /// Of a file of `size` bytes.
    pub fn new(list: &ChunkId, size: u64, chunks: &'a dyn ChunkSource) -> PiecesAhead<'a> {
        PiecesAhead {
            reader: Some(PieceReader::new(list, size, chunks)),
            chunks,
            ahead_max: match chunks.is_far_away() {
                true => EXPECTED_AHEAD,
                false => 1,
            },
            waiting: VecDeque::new(),
            last: None,
        }
    }

    /// The next piece and its offset in the file.
    pub fn next_piece(&mut self) -> Result<Option<(u64, Piece)>, String> {
        let mut ids = Vec::new();
        while self.waiting.len() < self.ahead_max
            && let Some(reader) = &mut self.reader
        {
            let next = reader.next_piece();
            if let Ok(Some((_, Piece::Data { chunk, .. }))) = &next
                && self.last.replace(*chunk) != Some(*chunk)
            {
                ids.push(*chunk);
            }
            if !matches!(next, Ok(Some(_))) {
                self.reader = None;
            }
            self.waiting.extend(next.transpose());
        }
        if self.ahead_max > 1 && !ids.is_empty() {
            self.chunks.expect(&ids);
        }
        self.waiting.pop_front().transpose()
    }
}

/// The pieces of a list, one by one.
pub(crate) struct PieceReader<'a> {
    walk: PieceWalk,
    chunks: &'a dyn ChunkSource,
}

impl<'a> PieceReader<'a> {
    /// Of a file of `size` bytes.
    pub fn new(list: &ChunkId, size: u64, chunks: &'a dyn ChunkSource) -> PieceReader<'a> {
        PieceReader {
            walk: PieceWalk::new(*list, size),
            chunks,
        }
    }

    /// The next piece and its offset in the file. After an `Err` there is nothing more to ask for.
    pub fn next_piece(&mut self) -> Result<Option<(u64, Piece)>, String> {
        loop {
            match self.walk.step() {
                PieceStep::Piece { offset, piece } => return Ok(Some((offset, piece))),
                PieceStep::End => return Ok(None),
                PieceStep::Fetch(list) => {
                    let plain = self.chunks.read(&list, ChunkKind::Pieces);
                    let plain = plain.map_err(|trouble| trouble.to_string())?;
                    self.walk
                        .supply(&plain)
                        .map_err(|error| error.to_string())?;
                }
            }
        }
    }
}
