//! Asking what became of names that a snapshot before has and a listing lacks.
//!
//! A listing may lack what was there all the time, and what is moved from a directory that is yet
//! to be listed to one that was is in neither. So a name that was there is asked for once, and its
//! inode by its number.

use super::alive::{self, Life, Now};
use super::handle::has_all_names;
use super::names::Names;
use super::pending::ChildrenReach;
use super::stat::{Part, Rules};
use super::vanished::{Lost, is_born_since};
use super::window::WalkVisit;
use bale_format::entry::{Entry, Time};
use bytes::Bytes;
use std::cell::Cell;
use std::ffi::CString;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A directory of which all names were listed.
pub struct DirectoryListing {
    pub(super) rules: Arc<Rules>,
    pub(super) visit: WalkVisit,
    path: Bytes,
    /// That of the directory, as `Entry::filesystem`.
    pub filesystem: u32,
}

/// A name that a directory listed as that of a file, and that was not there any more.
#[derive(Debug)]
pub struct Missing {
    pub listing: DirectoryListing,
    pub name: Bytes,
    pub inode: u64,
}

/// What became of a row's inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Gone, or where it is since before the run.
    Settled,
    /// It is there, and was moved, or something of it changed, since the run began.
    Moved,
}

impl DirectoryListing {
    /// `None`: not all names are wanted of it.
    pub(super) fn of(rules: &Arc<Rules>, visit: &WalkVisit, path: &Bytes) -> Option<Self> {
        let is_whole = matches!(
            visit.reach,
            ChildrenReach::All(_) | ChildrenReach::AllAnd(..)
        );
        let device = visit.directory.identity().device;
        let filesystem = rules.filesystems.known(device).filter(|_| is_whole)?;
        Some(DirectoryListing {
            rules: rules.clone(),
            visit: visit.clone(),
            path: path.clone(),
            filesystem,
        })
    }

    /// Of the directory, without leading slash.
    pub fn path(&self) -> &Bytes {
        &self.path
    }

    /// Whether a name is there, nothing leaves it out, and what it leads to was not born since.
    pub fn lacks(&self, name: &[u8], since: Time) -> bool {
        let (Ok(fd), Ok(c_name)) = (self.visit.directory.open(), CString::new(name)) else {
            return false;
        };
        let mut names = Names::default();
        names.push(name, 0);
        let part = Part {
            rules: &self.rules,
            directory: &self.visit.directory,
            fd: &fd,
            reach: &self.visit.reach,
            path: &self.path,
            last_filesystem: Cell::new(None),
            last_racy: Cell::new(None),
        };
        let is_there = !part.stat(names).entries.is_empty();
        is_there && !is_born_since(&self.visit.directory, &c_name, since)
    }

    /// What became of the inode of a row of this file system that was made at `had`, in a run that
    /// began later. `None`: that cannot be told.
    pub fn whereabouts(&self, row: &Entry, had: Time, began: Time) -> Option<Whereabouts> {
        let life = Life {
            since: had,
            mtime: Some(row.mtime),
        };
        let now = self.now(row.inode, life)?;
        Some(match has_all_names(row, now.names) {
            true => whereabouts(now, began),
            false => Whereabouts::Settled,
        })
    }

    fn now(&self, inode: u64, life: Life) -> Option<Now> {
        let fd = self.visit.directory.open().ok()?;
        alive::now(fd.as_fd(), inode, life)
    }
}

fn whereabouts(now: Now, began: Time) -> Whereabouts {
    match now.names == 0 || now.changed.is_stamped_before(began) {
        true => Whereabouts::Settled,
        false => Whereabouts::Moved,
    }
}

impl Missing {
    /// The files among names that were lost: they may be found under others.
    pub(super) fn among(
        lost: &[Lost],
        (rules, visit, path): (&Arc<Rules>, &WalkVisit, &Bytes),
    ) -> Vec<Missing> {
        let files = lost
            .iter()
            .filter(|lost| lost.is_file() && lost.may_be_renamed());
        let missing = files.filter_map(|lost| {
            Some(Missing {
                listing: DirectoryListing::of(rules, visit, path)?,
                name: lost.name.clone(),
                inode: lost.inode,
            })
        });
        missing.collect()
    }

    /// What became of its inode in a run that began then. `None`: that cannot be told.
    pub fn whereabouts(&self, began: Time) -> Option<Whereabouts> {
        let life = Life {
            since: began,
            mtime: None,
        };
        let now = self.listing.now(self.inode, life)?;
        Some(whereabouts(now, began))
    }
}

impl fmt::Debug for DirectoryListing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DirectoryListing")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
