//! What the hot one of two stores should have, and what it has and the cold one, which holds
//! everything, does not. Objects come into the cold one first and leave it last: what is in the hot
//! one alone was lost there.

mod found;

pub(crate) use found::{Found, InTheWay};

use bale_format::{ObjectId, PackNumber};
use bale_pipeline::amount::counted;
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectName, Store};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// In which names of an area two stores differ.
pub(crate) struct Beside {
    /// In the hot one alone.
    pub lost_by_cold: Vec<ObjectName>,
    /// In the cold one alone, of those that the hot one should have.
    pub not_in_hot: BTreeSet<ObjectName>,
}

impl Beside {
    /// What the hot one lacks, in words: no damage.
    pub(crate) fn lacks_of_hot(&self, area: Area, hot: &dyn Store) -> Option<String> {
        let first = self.not_in_hot.first()?;
        let count = self.not_in_hot.len() as u64;
        Some(format!(
            "not in the hot store {}: {} in {area}, {first} among them. What it lacks is read from \
             the cold one (bale repair hot brings it back)",
            hot.place(),
            counted(count, "object"),
        ))
    }
}

/// Compares the names of an area; each store is listed once where they agree. `is_hot` says what
/// the hot one should have.
pub(crate) fn compare(
    [hot, cold]: [&dyn Store; 2],
    area: Area,
    is_hot: impl Fn(&ObjectName) -> bool,
) -> Result<Beside> {
    let (mut beside, mut not_in_hot) = (names(hot, area)?, BTreeSet::new());
    cold.list(area, &mut |info| {
        if !beside.remove(&info.name) && is_hot(&info.name) {
            not_in_hot.insert(info.name);
        }
    })?;
    let mut lost_by_cold = Vec::new();
    for name in beside {
        // What was deleted since goes from the hot one first.
        if cold.stat(&name)?.is_none() && hot.stat(&name)?.is_some() {
            lost_by_cold.push(name);
        }
    }
    // What came since came into the cold one first.
    if !not_in_hot.is_empty() {
        let there = names(hot, area)?;
        not_in_hot.retain(|name| !there.contains(name));
    }
    Ok(Beside {
        lost_by_cold,
        not_in_hot,
    })
}

/// A hot store has what it was given, and may have been lost meanwhile.
pub(crate) fn names(store: &dyn Store, area: Area) -> Result<BTreeSet<ObjectName>> {
    Ok(lengths(store, area)?.into_keys().collect())
}

/// The same with the lengths of objects.
pub(crate) fn lengths(store: &dyn Store, area: Area) -> Result<BTreeMap<ObjectName, u64>> {
    let mut lengths = BTreeMap::new();
    match store.list(area, &mut |info| {
        lengths.insert(info.name, info.len);
    }) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(lengths),
    }
}

/// Refuses while the cold store lacks a snapshot, or the record of a run, that the hot one has: it
/// alone is listed, and what they use would count as unused.
pub(crate) fn refuse_while_cold_lacks(repository: &Repository) -> Result<()> {
    let Some([hot, cold]) = repository.store().tiers() else {
        return Ok(());
    };
    for area in [Area::Snapshots, Area::Runs] {
        let beside = compare([hot, cold], area, |_| false)?;
        if let Some(name) = beside.lost_by_cold.first() {
            let (hot, cold) = (hot.place(), cold.place());
            return Err(Error::Other(format!(
                "prune refuses: {name} is in the hot store {hot}, and the cold store {cold} has \
                 lost it: what it uses would be deleted. bale repair cold --snapshots brings it \
                 back; if it is not wanted any more, forget it after that"
            )));
        }
    }
    Ok(())
}

/// Packs that hold something but data. Older ones hold both.
pub(crate) fn packs_with_metadata(index: &ChunkIndex) -> HashSet<ObjectId> {
    let entries = index.entries().iter();
    let numbers: HashSet<PackNumber> = entries
        .filter(|place| place.chunk.kind.is_metadata())
        .map(|place| place.pack)
        .collect();
    numbers
        .iter()
        .map(|number| index.pack(*number).id)
        .collect()
}

/// Refuses the hot store of a repository with two where it is alone: file contents would count as
/// lost. It is known by this, that of the packs of file contents none is there. `what` is to be
/// done, and `advice` says how the cold one is named for it.
pub(crate) fn refuse_hot_alone(repository: &Repository, what: &str, advice: &str) -> Result<()> {
    if !repository.is_one_of_two() {
        return Ok(());
    }
    let index = repository.reload_index_as_far_as_possible()?;
    let metadata = packs_with_metadata(&index);
    let named = index.packs().iter().map(|pack| pack.id);
    let mut data: HashSet<ObjectId> = named.filter(|pack| !metadata.contains(pack)).collect();
    let all = data.len();
    repository.store().list(Area::Packs, &mut |info| {
        if let Some(id) = info.name.id() {
            data.remove(&id);
        }
    })?;
    if all == 0 || data.len() < all {
        return Ok(());
    }
    Err(Error::Other(format!(
        "{what} needs file contents, and {} has none of the {} with them: it is the hot store of a \
         repository with two, and they are in the cold one. {advice}",
        repository.store().place(),
        counted(all as u64, "pack"),
    )))
}

/// Packs of data are in the cold store alone: where the hot one has one, they are taken for each
/// other.
pub(crate) fn refuse_swapped(index: &ChunkIndex, [hot, cold]: [&dyn Store; 2]) -> Result<()> {
    let metadata = packs_with_metadata(index);
    let in_hot = lengths(hot, Area::Packs)?;
    let mut in_hot = in_hot.keys().filter_map(ObjectName::id);
    let is_data = |id: &ObjectId| index.pack_number(id).is_some() && !metadata.contains(id);
    match in_hot.find(is_data) {
        None => Ok(()),
        Some(pack) => Err(Error::Other(format!(
            "pack {} in {} holds file contents, which are in the cold store alone: the two seem to \
             be swapped. --repo names the hot store, --cold {} the one that holds everything",
            pack.short(),
            hot.place(),
            cold.place(),
        ))),
    }
}
