//! Opening what the inode scan found: by inode and generation, not by a path that may have changed
//! meanwhile.
//!
//! The handle is made from what the inode table says; nothing is looked up by name. A generation
//! belongs to one life of an inode number: who opens gets the file that was meant, or hears that it
//! is gone.

use super::alive::{self, Life};
use super::identity::Handle;
use super::list::each_entry;
use super::live::LiveKind;
use bale_format::entry::{Entry, Kind, Time};
use bale_sys::handle::FileHandle;
use rustix::fs::{AtFlags, FileType, OFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Opens the inodes of one mounted file system. Needs `CAP_DAC_READ_SEARCH`.
pub struct Handles {
    mount: OwnedFd,
    kind: LiveKind,
}

/// The regular files of the one file system that is scanned by inodes.
pub struct FileHandles {
    /// `major << 32 | minor`.
    device: u64,
    handles: Handles,
}

impl FileHandles {
    /// Of the file system with this device number.
    pub fn new(device: u64, handles: Handles) -> FileHandles {
        FileHandles { device, handles }
    }

    /// Opens a file for reading. `None`: it is on another file system, its generation is not known,
    /// it is gone, or handles are refused.
    pub(super) fn open_file(&self, device: u64, entry: &Entry) -> Option<OwnedFd> {
        if device != self.device || entry.generation == 0 {
            return None;
        }
        self.open_inode(entry.inode, entry.generation)
    }

    /// What the file system calls an inode; `None`: it has no such number.
    pub(super) fn handle_of(&self, inode: u64, generation: u32) -> Option<Handle> {
        Handle::of_handle(&self.handles.handle_of(inode, generation)?)
    }

    /// Whether what a row was made of still has all its names, wherever they are; of a directory,
    /// and of what has one name, whether it is there. `None`: that cannot be told.
    pub fn is_there(&self, row: &Entry, began: Time) -> Option<bool> {
        let names = match row.generation {
            0 => {
                let life = Life {
                    since: began,
                    mtime: Some(row.mtime),
                };
                alive::names(self.handles.mount(), row.inode, life)?
            }
            generation => {
                let place = OFlags::PATH | OFlags::NOFOLLOW;
                let opened = self.handles.open_with(row.inode, generation, place).ok()?;
                opened.map_or(0, |opened| opened.stat.stx_nlink)
            }
        };
        Some(has_all_names(row, names))
    }

    /// Opens a regular file of the file system for reading. `None`: it is gone, or handles are
    /// refused.
    pub(super) fn open_inode(&self, inode: u64, generation: u32) -> Option<OwnedFd> {
        let opened = self.handles.open(inode, generation, REGULAR);
        opened.ok().flatten().map(|opened| opened.fd)
    }
}

/// Of a file with several names one may be gone, and another one be there.
pub(super) fn has_all_names(row: &Entry, names: u32) -> bool {
    match row.kind {
        Kind::Directory => names > 0,
        _ => names >= row.nlink.max(1),
    }
}

/// An inode that was opened.
pub struct OpenedInode {
    /// For reading; of what is neither file nor directory, only to ask about it.
    pub fd: OwnedFd,
    /// Taken after it was opened.
    pub stat: Statx,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// Bytes.
    pub name: &'a [u8],
    /// What the directory says that it leads to: where something is mounted, the inode under the
    /// mount.
    pub inode: u64,
    /// The directory says that it leads to a directory; not all tell.
    pub is_directory: bool,
}

impl Handles {
    /// Any file or directory of the file system.
    pub(super) fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// `mount` is any file or directory of the file system.
    pub fn new(mount: OwnedFd, kind: LiveKind) -> Handles {
        Handles { mount, kind }
    }

    /// Opens a regular file or a directory for reading, anything else as a mere place (`O_PATH`).
    /// `None`: it is gone, or the number has another life.
    pub fn open(&self, inode: u64, generation: u32, mode: u32) -> io::Result<Option<OpenedInode>> {
        let readable = matches!(mode & FILE_TYPE, REGULAR | DIRECTORY);
        // ext4 takes 0 for any generation. A device must not be opened by mistake: its driver would
        // notice.
        let unsure = self.kind == LiveKind::Ext4 && generation == 0;
        let place = OFlags::PATH | OFlags::NOFOLLOW;
        if unsure || !readable {
            let opened = self.open_with(inode, generation, place)?;
            let is_meant = |opened: &OpenedInode| {
                u32::from(opened.stat.stx_mode) & FILE_TYPE == mode & FILE_TYPE
            };
            match opened {
                Some(opened) if !is_meant(&opened) => return Ok(None),
                Some(opened) if !readable => return Ok(Some(opened)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match self.open_with(inode, generation, flags | OFlags::NOATIME) {
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                self.open_with(inode, generation, flags)?
            }
            result => result?,
        };
        let Some(opened) = opened else {
            return Ok(None);
        };
        if unsure && bale_sys::inode::generation(opened.fd.as_fd())? != generation {
            return Ok(None);
        }
        Ok(Some(opened))
    }

    fn handle_of(&self, inode: u64, generation: u32) -> Option<FileHandle> {
        match self.kind {
            LiveKind::Xfs => Some(FileHandle::xfs(inode, generation)),
            LiveKind::Ext4 => {
                let inode = u32::try_from(inode).ok()?;
                Some(FileHandle::ext4(inode, generation))
            }
        }
    }

    fn open_with(
        &self,
        inode: u64,
        generation: u32,
        flags: OFlags,
    ) -> io::Result<Option<OpenedInode>> {
        let Some(handle) = self.handle_of(inode, generation) else {
            return Ok(None);
        };
        let fd = loop {
            match handle.open(self.mount.as_fd(), flags) {
                Ok(fd) => break fd,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::STALE) => return Ok(None),
                    Some(Errno::INTR) => {}
                    _ => return Err(error),
                },
            }
        };
        let stat = statx(
            &fd,
            c"",
            AtFlags::EMPTY_PATH,
            StatxFlags::BASIC_STATS | StatxFlags::BTIME,
        )?;
        // Deleted, but somebody has it open.
        let is_gone = stat.stx_nlink == 0 || stat.stx_ino != inode;
        Ok((!is_gone).then_some(OpenedInode { fd, stat }))
    }
}

/// Calls `name` for each name of an open directory but `.` and `..`, in the order of the file
/// system. Names that come or go meanwhile may be told or not.
pub fn list(directory: &OwnedFd, name: &mut dyn FnMut(Name<'_>)) -> io::Result<()> {
    list_while(directory, &mut |found| {
        name(found);
        ControlFlow::Continue(())
    })
}

/// The same until `name` says that it is enough.
pub(super) fn list_while(
    directory: &OwnedFd,
    name: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0))?;
    each_entry(directory, &mut |entry| {
        name(Name {
            name: entry.file_name().to_bytes(),
            inode: entry.ino(),
            is_directory: entry.file_type() == FileType::Directory,
        })
    })
}

/// `S_IFMT`, `S_IFREG`, `S_IFDIR`.
const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
pub(super) const DIRECTORY: u32 = 0o040_000;
