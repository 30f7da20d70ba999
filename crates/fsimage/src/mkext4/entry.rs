//! What the caller says of one entry.

use crate::inode::{FileKind, Timestamp};

/// Longest name in a directory, bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// One row of a catalog, as the writer wants it.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// Path of the directory that holds the entry: components joined by `/`, none in front, empty
    /// for the root.
    pub parent: &'a [u8],
    /// Name in that directory. Empty (with an empty parent) for the root itself, which must come
    /// first if at all.
    pub name: &'a [u8],
    /// Kind, and what only that kind has.
    pub content: NewKind<'a>,
    /// Lower twelve bits of `st_mode`.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation; `ctime` where nobody knows.
    pub crtime: Option<Timestamp>,
    /// Flags as `FS_IOC_GETFLAGS` tells them; those that describe a layout are ignored.
    pub flags: u32,
    pub project: u32,
    /// Generation of the inode.
    pub generation: u32,
    /// Extended attributes with full names; ACLs in the form that `getxattr` gives.
    pub xattrs: &'a [NewXattr<'a>],
    /// Later names of the same inode will come through `push_link`. Never for directories.
    pub more_links: bool,
}

/// Kind of an entry, with what only that kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKind<'a> {
    Directory,
    /// Regular file of this size; the bytes come through `FileData`.
    Regular {
        /// `st_size`.
        size_bytes: u64,
    },
    /// Symbolic link.
    Symlink {
        /// Where it points, as `readlink` gives it.
        target: &'a [u8],
    },
    BlockDevice {
        major: u32,
        minor: u32,
    },
    /// Character device.
    CharDevice {
        major: u32,
        minor: u32,
    },
    /// Named pipe.
    Fifo,
    Socket,
}

impl NewKind<'_> {
    /// The kind alone.
    pub fn kind(&self) -> FileKind {
        match self {
            NewKind::Directory => FileKind::Directory,
            NewKind::Regular { .. } => FileKind::Regular,
            NewKind::Symlink { .. } => FileKind::Symlink,
            NewKind::BlockDevice { .. } => FileKind::BlockDevice,
            NewKind::CharDevice { .. } => FileKind::CharDevice,
            NewKind::Fifo => FileKind::Fifo,
            NewKind::Socket => FileKind::Socket,
        }
    }
}

/// One extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewXattr<'a> {
    /// Full name, such as `user.origin`.
    pub name: &'a [u8],
    pub value: &'a [u8],
}

/// Upper four bits of `st_mode`.
pub(super) fn mode_of_kind(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 0o100000,
        FileKind::Directory => 0o040000,
        FileKind::Symlink => 0o120000,
        FileKind::BlockDevice => 0o060000,
        FileKind::CharDevice => 0o020000,
        FileKind::Fifo => 0o010000,
        FileKind::Socket => 0o140000,
    }
}

/// Type byte of a directory entry.
pub(super) fn dirent_type(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}
