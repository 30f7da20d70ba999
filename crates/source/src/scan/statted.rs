//! What the names of one part of a directory became.

use super::pending::Subdirectory;
use super::vanished::Lost;
use super::{Note, ScanProblem};
use bale_format::entry::Entry;

/// What the names of one part of a directory became.
#[derive(Default)]
pub(super) struct Statted {
    pub(super) entries: Vec<Entry>,
    pub(super) subdirectories: Vec<Subdirectory>,
    pub(super) problems: Vec<ScanProblem>,
    pub(super) notes: Vec<Note>,
    /// Listed, and not there: gone, or out of reach.
    pub(super) unfound: Vec<Lost>,
    /// Something that is there has no entry.
    pub(super) incomplete: bool,
}

impl Statted {
    /// Adds what names of the same directory became that were found later. Lost names whose inode
    /// has an entry by now are none any more.
    pub(super) fn merge(&mut self, later: Statted) {
        self.entries.extend(later.entries);
        self.entries.sort_by(|a, b| a.name.cmp(&b.name));
        self.subdirectories.extend(later.subdirectories);
        self.subdirectories.sort_by(|a, b| a.name.cmp(&b.name));
        self.problems.extend(later.problems);
        self.notes.extend(later.notes);
        self.unfound.extend(later.unfound);
        self.incomplete |= later.incomplete;
        self.drop_renamed();
    }

    /// A file that was lost under one name and has an entry under another was renamed.
    pub(super) fn drop_renamed(&mut self) {
        if self.unfound.is_empty() {
            return;
        }
        let entries = &self.entries;
        self.unfound.retain(|lost| {
            let is_it = |entry: &Entry| entry.inode == lost.inode && entry.name != lost.name;
            !(lost.may_be_renamed() && entries.iter().any(is_it))
        });
    }
}
