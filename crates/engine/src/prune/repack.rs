//! Copies what is used out of packs that are used little.

use super::Pruned;
use super::plan::{PackFate, PrunePlan};
use crate::error::{Error, Result};
use crate::monitor::{Monitor, Phase, Progress};
use crate::pack::ChunkWriter;
use crate::repository::Repository;
use std::collections::HashSet;
use std::sync::Arc;

pub(super) fn repack(
    repository: &Arc<Repository>,
    plan: &PrunePlan,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let total = plan.bytes_to_repack();
    if total == 0 {
        return Ok(());
    }
    let chosen: HashSet<_> = plan
        .packs
        .iter()
        .filter(|pack| pack.fate == PackFate::Repack)
        .filter_map(|pack| pack.number)
        .collect();
    let writer = ChunkWriter::start(repository.clone(), HashSet::new(), false)?;
    for (position, place) in plan.index.entries().iter().enumerate() {
        if !plan.used.is_used(position) || !chosen.contains(&place.pack) {
            continue;
        }
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        let bytes = repository.read_chunk_uncached(&place.chunk.id, place.chunk.kind)?;
        writer.store_again(place.chunk.kind, place.chunk.id, bytes.into())?;
        pruned.bytes_repacked += u64::from(place.chunk.sealed_bytes);
        let progress = Progress {
            bytes_done: pruned.bytes_repacked,
            bytes_total: total,
            ..Progress::default()
        };
        monitor.progress(Phase::Repack, progress);
    }
    writer.finish()?;
    Ok(())
}
