//! Verifying a restore: the same plan, but files are read and compared instead of written.

use crate::RestoreError;
use crate::kernel::directories;
use crate::kernel::metadata::TargetInode;
use crate::kernel::outcome::{EntryFailure, EntryOutcome};
use crate::kernel::queue::work;
use crate::kernel::read_back::{differences, metadata_of, missing, open_file, same_at};
use crate::kernel::target::stat_child;
use crate::kernel::worker::{FetchedChunk, RestoreRun, Worker};
use crate::kernel::write_content::{ContentTask, each_row, each_task};
use crate::kernel::write_large::{self, Purpose};
use crate::kernel::{hard_links, make};
use crate::plan::Planned;
use crate::scratch::ScratchSpace;
use bale_format::{Content, Entry, Kind};
use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Compares everything in the plan with the target.
pub fn compare(
    run: &RestoreRun,
    planned: Planned,
    scratch: &ScratchSpace,
) -> Result<(), RestoreError> {
    work(run, run.threads, compare_directories, |feeder| {
        directories::feed(planned.directories, |batch| feeder.send(batch))
    })?;
    each_task(run, planned.content, scratch, Purpose::Compare, apply)?;
    work(run, run.threads, hard_links::compare_group, |feeder| {
        hard_links::feed(planned.links, false, |group| feeder.send(group))
    })
}

fn compare_directories(worker: &mut Worker, rows: Vec<Vec<u8>>) {
    each_row(worker, rows, |worker, entry| {
        let path = Bytes::from(entry.path());
        let directory = match worker.directories.open(&path) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(missing(worker, entry)),
            Err(error) => return Err(EntryFailure::os("open")(error)),
        };
        worker
            .run
            .counters
            .directories
            .fetch_add(1, Ordering::Relaxed);
        metadata_of(worker, &directory.fd, entry)
    });
}

fn apply<'r>(worker: &mut Worker<'r>, task: ContentTask) {
    match task {
        ContentTask::Bare(rows) => each_row(worker, rows, |worker, entry| match entry.kind {
            Kind::File => compare_file(worker, entry, &FetchedChunk::default()),
            _ => compare_special(worker, entry),
        }),
        ContentTask::Bundled(slot, rows) => {
            each_row(worker, rows, |worker, entry| {
                compare_file(worker, entry, &slot)
            });
        }
        ContentTask::Piece(task) => write_large::write_piece(worker, task),
    }
}

fn compare_file(
    worker: &mut Worker,
    entry: &Entry,
    slot: &FetchedChunk,
) -> Result<EntryOutcome, EntryFailure> {
    let directory = match worker.directory_to_read(entry)? {
        Some(directory) => directory,
        None => return Ok(missing(worker, entry)),
    };
    let Some(fd) = open_file(worker, &directory, entry)? else {
        return Ok(EntryOutcome::Different);
    };
    if let (Content::Bundled { .. }, true) = (&entry.content, entry.size > 0) {
        let bytes = make::bytes_of(worker, entry, slot)?;
        if let Err(failure) = same_at(&fd, 0, &bytes) {
            worker.run.failed(&entry.path(), failure);
            return Ok(EntryOutcome::Different);
        }
    }
    match metadata_of(worker, &fd, entry)? {
        EntryOutcome::Different => Ok(EntryOutcome::Different),
        _ => Ok(EntryOutcome::Written(entry.size)),
    }
}

fn compare_special(worker: &mut Worker, entry: &Entry) -> Result<EntryOutcome, EntryFailure> {
    if entry.kind != Kind::Symlink && !worker.run.options.specials {
        return Ok(EntryOutcome::Skipped);
    }
    let directory = match worker.directory_to_read(entry)? {
        Some(directory) => directory,
        None => return Ok(missing(worker, entry)),
    };
    let Some(stat) = stat_child(&directory, &entry.name).map_err(EntryFailure::os("stat"))? else {
        return Ok(missing(worker, entry));
    };
    let place = worker
        .directories
        .open_child(&directory, &entry.name, OFlags::PATH)
        .map_err(EntryFailure::os("open"))?;
    if !hard_links::is_entry(&place, &stat, entry) {
        worker
            .run
            .problem(&entry.path(), "verify", "it is something else");
        return Ok(EntryOutcome::Different);
    }
    match differences(worker, TargetInode::PathOnly(place.as_fd()), entry, &stat)? {
        EntryOutcome::Different => Ok(EntryOutcome::Different),
        _ => Ok(EntryOutcome::Made),
    }
}
