//! One run of a restore, and what each of its threads holds.

use crate::kernel::outcome::{Cause, EntryFailure, EntryOutcome};
use crate::kernel::target::{Directories, Target, TargetDirectory};
use crate::losses::{LossKind, Losses};
use crate::plan::Planned;
use crate::progress::{PhaseProgress, report_problem};
use crate::seams::text_of;
use crate::xattrs;
use crate::{ChunkSource, RestoreError, RestoreOptions, RestoreReport};
use bale_format::{ChunkId, ChunkKind, Entry, Xattr};
use bale_pipeline::monitor::{Act, Monitor};
use bytes::Bytes;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Threads at most: each holds a chunk of at most 16 MiB.
const THREADS_MAX: usize = 32;

/// Descriptors left to everything else: repository, sorters, one transient file for each thread.
const DESCRIPTORS_RESERVED: usize = 24;

/// Directories one thread keeps open.
const DIRECTORIES_OPEN_MIN: usize = 2;
const DIRECTORIES_OPEN_MAX: usize = 12;

/// Large files open at a time.
const LARGE_OPEN_MIN: usize = 2;
const LARGE_OPEN_MAX: usize = 64;

/// Entries counted before they are told.
const TALLY_ENTRIES_MAX: u64 = 256;

/// Counts of one thread since it last added them to the run's: threads that count each file
/// together slow each other down.
#[derive(Default)]
struct ThreadCounts {
    entries: u64,
    bytes_done: u64,
    files_written: u64,
    bytes: u64,
    others: u64,
    kept: u64,
    links: u64,
}

/// Counters of a run, by all threads.
#[derive(Default)]
pub struct Counters {
    pub files_written: AtomicU64,
    pub kept: AtomicU64,
    pub times_changed: AtomicU64,
    pub skipped: AtomicU64,
    pub incomplete: AtomicU64,
    pub bytes_missing: AtomicU64,
    pub directories: AtomicU64,
    pub directories_kept: AtomicU64,
    /// With their metadata.
    pub directories_finished: AtomicU64,
    pub replaced: AtomicU64,
    pub others: AtomicU64,
    pub links: AtomicU64,
    pub deleted: AtomicU64,
    pub spared: AtomicU64,
    pub salvaged: AtomicU64,
    pub bytes: AtomicU64,
    pub differences: AtomicU64,
    pub problems: AtomicU64,
    pub has_damage: AtomicBool,
    pub has_failed_calls: AtomicBool,
}

pub struct RestoreRun<'a> {
    pub target: &'a Target,
    pub chunks: &'a dyn ChunkSource,
    pub options: &'a RestoreOptions<'a>,
    pub monitor: &'a dyn Monitor,
    pub progress: PhaseProgress<'a>,
    /// What is cut off the snapshot's paths: that of the target in the snapshot.
    pub strip: Bytes,
    pub losses: Losses,
    pub counters: Counters,
    pub threads: usize,
    /// Directories that one thread keeps open.
    pub directories_open_max: usize,
    /// Large files that may be open.
    pub large_open_max: usize,
    /// Is nothing made in the target?
    read_only: bool,
    /// Nothing more is begun.
    pub ended: AtomicBool,
    pub fatal: Mutex<Option<RestoreError>>,
}

impl<'a> RestoreRun<'a> {
    pub fn new(
        target: &'a Target,
        chunks: &'a dyn ChunkSource,
        options: &'a RestoreOptions<'a>,
        progress: PhaseProgress<'a>,
        planned: &mut Planned,
    ) -> RestoreRun<'a> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = match options.threads {
            0 => (cores * 2).min(options.memory.workers() * 2),
            threads => threads,
        };
        let threads = threads.min(THREADS_MAX);
        let (directories_open_max, large_open_max) = open_limits(threads);
        let counters = Counters::default();
        counters.problems.store(planned.problems, Ordering::Relaxed);
        (counters.has_damage).store(planned.has_damage, Ordering::Relaxed);
        RestoreRun {
            target,
            chunks,
            options,
            monitor: progress.monitor,
            progress,
            strip: planned.strip.clone(),
            losses: std::mem::take(&mut planned.losses),
            counters,
            threads,
            directories_open_max,
            large_open_max,
            read_only: false,
            ended: AtomicBool::new(false),
            fatal: Mutex::new(None),
        }
    }

    /// For dry runs and comparisons.
    pub fn read_only(self, read_only: bool) -> RestoreRun<'a> {
        RestoreRun { read_only, ..self }
    }

    /// Tells the monitor, escaped nowhere: whoever prints it escapes it.
    pub fn problem(&self, path: &[u8], action: &'static str, text: &str) {
        if self.options.was_reported(path, action, text) {
            return;
        }
        self.counters.problems.fetch_add(1, Ordering::Relaxed);
        report_problem(self.monitor, path, action, text);
    }

    /// Something about one entry that is worth a line and no problem.
    pub fn note(&self, path: &[u8], text: &str) {
        let path = String::from_utf8_lossy(path);
        self.monitor.note(&format!("{path}: {text}"));
    }

    /// Ends the run; the first reason stays.
    pub fn end(&self, error: RestoreError) {
        let mut fatal = self.fatal.lock().expect("no holder of this lock panics");
        fatal.get_or_insert(error);
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Should threads stop? Asks the monitor as well.
    pub fn has_ended(&self) -> bool {
        if self.ended.load(Ordering::Relaxed) {
            return true;
        }
        if self.monitor.interrupted() {
            self.end(RestoreError::Stopped);
            return true;
        }
        false
    }

    /// What ended the run, if something did.
    pub fn outcome(&self) -> Result<(), RestoreError> {
        let mut fatal = self.fatal.lock().expect("no holder of this lock panics");
        fatal.take().map_or(Ok(()), Err)
    }

    /// Tells that an entry was written, where somebody wants to know.
    pub fn report_restored(&self, entry: &Entry) {
        if !self.read_only && self.monitor.wants_restored() {
            self.monitor.would(&entry.path(), Act::Restored);
        }
    }

    /// What stands at a name must not be replaced if this command lives on it.
    pub fn check_not_in_use(&self, stat: &rustix::fs::Stat) -> Result<(), EntryFailure> {
        match self.options.guard.is_in_use(stat) {
            true => Err(EntryFailure::text(
                "replace",
                "it is the repository, cache or key in use, and stays",
            )),
            false => Ok(()),
        }
    }

    /// A failure is a problem of its entry, or, where the next entry would fail alike, the end.
    pub fn failed(&self, path: &[u8], failure: EntryFailure) {
        let EntryFailure { action, cause } = failure;
        match cause {
            Cause::Os(error) if ends_all(error) => {
                self.end(self.target.trouble_at(action, path, error.into()));
            }
            Cause::Os(error) => {
                (self.counters.has_failed_calls).store(true, Ordering::Relaxed);
                self.problem(path, action, &std::io::Error::from(error).to_string())
            }
            Cause::Text(text) => self.problem(path, action, &text),
            Cause::Damage(text) => self.damage(path, action, &text),
        }
    }

    /// A problem for which the repository is the reason.
    pub fn damage(&self, path: &[u8], action: &'static str, text: &str) {
        self.counters.has_damage.store(true, Ordering::Relaxed);
        self.problem(path, action, text);
    }

    pub fn report(&self) -> RestoreReport {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        // Whoever makes something below a directory first makes that, too.
        let found = get(&counters.directories_kept);
        let made_for_others = self.target.made_for_others().min(found);
        RestoreReport {
            files_written: get(&counters.files_written),
            incomplete: get(&counters.incomplete),
            bytes_missing: get(&counters.bytes_missing),
            replaced: get(&counters.replaced),
            kept: get(&counters.kept),
            times_changed: get(&counters.times_changed),
            skipped: get(&counters.skipped),
            directories: get(&counters.directories) + made_for_others,
            directories_kept: found - made_for_others,
            others: get(&counters.others),
            links: get(&counters.links),
            deleted: get(&counters.deleted),
            spared: get(&counters.spared),
            salvaged: get(&counters.salvaged),
            bytes: get(&counters.bytes),
            differences: get(&counters.differences),
            problems: get(&counters.problems),
            has_damage: counters.has_damage.load(Ordering::Relaxed),
            has_failed_calls: counters.has_failed_calls.load(Ordering::Relaxed),
            losses: self.losses.list(),
        }
    }
}

/// How many directories a thread, and how many large files all of them, may hold open under this
/// process' limit.
fn open_limits(threads: usize) -> (usize, usize) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    let free = limit.saturating_sub(DESCRIPTORS_RESERVED);
    let directories = free / 2 / (threads + 1);
    (
        directories.clamp(DIRECTORIES_OPEN_MIN, DIRECTORIES_OPEN_MAX),
        (free / 4).clamp(LARGE_OPEN_MIN, LARGE_OPEN_MAX),
    )
}

/// The device is full or gone, or this process is out of something.
fn ends_all(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::MFILE | Errno::NFILE | Errno::NOMEM
    )
}

/// A chunk that is fetched when it is first needed, by whichever thread needs it.
#[derive(Default)]
pub struct FetchedChunk {
    cell: OnceLock<(ChunkId, Result<Bytes, String>)>,
}

impl FetchedChunk {
    pub fn get(&self, id: &ChunkId, chunks: &dyn ChunkSource) -> Result<Bytes, EntryFailure> {
        let read = || {
            chunks
                .read(id, ChunkKind::Data)
                .map_err(|trouble| text_of(&trouble))
        };
        let (found, bytes) = self.cell.get_or_init(|| (*id, read()));
        let bytes = if found == id {
            bytes.clone()
        } else {
            // Two chunks at one place: an index lies, the chunk itself cannot.
            read()
        };
        bytes.map_err(EntryFailure::damage)
    }
}

/// What one thread holds.
pub struct Worker<'r> {
    pub run: &'r RestoreRun<'r>,
    pub directories: Directories<'r>,
    xattrs: Option<(Bytes, Arc<Vec<Xattr>>)>,
    tally: ThreadCounts,
}

impl<'r> Worker<'r> {
    pub fn new(run: &'r RestoreRun<'r>) -> Worker<'r> {
        Worker {
            run,
            directories: Directories::new(run.target, run.directories_open_max),
            xattrs: None,
            tally: ThreadCounts::default(),
        }
    }

    /// The directory of an entry. One that the catalog forgot is made.
    pub fn directory(&mut self, entry: &Entry) -> Result<Arc<TargetDirectory>, EntryFailure> {
        let directory = match self.run.read_only {
            true => self.directories.open(&entry.parent),
            false => self.directories.open_or_make(&entry.parent),
        };
        directory.map_err(EntryFailure::os("open the directory of"))
    }

    /// The same, but one that is not there, or no directory, is no failure.
    pub fn directory_to_read(
        &mut self,
        entry: &Entry,
    ) -> Result<Option<Arc<TargetDirectory>>, EntryFailure> {
        match self.directories.open(&entry.parent) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(EntryFailure::os("open the directory of")(error)),
        }
    }

    /// The extended attributes of an entry. The last set is kept: neighbours often have the same.
    pub fn xattrs_of(&mut self, entry: &Entry) -> Result<Arc<Vec<Xattr>>, EntryFailure> {
        if let Some((column, set)) = &self.xattrs
            && *column == entry.xattrs
        {
            return Ok(set.clone());
        }
        let set = xattrs::of_column(&entry.xattrs, self.run.chunks)
            .map_err(|text| EntryFailure::text("read extended attributes of", text))?;
        let set = Arc::new(set);
        self.xattrs = Some((entry.xattrs.clone(), set.clone()));
        Ok(set)
    }

    pub fn lose(&self, kind: LossKind, entry: &Entry, text: &str) {
        self.run.losses.add(kind, &entry.path(), text);
    }

    /// Counts what became of an entry; `report` makes it known.
    pub fn done(&mut self, entry: &Entry, result: Result<EntryOutcome, EntryFailure>) {
        let tally = &mut self.tally;
        let counters = &self.run.counters;
        tally.entries += 1;
        tally.bytes_done += entry.size;
        if let Ok(
            EntryOutcome::Written(_)
            | EntryOutcome::Incomplete(_)
            | EntryOutcome::Made
            | EntryOutcome::Linked,
        ) = &result
        {
            self.run.report_restored(entry);
        }
        match result {
            Ok(EntryOutcome::Written(bytes)) => {
                tally.files_written += 1;
                tally.bytes += bytes;
            }
            Ok(EntryOutcome::Incomplete(bytes)) => {
                tally.bytes += bytes;
                add(&counters.incomplete, 1);
            }
            Ok(EntryOutcome::Made) => tally.others += 1,
            Ok(EntryOutcome::Kept) => tally.kept += 1,
            Ok(EntryOutcome::Linked) => {
                tally.links += 1;
                tally.bytes_done -= entry.size;
            }
            Ok(EntryOutcome::Skipped) => add(&counters.skipped, 1),
            Ok(EntryOutcome::Salvaged) => add(&counters.salvaged, 1),
            Ok(EntryOutcome::Different) => add(&counters.differences, 1),
            Err(failure) => self.run.failed(&entry.path(), failure),
        }
        if self.tally.entries == TALLY_ENTRIES_MAX {
            self.run.monitor.place(&entry.parent);
            self.report();
        }
    }

    /// Adds what was counted to the run and tells the monitor.
    pub fn report(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        let counters = &self.run.counters;
        add(&counters.files_written, tally.files_written);
        add(&counters.bytes, tally.bytes);
        add(&counters.others, tally.others);
        add(&counters.kept, tally.kept);
        add(&counters.links, tally.links);
        if tally.entries > 0 {
            self.run.progress.add(tally.entries, tally.bytes_done);
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
