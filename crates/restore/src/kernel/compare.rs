//! Verifying a restore: the same plan, but files are read and compared instead of written.

use crate::RestoreError;
use crate::kernel::directories;
use crate::kernel::metadata::{self, TargetInode, is_missing};
use crate::kernel::queue::work;
use crate::kernel::target::{TargetDirectory, stat_child};
use crate::kernel::worker::{EntryFailure, EntryOutcome, FetchedChunk, RestoreRun, Worker};
use crate::kernel::write_content::{ContentTask, each_row, each_task};
use crate::kernel::write_large::{self, Purpose};
use crate::kernel::{hard_links, make};
use crate::plan::Planned;
use crate::scratch::ScratchSpace;
use bale_format::{Content, Entry, Kind};
use bytes::Bytes;
use rustix::fs::{Advice, FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Bytes compared at a time.
const WINDOW_BYTES: usize = 256 << 10;

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

fn missing(worker: &Worker, entry: &Entry) -> EntryOutcome {
    worker
        .run
        .problem(&entry.path(), "verify", "it is not there");
    EntryOutcome::Different
}

/// Opens a regular file of the right length for comparing; `None` if there is none, which has been
/// told.
pub fn open_file(
    worker: &mut Worker,
    directory: &TargetDirectory,
    entry: &Entry,
) -> Result<Option<OwnedFd>, EntryFailure> {
    let fd = match worker
        .directories
        .open_child(directory, &entry.name, OFlags::RDONLY)
    {
        Ok(fd) => fd,
        Err(error) => {
            let failure = EntryFailure::os("open")(error);
            if is_missing(&failure) {
                let _told = missing(worker, entry);
                return Ok(None);
            }
            return Err(failure);
        }
    };
    let stat = rustix::fs::fstat(&fd).map_err(EntryFailure::os("stat"))?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !regular || stat.st_size as u64 != entry.size {
        let text = match regular {
            true => format!("{} bytes, should be {}", stat.st_size, entry.size),
            false => "it is not a regular file".to_owned(),
        };
        worker.run.problem(&entry.path(), "verify", &text);
        return Ok(None);
    }
    // What the page cache holds is what was written, not what the device kept.
    let _advice_only = rustix::fs::fadvise(&fd, 0, None, Advice::DontNeed);
    Ok(Some(fd))
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

/// Compares metadata and tells what differs.
pub fn metadata_of(
    worker: &mut Worker,
    fd: &OwnedFd,
    entry: &Entry,
) -> Result<EntryOutcome, EntryFailure> {
    let stat = rustix::fs::fstat(fd).map_err(EntryFailure::os("stat"))?;
    differences(worker, TargetInode::Open(fd.as_fd()), entry, &stat)
}

fn differences(
    worker: &mut Worker,
    inode: TargetInode,
    entry: &Entry,
    stat: &rustix::fs::Stat,
) -> Result<EntryOutcome, EntryFailure> {
    let words = metadata::compare(worker, inode, entry, stat)?;
    if words.is_empty() {
        return Ok(EntryOutcome::Kept);
    }
    worker.run.problem(&entry.path(), "verify", &words);
    Ok(EntryOutcome::Different)
}

/// Are these the bytes at `offset`?
pub fn same_at(fd: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<(), EntryFailure> {
    let mut buffer = vec![0; WINDOW_BYTES.min(bytes.len())];
    let mut done = 0;
    while done < bytes.len() {
        let window = &mut buffer[..WINDOW_BYTES.min(bytes.len() - done)];
        let at = offset + done as u64;
        let len = match rustix::io::pread(fd, &mut window[..], at) {
            Ok(len) => len,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(EntryFailure::os("read")(error)),
        };
        if len == 0 || window[..len] != bytes[done..done + len] {
            return Err(EntryFailure::text(
                "verify",
                format!("content differs after byte {at}"),
            ));
        }
        done += len;
    }
    Ok(())
}

/// Does this stretch read as zeros? Holes are skipped.
pub fn is_zero(fd: &OwnedFd, offset: u64, length: u64) -> bool {
    let end = offset + length;
    let mut at = offset;
    let mut buffer = vec![0; WINDOW_BYTES];
    while at < end {
        match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(data) if data >= end => return true,
            Ok(data) => at = data,
            Err(Errno::NXIO) => return true,
            Err(_) => {}
        }
        let window = WINDOW_BYTES.min(usize::try_from(end - at).unwrap_or(WINDOW_BYTES));
        match rustix::io::pread(fd, &mut buffer[..window], at) {
            Ok(0) => return true,
            Ok(len) if buffer[..len].iter().any(|byte| *byte != 0) => return false,
            Ok(len) => at += len as u64,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
