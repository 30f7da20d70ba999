//! Blocks of large files: buffers that are used again, and threads that fill them.

use super::BLOCK_BYTES;
use super::ranges::{Filled, read_range};
use bale_sys::buffer::AlignedBuffer;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of a file, in a buffer that goes back to its pool.
pub struct FileBlock {
    buffer: Option<AlignedBuffer>,
    range: Range<usize>,
    pool: Arc<Pool>,
}

impl FileBlock {
    /// A part of this block, by range of its bytes.
    pub(super) fn narrowed(mut self, range: Range<usize>) -> FileBlock {
        self.range = self.range.start + range.start..self.range.start + range.end;
        self
    }
}

impl Deref for FileBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("taken only by drop");
        &buffer[self.range.clone()]
    }
}

impl AsRef<[u8]> for FileBlock {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for FileBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileBlock({} bytes)", self.len())
    }
}

impl Drop for FileBlock {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let mut state = self.pool.lock();
            if buffer.len() == BLOCK_BYTES && state.spare.len() < self.pool.blocks_ahead {
                state.spare.push(buffer);
            }
        }
    }
}

/// One read to do.
pub(super) struct Request {
    pub(super) file: Arc<OwnedFd>,
    /// Aligned for direct reads.
    pub(super) offset: u64,
    /// At most [`BLOCK_BYTES`]; aligned likewise.
    pub(super) len: usize,
    /// Bytes of these that are wanted.
    pub(super) enough: usize,
    pub(super) slot: Arc<ReadResult>,
}

/// Where the result of a read is put.
#[derive(Default)]
pub(super) struct ReadResult {
    result: Mutex<Option<Result<(FileBlock, Filled), Errno>>>,
    ready: Condvar,
}

impl ReadResult {
    fn is_empty(&self) -> bool {
        let result = self.result.lock();
        result.unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Waits for the result.
    fn take(&self) -> Result<(FileBlock, Filled), Errno> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match result.take() {
                Some(result) => return result,
                None => {
                    let waited = self.ready.wait(result);
                    result = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn put(&self, value: Result<(FileBlock, Filled), Errno>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        self.ready.notify_one();
    }
}

/// Queue of reads and spare buffers.
pub(super) struct Pool {
    /// Reads in flight, and buffers kept for the next ones.
    blocks_ahead: usize,
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<Request>,
    spare: Vec<AlignedBuffer>,
    stopped: bool,
    threads: usize,
}

impl Pool {
    pub(super) fn new(blocks_ahead: usize) -> Pool {
        Pool {
            blocks_ahead,
            state: Mutex::default(),
            work: Condvar::new(),
        }
    }

    pub(super) fn blocks_ahead(&self) -> usize {
        self.blocks_ahead
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(&self, request: Request) {
        self.lock().queue.push_back(request);
        self.work.notify_one();
    }

    pub(super) fn add_thread(&self) {
        self.lock().threads += 1;
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.work.notify_all();
    }

    /// A block with these bytes: of one that had to be cut, perhaps into many.
    pub(super) fn copy_of(self: &Arc<Pool>, bytes: &[u8]) -> FileBlock {
        let mut buffer = AlignedBuffer::new(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        FileBlock {
            buffer: Some(buffer),
            range: 0..bytes.len(),
            pool: self.clone(),
        }
    }

    pub(super) fn zeros(self: &Arc<Pool>, len: usize) -> FileBlock {
        let mut buffer = self.buffer();
        buffer[..len].fill(0);
        FileBlock {
            buffer: Some(buffer),
            range: 0..len,
            pool: self.clone(),
        }
    }

    /// A block that is filled at once; `read` tells where in the buffer the bytes are.
    pub(super) fn read_with(
        self: &Arc<Pool>,
        read: impl FnOnce(&mut AlignedBuffer) -> std::io::Result<Range<usize>>,
    ) -> std::io::Result<FileBlock> {
        let mut buffer = self.buffer();
        let range = read(&mut buffer);
        let block = FileBlock {
            range: range.as_ref().map_or(0..0, Range::clone),
            buffer: Some(buffer),
            pool: self.clone(),
        };
        range.map(|_| block)
    }

    fn buffer(&self) -> AlignedBuffer {
        let spare = self.lock().spare.pop();
        spare.unwrap_or_else(|| AlignedBuffer::new(BLOCK_BYTES))
    }

    /// Life of a reading thread.
    pub(super) fn work(self: &Arc<Pool>) {
        loop {
            let mut state = self.lock();
            let request = loop {
                if let Some(request) = state.queue.pop_front() {
                    break request;
                }
                if state.stopped {
                    state.threads -= 1;
                    return;
                }
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            self.read(request);
        }
    }

    /// Result of a read that was submitted. Where there are no threads, the caller does what they
    /// would do.
    pub(super) fn take(self: &Arc<Pool>, slot: &ReadResult) -> Result<(FileBlock, Filled), Errno> {
        while slot.is_empty() {
            let mut state = self.lock();
            if state.threads > 0 {
                break;
            }
            let Some(request) = state.queue.pop_front() else {
                break;
            };
            drop(state);
            self.read(request);
        }
        slot.take()
    }

    fn read(self: &Arc<Pool>, request: Request) {
        let mut buffer = self.buffer();
        let filled = read_range(
            request.file.as_fd(),
            request.offset,
            &mut buffer[..request.len],
            request.enough,
        );
        let block = FileBlock {
            range: 0..filled.as_ref().map_or(0, |filled| filled.len),
            buffer: Some(buffer),
            pool: self.clone(),
        };
        request.slot.put(filled.map(|filled| (block, filled)));
    }
}
