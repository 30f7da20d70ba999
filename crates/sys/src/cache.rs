//! What the page cache holds of a file (`cachestat`, Linux 6.5), and what it is to forget.

use rustix::fs::Advice;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Pages of a range of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    pub cached: u64,
    /// Of these, not written back yet.
    pub dirty: u64,
    /// Of these, being written back.
    pub writeback: u64,
    /// Thrown out.
    pub evicted: u64,
    /// Thrown out a short time ago.
    pub recently_evicted: u64,
}

/// Pages of `offset..offset + length`; `length` 0 means to the end.
pub fn cachestat(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<CacheStat> {
    const CACHESTAT: libc::c_long = 451;
    let range: [u64; 2] = [offset, length];
    let mut stat = CacheStat::default();
    // SAFETY: both structures have the layout the kernel expects and live across the call.
    let result = unsafe { libc::syscall(CACHESTAT, fd.as_raw_fd(), &range, &mut stat, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat)
}

/// Has the page cache forget what it holds of a device, but for what nobody wrote back yet: that is
/// begun to be written. A disk and each of its partitions have a cache of their own, which lasts as
/// long as anybody has the device open, and know nothing of what is written through the other.
/// Pages that a program has mapped stay.
pub fn forget_cached(device: impl AsFd) {
    // No `fsync`: its flush would count as a write to what is to stand still.
    let _advice_only = rustix::fs::fadvise(&device, 0, None, Advice::DontNeed);
}
