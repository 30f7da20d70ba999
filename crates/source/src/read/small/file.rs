//! A small file as it was read.

use crate::image::ImageInode;
use crate::problem::ScanProblem;
use crate::read::device;
use bale_format::entry::Entry;
use bytes::Bytes;
use std::ops::Range;

/// A small file, read.
#[derive(Debug)]
pub struct SmallFile {
    /// The entry as of the read: completed, and with what happened in its flags.
    pub entry: Entry,
    /// Inode that was listed, of a file with one name: another one may have been read under it.
    pub listed_inode: Option<u64>,
    /// What became of it.
    pub state: SmallState,
    /// The file's bytes, `entry.size` of them; perhaps a part of something larger that was read at
    /// once.
    pub bytes: Bytes,
    /// Hash of these as a row wants it, if it was made while reading.
    pub hash: Option<[u8; 16]>,
    /// Ranges of `bytes` that are holes: zero, and without blocks in the source.
    pub holes: Vec<Range<u64>>,
    /// Ranges of `bytes` that could not be read.
    pub bad: Vec<Range<u64>>,
    /// What went wrong.
    pub problems: Vec<ScanProblem>,
}

/// Content of a small file on a device that was read with many others.
pub struct ReadBefore<'a> {
    pub(super) inode: &'a ImageInode,
    pub(super) content: (Bytes, Option<[u8; 16]>),
}

impl ReadBefore<'_> {
    /// The file with this content.
    pub fn into_file(self, entry: Entry) -> SmallFile {
        device::read_prepared(self.inode, entry, self.content)
    }
}

/// What became of a file that was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallState {
    /// `bytes` is its content; see the entry's flags for reservations.
    Read,
    /// It is not there any more.
    Vanished,
    /// It is too large by now: to be read by a [`super::LargeReader`].
    Grown,
    /// Nothing could be read; there is a problem that says why.
    Unreadable,
}
