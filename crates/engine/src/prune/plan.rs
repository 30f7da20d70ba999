//! The plan of a prune: the fate of every pack, and the bytes that follow from it.

use super::left_alone::LeftAlone;
use super::pack_states::{FoundPack, PackState, PackStates};
use super::records::RecordSet;
use super::staying_copies::Staying;
use super::{PruneOptions, future};
use crate::status::{SuddenChange, unconfirmed};
use crate::used::UsedChunks;
use bale_format::{Access, ObjectId, PackNumber};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::Result;
use bale_repository::repository::Repository;
use bale_repository::snapshots::remembered::{Missed, missed_now};
use std::collections::{BTreeSet, HashSet};
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
    /// Damaged, and in use: what it holds is nowhere else. Left alone.
    Damaged,
}

/// A pack and its fate.
#[derive(Clone, Debug)]
pub struct PlannedPack {
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
    /// Packs that are damaged, in use, and left alone, and those in use that are gone: they were
    /// named as problems.
    pub problems: u64,
    /// Packs in use that are not in the repository any more.
    pub packs_gone: u64,
    /// Snapshots that this machine saw and that are gone: while there are some, nothing of the plan
    /// is done.
    pub missed: Vec<Missed>,
    /// Snapshots that changed their source suddenly: the same.
    pub sudden: Vec<SuddenChange>,
    pub(super) standing: PackStates,
    pub(super) staying: Staying,
    pub(super) left: LeftAlone,
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

/// Looks at all snapshots and packs. A snapshot or index that cannot be read ends it: what cannot
/// be understood must not be taken for unused.
pub fn plan(
    repository: &Repository,
    options: &PruneOptions,
    monitor: &dyn Monitor,
) -> Result<PrunePlan> {
    repository.check_access(Access::Delete)?;
    let mut records = RecordSet::default();
    let news = records.news(repository)?;
    let missed = missed_now(repository)?;
    let sudden = unconfirmed(repository, &news);
    let mut standing = PackStates::look(repository)?;
    let used = UsedChunks::find_by_cache(repository, standing.index.clone(), &news, monitor)?;
    let mut staying = Staying::choose(&standing, &used);
    let now = repository.clock().now();
    let running = repository.runs_store_since(options.grace)?;
    let packs = loop {
        let packs = fates(&standing, &staying, (now, running), options);
        let gone: HashSet<PackNumber> = packs
            .iter()
            .filter(|pack| matches!(pack.fate, PackFate::Condemn | PackFate::Repack))
            .filter_map(|pack| pack.number)
            .collect();
        let is_given_up = |pack| gone.contains(&pack);
        // Another choice is another fate for some packs; each round finds copies that do not read,
        // so it ends.
        if !staying.prove(repository, &mut standing, &used, is_given_up, monitor)? {
            break packs;
        }
    };
    let mut left = name_damaged(&packs, &standing, &staying, monitor);
    left.name_gone(monitor, gone_in_use(repository, &standing, &staying, used)?);
    future::name(repository, &standing, &packs, monitor)?;
    Ok(PrunePlan {
        packs,
        snapshots: records.snapshots(),
        runs: records.runs(),
        problems: left.count(),
        packs_gone: left.count_gone(),
        missed,
        sudden,
        standing,
        staying,
        left,
    })
}

/// Says which packs are damaged and hold what is in use and nowhere else.
fn name_damaged(
    packs: &[PlannedPack],
    standing: &PackStates,
    staying: &Staying,
    monitor: &dyn Monitor,
) -> LeftAlone {
    let mut left = LeftAlone::default();
    for pack in packs.iter().filter(|pack| pack.fate == PackFate::Damaged) {
        let named = pack.number.map_or(0, |n| standing.index.pack(n).len);
        let why = match named == pack.len {
            true => "marked as damaged, and in use".to_owned(),
            false => format!("in use, and of {} bytes instead of {named}", pack.len),
        };
        left.name(monitor, pack.id, &why);
    }
    for copy in 0..standing.index.entries().len() {
        if !staying.stays(copy) || !staying.is_bad(copy) {
            continue;
        }
        let pack = standing.pack_at(copy);
        match standing.unread(standing.index.entries()[copy].pack) {
            Some(why) => left.name_unread(monitor, pack, why),
            None => {
                let why = "holds a chunk in use of which no copy can be read";
                left.name(monitor, pack, why);
            }
        }
    }
    left
}

/// Packs that are not there, with chunks in use that no pack has that is.
fn gone_in_use(
    repository: &Repository,
    standing: &PackStates,
    staying: &Staying,
    used: UsedChunks,
) -> Result<BTreeSet<ObjectId>> {
    let gone = staying.in_missing(standing);
    if gone.is_empty() {
        return Ok(gone);
    }
    // Another prune may have moved their chunks after the index was looked at.
    let standing = PackStates::look(repository)?;
    let used = used.in_index(standing.index.clone())?;
    Ok(Staying::choose(&standing, &used).in_missing(&standing))
}

fn fates(
    standing: &PackStates,
    staying: &Staying,
    (now, running): (SystemTime, Option<SystemTime>),
    options: &PruneOptions,
) -> Vec<PlannedPack> {
    let bytes = bytes_by_pack(standing, staying);
    let packs = standing.packs.iter().map(|found| {
        let of_number = |number: PackNumber| bytes[number.0 as usize];
        let (used, all) = found.number.map_or((0, 0), of_number);
        PlannedPack {
            id: found.id,
            number: found.number,
            len: found.len,
            used,
            fate: fate(found, (used, all), (now, running), standing, options),
        }
    });
    packs.collect()
}

/// Sealed bytes of the chunks in each pack: those that stay, and all.
fn bytes_by_pack(standing: &PackStates, staying: &Staying) -> Vec<(u64, u64)> {
    let mut bytes = vec![(0, 0); standing.index.packs().len()];
    for (position, place) in standing.index.entries().iter().enumerate() {
        let (used_bytes, all_bytes) = &mut bytes[place.pack.0 as usize];
        let sealed = u64::from(place.chunk.sealed_bytes);
        *all_bytes += sealed;
        if staying.stays(position) {
            *used_bytes += sealed;
        }
    }
    bytes
}

fn fate(
    found: &FoundPack,
    (used, all): (u64, u64),
    (now, running): (SystemTime, Option<SystemTime>),
    standing: &PackStates,
    options: &PruneOptions,
) -> PackFate {
    if found.is_condemned {
        return PackFate::Condemned;
    }
    let is_damaged = |number| standing.state(number) == PackState::Damaged;
    if used > 0 && found.number.is_some_and(is_damaged) {
        return PackFate::Damaged;
    }
    // What is in use of it cannot be copied.
    if used > 0
        && found
            .number
            .is_some_and(|number| standing.unread(number).is_some())
    {
        return PackFate::Stay;
    }
    // Of the chunks, not of the object: a small pack is half heads and trailer, and would be copied
    // again by every prune.
    let enough = all.saturating_mul(u64::from(options.repack_below_percent));
    if used > 0 && used.saturating_mul(100) >= enough {
        return PackFate::Stay;
    }
    // A clock that jumped back makes packs look older than now: they count as young.
    let age = found.modified.map_or(Duration::MAX, |modified| {
        now.duration_since(modified).unwrap_or(Duration::ZERO)
    });
    // What a run under way has stored, and is in no record yet, is its own.
    let is_of_run = found
        .modified
        .zip(running)
        .is_some_and(|(made, since)| made >= since);
    match used {
        0 if is_of_run || age < options.grace => PackFate::Young,
        _ if is_of_run => PackFate::Stay,
        0 => PackFate::Condemn,
        _ => PackFate::Repack,
    }
}
