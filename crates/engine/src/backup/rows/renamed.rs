//! Files that were renamed before they were read: found under their new names, or told.

use super::RowWriter;
use crate::backup::moved::LOOKED_FOR_MAX;
use crate::backup::tally::Tally;
use bale_format::{Entry, EntryFlags};
use bale_source::image::EntryPlace;
use bale_source::scan::{Renamed, ScanProblem};

/// Files that are waited for. More are told at once.
const RENAMED_MAX: usize = 4 << 10;

/// Those of which no row came so far.
#[derive(Default)]
pub(super) struct RenamedFiles(Vec<Renaming>);

struct Renaming {
    filesystem: u32,
    inode: u64,
    problem: ScanProblem,
}

impl RenamedFiles {
    /// Keeps the trouble with a file that was only renamed, whose new name may come; gives other
    /// trouble back.
    pub(super) fn keep(
        &mut self,
        (filesystem, inode): (u32, u64),
        problem: ScanProblem,
    ) -> Option<ScanProblem> {
        if !Renamed::is_why(&problem.error) || self.0.len() >= RENAMED_MAX {
            return Some(problem);
        }
        self.0.push(Renaming {
            filesystem,
            inode,
            problem,
        });
        None
    }

    /// A row that is stored.
    pub(super) fn met(&mut self, entry: &Entry) {
        if !self.0.is_empty() && !entry.flags.has(EntryFlags::UNREADABLE) {
            let it = (entry.filesystem, entry.inode);
            self.0.retain(|one| (one.filesystem, one.inode) != it);
        }
    }

    /// Tells of those whose new names did not come.
    pub(super) fn report(&self, tally: &Tally<'_>) {
        for one in &self.0 {
            tally.reading_problem(&one.problem, EntryFlags::UNREADABLE);
        }
    }
}

impl RowWriter<'_> {
    /// Another file was read under the name of the one that was listed, as when a log is rotated:
    /// that one may have another name now.
    pub(super) fn check_replaced(
        &mut self,
        place: &EntryPlace,
        listed_inode: Option<u64>,
        entry: &Entry,
    ) {
        let Some(inode) = listed_inode.filter(|inode| *inode != entry.inode) else {
            return;
        };
        if self.read_instead.len() < LOOKED_FOR_MAX {
            self.read_instead.insert(entry.inode);
        }
        let Err(problem) = self.listed_again.check_replaced(place, inode, entry) else {
            return;
        };
        if let Some(problem) = self.renamed.keep((entry.filesystem, inode), problem) {
            self.tally.reading_problem(&problem, EntryFlags::UNREADABLE);
        }
    }
}
