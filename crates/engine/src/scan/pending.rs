//! Directories that were found and wait to be entered.

use super::directory::Identity;
use super::sources::SourceNode;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A directory to be entered.
pub(super) struct Subdirectory {
    pub(super) name: Bytes,
    pub(super) identity: Identity,
    pub(super) reach: Reach,
}

/// Which children of a directory count.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    /// All, on the given mount only if one is given.
    All(Option<u64>),
    /// All, and some of them are sources themselves, which no filter excludes.
    AllAnd(Option<u64>, Arc<SourceNode>),
    /// Only what leads to a source.
    Only(Arc<SourceNode>),
    /// Only the files that mark the directory as excluded.
    Marks,
}

/// The subdirectories of one directory, in order.
#[derive(Default)]
pub(super) struct Pending {
    queue: VecDeque<Subdirectory>,
}

impl Pending {
    pub(super) fn new(subdirectories: Vec<Subdirectory>) -> Pending {
        Pending {
            queue: subdirectories.into(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Subdirectory> {
        self.queue.pop_front()
    }

    pub(super) fn append(&mut self, more: Vec<Subdirectory>) {
        self.queue.extend(more);
    }
}

/// A file that no directory names: it is gone when it is closed, whatever happens.
pub(super) fn unnamed_file(directory: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR)?.into())
}
