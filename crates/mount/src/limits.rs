//! Bounds of a mount by name. Nothing here grows with the number of files.

use crate::{piece_windows, recent_places};
use bale_pipeline::memory::MemoryPlan;
use std::time::Duration;

/// Snapshots that one mount can show in its life: their numbers have 16 bits, and one that is
/// forgotten keeps its own, so that what the kernel still knows never means another. Each takes
/// about 300 bytes.
pub(crate) const SNAPSHOTS_MAX: usize = u16::MAX as usize;

/// Catalogs that are open at once: of each the list of its segments is in memory, 800 bytes for
/// every 40,000 files.
pub(crate) const CATALOGS_OPEN_MAX: usize = 16;

/// Decoded segments that are kept, with the usual ceiling of memory: seven or so, of 40,000 rows
/// each. Readers beyond that have each other's decoded again.
const SEGMENTS_BYTES: usize = 40 << 20;
/// The same with the least memory: two. A catalog of several layers needs one of each.
const SEGMENTS_BYTES_LEAST: usize = 14 << 20;

/// Images whose readers are kept: each has windows of rows of its own.
pub(crate) const IMAGES_OPEN_MAX: usize = 4;

/// Bytes of a large file that are read ahead of whoever reads it forward.
pub(crate) const AHEAD_BYTES: u64 = 8 << 20;

/// Chunks of small files that are read ahead of whoever reads these in the order of rows.
pub(crate) const CHUNKS_AHEAD_MAX: usize = 2;

/// Rows that are looked at for that: those of a bundle.
pub(crate) const ROWS_AHEAD_MAX: usize = 16 << 10;

/// Problems that are named one by one; what comes after is counted.
pub(crate) const PROBLEMS_NAMED_MAX: usize = 1000;

/// High parts of inode numbers of sources that are known: see `link_groups`.
pub(crate) const HIGH_PARTS_MAX: usize = 1 << 11;

/// Between two looks at which snapshots there are.
pub(crate) const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(3);

/// What the kernel may believe of the directories above snapshots: they change.
pub(crate) const TOP_LASTS: Duration = Duration::from_secs(1);

/// The same of what is in a snapshot, which never changes: a day.
pub(crate) const ROWS_LAST: Duration = Duration::from_secs(24 * 60 * 60);

/// Small files that are pushed to the kernel ahead of whoever reads them in the order of rows: a
/// few milliseconds.
pub(crate) const PUSHED_FILES: u64 = 256;
/// One of so many is asked for, and says how far the reader is.
pub(crate) const ASKED_EVERY: u64 = PUSHED_FILES / 4;
/// Those that are pushed before the answer to a reader that comes to them next.
pub(crate) const PUSHED_AT_ONCE: u64 = 3;
/// Of a directory that was listed to its end so many entries are looked at before the answer.
pub(crate) const LISTED_AT_ONCE: u64 = 8;
/// A reader that was quicker than the pushing is overtaken by so many.
pub(crate) const OVERTAKEN_BY: u64 = 4;
/// Orders to push that wait.
pub(crate) const ORDERS_MAX: usize = 16;
/// A file that is longer is not: the kernel asks for it in parts, and few times.
pub(crate) const PUSHED_BYTES_MAX: u64 = 64 << 10;

/// Threads that answer the kernel: they wait for chunks, and a reader that finds its chunk decoded
/// is not to wait for one that does not.
pub(crate) const THREADS: usize = 8;

/// Bytes that the kernel asks for ahead of a reader, and at once.
pub(crate) const KERNEL_READAHEAD_BYTES: u32 = 1 << 20;

/// Requests that the kernel has on their way at once.
pub(crate) const KERNEL_BACKGROUND_MAX: u16 = 64;

/// Bytes that the kernel asks for at once, of which each thread answers one.
const READ_BYTES_MAX: usize = KERNEL_READAHEAD_BYTES as usize;

/// Decoded segments that are kept.
pub const fn segments_bytes(memory: &MemoryPlan) -> usize {
    memory.share_from(SEGMENTS_BYTES_LEAST, SEGMENTS_BYTES)
}

/// What a mount takes at most, beside its chunks (`bale_restore::image_reader`) and their reading.
pub const fn memory_bytes(memory: &MemoryPlan) -> usize {
    segments_bytes(memory)
        + recent_places::memory_bytes(memory)
        + piece_windows::MEMORY_BYTES
        + THREADS * READ_BYTES_MAX
}
