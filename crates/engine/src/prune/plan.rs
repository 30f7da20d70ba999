//! The plan of a prune: the fate of every pack, and the bytes that follow from it.

use super::PruneOptions;
use crate::error::{Error, Result};
use crate::index::{ChunkIndex, PackNumber};
use crate::monitor::Monitor;
use crate::repository::{Named, Repository};
use crate::store::{Area, ObjectName};
use crate::used::UsedChunks;
use bale_format::{Access, ObjectId};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What happens to a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackFate {
    /// Used enough.
    Stay,
    /// Unused: to be condemned.
    Condemn,
    /// What is used is copied, then it is condemned.
    Repack,
    /// Condemned already.
    Condemned,
    /// Unused, but so young that a running backup may be about to use it.
    Young,
}

/// A pack and its fate.
#[derive(Clone, Debug)]
pub struct PlannedPack {
    /// Name.
    pub id: ObjectId,
    /// Number in the index; `None` for a pack that no index names.
    pub number: Option<PackNumber>,
    /// Bytes of the object.
    pub len: u64,
    /// Sealed bytes of chunks in use.
    pub used: u64,
    /// What happens.
    pub fate: PackFate,
}

/// Everything a prune would do.
pub struct PrunePlan {
    /// All packs.
    pub packs: Vec<PlannedPack>,
    /// Snapshots looked at.
    pub snapshots: usize,
    /// Unfinished runs looked at.
    pub runs: usize,
    pub(super) index: Arc<ChunkIndex>,
    pub(super) used: UsedChunks,
    /// Packs that the index names and the store does not have.
    pub(super) missing: HashSet<ObjectId>,
}

impl PrunePlan {
    /// Packs of one fate and their bytes.
    pub fn sum(&self, fate: PackFate) -> (u64, u64) {
        let packs = self.packs.iter().filter(|pack| pack.fate == fate);
        packs.fold((0, 0), |(count, bytes), pack| (count + 1, bytes + pack.len))
    }

    /// Bytes that would be copied.
    pub fn bytes_to_repack(&self) -> u64 {
        self.packs
            .iter()
            .filter(|pack| pack.fate == PackFate::Repack)
            .map(|pack| pack.used)
            .sum()
    }
}

/// Looks at all snapshots and packs. A snapshot or index that cannot be read ends it: what cannot be understood must not
/// be taken for unused.
pub fn plan(
    repository: &Repository,
    options: &PruneOptions,
    monitor: &dyn Monitor,
) -> Result<PrunePlan> {
    repository.check_access(Access::Delete)?;
    let (records, snapshots, runs) = all_records(repository)?;
    let Standing {
        index,
        mut packs,
        missing,
    } = Standing::look(repository)?;
    let used = UsedChunks::find(repository, index.clone(), &records, monitor)?;
    let bytes = bytes_by_pack(&index, &used);
    let now = repository.clock().now();
    for (pack, modified) in &mut packs {
        let (used, all) = pack
            .number
            .map_or((0, 0), |number| bytes[number.0 as usize]);
        pack.used = used;
        pack.fate = fate(pack, all, *modified, now, &index, options);
    }
    let packs = packs.into_iter().map(|(pack, _)| pack).collect();
    Ok(PrunePlan {
        packs,
        snapshots,
        runs,
        index,
        used,
        missing,
    })
}

/// The index, and the packs that are there.
pub(super) struct Standing {
    /// Packs that are not there count as condemned: no copy of a chunk is given up for one in them.
    pub(super) index: Arc<ChunkIndex>,
    packs: Vec<(PlannedPack, Option<SystemTime>)>,
    /// Named by the index, and not in the store.
    pub(super) missing: HashSet<ObjectId>,
}

impl Standing {
    /// Looks at the index first: whatever it names was durable before.
    pub(super) fn look(repository: &Repository) -> Result<Standing> {
        let index = repository.reload_index()?;
        let packs = list_packs(repository, &index)?;
        let listed: HashSet<ObjectId> = packs.iter().map(|(pack, _)| pack.id).collect();
        let mut missing = HashSet::new();
        for pack in index
            .packs()
            .iter()
            .filter(|pack| !listed.contains(&pack.id))
        {
            // A listing that left it out is no proof.
            if repository
                .store()
                .stat(&ObjectName::pack(pack.id))?
                .is_none()
            {
                missing.insert(pack.id);
            }
        }
        if missing.is_empty() {
            return Ok(Standing {
                index,
                packs,
                missing,
            });
        }
        repository.do_without(&missing)?;
        Ok(Standing {
            index: repository.index()?,
            packs,
            missing,
        })
    }
}

/// Sealed bytes of the chunks in each pack: those in use, and all.
fn bytes_by_pack(index: &ChunkIndex, used: &UsedChunks) -> Vec<(u64, u64)> {
    let mut bytes = vec![(0, 0); index.packs().len()];
    for (position, place) in index.entries().iter().enumerate() {
        let (used_bytes, all_bytes) = &mut bytes[place.pack.0 as usize];
        let sealed = u64::from(place.chunk.sealed_bytes);
        *all_bytes += sealed;
        if used.is_used(position) {
            *used_bytes += sealed;
        }
    }
    bytes
}

fn list_packs(
    repository: &Repository,
    index: &ChunkIndex,
) -> Result<Vec<(PlannedPack, Option<SystemTime>)>> {
    let mut packs = Vec::new();
    repository.store().list(Area::Packs, &mut |info| {
        let Some(id) = info.name.id() else { return };
        let number = index.pack_number(&id);
        packs.push((
            PlannedPack {
                id,
                number,
                len: info.len,
                used: 0,
                fate: PackFate::Stay,
            },
            info.modified,
        ));
    })?;
    packs.sort_by_key(|(pack, _)| pack.id);
    packs.dedup_by_key(|(pack, _)| pack.id);
    Ok(packs)
}

fn fate(
    pack: &PlannedPack,
    all_bytes: u64,
    modified: Option<SystemTime>,
    now: SystemTime,
    index: &ChunkIndex,
    options: &PruneOptions,
) -> PackFate {
    if pack
        .number
        .is_some_and(|number| index.pack(number).condemned)
    {
        return PackFate::Condemned;
    }
    // Of the chunks, not of the object: a small pack is half heads and trailer, and would be copied again by every prune.
    let enough = all_bytes.saturating_mul(u64::from(options.repack_below_percent));
    if pack.used > 0 && pack.used.saturating_mul(100) >= enough {
        return PackFate::Stay;
    }
    // A clock that jumped back makes packs look older than now: they count as young.
    let age = modified.map_or(Duration::MAX, |modified| {
        now.duration_since(modified).unwrap_or(Duration::ZERO)
    });
    match pack.used {
        0 if age < options.grace => PackFate::Young,
        0 => PackFate::Condemn,
        _ => PackFate::Repack,
    }
}

/// Snapshots and unfinished runs; refuses if one cannot be read, or if two listings differ.
pub(super) fn all_records(repository: &Repository) -> Result<(Vec<Named>, usize, usize)> {
    let (snapshots, mut damaged) = repository.snapshots_readable()?;
    let (runs, damaged_runs) = repository.runs_readable()?;
    damaged.extend(damaged_runs);
    if let Some((name, error)) = damaged.pop() {
        return Err(Error::Other(format!(
            "prune refuses while {name} cannot be read ({error}): run bale check"
        )));
    }
    refuse_differing_lists(repository, &snapshots)?;
    let counts = (snapshots.len(), runs.len());
    Ok((
        snapshots.into_iter().chain(runs).collect(),
        counts.0,
        counts.1,
    ))
}

/// A listing that left a snapshot out would cost what that snapshot uses. So a second one must name the same, and no parent
/// of a listed snapshot may be there without being listed.
fn refuse_differing_lists(repository: &Repository, snapshots: &[Named]) -> Result<()> {
    let listed: HashSet<ObjectId> = snapshots.iter().map(|(id, _)| *id).collect();
    let again = repository.list(Area::Snapshots)?;
    let again: HashSet<ObjectId> = again.iter().filter_map(|info| info.name.id()).collect();
    if listed != again {
        return Err(Error::Other(format!(
            "prune refuses: the store listed {} snapshots, then {} (a backup or forget at the same time? run it again)",
            listed.len(),
            again.len()
        )));
    }
    let parents: HashSet<ObjectId> = snapshots.iter().filter_map(|(_, s)| s.parent).collect();
    for parent in parents.difference(&listed) {
        if repository
            .store()
            .stat(&ObjectName::snapshot(*parent))?
            .is_some()
        {
            return Err(Error::Other(format!(
                "prune refuses: snapshot {} is there, and the store does not list it",
                parent.short()
            )));
        }
    }
    Ok(())
}
