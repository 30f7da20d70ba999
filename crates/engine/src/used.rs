//! Which chunks snapshots use: the question behind prune.
//!
//! Every distinct segment of every snapshot is asked once, what they share costs nothing twice, and what a segment points at
//! is remembered from one prune to the next. In memory: a bit for each chunk of the index, 32 bytes for each distinct segment
//! and piece list, and what is remembered.

mod remembered;

use crate::error::{Error, Result};
use crate::index::ChunkIndex;
use crate::monitor::{Monitor, Phase, Progress};
use crate::repository::{Named, Repository};
use bale_format::chunk::ChunkKind;
use bale_format::pieces::{Piece, PieceList};
use bale_format::segment::{self, Pointer};
use bale_format::{ChunkId, Layer, Snapshot};
use remembered::Remembered;
use std::collections::HashSet;
use std::sync::Arc;

/// Piece lists nest this deep at most (docs/FORMAT.md, section 7).
const PIECES_DEPTH_MAX: usize = 4;

/// The chunks in use, as positions in an index.
pub struct UsedChunks {
    index: Arc<ChunkIndex>,
    bits: Vec<u64>,
    visited: HashSet<ChunkId>,
}

impl UsedChunks {
    /// Marks what the snapshots and unfinished runs use. Anything that cannot be read is an error: who deletes must know.
    pub fn find(
        repository: &Repository,
        index: Arc<ChunkIndex>,
        records: &[Named],
        monitor: &dyn Monitor,
    ) -> Result<UsedChunks> {
        let bits = vec![0; index.entries().len().div_ceil(64)];
        let mut used = UsedChunks {
            index,
            bits,
            visited: HashSet::new(),
        };
        let mut remembered = Remembered::load(repository);
        for (number, (_, snapshot)) in records.iter().enumerate() {
            let progress = Progress {
                done: number as u64,
                total: records.len() as u64,
                ..Progress::default()
            };
            monitor.progress(Phase::FindUsed, progress);
            used.add_snapshot(repository, snapshot, &mut remembered, monitor)?;
        }
        remembered.save();
        Ok(used)
    }

    /// Marks what one catalog uses.
    pub fn find_in_layers(
        repository: &Repository,
        index: Arc<ChunkIndex>,
        layers: &[Layer],
    ) -> Result<UsedChunks> {
        let bits = vec![0; index.entries().len().div_ceil(64)];
        let mut used = UsedChunks {
            index,
            bits,
            visited: HashSet::new(),
        };
        for segment in layers.iter().flat_map(|layer| &layer.segments) {
            if used.visited.insert(segment.id) {
                used.mark(&segment.id)?;
                let pointers = read_pointers(repository, &segment.id)?;
                used.add_pointers(repository, pointers)?;
            }
        }
        Ok(used)
    }

    /// Is the copy at this position of the index one that is used?
    pub fn is_used(&self, position: usize) -> bool {
        self.bits[position / 64] >> (position % 64) & 1 == 1
    }

    fn add_snapshot(
        &mut self,
        repository: &Repository,
        snapshot: &Snapshot,
        remembered: &mut Remembered,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        for segment in snapshot.layers.iter().flat_map(|layer| &layer.segments) {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            if self.visited.insert(segment.id) {
                self.mark(&segment.id)?;
                let learn = || read_pointers(repository, &segment.id);
                let pointers = remembered.pointers(&segment.id, learn)?;
                self.add_pointers(repository, pointers)?;
            }
        }
        Ok(())
    }

    fn add_pointers(&mut self, repository: &Repository, pointers: Vec<Pointer>) -> Result<()> {
        pointers.into_iter().try_for_each(|pointer| match pointer {
            Pointer::Bundle(chunk) | Pointer::Xattrs(chunk) => self.mark(&chunk),
            Pointer::Pieces(list) => self.add_pieces(repository, list),
        })
    }

    fn add_pieces(&mut self, repository: &Repository, root: ChunkId) -> Result<()> {
        let mut waiting = vec![(root, 0)];
        while let Some((list, depth)) = waiting.pop() {
            if !self.visited.insert(list) {
                continue;
            }
            if depth >= PIECES_DEPTH_MAX {
                return Err(Error::Other(format!(
                    "piece list {}: nested too deep",
                    list.short()
                )));
            }
            self.mark(&list)?;
            let bytes = repository.read_chunk_uncached(&list, ChunkKind::Pieces)?;
            let decoded = PieceList::decode(&bytes)
                .map_err(|source| Error::Other(format!("piece list {}: {source}", list.short())))?;
            match decoded {
                PieceList::Leaf(pieces) => self.mark_pieces(&pieces)?,
                PieceList::Inner { lists, .. } => {
                    waiting.extend(lists.iter().map(|below| (below.list, depth + 1)))
                }
            }
        }
        Ok(())
    }

    fn mark_pieces(&mut self, pieces: &[Piece]) -> Result<()> {
        pieces.iter().try_for_each(|piece| match piece {
            Piece::Data { chunk, .. } => self.mark(chunk),
            Piece::Hole { .. } | Piece::Unreadable { .. } => Ok(()),
        })
    }

    /// A lasting copy of each chunk is marked; if there is none, every copy.
    fn mark(&mut self, id: &ChunkId) -> Result<()> {
        let positions = match self.index.lasting_position(id) {
            Some(position) => position..position + 1,
            None => self.index.positions(id),
        };
        if positions.is_empty() {
            return Err(Error::MissingChunk(*id));
        }
        for position in positions {
            self.bits[position / 64] |= 1 << (position % 64);
        }
        Ok(())
    }
}

/// Only the columns with chunk ids are decoded.
fn read_pointers(repository: &Repository, id: &ChunkId) -> Result<Vec<Pointer>> {
    let bytes = repository.read_chunk_uncached(id, ChunkKind::Segment)?;
    segment::pointers(&bytes)
        .map_err(|source| Error::Other(format!("segment {}: {source}", id.short())))
}

/// The chunk that holds a large set of extended attributes.
pub fn xattrs_chunk(xattrs: &[u8]) -> Option<ChunkId> {
    match xattrs.split_first() {
        Some((2, id)) => ChunkId::from_slice(id).ok(),
        _ => None,
    }
}
