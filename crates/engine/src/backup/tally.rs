//! What is counted during a backup, and what the monitor is told of it. Shared by all stages.

use super::left_out_paths::Withheld;
use super::left_out_paths::absolute;
use super::parent::Parent;
use super::recount::Class;
use super::rule::TROUBLE_FLAGS;
use super::run::Noted;
use super::why;
use crate::limits::PROGRESS_EVERY;
use bale_format::snapshot::{
    Counts, Filesystem, PROBLEMS_LISTED_MAX, PathText, ProblemRecord, Totals,
};
use bale_format::{Entry, EntryFlags, Kind, Time};
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_repository::pack::WriterCounts;
use bale_source::scan::{self, NoteKind};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

pub(super) struct Tally<'a> {
    monitor: &'a dyn Monitor,
    /// When the run began, by the clock of file systems.
    pub(super) began: Time,
    expected: Totals,
    files: AtomicU64,
    dirs: AtomicU64,
    others: AtomicU64,
    bytes: AtomicU64,
    hard_links: AtomicU64,
    files_new: AtomicU64,
    files_changed: AtomicU64,
    files_unmodified: AtomicU64,
    bytes_read: AtomicU64,
    problems: AtomicU64,
    vanished: AtomicU64,
    not_crossed: AtomicU64,
    left_out: AtomicU64,
    listed: Mutex<Vec<ProblemRecord>>,
    withheld: Mutex<Withheld>,
    /// Read problems held back until the second pass, which may find the file gone or readable;
    /// `None`: reported at once.
    held: Mutex<Option<Vec<Problem>>>,
    filesystems: Mutex<Vec<Filesystem>>,
    /// Positions of those that this scan has met.
    met: Mutex<HashSet<usize>>,
    /// Each row was compared, so that no row is of another one.
    has_met_all: AtomicBool,
    /// This is the second pass: the parent is what the first one stored.
    is_second: AtomicBool,
}

impl<'a> Tally<'a> {
    /// `expected` is what progress is measured against; zeros where nothing is known.
    pub(super) fn new(monitor: &'a dyn Monitor, parent: &Parent, expected: Totals) -> Tally<'a> {
        Tally {
            monitor,
            began: scan::barrier_now(),
            expected,
            files: AtomicU64::new(0),
            dirs: AtomicU64::new(0),
            others: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            hard_links: AtomicU64::new(0),
            files_new: AtomicU64::new(0),
            files_changed: AtomicU64::new(0),
            files_unmodified: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            problems: AtomicU64::new(0),
            vanished: AtomicU64::new(0),
            not_crossed: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            listed: Mutex::default(),
            withheld: Mutex::default(),
            held: Mutex::default(),
            filesystems: Mutex::new(parent.filesystems.clone()),
            met: Mutex::default(),
            has_met_all: AtomicBool::new(false),
            is_second: AtomicBool::new(false),
        }
    }

    pub(super) fn monitor(&self) -> &dyn Monitor {
        self.monitor
    }

    pub(super) fn interrupted(&self) -> bool {
        self.monitor.interrupted()
    }

    pub(super) fn note(&self, text: &str) {
        self.monitor.note(text);
    }

    /// Something was listed, and is gone.
    pub(super) fn vanished(&self, path: &[u8]) {
        self.vanished.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8_lossy(path);
        self.note(&format!("vanished before it was read: /{text}"));
    }

    /// Something that is no loss, and is named.
    pub(super) fn scan_note(&self, note: &scan::Note) {
        let (counter, what) = match note.kind {
            NoteKind::Vanished => return self.vanished(&note.path),
            // Asked for, and perhaps of very many.
            NoteKind::Size => return self.withheld().add(&note.path),
            NoteKind::OtherFilesystem => (&self.not_crossed, "not crossed, another file system"),
            NoteKind::Above => (
                &self.not_crossed,
                "not crossed, a directory above is mounted there",
            ),
            NoteKind::InUse => (
                &self.left_out,
                "left out, because this backup works with it",
            ),
            NoteKind::OwnMount => (
                &self.left_out,
                "left out, because snapshots of a repository are mounted there",
            ),
            NoteKind::NoSubvolume => (
                &self.not_crossed,
                "not crossed, a subvolume that this snapshot of btrfs does not have",
            ),
            NoteKind::Repository => (
                &self.left_out,
                "left out, because it is marked as a repository of Bale (--include-repositories)",
            ),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if !note.has_row {
            self.withheld().add(&note.path);
        }
        let text = String::from_utf8_lossy(&note.path);
        self.note(&format!("{what}: /{text}"));
    }

    /// What is there, has no row, and is not named by the patterns of the excludes.
    pub(super) fn withheld(&self) -> MutexGuard<'_, Withheld> {
        self.withheld.lock().expect("holders do not panic")
    }

    /// What was named and is no problem.
    pub(super) fn noted(&self) -> Noted {
        Noted {
            vanished: self.vanished.load(Ordering::Relaxed),
            not_crossed: self.not_crossed.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
        }
    }

    /// A row of the new snapshot that is as in the parent.
    pub(super) fn unchanged(&self, kind: Kind, size: u64, is_hard_link: bool) {
        // The first pass has counted what it is.
        if kind == Kind::File && !self.is_second.load(Ordering::Relaxed) {
            self.files_unmodified.fetch_add(1, Ordering::Relaxed);
        }
        self.count(kind, size, is_hard_link);
    }

    /// A row of the new snapshot that is not in the parent or was looked at again.
    pub(super) fn stored(&self, entry: &Entry, class: Class) {
        if entry.kind == Kind::File {
            self.counter(class).fetch_add(1, Ordering::Relaxed);
            if (self.files.load(Ordering::Relaxed)).is_multiple_of(PROGRESS_EVERY) {
                self.monitor.place(&absolute(&entry.parent));
            }
        }
        self.count(entry.kind, entry.size, entry.is_hard_link());
    }

    /// For people who want every path, and why it is stored.
    pub(super) fn report_difference(&self, entry: &Entry, old: Option<&Entry>) {
        let path = absolute_path(entry);
        let words = match old {
            Some(old) if self.monitor.wants_differences() => why::differences(entry, old),
            _ => Vec::new(),
        };
        self.monitor.current(&path, old.map(|_| &words[..]));
    }

    /// The same of what is not here any more.
    pub(super) fn report_removed(&self, old: &Entry) {
        self.monitor.removed(&absolute_path(old));
    }

    /// The first pass counted a file, and the second one counts it again or found it gone.
    pub(super) fn take_back(&self, class: Class) {
        self.counter(class).fetch_sub(1, Ordering::Relaxed);
    }

    fn counter(&self, class: Class) -> &AtomicU64 {
        match class {
            Class::New => &self.files_new,
            Class::Changed => &self.files_changed,
            Class::Unmodified => &self.files_unmodified,
        }
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    pub(super) fn read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    fn count(&self, kind: Kind, size: u64, is_hard_link: bool) {
        let counter = match kind {
            Kind::File => &self.files,
            Kind::Directory => &self.dirs,
            _ => &self.others,
        };
        let before = counter.fetch_add(1, Ordering::Relaxed);
        if is_hard_link {
            self.hard_links.fetch_add(1, Ordering::Relaxed);
        }
        if kind == Kind::File {
            self.bytes.fetch_add(size, Ordering::Relaxed);
            if before % PROGRESS_EVERY == 0 {
                self.report_progress();
            }
        }
    }

    /// Tells the monitor how far it is. Also called while one large file is read.
    pub(super) fn report_progress(&self) {
        let (done, bytes_done) = (
            self.files.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        );
        let known = |expected: u64, done: u64| if expected >= done { expected } else { 0 };
        self.monitor.progress(
            Phase::Backup,
            Progress {
                done,
                total: known(self.expected.files, done),
                bytes_done,
                bytes_total: known(self.expected.bytes, bytes_done),
            },
        );
    }

    /// Of images, which are few and large.
    pub(super) fn report_bytes(&self, bytes_done: u64) {
        let progress = Progress {
            done: self.files.load(Ordering::Relaxed),
            total: self.expected.files,
            bytes_done,
            bytes_total: self.expected.bytes,
        };
        self.monitor.progress(Phase::Backup, progress);
    }

    /// Everything is as in the parent.
    pub(super) fn all_unchanged(&self, filesystem: Filesystem, parent: &Parent) {
        self.filesystem(filesystem, &[]);
        *self.withheld() = parent.withheld.clone();
        let totals = parent.totals;
        self.files.store(totals.files, Ordering::Relaxed);
        self.dirs.store(totals.dirs, Ordering::Relaxed);
        self.others.store(totals.others, Ordering::Relaxed);
        self.bytes.store(totals.bytes, Ordering::Relaxed);
        self.hard_links.store(totals.hard_links, Ordering::Relaxed);
        self.files_unmodified.store(totals.files, Ordering::Relaxed);
    }

    /// A second pass may follow: trouble with reading waits for it, as far as there is room.
    pub(super) fn hold_reading_problems(&self) {
        *self.held() = Some(Vec::new());
    }

    /// No second pass follows: tells what was held.
    pub(super) fn report_held(&self) {
        let held = self.held().take();
        held.into_iter()
            .flatten()
            .for_each(|held| self.report(held));
    }

    fn held(&self) -> MutexGuard<'_, Option<Vec<Problem>>> {
        self.held.lock().expect("holders do not panic")
    }

    /// Everything will be counted once more; what is new or changed is corrected row by row
    /// (`recount`). Trouble that was held is forgotten: it left doubtful rows, and those are made
    /// again, so it is met again or gone.
    pub(super) fn begin_again(&self) {
        self.held().take();
        self.is_second.store(true, Ordering::Relaxed);
        let noted = [&self.not_crossed, &self.left_out];
        noted
            .iter()
            .for_each(|counter| counter.store(0, Ordering::Relaxed));
        let counted = [
            &self.files,
            &self.dirs,
            &self.others,
            &self.bytes,
            &self.hard_links,
        ];
        for counter in counted {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn phase(&self, phase: Phase) {
        self.monitor.progress(phase, Progress::default());
    }

    /// Trouble with one entry.
    pub(super) fn problem(&self, problem: &scan::ScanProblem) {
        self.report_problem(&problem.path, problem.action, problem.error.to_string());
    }

    pub(super) fn report_problem(&self, path: &[u8], action: &'static str, text: String) {
        self.report(Problem {
            path: absolute(path),
            action,
            text,
        });
    }

    /// Trouble with the repository itself.
    pub(super) fn repository_problem(&self, action: &'static str, text: String) {
        self.report(Problem {
            path: Vec::new(),
            action,
            text,
        });
    }

    /// Trouble while a file was read. It waits for a second pass only if that makes the row again.
    pub(super) fn reading_problem(&self, problem: &scan::ScanProblem, flags: EntryFlags) {
        let text = problem.error.to_string();
        self.report_reading_problem(&problem.path, problem.action, text, flags);
    }

    pub(super) fn report_reading_problem(
        &self,
        path: &[u8],
        action: &'static str,
        text: String,
        flags: EntryFlags,
    ) {
        if flags.0 & TROUBLE_FLAGS == 0 {
            return self.report_problem(path, action, text);
        }
        let problem = Problem {
            path: absolute(path),
            action,
            text,
        };
        if let Some(held) = &mut *self.held()
            && held.len() < PROBLEMS_LISTED_MAX
        {
            held.push(problem);
            return;
        }
        self.report(problem);
    }

    fn report(&self, problem: Problem) {
        let mut listed = self.listed.lock().expect("holders do not panic");
        let is_reported = |reported: &ProblemRecord| {
            reported.path.0 == problem.path
                && reported.action == problem.action
                && reported.text == problem.text
        };
        if self.is_second.load(Ordering::Relaxed) && listed.iter().any(is_reported) {
            return;
        }
        self.problems.fetch_add(1, Ordering::Relaxed);
        self.monitor.problem(&problem);
        if listed.len() < PROBLEMS_LISTED_MAX {
            let Problem { path, action, text } = problem;
            listed.push(ProblemRecord {
                path: PathText(path),
                action: action.to_owned(),
                text,
            });
        }
    }

    /// Position in the snapshot's list for a file system of this scan: that of the parent, if it
    /// was there.
    pub(super) fn filesystem(&self, found: Filesystem, taken: &[u32]) -> u32 {
        let mut list = self.filesystems.lock().expect("holders do not panic");
        let free = |position: usize| !taken.contains(&(position as u32));
        let same = |other: &Filesystem| other.kind == found.kind && other.uuid == found.uuid;
        let exact = |other: &Filesystem| same(other) && other.mount == found.mount;
        let position = (0..list.len())
            .find(|at| exact(&list[*at]) && free(*at))
            .or_else(|| {
                (0..list.len()).find(|at| !found.uuid.is_empty() && same(&list[*at]) && free(*at))
            })
            // Of one that was not met for long, no row is left.
            .or_else(|| (0..list.len()).find(|at| is_vacant(&list[*at]) && free(*at)));
        let position = position.unwrap_or_else(|| {
            list.push(Filesystem::default());
            list.len() - 1
        });
        list[position] = found;
        self.met
            .lock()
            .expect("holders do not panic")
            .insert(position);
        position as u32
    }

    /// Every row of the snapshot is of a file system that this scan has met.
    pub(super) fn met_all(&self) {
        self.has_met_all.store(true, Ordering::Relaxed);
    }

    /// What was read may mix several moments: every row of this run is flagged racy.
    pub(super) fn mark_all_racy(&self) {
        let mut list = self.filesystems.lock().expect("holders do not panic");
        list.iter_mut()
            .for_each(|filesystem| filesystem.barrier = None);
    }

    /// Those that a row of this snapshot may have: what was walked before and was not met by this
    /// scan makes room, so that the list does not grow with each mount that ever was.
    pub(super) fn filesystems_in_use(&self) -> Vec<Filesystem> {
        let mut list = self.filesystems();
        if !self.has_met_all.load(Ordering::Relaxed) {
            return list;
        }
        let met = self.met.lock().expect("holders do not panic");
        // A snapshot of a file system has a place beside it, and is not read every time.
        let name = |of: &Filesystem| (of.kind.clone(), of.uuid.clone());
        let names: HashSet<_> = met.iter().map(|position| name(&list[*position])).collect();
        for (position, filesystem) in list.iter_mut().enumerate() {
            let is_met = met.contains(&position) || names.contains(&name(filesystem));
            if filesystem.scanner == "walk" && !is_met {
                *filesystem = Filesystem::default();
            }
        }
        while list.last().is_some_and(is_vacant) {
            list.pop();
        }
        list
    }

    pub(super) fn filesystems(&self) -> Vec<Filesystem> {
        self.filesystems
            .lock()
            .expect("holders do not panic")
            .clone()
    }

    pub(super) fn problems_listed(&self) -> Vec<ProblemRecord> {
        self.listed.lock().expect("holders do not panic").clone()
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            files: self.files.load(Ordering::Relaxed),
            dirs: self.dirs.load(Ordering::Relaxed),
            others: self.others.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            hard_links: self.hard_links.load(Ordering::Relaxed),
        }
    }

    pub(super) fn counts(&self, written: WriterCounts) -> Counts {
        Counts {
            files_new: self.files_new.load(Ordering::Relaxed),
            files_changed: self.files_changed.load(Ordering::Relaxed),
            files_unmodified: self.files_unmodified.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_stored: written.bytes_stored,
            bytes_stored_before: written.bytes_stored_before,
            problems: self.problems.load(Ordering::Relaxed),
        }
    }
}

/// In one allocation: this is asked for every new file.
fn absolute_path(entry: &Entry) -> Vec<u8> {
    let mut path = Vec::with_capacity(entry.parent.len() + entry.name.len() + 2);
    for part in [&entry.parent, &entry.name] {
        if !part.is_empty() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

/// A place in the list that no row has.
fn is_vacant(filesystem: &Filesystem) -> bool {
    *filesystem == Filesystem::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_pipeline::monitor::Recorder;

    fn reported(work: impl FnOnce(&Tally)) -> (Vec<Vec<u8>>, u64) {
        let recorder = Recorder::default();
        let tally = Tally::new(&recorder, &Parent::none(), Totals::default());
        work(&tally);
        let problems = tally.counts(WriterCounts::default()).problems;
        let reported = recorder.problems.lock().unwrap();
        (
            reported
                .iter()
                .map(|reported| reported.path.clone())
                .collect(),
            problems,
        )
    }

    fn meet(tally: &Tally, path: &str, flags: EntryFlags) {
        tally.report_reading_problem(path.as_bytes(), "read", "broken".to_owned(), flags);
    }

    #[test]
    fn trouble_waits_for_a_second_pass_only_where_that_would_meet_it_again() {
        let (unreadable, fine) = (EntryFlags::UNREADABLE, EntryFlags::SPARSE);
        let first_pass = |tally: &Tally| {
            tally.hold_reading_problems();
            meet(tally, "doubtful", unreadable);
            meet(tally, "fine", fine);
        };
        let still = reported(|tally| {
            first_pass(tally);
            tally.report_held();
            meet(tally, "later", unreadable);
        });
        let all = ["/fine", "/doubtful", "/later"].map(|path| path.as_bytes().to_vec());
        assert_eq!(still, (all.to_vec(), 3));
        let again = reported(|tally| {
            first_pass(tally);
            tally.begin_again();
            meet(tally, "again", unreadable);
            tally.report_held();
        });
        let met = ["/fine", "/again"].map(|path| path.as_bytes().to_vec());
        assert_eq!(again, (met.to_vec(), 2));
        let without = reported(|tally| meet(tally, "at once", unreadable));
        assert_eq!(without.1, 1);
    }

    #[test]
    fn what_there_is_no_room_for_is_told_at_once() {
        let (paths, _) = reported(|tally| {
            tally.hold_reading_problems();
            for number in 0..PROBLEMS_LISTED_MAX + 2 {
                meet(tally, &number.to_string(), EntryFlags::CHANGED);
            }
        });
        assert_eq!(paths.len(), 2);
    }
}
