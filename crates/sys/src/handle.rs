//! Opening a file by what the file system calls it, not by its path.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `MAX_HANDLE_SZ`.
pub const HANDLE_BYTES_MAX: usize = 128;

/// A file handle: opaque bytes that its file system understands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FileHandle {
    len: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

/// Handle type of ext2, ext3 and ext4: inode and generation, 32 bits each.
const INODE32_GENERATION: i32 = 0x1;
/// Handle type of XFS: inode in 64 bits, generation.
const INODE64_GENERATION: i32 = 0x81;

impl FileHandle {
    /// Of an inode of ext2, ext3 or ext4.
    pub fn ext4(inode: u32, generation: u32) -> FileHandle {
        let parts = [inode.to_ne_bytes(), generation.to_ne_bytes()];
        FileHandle::new(INODE32_GENERATION, &parts.concat()).expect("8 bytes fit")
    }

    /// Of an inode of XFS.
    pub fn xfs(inode: u64, generation: u32) -> FileHandle {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&inode.to_ne_bytes());
        bytes[8..].copy_from_slice(&generation.to_ne_bytes());
        FileHandle::new(INODE64_GENERATION, &bytes).expect("12 bytes fit")
    }

    /// Inode and generation of a handle of XFS. `None`: of another kind.
    pub fn xfs_parts(&self) -> Option<(u64, u32)> {
        let u32_of = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?));
        match (self.kind, self.bytes()) {
            (INODE64_GENERATION, bytes) if bytes.len() == 12 => {
                let (inode, generation) = bytes.split_first_chunk::<8>()?;
                Some((u64::from_ne_bytes(*inode), u32_of(generation)?))
            }
            (INODE32_GENERATION, bytes) if bytes.len() == 8 => {
                let (inode, generation) = bytes.split_at(4);
                Some((u32_of(inode)?.into(), u32_of(generation)?))
            }
            _ => None,
        }
    }

    /// From its type and bytes; `None` if there are too many.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<FileHandle> {
        let mut handle = FileHandle {
            len: u32::try_from(bytes.len()).ok()?,
            kind,
            bytes: [0; HANDLE_BYTES_MAX],
        };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// Handle of `name` in a directory, links not followed, and the id of its mount. Without a
    /// name, of what the descriptor itself is of.
    pub fn of(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<(FileHandle, i32)> {
        let mut handle = FileHandle {
            len: HANDLE_BYTES_MAX as u32,
            kind: 0,
            bytes: [0; HANDLE_BYTES_MAX],
        };
        let mut mount = 0;
        // SAFETY: `handle` has room for the length it states; all pointers live across the call.
        let result = unsafe {
            libc::name_to_handle_at(
                directory.as_raw_fd(),
                name.as_ptr(),
                (&mut handle as *mut FileHandle).cast(),
                &mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((handle, mount))
    }

    /// Type number of the handle.
    pub fn kind(&self) -> i32 {
        self.kind
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.len as usize).min(HANDLE_BYTES_MAX)]
    }

    /// Opens the file; `mount` is any file on its file system. Needs `CAP_DAC_READ_SEARCH`.
    pub fn open(&self, mount: BorrowedFd<'_>, flags: rustix::fs::OFlags) -> io::Result<OwnedFd> {
        let mut handle = *self;
        let flags = flags | rustix::fs::OFlags::CLOEXEC;
        // SAFETY: the kernel reads the handle only, and the descriptor it returns is ours alone.
        unsafe {
            let fd = libc::open_by_handle_at(
                mount.as_raw_fd(),
                (&mut handle as *mut FileHandle).cast(),
                flags.bits() as i32,
            );
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
}
