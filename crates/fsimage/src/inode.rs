//! What both readers say of an inode and a directory entry, in one vocabulary.

/// Type of an inode, from the mode's upper four bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// Regular file.
    Regular,
    Directory,
    /// Symbolic link.
    Symlink,
    BlockDevice,
    /// Character device.
    CharDevice,
    /// Named pipe.
    Fifo,
    Socket,
}

impl FileKind {
    /// From `st_mode`; `None` for a value that Linux does not know.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & 0o170000 {
            0o100000 => FileKind::Regular,
            0o040000 => FileKind::Directory,
            0o120000 => FileKind::Symlink,
            0o060000 => FileKind::BlockDevice,
            0o020000 => FileKind::CharDevice,
            0o010000 => FileKind::Fifo,
            0o140000 => FileKind::Socket,
            _ => return None,
        })
    }
}

/// Seconds since 1970 (may be negative) and nanoseconds 0..1e9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    pub seconds: i64,
    /// Nanoseconds, always positive.
    pub nanos: u32,
}

/// One inode, decoded and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Inode number.
    pub number: u64,
    /// Generation, as `FS_IOC_GETVERSION` tells it.
    pub generation: u32,
    /// `st_mode`: type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, where the file system keeps it.
    pub crtime: Option<Timestamp>,
    /// Flags as `FS_IOC_GETFLAGS` tells them (`FS_IMMUTABLE_FL` ...).
    pub flags: u32,
    pub project: u32,
    /// Device numbers (major, minor) of a device node.
    pub rdev: (u32, u32),
    /// Where the content lies.
    pub layout: Layout,
}

/// Where an inode's content lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// No content (device nodes, empty files).
    None,
    /// The content itself, stored in the inode (inline data, short symlink, short-form directory).
    /// A regular file may be longer than this, up to any size: the rest is a hole and reads as
    /// zeros.
    Inline(Vec<u8>),
    /// In extents; ask the reader for them, they may need further reads.
    Mapped,
    /// In extents, in another form than programs read (compressed by NTFS): the reader gives it.
    Encoded,
    /// Only the kernel can read it (encrypted, compressed, on another device); the text says why.
    Kernel(&'static str),
    /// Only Windows can read it; the text says why.
    Windows(&'static str),
}

/// A run of a file's bytes on the device. Bytes of the file in no extent are holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Offset on the device, bytes.
    pub device_offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Allocated but reads as zeros.
    pub unwritten: bool,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// Inode that the name leads to.
    pub inode: u64,
    /// Name bytes: not empty, no `/`, no NUL, never `.` or `..`.
    pub name: Vec<u8>,
    /// Type as the directory tells it, where it does.
    pub kind: Option<FileKind>,
}
