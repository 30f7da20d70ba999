//! Names that the first pass had and the second has not: gone, or only somewhere else.
//!
//! The second pass lists a directory at one moment and the next one at another, so what is renamed
//! from the one to the other in between is in neither. A file that had one name and whose inode is
//! still there was moved; unless it is met under another name, it is a problem, and the directory
//! that it was in lacks something.

use bale_format::{Entry, Kind};
use bale_repository::catalog::ParentRow;
use bale_source::scan::handle::FileHandles;
use std::collections::HashSet;

/// Names that are looked for, and inodes that are remembered, at most: 8 bytes for each inode, and
/// a row for each name.
const LOOKED_FOR_MAX: usize = 16 << 10;

/// Collects while rows are compared.
pub(super) struct Moved<'a> {
    handles: &'a FileHandles,
    /// Inodes with a row at a path where the first pass had another one or none. Of more than fit
    /// some are forgotten, and their old names are told.
    added: HashSet<u64>,
    /// Rows that the second pass did not meet, whose inodes were there when it passed their paths.
    gone: Vec<Entry>,
    /// There were more.
    is_full: bool,
}

/// A file that is there and has no row.
pub(super) struct Unmet {
    pub(super) row: Entry,
    pub(super) error: std::io::Error,
}

impl<'a> Moved<'a> {
    pub(super) fn new(handles: &'a FileHandles) -> Moved<'a> {
        Moved {
            handles,
            added: HashSet::new(),
            gone: Vec::new(),
            is_full: false,
        }
    }

    /// A row of the first pass that the second has not at its path. Of a file with several names
    /// another one may be what is there, and a directory is where its files are.
    pub(super) fn gone(&mut self, row: &Entry) {
        if row.kind == Kind::Directory || row.nlink != 1 || row.generation == 0 {
            return;
        }
        // What was removed, which is most, takes no room.
        if !self.is_there(row) {
            return;
        }
        match self.gone.len() < LOOKED_FOR_MAX {
            true => self.gone.push(row.clone()),
            false => self.is_full = true,
        }
    }

    /// A row of the second pass, and that of the first at its path.
    pub(super) fn compare(&mut self, old: Option<ParentRow>, entry: &Entry) {
        if old.is_some_and(|old| old.view().inode == entry.inode) {
            return;
        }
        if let Some(old) = old {
            self.gone(&old.entry());
        }
        self.added(entry);
    }

    fn is_there(&self, row: &Entry) -> bool {
        self.handles.is_there(row.inode, row.generation) == Some(true)
    }

    /// A row of the second pass at a path where the first had another inode or none.
    fn added(&mut self, entry: &Entry) {
        if self.added.len() < LOOKED_FOR_MAX {
            self.added.insert(entry.inode);
        }
    }

    /// What was moved and not met; true: there was more than can be told.
    pub(super) fn unmet(mut self) -> (Vec<Unmet>, bool) {
        let gone = std::mem::take(&mut self.gone);
        let is_unmet = |row: &Entry| !self.added.contains(&row.inode) && self.is_there(row);
        let unmet = gone.into_iter().filter(is_unmet).map(|row| Unmet {
            row,
            error: std::io::Error::other(WHY),
        });
        (unmet.collect(), self.is_full)
    }
}

const WHY: &str = "it was moved while the scan was verified: it is not in this snapshot unless it \
    is found where it is now";
