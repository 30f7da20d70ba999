//! Copies what is used out of packs that are used little.

use super::Pruned;
use super::left_alone::LeftAlone;
use super::pack_states::PackStates;
use super::plan::{PackFate, PrunePlan};
use super::staying_copies::{CopyRead, read_any};
use bale_format::PackNumber;
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::Repository;
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;

/// Stores chunks again, in new packs that the index names once `finish` returns. Its threads start
/// with the first chunk.
pub(super) struct Copier<'a> {
    repository: &'a Arc<Repository>,
    monitor: &'a dyn Monitor,
    writer: Option<ChunkWriter>,
    total: u64,
    copied: u64,
}

impl<'a> Copier<'a> {
    /// `total`: sealed bytes that are expected to be copied.
    pub(super) fn new(
        repository: &'a Arc<Repository>,
        monitor: &'a dyn Monitor,
        total: u64,
    ) -> Copier<'a> {
        Copier {
            repository,
            monitor,
            writer: None,
            total,
            copied: 0,
        }
    }

    /// Stores the chunk of a copy; its bytes have been verified.
    pub(super) fn store(&mut self, standing: &PackStates, copy: usize, bytes: Bytes) -> Result<()> {
        let chunk = &standing.index.entries()[copy].chunk;
        if self.writer.is_none() {
            let writer = ChunkWriter::start(self.repository.clone(), HashSet::new(), false)?;
            self.writer = Some(writer);
        }
        if let Some(writer) = &self.writer {
            writer.store_again(chunk.kind, chunk.id, bytes.into())?;
        }
        self.copied += u64::from(chunk.sealed_bytes);
        let progress = Progress {
            bytes_done: self.copied,
            bytes_total: self.total.max(self.copied),
            ..Progress::default()
        };
        self.monitor.progress(Phase::Repack, progress);
        Ok(())
    }

    /// Everything is durable and named; tells the bytes.
    pub(super) fn finish(self) -> Result<u64> {
        if let Some(writer) = self.writer {
            writer.finish()?;
        }
        Ok(self.copied)
    }
}

/// Copies what stays out of the packs to be repacked. A pack with a chunk that cannot be had is
/// left alone, and named.
pub(super) fn repack(
    repository: &Arc<Repository>,
    plan: &PrunePlan,
    left: &mut LeftAlone,
    monitor: &dyn Monitor,
    pruned: &mut Pruned,
) -> Result<()> {
    let wanted = wanted(plan);
    let mut copier = Copier::new(repository, monitor, plan.bytes_to_repack());
    let entries = plan.standing.index.entries();
    for copies in wanted.chunk_by(|a, b| entries[*a].pack == entries[*b].pack) {
        copy_pack(repository, plan, copies, &mut copier, left, monitor)?;
    }
    pruned.bytes_repacked += copier.finish()?;
    Ok(())
}

/// Positions of what stays in packs to be repacked, by place.
fn wanted(plan: &PrunePlan) -> Vec<usize> {
    let chosen: HashSet<PackNumber> = plan
        .packs
        .iter()
        .filter(|pack| pack.fate == PackFate::Repack)
        .filter_map(|pack| pack.number)
        .collect();
    let entries = plan.standing.index.entries();
    let mut wanted: Vec<usize> = (0..entries.len())
        .filter(|copy| plan.staying.stays(*copy) && chosen.contains(&entries[*copy].pack))
        .collect();
    wanted.sort_by_key(|copy| (entries[*copy].pack, entries[*copy].chunk.offset));
    wanted
}

/// All of it is read before any of it is stored: a pack that is left alone is not copied in part by
/// every prune.
fn copy_pack(
    repository: &Arc<Repository>,
    plan: &PrunePlan,
    copies: &[usize],
    copier: &mut Copier<'_>,
    left: &mut LeftAlone,
    monitor: &dyn Monitor,
) -> Result<()> {
    let standing = &plan.standing;
    for is_stored in [false, true] {
        for copy in copies {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let chunk = &standing.index.entries()[*copy].chunk;
            let all = standing.index.positions(&chunk.id);
            let pack = standing.pack_at(*copy);
            let bytes = match read_any(repository, standing, all) {
                CopyRead::Verified(bytes) => bytes,
                CopyRead::Unread(why) => {
                    left.name_unread(monitor, pack, &why);
                    return Ok(());
                }
                CopyRead::Unreadable => {
                    let short = chunk.id.short();
                    let why = format!("chunk {short} in it is in use, and cannot be read");
                    left.name(monitor, pack, &why);
                    return Ok(());
                }
            };
            if is_stored {
                copier.store(standing, *copy, bytes)?;
            }
        }
    }
    Ok(())
}
