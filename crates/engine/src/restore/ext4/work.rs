//! What every part of a restore into an image is given, and where its troubles are counted.

use crate::restore::losses::{LossKind, Losses};
use crate::restore::{CatalogSource, ChunkSource, Monitor, RestoreOptions, Scratch};
use bale_fsimage::mkext4::Ext4Options;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seams, options and counters of one operation.
pub struct Work<'a> {
    pub catalog: &'a dyn CatalogSource,
    pub chunks: &'a dyn ChunkSource,
    pub scratch: &'a dyn Scratch,
    pub monitor: &'a dyn Monitor,
    pub options: &'a RestoreOptions<'a>,
    /// The file system.
    pub ext4: Ext4Options,
    pub losses: Losses,
    problems: AtomicU64,
}

/// Is this reading of the catalog the one that tells of its troubles? Each is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    Telling,
    Quiet,
}

impl<'a> Work<'a> {
    pub fn new(
        catalog: &'a dyn CatalogSource,
        chunks: &'a dyn ChunkSource,
        scratch: &'a dyn Scratch,
        options: &'a RestoreOptions<'a>,
        ext4: Ext4Options,
        monitor: &'a dyn Monitor,
    ) -> Work<'a> {
        Work {
            catalog,
            chunks,
            scratch,
            monitor,
            options,
            ext4,
            losses: Losses::default(),
            problems: AtomicU64::new(0),
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

    pub fn problem(&self, path: &[u8], action: &'static str, text: &str) {
        self.problems.fetch_add(1, Ordering::Relaxed);
        self.monitor.problem(path, action, text);
    }

    pub fn lose(&self, kind: LossKind, path: &[u8], text: &str) {
        self.losses.add(kind, path, text);
    }

    pub fn problems(&self) -> u64 {
        self.problems.load(Ordering::Relaxed)
    }
}
