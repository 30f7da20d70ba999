//! How large the parts of a window are with a plan of memory, and their sum.
//!
//! With less memory a window is smaller in both ways: fewer buckets, and smaller ones. What holds
//! whole files, and one thread that works while another waits, is not less than it must be.

use super::HASH_BYTES;
use super::scratch::{ALONE_BYTES_MAX, BUCKETS_LOADED_MAX, WRITTEN_BLOCK_BYTES};
use crate::read::SMALL_BYTES_MAX;
use crate::read::device::{group_buffer_bytes, group_bytes};
use crate::read::first_names::first_names_bytes;
use bale_format::scratch::SCRATCH_EXTRA_BYTES;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::ordered::THREADS_MAX;
use bale_pipeline::spill::sorter_bytes;
use bale_sys::memory::HUGE_PAGE_BYTES;

/// Bytes of files in one bucket.
const BUCKET_BYTES: usize = 8 << 20;
/// Buckets of one window.
const BUCKETS_MAX: usize = 512;
/// Bytes of a bucket that wait in memory to be written together.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of files in the first window: planned in a twentieth of a second, and handed out in so
/// long that the next one is planned meanwhile.
const FIRST_WINDOW_BYTES: usize = 64 << 20;
/// Memory for sorting places on the device.
const SORT_BYTES: usize = 8 << 20;
/// The same with the least memory: places of a window that is a sixteenth.
const SORT_BYTES_MIN: usize = 1 << 20;
/// Stretches of the device told apart, at 2 bytes: 16 TiB, and 4 TiB with the least memory. What is
/// behind is one more.
const STRETCHES_MAX: usize = 4 << 20;
/// Threads that read, with the least memory: one seals while another waits for the device.
const THREADS_MIN: usize = 2;

/// A file's number stands in 16 bits, and one of them is that of no bucket.
const _: () = assert!(BUCKETS_MAX < u16::MAX as usize);

/// Of the parts of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowSizes {
    pub(super) buckets_max: usize,
    pub(super) bucket_bytes: u64,
    /// Files of the first window, as a rule.
    pub(super) first_window_bytes: u64,
    /// What waits of a bucket to be written together.
    pub(super) block_bytes: usize,
    pub(super) sort_bytes: usize,
    pub(super) stretches_max: usize,
    /// That read.
    pub(super) threads: usize,
    /// Of neighbours that are read at once.
    pub(super) group_bytes: usize,
}

impl WindowSizes {
    /// With the usual ceilings.
    #[cfg(test)]
    pub(super) const USUAL: WindowSizes = WindowSizes::of(&MemoryPlan::USUAL);

    pub(super) const fn of(memory: &MemoryPlan) -> WindowSizes {
        WindowSizes {
            buckets_max: memory.inode_share(BUCKETS_MAX),
            bucket_bytes: memory.inode_share(BUCKET_BYTES) as u64,
            first_window_bytes: memory.inode_share(FIRST_WINDOW_BYTES) as u64,
            block_bytes: memory.inode_share(BLOCK_BYTES),
            sort_bytes: memory.inode_share_from(SORT_BYTES_MIN, SORT_BYTES),
            stretches_max: memory.inode_share(STRETCHES_MAX),
            threads: memory.inode_share_from(THREADS_MIN, THREADS_MAX),
            group_bytes: group_bytes(memory),
        }
    }

    /// Of what a group is read into: one huge page is held for the device at once, four-kilobyte
    /// pages one by one. Smaller groups are for those who have no room for that.
    pub(super) const fn read_buffer_bytes(&self) -> usize {
        let bytes = group_buffer_bytes(self.group_bytes);
        if self.group_bytes < group_bytes(&MemoryPlan::USUAL) {
            return bytes;
        }
        assert!(bytes <= HUGE_PAGE_BYTES);
        HUGE_PAGE_BYTES
    }

    /// A bucket that is full, and its last file.
    pub(super) const fn loaded_bytes(&self) -> usize {
        (self.bucket_bytes + SMALL_BYTES_MAX) as usize + HASH_BYTES
    }

    /// The sorts of this window and of the next, stretches, blocks being filled and where those are
    /// that were written, groups being read, files that are a block by themselves (one of them
    /// being put in order), and buckets being put in order or in use.
    const fn bytes(&self) -> usize {
        let blocks = self.buckets_max + self.threads;
        // Of what does not fit into a block any more, half of it is left at most.
        let written = 2 * self.buckets_max * (self.bucket_bytes as usize / self.block_bytes);
        2 * sorter_bytes(self.sort_bytes)
            + self.stretches_max * size_of::<u16>()
            + blocks * (self.block_bytes + SCRATCH_EXTRA_BYTES)
            + written * WRITTEN_BLOCK_BYTES
            + self.threads * self.read_buffer_bytes()
            + (self.threads + 1) * ALONE_BYTES_MAX
            + BUCKETS_LOADED_MAX * self.loaded_bytes()
    }
}

/// Memory of arranging: a window, and which names of files are the first ones.
pub const fn arranged_bytes(memory: &MemoryPlan) -> usize {
    WindowSizes::of(memory).bytes() + first_names_bytes(memory)
}

/// Bytes of a bucket: of what was read and waits, so much is of two buckets at most.
pub const fn bucket_bytes(memory: &MemoryPlan) -> usize {
    WindowSizes::of(memory).bucket_bytes as usize
}
