//! Where the file system goes, and where what is not yet final waits.
//!
//! This crate opens no file: the caller hands in a sink for the image and, when asked, scratch
//! files.

use std::io;

/// Target of the writer: a sparse file, a block device, a recorder in a test.
///
/// Offsets and lengths are multiples of the block size. Almost all writes are large and ascend in
/// one of three streams (file data, metadata blocks, inode tables); a few single blocks come again
/// to be completed.
pub trait BlockSink {
    /// Writes all of `buffer` at `offset_bytes` and returns a buffer to fill next (its content does
    /// not matter, its capacity is used again). A sink with its own thread queues this one and
    /// returns one that is done.
    fn write_at(&mut self, offset_bytes: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>>;

    /// Returns when everything written so far is durable.
    fn flush(&mut self) -> io::Result<()>;
}

/// Written at once, by the calling thread.
impl BlockSink for std::fs::File {
    fn write_at(&mut self, offset_bytes: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        std::os::unix::fs::FileExt::write_all_at(self, &buffer, offset_bytes)?;
        Ok(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A temporary file: read and written at random in pages of tens of KiB.
pub trait Scratch: Send {
    /// Fills all of `buf` with bytes written before.
    fn get_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes`.
    fn put_at(&mut self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()>;
}

impl Scratch for std::fs::File {
    fn get_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset_bytes)
    }

    fn put_at(&mut self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset_bytes)
    }
}

/// Makes scratch files on demand. At most four are asked for, none when the tree is of moderate
/// size.
pub type ScratchMaker = Box<dyn FnMut() -> io::Result<Box<dyn Scratch>> + Send>;

/// Content of a regular file, asked for once and from front to back.
pub trait FileData {
    /// The next stretch of data at or after `offset_bytes` in a file of `size_bytes`; what lies
    /// between stretches is a hole. Stretches ascend and need not be aligned to blocks.
    fn next_data(&mut self, offset_bytes: u64, size_bytes: u64) -> Option<std::ops::Range<u64>> {
        (offset_bytes < size_bytes).then_some(offset_bytes..size_bytes)
    }

    /// Fills `buf` from `offset_bytes`. Bytes of a hole that share a block with data are asked for
    /// too: zeros.
    fn read_at(&mut self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// Content held in memory.
impl FileData for &[u8] {
    fn read_at(&mut self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset_bytes).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start
            .checked_add(buf.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// For everything that is not a regular file, and for empty ones.
pub struct NoData;

impl FileData for NoData {
    fn next_data(&mut self, _offset_bytes: u64, _size_bytes: u64) -> Option<std::ops::Range<u64>> {
        None
    }

    fn read_at(&mut self, _offset_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }
}
