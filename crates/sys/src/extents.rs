//! Where a file's bytes lie on its device (`FS_IOC_FIEMAP`).

use crate::inode::check;
use rustix::ioctl::{Opcode, opcode};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Extents asked for in one call: 56 bytes each.
const EXTENTS_PER_CALL: usize = 64;

/// `fe_flags` bits.
mod flag {
    /// Last extent of the file.
    pub(crate) const LAST: u32 = 0x1;
}

/// One extent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, bytes.
    pub logical: u64,
    /// Offset on the device, bytes.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
    reserved64: [u64; 2],
    /// `fe_flags`.
    pub flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Head {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

#[repr(C)]
struct Request {
    head: Head,
    extents: [Extent; EXTENTS_PER_CALL],
}

const FIEMAP: Opcode = opcode::read_write::<Head>(b'f', 11);
/// Write back first, so that delayed allocations have a place.
pub const SYNC: u32 = 0x1;

/// Appends the extents that touch `start..start + length` to `into`, at most one call's worth;
/// false when there may be more (go on after the last one).
pub fn extents(
    fd: BorrowedFd<'_>,
    start: u64,
    length: u64,
    request_flags: u32,
    into: &mut Vec<Extent>,
) -> io::Result<bool> {
    let mut request = Request {
        head: Head {
            start,
            length,
            flags: request_flags,
            mapped: 0,
            count: EXTENTS_PER_CALL as u32,
            reserved: 0,
        },
        extents: [Extent::default(); EXTENTS_PER_CALL],
    };
    // SAFETY: the head says how many extents follow it; both live across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FIEMAP as _, &mut request) })?;
    let mapped = (request.head.mapped as usize).min(EXTENTS_PER_CALL);
    into.extend_from_slice(&request.extents[..mapped]);
    let last = request.extents[..mapped].last();
    Ok(mapped < EXTENTS_PER_CALL || last.is_some_and(|extent| extent.flags & flag::LAST != 0))
}
