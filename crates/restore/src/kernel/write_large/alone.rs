//! One large file by itself, piece by piece.

use super::write_at;
use crate::kernel::outcome::{Cause, EntryFailure, EntryOutcome};
use crate::kernel::target::TargetDirectory;
use crate::kernel::worker::{FetchedChunk, Worker};
use crate::kernel::{make, metadata, salvage, times};
use crate::losses::missing_of;
use crate::pieces;
use bale_format::{ChunkId, Entry, Piece};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// One file, piece by piece, outside any group: a name that could not be linked.
pub fn restore_alone(worker: &mut Worker, entry: &Entry) -> Result<EntryOutcome, EntryFailure> {
    let directory = worker.directory(entry)?;
    let standing = make::standing(worker, &directory, entry)?;
    if let Some(done) = make::make_without_content(worker, &directory, entry, &standing)? {
        return Ok(done);
    }
    let bale_format::Content::Pieces { list } = entry.content else {
        return Err(EntryFailure::text("restore", "damaged row: no piece list"));
    };
    let (part, fd) = make::create_part(&directory, &entry.name)?;
    let stands = standing.stat.is_some();
    let filled = fill_alone(worker, &directory, &fd, entry, &list)
        .and_then(|filled| match filled.is_unread && stands {
            true => Err(EntryFailure::text("replace", make::UNREAD_STAYS)),
            false => Ok(filled),
        })
        .inspect_err(|_| directory.remove_quietly(&part))?;
    let missing = &worker.run.counters.bytes_missing;
    missing.fetch_add(filled.missing, Ordering::Relaxed);
    let is_damaged = filled.missing > 0;
    // An odd time does not tell a damaged name of several from a whole one.
    if is_damaged && (stands || times::is_unusual(entry.mtime)) {
        salvage::keep_beside(worker.run, &directory, &part, entry, filled.missing)
            .inspect_err(|_| directory.remove_quietly(&part))?;
        return Ok(EntryOutcome::Salvaged);
    }
    make::publish(worker, &directory, &part, entry, &standing)
        .inspect_err(|_| directory.remove_quietly(&part))?;
    make::seal(worker, fd.as_fd(), entry)?;
    if is_damaged {
        let text = missing_of(entry, filled.missing);
        worker.run.problem(&entry.path(), "restore", &text);
    }
    Ok(match is_damaged || filled.is_unread {
        true => EntryOutcome::Incomplete(filled.bytes),
        false => EntryOutcome::Written(filled.bytes),
    })
}

/// What of a file was written.
#[derive(Default)]
struct Filled {
    bytes: u64,
    /// Zeros stand for so many, which the repository has lost.
    missing: u64,
    /// The backup could not read all of it.
    is_unread: bool,
}

/// As much of it as can be had. What cannot is told, and the file looks changed to the next
/// restore.
fn fill_alone(
    worker: &mut Worker,
    directory: &TargetDirectory,
    fd: &OwnedFd,
    entry: &Entry,
    list: &ChunkId,
) -> Result<Filled, EntryFailure> {
    let mut filled = Filled::default();
    let mut failure = None;
    let run = worker.run;
    let walked = pieces::walk(list, entry.size, run.chunks, &mut |offset, piece| {
        let Piece::Data {
            chunk: id,
            bytes: length,
            ..
        } = piece
        else {
            filled.is_unread |= matches!(piece, Piece::Unreadable { .. });
            return Ok(());
        };
        let written = FetchedChunk::default()
            .get(&id, run.chunks)
            .and_then(|bytes| {
                let Some(range) = piece.range_in(bytes.len()) else {
                    return Err(EntryFailure::damage("damaged piece list: wrong length"));
                };
                write_at(fd, offset, &bytes[range])
            });
        match written {
            Ok(()) => filled.bytes += length,
            Err(damage) if matches!(damage.cause, Cause::Damage(_)) => {
                filled.missing += length;
                run.failed(&entry.path(), damage);
            }
            Err(error) => {
                failure = Some(error);
                return Err(String::new());
            }
        }
        Ok(())
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    walked.map_err(|text| EntryFailure::text("restore", text))?;
    rustix::fs::ftruncate(fd, entry.size).map_err(EntryFailure::os("set the length of"))?;
    metadata::finish_file(worker, directory, fd.as_fd(), entry)?;
    if filled.missing > 0 {
        metadata::touch(fd.as_fd()).map_err(EntryFailure::os("set the times of"))?;
    }
    Ok(filled)
}
