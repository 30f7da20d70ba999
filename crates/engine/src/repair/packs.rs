//! Repair of damaged packs: what opens is stored again in new packs, what does not is named with
//! the paths it takes away.
//!
//! Deletes nothing but marks that proved wrong. Afterwards nothing good stands in a damaged pack
//! only, so that a prune may remove it once no snapshot needs what is lost.

use crate::verify::{LostPath, PackState, paths_lost_with, state_of};
use bale_format::{Access, ChunkId, ChunkPlace, ObjectId, PackNumber};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result, is_inconclusive};
use bale_repository::index::ChunkIndex;
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::Repository;
use bale_repository::store::{Area, StoreError};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// What became of one pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackRepair {
    pub pack: ObjectId,
    /// What is wrong with it; `None`: it is archived, was not read, or it is whole, and a mark that
    /// said otherwise was taken back.
    pub trouble: Option<String>,
    /// It must be brought back from a cold class before it is read, and was left alone: what the
    /// store says.
    pub archived: Option<String>,
    /// The store did not hand it out, and it was left alone: what the store says.
    pub unread: Option<String>,
    /// Chunks that opened and were stored again.
    pub chunks_saved: u64,
    /// Their bytes, as they were sealed.
    pub bytes_saved: u64,
    /// Chunks that another pack has undamaged.
    pub chunks_elsewhere: u64,
    /// Chunks that do not open here, and of which another copy is archived.
    pub chunks_archived: u64,
    /// Chunks that do not open here, or could not be read, and may open another time.
    pub chunks_unread: u64,
    /// Chunks that no pack has undamaged.
    pub chunks_lost: u64,
}

/// What a repair of packs did.
#[derive(Debug, Default)]
pub struct PacksRepair {
    pub packs: Vec<PackRepair>,
    /// Paths that cannot be restored whole; at most [`crate::verify::LOST_PATHS_LISTED_MAX`] are
    /// listed, all are counted.
    pub lost: Vec<LostPath>,
    /// How many paths cannot be restored whole.
    pub lost_count: u64,
}

/// Repairs these packs; with none named, those that are marked as damaged, missing, or of the wrong
/// length.
pub fn repair_packs(
    repository: &Arc<Repository>,
    named: &[ObjectId],
    dry_run: bool,
    monitor: &dyn Monitor,
) -> Result<PacksRepair> {
    repository.check_access(Access::Write)?;
    let index = repository.reload_index_as_far_as_possible()?;
    let numbers = match named.is_empty() {
        true => found_before(repository, &index)?,
        false => numbers_of(&index, named)?,
    };
    let mut repair = PacksRepair::default();
    let mut damaged = HashSet::new();
    for (done, number) in (1..).zip(&numbers) {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        let mut pack = PackRepair {
            pack: index.pack(*number).id,
            ..PackRepair::default()
        };
        match state_of(repository, &index, *number) {
            PackState::Whole => {}
            PackState::Archived(text) => pack.archived = Some(text),
            PackState::Unread(text) => pack.unread = Some(text),
            PackState::Damaged(text) => {
                damaged.insert(*number);
                pack.trouble = Some(text);
            }
        }
        repair.packs.push(pack);
        progress(monitor, Phase::ReadData, done, numbers.len());
    }
    let lost = save(repository, &index, &damaged, &mut repair, dry_run, monitor)?;
    if !dry_run {
        update_marks(repository, &repair)?;
    }
    if !lost.is_empty() {
        (repair.lost, repair.lost_count) = paths_lost_with(repository, lost, monitor)?;
    }
    Ok(repair)
}

/// Packs that are marked, have not the length that the index says, or are missing.
fn found_before(repository: &Repository, index: &ChunkIndex) -> Result<Vec<PackNumber>> {
    let mut found: Vec<PackNumber> = Vec::new();
    let mut is_there = HashSet::new();
    repository.store().list(Area::Packs, &mut |info| {
        let number = info.name.id().and_then(|id| index.pack_number(&id));
        is_there.extend(number);
        found.extend(number.filter(|number| {
            let pack = index.pack(*number);
            pack.damaged || pack.len != info.len
        }));
    })?;
    let named = index.packs().iter();
    found.extend(
        named
            .filter_map(|pack| index.pack_number(&pack.id))
            .filter(|number| !is_there.contains(number)),
    );
    found.sort();
    found.dedup();
    Ok(found)
}

fn numbers_of(index: &ChunkIndex, named: &[ObjectId]) -> Result<Vec<PackNumber>> {
    let number = |id: &ObjectId| {
        index.pack_number(id).ok_or_else(|| {
            Error::Other(format!(
                "no index names pack {id}: bale repair index lists packs that are there"
            ))
        })
    };
    named.iter().map(number).collect()
}

/// Stores again what opens; tells what is lost.
fn save(
    repository: &Arc<Repository>,
    index: &ChunkIndex,
    damaged: &HashSet<PackNumber>,
    repair: &mut PacksRepair,
    dry_run: bool,
    monitor: &dyn Monitor,
) -> Result<BTreeMap<ChunkId, String>> {
    let mut lost = BTreeMap::new();
    if damaged.is_empty() {
        return Ok(lost);
    }
    let is_wanted = |place: &&ChunkPlace| damaged.contains(&place.pack);
    let total = index.entries().iter().filter(is_wanted).count();
    let writer = ChunkWriter::start(repository.clone(), HashSet::new(), dry_run)?;
    let mut saved = None;
    for (done, place) in (1..).zip(index.entries().iter().filter(is_wanted)) {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        let pack = index.pack(place.pack).id;
        let reported = (repair.packs.iter_mut()).find(|repair| repair.pack == pack);
        let reported = reported.expect("every damaged pack is told of");
        let id = place.chunk.id;
        let kind = place.chunk.kind;
        // Copies of a chunk are neighbours, and one is enough.
        if saved == Some(id) || opens_elsewhere(repository, index, damaged, place) {
            reported.chunks_elsewhere += 1;
            lost.remove(&id);
            continue;
        }
        let read = repository.read_place(index, kind, place);
        match read.or_else(|error| from_another(repository, index, place).ok_or(error)) {
            Ok(bytes) => {
                if !dry_run {
                    writer.store_again(kind, id, bytes.into())?;
                }
                saved = Some(id);
                lost.remove(&id);
                reported.chunks_saved += 1;
                reported.bytes_saved += u64::from(place.chunk.sealed_bytes);
            }
            Err(error) if is_inconclusive(&error) => reported.chunks_unread += 1,
            // Of such a copy nothing is known: it is for a later repair.
            Err(error) => match unread_elsewhere(repository, index, place) {
                Some(other) if other.is_archived() => reported.chunks_archived += 1,
                Some(_) => reported.chunks_unread += 1,
                None => {
                    reported.chunks_lost += 1;
                    lost.insert(id, error.to_string());
                }
            },
        }
        progress(monitor, Phase::Repack, done, total);
    }
    writer.finish()?;
    Ok(lost)
}

fn opens_elsewhere(
    repository: &Repository,
    index: &ChunkIndex,
    damaged: &HashSet<PackNumber>,
    place: &ChunkPlace,
) -> bool {
    let mut others = index
        .copies(&place.chunk.id)
        .filter(|other| !damaged.contains(&other.pack) && index.pack(other.pack).is_reliable());
    others.any(|other| (repository.read_place(index, other.chunk.kind, &other)).is_ok())
}

/// Whatever copy opens, in a pack that a prune has condemned, say: it is still there.
fn from_another(repository: &Repository, index: &ChunkIndex, place: &ChunkPlace) -> Option<Bytes> {
    let mut others = index
        .best_first(&place.chunk.id)
        .filter(|other| other.pack != place.pack);
    others.find_map(|other| repository.read_place(index, other.chunk.kind, &other).ok())
}

/// Why a copy in another pack that may be whole was not read, if there is one.
fn unread_elsewhere(
    repository: &Repository,
    index: &ChunkIndex,
    place: &ChunkPlace,
) -> Option<StoreError> {
    let copies = index.copies(&place.chunk.id);
    let mut others = copies.filter(|other| other.pack != place.pack);
    others.find_map(
        |other| match repository.read_place(index, other.chunk.kind, &other) {
            Err(Error::Store(error)) if error.is_inconclusive() => Some(error),
            _ => None,
        },
    )
}

/// Only now, after what can be saved is: a crash before leaves everything to be repaired again.
fn update_marks(repository: &Repository, repair: &PacksRepair) -> Result<()> {
    let (damaged, whole): (Vec<_>, Vec<_>) = (repair.packs.iter())
        .filter(|pack| pack.archived.is_none() && pack.unread.is_none())
        .filter(|pack| pack.trouble.as_deref() != Some("missing"))
        .partition(|pack| pack.trouble.is_some());
    if !damaged.is_empty() {
        repository.mark_damaged(damaged.iter().map(|repair| repair.pack))?;
    }
    if !whole.is_empty() {
        repository.unmark_damaged(&whole.iter().map(|repair| repair.pack).collect())?;
    }
    repository.reload_index_as_far_as_possible()?;
    Ok(())
}

fn progress(monitor: &dyn Monitor, phase: Phase, done: u64, total: usize) {
    let progress = Progress {
        done,
        total: total as u64,
        ..Progress::default()
    };
    monitor.progress(phase, progress);
}
