//! Copies what is used out of packs that are used little.

use super::Pruned;
use super::plan::{PackFate, PrunePlan};
use crate::error::{Error, Result};
use crate::index::{ChunkIndex, Place};
use crate::monitor::{Monitor, Phase, Progress};
use crate::pack::ChunkWriter;
use crate::repository::Repository;
use crate::used::UsedChunks;
use std::collections::HashSet;
use std::sync::Arc;

pub(super) fn repack(
    repository: &Arc<Repository>,
    plan: &PrunePlan,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let chosen: HashSet<_> = plan
        .packs
        .iter()
        .filter(|pack| pack.fate == PackFate::Repack)
        .filter_map(|pack| pack.number)
        .collect();
    let wanted = |place: &Place| chosen.contains(&place.pack);
    copy(
        repository,
        (&plan.index, &plan.used),
        wanted,
        monitor,
        pruned,
    )
}

/// Stores what is used and wanted again, in new packs that the index names when this returns.
pub(super) fn copy(
    repository: &Arc<Repository>,
    (index, used): (&ChunkIndex, &UsedChunks),
    is_wanted: impl Fn(&Place) -> bool,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let wanted = || {
        let mut last = None;
        let entries = index.entries().iter().enumerate();
        entries
            .filter(|(position, place)| used.is_used(*position) && is_wanted(place))
            .map(|(_, place)| place)
            // Copies of a chunk are neighbours, and one is enough.
            .filter(move |place| last.replace(place.chunk.id) != Some(place.chunk.id))
    };
    let total: u64 = wanted()
        .map(|place| u64::from(place.chunk.sealed_bytes))
        .sum();
    if total == 0 {
        return Ok(());
    }
    let writer = ChunkWriter::start(repository.clone(), HashSet::new(), false)?;
    let mut copied = 0;
    for place in wanted() {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        let bytes = repository.read_chunk_uncached(&place.chunk.id, place.chunk.kind)?;
        writer.store_again(place.chunk.kind, place.chunk.id, bytes.into())?;
        copied += u64::from(place.chunk.sealed_bytes);
        let progress = Progress {
            bytes_done: copied,
            bytes_total: total,
            ..Progress::default()
        };
        monitor.progress(Phase::Repack, progress);
    }
    writer.finish()?;
    pruned.bytes_repacked += copied;
    Ok(())
}
