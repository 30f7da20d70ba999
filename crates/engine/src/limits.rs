//! Every bound of the pipeline by name, and the proof that together they stay below the memory ceiling.
//!
//! What grows with stored bytes instead of being bounded here: the chunk index (see `index.rs`, formula at the struct).

/// Ceiling for any verb, whatever the number of files: 256 MiB, key derivation included.
pub const MEMORY_BYTES_MAX: usize = 256 << 20;

/// A bundle is closed at this many bytes at the latest.
pub const BUNDLE_BYTES_MAX: usize = 4 << 20;
/// A bundle is never closed by content before this many bytes.
pub const BUNDLE_BYTES_MIN: usize = 2 << 20;
/// Mean bytes of files after `BUNDLE_BYTES_MIN` until content closes a bundle.
pub const BUNDLE_BYTES_EXTRA_MEAN: usize = 1 << 20;
/// A bundle is closed at this many files at the latest, so that rows waiting for its id stay few.
pub const BUNDLE_FILES_MAX: usize = 16 << 10;
/// Files up to this size are bundled; larger ones are cut by content.
pub const BUNDLED_FILE_BYTES_MAX: u64 = 512 << 10;
/// Rows that wait for an open bundle's id; then all bundles are closed.
pub const ROWS_WAITING_MAX: usize = 64 << 10;
/// Bytes of memory a waiting row takes, mean with its name (measured 280).
pub const ROW_BYTES: usize = 320;

/// Threads that hash, compress and seal. More would only wait for the store.
pub const ENCODE_WORKERS_MAX: usize = 8;
/// Chunks waiting for an encoding thread, for each thread.
pub const ENCODE_QUEUE_PER_WORKER: usize = 1;
/// A pack is published once it has this many bytes.
pub const PACK_BYTES_TARGET: u64 = 64 << 20;
/// Buffers of one pack being written: two of 4 MiB on their way to the device.
pub const PACK_WRITER_BYTES: usize = 8 << 20;
/// Chunks named by one index object.
pub const INDEX_ENTRIES_TARGET: usize = 64 << 10;

/// Items between comparing and packing.
pub const ITEMS_QUEUED_MAX: usize = 8 << 10;
/// Items handed over together.
pub const ITEMS_BATCH_MAX: usize = 256;
/// The same, in bytes of content that was read already.
pub const ITEMS_BATCH_BYTES_MAX: u64 = 512 << 10;
/// Files between two calls of the monitor.
pub const PROGRESS_EVERY: u64 = 256;
/// Longest set of extended attributes that stands in its row (docs/FORMAT.md, section 8).
pub const XATTRS_ROW_BYTES_MAX: usize = 512;
/// Inodes that are remembered as told by the kernel: 8 bytes each. With more of them, digests of inodes are not kept.
pub const ASKED_MAX: usize = 1 << 20;
/// Thin chunks listed in a snapshot: at most a gibibyte is stored afresh by the next backup.
pub const THIN_CHUNKS_MAX: usize = 1024;
/// Tables of content seen before.
pub const SEEN_BYTES: usize = 26 << 20;

/// Decoded chunks kept for reading catalogs and files again.
pub const CHUNK_CACHE_BYTES: usize = 32 << 20;

/// Seconds between two records of an unfinished run.
pub const CHECKPOINT_SECONDS: u64 = 300;
/// A run whose last sign of life is younger is under way. It replaces it every `CHECKPOINT_SECONDS`; a store may be slow.
pub const ALIVE_SECONDS: u64 = 3 * CHECKPOINT_SECONDS;
/// Stored bytes between two records of an unfinished run.
pub const CHECKPOINT_BYTES: u64 = 8 << 30;

const ENCODE_WORKER_BYTES: usize = 4 * BUNDLE_BYTES_MAX; // plain, compressed, opened, read back
const ENCODE_BYTES: usize =
    2 * (ENCODE_WORKER_BYTES + ENCODE_QUEUE_PER_WORKER * BUNDLE_BYTES_MAX + PACK_WRITER_BYTES);
const BACKUP_BYTES: usize = ENCODE_BYTES
    + crate::scan::SCAN_BYTES_MAX
    + crate::read::READ_BYTES_MAX
    + 2 * BUNDLE_BYTES_MAX
    + (ROWS_WAITING_MAX + ITEMS_QUEUED_MAX) * ROW_BYTES
    + SEEN_BYTES;

// With two encoding threads, the machine of the issue; each further thread adds 24 MiB up to the --memory ceiling.
const _: () = assert!(BACKUP_BYTES <= MEMORY_BYTES_MAX);
