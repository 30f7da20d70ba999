//! Dumping from a repository: its catalog, index and packs behind the seams of a dump.

use crate::restore::{RepositoryChunks, SnapshotCatalog};
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_restore::Scratch;
use bale_restore::dump::{DumpError, DumpReport, dump};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes the file, or the tree, at `path` (without leading slash) of a snapshot.
pub fn dump_snapshot(
    repository: &Arc<Repository>,
    snapshot: &Named,
    path: &[u8],
    scratch: &dyn Scratch,
    out: &mut dyn Write,
    monitor: &dyn Monitor,
) -> Result<DumpReport> {
    let catalog = SnapshotCatalog::open(repository, snapshot.1.layers.clone())?;
    let chunks = RepositoryChunks::new(repository.clone())?;
    let watch = DumpMonitor {
        monitor,
        entries: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    dump(&catalog, &chunks, scratch, path, out, &watch).map_err(|error| match error {
        DumpError::Stopped => Error::Interrupted,
        DumpError::NotFound => Error::NoPath {
            path: format!("/{}", String::from_utf8_lossy(path)),
            snapshot: snapshot.0.short(),
        },
        other => Error::Other(bale_pipeline::error::with_causes(&other)),
    })
}

/// Forwards a dump's events to the engine's monitor.
struct DumpMonitor<'m> {
    monitor: &'m dyn Monitor,
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl bale_restore::Monitor for DumpMonitor<'_> {
    fn progress(&self, entries: u64, bytes: u64) {
        let progress = Progress {
            done: self.entries.fetch_add(entries, Ordering::Relaxed) + entries,
            bytes_done: self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes,
            ..Progress::default()
        };
        self.monitor.progress(Phase::Restore, progress);
    }

    fn problem(&self, path: &[u8], action: &'static str, text: &str) {
        self.monitor.problem(&Problem {
            path: path.to_vec(),
            action,
            text: text.to_owned(),
        });
    }

    fn stop(&self) -> bool {
        self.monitor.interrupted()
    }
}
