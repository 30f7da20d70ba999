//! Children whose inodes are what they were for the last backup. Nothing is known of them but name and number: whoever has
//! the row of the last backup needs no more, and whoever has not looks at the inode on the device.

use super::make::Maker;
use crate::image::{Image, Place};
use crate::scan::Problem;
use crate::scan::directory::Directory;
use crate::scan::inode::tree::{Child, Marks};
use bale_format::entry::{Entry, Time};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// A run of children of one directory, sorted by name; none is a directory.
pub struct SameChildren {
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

impl SameChildren {
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

    /// Reads the inode of a child. The number of its file system is not set.
    pub fn look(&self, name: &[u8], inode: u64) -> Result<(Entry, Place), Problem> {
        let mut maker = Maker {
            image: self.image.clone(),
            barrier: self.barrier,
            raw: Vec::new(),
        };
        let child = Child {
            inode,
            marks: Marks(Marks::SAME),
            name: Bytes::copy_from_slice(name),
            packed: Bytes::new(),
        };
        let made = maker.entry_and_place(&self.directory, &self.path, child);
        made.map_err(|why| Problem {
            path: bale_format::entry::join(&self.path, name),
            action: "stat",
            error: io::Error::other(why),
        })
    }
}

impl std::fmt::Debug for SameChildren {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        write!(f, "{} children of {path:?}", self.len())
    }
}
