//! Images as the parent has them, for what a server of changes does not give.
//!
//! A server that hands out nothing but what changed gives less than a block: the rest of it is read
//! here. What the parent has lost is named, and zeros.

use super::super::parent::Parent;
use crate::limits::image_parent_chunks;
use crate::restore::{RepositoryChunks, SnapshotCatalog};
use bale_format::ImageExtent;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_repository::error::Result;
use bale_repository::limits::FLIGHT_BYTES_LEAST;
use bale_repository::repository::Repository;
use bale_restore::CatalogSource;
use bale_restore::image_reader::{CachedChunks, ImageReader};
use bale_source::raw::UnreadPart;
use std::sync::Arc;

/// The parent's catalog, and chunks that its images share.
pub(super) struct ParentImages {
    catalog: Arc<dyn CatalogSource + Send>,
    chunks: Arc<CachedChunks>,
}

impl ParentImages {
    pub(super) fn open(repository: &Arc<Repository>, parent: &Parent) -> Result<ParentImages> {
        let memory = repository.memory();
        let catalog = SnapshotCatalog::of_layers(repository, parent.catalog.layers().to_vec())?;
        let chunks = RepositoryChunks::within(repository.clone(), FLIGHT_BYTES_LEAST)?;
        let (reads, bytes) = image_parent_chunks(&memory);
        let chunks = CachedChunks::without_threads(Arc::new(chunks), reads, bytes);
        Ok(ParentImages {
            catalog: Arc::new(catalog),
            chunks: Arc::new(chunks),
        })
    }

    /// The image of this row, of so many bytes.
    pub(super) fn image(&self, name: &[u8], size: u64) -> ParentImage {
        let catalog = self.catalog.clone();
        ParentImage(ImageReader::of_parts(catalog, &self.chunks, (name, size)))
    }
}

/// One image as the parent has it.
pub(super) struct ParentImage(ImageReader);

impl ParentImage {
    /// Fills the buffer with what is at `offset`; what of it is lost.
    pub(super) fn fill(&self, offset: u64, buffer: &mut [u8]) -> Vec<UnreadPart> {
        let end = offset + buffer.len() as u64;
        let (mut at, mut to) = (offset, end);
        let mut lost = Vec::new();
        while at < end {
            let part = &mut buffer[(at - offset) as usize..(to - offset) as usize];
            let Err(unreadable) = self.0.read_at(at, part) else {
                (at, to) = (to, end);
                continue;
            };
            let from = unreadable.range.start.clamp(at, to);
            if from > at {
                // What is in front of it is read alone.
                to = from;
                continue;
            }
            let behind = unreadable.range.end.clamp(at + 1, to);
            buffer[(at - offset) as usize..(behind - offset) as usize].fill(0);
            lost.push(UnreadPart {
                range: at..behind,
                text: format!("the parent snapshot has lost it: {}", unreadable.text),
            });
            (at, to) = (behind, end);
        }
        lost
    }

    /// All bytes of an extent, and what of them is lost.
    pub(super) fn extent(&self, extent: &ImageExtent) -> (Vec<u8>, Vec<UnreadPart>) {
        // A row that says more than it may is one that the reader finds nothing behind.
        let left = self.0.size().saturating_sub(extent.start);
        let mut bytes = vec![0; extent.bytes.min(left).min(IMAGE_BLOCK_BYTES) as usize];
        let lost = self.fill(extent.start, &mut bytes);
        (bytes, lost)
    }
}
