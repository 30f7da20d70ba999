//! The bytes of an image at any place, for whoever serves it: nothing is written, and memory does
//! not grow with the image.
//!
//! Where a byte is stored is read from the catalog in windows, and chunks are kept while somebody
//! is likely to want them again. Who reads forward has the next chunks read by other threads. What
//! cannot be read fails the reads that need it, each time they are made, and nothing else.

mod chunks;
mod forward;
mod map;

use crate::CatalogSource;
use crate::extents::Stretch;
use bale_format::ImageExtent;
use bale_format::limits::BUNDLE_BYTES_MAX;
use bale_pipeline::memory::MemoryPlan;
pub use chunks::CachedChunks;
use forward::ForwardReads;
use map::ImageMap;
use std::ops::Range;
use std::sync::Arc;

/// Images that share their chunks, at most.
pub const IMAGES_AT_ONCE_MAX: usize = 32;
/// Windows of rows that a reader of parts keeps.
const PARTS_WINDOWS_MAX: usize = 2;
/// Chunks that are read at once, at most.
const READS_AT_ONCE_MAX: usize = 8;
/// Bytes of chunks that are kept, with the usual ceiling of memory.
const CHUNKS_BYTES: usize = 64 << 20;
/// The same with the least memory.
const CHUNKS_BYTES_LEAST: usize = 16 << 20;

/// Chunks that are read at once, for clients and ahead of them.
pub const fn reads_at_once(memory: &MemoryPlan) -> usize {
    if memory.workers() < READS_AT_ONCE_MAX {
        memory.workers()
    } else {
        READS_AT_ONCE_MAX
    }
}

/// What readers that share their chunks take at most, beside chunks that are being fetched.
pub const fn memory_bytes(memory: &MemoryPlan) -> usize {
    chunks_bytes(memory) + map::MEMORY_BYTES
}

/// What a reader of parts takes, used by so many threads, beside its chunks.
pub const fn parts_memory_bytes(threads: usize) -> usize {
    (PARTS_WINDOWS_MAX + threads) * map::WINDOW_BYTES
}

const fn chunks_bytes(memory: &MemoryPlan) -> usize {
    memory.share_from(CHUNKS_BYTES_LEAST, CHUNKS_BYTES)
}

// Chunks that are read ahead do not push each other out before they are read.
const _: () = assert!(2 * forward::AHEAD_BYTES as usize <= CHUNKS_BYTES_LEAST);
const _: () = assert!(forward::AHEAD_BYTES as usize >= BUNDLE_BYTES_MAX);

/// A part of an image that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {} to {} of the image: {text}", range.start, range.end)]
pub struct UnreadableRange {
    pub range: Range<u64>,
    /// Why.
    pub text: String,
}

/// An image of a snapshot. Used by many threads at once.
pub struct ImageReader {
    map: ImageMap,
    chunks: Arc<CachedChunks>,
    /// `None`: nothing is read ahead.
    forward: Option<ForwardReads>,
    size: u64,
}

impl ImageReader {
    /// Of the image at this path of a catalog, of so many bytes, which shares chunks with others,
    /// so many of them in all. Reads nothing yet.
    pub fn new(
        catalog: Arc<dyn CatalogSource + Send>,
        chunks: (&Arc<CachedChunks>, usize),
        (path, size): (&[u8], u64),
    ) -> ImageReader {
        let (chunks, images) = chunks;
        ImageReader {
            map: ImageMap::new(catalog, path, size, images),
            chunks: chunks.clone(),
            forward: Some(ForwardReads::default()),
            size,
        }
    }

    /// The same for who reads a part here and a part there: nothing is read ahead, and two windows
    /// of its rows are kept.
    pub fn of_parts(
        catalog: Arc<dyn CatalogSource + Send>,
        chunks: &Arc<CachedChunks>,
        image: (&[u8], u64),
    ) -> ImageReader {
        let few = IMAGES_AT_ONCE_MAX / PARTS_WINDOWS_MAX;
        ImageReader {
            forward: None,
            ..ImageReader::new(catalog, (chunks, few), image)
        }
    }

    /// Bytes of the image.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The run that is at `offset`, which lies in the image: its length, and whether it holds
    /// nothing. It may go on behind it.
    pub fn run_at(&self, offset: u64) -> (u64, bool) {
        self.map.run_at(offset)
    }

    /// What is stored of a part of the image, which lies in it; `None`: not all that is there is
    /// known, or it is in more extents than that.
    pub fn extents(&self, range: Range<u64>, most: usize) -> Option<Vec<ImageExtent>> {
        let mut extents = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let stretch = self.map.at(at);
            at = stretch.end();
            match stretch {
                Stretch::Zeros(_) => {}
                Stretch::Data(extent) if extents.len() < most => extents.push(extent),
                Stretch::Data(_) | Stretch::Unknown(..) => return None,
            }
        }
        Some(extents)
    }

    /// Fills the buffer with what is at `offset`; all of it lies in the image.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), UnreadableRange> {
        let end = offset + buffer.len() as u64;
        let forward = self.forward.as_ref();
        if let Some(ahead) = forward.and_then(|forward| forward.next(offset..end, self.size)) {
            self.read_ahead(ahead);
        }
        let mut at = offset;
        while at < end {
            let stretch = self.map.at(at);
            let to = stretch.end().min(end);
            let part = &mut buffer[(at - offset) as usize..(to - offset) as usize];
            match stretch {
                Stretch::Zeros(_) => part.fill(0),
                Stretch::Data(extent) => self.copy(&extent, at..to, part)?,
                Stretch::Unknown(range, text) => return Err(UnreadableRange { range, text }),
            }
            at = to;
        }
        Ok(())
    }

    fn copy(
        &self,
        extent: &ImageExtent,
        wanted: Range<u64>,
        part: &mut [u8],
    ) -> Result<(), UnreadableRange> {
        let unreadable = |text| UnreadableRange {
            range: extent.start..extent.end(),
            text,
        };
        let chunk = self.chunks.read(&extent.chunk).map_err(unreadable)?;
        let bytes = crate::row::bundled(&chunk, extent.offset, extent.bytes);
        let bytes = bytes.map_err(unreadable)?;
        let from = (wanted.start - extent.start) as usize;
        part.copy_from_slice(&bytes[from..from + part.len()]);
        Ok(())
    }

    /// Has others read the chunks of a part of the image.
    fn read_ahead(&self, range: Range<u64>) {
        let mut ids = Vec::new();
        let mut at = range.start;
        for _ in 0..forward::STRETCHES_AHEAD_MAX {
            if at >= range.end {
                break;
            }
            let stretch = self.map.at(at);
            at = stretch.end();
            match stretch {
                Stretch::Data(extent) if ids.last() == Some(&extent.chunk) => {}
                Stretch::Data(extent) => ids.push(extent.chunk),
                Stretch::Zeros(_) => {}
                // Nobody waits for it a second time for what nobody wants yet.
                Stretch::Unknown(..) => break,
            }
        }
        self.chunks.read_ahead(&ids);
    }
}
