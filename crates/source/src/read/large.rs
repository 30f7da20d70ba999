//! Large files: read front to back in blocks, a few in flight, past the page cache where the file
//! is not in it already.

mod cut;
mod open;

use super::blocks::{FileBlock, Pool, ReadResult, Request};
use super::ranges::next_data;
use super::{
    BLOCK_BYTES, BLOCKS_AHEAD_MAX, BLOCKS_AHEAD_MIN, GIVES_MORE, LARGE_THREADS_MAX, gives_more,
    is_unchanged, may_have_holes, problem, stat_of,
};
use crate::image::{EntryPlace, Extents, ImageInode, Span};
use crate::problem::ScanProblem;
use crate::scan::{Directory, complete_opened};
use bale_format::entry::{Entry, EntryFlags};
use bale_sys::buffer::ALIGNMENT;
use bale_sys::cache::cachestat;
pub(crate) use open::map_is_sane;
use open::open_file;
use rustix::fs::{Advice, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Stack of a reading thread.
const STACK_BYTES: usize = 256 << 10;

/// Threads and buffers for large files.
pub struct LargeReader {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
}

/// A run of a file's bytes.
#[derive(Debug)]
pub enum ReadPiece {
    /// Bytes.
    Data(FileBlock),
    /// So many zeros that the file has no blocks for.
    Hole(u64),
    /// So many bytes that the device did not give.
    Bad(u64),
}

/// A large file being read. Pieces come in order and without gaps.
pub struct LargeFile {
    pool: Arc<Pool>,
    /// `None`: read block by block through `image`.
    file: Option<Arc<OwnedFd>>,
    /// Where it lies on the device, if it is read from there.
    image: Option<OnDevice>,
    entry: Entry,
    direct: bool,
    /// Nothing of it was in the page cache: what we bring in, we throw out.
    forget: bool,
    sparse: bool,
    /// Its stamps may not show what is written to it.
    unproven: bool,
    /// Size when it was opened: where reading ends.
    size: u64,
    /// Next byte to be asked for; rest of the data range it is in.
    requested_until: u64,
    data_end: u64,
    ahead: VecDeque<Ahead>,
    /// Pieces of the block last taken.
    cut: VecDeque<ReadPiece>,
    given: u64,
    ended: bool,
    problems: Vec<ScanProblem>,
}

/// A file that is read from its device.
struct OnDevice {
    inode: ImageInode,
    extents: Extents,
    /// The next extent to be looked at.
    next: usize,
}

enum Ahead {
    Hole(u64),
    /// So many zeros that take room on the device.
    Zeros(u64),
    /// Read already.
    Ready(io::Result<FileBlock>),
    /// Bytes `wanted` of the block that the slot gets; `start` is the block's offset. Offsets are
    /// of the file, or of the device that it is read from.
    Block {
        slot: Arc<ReadResult>,
        start: u64,
        wanted: Range<u64>,
    },
}

/// What became of a file after its last piece.
#[derive(Debug)]
pub struct FinishedFile {
    /// The entry as of the read: completed, `size` being the bytes given, and with what happened in
    /// its flags.
    pub entry: Entry,
    /// It changed while it was read; worth another attempt.
    pub changed: bool,
    /// It may have changed while it was read, though its stamps do not say so: only another read
    /// that gives the same proves what it held.
    pub unproven: bool,
    /// What went wrong.
    pub problems: Vec<ScanProblem>,
}

impl Default for LargeReader {
    fn default() -> LargeReader {
        LargeReader::start()
    }
}

impl LargeReader {
    /// Starts the threads.
    pub fn start() -> LargeReader {
        LargeReader::within(BLOCKS_AHEAD_MAX)
    }

    /// The same with so many reads in flight.
    pub fn within(blocks_ahead: usize) -> LargeReader {
        let blocks_ahead = blocks_ahead.clamp(BLOCKS_AHEAD_MIN, BLOCKS_AHEAD_MAX);
        let pool = Arc::new(Pool::new(blocks_ahead));
        let mut threads = Vec::new();
        for _ in 0..blocks_ahead.min(LARGE_THREADS_MAX) {
            let worker = pool.clone();
            let builder = std::thread::Builder::new()
                .name("read-large".to_string())
                .stack_size(STACK_BYTES);
            let Ok(thread) = builder.spawn(move || worker.work()) else {
                break;
            };
            pool.add_thread();
            threads.push(thread);
        }
        LargeReader { pool, threads }
    }

    /// Opens a regular file and begins to read ahead. `NotFound`: it vanished.
    pub fn open(&self, place: &EntryPlace, entry: Entry) -> Result<LargeFile, ScanProblem> {
        let mut entry = entry;
        let opened = match place {
            EntryPlace::Directory(directory) => self.open_in_directory(directory, &mut entry),
            EntryPlace::Image(inode) => self.open_on_device(inode, &mut entry),
        };
        let mut large = opened.map_err(|error| problem(&entry, "read", error))?;
        large.size = entry.size;
        large.entry = entry;
        large.request_ahead();
        Ok(large)
    }

    fn open_in_directory(
        &self,
        directory: &Arc<Directory>,
        entry: &mut Entry,
    ) -> io::Result<LargeFile> {
        let opened = open_file(directory, entry)?;
        let (file, stat, direct) = (opened.file, opened.stat, opened.direct);
        let incomplete = complete_opened(file.as_fd(), entry).err();
        let sparse = may_have_holes(&stat) && map_is_sane(&file, &stat);
        let cached = cachestat(file.as_fd(), 0, 0).map_or(0, |stat| stat.cached);
        Ok(LargeFile {
            direct,
            forget: !direct && cached == 0,
            sparse,
            unproven: opened.unproven,
            file: Some(Arc::new(file)),
            problems: incomplete.into_iter().collect(),
            ..LargeFile::new(&self.pool, entry)
        })
    }

    fn open_on_device(&self, inode: &ImageInode, entry: &mut Entry) -> io::Result<LargeFile> {
        let incomplete = EntryPlace::Image(inode.clone()).complete(entry).err();
        let extents = inode.extents_of_large(0)?;
        let direct = inode.image.direct_for_content();
        Ok(LargeFile {
            direct: true,
            sparse: extents.sparse,
            file: direct.cloned(),
            image: Some(OnDevice {
                inode: inode.clone(),
                extents,
                next: 0,
            }),
            problems: incomplete.into_iter().collect(),
            ..LargeFile::new(&self.pool, entry)
        })
    }
}

impl Drop for LargeReader {
    fn drop(&mut self) {
        self.pool.stop();
        for thread in self.threads.drain(..) {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl LargeFile {
    fn new(pool: &Arc<Pool>, entry: &Entry) -> LargeFile {
        LargeFile {
            pool: pool.clone(),
            file: None,
            image: None,
            entry: entry.clone(),
            direct: false,
            forget: false,
            sparse: false,
            unproven: false,
            size: entry.size,
            requested_until: 0,
            data_end: 0,
            ahead: VecDeque::new(),
            cut: VecDeque::new(),
            given: 0,
            ended: false,
            problems: Vec::new(),
        }
    }

    /// As of opening.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The next piece; `None` at the end.
    pub fn next_piece(&mut self) -> Option<ReadPiece> {
        loop {
            if let Some(piece) = self.cut.pop_front() {
                self.given += match &piece {
                    ReadPiece::Data(block) => block.len() as u64,
                    ReadPiece::Hole(bytes) | ReadPiece::Bad(bytes) => *bytes,
                };
                return Some(piece);
            }
            if self.ended {
                return None;
            }
            self.request_ahead();
            match self.ahead.pop_front() {
                None => self.ended = true,
                Some(Ahead::Hole(bytes)) => self.cut.push_back(ReadPiece::Hole(bytes)),
                Some(Ahead::Zeros(bytes)) => self.cut_zeros(bytes),
                Some(Ahead::Ready(Ok(block))) => self.cut.push_back(ReadPiece::Data(block)),
                Some(Ahead::Ready(Err(error))) => self.fail(error),
                Some(Ahead::Block {
                    slot,
                    start,
                    wanted,
                }) => self.take_block(&slot, start, wanted),
            }
        }
    }

    /// Looks whether the file stood still. To be called after the last piece.
    pub fn finish(mut self) -> FinishedFile {
        // Of one that became shorter: buffers of two files are not in use at a time.
        self.await_ahead();
        let file = self.file.clone().filter(|_| self.image.is_none());
        let still = match file.as_ref().map(|file| stat_of(file.as_fd())) {
            // On a device, the barrier at the end tells.
            None => true,
            Some(Ok(stat)) => is_unchanged(&self.entry, &stat),
            Some(Err(error)) => {
                self.problems.push(problem(&self.entry, "stat", error));
                false
            }
        };
        let changed = !still || self.given != self.size;
        if changed {
            self.entry.flags.set(EntryFlags::CHANGED);
        } else if file.is_some_and(|file| gives_more(file, self.size)) {
            self.fail(io::Error::other(GIVES_MORE));
        }
        self.entry.size = self.given;
        FinishedFile {
            entry: self.entry.clone(),
            changed,
            unproven: self.unproven,
            problems: std::mem::take(&mut self.problems),
        }
    }

    /// Keeps enough reads in flight.
    fn request_ahead(&mut self) {
        while self.ahead.len() < self.pool.blocks_ahead() && self.requested_until < self.size {
            if self.requested_until >= self.data_end {
                let data = self.next_range();
                let gap = data.start.saturating_sub(self.requested_until);
                if gap > 0 && self.sparse {
                    self.ahead.push_back(Ahead::Hole(gap));
                    self.entry.flags.set(EntryFlags::SPARSE);
                } else if gap > 0 {
                    self.ahead.push_back(Ahead::Zeros(gap));
                }
                self.requested_until = data.start;
                self.data_end = data.end;
                if data.is_empty() {
                    break;
                }
            }
            self.request_block();
        }
    }

    fn next_range(&mut self) -> Range<u64> {
        if self.image.is_some() {
            return self.next_extent();
        }
        let Some(file) = self.file.as_ref().filter(|_| self.sparse) else {
            return self.requested_until..self.size;
        };
        match next_data(file.as_fd(), self.requested_until, self.size) {
            Ok(Some(data)) => data,
            Ok(None) => self.size..self.size,
            // What is not known to be a hole is read.
            Err(_) => self.requested_until..self.size,
        }
    }

    /// The next extent of a file on a device.
    fn next_extent(&mut self) -> Range<u64> {
        let requested_until = self.requested_until;
        let Some(image) = &mut self.image else {
            return requested_until..self.size;
        };
        if image.next == image.extents.written.len() && image.extents.known_until < u64::MAX {
            match image.inode.extents_of_large(requested_until) {
                Ok(extents) => {
                    (image.extents, image.next) = (extents, 0);
                }
                Err(error) => {
                    self.ahead.push_back(Ahead::Ready(Err(error)));
                    return self.size..self.size;
                }
            }
        }
        let Some(extent) = image.extents.written.get(image.next) else {
            return self.size..self.size;
        };
        image.next += 1;
        let start = extent.file_offset.max(requested_until).min(self.size);
        start..(extent.file_offset + extent.len).clamp(start, self.size)
    }

    /// Asks for the next block of an extent.
    fn request_block_of_device(&mut self) {
        let image = self
            .image
            .as_ref()
            .expect("asked only for files on a device");
        let extent = image.extents.written[image.next - 1];
        let at = extent.device_offset + (self.requested_until - extent.file_offset);
        let lead = at % ALIGNMENT as u64;
        let bytes = (self.data_end - self.requested_until).min(BLOCK_BYTES as u64 - lead);
        self.requested_until += bytes;
        let Some(file) = &self.file else {
            let span = Span {
                offset: at,
                len: bytes as u32,
            };
            let block = self
                .pool
                .read_with(|buffer| image.inode.image.read_content(span, buffer));
            self.ahead.push_back(Ahead::Ready(block));
            return;
        };
        let (start, end) = (at - lead, at + bytes);
        let slot = Arc::new(ReadResult::default());
        self.pool.submit(Request {
            file: file.clone(),
            offset: start,
            len: ((end - start).next_multiple_of(ALIGNMENT as u64) as usize).min(BLOCK_BYTES),
            enough: (end - start) as usize,
            slot: slot.clone(),
        });
        self.ahead.push_back(Ahead::Block {
            slot,
            start,
            wanted: at..end,
        });
    }

    fn cut_zeros(&mut self, bytes: u64) {
        let step = bytes.min(BLOCK_BYTES as u64);
        let zeros = self.pool.zeros(step as usize);
        self.cut.push_back(ReadPiece::Data(zeros));
        if bytes > step {
            self.ahead.push_front(Ahead::Zeros(bytes - step));
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.ended = true;
        self.entry.flags.set(EntryFlags::INCOMPLETE);
        self.problems.push(problem(&self.entry, "read", error));
    }

    /// Asks for the block that the next byte is in, up to its end or that of the data.
    fn request_block(&mut self) {
        let file = match &self.file {
            Some(file) if self.image.is_none() => file.clone(),
            _ => return self.request_block_of_device(),
        };
        let alignment = ALIGNMENT as u64;
        let start = self.requested_until - self.requested_until % alignment;
        let block_end = (self.requested_until / BLOCK_BYTES as u64 + 1) * BLOCK_BYTES as u64;
        let end = block_end.min(self.data_end);
        let len = (end.next_multiple_of(alignment) - start).min(BLOCK_BYTES as u64);
        let slot = Arc::new(ReadResult::default());
        self.pool.submit(Request {
            file,
            offset: start,
            len: len as usize,
            enough: (end - start) as usize,
            slot: slot.clone(),
        });
        self.ahead.push_back(Ahead::Block {
            slot,
            start,
            wanted: self.requested_until..end,
        });
        self.requested_until = end;
    }

    fn take_block(&mut self, slot: &Arc<ReadResult>, start: u64, wanted: Range<u64>) {
        match self.pool.take(slot) {
            Ok((block, filled)) => {
                let end = (start + filled.len as u64).min(wanted.end);
                if end < wanted.end {
                    // The file has become shorter.
                    self.ended = true;
                }
                if let Some(errno) = filled.error {
                    self.note_bad(errno);
                }
                if let Some(file) = self.file.as_ref().filter(|_| self.forget) {
                    let len = NonZeroU64::new(filled.len as u64);
                    // Only advice.
                    let _ = rustix::fs::fadvise(file, start, len, Advice::DontNeed);
                }
                if wanted.start < end {
                    let range = (wanted.start - start) as usize..(end - start) as usize;
                    self.cut_block(block, range, &filled.bad);
                }
            }
            Err(Errno::INVAL) if self.direct && self.image.is_none() => {
                self.read_again_buffered(wanted.start);
            }
            Err(errno) => self.fail(errno.into()),
        }
    }

    /// A file system that took the flag and then refuses direct reads.
    fn read_again_buffered(&mut self, from: u64) {
        self.await_ahead();
        self.direct = false;
        let Some(file) = &self.file else {
            return;
        };
        let cleared = rustix::fs::fcntl_getfl(file)
            .and_then(|flags| rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT));
        if let Err(errno) = cleared {
            self.problems
                .push(problem(&self.entry, "read", errno.into()));
            self.ended = true;
        }
        self.requested_until = from;
        self.data_end = from;
    }

    /// What is read ahead is of no use any more.
    fn await_ahead(&mut self) {
        for ahead in self.ahead.drain(..) {
            if let Ahead::Block { slot, .. } = ahead {
                let _ = self.pool.take(&slot);
            }
        }
    }

    fn note_bad(&mut self, errno: Errno) {
        if !self.entry.flags.has(EntryFlags::INCOMPLETE) {
            self.entry.flags.set(EntryFlags::INCOMPLETE);
            self.problems
                .push(problem(&self.entry, "read", errno.into()));
        }
    }
}
