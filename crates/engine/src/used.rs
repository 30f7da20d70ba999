//! Which chunks snapshots use: the question behind prune.
//!
//! Every distinct segment of every snapshot is read once, what they share costs nothing twice, and
//! what a segment points at is remembered from one plan to the next: a plan may be wrong, whoever
//! deletes reads all segments afresh. All copies of a chunk in use count as used; which of them
//! stays is for others to decide. In memory: a bit for each chunk of the index, 32 bytes for each
//! distinct segment and piece list, and what is remembered.

mod exclusive;
mod remembered;

pub use exclusive::{ChunkTotals, exclusive_chunks};

use bale_format::chunk::ChunkKind;
use bale_format::segment::{self, Pointer};
use bale_format::{ChunkId, Layer, ObjectId, Piece, PieceStep, PieceWalk, Snapshot};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::{Named, Repository};
use remembered::Remembered;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// The chunks in use, as positions in an index.
pub(crate) struct UsedChunks {
    index: Arc<ChunkIndex>,
    bits: Vec<u64>,
    visited: HashSet<ChunkId>,
}

impl UsedChunks {
    /// Nothing is used.
    pub fn none(index: Arc<ChunkIndex>) -> UsedChunks {
        UsedChunks {
            bits: vec![0; index.entries().len().div_ceil(64)],
            index,
            visited: HashSet::new(),
        }
    }

    /// Marks what the snapshots and unfinished runs use, believing the cache. Anything that cannot
    /// be read is an error: who plans a deletion must know.
    pub(crate) fn find_by_cache(
        repository: &Repository,
        index: Arc<ChunkIndex>,
        records: &[Named],
        monitor: &dyn Monitor,
    ) -> Result<UsedChunks> {
        let mut used = UsedChunks::none(index);
        if let Err(error) = repository.cache_dir() {
            monitor.note(&format!(
                "reading every catalog, as the cache cannot be used: {error}"
            ));
        }
        let mut remembered = Remembered::load(repository);
        used.add_all(repository, records, Some(&mut remembered), monitor)?;
        remembered.save();
        Ok(used)
    }

    /// Marks what one snapshot uses, believing the cache, and leaves in it what is known of others.
    pub(crate) fn find_one_by_cache(
        repository: &Repository,
        index: Arc<ChunkIndex>,
        snapshot: &Named,
        monitor: &dyn Monitor,
    ) -> Result<UsedChunks> {
        let mut used = UsedChunks::none(index);
        let mut remembered = Remembered::load(repository);
        let one = std::slice::from_ref(snapshot);
        used.add_all(repository, one, Some(&mut remembered), monitor)?;
        remembered.keep_others();
        remembered.save();
        Ok(used)
    }

    /// Marks what further snapshots use. Every segment that was not met before is read from the
    /// store.
    pub fn add(
        &mut self,
        repository: &Repository,
        records: &[Named],
        monitor: &dyn Monitor,
    ) -> Result<()> {
        self.add_all(repository, records, None, monitor)
    }

    fn add_all(
        &mut self,
        repository: &Repository,
        records: &[Named],
        mut remembered: Option<&mut Remembered<'_>>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        for (number, (id, snapshot)) in records.iter().enumerate() {
            let progress = Progress {
                done: number as u64,
                total: records.len() as u64,
                ..Progress::default()
            };
            monitor.progress(Phase::FindUsed, progress);
            let added = self.add_snapshot(repository, snapshot, &mut remembered, monitor);
            added.map_err(|error| unknown_use(id, error))?;
        }
        Ok(())
    }

    /// The same chunks in another index. One that it does not know is an error.
    pub(crate) fn in_index(self, index: Arc<ChunkIndex>) -> Result<UsedChunks> {
        let mut moved = UsedChunks {
            visited: self.visited,
            ..UsedChunks::none(index)
        };
        let mut last = None;
        for (position, place) in self.index.entries().iter().enumerate() {
            let is_used = self.bits[position / 64] >> (position % 64) & 1 == 1;
            if is_used && last.replace(place.chunk.id) != Some(place.chunk.id) {
                moved.mark(&place.chunk.id)?;
            }
        }
        Ok(moved)
    }

    /// Marks what one catalog uses.
    pub(crate) fn find_in_layers(
        repository: &Repository,
        index: Arc<ChunkIndex>,
        layers: &[Layer],
    ) -> Result<UsedChunks> {
        let mut used = UsedChunks::none(index);
        for segment in layers.iter().flat_map(|layer| &layer.segments) {
            if used.visited.insert(segment.id) {
                used.mark(&segment.id)?;
                let pointers = read_pointers(repository, &segment.id)?;
                used.add_pointers(repository, pointers)?;
            }
        }
        Ok(used)
    }

    /// Positions of all copies of one chunk in use after the other, in id order.
    pub fn chunks(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let entries = self.index.entries();
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < entries.len() {
                let begin = at;
                let id = entries[begin].chunk.id;
                let copies = entries[begin..].iter();
                at += copies.take_while(|place| place.chunk.id == id).count();
                if self.is_used(begin) {
                    return Some(begin..at);
                }
            }
            None
        })
    }

    /// Is this position of the index a copy of a chunk in use?
    pub(crate) fn is_used(&self, position: usize) -> bool {
        self.bits[position / 64] >> (position % 64) & 1 == 1
    }

    fn add_snapshot(
        &mut self,
        repository: &Repository,
        snapshot: &Snapshot,
        remembered: &mut Option<&mut Remembered<'_>>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        for segment in snapshot.layers.iter().flat_map(|layer| &layer.segments) {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            if self.visited.insert(segment.id) {
                self.mark(&segment.id)?;
                let learn = || read_pointers(repository, &segment.id);
                let pointers = match remembered {
                    Some(remembered) => remembered.pointers(&segment.id, learn)?,
                    None => learn()?,
                };
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
        let mut walk = PieceWalk::of_any_size(root);
        loop {
            match walk.step() {
                PieceStep::End => return Ok(()),
                PieceStep::Piece { piece, .. } => {
                    if let Piece::Data { chunk, .. } = piece {
                        self.mark(&chunk)?;
                    }
                }
                PieceStep::Fetch(list) if !self.visited.insert(list) => walk.skip(),
                PieceStep::Fetch(list) => {
                    self.mark(&list)?;
                    let bytes = repository.read_chunk_uncached(&list, ChunkKind::Pieces)?;
                    walk.supply(&bytes).map_err(|source| {
                        Error::Other(format!("piece list {}: {source}", list.short()))
                    })?;
                }
            }
        }
    }

    fn mark(&mut self, id: &ChunkId) -> Result<()> {
        let positions = self.index.positions(id);
        if positions.is_empty() {
            return Err(Error::MissingChunk(*id));
        }
        for position in positions {
            self.bits[position / 64] |= 1 << (position % 64);
        }
        Ok(())
    }
}

/// Says whose use it is that nobody can tell, and what to do.
fn unknown_use(id: &ObjectId, error: Error) -> Error {
    match error {
        Error::Interrupted => error,
        error => Error::Other(format!(
            "nothing is deleted, as the data that snapshot {id} uses is unknown: {error}. {}",
            what_to_do(&error, id)
        )),
    }
}

fn what_to_do(error: &Error, id: &ObjectId) -> String {
    let first = match error {
        Error::MissingChunk(_) => "First bale repair index. If that does not help: a",
        _ => "A",
    };
    let short = id.short();
    format!(
        "{first} copy of the repository may have it, and a backup stores it again if the sources \
         still have it; if not, bale forget {short} gives the snapshot up, and prunes go on"
    )
}

/// Only the columns with chunk ids are decoded.
pub(crate) fn read_pointers(repository: &Repository, id: &ChunkId) -> Result<Vec<Pointer>> {
    let bytes = repository.read_chunk_uncached(id, ChunkKind::Segment)?;
    segment::pointers(&bytes)
        .map_err(|source| Error::Other(format!("segment {}: {source}", id.short())))
}
