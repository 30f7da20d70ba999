//! Freezing a file system. A caller that dies in between leaves it frozen: only a guarded process
//! may call this.

use crate::inode::check;
use rustix::ioctl::{Opcode, opcode};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const FIFREEZE: Opcode = opcode::read_write::<c_int>(b'X', 119);
const FITHAW: Opcode = opcode::read_write::<c_int>(b'X', 120);

/// Waits for writes in progress and stops new ones.
pub fn freeze(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the ioctl takes no argument.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FIFREEZE as _, 0) })
}

/// Lets writes go on.
pub fn thaw(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the ioctl takes no argument.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FITHAW as _, 0) })
}
