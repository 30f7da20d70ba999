//! Giving back segments of which little is left: deleting a pack frees nothing of them.
//!
//! What is left is copied as it is, and nothing in the index changes. The copies are durable and
//! known before the old segment goes, so a crash in between leaves two of each.

use super::Pruned;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_repository::store::ObjectName;
use bale_repository::stretched::{Reclaimed, StretchUse};

/// A segment with a smaller share of packs that were not deleted is given back, in per cent.
const RECLAIM_BELOW_PERCENT: u8 = 40;

/// Copies what is left of such segments, and deletes them.
pub(super) fn reclaim(
    repository: &Repository,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let Some(stretched) = repository.stretched() else {
        return Ok(());
    };
    let emptied = stretched.take_emptied();
    pruned.segments_reclaimed += emptied.stretches;
    pruned.bytes_reclaimed += emptied.bytes;
    let index = repository.index()?;
    stretched.remove_records_of_nothing(|pack| index.pack_number(pack).is_some())?;
    let (uses, stay): (Vec<_>, Vec<_>) = (stretched.uses()?.into_iter())
        .partition(|stretch| stretch.is_below(RECLAIM_BELOW_PERCENT));
    let unused = |stretch: &StretchUse| stretch.len.saturating_sub(stretch.used);
    pruned.bytes_waiting = stay.iter().map(unused).sum();
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
                repository.mark_damaged([pack])?;
                pruned.problems += 1;
                monitor.problem(&Problem {
                    path: ObjectName::stretch(stretch.name).path().into_bytes(),
                    action: "give back",
                    text: format!("pack {} in it is damaged: it stays", pack.short()),
                });
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
            pruned.segments_reclaimed += 1;
            pruned.bytes_reclaimed += stretch.len.saturating_sub(bytes);
            pruned.bytes_repacked += bytes;
        }
    }
    Ok(())
}
