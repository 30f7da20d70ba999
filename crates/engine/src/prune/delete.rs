//! Condemns packs, and deletes those that were condemned long enough ago and are used by no snapshot seen since.
//!
//! Order of a deletion: index objects without the packs are written, the old index objects are deleted, then the packs, then
//! the condemned list. A crash after any step leaves packs that nobody names, still condemned: the next prune goes on.

use super::plan::{PackFate, PrunePlan, all_records};
use super::{PruneOptions, Pruned};
use crate::error::{Error, Result};
use crate::index::ChunkIndex;
use crate::monitor::{Monitor, Phase, Progress};
use crate::repository::{CondemnedList, Repository};
use crate::store::{Area, ObjectName};
use crate::used::UsedChunks;
use bale_format::ObjectId;
use bale_format::index::{Index, IndexEntry, IndexPack};
use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

/// What was found out about use is believed for so long; a prune that was stopped in between (a closed lid) looks again.
const BELIEF_MAX: Duration = Duration::from_secs(15 * 60);
/// Packs deleted between two looks at the condemned lists.
const DELETE_BATCH: usize = 256;

pub(super) fn condemn(
    repository: &Repository,
    plan: &PrunePlan,
    pruned: &mut Pruned,
) -> Result<()> {
    let chosen: Vec<_> = plan
        .packs
        .iter()
        .filter(|pack| matches!(pack.fate, PackFate::Condemn | PackFate::Repack))
        .collect();
    if chosen.is_empty() {
        return Ok(());
    }
    pruned.packs_condemned = chosen.len() as u64;
    pruned.bytes_condemned = chosen.iter().map(|pack| pack.len).sum();
    repository.condemn(chosen.iter().map(|pack| pack.id).collect())?;
    Ok(())
}

pub(super) fn delete(
    repository: &Repository,
    options: &PruneOptions,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let due = due(repository, options)?;
    if due.is_empty() {
        return Ok(());
    }
    let began = (Instant::now(), repository.clock().now());
    // Listed after the grace period passed: every snapshot that could rely on these packs is there to be seen.
    let (records, _, _) = all_records(repository)?;
    let index = repository.reload_index()?;
    let used = UsedChunks::find(repository, index.clone(), &records, monitor)?;
    let reprieved = packs_in_use(&index, &used, &due);
    let doomed: HashSet<ObjectId> = due
        .iter()
        .flat_map(|list| &list.record.packs)
        .filter(|pack| !reprieved.contains(pack))
        .copied()
        .collect();
    pruned.packs_reprieved = reprieved.len() as u64;
    rewrite_index(repository, &doomed)?;
    delete_packs(repository, &doomed, began, monitor, pruned)?;
    for list in &due {
        repository.store().delete(&list.name)?;
    }
    repository.reload_index()?;
    Ok(())
}

/// Lists older than the grace period, by our clock and by the store's.
fn due(repository: &Repository, options: &PruneOptions) -> Result<Vec<CondemnedList>> {
    let now = repository.clock().now();
    let old = |time: SystemTime| {
        options.grace.is_zero()
            || now
                .duration_since(time)
                .is_ok_and(|age| age >= options.grace)
    };
    let mut lists = repository.condemned()?;
    lists.retain(|list| {
        old(crate::clock::moment_of(list.record.time)) && list.modified.is_none_or(old)
    });
    Ok(lists)
}

/// Condemned packs that hold the copy in use of some chunk.
fn packs_in_use(index: &ChunkIndex, used: &UsedChunks, due: &[CondemnedList]) -> HashSet<ObjectId> {
    let condemned: HashSet<ObjectId> = due
        .iter()
        .flat_map(|list| &list.record.packs)
        .copied()
        .collect();
    let mut in_use = HashSet::new();
    for (position, place) in index.entries().iter().enumerate() {
        let pack = index.pack(place.pack).id;
        if used.is_used(position) && condemned.contains(&pack) {
            in_use.insert(pack);
        }
    }
    in_use
}

/// Index objects that name doomed packs are replaced by ones that do not.
fn rewrite_index(repository: &Repository, doomed: &HashSet<ObjectId>) -> Result<()> {
    for info in repository.list(Area::Index)? {
        let object = match repository.read_index_object(&info.name) {
            Ok(object) => object,
            Err(error) if crate::repository::is_missing(&error) => continue,
            Err(error) => return Err(error),
        };
        if !object.packs().any(|pack| doomed.contains(&pack.id)) {
            continue;
        }
        let (packs, entries) = without(&object, doomed);
        repository.write_index_object(&packs, entries)?;
        repository.store().delete(&info.name)?;
    }
    Ok(())
}

fn without(object: &Index, doomed: &HashSet<ObjectId>) -> (Vec<IndexPack>, Vec<IndexEntry>) {
    let old_packs: Vec<IndexPack> = object.packs().collect();
    let (mut packs, mut entries) = (Vec::new(), Vec::new());
    let mut numbers = vec![None; old_packs.len()];
    for entry in object.iter() {
        let old = entry.pack as usize;
        if doomed.contains(&old_packs[old].id) {
            continue;
        }
        let number = *numbers[old].get_or_insert_with(|| {
            packs.push(old_packs[old]);
            (packs.len() - 1) as u32
        });
        entries.push(IndexEntry {
            pack: number,
            chunk: entry.chunk,
        });
    }
    (packs, entries)
}

fn delete_packs(
    repository: &Repository,
    doomed: &HashSet<ObjectId>,
    began: (Instant, SystemTime),
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let packs: Vec<ObjectId> = doomed.iter().copied().collect();
    for batch in packs.chunks(DELETE_BATCH) {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        // Either clock: one stands still while the machine sleeps, the other can be set.
        let asleep = repository.clock().now().duration_since(began.1);
        if began.0.elapsed() > BELIEF_MAX || asleep.is_ok_and(|asleep| asleep > BELIEF_MAX) {
            return Err(Error::Other(
                "prune took too long to believe what it found first: run it again to go on"
                    .to_owned(),
            ));
        }
        // Another prune may have reprieved a pack meanwhile.
        let still: HashSet<ObjectId> = repository
            .condemned()?
            .into_iter()
            .flat_map(|list| list.record.packs)
            .collect();
        for pack in batch.iter().filter(|pack| still.contains(pack)) {
            let name = ObjectName::pack(*pack);
            let len = repository.store().stat(&name)?.map_or(0, |info| info.len);
            repository.store().delete(&name)?;
            pruned.packs_deleted += 1;
            pruned.bytes_deleted += len;
        }
        let progress = Progress {
            done: pruned.packs_deleted,
            total: doomed.len() as u64,
            ..Progress::default()
        };
        monitor.progress(Phase::Delete, progress);
    }
    Ok(())
}
