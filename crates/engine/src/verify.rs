//! Looking for damage: the structure always, the stored bytes on request, and names without any key.
//!
//! A check changes nothing; `mark` then marks what was found, so that writers do without it. What is found is told object by
//! object; what it means for users is told by path. What no snapshot needs, or what stands undamaged elsewhere, is no damage.
//! A snapshot newer than this program is "newer", never damage.

mod damage;
mod data;
mod lost;
mod packs;
mod scrub;
mod structure;

pub use damage::{Damage, LostPath};
pub use data::Subset;
pub(crate) use data::trouble_with;
pub use packs::{Marked, mark, marked_and_gone};
pub use scrub::scrub;

use crate::error::Result;
use crate::monitor::Monitor;
use crate::repository::Repository;
use bale_format::{ChunkId, ObjectId};
use damage::Findings;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

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
    /// Bytes read.
    pub bytes_read: u64,
    /// Packs that no index names: not damage, `prune` or `repair index` sees to them.
    pub packs_unindexed: u64,
    /// Index objects that cannot be read.
    pub index_objects_damaged: u64,
    /// Packs that are there and damaged: for [`mark`].
    pub packs_damaged: Vec<ObjectId>,
    /// Marked packs that were read and found whole: for [`mark`].
    pub packs_whole: HashSet<ObjectId>,
    /// Missing or damaged packs of which nothing is needed that stands nowhere else: no damage, a prune removes them.
    pub packs_not_needed: u64,
    /// Every pack was read.
    pub read_all: bool,
    /// Damaged or missing objects and chunks.
    pub damage: Vec<Damage>,
    /// Paths that cannot be restored whole; at most [`LOST_PATHS_LISTED_MAX`] are listed, all are counted.
    pub lost: Vec<LostPath>,
    /// How many paths cannot be restored whole.
    pub lost_count: u64,
}

/// Paths listed by a check.
pub const LOST_PATHS_LISTED_MAX: usize = 10_000;

impl CheckReport {
    /// Is everything as it should be?
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.lost_count == 0
    }
}

/// Checks a repository.
pub fn check(
    repository: &Arc<Repository>,
    subset: Option<Subset>,
    monitor: &dyn Monitor,
) -> Result<CheckReport> {
    let mut findings = Findings::default();
    let index = structure::check_index(repository, &mut findings)?;
    structure::check_packs(repository, &index, &mut findings)?;
    let records = structure::check_records(repository, &mut findings, monitor)?;
    structure::check_catalogs(
        repository,
        &index,
        &records.readable,
        &mut findings,
        monitor,
    )?;
    let mut whole = HashSet::new();
    if let Some(subset) = subset {
        whole = data::check_data(repository, &index, subset, &mut findings, monitor)?;
        findings.report.read_all = subset == Subset::All;
    }
    packs::look_into_damaged(repository, &index, &whole, &mut findings);
    let needed = lost::name_lost_paths(repository, &records.readable, &mut findings, monitor)?;
    findings.weigh(&index, records.all_readable.then_some(&needed));
    let marked = whole.iter().map(|number| index.pack(*number));
    findings.report.packs_whole = marked
        .filter(|pack| pack.damaged)
        .map(|pack| pack.id)
        .collect();
    Ok(findings.report)
}

/// Paths that cannot be restored whole without these chunks: at most [`LOST_PATHS_LISTED_MAX`], and how many there are.
pub(crate) fn paths_lost_with(
    repository: &Arc<Repository>,
    bad_chunks: BTreeMap<ChunkId, String>,
    monitor: &dyn Monitor,
) -> Result<(Vec<LostPath>, u64)> {
    let mut findings = Findings::default();
    findings.bad_chunks = bad_chunks;
    let records = structure::check_records(repository, &mut findings, monitor)?;
    lost::name_lost_paths(repository, &records.readable, &mut findings, monitor)?;
    Ok((findings.report.lost, findings.report.lost_count))
}
