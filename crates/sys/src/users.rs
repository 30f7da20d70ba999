//! Who else uses a file: locks on it, and loop devices over it.

use crate::inode::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `LOOP_GET_STATUS64`.
const LOOP_STATUS: libc::c_ulong = 0x4c05;

/// What a loop device is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// Device and inode of the file.
    pub device: u64,
    pub inode: u64,
    /// If it is a device itself: its number, else 0.
    pub device_number: u64,
}

/// The kernel's `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    device_number: u64,
    offset: u64,
    size_limit: u64,
    numbers: [u32; 4],
    names: [u8; 160],
    init: [u64; 2],
}

/// What this loop device is over; an error if it is over nothing or is none.
pub fn backing_of_loop(fd: BorrowedFd<'_>) -> io::Result<Backing> {
    let mut info = LoopInfo {
        device: 0,
        inode: 0,
        device_number: 0,
        offset: 0,
        size_limit: 0,
        numbers: [0; 4],
        names: [0; 160],
        init: [0; 2],
    };
    // SAFETY: `info` is the structure that the ioctl fills and lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), LOOP_STATUS as _, &mut info) })?;
    Ok(Backing {
        device: info.device,
        inode: info.inode,
        device_number: info.device_number,
    })
}

/// Has somebody else locked any byte of this file, for reading or writing (`fcntl`, open file
/// descriptions: as virtual machines lock their disks), or all of it (`flock`)?
pub fn is_locked(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    // SAFETY: `lock` is the structure that the call reads and fills and lives across it.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) })?;
    if lock.l_type != libc::F_UNLCK as libc::c_short {
        return Ok(true);
    }
    // SAFETY: the call takes numbers only. What it locks is unlocked with the descriptor, and here
    // already.
    match check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(()) => {
            // SAFETY: as above.
            check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_UN) })?;
            Ok(false)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}
