//! A snapshot of a repository into an image: its catalog, index and packs behind the seams.

use super::{RepositoryChunks, SnapshotCatalog, into_engine_error, seams_within};
use crate::limits::ext4_flight_bytes;
use bale_fsimage::Timestamp;
use bale_fsimage::mkext4::Ext4Options;
use bale_pipeline::monitor::Monitor;
use bale_pipeline::random::draw;
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_restore::ext4::{Ext4Report, ImageTarget, restore, verify};
use bale_restore::{ChunkSource, RestoreOptions, RestoreReport, ScratchSpace, make_readable};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Restores a snapshot into a new file system, or compares one with it.
pub struct SnapshotToExt4<'a> {
    pub repository: &'a Arc<Repository>,
    pub snapshot: &'a Named,
    pub options: RestoreOptions<'a>,
    /// Into what.
    pub ext4: Ext4Options,
}

impl SnapshotToExt4<'_> {
    /// A file system of now, with an identity of its own.
    pub fn usual_options(repository: &Repository) -> Result<Ext4Options> {
        let drawn = |error| Error::local("draw random bytes from", "the kernel")(error);
        let mut uuid: [u8; 16] = draw(repository.random()).map_err(drawn)?;
        // Version 4, variant 1: a random UUID.
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let now = repository.clock().time();
        Ok(Ext4Options {
            uuid,
            hash_seed: draw(repository.random()).map_err(drawn)?,
            created: Timestamp {
                seconds: now.seconds,
                nanos: now.nanos,
            },
            ..Ext4Options::default()
        })
    }

    fn seams(&self, monitor: &dyn Monitor) -> Result<(SnapshotCatalog, RepositoryChunks)> {
        let bytes = ext4_flight_bytes(&self.repository.memory());
        seams_within(self.repository, self.snapshot, bytes, monitor)
    }

    /// Writes it.
    pub fn restore(
        &self,
        target: ImageTarget,
        scratch: &ScratchSpace,
        monitor: &dyn Monitor,
    ) -> Result<Ext4Report> {
        let (catalog, chunks) = self.seams(monitor)?;
        let failed = |error| into_engine_error(error, self.snapshot, &self.options);
        let mut problems = 0;
        if let Some(warmer) = self.options.warmer {
            let options = &self.options;
            let made = make_readable(&catalog, &chunks, scratch, options, monitor, warmer);
            problems = made.map_err(failed)?;
        }
        let readable = self.options.readable(&chunks);
        let chunks = readable
            .as_ref()
            .map_or(&chunks as &dyn ChunkSource, |chunks| chunks);
        let options = (self.ext4.clone(), &self.options);
        let restored = restore(&catalog, chunks, scratch, target, options, monitor);
        let mut report = restored.map_err(failed)?;
        report.restored.problems += problems;
        Ok(report)
    }

    /// Reads back what was written to `path`.
    pub fn verify(
        &self,
        path: &Path,
        scratch: &ScratchSpace,
        monitor: &dyn Monitor,
    ) -> Result<RestoreReport> {
        let (catalog, chunks) = self.seams(monitor)?;
        let image = File::open(path).map_err(Error::local("open", path))?;
        let options = (self.ext4.clone(), &self.options);
        verify(&catalog, &chunks, scratch, image, options, monitor)
            .map_err(|error| into_engine_error(error, self.snapshot, &self.options))
    }
}
