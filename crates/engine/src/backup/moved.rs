//! Names that the first pass had and the second has not: gone, or only somewhere else.
//!
//! The second pass lists a directory at one moment and the next one at another, so what is renamed
//! from the one to the other in between is in neither. What is still there with all its names was
//! moved; unless it is met under another name, it is a problem, and the directory that it was in
//! lacks something. What cannot be asked for is a problem, too.

use bale_format::{Entry, Time};
use bale_repository::catalog::ParentRow;
use bale_source::scan::handle::FileHandles;
use std::collections::HashSet;

/// Names that are looked for, and inodes that are remembered, at most: 8 bytes for each inode, and
/// a row for each name.
pub(super) const LOOKED_FOR_MAX: usize = 16 << 10;

/// Collects while rows are compared.
pub(super) struct Moved<'a> {
    handles: &'a FileHandles,
    /// Inodes that the first pass read under names of others: their rows are where they are.
    read_instead: &'a HashSet<u64>,
    /// What came into being since is no loss.
    began: Time,
    filesystem: Option<u32>,
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
    pub(super) fn new(
        (handles, read_instead): (&'a FileHandles, &'a HashSet<u64>),
        began: Time,
    ) -> Moved<'a> {
        Moved {
            handles,
            read_instead,
            began,
            filesystem: None,
            added: HashSet::new(),
            gone: Vec::new(),
            is_full: false,
        }
    }

    /// The file system that the handles are of, by its number in rows.
    pub(super) fn is_of(&mut self, filesystem: u32) {
        self.filesystem = Some(filesystem);
    }

    /// A row of the first pass that the second has not at its path.
    pub(super) fn gone(&mut self, row: &Entry) {
        if self.filesystem != Some(row.filesystem) {
            return;
        }
        // What was removed, which is most, takes no room.
        if self.handles.is_there(row, self.began) == Some(false) {
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

    /// A row of the second pass at a path where the first had another inode or none.
    fn added(&mut self, entry: &Entry) {
        if self.added.len() < LOOKED_FOR_MAX {
            self.added.insert(entry.inode);
        }
    }

    /// What was moved and not met; true: there was more than can be told.
    pub(super) fn unmet(mut self) -> (Vec<Unmet>, bool) {
        let gone = std::mem::take(&mut self.gone);
        let is_met = |inode: &u64| self.added.contains(inode) || self.read_instead.contains(inode);
        let unmet = gone.into_iter().filter(|row| !is_met(&row.inode));
        let unmet = unmet.filter_map(|row| {
            let why = match self.handles.is_there(&row, self.began) {
                Some(true) => WHY,
                Some(false) => return None,
                None => WHY_UNKNOWN,
            };
            let error = std::io::Error::other(why);
            Some(Unmet { row, error })
        });
        (unmet.collect(), self.is_full)
    }
}

const WHY_UNKNOWN: &str = "it is not where it was, and whether it was moved or removed cannot be \
    told (that needs CAP_DAC_READ_SEARCH): it is not in this snapshot unless it is found where it \
    is now";

const WHY: &str = "it was moved while the scan was verified: it is not in this snapshot unless it \
    is found where it is now";
