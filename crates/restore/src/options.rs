//! What a restore shall do.

use crate::{ChunkSource, Protected, ReadableChunks, ReportedProblems, Selection, Warmer};
use bale_pipeline::memory::MemoryPlan;
use bytes::Bytes;

/// What to do with a file that exists in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Write it again, always.
    Always,
    /// Keep its content if kind, size and mtime are equal.
    #[default]
    IfChanged,
    /// Leave it alone. Directories still get the snapshot's metadata.
    Never,
    /// Give it the snapshot's metadata, whatever its content is; make and replace nothing.
    MetadataOnly,
}

/// What a restore shall do.
#[derive(Clone)]
pub struct RestoreOptions<'a> {
    /// Path in the snapshot whose children become the target's; empty for all. Without leading
    /// slash.
    pub below: Bytes,
    pub select: &'a dyn Selection,
    /// Files that exist.
    pub overwrite: Overwrite,
    /// Remove what is not in the snapshot (only paths that are selected).
    pub delete: bool,
    /// What deleting leaves alone.
    pub guard: Protected,
    /// Dry run: report to the monitor what would be done.
    pub dry_run: bool,
    /// What is wrong with the catalog was told and counted by a restore before: only of `verify`.
    pub is_plan_reported: bool,
    /// What a restore has told, for the `verify` that follows: it tells and counts only what is
    /// new.
    pub reported: Option<&'a ReportedProblems>,
    /// Begin even if the target's file system seems too small.
    pub force_space: bool,
    /// Restore device nodes, named pipes and sockets.
    pub specials: bool,
    /// Restore immutable, append-only and the like, and project ids.
    pub inode_flags: bool,
    /// Wait at the end until everything is on the device.
    pub sync: bool,
    /// Threads; 0 for two a core, if there is memory for them.
    pub threads: usize,
    /// What it may take.
    pub memory: MemoryPlan,
    /// Makes packs readable before they are read; `None`: they are.
    pub warmer: Option<&'a dyn Warmer>,
}

impl<'a> RestoreOptions<'a> {
    /// Everything, into a target where equal files are kept.
    pub fn new(select: &'a dyn Selection) -> RestoreOptions<'a> {
        RestoreOptions {
            below: Bytes::new(),
            select,
            overwrite: Overwrite::default(),
            delete: false,
            guard: Protected::default(),
            dry_run: false,
            is_plan_reported: false,
            reported: None,
            force_space: false,
            specials: true,
            inode_flags: false,
            sync: true,
            threads: 0,
            memory: MemoryPlan::default(),
            warmer: None,
        }
    }

    /// Chunks of what was made readable; `None`: all are.
    pub fn readable<'c>(&self, chunks: &'c dyn ChunkSource) -> Option<ReadableChunks<'c>>
    where
        'a: 'c,
    {
        let warmer = self.warmer?;
        Some(ReadableChunks::new(chunks, warmer))
    }

    /// True if an earlier restore reported this problem; remembers it otherwise.
    pub(crate) fn was_reported(&self, path: &[u8], action: &str, text: &str) -> bool {
        match self.reported {
            Some(reported) if self.is_plan_reported => reported.covers(path, action, text),
            Some(reported) => {
                reported.add(path, action, text);
                false
            }
            None => false,
        }
    }
}
