//! Names that were there before and that this scan has not: gone, or only somewhere else.
//!
//! A scan lists a directory at one moment and the next one at another, so what is renamed from the
//! one to the other in between is in neither. What is still there with all its names, and was moved
//! since the run began, is a problem unless it is met under another name, and the directory that it
//! was in lacks something. In a second pass over a mounted file system what cannot be asked for is
//! a problem, too. Of what a snapshot before had and a walk has not, the kernel says by number what
//! became of the inode; and a name that a listing lacks and that is there is a problem by itself.

use super::parent::Parent;
use bale_format::{Entry, Time};
use bale_repository::catalog::ParentRow;
use bale_source::scan::handle::FileHandles;
use bale_source::scan::{DirectoryListing, Missing, Whereabouts};
use bytes::Bytes;
use std::collections::HashSet;

/// Names that are looked for, and inodes that were read instead of others, at most: 8 bytes for
/// each inode, and a row for each name.
pub(super) const LOOKED_FOR_MAX: usize = 16 << 10;
/// Inodes under new names that are remembered: a megabyte or two.
const MET_MAX: usize = 96 << 10;
/// Names that were lost while they were looked at, at most.
const MISSING_MAX: usize = 4 << 10;

/// Collects while rows are compared.
pub(super) struct Moved<'a> {
    asked: Asked<'a>,
    /// Inodes with a row at a path where there was another one or none. Of more than fit some are
    /// forgotten, and their old names are told.
    met: HashSet<u64>,
    /// Rows that were not met, whose inodes were there when their paths were passed.
    gone: Vec<Entry>,
    /// Names that are there, though a listing lacks them.
    lacking: Vec<Entry>,
    /// Names that the walk listed, and did not find: a row or the other.
    missing: Vec<Missing>,
    /// Inodes of these, which are remembered when they are met, however many are.
    sought: HashSet<u64>,
    /// There were more.
    is_full: bool,
}

/// Who knows what became of an inode.
enum Asked<'a> {
    /// In the second pass over a mounted file system, whose first pass is compared with.
    Handles {
        handles: &'a FileHandles,
        /// Inodes that the first pass read under names of others: their rows are where they are.
        read_instead: &'a HashSet<u64>,
        /// What came into being since is no loss.
        began: Time,
        /// The file system that the handles are of, by its number in rows.
        filesystem: Option<u32>,
    },
    /// In a walk: the directories that were listed last.
    Listings {
        parent: &'a Parent,
        began: Time,
        last: Option<DirectoryListing>,
        before: Option<DirectoryListing>,
    },
}

/// A file that is there and has no row.
pub(super) struct Unmet {
    pub(super) parent: Bytes,
    pub(super) name: Bytes,
    pub(super) error: std::io::Error,
}

/// What became of a row's inode.
enum Fate {
    Settled,
    Moved,
    Unknown,
}

impl Asked<'_> {
    fn fate(&self, row: &Entry) -> Fate {
        match self {
            Asked::Handles {
                handles,
                began,
                filesystem,
                ..
            } => match *filesystem == Some(row.filesystem) {
                true => match handles.is_there(row, *began) {
                    Some(true) => Fate::Moved,
                    Some(false) => Fate::Settled,
                    None => Fate::Unknown,
                },
                false => Fate::Settled,
            },
            Asked::Listings {
                parent,
                began,
                last,
                before,
            } => {
                let listings = [last, before].into_iter().flatten();
                let mut listings = listings.filter(|it| it.filesystem == row.filesystem);
                let had = match parent.is_first_pass {
                    true => Some(*began),
                    false => parent.barrier(row.filesystem),
                };
                let (Some(listing), Some(had)) = (listings.next(), had) else {
                    return Fate::Settled;
                };
                // Most names go before a run: what cannot be told is believed to have.
                match listing.whereabouts(row, had, *began) {
                    Some(Whereabouts::Moved) => Fate::Moved,
                    Some(Whereabouts::Settled) | None => Fate::Settled,
                }
            }
        }
    }

    /// Whether the name of a row is there, though its directory was listed without it.
    fn is_lacking(&self, row: &Entry) -> bool {
        let Asked::Listings {
            began,
            last,
            before,
            ..
        } = self
        else {
            return false;
        };
        let mut listings = [last, before].into_iter().flatten();
        let listing = listings.find(|listing| listing.path()[..] == row.parent[..]);
        listing.is_some_and(|listing| listing.lacks(&row.name, *began))
    }

    fn why(&self) -> &'static str {
        match self {
            Asked::Handles { .. } => WHY_VERIFIED,
            Asked::Listings { .. } => WHY_WALKED,
        }
    }
}

impl<'a> Moved<'a> {
    /// Of a second pass over a mounted file system; with inodes that the first one read under names
    /// of others.
    pub(super) fn verified(
        (handles, read_instead): (&'a FileHandles, &'a HashSet<u64>),
        began: Time,
    ) -> Moved<'a> {
        Moved::asking(Asked::Handles {
            handles,
            read_instead,
            began,
            filesystem: None,
        })
    }

    /// Of a scan that is compared with a snapshot before: of what it walks.
    pub(super) fn walked(parent: &'a Parent, began: Time) -> Moved<'a> {
        Moved::asking(Asked::Listings {
            parent,
            began,
            last: None,
            before: None,
        })
    }

    fn asking(asked: Asked<'a>) -> Moved<'a> {
        Moved {
            asked,
            met: HashSet::new(),
            gone: Vec::new(),
            lacking: Vec::new(),
            missing: Vec::new(),
            sought: HashSet::new(),
            is_full: false,
        }
    }

    /// A file system that is scanned by inodes, by its number in rows.
    pub(super) fn is_scanned_by_inodes(&mut self, number: u32) {
        if let Asked::Handles { filesystem, .. } = &mut self.asked {
            *filesystem = Some(number);
        }
    }

    /// A directory that was listed; its rows follow.
    pub(super) fn listed(&mut self, listing: DirectoryListing) {
        if let Asked::Listings { last, before, .. } = &mut self.asked {
            *before = last.replace(listing);
        }
    }

    /// A file that was listed and not found.
    pub(super) fn missing(&mut self, missing: Missing) {
        if self.whereabouts(&missing) != Some(Whereabouts::Moved) {
            return;
        }
        if self.missing.len() == MISSING_MAX {
            self.is_full = true;
            return;
        }
        self.sought.insert(missing.inode);
        self.missing.push(missing);
    }

    fn whereabouts(&self, missing: &Missing) -> Option<Whereabouts> {
        match &self.asked {
            Asked::Handles { .. } => None,
            Asked::Listings { began, .. } => missing.whereabouts(*began),
        }
    }

    /// A row that this scan has not at its path, and no other one.
    pub(super) fn gone(&mut self, row: &Entry) {
        self.forget_missing(row);
        if !self.asked.is_lacking(row) {
            return self.replaced(row);
        }
        match self.lacking.len() < LOOKED_FOR_MAX {
            true => self.lacking.push(row.clone()),
            false => self.is_full = true,
        }
    }

    /// Of a name that had a row before, that row knows more.
    fn forget_missing(&mut self, row: &Entry) {
        let its_directory = |it: &&Missing| it.listing.path()[..] == row.parent[..];
        let of_directory = self.missing.iter().rev().take_while(its_directory).count();
        let first = self.missing.len() - of_directory;
        let found = self.missing[first..].iter();
        if let Some(at) = found.clone().position(|it| it.name == row.name) {
            self.missing.remove(first + at);
        }
    }

    /// A row whose inode this scan has not at its path.
    fn replaced(&mut self, row: &Entry) {
        // What was removed, which is most, takes no room.
        if matches!(self.asked.fate(row), Fate::Settled) {
            return;
        }
        if self.gone.len() == LOOKED_FOR_MAX {
            self.is_full = true;
            return;
        }
        self.sought.insert(row.inode);
        self.gone.push(row.clone());
    }

    /// A row of this scan, and that at its path before.
    pub(super) fn compare(&mut self, old: Option<ParentRow>, entry: &Entry) {
        let is_same = old.is_some_and(|old| old.view().inode == entry.inode);
        if is_same && !self.sought.contains(&entry.inode) {
            return;
        }
        if let Some(old) = old.filter(|_| !is_same) {
            self.replaced(&old.entry());
        }
        if self.met.len() < MET_MAX || self.sought.contains(&entry.inode) {
            self.met.insert(entry.inode);
        }
    }

    /// What is there and was not met; true: there was more than can be told.
    pub(super) fn take_unmet(&mut self) -> (Vec<Unmet>, bool) {
        let mut unmet = Vec::new();
        let mut tell = |parent: &Bytes, name: &Bytes, why: &str| {
            unmet.push(Unmet {
                parent: parent.clone(),
                name: name.clone(),
                error: std::io::Error::other(why.to_owned()),
            });
        };
        for row in std::mem::take(&mut self.lacking) {
            tell(&row.parent, &row.name, WHY_LACKING);
        }
        for missing in std::mem::take(&mut self.missing) {
            if !self.is_met(missing.inode) && self.whereabouts(&missing) == Some(Whereabouts::Moved)
            {
                tell(missing.listing.path(), &missing.name, WHY_WALKED);
            }
        }
        for row in std::mem::take(&mut self.gone) {
            match self.asked.fate(&row) {
                _ if self.is_met(row.inode) => {}
                Fate::Moved => tell(&row.parent, &row.name, self.asked.why()),
                Fate::Unknown => tell(&row.parent, &row.name, WHY_UNKNOWN),
                Fate::Settled => {}
            }
        }
        (unmet, self.is_full)
    }

    fn is_met(&self, inode: u64) -> bool {
        let is_read_instead = match &self.asked {
            Asked::Handles { read_instead, .. } => read_instead.contains(&inode),
            Asked::Listings { .. } => false,
        };
        is_read_instead || self.met.contains(&inode)
    }
}

const WHY_LACKING: &str = "it is there, though its directory was listed without it: it is not in \
    this snapshot";

const WHY_WALKED: &str = "it was moved while its file system was walked: it is not in this \
    snapshot unless it is found where it is now";

const WHY_UNKNOWN: &str = "it is not where it was, and whether it was moved or removed cannot be \
    told (that needs CAP_DAC_READ_SEARCH): it is not in this snapshot unless it is found where it \
    is now";

const WHY_VERIFIED: &str = "it was moved while the scan was verified: it is not in this snapshot \
    unless it is found where it is now";
