//! Bounds of a backup by name, and the proof that with those of the other crates each way of
//! working stays below the ceiling of its [`MemoryPlan`].
//!
//! What grows with stored bytes instead of being bounded here: the chunk index (see `index.rs`,
//! formula at the struct).

mod images;

pub use images::image_bytes;
pub(crate) use images::{
    FEW_ROWS_BYTES_MAX, IMAGE_ROWS_WAITING_MAX, VIEW_ROWS_WAITING_MAX, image_ahead,
    image_parent_chunks, scan_beside_images,
};

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
pub(crate) const ITEMS_BATCH_BYTES_MAX: usize = 512 << 10;
/// Content in batches on their way; a batch is that much and a file more.
const ITEMS_BYTES_MAX: usize = 16 << 20;
/// Files asked for one by one where most come arranged.
const WINDOW_BESIDE_ARRANGED_BYTES: usize = 8 << 20;
/// Threads that read those.
const THREADS_BESIDE_ARRANGED: usize = 8;
/// Files between two calls of the monitor.
pub(crate) const PROGRESS_EVERY: u64 = 256;
/// Inodes that are remembered as told by the kernel, with the usual ceiling of memory: 8 bytes
/// each. With more of them, digests of inodes are not kept. A power of two: a list that is copied
/// to become twice as long takes no more than it may in the end.
const LIVE_STATTED_MAX: usize = 1 << 20;
/// The same with less memory.
const LIVE_STATTED_MAX_LEAST: usize = 128 << 10;
/// Thin chunks listed in a snapshot: at most a gibibyte is stored afresh by the next backup.
pub(crate) const THIN_CHUNKS_MAX: usize = 1024;
/// Tables of content seen before: 12 MiB in `dedup_cache`, 2 MiB of blocks, a batch and a merge
/// there, and `linked_inodes`.
const SEEN_BYTES: usize = 26 << 20;
/// The same with the least memory: a quarter, but for the merge.
const SEEN_BYTES_LEAST: usize = 7 << 20;

/// Seconds between two records of an unfinished run.
pub(crate) const CHECKPOINT_SECONDS: u64 = 300;
/// A run whose last sign of life is younger is under way. It replaces it every
/// `CHECKPOINT_SECONDS`; a store may be slow.
pub(crate) const ALIVE_SECONDS: u64 = 3 * CHECKPOINT_SECONDS;
/// Bytes of a stream that are read at once: what a pipe holds.
pub(crate) const STREAM_BLOCK_BYTES: usize = 1 << 20;
/// Stored bytes between two records of an unfinished run.
pub(crate) const CHECKPOINT_BYTES: u64 = 8 << 30;
/// Where that would close a segment, it may be so many times later than `CHECKPOINT_SECONDS`.
pub(crate) const SEGMENT_PATIENCE: u32 = 12;

/// Sorting rows of a copy: by their chunk, or by their place in catalogs.
pub(crate) const COPY_SORT_BYTES: usize = 8 << 20;
/// Chunks of a source that is far away, on their way.
const COPY_FLIGHT_BYTES: usize = 32 << 20;
/// Chunks for a mount of a repository that is far away, on their way.
const MOUNT_FLIGHT_BYTES: usize = 24 << 20;
/// The same with the least memory.
const MOUNT_FLIGHT_BYTES_LEAST: usize = 8 << 20;
/// Chunks of a snapshot that becomes an ext4 file system, on their way.
const EXT4_FLIGHT_BYTES: usize = 32 << 20;
/// The same with the least memory.
const EXT4_FLIGHT_BYTES_LEAST: usize = 4 << 20;
/// A copy names in the index what it has stored each time it is so much, or has taken so long: a
/// killed one stores at most that again.
pub(crate) const COPY_FLUSH_BYTES: u64 = 4 << 30;
/// See there.
pub(crate) const COPY_FLUSH_EVERY: Duration = Duration::from_secs(CHECKPOINT_SECONDS);

use bale_format::chunk::CONTEXT_BYTES_MAX;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::limits::BUNDLE_BYTES_MAX;
use bale_format::record::record_bytes;
use bale_pipeline::memory::{
    INODE_MEMORY_BYTES_REMOTE, INODE_MEMORY_BYTES_USUAL, MEMORY_BYTES_MIN, MemoryPlan,
    WORKER_BYTES, WORKERS_MAX,
};
use bale_pipeline::ordered::ReadAhead;
use bale_pipeline::spill::sorter_bytes;
use bale_repository::limits::{
    CHUNK_CACHE_BYTES, ENCODE_QUEUE_PER_WORKER, FETCHED_BYTES, FLIGHT_BYTES, FLIGHT_BYTES_LEAST,
    OBJECT_FLIGHT_BYTES, SPARE_BLOCKS_MAX, SPARE_BUFFERS_MAX, UPLOADS_MAX, UPLOADS_MAX_SFTP,
    WRITER_BYTES_CACHED_MAX, WRITER_BYTES_MAX,
};
use bale_repository::pack::PackPlan;
use bale_repository::store::StoreShape;
use bale_source::read::{
    BLOCKS_AHEAD_MAX, BLOCKS_AHEAD_MIN, SMALL_BYTES_MAX, SMALL_THREADS_MAX, SMALL_WINDOW_BYTES_MAX,
    arranged_bytes, bucket_bytes, device_bytes, first_names_bytes, large_bytes, small_bytes,
};
use bale_source::scan;
use bale_source::scan::inode::{emit_bytes, gather_bytes, second_look_bytes};
use std::time::Duration;

/// The program, stacks, and what small blocks take beside their bytes (measured 15 MiB). With less
/// than the usual ceiling those from 256 KiB on take nothing beside them (`bale_sys::memory`).
const PROGRAM_BYTES: usize = 20 << 20;
/// A chunk, as it is sealed.
const CHUNK_BYTES: usize = record_bytes(BUNDLE_BYTES_MAX);
/// Segments: one of the catalog being made, one being encoded, two of the parent.
const CATALOG_BYTES: usize = 12 << 20;
/// The first two of them, where there is no parent.
const NEW_CATALOG_BYTES: usize = CATALOG_BYTES / 2;
/// Compressed, sealed, opened again and decompressed again; contexts; and the pack of data
/// being written: one of metadata takes nothing.
const ENCODE_WORKER_BYTES: usize = 4 * CHUNK_BYTES + CONTEXT_BYTES_MAX + WRITER_BYTES_MAX;
/// A chunk as it was stored, opened and decompressed, and contexts.
const FETCH_WORKER_BYTES: usize = 3 * CHUNK_BYTES + (1 << 20);

/// Storing: what each thread has, chunks waiting and being encoded, two open bundles, a piece, and
/// one handed over.
const fn store_bytes(workers: usize) -> usize {
    encode_bytes(workers) + 4 * CHUNK_BYTES
}

const fn encode_bytes(workers: usize) -> usize {
    let chunks = workers * (1 + ENCODE_QUEUE_PER_WORKER);
    workers * ENCODE_WORKER_BYTES + chunks * CHUNK_BYTES + WRITER_BYTES_CACHED_MAX
}

/// Batches of items between comparing and packing.
pub(crate) const fn item_batches(memory: &MemoryPlan) -> usize {
    let batches = memory.share(ITEMS_BYTES_MAX) / ITEMS_BATCH_BYTES_MAX;
    let batches_max = ITEMS_QUEUED_MAX / ITEMS_BATCH_MAX;
    if batches < batches_max {
        batches
    } else {
        batches_max
    }
}

/// Inodes that are remembered as told by the kernel.
pub(crate) const fn live_statted_max(memory: &MemoryPlan) -> usize {
    if memory.inode_bytes() < INODE_MEMORY_BYTES_USUAL {
        return LIVE_STATTED_MAX_LEAST;
    }
    LIVE_STATTED_MAX
}

/// How files are read one by one.
pub(crate) struct ReadLimits {
    pub(crate) small_threads: usize,
    /// Small files asked for and not yet handed out.
    pub(crate) window_bytes: usize,
    /// Reads of a large file in flight.
    pub(crate) blocks_ahead: usize,
}

impl ReadLimits {
    pub(crate) const fn of_walk(memory: &MemoryPlan) -> ReadLimits {
        ReadLimits {
            small_threads: memory.share(SMALL_THREADS_MAX),
            window_bytes: memory.share(SMALL_WINDOW_BYTES_MAX as usize),
            blocks_ahead: memory.share_from(BLOCKS_AHEAD_MIN, BLOCKS_AHEAD_MAX),
        }
    }

    pub(crate) const fn of_inodes(memory: &MemoryPlan) -> ReadLimits {
        ReadLimits {
            small_threads: memory.inode_share(SMALL_THREADS_MAX),
            window_bytes: memory.inode_share(SMALL_WINDOW_BYTES_MAX as usize),
            blocks_ahead: memory.inode_share_from(BLOCKS_AHEAD_MIN, BLOCKS_AHEAD_MAX),
        }
    }

    /// Most files come arranged, so few are asked for one by one.
    pub(crate) const fn beside_arranged(memory: &MemoryPlan) -> ReadLimits {
        ReadLimits {
            small_threads: memory.inode_share(THREADS_BESIDE_ARRANGED),
            window_bytes: memory.inode_share(WINDOW_BESIDE_ARRANGED_BYTES),
            ..ReadLimits::of_inodes(memory)
        }
    }

    const fn bytes(&self) -> usize {
        small_bytes(self.window_bytes) + large_bytes(self.blocks_ahead)
    }

    /// The same where small files are read from a device.
    const fn bytes_of_device(&self, memory: &MemoryPlan) -> usize {
        self.bytes() + device_bytes(memory, self.small_threads)
    }
}

/// What every backup takes beside its scan, its reading and its catalog.
const fn pack_bytes(memory: &MemoryPlan) -> usize {
    let items = (item_batches(memory) + 2) * ITEMS_BATCH_MAX;
    PROGRAM_BYTES
        + store_bytes(memory.workers())
        + (memory.share(ROWS_WAITING_MAX) + items) * ROW_BYTES
        + memory.share_from(SEEN_BYTES_LEAST, SEEN_BYTES)
}

/// Ceiling of a backup that walks. Beside all of these stands the index of the chunks that the
/// repository has, 64 bytes for each (`bale_repository::index`).
pub const fn walk_bytes(memory: &MemoryPlan) -> usize {
    let read = ReadLimits::of_walk(memory).bytes();
    let names = first_names_bytes(memory);
    pack_bytes(memory) + CATALOG_BYTES + scan::walk_bytes(memory) + names + read
}

/// Ceiling of a backup by inodes: while inodes and names are gathered, while contents are read and
/// packed, and while what was mounted is looked at again.
pub const fn inode_bytes(memory: &MemoryPlan) -> usize {
    max(gather_inode_bytes(memory), store_inode_bytes(memory))
}

const fn gather_inode_bytes(memory: &MemoryPlan) -> usize {
    PROGRAM_BYTES + CATALOG_BYTES + gather_bytes(memory)
}

/// What making a key of a password takes (docs/FORMAT.md, "Key slots").
const PASSWORD_BYTES: usize = 64 << 20;

/// May inodes and names be gathered while a repository is opened, and its index read?
pub(crate) const fn fits_while_opening(memory: &MemoryPlan) -> bool {
    let opening = PASSWORD_BYTES + objects_bytes(memory);
    gather_inode_bytes(memory) + opening <= memory.inode_bytes()
}

/// From the first content that is read.
const fn store_inode_bytes(memory: &MemoryPlan) -> usize {
    // Of what cannot be trusted everything is walked.
    let walk_again = walk_bytes(memory) + 2 * live_statted_bytes(memory);
    let again = max(look_again_bytes(memory), walk_again);
    max(
        max(first_inode_bytes(memory), changed_inode_bytes(memory)),
        again,
    )
}

/// With nothing to compare with: contents on their way are parts of the buckets that are read
/// arranged. Of first names there is one set more, of the rows that come.
const fn first_inode_bytes(memory: &MemoryPlan) -> usize {
    let read = ReadLimits::beside_arranged(memory).bytes_of_device(memory);
    pack_bytes(memory)
        + NEW_CATALOG_BYTES
        + emit_bytes(memory)
        + first_names_bytes(memory)
        + arranged_bytes(memory)
        + read
        + live_statted_bytes(memory)
}

/// With a parent, and the second pass over what was mounted, whose scan knows what was changed; the
/// first pass has left the inodes that were told by the kernel.
const fn changed_inode_bytes(memory: &MemoryPlan) -> usize {
    let read = ReadLimits::of_inodes(memory).bytes_of_device(memory);
    pack_bytes(memory)
        + CATALOG_BYTES
        + emit_bytes(memory)
        + first_names_bytes(memory)
        + read
        + scan::changed_bytes(memory)
        + 2 * live_statted_bytes(memory)
}

/// The second look itself: chunks are still being encoded, or buffers of theirs wait to be used
/// again.
const fn look_again_bytes(memory: &MemoryPlan) -> usize {
    PROGRAM_BYTES
        + CATALOG_BYTES
        + encode_bytes(memory.workers())
        + memory.workers() * CHUNK_BYTES
        + second_look_bytes(memory)
        + live_statted_bytes(memory)
}

const fn live_statted_bytes(memory: &MemoryPlan) -> usize {
    live_statted_max(memory) * size_of::<u64>()
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// Objects on their way at once, sealed and opened, while an index is read.
const fn objects_bytes(memory: &MemoryPlan) -> usize {
    2 * memory.share(OBJECT_FLIGHT_BYTES)
}

/// Sealed chunks on their way from a store that is far away.
pub(crate) const fn flight_bytes(memory: &MemoryPlan) -> usize {
    memory.share_from(FLIGHT_BYTES_LEAST, FLIGHT_BYTES)
}

/// The same of a restore to an ext4 file system, which keeps many chunks itself.
pub(crate) const fn ext4_flight_bytes(memory: &MemoryPlan) -> usize {
    memory.share_from(EXT4_FLIGHT_BYTES_LEAST, EXT4_FLIGHT_BYTES)
}

/// What reading a snapshot takes: its catalog, of which two segments are open and some are fetched
/// ahead from a store that is far away, chunks that are kept, and threads that fetch chunks.
const fn fetch_bytes(memory: &MemoryPlan, threads: usize) -> usize {
    PROGRAM_BYTES
        + CATALOG_BYTES / 2
        + memory.share(FETCHED_BYTES)
        + memory.share(CHUNK_CACHE_BYTES)
        + threads * FETCH_WORKER_BYTES
        + SPARE_BUFFERS_MAX * BUNDLE_BYTES_MAX
        + SPARE_BLOCKS_MAX * IMAGE_BLOCK_BYTES as usize
}

/// Ceiling of a restore through the kernel.
pub const fn restore_bytes(memory: &MemoryPlan) -> usize {
    fetch_bytes(memory, 2 * memory.workers())
        + bale_restore::memory_bytes(memory)
        + flight_bytes(memory)
        + objects_bytes(memory)
}

/// Ceiling of a restore to an ext4 file system, from a store that is near or far away.
pub const fn restore_to_ext4_bytes(memory: &MemoryPlan) -> usize {
    let near = bale_restore::ext4::memory_bytes(memory, false);
    let far = bale_restore::ext4::memory_bytes(memory, true)
        + ext4_flight_bytes(memory)
        + objects_bytes(memory);
    fetch_bytes(memory, memory.workers()) + max(near, far)
}

/// Ceiling of a dump, whose one thread fetches chunks.
pub const fn dump_bytes(memory: &MemoryPlan) -> usize {
    fetch_bytes(memory, 1)
        + bale_restore::dump::memory_bytes(memory)
        + flight_bytes(memory)
        + objects_bytes(memory)
}

/// Ceiling of an export, beside what its server holds for clients ([`bale_nbd::SERVER_BYTES`]).
pub const fn export_bytes(memory: &MemoryPlan) -> usize {
    fetch_bytes(memory, bale_restore::image_reader::reads_at_once(memory))
        + bale_restore::image_reader::memory_bytes(memory)
        + flight_bytes(memory)
        + objects_bytes(memory)
}

/// Sealed chunks on their way from far away to a mount, which keeps decoded segments as well.
pub(crate) const fn mount_flight_bytes(memory: &MemoryPlan) -> usize {
    memory.share_from(MOUNT_FLIGHT_BYTES_LEAST, MOUNT_FLIGHT_BYTES)
}

/// Decoded segments that a mount keeps.
pub(crate) const fn mount_segments_bytes(memory: &MemoryPlan) -> usize {
    bale_mount::segments_bytes(memory)
}

/// Ceiling of a mount, beside what threads that answer the kernel hold of its requests.
pub const fn mount_bytes(memory: &MemoryPlan) -> usize {
    fetch_bytes(memory, bale_restore::image_reader::reads_at_once(memory))
        + bale_restore::image_reader::memory_bytes(memory)
        + bale_mount::memory_bytes(memory)
        + mount_flight_bytes(memory)
        + objects_bytes(memory)
}

/// How far a copy reads ahead of what it stores. To open and to verify takes a fraction of the time
/// that compressing takes, and what is far away is fetched by others: two threads feed eight.
pub(crate) const fn copy_ahead(memory: &MemoryPlan) -> ReadAhead {
    let threads = if memory.workers() > 2 {
        2
    } else {
        memory.workers()
    };
    ReadAhead {
        threads,
        results: threads + 1,
    }
}

/// Requests that ask of packs whether they can be read, or of objects whether they are locked: they
/// wait for answers, and hold nothing.
pub(crate) const REQUESTS_AT_ONCE: ReadAhead = ReadAhead {
    threads: 8,
    results: 16,
};

/// Objects that a mirror sends at once; each takes a piece and what its store writes with.
pub(crate) const MIRROR_OBJECTS_AT_ONCE: ReadAhead = ReadAhead {
    threads: 3,
    results: 3,
};

/// Ceiling of a copy: chunks are read and stored at once, rows are sorted twice, and segments of
/// the target are fetched ahead; and then segments are read, two of them being written. Beside all
/// of these stand the indexes of both repositories, and 33 bytes for each entry of the source's.
pub const fn copy_bytes(memory: &MemoryPlan) -> usize {
    let ahead = copy_ahead(memory);
    fetch_bytes(memory, ahead.threads)
        + ahead.results * CHUNK_BYTES
        + encode_bytes(memory.workers())
        + 2 * sorter_bytes(memory.share(COPY_SORT_BYTES))
        + memory.share(FETCHED_BYTES)
        + copy_flight_bytes(memory)
}

/// Sealed chunks on their way from a source of copies that is far away.
pub(crate) const fn copy_flight_bytes(memory: &MemoryPlan) -> usize {
    memory.share_from(COPY_FLIGHT_BYTES / 4, COPY_FLIGHT_BYTES)
}

/// Does every way of working stay below the ceiling of its plan? And are files that were read and
/// not handed over, which are a batch less a file, and a file, of two buckets at most?
const fn holds(memory: &MemoryPlan) -> bool {
    walk_bytes(memory) <= memory.bytes()
        && image_bytes(memory) <= memory.bytes()
        && inode_bytes(memory) <= memory.inode_bytes()
        && restore_bytes(memory) <= memory.bytes()
        && restore_to_ext4_bytes(memory) <= memory.bytes()
        && dump_bytes(memory) <= memory.bytes()
        && export_bytes(memory) <= memory.bytes()
        && mount_bytes(memory) <= memory.bytes()
        && copy_bytes(memory) <= memory.bytes()
        // The index is read before there is content and when all of it is stored: no chunks are
        // encoded then.
        && objects_bytes(memory) <= encode_bytes(memory.workers())
        && bucket_bytes(memory) >= ITEMS_BATCH_BYTES_MAX + SMALL_BYTES_MAX as usize
}

/// Ceilings of a backup to a store that takes packs whole, walking and by inodes: packs are in
/// memory until they are durable, from the first content that is read; nothing is buffered for
/// local disks; everything else takes what is left.
const fn remote_bytes(memory: &MemoryPlan, packs: &PackPlan) -> (usize, usize) {
    let rest = packs.beside(memory);
    let more = packs.memory_bytes(memory.workers());
    let storing = store_inode_bytes(&rest) + more;
    (
        walk_bytes(&rest) + more,
        max(gather_inode_bytes(&rest), storing),
    )
}

/// Does a backup to such a store stay below the ceiling of its plan? By inodes it may take more
/// where nobody bounded it.
const fn holds_remotely(memory: &MemoryPlan, uploads_max: usize) -> bool {
    let packs = PackPlan::of(StoreShape::Whole { uploads_max }, memory);
    let rest = packs.beside(memory);
    let more = if memory.inode_bytes() > memory.bytes() {
        INODE_MEMORY_BYTES_REMOTE - INODE_MEMORY_BYTES_USUAL
    } else {
        0
    };
    let (walk, inodes) = remote_bytes(memory, &packs);
    // What a source of copies keeps is of all memory.
    let kept = memory.share(FETCHED_BYTES + CHUNK_CACHE_BYTES);
    let copy = copy_bytes(&rest) + packs.memory_bytes(memory.workers()) + kept
        - rest.share(FETCHED_BYTES + CHUNK_CACHE_BYTES);
    copy <= memory.bytes()
        && walk <= memory.bytes()
        && inodes <= memory.inode_bytes() + more
        && ReadLimits::beside_arranged(&rest).small_threads > 0
        && bucket_bytes(&rest) >= ITEMS_BATCH_BYTES_MAX + SMALL_BYTES_MAX as usize
}

// With as many threads as a machine may have.
const _: () = {
    let mut processors = 1;
    while processors <= WORKERS_MAX {
        let memory = MemoryPlan::of_machine(processors);
        assert!(holds(&memory));
        assert!(holds_remotely(&memory, UPLOADS_MAX) && holds_remotely(&memory, UPLOADS_MAX_SFTP));
        processors += 1;
    }
};
// And with the ceilings that are asked for.
const _: () = {
    let mut bytes = MEMORY_BYTES_MIN;
    while bytes <= 1 << 30 {
        match MemoryPlan::new(bytes, WORKERS_MAX) {
            Some(memory) => assert!(holds(&memory) && holds_remotely(&memory, UPLOADS_MAX)),
            None => panic!("above the least"),
        }
        bytes += 1 << 20;
    }
};
// Over SFTP, too. On its own: the compiler evaluates no constant for longer than that.
const _: () = {
    let mut bytes = MEMORY_BYTES_MIN;
    while bytes <= 1 << 30 {
        match MemoryPlan::new(bytes, WORKERS_MAX) {
            Some(memory) => assert!(holds_remotely(&memory, UPLOADS_MAX_SFTP)),
            None => panic!("above the least"),
        }
        bytes += 1 << 20;
    }
};
const _: () = assert!(store_bytes(2) - store_bytes(1) <= WORKER_BYTES);
const _: () = assert!(fits_while_opening(&MemoryPlan::USUAL));
