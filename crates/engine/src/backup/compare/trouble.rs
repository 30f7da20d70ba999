//! What comparing tells of: entries that could not be completed, files that were moved away, and
//! directories that are left out though the parent has what is in them.

use super::{Comparer, Stop};
use crate::backup::moved::Unmet;
use bale_format::entry::join;
use bale_format::{Entry, EntryFlags, Key, Kind, RowView};
use bale_source::image::EntryPlace;
use bale_source::read::has_bytes;
use bale_source::scan::{NoteKind, ScanProblem};
use std::io;

impl Comparer<'_> {
    /// Names what was there all the time and was met nowhere.
    pub(super) fn name_moved(&mut self) -> std::result::Result<(), Stop> {
        let (unmet, is_full) = self.moved.take_unmet();
        for Unmet {
            parent,
            name,
            error,
        } in unmet
        {
            self.amend(Key::of_path(&parent), EntryFlags::UNREADABLE)?;
            self.tally.problem(&ScanProblem {
                path: join(&parent, &name),
                action: "find",
                error,
            });
        }
        if is_full {
            self.tally.problem(&ScanProblem {
                path: Vec::new(),
                action: "find what was moved below",
                error: std::io::Error::other(
                    "more names went and came meanwhile than can be looked for: files that were \
                     moved may be missing",
                ),
            });
        }
        Ok(())
    }

    /// What others can write leaves a directory out: that is told where the parent has what is in
    /// it.
    pub(super) fn report_left_out(&self, entry: &Entry, old: &RowView) {
        let had_it = old.kind == Kind::Directory && !old.flags.has(EntryFlags::NOT_CROSSED);
        if !had_it || self.parent.is_first_pass {
            return;
        }
        let path = entry.path();
        let mark = match self.not_entered.get(&path) {
            Some(NoteKind::Repository) => "as a repository of Bale (--include-repositories)",
            None if self.excludes_as_before => "to be left out",
            _ => return,
        };
        let text = format!(
            "it is marked {mark}, and what is in it is in the snapshot before and not in this one"
        );
        self.tally.report_problem(&path, "back up", text);
    }

    /// Tells of an entry that could not be completed. True: it is gone, and has no row. A directory
    /// keeps its row: what was in it may come later.
    pub(super) fn is_gone_or_reported(
        &mut self,
        place: &EntryPlace,
        entry: &Entry,
        problem: ScanProblem,
    ) -> bool {
        let told = match problem.error.kind() {
            std::io::ErrorKind::NotFound => self.listed_again.check_gone(place, entry),
            _ => Err(problem),
        };
        match told {
            Ok(()) => {
                self.tally.vanished(&entry.path());
                entry.kind != Kind::Directory
            }
            Err(problem) => {
                // Of a row that a second pass makes again, it may be gone by then.
                self.tally.reading_problem(&problem, entry.flags);
                false
            }
        }
    }

    /// Of a file that has a size of 0, on a file system whose files a program makes: are there
    /// bytes?
    pub(super) fn report_bytes_of_empty(&self, place: &EntryPlace, entry: &mut Entry) {
        let is_dubious = self.dubious_sizes.contains(&entry.filesystem);
        if entry.kind == Kind::File && is_dubious && has_bytes(place, entry) {
            entry.flags.set(EntryFlags::INCOMPLETE);
            let why =
                "its file system says that it is empty, and gives bytes of it: none is stored";
            self.tally.problem(&ScanProblem {
                path: entry.path(),
                action: "read",
                error: io::Error::other(why),
            });
        }
    }
}
