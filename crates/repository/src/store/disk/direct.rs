//! New packs: written past the page cache in large pieces, the device working while the caller
//! fills the next piece.
//!
//! Through the page cache a gigabyte costs seconds of processor time and pushes out what other
//! programs still need. So bytes are gathered in aligned memory and a thread of the file's own
//! hands them to the device. A file system that refuses this is written to in the ordinary way, by
//! the same pieces, and told to forget the pages afterwards.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{Advice, OFlags};
use rustix::io::Errno;

use super::NewFile;

/// Bytes that go to the device at once. Measured: 1, 2 and 4 MiB write equally fast, as fast as
/// `dd` does.
const PIECE_BYTES: usize = 1 << 20;

/// Pieces of one file: one is filled while the other is written. With `PIECE_BYTES` this bounds a
/// writer's memory.
const PIECES_PER_FILE: usize = 2;

/// Pieces kept for the next file when a file is done: memory that is mapped already.
const BUFFERS_CACHED_MAX: usize = 2 * PIECES_PER_FILE;

/// Memory of one pack being written, until it is published.
pub const WRITER_BYTES_MAX: usize = PIECES_PER_FILE * (PIECE_BYTES + ALIGN_BYTES);

/// Memory kept between packs, for all writers of a store together.
pub const WRITER_BYTES_CACHED_MAX: usize = BUFFERS_CACHED_MAX * (PIECE_BYTES + ALIGN_BYTES);

/// Direct writes start, end and lie in memory at multiples of this. No common device has larger
/// sectors.
const ALIGN_BYTES: usize = 4096;

const _: () = assert!(PIECE_BYTES.is_multiple_of(ALIGN_BYTES));

/// Aligned memory and how much of it is filled.
struct AlignedPiece {
    memory: Box<[u8]>,
    start: usize,
    filled: usize,
}

impl AlignedPiece {
    fn new() -> Self {
        let memory = vec![0; PIECE_BYTES + ALIGN_BYTES].into_boxed_slice();
        let start = memory.as_ptr().align_offset(ALIGN_BYTES);
        Self {
            memory,
            start,
            filled: 0,
        }
    }

    /// Takes what fits; returns the rest.
    fn fill<'bytes>(&mut self, bytes: &'bytes [u8]) -> &'bytes [u8] {
        let (fits, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.filled));
        let at = self.start + self.filled;
        self.memory[at..at + fits.len()].copy_from_slice(fits);
        self.filled += fits.len();
        rest
    }

    fn is_full(&self) -> bool {
        self.filled == PIECE_BYTES
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.filled]
    }

    /// Zeros up to the next multiple of `ALIGN_BYTES`.
    fn pad(&mut self) {
        let padded = self.filled.next_multiple_of(ALIGN_BYTES);
        self.memory[self.start + self.filled..self.start + padded].fill(0);
        self.filled = padded;
    }
}

/// Pieces between files.
#[derive(Default)]
pub(super) struct BufferPool(Mutex<Vec<AlignedPiece>>);

impl BufferPool {
    fn take(&self) -> AlignedPiece {
        self.lock().pop().unwrap_or_else(AlignedPiece::new)
    }

    fn give_back(&self, mut piece: AlignedPiece) {
        piece.filled = 0;
        let mut cached = self.lock();
        if cached.len() < BUFFERS_CACHED_MAX {
            cached.push(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AlignedPiece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where pieces go, one after the other.
struct Target {
    file: File,
    written: u64,
    direct: bool,
}

impl Target {
    fn write(&mut self, piece: &mut AlignedPiece) -> io::Result<()> {
        if self.direct {
            piece.pad();
        }
        let written = match self.file.write_all_at(piece.bytes(), self.written) {
            Err(error)
                if self.direct && error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                set_direct(&self.file, false)?;
                self.direct = false;
                self.file.write_all_at(piece.bytes(), self.written)
            }
            written => written,
        };
        self.written += piece.filled as u64;
        written
    }
}

fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(
        file,
        if direct {
            flags | OFlags::DIRECT
        } else {
            flags - OFlags::DIRECT
        },
    )?)
}

/// A thread that writes full pieces.
struct Lane {
    full: SyncSender<AlignedPiece>,
    empty: Receiver<AlignedPiece>,
    thread: JoinHandle<io::Result<()>>,
    /// Pieces made for this lane; at most `PIECES_PER_FILE`, so neither channel ever holds more.
    pieces: usize,
}

impl Lane {
    fn start(target: Arc<Mutex<Target>>) -> io::Result<Self> {
        let (full, to_write) = sync_channel::<AlignedPiece>(PIECES_PER_FILE);
        let (written, empty) = sync_channel::<AlignedPiece>(PIECES_PER_FILE);
        let work = move || {
            while let Ok(mut piece) = to_write.recv() {
                lock(&target).write(&mut piece)?;
                piece.filled = 0;
                // Fails when the file is closed and wants no more pieces.
                let _ = written.send(piece);
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("bale-write".to_owned())
            .spawn(work)?;
        // The piece whose coming full started the lane is the first.
        Ok(Self {
            full,
            empty,
            thread,
            pieces: 1,
        })
    }

    /// Exchanges a full piece for an empty one, waiting for the device if it is behind. `None` if
    /// the thread has ended.
    fn exchange(&mut self, full: AlignedPiece, pieces: &BufferPool) -> Option<AlignedPiece> {
        self.full.send(full).ok()?;
        if self.pieces < PIECES_PER_FILE {
            self.pieces += 1;
            return Some(pieces.take());
        }
        self.empty.recv().ok()
    }

    /// Waits for what was handed over.
    fn finish(self, pieces: &BufferPool) -> io::Result<()> {
        drop(self.full);
        let ended = self
            .thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")));
        self.empty
            .try_iter()
            .for_each(|piece| pieces.give_back(piece));
        ended
    }
}

fn lock(target: &Mutex<Target>) -> MutexGuard<'_, Target> {
    target.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new file written past the page cache.
pub(super) struct DirectFile {
    /// The lane's while it works, the caller's before and after.
    target: Arc<Mutex<Target>>,
    pieces: Arc<BufferPool>,
    /// `None` only while it changes hands, and after an error.
    filling: Option<AlignedPiece>,
    lane: Option<Lane>,
    len: u64,
}

impl DirectFile {
    pub(super) fn new(file: File, pieces: &Arc<BufferPool>) -> Self {
        // Asked for after creation: creating with the flag leaves a file behind where the flag is
        // refused.
        let direct = set_direct(&file, true).is_ok();
        let target = Target {
            file,
            written: 0,
            direct,
        };
        let filling = Some(pieces.take());
        Self {
            target: Arc::new(Mutex::new(target)),
            pieces: pieces.clone(),
            filling,
            lane: None,
            len: 0,
        }
    }

    /// Passes the full piece on and gets an empty one.
    fn hand_over(&mut self, mut full: AlignedPiece) -> io::Result<AlignedPiece> {
        if self.lane.is_none() {
            self.lane = Lane::start(self.target.clone()).ok();
        }
        let Some(lane) = &mut self.lane else {
            // No thread to be had: the caller waits for the device itself.
            lock(&self.target).write(&mut full)?;
            full.filled = 0;
            return Ok(full);
        };
        match lane.exchange(full, &self.pieces) {
            Some(empty) => Ok(empty),
            None => Err(self
                .finish_lane()
                .err()
                .unwrap_or_else(|| io::Error::other("the writing thread ended"))),
        }
    }

    fn finish_lane(&mut self) -> io::Result<()> {
        self.lane
            .take()
            .map_or(Ok(()), |lane| lane.finish(&self.pieces))
    }
}

impl NewFile for DirectFile {
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut piece = self
                .filling
                .take()
                .ok_or_else(|| io::Error::other("refused after an earlier error"))?;
            let rest = piece.fill(bytes);
            self.len += (bytes.len() - rest.len()) as u64;
            bytes = rest;
            self.filling = Some(if piece.is_full() {
                self.hand_over(piece)?
            } else {
                piece
            });
        }
        Ok(())
    }

    fn sync(mut self: Box<Self>) -> io::Result<()> {
        self.finish_lane()?;
        let mut last = self
            .filling
            .take()
            .ok_or_else(|| io::Error::other("refused after an earlier error"))?;
        let mut target = lock(&self.target);
        if last.filled > 0 {
            target.write(&mut last)?;
        }
        if target.written != self.len {
            target.file.set_len(self.len)?;
        }
        rustix::fs::fsync(&target.file)?;
        if !target.direct {
            // Only advice: failing it costs memory, not data.
            let _ =
                rustix::fs::fadvise(&target.file, 0, NonZeroU64::new(self.len), Advice::DontNeed);
        }
        drop(target);
        self.pieces.give_back(last);
        Ok(())
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // A file that is given up: whatever became of its last pieces, nobody will read them.
        let _ = self.finish_lane();
        if let Some(piece) = self.filling.take() {
            self.pieces.give_back(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_file(
        dir: &std::path::Path,
        pieces: &Arc<BufferPool>,
    ) -> (Box<DirectFile>, std::path::PathBuf) {
        let path = dir.join("file");
        (
            Box::new(DirectFile::new(File::create(&path).unwrap(), pieces)),
            path,
        )
    }

    #[test]
    fn files_of_any_length_are_written_exactly() {
        let dir = tempfile::tempdir().unwrap();
        let pieces = Arc::new(BufferPool::default());
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 1).map(|at| (at / 7) as u8).collect();
        for len in [
            0,
            1,
            4_095,
            4_096,
            4_097,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 1,
            3 * PIECE_BYTES + 1,
        ] {
            let (mut file, path) = new_file(dir.path(), &pieces);
            bytes[..len]
                .chunks(1_000_003)
                .for_each(|part| file.append(part).unwrap());
            file.sync().unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes[..len], "{len}");
        }
        assert!(pieces.lock().len() <= BUFFERS_CACHED_MAX);
        assert!(!pieces.lock().is_empty(), "memory is used again");
    }

    #[test]
    fn an_error_of_the_device_reaches_the_caller_and_ends_the_file() {
        // A file opened for reading refuses every write, as a broken device would.
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"").unwrap();
        let pieces = Arc::new(BufferPool::default());
        for len in [10, PIECE_BYTES, 5 * PIECE_BYTES] {
            let mut file = Box::new(DirectFile::new(
                File::open(dir.path().join("file")).unwrap(),
                &pieces,
            ));
            let appended = file.append(&vec![1; len]);
            if appended.is_err() {
                file.append(b"more").unwrap_err();
            }
            file.sync().unwrap_err();
        }
    }

    #[test]
    fn a_file_given_up_half_way_gives_its_memory_back() {
        let dir = tempfile::tempdir().unwrap();
        let pieces = Arc::new(BufferPool::default());
        let (mut file, _) = new_file(dir.path(), &pieces);
        file.append(&vec![1; 3 * PIECE_BYTES + 5]).unwrap();
        drop(file);
        assert_eq!(pieces.lock().len(), PIECES_PER_FILE);
    }
}
