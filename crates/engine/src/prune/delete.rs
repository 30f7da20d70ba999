//! Condemns packs, and deletes those that were condemned long enough ago.
//!
//! Order of a deletion: what snapshots seen since use of the packs is made sure of elsewhere
//! (`secure`); index objects without the packs are written, the old index objects are deleted, then
//! the packs, then the condemned list, then marks that the packs are damaged. A crash after any
//! step leaves packs that nobody names, still condemned: the next prune goes on.
//!
//! What is in use is read from the store, never from a cache. However long that takes, snapshots
//! are listed again until the last listing is fresh, and only what is new is looked at each time;
//! packs are deleted only while it is.
//!
//! Two prunes at once: a pack that is condemned stays so until it is deleted, so they differ at
//! most in which lists are due. Either may write an index object that names what the other is
//! deleting; the rules of `replace` and `rewrite_index` see to it that none stays.

use super::left_alone::LeftAlone;
use super::plan::{PackFate, PrunePlan};
use super::use_of_doomed::UseOfDoomed;
use super::{PruneOptions, Pruned};
use bale_format::ObjectId;
use bale_format::index::{Index, IndexEntry, IndexPack};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{CondemnedList, Repository};
use bale_repository::snapshots::CLOCK_SKEW_SECONDS_MAX;
use bale_repository::store::{Area, ObjectName};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

/// Rounds of rewriting; each but the last two replaced an index object.
const REWRITE_ROUNDS_MAX: usize = 1_000;
/// Packs deleted between two looks at the condemned lists.
const DELETE_BATCH: usize = 256;

pub(super) fn condemn(
    repository: &Repository,
    plan: &PrunePlan,
    left: &LeftAlone,
    pruned: &mut Pruned,
) -> Result<()> {
    let chosen: Vec<_> = plan
        .packs
        .iter()
        .filter(|pack| matches!(pack.fate, PackFate::Condemn | PackFate::Repack))
        .filter(|pack| !left.contains(&pack.id))
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
    repository: &Arc<Repository>,
    plan: &PrunePlan,
    options: &PruneOptions,
    left: &mut LeftAlone,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    date_anew(repository)?;
    let due = due(repository, options)?;
    if due.is_empty() && !names_are_to_go(plan) {
        return Ok(());
    }
    let packs = due.iter().flat_map(|list| &list.record.packs);
    let doomed: HashSet<ObjectId> = packs.copied().collect();
    let mut look = UseOfDoomed::new(repository, doomed, monitor);
    look.refresh(left, pruned)?;
    // Names of what is gone go too, unless something in it is in use: that a check must tell, and
    // the pack may come back.
    rewrite_index(repository, &look.nameless())?;
    delete_packs(repository, &mut look, left, monitor, pruned)?;
    // A repair may have named them again in the meantime.
    rewrite_index(repository, &look.nameless())?;
    look.name_held()?;
    for list in &due {
        if !list.record.packs.iter().any(|pack| look.holds(pack)) {
            repository.store().delete(&list.name)?;
        }
    }
    repository.unmark_damaged(&look.nameless())?;
    repository.reload_index()?;
    Ok(())
}

/// Does the index name a pack that is not there, and of which nothing stays?
fn names_are_to_go(plan: &PrunePlan) -> bool {
    let mut missing = plan.standing.missing();
    for copy in 0..plan.standing.index.entries().len() {
        if missing.is_empty() {
            return false;
        }
        if plan.staying.stays(copy) {
            missing.remove(&plan.standing.pack_at(copy));
        }
    }
    !missing.is_empty()
}

/// A list that a wrong clock dated into the future would be due when that comes. It is written
/// anew, with the date of today: its packs stay condemned all the time, and grace begins again.
fn date_anew(repository: &Repository) -> Result<()> {
    let latest = repository.clock().time().seconds;
    let latest = latest.saturating_add(CLOCK_SKEW_SECONDS_MAX);
    for list in repository.condemned()? {
        if list.record.time.seconds > latest {
            repository.condemn(list.record.packs)?;
            repository.store().delete(&list.name)?;
        }
    }
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
        old(bale_pipeline::clock::moment_of(list.record.time)) && list.modified.is_none_or(old)
    });
    Ok(lists)
}

/// Replaces index objects that name such packs by ones that do not, until two listings in a row
/// show none. Two, because what another prune writes in the middle of a listing may be in neither
/// half of it.
fn rewrite_index(repository: &Repository, packs: &HashSet<ObjectId>) -> Result<()> {
    let mut clean: HashSet<ObjectName> = HashSet::new();
    let mut quiet = 0;
    for _ in 0..REWRITE_ROUNDS_MAX {
        quiet += 1;
        for info in repository.list(Area::Index)? {
            if clean.contains(&info.name) {
                continue;
            }
            let object = match repository.read_index_object(&info.name) {
                Ok(object) => object,
                Err(error) if bale_repository::error::is_missing(&error) => continue,
                Err(error) => return Err(error),
            };
            if object.packs().any(|pack| packs.contains(&pack.id)) {
                replace(repository, &info.name, &object, packs)?;
                quiet = 0;
            } else {
                clean.insert(info.name);
            }
        }
        if quiet >= 2 {
            return Ok(());
        }
    }
    Err(Error::Other(
        "other prunes keep rewriting the index: run it again".to_owned(),
    ))
}

/// Writes what stays of an index object, then deletes it. If it is gone by then, whoever deleted it
/// has written what stays, and may delete packs that the new object still names: so that one goes,
/// and not the other's.
fn replace(
    repository: &Repository,
    name: &ObjectName,
    object: &Index,
    packs: &HashSet<ObjectId>,
) -> Result<()> {
    let (kept_packs, entries) = without(object, packs);
    let new = repository.write_index_object(&kept_packs, entries)?;
    let store = repository.store();
    match (store.stat(name)?, new) {
        (None, Some(new)) => repository.delete_index_object(&new)?,
        (None, None) => {}
        (Some(_), _) => repository.delete_index_object(name)?,
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
    look: &mut UseOfDoomed<'_>,
    left: &mut LeftAlone,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let packs: Vec<ObjectId> = look.doomed().iter().copied().collect();
    let mut done = 0;
    for batch in packs.chunks(DELETE_BATCH) {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        look.refresh(left, pruned)?;
        // Another prune may have been faster.
        let still: HashSet<ObjectId> = repository
            .condemned()?
            .into_iter()
            .flat_map(|list| list.record.packs)
            .collect();
        for pack in batch.iter().filter(|pack| still.contains(pack)) {
            let name = ObjectName::pack(*pack);
            let Some(info) = repository.store().stat(&name)? else {
                continue;
            };
            if look.holds(pack) {
                continue;
            }
            repository.store().delete(&name)?;
            pruned.packs_deleted += 1;
            pruned.bytes_deleted += info.len;
        }
        done += batch.len() as u64;
        let progress = Progress {
            done,
            total: packs.len() as u64,
            ..Progress::default()
        };
        monitor.progress(Phase::Delete, progress);
    }
    Ok(())
}
