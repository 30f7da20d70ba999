//! State of every pack (whole, condemned, damaged, missing) and the copies of each chunk.

use super::left_alone::Unread;
use bale_format::{ObjectId, PackNumber};
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectName};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

/// How far the copies in a pack are believed, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PackState {
    /// There, and of the right length.
    Whole,
    /// There; to be deleted by some prune.
    Condemned,
    /// There, and known to be damaged: some of it may read.
    Damaged,
    /// Named by the index, and not in the store.
    Missing,
}

/// A pack in the store.
#[derive(Clone, Debug)]
pub(super) struct FoundPack {
    pub(super) id: ObjectId,
    pub(super) number: Option<PackNumber>,
    pub(super) len: u64,
    pub(super) modified: Option<SystemTime>,
    /// Named by a list of condemned packs.
    pub(super) is_condemned: bool,
}

/// The index, and the packs that are there.
pub(super) struct PackStates {
    pub(super) index: Arc<ChunkIndex>,
    pub(super) packs: Vec<FoundPack>,
    /// By number of the pack.
    states: Vec<PackState>,
    /// Packs of which a copy was to be read, and nothing is known, and why.
    unread: HashMap<PackNumber, Unread>,
}

impl PackStates {
    /// Looks at the index first: whatever it names was durable before.
    pub(super) fn look(repository: &Repository) -> Result<PackStates> {
        let index = repository.reload_index().map_err(refusal)?;
        PackStates::of_index(repository, index)
    }

    /// The packs as an index knows them.
    pub(super) fn of_index(repository: &Repository, index: Arc<ChunkIndex>) -> Result<PackStates> {
        let packs = list_packs(repository, &index)?;
        let lens: HashMap<ObjectId, u64> = packs.iter().map(|pack| (pack.id, pack.len)).collect();
        let mut states = Vec::with_capacity(index.packs().len());
        for pack in index.packs() {
            let found = match lens.get(&pack.id) {
                Some(len) => Some(*len),
                // A listing that left it out is no proof.
                None => repository
                    .store()
                    .stat(&ObjectName::pack(pack.id))?
                    .map(|info| info.len),
            };
            states.push(match found {
                None => PackState::Missing,
                Some(len) if len != pack.len || pack.damaged => PackState::Damaged,
                Some(_) if pack.condemned => PackState::Condemned,
                Some(_) => PackState::Whole,
            });
        }
        Ok(PackStates {
            index,
            packs,
            states,
            unread: HashMap::new(),
        })
    }

    pub(super) fn state(&self, pack: PackNumber) -> PackState {
        self.states[pack.0 as usize]
    }

    /// A copy in it did not read: what else it holds is doubtful, too.
    pub(super) fn doubt(&mut self, pack: PackNumber) {
        let state = &mut self.states[pack.0 as usize];
        *state = (*state).max(PackState::Damaged);
    }

    /// A copy in it could not be read now: the others are as good.
    pub(super) fn find_unread(&mut self, pack: PackNumber, why: Unread) {
        self.unread.insert(pack, why);
    }

    pub(super) fn unread(&self, pack: PackNumber) -> Option<&Unread> {
        self.unread.get(&pack)
    }

    /// State of the pack of a copy, by the copy's position in the index.
    pub(super) fn state_at(&self, position: usize) -> PackState {
        self.state(self.index.entries()[position].pack)
    }

    /// The pack of a copy.
    pub(super) fn pack_at(&self, position: usize) -> ObjectId {
        self.index.pack(self.index.entries()[position].pack).id
    }

    /// Packs that the index names and the store does not have.
    pub(super) fn missing(&self) -> HashSet<ObjectId> {
        let named = self.index.packs().iter().zip(&self.states);
        named
            .filter(|(_, state)| **state == PackState::Missing)
            .map(|(pack, _)| pack.id)
            .collect()
    }
}

fn list_packs(repository: &Repository, index: &ChunkIndex) -> Result<Vec<FoundPack>> {
    let mut packs = Vec::new();
    repository.store().list(Area::Packs, &mut |info| {
        let Some(id) = info.name.id() else { return };
        packs.push(FoundPack {
            id,
            number: index.pack_number(&id),
            len: info.len,
            modified: info.modified,
            is_condemned: false,
        });
    })?;
    packs.sort_by_key(|pack| pack.id);
    packs.dedup_by_key(|pack| pack.id);
    mark_condemned(repository, index, &mut packs)?;
    Ok(packs)
}

/// The index says it of the packs that it names. Of others, as a prune leaves them that was stopped
/// while it deleted, only the lists do.
fn mark_condemned(
    repository: &Repository,
    index: &ChunkIndex,
    packs: &mut [FoundPack],
) -> Result<()> {
    let mut listed: Option<HashSet<ObjectId>> = None;
    for pack in packs {
        pack.is_condemned = match (pack.number, &mut listed) {
            (Some(number), _) => index.pack(number).condemned,
            (None, Some(listed)) => listed.contains(&pack.id),
            (None, none) => {
                let lists = repository.condemned()?.into_iter();
                let listed = none.insert(lists.flat_map(|list| list.record.packs).collect());
                listed.contains(&pack.id)
            }
        };
    }
    Ok(())
}

/// What to do about an object without which nobody knows what there is.
fn refusal(error: Error) -> Error {
    match error {
        Error::Object { object, source } => {
            let id = object.rsplit('/').next().unwrap_or_default();
            let advice = match object.starts_with("index/") {
                true => "bale repair index names its packs anew and removes it".to_owned(),
                false => format!("bale forget {id} removes it"),
            };
            Error::Other(format!("prune refuses: {object}: {source}. {advice}"))
        }
        other => other,
    }
}
