//! Reading files as they are, or saying that they were not still.
//!
//! A file's bytes count only if a `stat` after the read shows the same size, mtime and ctime as the
//! one before: the scan's, or the one of the last attempt. Otherwise it is read again, at most
//! [`READ_RETRIES_MAX`] times, and then what was read is kept and flagged. A read ends at the size
//! the file had when the attempt began, so a file that grows for ever does not hold us; a file that
//! shrinks gives what is left, never zeros in place of it. Bytes that the device cannot give are
//! named by range; everything around them is read.
//!
//! Small files are read by many threads in inode order and handed out in the order they were asked
//! for ([`SmallReader`]); large ones one after the other, past the page cache, with reads in flight
//! ([`LargeReader`]).

mod arranged;
mod blocks;
mod device;
mod first_names;
mod large;
mod ranges;
mod slabs;
mod small;

pub use arranged::{Arranged, GroupHasher, PlannedRead, arranged_bytes, bucket_bytes};
pub use blocks::FileBlock;
pub use device::read_first_bytes;
pub use first_names::{FirstNames, first_names_bytes};
pub(crate) use large::map_is_sane;
pub use large::{FinishedFile, LargeFile, LargeReader, ReadPiece};
pub(crate) use ranges::{Filled, next_data, read_range};
pub use small::{ReadBefore, SmallFile, SmallReader, SmallState, read_small};

use crate::image::EntryPlace;
use crate::magic::is_of_kind;
use crate::problem::ScanProblem;
use crate::scan::set_stat;
use bale_format::entry::{Entry, EntryFlags, Kind, Time};
use bale_pipeline::memory::MemoryPlan;
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest write that neither a ctime, a lock nor a lease reveals. Chosen, not proven
/// (decisions/0007).
pub const UNSEEN_WRITE_SECONDS_MAX: i64 = 60;

/// Files up to this size are read as a whole (docs/FORMAT.md, section 7: bundled).
pub const SMALL_BYTES_MAX: u64 = 512 << 10;
/// Small files asked for and not yet handed out, with their bytes.
pub const SMALL_WINDOW_BYTES_MAX: u64 = 24 << 20;
/// The same, in files.
pub(crate) const SMALL_WINDOW_FILES_MAX: usize = 8192;
/// Threads that read small files: each waits for the device most of the time.
pub const SMALL_THREADS_MAX: usize = 16;
/// One read of a large file.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Reads of one large file in flight, and buffers kept for the next ones.
pub const BLOCKS_AHEAD_MAX: usize = 4;
/// Fewer, and nothing is read while a block is taken.
pub const BLOCKS_AHEAD_MIN: usize = 2;
/// Blocks of a raw image that are kept to be used again.
pub(crate) const SPARE_BLOCKS_MAX: usize = 8;
/// Threads that read large files.
pub(crate) const LARGE_THREADS_MAX: usize = 4;
/// Further attempts at a file that changed while it was read.
pub const READ_RETRIES_MAX: u32 = 2;
/// A single write is expected to take no longer than this.
pub(crate) const WRITE_SECONDS_MAX: i64 = 3600;
/// Writers of a file that changed before that are not asked for: no direct write takes so long, and
/// asking takes 4 us.
pub(crate) const LEASE_PROBE_SECONDS_MAX: i64 = 600;
/// File systems of this kernel alone (magic.h: ext4, XFS, btrfs, tmpfs, overlay, F2FS, ZFS,
/// bcachefs): it knows all who write.
const LOCAL: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];
/// Looks for a moment at which a file that somebody has open for writing stands still.
const SETTLES_MAX: usize = 2;
/// Age of stamps that settles a file, and how often the clock is looked at until then.
const SETTLED_SECONDS: i64 = 2;
const SETTLE_STEP_MILLIS: u64 = 20;
/// Waits for that, of all files of this process together.
const WAITS_MILLIS_MAX: u64 = 600_000;
/// Step in which the surroundings of an unreadable place are read.
pub(crate) const SALVAGE_BYTES: usize = 4096;

/// Memory of reading small files with a window of so many bytes.
pub const fn small_bytes(window_bytes: usize) -> usize {
    window_bytes + 2 * slabs::slab_bytes(window_bytes as u64)
}

/// Memory of a large file that is open: blocks in flight, the one that was taken, and its parts if
/// it had to be cut. Buffers that are kept were among them.
pub const fn large_bytes(blocks_ahead: usize) -> usize {
    (blocks_ahead + 2) * BLOCK_BYTES
}

/// Memory of reading small files from a device that are not arranged, beside their window: what
/// each thread reads a group into, and what of a file is elsewhere.
pub const fn device_bytes(memory: &MemoryPlan, threads: usize) -> usize {
    let group = device::group_buffer_bytes(device::group_bytes(memory));
    threads * (group + device::REST_BUFFER_BYTES)
}

/// `stat` of an open file.
pub(crate) fn stat_of(fd: BorrowedFd<'_>) -> io::Result<Statx> {
    let mask = StatxFlags::BASIC_STATS.difference(StatxFlags::ATIME) | StatxFlags::DIOALIGN;
    Ok(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask)?)
}

/// Has nothing happened to the file between the `stat` an entry is made of and this one?
fn is_unchanged(entry: &Entry, stat: &Statx) -> bool {
    let time = |stamp: rustix::fs::StatxTimestamp| (stamp.tv_sec, stamp.tv_nsec);
    entry.inode == stat.stx_ino
        && entry.size == stat.stx_size
        && <(i64, u32)>::from(entry.mtime) == time(stat.stx_mtime)
        && <(i64, u32)>::from(entry.ctime) == time(stat.stx_ctime)
        && u32::from(stat.stx_mode) & 0o170000 == Kind::File.mode_bits()
}

/// Waits until a write that is under way is over, if the file was written to of late. True:
/// somebody may write to it while it is read, and the entry is in doubt.
///
/// A `write(2)` stamps the ctime when it begins, so a `stat` in the middle of it looks like one
/// after it, and on file systems whose buffered reads take no lock (ext4) what is read is torn and
/// nothing shows it. Asking for a hole takes the lock that a write holds: whatever is written after
/// that has a newer ctime than the `stat` before. A direct write holds no lock that a reader could
/// wait for, and a store through a map stamps nothing until the page was written back; but who
/// writes has the file open.
fn wait_for_writers(fd: BorrowedFd<'_>, entry: &mut Entry) -> bool {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    // What is never written back is stamped once, however long it is written to.
    let is_stamped = !entry.flags.has(EntryFlags::RACY);
    let is_older = |seconds: i64| entry.ctime.seconds < now.tv_sec.saturating_sub(seconds);
    if is_stamped && is_older(WRITE_SECONDS_MAX) {
        return false;
    }
    // Only the lock matters.
    let _ = rustix::fs::seek(fd, rustix::fs::SeekFrom::Hole(0));
    if is_stamped && is_older(LEASE_PROBE_SECONDS_MAX) {
        return false;
    }
    let is_young = !is_older(UNSEEN_WRITE_SECONDS_MAX);
    // Elsewhere a lease says what a server allows, and nothing of who writes there.
    let is_written = may_hide_a_change(entry.ctime)
        || match is_local(fd) {
            true => bale_sys::lease::is_open_for_writing(fd).unwrap_or(is_young),
            false => is_young,
        };
    if is_written {
        entry.flags.set(EntryFlags::RACY);
    }
    is_written
}

/// Whether a file is on a file system of this kernel alone.
fn is_local(fd: BorrowedFd<'_>) -> bool {
    is_of_kind(fd, &LOCAL)
}

const GIVES_MORE: &str = "its file system gives more bytes than it says";

/// Whether there are bytes behind the end that the file system says. One that is the kernel's own
/// gives none.
fn gives_more(file: impl AsFd, end: u64) -> bool {
    !is_local(file.as_fd()) && rustix::io::pread(file, &mut [0], end) == Ok(1)
}

/// Whether who opens a file from now on may change it and leave the stamp that it has: one of this
/// second, on a file system that knows no less. A tick of the clock is waited for.
fn may_hide_a_change(stamp: Time) -> bool {
    /// Ticks are 10 milliseconds at most.
    const STEPS: u32 = 6;
    const STEP: std::time::Duration = std::time::Duration::from_millis(2);
    for _ in 0..STEPS {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let nanos = u32::try_from(now.tv_nsec).expect("less than a second of nanoseconds");
        if stamp.is_stamped_before(Time::from((now.tv_sec, nanos))) {
            return false;
        }
        if stamp.nanos == 0 {
            return true;
        }
        std::thread::sleep(STEP);
    }
    // Of the future: that tells nothing either way.
    false
}

/// Looks for a moment from which on every change of a file shows in its stamps: written back, so
/// that the next store through a map is stamped, and with stamps that are older than what a direct
/// write takes that nobody knows of. False: there was none. The entry is what the file is then.
fn settle(fd: BorrowedFd<'_>, entry: &mut Entry) -> io::Result<bool> {
    if bale_sys::inode::is_in_memory(fd) {
        return Ok(false);
    }
    for _ in 0..SETTLES_MAX {
        if !wait_until_old(entry.mtime.max(entry.ctime)) || rustix::fs::fdatasync(fd).is_err() {
            return Ok(false);
        }
        let stat = stat_of(fd)?;
        if is_unchanged(entry, &stat) {
            return Ok(true);
        }
        refresh(entry, &stat)?;
    }
    Ok(false)
}

/// Waits until a stamp is so old that a later change has another one, on file systems of whole
/// seconds, too. False: it was waited for long enough.
fn wait_until_old(stamp: Time) -> bool {
    static WAITED_MILLIS: AtomicU64 = AtomicU64::new(0);
    // A stamp of the future says nothing.
    let steps = (SETTLED_SECONDS as u64 + 2) * 1000 / SETTLE_STEP_MILLIS;
    for _ in 0..steps {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        if now.tv_sec > stamp.seconds.saturating_add(SETTLED_SECONDS) {
            return true;
        }
        if WAITED_MILLIS.fetch_add(SETTLE_STEP_MILLIS, Ordering::Relaxed) >= WAITS_MILLIS_MAX {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(SETTLE_STEP_MILLIS));
    }
    false
}

/// Does a file that is said to be empty give a byte? Not where it cannot be opened.
pub fn has_bytes(place: &EntryPlace, entry: &Entry) -> bool {
    let EntryPlace::Directory(directory) = place else {
        return false;
    };
    let mut byte = [0];
    let opened = directory.open_file(entry);
    opened.is_ok_and(|file| rustix::io::read(&file, &mut byte).is_ok_and(|len| len > 0))
}

/// Makes an entry what a later `stat` says. An error if it is no regular file any more.
fn refresh(entry: &mut Entry, stat: &Statx) -> io::Result<()> {
    if Kind::from_mode(u32::from(stat.stx_mode)) != Some(Kind::File) {
        return Err(crate::scan::replaced());
    }
    set_stat(entry, stat);
    Ok(())
}

/// Does it have fewer blocks than bytes?
pub(crate) fn may_have_holes(stat: &Statx) -> bool {
    stat.stx_blocks.saturating_mul(512) < stat.stx_size
}

fn problem(entry: &Entry, action: &'static str, error: io::Error) -> ScanProblem {
    ScanProblem {
        path: entry.path(),
        action,
        error,
    }
}
