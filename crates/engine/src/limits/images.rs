//! Bounds of a backup of images.

use super::{CATALOG_BYTES, FETCH_WORKER_BYTES, PROGRAM_BYTES, ROW_BYTES, store_bytes};
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::limits::BUNDLE_BYTES_MAX;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::ordered::ReadAhead;
use bale_repository::limits::FLIGHT_BYTES_LEAST;
use bale_source::raw::extents_memory_bytes;
use bale_source::scan::inode::{emit_bytes, gather_bytes};

/// Threads that read blocks of images and hash them.
const IMAGE_THREADS: usize = 4;
/// What an allocator keeps beside their blocks, for so many threads.
const IMAGE_BESIDE_BYTES: usize = 20 << 20;
/// Blocks that they are ahead.
const IMAGE_BLOCKS_AHEAD: usize = 8;
/// The same with the least memory.
const IMAGE_BLOCKS_AHEAD_LEAST: usize = 2;

/// Rows of an image that wait for a chunk that they share; then it is closed.
pub(crate) const IMAGE_ROWS_WAITING_MAX: usize = 1024;
/// Rows of a view that wait for a bundle of what files have in their inodes; then it is closed.
/// They and the bundles take less than blocks on their way, of which there are none any more.
pub(crate) const VIEW_ROWS_WAITING_MAX: usize = 8 << 10;
/// Bytes of rows of a view that are held because their inodes changed, and of paths of directories
/// in doubt; of more, all are made anew. They take less than sorting all names does.
pub(crate) const FEW_ROWS_BYTES_MAX: usize = 16 << 20;
/// Chunks of the parent that are kept while parts of its images are read.
const IMAGE_PARENT_BYTES: usize = 16 << 20;
/// The same with the least memory: a bundle.
const IMAGE_PARENT_BYTES_LEAST: usize = BUNDLE_BYTES_MAX;

/// Blocks of an image that are read and hashed ahead, and threads that do it.
pub(crate) const fn image_ahead(memory: &MemoryPlan) -> ReadAhead {
    ReadAhead {
        threads: memory.share_from(2, IMAGE_THREADS),
        results: memory.share_from(IMAGE_BLOCKS_AHEAD_LEAST, IMAGE_BLOCKS_AHEAD),
    }
}

/// Ceiling of a first backup of images, whatever their size: blocks on their way and those that
/// wait to be used again, extents of an export, and no table of contents.
const fn first_image_bytes(memory: &MemoryPlan) -> usize {
    let ahead = image_ahead(memory);
    let blocks = (2 * ahead.results + 1) * IMAGE_BLOCK_BYTES as usize;
    PROGRAM_BYTES
        + store_bytes(memory.workers())
        + CATALOG_BYTES
        + blocks
        + extents_memory_bytes(ahead.threads)
        + memory.share(IMAGE_BESIDE_BYTES)
}

/// What a scan of a file system may take while blocks of its image are stored; `None`: there is no
/// room for it.
pub(crate) fn scan_beside_images(memory: &MemoryPlan) -> Option<MemoryPlan> {
    let plans = SCAN_BESIDE_BYTES.into_iter();
    let mut plans = plans.filter_map(|bytes| MemoryPlan::new(bytes, 1));
    plans.find(|plan| {
        let scan = gather_bytes(plan).max(emit_bytes(plan));
        image_bytes(memory) + scan <= memory.inode_bytes()
    })
}

/// Plans for such a scan, the one with most first: what it takes itself is about a half of it.
const SCAN_BESIDE_BYTES: [usize; 4] = [320 << 20, 256 << 20, 192 << 20, 128 << 20];

/// Chunks of the parent that are read at once, to be compared with, and bytes of them that are
/// kept.
pub(crate) const fn image_parent_chunks(memory: &MemoryPlan) -> (usize, usize) {
    let reads = if memory.workers() > 2 {
        2
    } else {
        memory.workers()
    };
    let bytes = memory.share_from(IMAGE_PARENT_BYTES_LEAST, IMAGE_PARENT_BYTES);
    (reads, bytes)
}

/// Ceiling of a backup of images: blocks that changed are compared with the parent's, each thread
/// having one of those, and what is new of them is bundled.
pub const fn image_bytes(memory: &MemoryPlan) -> usize {
    let (reads, bytes) = image_parent_chunks(memory);
    first_image_bytes(memory)
        + (image_ahead(memory).threads + 1) * IMAGE_BLOCK_BYTES as usize
        + IMAGE_ROWS_WAITING_MAX * ROW_BYTES
        + reads * FETCH_WORKER_BYTES
        + bytes
        + FLIGHT_BYTES_LEAST
        + bale_restore::image_reader::parts_memory_bytes(image_ahead(memory).threads)
}
