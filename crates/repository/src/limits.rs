//! Bounds of what is written to a repository and kept of it in memory. Their sum:
//! `bale_engine::limits`.

/// Chunks waiting for an encoding thread, for each thread.
pub const ENCODE_QUEUE_PER_WORKER: usize = 1;
/// A pack is published once it has this many bytes.
pub(crate) const PACK_BYTES_TARGET: u64 = 64 << 20;
/// Buffers of large chunks kept for the next ones.
pub const SPARE_BUFFERS_MAX: usize = 2;
/// Chunks named by one index object.
pub const INDEX_ENTRIES_TARGET: usize = 64 << 10;
/// Decoded chunks kept for reading catalogs and files again.
pub const CHUNK_CACHE_BYTES: usize = 16 << 20;

pub use crate::store::disk::{WRITER_BYTES_CACHED_MAX, WRITER_BYTES_MAX};
