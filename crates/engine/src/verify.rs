//! Looking for damage: the structure always, the stored bytes on request, and names without any
//! key.
//!
//! A check changes nothing; `mark` then marks what was found, so that writers do without it. What
//! is found is told object by object; what it means for users is told by path. What no snapshot
//! needs, or what stands undamaged elsewhere, is no damage. A snapshot newer than this program is
//! "newer", never damage. Others may back up and prune meanwhile: whatever trouble is found while
//! something goes is looked at again.

mod copies;
mod damage;
mod data;
mod foreign;
mod lost;
mod packs;
mod scrub;
mod structure;
mod tiers;
mod unread;
mod vanished;

pub use damage::{CheckFinding, LostPath, MendedBy};
pub use data::Subset;
pub(crate) use data::{PackState, state_of};
pub use foreign::{Foreign, ForeignFound};
pub use packs::{Marked, mark, marked_and_gone};
pub use scrub::scrub;
pub(crate) use scrub::{OTHER_BYTES, hash_object};
pub use unread::UnreadObjects;

use crate::two_stores::{refuse_hot_alone, refuse_swapped};
use bale_format::{ChunkId, ChunkKind, ObjectId};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use damage::Findings;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use vanished::Names;

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Snapshots and unfinished runs looked at.
    pub snapshots: u64,
    /// Distinct catalog segments read.
    pub segments: u64,
    /// Packs that the index names.
    pub packs: u64,
    /// Chunks that the index names.
    pub chunks: u64,
    /// Packs whose bytes were read and verified.
    pub packs_read: u64,
    pub bytes_read: u64,
    /// Packs that were to be read and must be brought back from a cold class first: no damage, and
    /// nothing is known of them.
    pub packs_archived: u64,
    /// Objects of a cold store other than packs, of which the same is true.
    pub objects_archived: u64,
    /// What could not be read for another reason: no damage, and nothing is known of it.
    pub unread: UnreadObjects,
    /// Packs that no index names: not damage, `prune` or `repair index` sees to them.
    pub packs_unindexed: u64,
    /// Index objects that cannot be read.
    pub index_objects_damaged: u64,
    /// Packs that are there and damaged: for [`mark`].
    pub packs_damaged: Vec<ObjectId>,
    /// Marked packs that were read and found whole: for [`mark`].
    pub packs_whole: HashSet<ObjectId>,
    /// Missing or damaged packs of which nothing is needed that stands nowhere else: no damage, a
    /// prune removes them.
    pub packs_not_needed: u64,
    /// Chunks that a snapshot needs, that open, and that stand in damaged packs only: a repair
    /// saves them.
    pub chunks_in_danger: u64,
    /// Every pack was read.
    pub read_all: bool,
    /// Damaged or missing objects and chunks.
    pub damage: Vec<CheckFinding>,
    /// Paths that cannot be restored whole; at most [`LOST_PATHS_LISTED_MAX`] are listed, all are
    /// counted.
    pub lost: Vec<LostPath>,
    /// Snapshots and unfinished runs that cannot be read: their paths are in no count.
    pub records_unreadable: u64,
    /// Catalog segments of snapshots that cannot be read: nobody knows what their paths need.
    pub segments_lost: u64,
    /// How many paths cannot be restored whole.
    pub lost_count: u64,
    /// What stands among the objects and is none.
    pub foreign: Foreign,
}

/// Paths listed by a check.
pub(crate) const LOST_PATHS_LISTED_MAX: usize = 10_000;

impl CheckReport {
    /// Is everything as it should be?
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.lost_count == 0
    }
}

/// Looks at most so often, while prunes go on: each look takes a pack or a list of them to go in
/// the midst of it.
const LOOKS_MAX: usize = 8;

/// Checks a repository.
pub fn check(
    repository: &Arc<Repository>,
    subset: Option<Subset>,
    monitor: &dyn Monitor,
) -> Result<CheckReport> {
    let advice = "Name that beside it with --cold, or that alone with -r; check --scrub compares \
        what a store alone has with its names";
    refuse_hot_alone(repository, "a check", advice)?;
    let mut read = None;
    for _ in 1..LOOKS_MAX {
        let before = Names::list(repository)?;
        let found = look(repository, &before, subset, &mut read, monitor);
        let is_trouble = match &found {
            Ok(report) => !report.is_clean() || !report.packs_damaged.is_empty(),
            Err(Error::Interrupted) => false,
            Err(_) => true,
        };
        if !is_trouble || !before.has_one_gone(repository)? {
            return found;
        }
        monitor
            .note("the repository was pruned or lost snapshots during the check: checking again");
    }
    let before = Names::list(repository)?;
    look(repository, &before, subset, &mut read, monitor)
}

/// One look at everything but the data, which is read once.
fn look(
    repository: &Arc<Repository>,
    listed: &Names,
    subset: Option<Subset>,
    read: &mut Option<data::Read>,
    monitor: &dyn Monitor,
) -> Result<CheckReport> {
    let mut findings = Findings::default();
    structure::check_configs(repository, &mut findings);
    structure::check_keys(repository, listed, &mut findings)?;
    tiers::check_tiers(repository, &mut findings)?;
    findings.report.foreign = foreign::name(&**repository.store())?;
    // Before the index: what a snapshot relies on was named when it was written.
    let records = structure::check_records(repository, listed, &mut findings, monitor)?;
    let index = structure::check_index(repository, listed, &mut findings)?;
    if let Some(stores) = repository.store().tiers() {
        refuse_swapped(&index, stores)?;
    }
    tiers::check_listings(repository, &index, &mut findings, monitor)?;
    copies::check_copies(repository, &mut findings, monitor)?;
    structure::check_segments_of_packs(repository, &index, &mut findings)?;
    structure::check_packs(repository, &index, &mut findings)?;
    copies::check_lengths_in_hot(repository, &index, &mut findings)?;
    structure::check_catalogs(
        repository,
        &index,
        &records.readable,
        &mut findings,
        monitor,
    )?;
    if let (Some(subset), None) = (subset, &read) {
        *read = Some(data::check_data(repository, &index, subset, monitor)?);
    }
    let whole = match read {
        Some(read) => read.report(repository, &index, &mut findings)?,
        None => HashSet::new(),
    };
    packs::report_damaged_heads(repository, &index, &mut findings);
    packs::look_into_damaged(repository, &index, &whole, &mut findings);
    let needed = lost::name_lost_paths(repository, &records.readable, &mut findings, monitor)?;
    let is_all_known = records.all_readable && !findings.has_unread_catalogs();
    findings.weigh(&index, is_all_known.then_some(&needed));
    let marked = whole.iter().map(|number| index.pack(*number));
    findings.report.packs_whole = marked
        .filter(|pack| pack.damaged)
        .map(|pack| pack.id)
        .collect();
    Ok(findings.report)
}

/// Paths that cannot be restored whole without these chunks: at most [`LOST_PATHS_LISTED_MAX`], and
/// how many there are.
pub(crate) fn paths_lost_with(
    repository: &Arc<Repository>,
    bad_chunks: BTreeMap<ChunkId, String>,
    monitor: &dyn Monitor,
) -> Result<(Vec<LostPath>, u64)> {
    let mut findings = Findings::default();
    findings.bad_chunks = bad_chunks;
    let listed = Names::list(repository)?;
    let records = structure::check_records(repository, &listed, &mut findings, monitor)?;
    // What a catalog that cannot be read says is lost with it, whatever became of it.
    let layers = (records.readable.iter()).flat_map(|(_, snapshot)| &snapshot.layers);
    for segment in layers.flat_map(|layer| &layer.segments) {
        let read = repository.read_chunk_uncached(&segment.id, ChunkKind::Segment);
        if let Err(error) = read
            && findings.is_known(&segment.id, &error)
        {
            findings.bad_chunks.insert(segment.id, error.to_string());
        }
    }
    lost::name_lost_paths(repository, &records.readable, &mut findings, monitor)?;
    Ok((findings.report.lost, findings.report.lost_count))
}
