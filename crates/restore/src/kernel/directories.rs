//! Directories: made first, private to this user; their metadata comes last, the deepest first.

use crate::kernel::delete::ListedDirectory;
use crate::kernel::make::require_kind;
use crate::kernel::metadata;
use crate::kernel::outcome::EntryFailure;
use crate::kernel::queue::work;
use crate::kernel::target::{MODE_UNFINISHED, stat_child};
use crate::kernel::worker::{RestoreRun, Worker};
use crate::scratch::{ScratchSpace, SortedPairs};
use crate::{Overwrite, RestoreError, row};
use bale_format::entry::join;
use bale_format::{Entry, EntryFlags};
use bale_pipeline::monitor::{Act, Phase, Progress};
use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

/// Directories of one task.
const TASK_ROWS_MAX: usize = 256;

/// Memory of each sorter.
pub const SORTER_BYTES: usize = 16 << 20;

/// Attempts to put a directory where something else appears again and again.
const ATTEMPTS_MAX: usize = 3;

/// What is left of the plan's directories when they are made.
pub struct MadeDirectories {
    /// For metadata.
    pub deepest_first: SortedPairs,
    /// For deleting: keys are paths with zero bytes for slashes. Empty if nothing is to be deleted.
    pub by_path: SortedPairs,
}

/// Makes all directories. Order does not matter: whoever comes first makes the ones above.
pub fn create(
    run: &RestoreRun,
    planned: SortedPairs,
    scratch: &ScratchSpace,
) -> Result<MadeDirectories, RestoreError> {
    let sorter = || scratch.sorter(SORTER_BYTES);
    let (mut deepest_first, mut by_path) = (sorter(), sorter());
    work(run, threads(run), make_all, |feeder| {
        let mut batch = Vec::new();
        let mut last = None;
        for (number, pair) in planned.enumerate() {
            let (key, row) = pair.map_err(RestoreError::Scratch)?;
            // A directory that is wanted for several things below it comes several times.
            if last.as_ref() == Some(&key) {
                continue;
            }
            let descending = (u64::MAX - number as u64).to_be_bytes();
            deepest_first
                .push(&descending, &row)
                .map_err(RestoreError::Scratch)?;
            if run.options.delete {
                let listed = listed(run, &row).map_err(RestoreError::Scratch)?;
                by_path
                    .push(&key, &listed.to_bytes())
                    .map_err(RestoreError::Scratch)?;
            }
            last = Some(key);
            batch.push(row);
            if batch.len() == TASK_ROWS_MAX && !feeder.send(std::mem::take(&mut batch)) {
                return Ok(());
            }
        }
        feeder.send(batch);
        Ok(())
    })?;
    Ok(MadeDirectories {
        deepest_first: deepest_first.finish().map_err(RestoreError::Scratch)?,
        by_path: by_path.finish().map_err(RestoreError::Scratch)?,
    })
}

/// Only a directory whose children the snapshot knows may lose others.
fn listed(run: &RestoreRun, row: &[u8]) -> std::io::Result<ListedDirectory> {
    let entry = row::decode(row.to_vec())?;
    let flags = entry.flags;
    let unknown = flags.has(EntryFlags::UNREADABLE) || flags.has(EntryFlags::NOT_CROSSED);
    let in_snapshot = join(&run.strip, &entry.path());
    Ok(ListedDirectory {
        may_delete: !unknown && run.options.guard.knows_children(&in_snapshot),
        filesystem: entry.filesystem,
    })
}

/// Gives all directories their metadata.
pub fn finish(run: &RestoreRun, deepest_first: SortedPairs) -> Result<(), RestoreError> {
    if run.options.dry_run {
        return Ok(());
    }
    work(run, threads(run), finish_all, |feeder| {
        feed(deepest_first, |batch| feeder.send(batch))
    })
}

/// Sends rows in batches until `send` wants no more.
pub fn feed(rows: SortedPairs, send: impl Fn(Vec<Vec<u8>>) -> bool) -> Result<(), RestoreError> {
    let mut batch = Vec::new();
    for pair in rows {
        batch.push(pair.map_err(RestoreError::Scratch)?.1);
        if batch.len() == TASK_ROWS_MAX && !send(std::mem::take(&mut batch)) {
            return Ok(());
        }
    }
    send(batch);
    Ok(())
}

/// A user's directories are handled in order: the modes of those above decide whether he can reach
/// the ones below.
fn threads(run: &RestoreRun) -> usize {
    match run.target.privileged {
        true => run.threads,
        false => 1,
    }
}

fn make_all(worker: &mut Worker, rows: Vec<Vec<u8>>) {
    let count = rows.len() as u64;
    each(worker, rows, |worker, entry| {
        let counters = &worker.run.counters;
        let counter = match make(worker, entry)? {
            WasThere::New => &counters.directories,
            WasThere::Found => &counters.directories_kept,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    worker.run.progress.add(count, 0);
}

fn finish_all(worker: &mut Worker, rows: Vec<Vec<u8>>) {
    let count = rows.len() as u64;
    each(worker, rows, |worker, entry| {
        let path = Bytes::from(entry.path());
        let directory = worker
            .directories
            .open(&path)
            .map_err(EntryFailure::os("open"))?;
        let stat = rustix::fs::fstat(&directory.fd).map_err(EntryFailure::os("stat"))?;
        let fd = directory.fd.as_fd();
        if !directory.readable {
            return metadata::adjust(worker, metadata::TargetInode::PathOnly(fd), entry, &stat);
        }
        metadata::adjust(worker, metadata::TargetInode::Open(fd), entry, &stat)?;
        metadata::seal(worker, fd, entry)
    });
    let (run, counters) = (worker.run, &worker.run.counters);
    let made = counters.directories.load(Ordering::Relaxed)
        + counters.directories_kept.load(Ordering::Relaxed);
    let done = counters
        .directories_finished
        .fetch_add(count, Ordering::Relaxed)
        + count;
    let progress = Progress {
        done,
        total: made.max(done),
        ..Progress::default()
    };
    run.monitor.progress(Phase::Finish, progress);
}

fn each<'r>(
    worker: &mut Worker<'r>,
    rows: Vec<Vec<u8>>,
    act: impl Fn(&mut Worker<'r>, &Entry) -> Result<(), EntryFailure>,
) {
    for row in rows {
        match row::decode(row) {
            Ok(entry) => {
                if let Err(failure) = act(worker, &entry) {
                    worker.run.failed(&entry.path(), failure);
                }
            }
            Err(error) => worker.run.end(RestoreError::Scratch(error)),
        }
    }
}

/// Was a directory there?
enum WasThere {
    New,
    Found,
}

impl WasThere {
    fn of(is_new: bool) -> WasThere {
        match is_new {
            true => WasThere::New,
            false => WasThere::Found,
        }
    }
}

fn make(worker: &mut Worker, entry: &Entry) -> Result<WasThere, EntryFailure> {
    let run = worker.run;
    if entry.name.is_empty() {
        return Ok(WasThere::of(run.target.is_made));
    }
    if run.options.dry_run {
        return dry_make(worker, entry);
    }
    let parent = worker.directory(entry)?;
    if run.options.overwrite == Overwrite::MetadataOnly {
        let stat = stat_child(&parent, &entry.name).map_err(EntryFailure::os("stat"))?;
        require_kind(stat.as_ref(), entry)?;
        return Ok(WasThere::Found);
    }
    for _ in 0..ATTEMPTS_MAX {
        match rustix::fs::mkdirat(&parent.fd, &entry.name[..], MODE_UNFINISHED) {
            Ok(()) => return Ok(WasThere::New),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(EntryFailure::os("make the directory")(error)),
        }
        let Some(stat) = stat_child(&parent, &entry.name).map_err(EntryFailure::os("stat"))? else {
            continue;
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if !run.target.privileged {
                make_usable(worker, entry, stat.st_mode)?;
            }
            return Ok(WasThere::Found);
        }
        if run.options.overwrite == Overwrite::Never {
            return Err(EntryFailure::text(
                "make the directory",
                "something else is there",
            ));
        }
        run.check_not_in_use(&stat)?;
        match rustix::fs::unlinkat(&parent.fd, &entry.name[..], AtFlags::empty()) {
            Ok(()) => report_replaced(run, entry, &stat),
            Err(Errno::NOENT | Errno::ISDIR) => {}
            Err(error) => return Err(EntryFailure::os("replace by a directory")(error)),
        }
    }
    Err(EntryFailure::text(
        "make the directory",
        "something else appears there again and again",
    ))
}

/// A link in the place of a directory is never followed, and nothing is restored where it leads:
/// whoever put it there to have the tree elsewhere must know.
fn report_replaced(run: &RestoreRun, entry: &Entry, stat: &rustix::fs::Stat) {
    run.counters.replaced.fetch_add(1, Ordering::Relaxed);
    let was = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => "a symbolic link",
        FileType::RegularFile => "a file",
        _ => "something else",
    };
    let text = match run.options.dry_run {
        false => format!("{was} was replaced by the snapshot's directory"),
        true => format!("{was} would be replaced by the snapshot's directory"),
    };
    run.note(&entry.path(), &text);
}

/// A directory whose owner may not write in it, as after an earlier restore, gets its mode back at
/// the end.
fn make_usable(worker: &mut Worker, entry: &Entry, mode: u32) -> Result<(), EntryFailure> {
    if mode & 0o700 == 0o700 {
        return Ok(());
    }
    let path = Bytes::from(entry.path());
    let directory = worker
        .directories
        .open(&path)
        .map_err(EntryFailure::os("open"))?;
    let magic = format!("/proc/self/fd/{}", directory.fd.as_raw_fd());
    let usable = Mode::from_raw_mode(mode & 0o7777 | 0o700);
    // Not the owner: then what is in it decides.
    let _refused = rustix::fs::chmodat(CWD, magic, usable, AtFlags::empty());
    worker.directories.forget(&path);
    Ok(())
}

fn dry_make(worker: &mut Worker, entry: &Entry) -> Result<WasThere, EntryFailure> {
    let stat = match worker.directories.open(&entry.parent) {
        Ok(parent) => stat_child(&parent, &entry.name).map_err(EntryFailure::os("stat"))?,
        Err(_) => None,
    };
    if worker.run.options.overwrite == Overwrite::MetadataOnly {
        require_kind(stat.as_ref(), entry)?;
    }
    let act = match &stat {
        None => Act::Create,
        Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Act::Keep,
        Some(_) if worker.run.options.overwrite == Overwrite::Never => Act::Skip,
        Some(_) => Act::Replace,
    };
    if let (Act::Replace, Some(stat)) = (act, &stat) {
        report_replaced(worker.run, entry, stat);
    }
    worker.run.monitor.would(&entry.path(), act);
    Ok(WasThere::of(matches!(act, Act::Create | Act::Replace)))
}
