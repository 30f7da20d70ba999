//! What every part of a restore into an image is given, and where its troubles are counted.

use crate::losses::{LossKind, Losses};
use crate::progress::{PhaseProgress, report_problem};
use crate::{CatalogSource, ChunkSource, RestoreOptions, ScratchSpace};
use bale_fsimage::mkext4::Ext4Options;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::Monitor;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Chunks on their way or kept, for the reading that fetches them ahead.
const AHEAD_BYTES_MAX: usize = 76 << 20;
/// The same where chunks are far away: whoever has them keeps some as they came.
const AHEAD_BYTES_MAX_FAR_AWAY: usize = 28 << 20;
/// The same with the least memory: a large chunk and what comes with it, four times.
const AHEAD_BYTES_LEAST_FAR_AWAY: usize = 17 << 20;

/// How much of memory those take.
pub const fn ahead_bytes(memory: &MemoryPlan, is_far_away: bool) -> usize {
    match is_far_away {
        true => memory.share_from(AHEAD_BYTES_LEAST_FAR_AWAY, AHEAD_BYTES_MAX_FAR_AWAY),
        false => memory.share(AHEAD_BYTES_MAX),
    }
}

/// Seams, options and counters of one operation.
pub struct Work<'a> {
    pub catalog: &'a dyn CatalogSource,
    pub chunks: &'a dyn ChunkSource,
    pub scratch: &'a ScratchSpace,
    pub monitor: &'a dyn Monitor,
    pub progress: PhaseProgress<'a>,
    pub options: &'a RestoreOptions<'a>,
    /// The file system.
    pub ext4: Ext4Options,
    pub losses: Losses,
    problems: AtomicU64,
    has_damage: AtomicBool,
}

/// The catalog is read more than once; only one reading reports its problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleReports {
    Report,
    Quiet,
}

impl<'a> Work<'a> {
    pub fn new(
        catalog: &'a dyn CatalogSource,
        chunks: &'a dyn ChunkSource,
        scratch: &'a ScratchSpace,
        options: &'a RestoreOptions<'a>,
        ext4: Ext4Options,
        progress: PhaseProgress<'a>,
    ) -> Work<'a> {
        Work {
            catalog,
            chunks,
            scratch,
            monitor: progress.monitor,
            progress,
            options,
            ext4,
            losses: Losses::default(),
            problems: AtomicU64::new(0),
            has_damage: AtomicBool::new(false),
        }
    }

    /// Threads that fetch chunks.
    pub fn fetchers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.options.threads {
            0 => cores(),
            threads => threads,
        }
    }

    /// Chunks on their way or kept.
    pub fn ahead_bytes(&self) -> usize {
        ahead_bytes(&self.options.memory, self.chunks.is_far_away())
    }

    pub fn problem(&self, path: &[u8], action: &'static str, text: &str) {
        if self.options.was_reported(path, action, text) {
            return;
        }
        self.problems.fetch_add(1, Ordering::Relaxed);
        report_problem(self.monitor, path, action, text);
    }

    /// A problem for which the repository is the reason.
    pub fn damage(&self, path: &[u8], action: &'static str, text: &str) {
        self.has_damage.store(true, Ordering::Relaxed);
        self.problem(path, action, text);
    }

    pub fn has_damage(&self) -> bool {
        self.has_damage.load(Ordering::Relaxed)
    }

    pub fn lose(&self, kind: LossKind, path: &[u8], text: &str) {
        self.losses.add(kind, path, text);
    }

    pub fn problems(&self) -> u64 {
        self.problems.load(Ordering::Relaxed)
    }
}
