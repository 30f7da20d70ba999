//! What a directory is, whatever its name is: by device and inode, by its file handle, and by the
//! mount that it is on.

use bale_sys::handle::FileHandle;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// What makes an inode itself while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// `st_dev`: major << 32 | minor.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// What a file system calls a directory, whatever its name is: type of the handle (4), and its
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handle(pub(super) Box<[u8]>);

/// Longer ones are of file systems that do without.
const HANDLE_BYTES_MAX: usize = 64;

impl Handle {
    /// Of a name; `None`: this file system gives none.
    pub(super) fn of(directory: BorrowedFd<'_>, name: &CStr) -> Option<Handle> {
        let (handle, _) = FileHandle::of(directory, name).ok()?;
        Handle::of_handle(&handle)
    }

    /// The same, kept in few bytes.
    pub(super) fn of_handle(handle: &FileHandle) -> Option<Handle> {
        let bytes = handle.bytes();
        let all = || [&handle.kind().to_ne_bytes()[..], bytes].concat();
        (bytes.len() <= HANDLE_BYTES_MAX).then(|| Handle(all().into_boxed_slice()))
    }

    /// As it was kept; `None`: there was none.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Handle> {
        (!bytes.is_empty()).then(|| Handle(bytes.into()))
    }

    pub(super) fn to_file_handle(&self) -> Option<FileHandle> {
        let (kind, bytes) = self.0.split_first_chunk::<4>()?;
        FileHandle::new(i32::from_ne_bytes(*kind), bytes)
    }
}

/// The file system that is not left: what is on this device, or on this mount, is on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) device: u64,
    pub(super) mount: u64,
}

pub fn identity_of(stat: &rustix::fs::Statx) -> Identity {
    Identity {
        device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
        inode: stat.stx_ino,
    }
}
