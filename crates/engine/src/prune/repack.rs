//! Copies what is used out of packs that are used little.

use super::Pruned;
use super::plan::{PackFate, PrunePlan};
use crate::error::{Error, Result};
use crate::monitor::{Monitor, Phase, Progress};
use crate::pack::ChunkWriter;
use crate::repository::Repository;
use bale_format::ChunkKind;
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
    let chosen: std::collections::HashSet<_> =
        plan.packs.iter().filter(|pack| pack.fate == PackFate::Repack).filter_map(|pack| pack.number).collect();
    let writer = ChunkWriter::start(repository.clone())?;
    for (position, (id, place)) in plan.index.entries().iter().enumerate() {
        if !plan.used.is_used(position) || !chosen.contains(&place.pack) {
            continue;
        }
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        let kind = ChunkKind::from_number(place.kind).ok_or_else(|| Error::Other(format!("chunk {}: unknown kind", id.short())))?;
        let bytes = repository.read_chunk_uncached(id, kind)?;
        writer.store_again(kind, *id, bytes.into())?;
        pruned.bytes_repacked += u64::from(place.sealed_len);
        let progress = Progress { bytes_done: pruned.bytes_repacked, bytes_total: total, ..Progress::default() };
        monitor.progress(Phase::Repack, progress);
    }
    writer.finish()?;
    Ok(())
}
