//! Events of a running operation: progress, problems, notes. The engine prints nothing; the command
//! line, a test or a report listens.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A part of an operation that has its own progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Inode scan: reading inode tables and directories; counts inodes.
    Scan,
    /// Backup: scanning, comparing, reading and storing run together.
    Backup,
    /// Writing the last packs, the index and the snapshot.
    Commit,
    /// Restore: reading the catalog and planning.
    Plan,
    /// Restore: writing files.
    Restore,
    /// Restore: owners, times and modes of directories.
    Finish,
    /// Check: catalogs and index.
    Structure,
    /// Check: packs.
    ReadData,
    /// Prune: finding what is used.
    FindUsed,
    /// Prune: copying what stays.
    Repack,
    /// Prune: deleting.
    Delete,
    /// Copy: reading chunks and storing them; mirror, repairs of one of two stores: objects.
    Copy,
    /// Generator: making a tree.
    Generate,
}

/// Progress of one phase. A total of 0 is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries, chunks or objects done.
    pub done: u64,
    /// Of so many, as far as known.
    pub total: u64,
    pub bytes_done: u64,
    /// Expected total; 0 if unknown.
    pub bytes_total: u64,
}

/// Trouble with one entry: it goes on, is counted, and turns exit 0 into 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Absolute; of a restore, relative to the target.
    pub path: Vec<u8>,
    /// What was attempted: `read`, `list`, `stat`, `write` ...
    pub action: &'static str,
    /// Why it failed.
    pub text: String,
}

/// What a backup that has made no snapshot (yet) leaves to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// Nothing that it could find.
    #[default]
    Nothing,
    /// What was stored: everything is read again, and only the rest is stored.
    Content,
    /// A record besides: what is in it is not read again either.
    Record,
    /// All contents; and the snapshot, too, unless writing it failed.
    All,
}

/// What happens to a path in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Nothing was there.
    Create,
    /// Something else was there.
    Replace,
    /// It is there already; only metadata is looked after.
    Keep,
    /// Something is there and may not be touched.
    Skip,
    /// It is not in the snapshot.
    Delete,
    /// It is not in the snapshot, and what was left out of the backup is never deleted.
    Leave,
    /// It was written, by a run that is not dry.
    Restored,
}

/// Listens to an operation. Called from several threads.
pub trait Monitor: Sync {
    /// A phase goes on.
    fn progress(&self, _phase: Phase, _progress: Progress) {}
    /// What is worked on now is in this directory: whole, or of a restore, relative to the target.
    /// Told now and then, before the progress of its phase.
    fn place(&self, _directory: &[u8]) {}
    /// Something is stored that is new (`None`), or differs from the parent in these, in the words
    /// of `stat`: empty unless they are wanted.
    fn current(&self, _path: &[u8], _differs_in: Option<&[&'static str]>) {}
    /// Is somebody told what differs?
    fn wants_differences(&self) -> bool {
        false
    }
    /// Something of the parent is not in the new snapshot.
    fn removed(&self, _path: &[u8]) {}
    /// Trouble with one entry.
    fn problem(&self, problem: &Problem);
    /// Something worth a line that is no problem.
    fn note(&self, _text: &str) {}
    /// What a dry run would do to a path of the target; of any restore, what is deleted or left,
    /// and, if the monitor wants to know, what was restored.
    fn would(&self, _path: &[u8], _act: Act) {}
    /// Shall a restore tell every path that it wrote?
    fn wants_restored(&self) -> bool {
        false
    }
    /// What is kept of a backup if it ends now; told more than once.
    fn kept(&self, _kept: Kept) {}
    /// Asked often; true ends the operation with `Interrupted`.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Keeps problems and notes: for tests.
#[derive(Default)]
pub struct Recorder {
    /// Problems in the order they came.
    pub problems: Mutex<Vec<Problem>>,
    pub notes: Mutex<Vec<String>>,
    /// Set to end the operation.
    pub interrupt: AtomicBool,
    /// Number of times progress was told.
    pub progress_calls: AtomicU64,
}

impl Monitor for Recorder {
    fn progress(&self, _phase: Phase, _progress: Progress) {
        self.progress_calls.fetch_add(1, Ordering::Relaxed);
    }

    fn problem(&self, problem: &Problem) {
        self.problems
            .lock()
            .expect("no panics while held")
            .push(problem.clone());
    }

    fn note(&self, text: &str) {
        self.notes
            .lock()
            .expect("no panics while held")
            .push(text.to_owned());
    }

    fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}
