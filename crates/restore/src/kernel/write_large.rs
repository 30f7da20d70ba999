//! Large files: pieces written in the order of their chunks into temporary files, renamed when the
//! last piece is there.
//!
//! Files are taken in groups; in a group every chunk is fetched once, however many files or places
//! need it. A file is open from its first to its last piece, so the number open is bounded, and a
//! kill loses the files of a group or two. The same walk, reading instead of writing, verifies.

mod alone;
mod permits;

pub use alone::restore_alone;
pub use permits::Permits;

use crate::kernel::outcome::{Cause, EntryFailure, EntryOutcome};
use crate::kernel::piece_rows::{ExpectedPieces, GroupPieces, PieceRow, PlaceBytes};
use crate::kernel::queue::Feeder;
use crate::kernel::target::TargetDirectory;
use crate::kernel::worker::{FetchedChunk, RestoreRun, Worker};
use crate::kernel::{make, metadata, read_back, salvage, times};
use crate::losses::missing_of;
use crate::scratch::ScratchSpace;
use crate::{RestoreError, pieces, row};
use bale_format::{ChunkId, Entry, Piece};
use bale_pipeline::monitor::Act;
use permits::Permit;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a group: further files wait for the next one.
const GROUP_BYTES_MAX: u64 = 64 << 30;

/// Writes of one task.
const TASK_WRITES_MAX: usize = 256;

/// What the pieces are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To make the file.
    Write,
    /// To compare the file with them.
    Compare,
}

/// A large file between its first and its last piece.
pub struct RestoredLargeFile {
    entry: Entry,
    directory: Arc<TargetDirectory>,
    fd: OwnedFd,
    /// Temporary name, until it is renamed; of a file that is compared, empty.
    part: Vec<u8>,
    standing: make::TargetState,
    /// GroupPieces to come, and one for the gatherer.
    pending: AtomicU64,
    bytes: AtomicU64,
    /// Bytes that could not be had, or not written: zeros stand for them.
    missing: AtomicU64,
    /// A piece is missing, or differs.
    failed: AtomicBool,
    /// The backup could not read all of it.
    unread: AtomicBool,
    /// Its list is damaged: it never gets its name.
    abandoned: AtomicBool,
    published: AtomicBool,
    _permit: Permit,
}

impl Drop for RestoredLargeFile {
    fn drop(&mut self) {
        if !self.published.load(Ordering::Relaxed) && !self.part.is_empty() {
            self.directory.remove_quietly(&self.part);
        }
    }
}

/// Where bytes of a chunk go.
struct PieceWrite {
    file: Arc<RestoredLargeFile>,
    offset: u64,
    length: u64,
    /// Of a part of the chunk: its first byte.
    start: Option<u32>,
}

/// One chunk and where its bytes go.
pub struct PieceTask {
    id: ChunkId,
    slot: Arc<FetchedChunk>,
    purpose: Purpose,
    writes: Vec<PieceWrite>,
}

/// Collects large files into groups.
pub struct Gatherer<'r> {
    worker: Worker<'r>,
    scratch: &'r ScratchSpace,
    purpose: Purpose,
    permits: Arc<Permits>,
    files: Vec<Arc<RestoredLargeFile>>,
    bytes: u64,
    pieces: GroupPieces,
}

impl<'r> Gatherer<'r> {
    pub fn new(
        run: &'r RestoreRun<'r>,
        scratch: &'r ScratchSpace,
        purpose: Purpose,
    ) -> Gatherer<'r> {
        Gatherer {
            worker: Worker::new(run),
            scratch,
            purpose,
            permits: Permits::new(run.large_open_max),
            files: Vec::new(),
            bytes: 0,
            pieces: GroupPieces::default(),
        }
    }

    /// Takes one row; `false`: the run has ended.
    pub fn push<T>(
        &mut self,
        row: Vec<u8>,
        feeder: &Feeder<T>,
        task: fn(PieceTask) -> T,
    ) -> Result<bool, RestoreError> {
        let entry = row::decode(row).map_err(RestoreError::Scratch)?;
        if self.worker.run.options.dry_run {
            let result = make::would(&mut self.worker, &entry);
            self.worker.done(&entry, result);
            return Ok(!self.worker.run.has_ended());
        }
        match self.open(&entry) {
            Ok(OpenedFile::Finished(done)) => self.worker.done(&entry, Ok(done)),
            Ok(OpenedFile::File(file)) => self.take_pieces(file)?,
            Err(failure) => self.worker.done(&entry, Err(failure)),
        }
        // Half of the permits, so that one group can be filled while the one before is written.
        if self.files.len() * 2 >= self.worker.run.large_open_max || self.bytes >= GROUP_BYTES_MAX {
            return self.flush(feeder, task);
        }
        Ok(!self.worker.run.has_ended())
    }

    /// Sends what is left.
    pub fn finish<T>(
        mut self,
        feeder: &Feeder<T>,
        task: fn(PieceTask) -> T,
    ) -> Result<(), RestoreError> {
        self.flush(feeder, task).map(|_| ())
    }

    fn open(&mut self, entry: &Entry) -> Result<OpenedFile, EntryFailure> {
        let directory = self.worker.directory(entry)?;
        let (part, fd, standing) = match self.purpose {
            Purpose::Write => {
                let standing = make::standing(&self.worker, &directory, entry)?;
                if let Some(done) =
                    make::make_without_content(&mut self.worker, &directory, entry, &standing)?
                {
                    return Ok(OpenedFile::Finished(done));
                }
                let (part, fd) = make::create_part(&directory, &entry.name)?;
                (part, fd, standing)
            }
            Purpose::Compare => {
                let Some(fd) = read_back::open_file(&mut self.worker, &directory, entry)? else {
                    return Ok(OpenedFile::Finished(EntryOutcome::Different));
                };
                let standing = make::TargetState {
                    act: Act::Keep,
                    stat: None,
                };
                (Vec::new(), fd, standing)
            }
        };
        Ok(OpenedFile::File(Arc::new(RestoredLargeFile {
            entry: entry.clone(),
            directory,
            fd,
            part,
            standing,
            pending: AtomicU64::new(1),
            bytes: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            published: AtomicBool::new(false),
            _permit: self.permits.take(),
        })))
    }

    fn take_pieces(&mut self, file: Arc<RestoredLargeFile>) -> Result<(), RestoreError> {
        let run = self.worker.run;
        let bale_format::Content::Pieces { list } = file.entry.content else {
            run.failed(
                &file.entry.path(),
                EntryFailure::text("restore", "damaged row: no piece list"),
            );
            return Ok(());
        };
        let number = self.files.len() as u32;
        let mut sorting = Ok(());
        let walked = pieces::walk(&list, file.entry.size, run.chunks, &mut |offset, piece| {
            let Piece::Data {
                chunk: id,
                bytes: length,
                start,
            } = piece
            else {
                return self.hole(&file, offset, piece);
            };
            let Some(place) = run.chunks.place(&id) else {
                file.failed.store(true, Ordering::Relaxed);
                file.missing.fetch_add(length, Ordering::Relaxed);
                let text = format!(
                    "bytes {offset} to {}: chunk {} is in no index",
                    offset + length,
                    id.short()
                );
                run.damage(&file.entry.path(), "restore", &text);
                return Ok(());
            };
            let mut key = [0; 24];
            key[..12].copy_from_slice(&place.sort_key());
            key[12..16].copy_from_slice(&number.to_be_bytes());
            key[16..].copy_from_slice(&offset.to_be_bytes());
            let row = PieceRow {
                key,
                id,
                length,
                start,
            };
            sorting = self.pieces.push(self.scratch, row);
            sorting.as_ref().copied().map_err(ToString::to_string)
        });
        sorting.map_err(RestoreError::Scratch)?;
        if let Err(text) = walked {
            run.damage(&file.entry.path(), "restore", &text);
            file.abandoned.store(true, Ordering::Relaxed);
        }
        self.bytes = self.bytes.saturating_add(file.entry.size);
        self.files.push(file);
        Ok(())
    }

    fn hole(&self, file: &RestoredLargeFile, offset: u64, piece: Piece) -> Result<(), String> {
        let run = self.worker.run;
        let length = piece.bytes();
        if matches!(piece, Piece::Unreadable { .. }) {
            file.unread.store(true, Ordering::Relaxed);
            file.missing.fetch_add(length, Ordering::Relaxed);
            let text = format!(
                "bytes {offset} to {} could not be read by the backup",
                offset + length
            );
            run.problem(&file.entry.path(), "restore", &text);
        }
        if self.purpose == Purpose::Compare && !read_back::is_zero(&file.fd, offset, length) {
            file.failed.store(true, Ordering::Relaxed);
            run.problem(
                &file.entry.path(),
                "verify",
                &format!("content differs at {offset}"),
            );
        }
        Ok(())
    }

    /// Sends the group's pieces in the order of their chunks.
    pub fn flush<T>(
        &mut self,
        feeder: &Feeder<T>,
        task: fn(PieceTask) -> T,
    ) -> Result<bool, RestoreError> {
        let files = std::mem::take(&mut self.files);
        let pieces = std::mem::take(&mut self.pieces);
        self.bytes = 0;
        let mut next: Option<(PlaceBytes, PieceTask)> = None;
        let pieces = pieces.sorted().map_err(RestoreError::Scratch)?;
        for piece in ExpectedPieces::new(pieces, self.worker.run.chunks) {
            let piece = piece.map_err(RestoreError::Scratch)?;
            let (number, offset) = piece.goes_to();
            let damaged = || RestoreError::Scratch(std::io::ErrorKind::InvalidData.into());
            let file = files.get(number).cloned().ok_or_else(damaged)?;
            file.pending.fetch_add(1, Ordering::Relaxed);
            let write = PieceWrite {
                file,
                offset,
                length: piece.length,
                start: piece.start,
            };
            let place = piece.place();
            let slot = match &mut next {
                Some((at, task)) if *at == place && task.id == piece.id => {
                    if task.writes.len() < TASK_WRITES_MAX {
                        task.writes.push(write);
                        continue;
                    }
                    task.slot.clone()
                }
                _ => Arc::new(FetchedChunk::default()),
            };
            let full = next.replace((
                place,
                PieceTask {
                    id: piece.id,
                    slot,
                    purpose: self.purpose,
                    writes: vec![write],
                },
            ));
            if let Some((_, full)) = full
                && !feeder.send(task(full))
            {
                return Ok(false);
            }
        }
        if let Some((_, last)) = next
            && !feeder.send(task(last))
        {
            return Ok(false);
        }
        for file in files {
            piece_done(&mut self.worker, self.purpose, &file);
        }
        Ok(!self.worker.run.has_ended())
    }
}

enum OpenedFile {
    Finished(EntryOutcome),
    File(Arc<RestoredLargeFile>),
}

/// Writes or compares one chunk's bytes wherever they belong.
pub fn write_piece(worker: &mut Worker, task: PieceTask) {
    let bytes = task
        .slot
        .get(&task.id, worker.run.chunks)
        .map_err(|failure| match failure.cause {
            Cause::Text(text) | Cause::Damage(text) => text,
            Cause::Os(error) => error.to_string(),
        });
    for write in task.writes {
        let PieceWrite {
            file,
            offset,
            length,
            start,
        } = write;
        let piece = Piece::Data {
            bytes: length,
            chunk: task.id,
            start,
        };
        let part =
            (bytes.as_ref()).map(|bytes| piece.range_in(bytes.len()).map(|range| &bytes[range]));
        let result = match part {
            _ if file.abandoned.load(Ordering::Relaxed) => Ok(()),
            Err(text) => Err(EntryFailure::damage(format!(
                "bytes {offset} to {}: {text}",
                offset + length
            ))),
            Ok(None) => Err(EntryFailure::damage(format!(
                "damaged piece list: chunk at {offset} has another length"
            ))),
            Ok(Some(bytes)) => match task.purpose {
                Purpose::Write => write_at(&file.fd, offset, bytes),
                Purpose::Compare => read_back::same_at(&file.fd, offset, bytes),
            },
        };
        match result {
            Ok(()) => {
                file.bytes.fetch_add(length, Ordering::Relaxed);
                worker.run.monitor.place(&file.entry.parent);
                worker.run.progress.add(0, length);
            }
            Err(failure) => {
                file.failed.store(true, Ordering::Relaxed);
                file.missing.fetch_add(length, Ordering::Relaxed);
                worker.run.failed(&file.entry.path(), failure);
            }
        }
        piece_done(worker, task.purpose, &file);
    }
}

fn write_at(fd: &OwnedFd, mut offset: u64, bytes: &[u8]) -> Result<(), EntryFailure> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::pwrite(fd, rest, offset) {
            Ok(0) => return Err(EntryFailure::text("write", "nothing was taken")),
            Ok(len) => {
                rest = &rest[len..];
                offset += len as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(EntryFailure::os("write")(error)),
        }
    }
    Ok(())
}

/// Whoever does the last piece ends the file.
fn piece_done(worker: &mut Worker, purpose: Purpose, file: &RestoredLargeFile) {
    if file.pending.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    let abandoned = file.abandoned.load(Ordering::Relaxed);
    if abandoned || worker.run.ended.load(Ordering::Relaxed) {
        return;
    }
    let result = match purpose {
        Purpose::Write => finish(worker, file),
        Purpose::Compare => finish_compare(worker, file),
    };
    let counters = &worker.run.counters;
    match result {
        Ok(done) => {
            let missing = file.missing.load(Ordering::Relaxed);
            counters.bytes_missing.fetch_add(missing, Ordering::Relaxed);
            let counter = match done {
                EntryOutcome::Salvaged => &counters.salvaged,
                EntryOutcome::Incomplete(_) => &counters.incomplete,
                _ => &counters.files_written,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            if done != EntryOutcome::Salvaged {
                let bytes = file.bytes.load(Ordering::Relaxed);
                counters.bytes.fetch_add(bytes, Ordering::Relaxed);
                worker.run.report_restored(&file.entry);
            }
        }
        Err(failure) => worker.run.failed(&file.entry.path(), failure),
    }
    worker.run.progress.add(1, 0);
}

/// Length, metadata, name. A file with bytes missing takes the place of nothing; where nothing
/// stands it gets its name as well, for the sake of the others, but, if it was damaged since, not
/// its mtime: the next restore takes it for changed.
fn finish(worker: &mut Worker, file: &RestoredLargeFile) -> Result<EntryOutcome, EntryFailure> {
    let (directory, entry) = (&file.directory, &file.entry);
    rustix::fs::ftruncate(&file.fd, entry.size).map_err(EntryFailure::os("set the length of"))?;
    metadata::finish_file(worker, directory, file.fd.as_fd(), entry)?;
    let failed = file.failed.load(Ordering::Relaxed);
    if failed {
        metadata::touch(file.fd.as_fd()).map_err(EntryFailure::os("set the times of"))?;
    }
    // An odd time does not tell the damaged first name of several from a whole one.
    let is_odd = failed && entry.is_hard_link() && times::is_unusual(entry.mtime);
    let is_part = failed || file.unread.load(Ordering::Relaxed);
    if is_odd || is_part && file.standing.stat.is_some() {
        let missing = file.missing.load(Ordering::Relaxed);
        salvage::keep_beside(worker.run, directory, &file.part, entry, missing)?;
        file.published.store(true, Ordering::Relaxed);
        return Ok(EntryOutcome::Salvaged);
    }
    make::publish(worker, directory, &file.part, entry, &file.standing)?;
    file.published.store(true, Ordering::Relaxed);
    make::seal(worker, file.fd.as_fd(), entry)?;
    if failed {
        let text = missing_of(entry, file.missing.load(Ordering::Relaxed));
        worker.run.problem(&entry.path(), "restore", &text);
    }
    Ok(match is_part {
        true => EntryOutcome::Incomplete(0),
        false => EntryOutcome::Written(0),
    })
}

fn finish_compare(
    worker: &mut Worker,
    file: &RestoredLargeFile,
) -> Result<EntryOutcome, EntryFailure> {
    if file.failed.load(Ordering::Relaxed) {
        worker
            .run
            .counters
            .differences
            .fetch_add(1, Ordering::Relaxed);
    }
    read_back::metadata_of(worker, &file.fd, &file.entry)?;
    Ok(EntryOutcome::Written(0))
}
