//! What of the stored data groups of snapshots have for themselves: the question behind `stats`.
//!
//! Every distinct segment of all groups is read once, whoever shares it, and what it points at then
//! belongs to one group, or to several. Of several copies of a chunk the first counts. In memory:
//! four bytes for each chunk of the index, 40 for each distinct segment and piece list, and what a
//! prune remembers.

use super::read_pointers;
use super::remembered::Remembered;
use bale_format::chunk::ChunkKind;
use bale_format::segment::Pointer;
use bale_format::{ChunkId, Piece, PieceStep, PieceWalk};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::{Named, Repository};
use std::collections::HashMap;
use std::sync::Arc;

/// Chunks, each once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    pub chunks: u64,
    /// What is in them.
    pub bytes_plain: u64,
    /// Compressed and sealed, as they are in packs.
    pub bytes_stored: u64,
}

/// Whose a chunk is: nobody's, that of one group (its number and one), or of several.
type Owner = u32;
const NOBODY: Owner = 0;
const SEVERAL: Owner = Owner::MAX;

/// For each group, the chunks that it alone uses. What cannot be read is an error: whose chunks are
/// unknown makes all that is counted unknown.
pub fn exclusive_chunks(
    repository: &Repository,
    groups: &[Vec<Named>],
    monitor: &dyn Monitor,
) -> Result<Vec<ChunkTotals>> {
    let mut segments = segment_owners(groups);
    let mut remembered = Remembered::load(repository);
    let mut owned = OwnedChunks::none(repository.index()?);
    let records: Vec<&Named> = groups.iter().flatten().collect();
    for (number, (id, snapshot)) in records.iter().enumerate() {
        let progress = Progress {
            done: number as u64,
            total: records.len() as u64,
            ..Progress::default()
        };
        monitor.progress(Phase::FindUsed, progress);
        for segment in snapshot.layers.iter().flat_map(|layer| &layer.segments) {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            // Read already, if it is shared.
            let Some(owner) = segments.remove(&segment.id) else {
                continue;
            };
            let learn = || read_pointers(repository, &segment.id);
            let added = remembered
                .pointers(&segment.id, learn)
                .and_then(|pointers| {
                    owned.mark(&segment.id, owner)?;
                    owned.add_pointers(repository, pointers, owner)
                });
            added.map_err(|error| match error {
                Error::Interrupted => error,
                error => Error::Other(format!(
                    "what snapshot {} uses is unknown: {error}. bale check names what is damaged",
                    id.short()
                )),
            })?;
        }
    }
    remembered.keep_others();
    remembered.save();
    Ok(owned.totals(groups.len()))
}

fn owner_of_group(number: usize) -> Owner {
    Owner::try_from(number + 1).expect("a group has a snapshot, and four billion fit nowhere")
}

fn joined(owner: Owner, other: Owner) -> Owner {
    match (owner, other) {
        (NOBODY, one) | (one, NOBODY) => one,
        (one, other) if one == other => one,
        _ => SEVERAL,
    }
}

fn segment_owners(groups: &[Vec<Named>]) -> HashMap<ChunkId, Owner> {
    let mut owners = HashMap::new();
    for (number, group) in groups.iter().enumerate() {
        let layers = group.iter().flat_map(|(_, snapshot)| &snapshot.layers);
        for segment in layers.flat_map(|layer| &layer.segments) {
            let owner = owners.entry(segment.id).or_insert(NOBODY);
            *owner = joined(*owner, owner_of_group(number));
        }
    }
    owners
}

struct OwnedChunks {
    index: Arc<ChunkIndex>,
    /// By the first position of each chunk.
    owners: Vec<Owner>,
    /// Piece lists that were followed, and for whom.
    lists: HashMap<ChunkId, Owner>,
}

impl OwnedChunks {
    fn none(index: Arc<ChunkIndex>) -> OwnedChunks {
        OwnedChunks {
            owners: vec![NOBODY; index.entries().len()],
            index,
            lists: HashMap::new(),
        }
    }

    fn add_pointers(
        &mut self,
        repository: &Repository,
        pointers: Vec<Pointer>,
        owner: Owner,
    ) -> Result<()> {
        pointers.into_iter().try_for_each(|pointer| match pointer {
            Pointer::Bundle(chunk) | Pointer::Xattrs(chunk) => self.mark(&chunk, owner),
            Pointer::Pieces(list) => self.add_pieces(repository, list, owner),
        })
    }

    fn add_pieces(&mut self, repository: &Repository, root: ChunkId, owner: Owner) -> Result<()> {
        let mut walk = PieceWalk::of_any_size(root);
        loop {
            match walk.step() {
                PieceStep::End => return Ok(()),
                PieceStep::Piece { piece, .. } => {
                    if let Piece::Data { chunk, .. } = piece {
                        self.mark(&chunk, owner)?;
                    }
                }
                // Twice at most: for one, and once more when it turns out to be of several.
                PieceStep::Fetch(list) if !self.is_news(list, owner) => walk.skip(),
                PieceStep::Fetch(list) => {
                    self.mark(&list, owner)?;
                    let bytes = repository.read_chunk_uncached(&list, ChunkKind::Pieces)?;
                    walk.supply(&bytes).map_err(|source| {
                        Error::Other(format!("piece list {}: {source}", list.short()))
                    })?;
                }
            }
        }
    }

    /// Does following this list for this owner say anything new?
    fn is_news(&mut self, list: ChunkId, owner: Owner) -> bool {
        let known = self.lists.entry(list).or_insert(NOBODY);
        let owner = joined(*known, owner);
        std::mem::replace(known, owner) != owner
    }

    fn mark(&mut self, id: &ChunkId, owner: Owner) -> Result<()> {
        let position = self.index.positions(id).start;
        let is_there =
            (self.index.entries().get(position)).is_some_and(|place| place.chunk.id == *id);
        if !is_there {
            return Err(Error::MissingChunk(*id));
        }
        self.owners[position] = joined(self.owners[position], owner);
        Ok(())
    }

    fn totals(&self, groups: usize) -> Vec<ChunkTotals> {
        let mut totals = vec![ChunkTotals::default(); groups];
        for (owner, place) in self.owners.iter().zip(self.index.entries()) {
            if ![NOBODY, SEVERAL].contains(owner) {
                let group = &mut totals[*owner as usize - 1];
                group.chunks += 1;
                group.bytes_plain += u64::from(place.chunk.plain_bytes);
                group.bytes_stored += u64::from(place.chunk.sealed_bytes);
            }
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_have_is_nobodys_own_and_stays_so() {
        assert_eq!(joined(NOBODY, 3), 3);
        assert_eq!(joined(3, 3), 3);
        assert_eq!(joined(3, 4), SEVERAL);
        assert_eq!(joined(SEVERAL, 3), SEVERAL);
        assert_eq!(joined(NOBODY, SEVERAL), SEVERAL);
    }
}
