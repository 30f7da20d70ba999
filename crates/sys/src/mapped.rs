//! Writing to a file as programs with a shared mapping do. For tests: Bale itself maps nothing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Stores `bytes` at the start of the file through a shared mapping of it. The file must be at
/// least as long, be open for reading and writing, and stay that long meanwhile: beyond its end the
/// process gets a `SIGBUS`.
pub fn store_through_mapping(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses; its length is not zero.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes.len(),
            access,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is `bytes.len()` long, writable, and known to nobody else; no reference
    // to it is made.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len()) };
    // SAFETY: exactly the mapping made above, which nothing points at any more.
    if unsafe { libc::munmap(start, bytes.len()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
