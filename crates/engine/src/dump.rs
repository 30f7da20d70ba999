//! Dumping from a repository: its catalog, index and packs behind the seams of a dump.

use crate::restore::{RepositoryChunks, SnapshotCatalog, into_engine_error};
use bale_format::Entry;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_restore::dump::{ArchiveFormat, DumpError, DumpReport, content, dump_as};
use bale_restore::{ChunkSource, Everything, RestoreOptions, ScratchSpace, make_readable};
use bytes::Bytes;
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
    let options = options_of(path);
    dump_when_readable(
        repository,
        snapshot,
        (&options, None),
        scratch,
        out,
        monitor,
    )
}

/// What a dump reads is what a restore of that path would.
pub fn options_of(path: &[u8]) -> RestoreOptions<'static> {
    RestoreOptions {
        below: Bytes::copy_from_slice(path),
        ..RestoreOptions::new(&Everything)
    }
}

/// The same of the path in `options`, once their warmer has made readable what is needed; with a
/// format, only of a directory.
pub fn dump_when_readable(
    repository: &Arc<Repository>,
    snapshot: &Named,
    (options, format): (&RestoreOptions, Option<ArchiveFormat>),
    scratch: &ScratchSpace,
    out: &mut dyn Write,
    monitor: &dyn Monitor,
) -> Result<DumpReport> {
    let path = &options.below[..];
    let catalog = SnapshotCatalog::of(repository, &snapshot.1)?;
    let chunks = RepositoryChunks::new(repository.clone())?;
    let mut problems = 0;
    if let Some(warmer) = options.warmer {
        let made = make_readable(&catalog, &chunks, scratch, options, monitor, warmer);
        problems = made.map_err(|error| into_engine_error(error, snapshot, options))?;
    }
    let readable = options.readable(&chunks);
    let chunks = readable
        .as_ref()
        .map_or(&chunks as &dyn ChunkSource, |chunks| chunks);
    let dumped = dump_as(format, (&catalog, chunks), scratch, path, out, monitor);
    let mut report = dumped.map_err(|error| match error {
        DumpError::Stopped => Error::Interrupted,
        DumpError::NotFound => Error::NoPath {
            path: format!("/{}", String::from_utf8_lossy(path)),
            snapshot: snapshot.0.short(),
        },
        other => Error::Other(bale_pipeline::error::with_causes(&other)),
    })?;
    report.problems += problems;
    Ok(report)
}

/// Contents of files of any snapshot, beside each other.
pub struct FileContents(RepositoryChunks);

impl FileContents {
    pub fn of(repository: &Arc<Repository>) -> Result<FileContents> {
        Ok(FileContents(RepositoryChunks::new(repository.clone())?))
    }

    /// The first byte in which two regular files differ; `None`: they are the same. `Err`: why it
    /// cannot be known.
    pub fn first_difference(
        &self,
        old: &Entry,
        new: &Entry,
        stopped: &dyn Fn() -> bool,
    ) -> std::result::Result<Option<u64>, String> {
        content::first_difference(&self.0, old, new, stopped)
    }

    /// All bytes of a regular file; `None`: it has more than `bytes_max`.
    pub fn whole(
        &self,
        entry: &Entry,
        bytes_max: u64,
    ) -> std::result::Result<Option<Vec<u8>>, String> {
        content::whole(&self.0, entry, bytes_max)
    }
}
