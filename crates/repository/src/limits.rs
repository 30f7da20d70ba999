//! Bounds of what is written to a repository and kept of it in memory. Their sum:
//! `bale_engine::limits`.

/// Chunks waiting for an encoding thread, for each thread.
pub const ENCODE_QUEUE_PER_WORKER: usize = 1;
/// A pack that is streamed is published once it has this many bytes, unless the user wants another
/// size.
pub const PACK_BYTES_STREAMED: u64 = 64 << 20;
/// The same of one that is whole in memory until it is durable, where there is much memory.
pub const PACK_BYTES_WHOLE: u64 = 32 << 20;
/// The same with the usual memory.
pub const PACK_BYTES_WHOLE_USUAL: u64 = 16 << 20;
/// The same with the least memory.
pub const PACK_BYTES_LEAST_MEMORY: u64 = 6 << 20;
/// Sizes of packs that can be wanted.
pub const PACK_BYTES_MIN: u64 = 4 << 20;
/// The largest of them.
pub const PACK_BYTES_MAX: u64 = 128 << 20;
/// Buffers of large chunks kept for the next ones.
pub const SPARE_BUFFERS_MAX: usize = 2;
/// The same of blocks of images.
pub const SPARE_BLOCKS_MAX: usize = 4;
/// Packs on their way to a server at a time.
pub const UPLOADS_MAX: usize = 3;
/// The same over SFTP: each waits three times for the line beside its bytes, and the others fill
/// that time. They are smaller, and all of them no more.
pub const UPLOADS_MAX_SFTP: usize = 5;
/// Chunks named by one index object.
pub const INDEX_ENTRIES_TARGET: usize = 64 << 10;
/// Decoded chunks kept for reading catalogs and files again.
pub const CHUNK_CACHE_BYTES: usize = 16 << 20;

/// Bytes of a key slot at most.
pub(crate) const SLOT_BYTES_MAX: u64 = 16 << 10;
/// Sealed segments that were fetched from a store that is far away and not read yet.
pub const FETCHED_BYTES: usize = 4 << 20;
/// Sealed objects on their way from such a store at once: those of an index, snapshots, records.
/// One that is longer comes alone. Opened, they take the same again.
pub const OBJECT_FLIGHT_BYTES: usize = 8 << 20;
/// Sealed chunks of files on their way from such a store, and those that wait to be used.
pub const FLIGHT_BYTES: usize = 48 << 20;
/// The same with the least memory.
pub const FLIGHT_BYTES_LEAST: usize = 12 << 20;
/// Reads of them at once at most: over SFTP each waits twice for the line, and others fill it.
pub const FLIGHT_THREADS: usize = 8;
/// Fewer are made before what one reads is less than this.
pub const FLIGHT_RANGE_BYTES: usize = 4 << 20;
/// And not fewer than so many.
pub const FLIGHT_THREADS_LEAST: usize = 4;

pub use crate::store::disk::{WRITER_BYTES_CACHED_MAX, WRITER_BYTES_MAX};

/// What packs take that are written to a local disk: one of data for each thread, one of metadata.
pub const fn local_writers_bytes(workers: usize) -> usize {
    (workers + 1) * WRITER_BYTES_MAX + WRITER_BYTES_CACHED_MAX
}
