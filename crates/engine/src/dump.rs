//! Dumping from a repository: its catalog, index and packs behind the seams of a dump.

use crate::restore::{RepositoryChunks, SnapshotCatalog};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_restore::ScratchSpace;
use bale_restore::dump::{DumpError, DumpReport, dump};
use std::io::Write;
use std::sync::Arc;

/// Writes the file, or the tree, at `path` (without leading slash) of a snapshot.
pub fn dump_snapshot(
    repository: &Arc<Repository>,
    snapshot: &Named,
    path: &[u8],
    scratch: &ScratchSpace,
    out: &mut dyn Write,
    monitor: &dyn Monitor,
) -> Result<DumpReport> {
    let catalog = SnapshotCatalog::open(repository, snapshot.1.layers.clone())?;
    let chunks = RepositoryChunks::new(repository.clone())?;
    dump(&catalog, &chunks, scratch, path, out, monitor).map_err(|error| match error {
        DumpError::Stopped => Error::Interrupted,
        DumpError::NotFound => Error::NoPath {
            path: format!("/{}", String::from_utf8_lossy(path)),
            snapshot: snapshot.0.short(),
        },
        other => Error::Other(bale_pipeline::error::with_causes(&other)),
    })
}
