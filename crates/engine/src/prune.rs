//! Giving back space, in two phases that never block a backup.
//!
//! First packs that hold little or nothing in use are condemned, after what is in use has been
//! copied. Later - once they have been condemned for longer than the grace period, and after
//! looking again at all snapshots - they are deleted. What is in use stays in a copy that this
//! prune has read, or is copied before; where neither can be, nothing is given up, and the pack is
//! named and marked as damaged. Condemned packs stay condemned, so two prunes agree on them. A
//! writer treats condemned packs as absent and looks again before it commits, so whatever a
//! snapshot uses is either not condemned or seen by the second look. docs/FORMAT.md, section 9;
//! docs/decisions/0003-two-phase-deletion.md.

mod delete;
mod future;
mod left_alone;
mod pack_states;
mod plan;
mod records;
mod repack;
mod secure;
mod segments;
mod staying_copies;
pub(crate) mod trailer;
mod use_of_doomed;

pub(crate) use segments::give_back;

pub use plan::{PackFate, PlannedPack, PrunePlan, plan};

use crate::status::{SuddenChange, unconfirmed};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_repository::snapshots::remembered::{Missed, missed_now};
use bale_repository::store::ObjectName;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct PruneOptions {
    /// Packs must have been condemned, and unused packs must have existed, for so long.
    pub grace: Duration,
    /// Packs with a smaller share of used bytes are repacked, in per cent.
    pub repack_below_percent: u8,
}

/// What a prune did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Packs deleted.
    pub packs_deleted: u64,
    /// Their bytes. Of packs in segments they are given back with the segment.
    pub bytes_deleted: u64,
    /// Packs condemned, to be deleted by a later prune.
    pub packs_condemned: u64,
    /// Bytes that a later prune gives back.
    pub bytes_condemned: u64,
    /// Bytes copied into new packs.
    pub bytes_repacked: u64,
    /// Packs left alone because they are damaged and in use, and packs in use that are gone, those
    /// of the plan included: they were named as problems.
    pub problems: u64,
    /// Packs in use that are not in the repository any more.
    pub packs_gone: u64,
    /// Segments given back; what was left of them was copied.
    pub segments_reclaimed: u64,
    /// Short segments that were put together.
    pub segments_joined: u64,
    /// Bytes given back with them.
    pub bytes_reclaimed: u64,
    /// Bytes of deleted packs in segments that stay, because much of them is used.
    pub bytes_waiting: u64,
}

/// Refuses while a snapshot that this machine saw is gone and nothing newer came: a store that
/// hides one, or was set back, lists as one that never had it. Who means it to be gone acknowledges
/// that by forgetting it.
pub fn refuse_while_missed(repository: &Repository) -> Result<()> {
    refuse(&missed_now(repository)?)
}

/// Refuses while a snapshot cannot be read, for what it uses is not known; those that `goes` is
/// true of are no hindrance.
pub fn refuse_while_unreadable(
    repository: &Repository,
    goes: impl Fn(&ObjectName) -> bool,
) -> Result<()> {
    let (_, damaged) = repository.snapshots_readable()?;
    match damaged.into_iter().find(|(name, _)| !goes(name)) {
        None => Ok(()),
        Some((name, error)) => {
            let id = name.id().map(|id| id.short()).unwrap_or_default();
            Err(Error::Other(format!(
                "{error}: the data that it uses is unknown; bale forget {id} removes it"
            )))
        }
    }
}

/// Refuses while a snapshot changed its source suddenly and nobody confirmed it: what older ones
/// hold may be all that is left. Those that go are no hindrance.
pub fn refuse_while_sudden(
    repository: &Repository,
    goes: impl Fn(&ObjectName) -> bool,
) -> Result<()> {
    let (mut snapshots, _) = repository.snapshots_readable()?;
    let found = unconfirmed(repository, &snapshots);
    snapshots.retain(|(id, _)| !goes(&ObjectName::snapshot(*id)));
    let stays = |change: &SuddenChange| snapshots.iter().any(|(id, _)| *id == change.snapshot);
    refuse_sudden(&found.into_iter().filter(stays).collect::<Vec<_>>())
}

fn refuse_sudden(sudden: &[SuddenChange]) -> Result<()> {
    sudden.first().map_or(Ok(()), |first| Err(first.refusal()))
}

fn refuse(missed: &[Missed]) -> Result<()> {
    missed.first().map_or(Ok(()), |first| Err(first.refusal()))
}

/// Applies a plan: copies, condemns, and deletes what was condemned long enough ago. Can be
/// interrupted at any point and run again.
pub fn apply(
    repository: &Arc<Repository>,
    plan: &PrunePlan,
    options: &PruneOptions,
    monitor: &dyn Monitor,
) -> Result<Pruned> {
    refuse(&plan.missed)?;
    refuse_sudden(&plan.sudden)?;
    let mut pruned = Pruned::default();
    let mut left = plan.left.clone();
    repack::repack(repository, plan, &mut left, monitor, &mut pruned)?;
    delete::condemn(repository, plan, &left, &mut pruned)?;
    delete::delete(repository, plan, options, &mut left, monitor, &mut pruned)?;
    pruned.problems = left.count();
    pruned.packs_gone = left.count_gone();
    segments::reclaim(repository, monitor, &mut pruned)?;
    // Writers then store again what still exists, and a later prune can let go of them.
    repository.mark_damaged(left.packs())?;
    Ok(pruned)
}
