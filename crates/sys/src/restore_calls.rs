//! Calls that only a restore makes.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct fsxattr` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    project: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
const _: () = assert!(std::mem::size_of::<FsXattr>() == 28);

/// Sets the project id of an inode and nothing else.
pub fn set_project(fd: BorrowedFd, project: u32) -> Result<(), Errno> {
    let mut attributes = FsXattr::default();
    // SAFETY: the kernel writes at most 28 bytes, the size of the struct, and the descriptor is
    // open.
    let got = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FSGETXATTR as _, &mut attributes) };
    check(got)?;
    attributes.project = project;
    // SAFETY: the kernel reads 28 bytes, the size of the struct, and the descriptor is open.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FSSETXATTR as _, &attributes) })
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
