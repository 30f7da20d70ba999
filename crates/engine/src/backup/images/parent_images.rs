//! Images as the parent has them, for what a server of changes does not give.
//!
//! A block that changed is compared with what the parent has of it. And a server that hands out
//! nothing but what changed gives less than a block: the rest of it is read here. What the parent
//! has lost is named, and zeros.

use super::super::parent::Parent;
use crate::limits::image_parent_chunks;
use crate::restore::{RepositoryChunks, SnapshotCatalog};
use bale_format::ImageExtent;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_fsimage::ByteSource;
use bale_repository::error::Result;
use bale_repository::limits::FLIGHT_BYTES_LEAST;
use bale_repository::repository::Repository;
use bale_restore::CatalogSource;
use bale_restore::image_reader::{CachedChunks, ImageReader};
use bale_source::raw::UnreadPart;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks that cannot be compared since the parent has lost some of them; then no more are tried.
const LOST_BLOCKS_MAX: usize = 64;

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
        ParentImage {
            reader: ImageReader::of_parts(catalog, &self.chunks, (name, size)),
            lost_blocks: AtomicUsize::new(0),
        }
    }
}

impl ByteSource for ParentImage {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.reader.read_at(offset, buf).map_err(io::Error::other)
    }

    fn len_bytes(&self) -> u64 {
        self.size()
    }
}

/// One image as the parent has it.
pub(super) struct ParentImage {
    reader: ImageReader,
    lost_blocks: AtomicUsize,
}

impl ParentImage {
    /// Bytes of the image.
    pub(super) fn size(&self) -> u64 {
        self.reader.size()
    }

    /// What is stored of a part of it; `None`: that is not known, or they are more than so many.
    pub(super) fn extents(&self, range: Range<u64>, most: usize) -> Option<Vec<ImageExtent>> {
        self.reader.extents(range, most)
    }

    /// A part of the image of at most a block, if the parent has all of it.
    pub(super) fn whole(&self, range: &Range<u64>) -> Option<Vec<u8>> {
        if self.lost_blocks.load(Ordering::Relaxed) >= LOST_BLOCKS_MAX {
            return None;
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = self.reader.read_at(range.start, &mut bytes);
        if read.is_err() {
            self.lost_blocks.fetch_add(1, Ordering::Relaxed);
        }
        read.is_ok().then_some(bytes)
    }

    /// Fills the buffer with what is at `offset`; what of it is lost.
    pub(super) fn fill(&self, offset: u64, buffer: &mut [u8]) -> Vec<UnreadPart> {
        let end = offset + buffer.len() as u64;
        let (mut at, mut to) = (offset, end);
        let mut lost = Vec::new();
        while at < end {
            let part = &mut buffer[(at - offset) as usize..(to - offset) as usize];
            let Err(unreadable) = self.reader.read_at(at, part) else {
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
        let left = self.reader.size().saturating_sub(extent.start);
        let mut bytes = vec![0; extent.bytes.min(left).min(IMAGE_BLOCK_BYTES) as usize];
        let lost = self.fill(extent.start, &mut bytes);
        (bytes, lost)
    }
}
