//! Inodes of a mounted XFS, many at a time and in order of number (`XFS_IOC_BULKSTAT`,
//! `XFS_IOC_INUMBERS`, Linux 5.4).
//!
//! It shows what the kernel thinks now, also what no raw read shows yet (all but the length), and
//! opens nothing.

use crate::inode::check;
use rustix::ioctl::{Opcode, opcode};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Inodes asked for in one call at most: a buffer of 768 KiB.
pub const INODES_PER_CALL_MAX: usize = 4096;

const HEAD_BYTES: usize = 64;
const INODE_BYTES: usize = 192;
/// Chunks of inodes asked for in one call.
const CHUNKS_PER_CALL: usize = 1024;
const CHUNK_BYTES: usize = 24;
/// Stay in one allocation group.
const IN_GROUP: u32 = 1 << 0;
/// The inode number stands for a special inode.
const SPECIAL: u32 = 1 << 1;
/// With [`SPECIAL`]: the root directory.
const SPECIAL_ROOT: u64 = 1;
/// Count extents in 64 bits; kernels before 5.19 do not know it.
const WIDE_EXTENT_COUNTS: u32 = 1 << 2;

/// The head, whose size is part of the number of the call; the inodes follow it.
#[repr(C)]
struct Head {
    bytes: [u64; HEAD_BYTES / 8],
}

const BULKSTAT: Opcode = opcode::read::<Head>(b'X', 127);
const INUMBERS: Opcode = opcode::read::<Head>(b'X', 128);

/// One record of `XFS_IOC_BULKSTAT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkInode {
    pub inode: u64,
    /// Distinguishes the lives of an inode number.
    pub generation: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    pub project: u32,
    /// Length in bytes that the device has: what was appended and not written back is not in it.
    pub size_bytes: u64,
    /// Blocks of the file system, delayed ones included.
    pub blocks: u64,
    /// `FS_XFLAG_*`.
    pub xflags: u64,
    /// Device number of a device node: major and minor.
    pub device: (u32, u32),
    /// Extents of the data fork.
    pub extents: u64,
    /// Extents of the attribute fork.
    pub attribute_extents: u32,
    /// Change of the inode: seconds, nanoseconds.
    pub ctime: (i64, u32),
    /// Change of the content.
    pub mtime: (i64, u32),
    /// Last read.
    pub atime: (i64, u32),
    /// Creation.
    pub btime: (i64, u32),
}

/// One pass over the inodes of a file system or of an allocation group.
pub struct BulkStat {
    buffer: Vec<u8>,
    per_call: u32,
    group: Option<u32>,
    next: u64,
    wide: bool,
    done: bool,
}

impl BulkStat {
    /// All inodes, or those of one allocation group, `per_call` at a time (at least 1,
    /// [`INODES_PER_CALL_MAX`] at most).
    pub fn new(group: Option<u32>, per_call: usize) -> BulkStat {
        let per_call = per_call.clamp(1, INODES_PER_CALL_MAX);
        BulkStat {
            buffer: vec![0; HEAD_BYTES + per_call * INODE_BYTES],
            per_call: per_call as u32,
            group,
            next: 0,
            wide: true,
            done: false,
        }
    }

    /// Goes on with the first inode whose number is `inode` or greater; with 0, from the start.
    pub fn seek(&mut self, inode: u64) {
        self.next = inode;
        self.done = false;
    }

    /// The root directory. `fd` and rights as for [`BulkStat::next`].
    pub fn root(fd: BorrowedFd<'_>) -> io::Result<Option<BulkInode>> {
        let mut buffer = vec![0; HEAD_BYTES + INODE_BYTES];
        let request = Request {
            from: SPECIAL_ROOT,
            flags: SPECIAL,
            count: 1,
            group: 0,
        };
        let found = issue(fd, BULKSTAT, &mut buffer, request, INODE_BYTES)?;
        Ok((found == 1).then(|| decode(&buffer[HEAD_BYTES..], false)))
    }

    /// The next inodes in use, sorted by number; none at the end. `fd` is any file or directory of
    /// the file system. Needs `CAP_SYS_ADMIN`.
    pub fn next(
        &mut self,
        fd: BorrowedFd<'_>,
    ) -> io::Result<impl ExactSizeIterator<Item = BulkInode> + '_> {
        let mut found = 0;
        if !self.done {
            found = match self.call(fd) {
                Err(error) if self.wide && error.raw_os_error() == Some(libc::EINVAL) => {
                    self.wide = false;
                    self.call(fd)?
                }
                result => result?,
            };
            self.next = read_u64(&self.buffer, 0);
            self.done = found == 0;
        }
        let inodes = &self.buffer[HEAD_BYTES..HEAD_BYTES + found * INODE_BYTES];
        let wide = self.wide;
        Ok(inodes
            .chunks_exact(INODE_BYTES)
            .map(move |bytes| decode(bytes, wide)))
    }

    fn call(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let in_group = self.group.map_or(0, |_| IN_GROUP);
        let wide = if self.wide { WIDE_EXTENT_COUNTS } else { 0 };
        let request = Request {
            from: self.next,
            flags: in_group | wide,
            count: self.per_call,
            group: self.group.unwrap_or(0),
        };
        issue(fd, BULKSTAT, &mut self.buffer, request, INODE_BYTES)
    }
}

/// As many as 64 inode numbers in a row that have a place on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberChunk {
    pub first_inode: u64,
    /// Bit i: inode `first_inode + i` is in use.
    pub used: u64,
}

/// One pass over the numbers of a file system's inodes: much quicker than over the inodes.
pub struct InodeNumbers {
    buffer: Vec<u8>,
    next: u64,
    done: bool,
}

impl Default for InodeNumbers {
    fn default() -> InodeNumbers {
        InodeNumbers {
            buffer: vec![0; HEAD_BYTES + CHUNKS_PER_CALL * CHUNK_BYTES],
            next: 0,
            done: false,
        }
    }
}

impl InodeNumbers {
    /// The next chunks, sorted; none at the end. `fd` and rights as for [`BulkStat::next`].
    pub fn next(
        &mut self,
        fd: BorrowedFd<'_>,
    ) -> io::Result<impl ExactSizeIterator<Item = NumberChunk> + '_> {
        let mut found = 0;
        if !self.done {
            let request = Request {
                from: self.next,
                flags: 0,
                count: CHUNKS_PER_CALL as u32,
                group: 0,
            };
            found = issue(fd, INUMBERS, &mut self.buffer, request, CHUNK_BYTES)?;
            self.next = read_u64(&self.buffer, 0);
            self.done = found == 0;
        }
        let chunks = &self.buffer[HEAD_BYTES..HEAD_BYTES + found * CHUNK_BYTES];
        Ok(chunks.chunks_exact(CHUNK_BYTES).map(|bytes| NumberChunk {
            first_inode: read_u64(bytes, 0),
            used: read_u64(bytes, 8),
        }))
    }
}

/// What goes into the head.
struct Request {
    from: u64,
    flags: u32,
    count: u32,
    group: u32,
}

/// Fills the buffer; tells how many records are in it. Where to go on stands at its start.
fn issue(
    fd: BorrowedFd<'_>,
    call: Opcode,
    buffer: &mut [u8],
    request: Request,
    record_bytes: usize,
) -> io::Result<usize> {
    let room = (buffer.len() - HEAD_BYTES) / record_bytes;
    let count = request.count.min(room as u32);
    let head = &mut buffer[..HEAD_BYTES];
    head.fill(0);
    head[0..8].copy_from_slice(&request.from.to_ne_bytes());
    head[8..12].copy_from_slice(&request.flags.to_ne_bytes());
    head[12..16].copy_from_slice(&count.to_ne_bytes());
    head[20..24].copy_from_slice(&request.group.to_ne_bytes());
    // SAFETY: the kernel reads the 64 bytes of the head and writes it and at most `count` records
    // of `record_bytes`, which is the size that this call has, after it: they fit in the buffer. It
    // copies bytes and asks for no alignment.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), call as _, buffer.as_mut_ptr()) })?;
    Ok((read_u32(buffer, 16) as usize).min(count as usize))
}

fn decode(bytes: &[u8], wide: bool) -> BulkInode {
    let time = |seconds_at: usize, nanos_at: usize| {
        let seconds = read_u64(bytes, seconds_at).cast_signed();
        (seconds, read_u32(bytes, nanos_at))
    };
    BulkInode {
        inode: read_u64(bytes, 0),
        size_bytes: read_u64(bytes, 8),
        blocks: read_u64(bytes, 16),
        xflags: read_u64(bytes, 24),
        atime: time(32, 80),
        mtime: time(40, 84),
        ctime: time(48, 88),
        btime: time(56, 92),
        generation: read_u32(bytes, 64),
        uid: read_u32(bytes, 68),
        gid: read_u32(bytes, 72),
        project: read_u32(bytes, 76),
        device: (read_u32(bytes, 100) >> 18, read_u32(bytes, 100) & 0x3_ffff),
        links: read_u32(bytes, 112),
        extents: if wide {
            read_u64(bytes, 136)
        } else {
            read_u32(bytes, 116).into()
        },
        attribute_extents: read_u32(bytes, 120),
        mode: u16::from_ne_bytes([bytes[132], bytes[133]]).into(),
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let four = bytes[at..at + 4].try_into().expect("four bytes were cut");
    u32::from_ne_bytes(four)
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes[at..at + 8].try_into().expect("eight bytes were cut");
    u64::from_ne_bytes(eight)
}
