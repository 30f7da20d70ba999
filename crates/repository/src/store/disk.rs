//! The seam below `LocalStore`: the few operations on one directory tree that it is made of.
//!
//! They are exactly those whose effect on a crash matters: what is written lasts only after `sync`
//! of the file, a name that came or went lasts only after `sync_dir` of its directory. `OsDisk` is
//! the real thing; the simulated disk of the test kit forgets any subset of what was not synced.
//!
//! Paths are relative to the root and made by `LocalStore`: parts of ASCII, separated by `/`, the
//! root itself empty.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

mod direct;
mod os;

pub use direct::{WRITER_BYTES_CACHED_MAX, WRITER_BYTES_MAX};
pub use os::OsDisk;

/// What a new file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Written at one go, or soon read again: a sealed object, a pack of metadata. Takes no memory.
    Small,
    /// Written in many pieces and not read again soon: a pack of data.
    Bulk,
}

/// Kind of a directory entry, as far as the store cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirEntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// Anything else, links too.
    Other,
}

/// What is known of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Regular file, directory or else.
    pub kind: DirEntryKind,
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of its bytes.
    pub modified: Option<SystemTime>,
}

/// Files and directories under one root.
pub trait Disk: Send + Sync {
    /// Makes a new, empty file for writing; `AlreadyExists` if the name is taken.
    fn create(&self, path: &str, expect: Expect) -> io::Result<Box<dyn NewFile>>;

    /// Opens a regular file for reading; anything else is an error.
    fn open(&self, path: &str) -> io::Result<Arc<dyn OpenFile>>;

    /// Looks at a name without following a link; `None` if nothing is there.
    fn stat(&self, path: &str) -> io::Result<Option<FileStat>>;

    /// Gives a file another name, `AlreadyExists` if that is taken. At no moment has the file no
    /// name.
    fn rename_new(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes the name of a file.
    fn unlink(&self, path: &str) -> io::Result<()>;

    /// Makes a directory; `AlreadyExists` if the name is taken.
    fn make_dir(&self, path: &str) -> io::Result<()>;

    /// Removes an empty directory; `DirectoryNotEmpty` if it is not.
    fn remove_dir(&self, path: &str) -> io::Result<()>;

    /// Makes names that came or went in a directory last.
    fn sync_dir(&self, path: &str) -> io::Result<()>;

    /// Calls `found` with every name of a directory except `.` and `..`, and its kind where that
    /// costs nothing.
    fn list(
        &self,
        path: &str,
        found: &mut dyn FnMut(&[u8], Option<DirEntryKind>),
    ) -> io::Result<()>;

    /// Where the root is, for messages.
    fn place(&self) -> String;
}

/// A file being written, once and from front to back.
pub trait NewFile: Send {
    /// Appends all of `bytes`.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended last. Called at most once; the file is closed afterwards.
    fn sync(self: Box<Self>) -> io::Result<()>;
}

/// A file opened for reading.
pub trait OpenFile: Send + Sync {
    /// Length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`; `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}
