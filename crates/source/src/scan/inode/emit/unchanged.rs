//! Children whose inode digest is that of the parent snapshot: only name and inode number are
//! carried. Whoever lacks a reusable row for one reads the inode from the device, unless another
//! name of it was read or reused: rows are looked at child by child, so all names of an inode come
//! by.
//!
//! That look comes long after the inodes were gathered. Of a mounted file system its inode may
//! belong to another file by then, or to none: what is not as old as the barrier is asked of the
//! kernel, by its name.

use super::make::Maker;
use crate::image::{EntryPlace, Image, OpenedAs};
use crate::scan::ScanProblem;
use crate::scan::directory::Directory;
use crate::scan::inode::tree::{Child, Marks};
use crate::scan::statx::{entry_of, stat_row_at};
use bale_format::entry::{Entry, Kind, Time};
use bytes::Bytes;
use std::ffi::CString;
use std::io;
use std::sync::Arc;

/// A run of children of one directory, sorted by name; none is a directory.
pub struct UnchangedChildren {
    pub(super) image: Arc<Image>,
    pub(super) barrier: Option<Time>,
    pub(super) directory: Arc<Directory>,
    pub(super) path: Bytes,
    pub(super) filesystem: u32,
    /// One behind the other.
    pub(super) names: Vec<u8>,
    /// Inodes, and the lengths of their names.
    pub(super) children: Vec<(u64, u16)>,
}

impl UnchangedChildren {
    /// Path of their directory.
    pub fn path(&self) -> &Bytes {
        &self.path
    }

    /// Position of their file system in the stream.
    pub fn filesystem(&self) -> u32 {
        self.filesystem
    }

    /// How many; never 0.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Names and inodes.
    pub fn children(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut rest = &self.names[..];
        self.children.iter().map(move |(inode, name_bytes)| {
            let (name, behind) = rest.split_at(usize::from(*name_bytes));
            rest = behind;
            (name, *inode)
        })
    }

    /// Reads the inode of a child. The number of its file system is not set. `None`: the name has
    /// gone meanwhile, or a directory has it.
    pub fn stat_from_device(
        &self,
        name: &[u8],
        inode: u64,
    ) -> Result<Option<(Entry, EntryPlace)>, ScanProblem> {
        let mut maker = Maker {
            image: self.image.clone(),
            barrier: self.barrier,
            raw: Vec::new(),
        };
        let child = Child {
            inode,
            marks: Marks(Marks::UNCHANGED),
            name: Bytes::copy_from_slice(name),
            packed: Bytes::new(),
        };
        let made = maker.entry_and_place(&self.directory, &self.path, child);
        let found = match made {
            Ok((entry, place @ EntryPlace::Image(_))) if entry.kind != Kind::Directory => {
                Ok(Some((entry, place)))
            }
            _ if self.image.state() == OpenedAs::Mounted => self.stat_by_kernel(name),
            Ok(found) => Ok(Some(found)),
            Err(why) => Err(io::Error::other(why)),
        };
        found.map_err(|error| ScanProblem {
            path: bale_format::entry::join(&self.path, name),
            action: "stat",
            error,
        })
    }

    /// What the kernel says of a name.
    fn stat_by_kernel(&self, name: &[u8]) -> io::Result<Option<(Entry, EntryPlace)>> {
        let name_with_nul = CString::new(name)?;
        let stat = match self
            .directory
            .open()
            .and_then(|fd| Ok(stat_row_at(&fd, &name_with_nul, self.image.atime())?))
        {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            stat => stat?,
        };
        let (path, name) = (self.path.clone(), Bytes::copy_from_slice(name));
        let entry = entry_of(path, name, &stat, self.image.atime());
        let entry = entry.ok_or_else(|| io::Error::other("unknown file type"))?;
        let place = EntryPlace::Directory(self.directory.clone());
        Ok((entry.kind != Kind::Directory).then_some((entry, place)))
    }
}

impl std::fmt::Debug for UnchangedChildren {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        write!(f, "{} children of {path:?}", self.len())
    }
}
