//! Bounds of a backup by name, and the proof that with those of the other crates each way of
//! working stays below the ceiling of its [`MemoryPlan`].
//!
//! What grows with stored bytes instead of being bounded here: the chunk index (see `index.rs`,
//! formula at the struct).

/// Mean bytes of files after `BUNDLE_BYTES_MIN` until content closes a bundle.
pub(crate) const BUNDLE_BYTES_EXTRA_MEAN: usize = 1 << 20;
/// A bundle is closed at this many files at the latest, so that rows waiting for its id stay few.
pub(crate) const BUNDLE_FILES_MAX: usize = 16 << 10;
/// Rows that wait for an open bundle's id; then all bundles are closed.
pub(crate) const ROWS_WAITING_MAX: usize = 48 << 10;
/// Bytes of memory a waiting row takes, mean with its name (measured 280).
pub(crate) const ROW_BYTES: usize = 320;

/// Items between comparing and packing.
pub(crate) const ITEMS_QUEUED_MAX: usize = 8 << 10;
/// Items handed over together.
pub const ITEMS_BATCH_MAX: usize = 256;
/// The same, in bytes of content that was read already.
pub(crate) const ITEMS_BATCH_BYTES_MAX: u64 = 512 << 10;
/// Content in batches on their way; a batch is that much and a file more.
pub(crate) const ITEMS_BYTES_MAX: usize = 16 << 20;
/// Files asked for one by one where most come arranged.
pub(crate) const WINDOW_BESIDE_ARRANGED_BYTES: usize = 8 << 20;
/// Threads that read those.
pub(crate) const THREADS_BESIDE_ARRANGED: usize = 8;
/// Files between two calls of the monitor.
pub(crate) const PROGRESS_EVERY: u64 = 256;
/// Inodes that are remembered as told by the kernel: 8 bytes each. With more of them, digests of
/// inodes are not kept.
pub(crate) const LIVE_STATTED_MAX: usize = 1 << 20;
/// Thin chunks listed in a snapshot: at most a gibibyte is stored afresh by the next backup.
pub(crate) const THIN_CHUNKS_MAX: usize = 1024;
/// Tables of content seen before: 12 MiB in `dedup_cache`, 2 MiB of blocks, a batch and a merge
/// there, and `linked_inodes`.
pub(crate) const SEEN_BYTES: usize = 26 << 20;

/// Seconds between two records of an unfinished run.
pub(crate) const CHECKPOINT_SECONDS: u64 = 300;
/// A run whose last sign of life is younger is under way. It replaces it every
/// `CHECKPOINT_SECONDS`; a store may be slow.
pub(crate) const ALIVE_SECONDS: u64 = 3 * CHECKPOINT_SECONDS;
/// Stored bytes between two records of an unfinished run.
pub(crate) const CHECKPOINT_BYTES: u64 = 8 << 30;

use bale_format::chunk::CONTEXT_BYTES_MAX;
use bale_format::limits::BUNDLE_BYTES_MAX;
use bale_format::record::record_bytes;
use bale_pipeline::memory::{
    INODE_MEMORY_BYTES_USUAL, MEMORY_BYTES_MIN, MemoryPlan, WORKER_BYTES, WORKERS_MAX,
};
use bale_repository::limits::{
    CHUNK_CACHE_BYTES, ENCODE_QUEUE_PER_WORKER, SPARE_BUFFERS_MAX, WRITER_BYTES_CACHED_MAX,
    WRITER_BYTES_MAX,
};
use bale_source::read::{ARRANGED_BYTES_MAX, SMALL_WINDOW_BYTES_MAX, device_bytes, read_bytes};
use bale_source::scan;
use bale_source::scan::inode::{EMIT_BYTES_MAX, INODE_SCAN_BYTES_MAX};

/// The program, stacks, and what small blocks take beside their bytes (measured 15 MiB). With less
/// than the usual ceiling those from 256 KiB on take nothing beside them (`bale_sys::memory`).
const PROGRAM_BYTES: usize = 20 << 20;
/// A chunk, as it is sealed.
const CHUNK_BYTES: usize = record_bytes(BUNDLE_BYTES_MAX);
/// Segments: one of the catalog being made, one being encoded, two of the parent.
const CATALOG_BYTES: usize = 12 << 20;
/// Compressed, sealed, opened again and decompressed again; contexts; and the pack being written.
const ENCODE_WORKER_BYTES: usize = 4 * CHUNK_BYTES + CONTEXT_BYTES_MAX + WRITER_BYTES_MAX;
/// A chunk as it was stored, opened and decompressed, and contexts.
const FETCH_WORKER_BYTES: usize = 3 * CHUNK_BYTES + (1 << 20);

/// Storing: what each thread has, chunks waiting and being encoded, two open bundles, a piece, and
/// one handed over.
const fn store_bytes(workers: usize) -> usize {
    let chunks = workers * (1 + ENCODE_QUEUE_PER_WORKER) + 4;
    workers * ENCODE_WORKER_BYTES + chunks * CHUNK_BYTES + WRITER_BYTES_CACHED_MAX
}

/// What every backup takes beside its scan and its reading.
const fn pack_bytes(memory: &MemoryPlan) -> usize {
    PROGRAM_BYTES
        + store_bytes(memory.workers())
        + (memory.share(ROWS_WAITING_MAX) + ITEMS_QUEUED_MAX) * ROW_BYTES
        + memory.share(SEEN_BYTES)
        + CATALOG_BYTES
}

/// Ceiling of a backup that walks. Beside all of these stands the index of the chunks that the
/// repository has, 64 bytes for each (`bale_repository::index`).
pub const fn walk_bytes(memory: &MemoryPlan) -> usize {
    let window = memory.share(SMALL_WINDOW_BYTES_MAX as usize);
    pack_bytes(memory) + scan::walk_bytes(memory) + read_bytes(window)
}

/// Ceiling of a backup by inodes: while inodes and names are gathered, or while contents are read
/// and packed. Contents on their way are parts of the buckets that are read arranged.
pub const fn inode_bytes(memory: &MemoryPlan) -> usize {
    let gather = PROGRAM_BYTES + INODE_SCAN_BYTES_MAX;
    let window = memory.inode_share(WINDOW_BESIDE_ARRANGED_BYTES);
    let threads = memory.inode_share(THREADS_BESIDE_ARRANGED);
    let read = ARRANGED_BYTES_MAX + read_bytes(window) + device_bytes(threads);
    let pack = pack_bytes(memory) + EMIT_BYTES_MAX + read;
    if gather > pack { gather } else { pack }
}

/// What reading a snapshot takes: its catalog, chunks that are kept, and threads that fetch chunks.
const fn fetch_bytes(memory: &MemoryPlan, threads: usize) -> usize {
    PROGRAM_BYTES
        + CATALOG_BYTES
        + memory.share(CHUNK_CACHE_BYTES)
        + threads * FETCH_WORKER_BYTES
        + SPARE_BUFFERS_MAX * BUNDLE_BYTES_MAX
}

/// Ceiling of a restore through the kernel.
pub const fn restore_bytes(memory: &MemoryPlan) -> usize {
    fetch_bytes(memory, 2 * memory.workers()) + bale_restore::memory_bytes(memory)
}

/// Ceiling of a restore to an ext4 file system.
pub const fn restore_to_ext4_bytes(memory: &MemoryPlan) -> usize {
    fetch_bytes(memory, memory.workers()) + bale_restore::ext4::memory_bytes(memory)
}

/// Does everything but a backup by inodes stay below the ceiling of its plan?
const fn holds(memory: &MemoryPlan) -> bool {
    walk_bytes(memory) <= memory.bytes()
        && restore_bytes(memory) <= memory.bytes()
        && restore_to_ext4_bytes(memory) <= memory.bytes()
}

/// From here on a backup by inodes stays below every ceiling that is asked for. With less it is
/// measured (`bale-cli`, tests/memory.rs).
const INODE_MEMORY_BYTES_PROVEN: usize = INODE_MEMORY_BYTES_USUAL;

// With as many threads as a machine may have.
const _: () = {
    let mut processors = 1;
    while processors <= WORKERS_MAX {
        let memory = MemoryPlan::of_machine(processors);
        assert!(holds(&memory) && inode_bytes(&memory) <= memory.inode_bytes());
        processors += 1;
    }
};
// And with the ceilings that are asked for.
const _: () = {
    let mut bytes = MEMORY_BYTES_MIN;
    while bytes <= 1 << 30 {
        match MemoryPlan::new(bytes, WORKERS_MAX) {
            Some(memory) => {
                assert!(holds(&memory));
                assert!(bytes < INODE_MEMORY_BYTES_PROVEN || inode_bytes(&memory) <= bytes);
            }
            None => panic!("above the least"),
        }
        bytes += 4 << 20;
    }
};
const _: () = assert!(store_bytes(2) - store_bytes(1) <= WORKER_BYTES);
