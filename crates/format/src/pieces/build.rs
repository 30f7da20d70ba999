//! Writing piece lists: pieces come in the order of the file, full lists go out.

use super::{LEAF_ENTRY_BYTES_MAX, Piece, WHAT};
use crate::error::{Fault, FormatError};
use crate::id::ChunkId;
use crate::limits::{PIECES_DEPTH_MAX, PIECES_ENTRIES_MAX};

const HEADER_BYTES: usize = 8;

/// One list under construction.
#[derive(Debug, Default)]
struct Level {
    body: Vec<u8>,
    entries: usize,
    bytes: u64,
}

impl Level {
    fn take(&mut self, depth: usize) -> (Vec<u8>, u64) {
        let mut plain = Vec::with_capacity(HEADER_BYTES + self.body.len());
        plain.push(depth as u8);
        plain.extend_from_slice(&[0; 3]);
        plain.extend_from_slice(&(self.entries as u32).to_le_bytes());
        plain.append(&mut self.body);
        self.entries = 0;
        (plain, std::mem::take(&mut self.bytes))
    }
}

/// A finished file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceRoot {
    /// Chunk that the row points at.
    pub list: ChunkId,
    /// Its plaintext: what the content hash is made of.
    pub plain: Vec<u8>,
    /// Sum of all lengths.
    pub bytes: u64,
}

/// Turns a stream of pieces into lists, handing each finished list to `store`.
#[derive(Debug, Default)]
pub struct PieceListBuilder {
    levels: Vec<Level>,
    /// Neighbouring holes are one hole.
    pending: Option<Piece>,
}

impl PieceListBuilder {
    /// With no pieces yet.
    pub fn new() -> PieceListBuilder {
        PieceListBuilder::default()
    }

    /// Adds the next stretch of the file. `store` keeps a chunk of kind pieces and returns its id.
    pub fn push<E: From<FormatError>>(
        &mut self,
        piece: Piece,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<(), E> {
        piece.check_length()?;
        let merged = match (self.pending, piece) {
            (Some(Piece::Hole { bytes: a }), Piece::Hole { bytes: b }) => {
                a.checked_add(b).map(|bytes| Piece::Hole { bytes })
            }
            (Some(Piece::Unreadable { bytes: a }), Piece::Unreadable { bytes: b }) => {
                a.checked_add(b).map(|bytes| Piece::Unreadable { bytes })
            }
            _ => None,
        };
        if merged.is_some() {
            self.pending = merged;
            return Ok(());
        }
        match self.pending.replace(piece) {
            Some(before) => self.push_piece(before, store),
            None => Ok(()),
        }
    }

    /// Writes what is left. Fails if there was no piece: a file of zero bytes has no list.
    pub fn finish<E: From<FormatError>>(
        mut self,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<PieceRoot, E> {
        let Some(last) = self.pending.take() else {
            return Err(E::from(FormatError::Unfit {
                what: WHAT,
                fault: Fault::Value {
                    field: "number of entries",
                    found: 0,
                },
            }));
        };
        self.push_piece(last, store)?;
        let mut depth = 0;
        while depth + 1 < self.levels.len() {
            self.flush(depth, store)?;
            depth += 1;
        }
        let (plain, bytes) = self.levels[depth].take(depth);
        Ok(PieceRoot {
            list: store(&plain)?,
            plain,
            bytes,
        })
    }

    fn push_piece<E: From<FormatError>>(
        &mut self,
        piece: Piece,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<(), E> {
        let mut entry = Vec::with_capacity(LEAF_ENTRY_BYTES_MAX);
        piece.encode(&mut entry);
        self.add(0, &entry, piece.bytes(), store)
    }

    fn add<E: From<FormatError>>(
        &mut self,
        depth: usize,
        entry: &[u8],
        bytes: u64,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<(), E> {
        if depth > usize::from(PIECES_DEPTH_MAX) {
            return Err(E::from(FormatError::TooLarge {
                what: WHAT,
                found: depth as u64,
                max: u64::from(PIECES_DEPTH_MAX),
            }));
        }
        if self.levels.len() == depth {
            self.levels.push(Level::default());
        }
        if self.levels[depth].entries == PIECES_ENTRIES_MAX {
            self.flush(depth, store)?;
        }
        let level = &mut self.levels[depth];
        level.bytes = level.bytes.checked_add(bytes).ok_or({
            FormatError::TooLarge {
                what: "file",
                found: u64::MAX,
                max: u64::MAX,
            }
        })?;
        level.body.extend_from_slice(entry);
        level.entries += 1;
        Ok(())
    }

    /// At most as many calls deep as there are levels.
    fn flush<E: From<FormatError>>(
        &mut self,
        depth: usize,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<(), E> {
        let (plain, bytes) = self.levels[depth].take(depth);
        let list = store(&plain)?;
        let mut entry = [0; 40];
        entry[..8].copy_from_slice(&bytes.to_le_bytes());
        entry[8..].copy_from_slice(&list.0);
        self.add(depth + 1, &entry, bytes, store)
    }
}
