//! One large file by itself, piece by piece.

use super::write_at;
use crate::kernel::outcome::{EntryFailure, EntryOutcome};
use crate::kernel::target::TargetDirectory;
use crate::kernel::worker::{FetchedChunk, Worker};
use crate::kernel::{make, metadata};
use crate::pieces;
use bale_format::{ChunkId, Entry, Piece};
use std::os::fd::{AsFd, OwnedFd};

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
    let done = fill_alone(worker, &directory, &fd, entry, &list)
        .and_then(|(bytes, is_whole)| match is_whole || !stands {
            true => Ok((bytes, is_whole)),
            false => Err(EntryFailure::text("replace", make::UNREAD_STAYS)),
        })
        .and_then(|(bytes, is_whole)| {
            make::publish(worker, &directory, &part, entry, &standing)?;
            Ok(done_of(bytes, is_whole))
        })
        .inspect_err(|_| directory.remove_quietly(&part))?;
    make::seal(worker, fd.as_fd(), entry)?;
    Ok(done)
}

fn done_of(bytes: u64, is_whole: bool) -> EntryOutcome {
    match is_whole {
        true => EntryOutcome::Written(bytes),
        false => EntryOutcome::Incomplete(bytes),
    }
}

fn fill_alone(
    worker: &mut Worker,
    directory: &TargetDirectory,
    fd: &OwnedFd,
    entry: &Entry,
    list: &ChunkId,
) -> Result<(u64, bool), EntryFailure> {
    let mut bytes_written = 0;
    let mut is_whole = true;
    let mut failure = None;
    let chunks = worker.run.chunks;
    let walked = pieces::walk(list, entry.size, chunks, &mut |offset, piece| {
        let Piece::Data {
            chunk: id,
            bytes: length,
            ..
        } = piece
        else {
            is_whole &= !matches!(piece, Piece::Unreadable { .. });
            return Ok(());
        };
        let bytes = FetchedChunk::default().get(&id, chunks).and_then(|bytes| {
            let Some(range) = piece.range_in(bytes.len()) else {
                return Err(EntryFailure::damage("damaged piece list: wrong length"));
            };
            write_at(fd, offset, &bytes[range])
        });
        bytes_written += length;
        bytes.map_err(|error| {
            failure = Some(error);
            String::new()
        })
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    walked.map_err(|text| EntryFailure::text("restore", text))?;
    rustix::fs::ftruncate(fd, entry.size).map_err(EntryFailure::os("set the length of"))?;
    metadata::finish_file(worker, directory, fd.as_fd(), entry)?;
    Ok((bytes_written, is_whole))
}
