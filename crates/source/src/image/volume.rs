//! What a file system offers to be scanned by inodes: its tables, its names, and the content of its
//! inodes.
//!
//! A further file system is one type with these traits and a function that opens it or says why
//! not, for [`super::Image::open`] to try. `raw` are always the bytes of one inode as its tables
//! gave them; what is derived from them is derived when it is needed. Nothing here reads tables,
//! names or content: [`super::Image`] does, in the way that keeps what is read true.

use super::{NamesPiece, TablePiece, XfsBulkstat};
use crate::scan::{ATTRIBUTES_BYTES_MAX, Atime};
use bale_fsimage::xfs::LogPlace;
use bale_fsimage::{FileKind, Inode, MappedExtent, Timestamp};
use std::io;
use std::ops::Range;

/// An opened file system.
pub(super) trait Volume: InodeTables + DirectoryNames + InodeContent + Send + Sync {
    /// What stays as it is while it is open.
    fn facts(&self) -> VolumeFacts;
    /// Of the device as the file system sees it: with what a replayed journal changes.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Are bytes of this range other than those of the device, as a replayed journal has them?
    fn differs_from_device(&self, _range: &Range<u64>) -> bool {
        false
    }
    /// If it has one that names inodes.
    fn log(&self) -> Option<&dyn InodeLog> {
        None
    }
}

/// What is known of a file system once it is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeFacts {
    /// `ext4`, `xfs` ...
    pub kind: &'static str,
    pub uuid: [u8; 16],
    /// What else decides what the bytes of an inode mean.
    pub inode_context: [u32; 12],
    /// Inode number of the root directory.
    pub root: u64,
    /// Bytes that an inode number takes in a sort key.
    pub number_bytes: usize,
    /// While it is mounted, tables and directories are true in the page cache of the device, not
    /// past it.
    pub has_metadata_in_page_cache: bool,
    /// Everything must be read from the view that a replayed journal gives, not from the device.
    pub is_replayed: bool,
    /// No kernel ever wrote to it: its times are what a tool made them. Who builds an image anew
    /// may give other bytes the same times, numbers and UUID on purpose.
    pub was_never_mounted: bool,
    /// It was neither unmounted nor frozen when it was left or copied: times may be there whose
    /// bytes are not.
    pub was_in_use: bool,
}

/// All inodes, piece by piece.
pub(crate) trait InodeTables {
    /// Inodes in use, as the file system counts them, a few internal ones included.
    fn inodes_expected(&self) -> u64;
    /// In the order of inode numbers; an error stands for inodes that cannot be found.
    fn pieces(&self) -> Box<dyn Iterator<Item = Result<TablePiece, String>> + Send + '_>;
    /// Decodes what [`super::Image::read_table`] read.
    fn parse(&self, piece: &TablePiece, bytes: &[u8], sink: &mut dyn TableSink);
    /// Zeroes what reading a file changes in its inode; with `atime` taken, only what says nothing
    /// of when that was.
    fn forget_reading(&self, raw: &mut [u8], atime: Atime);
}

/// Receives what an inode table holds.
pub(crate) trait TableSink {
    /// An inode in use.
    fn inode(&mut self, inode: FoundInode, raw: &[u8]);
    /// Where names of a directory lie.
    fn names(&mut self, piece: NamesPiece);
    /// A name of a directory that lies in its inode.
    fn name(&mut self, directory: u64, name: &[u8], inode: u64);
    /// An inode that cannot be believed.
    fn damaged(&mut self, number: u64, why: String);
    /// A directory of which names are missing.
    fn incomplete(&mut self, directory: u64, why: String);
}

/// Facts about an inode found with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundInode {
    pub number: u64,
    /// Number of names that it should have.
    pub nlink: u32,
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Anybody can set an mtime.
    pub ctime: Timestamp,
}

impl FoundInode {
    /// `None`: of an unknown file type.
    pub(super) fn new(inode: &Inode) -> Option<FoundInode> {
        Some(FoundInode {
            number: inode.number,
            nlink: inode.nlink,
            kind: FileKind::from_mode(inode.mode)?,
            size: inode.size,
            ctime: inode.ctime,
        })
    }
}

/// The names in directories, of the places that the tables gave.
pub(crate) trait DirectoryNames {
    /// `bytes` are those of all spans. An error for each part whose names are missing.
    fn parse(
        &self,
        piece: &NamesPiece,
        bytes: &[u8],
        name: &mut dyn FnMut(&[u8], u64),
    ) -> Vec<String>;
    /// Some if the kernel lists the inodes (XFS_IOC_BULKSTAT) instead of their being read from the
    /// device. Names must then be listed through the kernel, and content read through it.
    fn bulkstat(&self) -> Option<&XfsBulkstat> {
        None
    }
    /// Names are with the inodes that they lead to: what is wrong with a directory takes away what
    /// is in it, and no name leads to a damaged inode.
    fn are_with_inodes(&self) -> bool {
        false
    }
    /// Of a directory that is not among the inodes: is that on purpose, with all that is below it?
    fn is_left_out(&self, _directory: u64) -> bool {
        false
    }
}

/// One inode, and what it leads to.
pub(crate) trait InodeContent {
    /// Reads one inode again.
    fn read_inode(&self, number: u64) -> Result<Vec<u8>, String>;
    /// Of bytes that were found intact: those of a table, or of `read_inode`.
    fn decode(&self, number: u64, raw: &[u8]) -> Result<Inode, String>;
    /// 512-byte units taken, as `st_blocks` counts.
    fn sectors(&self, number: u64, raw: &[u8]) -> u64;
    /// Must metadata be read to find the content?
    fn mapping_has_nodes(&self, number: u64, raw: &[u8]) -> bool;
    /// Are these bytes, with what is in its extents, all that its row is made of? Those of which
    /// finding that out takes reading are not.
    fn is_self_contained(&self, _number: u64, _raw: &[u8]) -> bool {
        false
    }
    /// In file order, until `extent` says stop.
    fn extents(
        &self,
        number: u64,
        raw: &[u8],
        extent: &mut dyn FnMut(MappedExtent) -> bool,
    ) -> Result<(), String>;
    /// Target of a symbolic link.
    fn target(&self, number: u64, raw: &[u8]) -> Result<Vec<u8>, String>;
    fn xattrs(&self, number: u64, raw: &[u8]) -> Result<FoundXattrs, String>;
    /// The number by which people know an inode.
    fn shown_number(&self, number: u64) -> u64 {
        number
    }
    /// Fills `bytes` with content that is stored in another form
    /// ([`bale_fsimage::Layout::Encoded`]).
    fn read_encoded(
        &self,
        _number: u64,
        _raw: &[u8],
        _offset: u64,
        _bytes: &mut [u8],
    ) -> Result<(), String> {
        Err("its content is in no other form".to_owned())
    }
}

/// A log that names the inodes that were changed.
pub trait InodeLog {
    /// A moment from which on it can say which inodes are changed. `None`: it cannot.
    fn place(&self) -> Option<LogPlace>;
    /// Inodes that were changed since then, sorted: behind a freeze, no other one was. `None` if
    /// that cannot be said.
    fn inodes_since(&self, place: LogPlace) -> Option<Vec<u64>>;
}

/// Extended attributes of an inode.
#[derive(Default)]
pub(crate) struct FoundXattrs {
    /// Names and values, sorted by name.
    pub set: Vec<(Vec<u8>, Vec<u8>)>,
    /// Those that cannot be had beside these, each with a reason.
    pub missing: Vec<String>,
    bytes: usize,
}

impl FoundXattrs {
    pub(super) fn all(set: Vec<(Vec<u8>, Vec<u8>)>) -> FoundXattrs {
        FoundXattrs {
            set,
            ..FoundXattrs::default()
        }
    }

    /// Adds one, if a row can have it beside the others.
    pub(super) fn add(&mut self, name: Vec<u8>, value: Result<Vec<u8>, String>) {
        let value = value.and_then(|value| {
            let bytes = self.bytes + name.len() + value.len() + XATTR_HEAD_BYTES;
            if name.len() > XATTR_NAME_BYTES_MAX || name.contains(&0) {
                return Err("its name is none that an attribute can have".to_owned());
            }
            if bytes > ATTRIBUTES_BYTES_MAX {
                return Err("more than 1 MiB of extended attributes".to_owned());
            }
            self.bytes = bytes;
            Ok(value)
        });
        match value {
            Ok(value) => self.set.push((name, value)),
            Err(why) => {
                let name = String::from_utf8_lossy(&name).escape_debug().to_string();
                self.missing.push(format!("{name}: {why}"));
            }
        }
    }
}

/// Longest name that the kernel takes.
const XATTR_NAME_BYTES_MAX: usize = 255;
/// Of an attribute in a set, beside its name and value.
const XATTR_HEAD_BYTES: usize = 6;
