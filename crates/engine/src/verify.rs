//! Looking for damage: the structure always, the stored bytes on request, and names without any key.
//!
//! Nothing is changed. What is found is told object by object; what it means for users is told by path. A snapshot newer than
//! this program is "newer", never damage.

mod damage;
mod data;
mod scrub;
mod structure;

pub use damage::{Damage, LostPath};
pub use data::Subset;
pub use scrub::scrub;

use crate::error::Result;
use crate::monitor::Monitor;
use crate::repository::Repository;
use damage::Findings;

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
    repository: &Repository,
    subset: Option<Subset>,
    monitor: &dyn Monitor,
) -> Result<CheckReport> {
    let mut findings = Findings::default();
    let index = structure::check_index(repository, &mut findings)?;
    structure::check_packs(repository, &index, &mut findings)?;
    let records = structure::check_records(repository, &mut findings)?;
    structure::check_catalogs(repository, &index, &records, &mut findings, monitor)?;
    if let Some(subset) = subset {
        data::check_data(repository, &index, subset, &mut findings, monitor)?;
    }
    damage::name_lost_paths(repository, &records, &mut findings, monitor)?;
    Ok(findings.report)
}
