//! Giving back segments of which little is left: deleting a pack frees nothing of them. Those that
//! short backups have left are put together, once they fill a long one.
//!
//! What is left is copied as it is, and nothing in the index changes. The copies are durable and
//! known before the old segment goes, so a crash in between leaves two of each.

use super::Pruned;
use bale_format::ObjectId;
use bale_format::stretch::StretchName;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_repository::store::ObjectName;
use bale_repository::stretched::{Reclaimed, StretchUse, StretchedStore};
use std::collections::HashSet;

/// A segment with a smaller share of packs that were not deleted is given back, in per cent.
const RECLAIM_BELOW_PERCENT: u8 = 40;

/// What was given back.
#[derive(Default)]
pub(crate) struct GivenBack {
    pub(crate) segments: u64,
    /// Short ones that were put together.
    pub(crate) joined: u64,
    /// Bytes of packs that were deleted before.
    pub(crate) bytes: u64,
    /// Bytes of packs that were copied.
    pub(crate) copied: u64,
    /// Bytes of deleted packs in segments that stay, because much of them is used.
    pub(crate) waiting: u64,
    /// Packs that are damaged, and the segments that stay for them.
    pub(crate) damaged: Vec<(ObjectName, ObjectId)>,
}

/// Gives back what a prune can, and marks what is damaged.
pub(super) fn reclaim(
    repository: &Repository,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let given = give_back(repository, monitor)?;
    pruned.segments_reclaimed += given.segments;
    pruned.segments_joined += given.joined;
    pruned.bytes_reclaimed += given.bytes;
    pruned.bytes_repacked += given.copied;
    pruned.bytes_waiting = given.waiting;
    for (segment, pack) in given.damaged {
        repository.mark_damaged([pack])?;
        pruned.problems += 1;
        monitor.problem(&Problem {
            path: segment.path().into_bytes(),
            action: "give back",
            text: format!("pack {} in it is damaged: it stays", pack.short()),
        });
    }
    Ok(())
}

/// Those that are put together, and all others. Short ones wait until they fill one: what is copied
/// is then in a long one, and is never copied for this again.
fn short_ones(
    stretched: &StretchedStore,
    stay: Vec<StretchUse>,
) -> (Vec<StretchUse>, Vec<StretchUse>) {
    let is_short = |stretch: &StretchUse| stretched.is_short(stretch.len);
    let bytes = stay.iter().filter(|stretch| is_short(stretch));
    match stretched.fill_one(bytes.map(|stretch| stretch.used).sum()) {
        true => stay.into_iter().partition(is_short),
        false => (Vec::new(), stay),
    }
}

/// Copies what is left of such segments, and deletes them.
pub(crate) fn give_back(repository: &Repository, monitor: &dyn Monitor) -> Result<GivenBack> {
    let mut given = GivenBack::default();
    let Some(stretched) = repository.stretched() else {
        return Ok(given);
    };
    let emptied = stretched.take_emptied();
    given.segments += emptied.stretches;
    given.bytes += emptied.bytes;
    let index = repository.index()?;
    stretched.remove_records_of_nothing(|pack| index.pack_number(pack).is_some())?;
    let (mut uses, stay): (Vec<_>, Vec<_>) = (stretched.uses()?.into_iter())
        .partition(|stretch| stretch.is_below(RECLAIM_BELOW_PERCENT));
    let (short, stay) = short_ones(stretched, stay);
    let joined: HashSet<StretchName> = short.iter().map(|stretch| stretch.name).collect();
    uses.extend(short);
    let unused = |stretch: &StretchUse| stretch.len.saturating_sub(stretch.used);
    given.waiting = stay.iter().map(unused).sum();
    let total = uses.iter().map(|stretch| stretch.used).sum();
    let mut copied: Vec<(StretchUse, u64)> = Vec::new();
    let mut done = 0;
    for stretch in uses {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        match stretched.copy_rest(&stretch.name)? {
            Reclaimed::Copied(bytes) => copied.push((stretch, bytes)),
            Reclaimed::Changed => {}
            Reclaimed::Damaged(pack) => {
                let segment = ObjectName::stretch(stretch.name);
                given.damaged.push((segment, pack));
            }
        }
        done += stretch.used;
        let progress = Progress {
            bytes_done: done,
            bytes_total: total,
            ..Progress::default()
        };
        monitor.progress(Phase::Repack, progress);
    }
    stretched.settle()?;
    for (stretch, bytes) in copied {
        if stretched.let_go(&stretch.name)? {
            match joined.contains(&stretch.name) {
                true => given.joined += 1,
                false => given.segments += 1,
            }
            given.bytes += stretch.len.saturating_sub(bytes);
            given.copied += bytes;
        }
    }
    Ok(given)
}
