//! A sorted run of records in a file without a name.
//!
//! Lengths of key and value (4 bytes each), key, value; and so on. Where all records are of one
//! length the two lengths are left out. No record begins in one block and ends in the next; of a
//! run that is read at any place the first and the last key of each block are known, as far as
//! eight bytes tell. Several runs may stand in one file.

use super::RECORD_BYTES_MAX;
use rustix::buffer::spare_capacity;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const WRITE_BUFFER_BYTES: usize = 256 << 10;
/// A block is no longer, unless a record is. Whoever looks for a record reads half of one block on
/// the average.
pub const BLOCK_BYTES: usize = 16 << 10;
const HEAD_BYTES: usize = 8;

/// How records lie in a run, and what is remembered of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of key and of value where they are the same for all records.
    pub(super) record: Option<(usize, usize)>,
    /// Bytes of a block of which the first and the last key are remembered; `None`: of no block.
    pub(super) block_bytes: Option<usize>,
}

impl Layout {
    /// Nothing in memory, however long the run is.
    pub(super) const TO_BE_MERGED: Layout = Layout {
        record: None,
        block_bytes: None,
    };
    pub(super) const IN_BLOCKS: Layout = Layout {
        record: None,
        block_bytes: Some(BLOCK_BYTES),
    };

    fn head_bytes(self) -> usize {
        self.record.map_or(HEAD_BYTES, |_| 0)
    }
}

/// Where a run begins that is to be written.
#[derive(Clone)]
pub(super) struct RunPlace {
    pub(super) file: Arc<File>,
    pub(super) start: u64,
}

impl RunPlace {
    pub(super) fn in_new_file(directory: &Path) -> io::Result<RunPlace> {
        let file = Arc::new(unnamed_file(directory)?);
        Ok(RunPlace { file, start: 0 })
    }
}

/// A finished run.
pub(super) struct SortedRun {
    pub(super) place: RunPlace,
    pub(super) len: u64,
    pub(super) layout: Layout,
    pub(super) blocks: Vec<Block>,
}

/// Where a block begins, and the first eight bytes of its first and its last key, as big-endian
/// numbers.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Of the first record.
    pub first: u64,
    /// Of the last one.
    pub last: u64,
    /// Which first four bytes its keys have: a bit for each, which others share.
    beginnings: u64,
    /// In the run.
    pub(super) offset: u64,
}

impl Block {
    /// False: no key in it begins with these four bytes, as a big-endian number.
    pub fn may_begin_with(&self, beginning: u32) -> bool {
        self.beginnings & beginning_bit(beginning) != 0
    }
}

fn beginning_bit(beginning: u32) -> u64 {
    1 << (beginning.wrapping_mul(0x9e37_79b9) >> 26)
}

/// A run being written.
pub(super) struct RunWriter {
    place: RunPlace,
    layout: Layout,
    buffer: Vec<u8>,
    /// Bytes before the buffer.
    written: u64,
    blocks: Vec<Block>,
}

/// A record of a block: its key, its value, and where the next one begins. `None`: there is no
/// whole record.
pub(super) fn record_at(block: &[u8], at: usize) -> Option<(Range<usize>, Range<usize>)> {
    let head = block.get(at..)?.first_chunk::<HEAD_BYTES>()?;
    let [key_len, value_len] = [0, 4]
        .map(|at| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 of 8 bytes")) as usize);
    let key_at = at + HEAD_BYTES;
    let value_at = key_at.checked_add(key_len)?;
    let end = value_at.checked_add(value_len)?;
    (end <= block.len()).then_some((key_at..value_at, value_at..end))
}

/// A new file that goes with its last descriptor, whatever happens.
pub fn unnamed_file(directory: &Path) -> io::Result<File> {
    let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match openat(CWD, directory, unnamed, Mode::RUSR | Mode::WUSR) {
        // Not all file systems have these: one over a network has names only.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => named_and_removed(directory),
        opened => Ok(opened?.into()),
    }
}

fn named_and_removed(directory: &Path) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".bale-spill-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        // What is sorted are paths and metadata of somebody's files.
        options.read(true).write(true).create_new(true).mode(0o600);
        match options.open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

impl RunWriter {
    pub(super) fn new(place: RunPlace, layout: Layout) -> RunWriter {
        RunWriter {
            place,
            layout,
            buffer: Vec::with_capacity(WRITE_BUFFER_BYTES),
            written: 0,
            blocks: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let bytes = self.layout.head_bytes() + key.len() + value.len();
        if let Some(block_bytes) = self.layout.block_bytes {
            self.note_block(key, bytes, block_bytes);
        }
        if !self.buffer.is_empty() && self.buffer.len() + bytes > WRITE_BUFFER_BYTES {
            self.flush()?;
        }
        match self.layout.record {
            None => {
                let mut head = [0; HEAD_BYTES];
                head[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
                head[4..].copy_from_slice(&(value.len() as u32).to_le_bytes());
                self.buffer.extend_from_slice(&head);
            }
            Some(lengths) if lengths == (key.len(), value.len()) => {}
            Some(_) => return Err(io::ErrorKind::InvalidInput.into()),
        }
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        Ok(())
    }

    /// The record that follows belongs to a block.
    fn note_block(&mut self, key: &[u8], bytes: usize, block_bytes: usize) {
        let first = super::prefix(key).0;
        let offset = self.written + self.buffer.len() as u64;
        match self.blocks.last_mut() {
            Some(block) if offset - block.offset + bytes as u64 <= block_bytes as u64 => {
                block.last = first;
                block.beginnings |= beginning_bit((first >> 32) as u32);
            }
            _ => self.blocks.push(Block {
                first,
                last: first,
                beginnings: beginning_bit((first >> 32) as u32),
                offset,
            }),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let at = self.place.start + self.written;
        self.place.file.write_all_at(&self.buffer, at)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        // A single large record must not keep its room.
        self.buffer.shrink_to(WRITE_BUFFER_BYTES);
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<SortedRun> {
        self.flush()?;
        self.blocks.shrink_to_fit();
        Ok(SortedRun {
            place: self.place,
            len: self.written,
            layout: self.layout,
            blocks: self.blocks,
        })
    }
}

impl SortedRun {
    /// Fills `bytes`, which is empty, with a block. Its room is not filled with zeros first:
    /// everything that was sorted comes through here.
    pub(super) fn read_block(&self, block: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        let start = self.blocks[block].offset;
        let end = self.blocks.get(block + 1);
        let len = (end.map_or(self.len, |next| next.offset) - start) as usize;
        bytes.reserve(len);
        while bytes.len() < len {
            let at = self.place.start + start + bytes.len() as u64;
            match rustix::io::pread(&self.place.file, spare_capacity(bytes), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // More than is asked for may come, if there is room.
        bytes.truncate(len);
        Ok(())
    }
}

/// A place in a run: at a record, or at the end.
pub(super) struct RunReader {
    run: SortedRun,
    /// Bytes of the file before the end of the buffer.
    read: u64,
    buffer: Vec<u8>,
    /// Where the record here begins in the buffer, and its lengths.
    at: usize,
    key_len: usize,
    value_len: usize,
    at_end: bool,
    read_bytes: usize,
}

impl RunReader {
    /// At the first record.
    pub(super) fn new(mut run: SortedRun, read_bytes: usize) -> io::Result<RunReader> {
        run.blocks = Vec::new();
        let mut reader = RunReader {
            run,
            read: 0,
            buffer: Vec::new(),
            at: 0,
            key_len: 0,
            value_len: 0,
            at_end: false,
            read_bytes,
        };
        reader.fill_buffer()?;
        Ok(reader)
    }

    /// Key of the record here; `None` at the end.
    pub(super) fn key(&self) -> Option<&[u8]> {
        let start = self.at + self.run.layout.head_bytes();
        (!self.at_end).then(|| &self.buffer[start..start + self.key_len])
    }

    /// The record here. Not at the end.
    pub(super) fn record(&self) -> (&[u8], &[u8]) {
        let start = self.at + self.run.layout.head_bytes();
        self.buffer[start..start + self.key_len + self.value_len].split_at(self.key_len)
    }

    pub(super) fn advance(&mut self) -> io::Result<()> {
        self.at += self.run.layout.head_bytes() + self.key_len + self.value_len;
        self.fill_buffer()
    }

    /// Makes the record that begins at `at` whole in the buffer.
    fn fill_buffer(&mut self) -> io::Result<()> {
        if self.at == self.buffer.len() && self.read == self.run.len {
            self.at_end = true;
            return Ok(());
        }
        if let Some((key_len, value_len)) = self.run.layout.record {
            (self.key_len, self.value_len) = (key_len, value_len);
            return self.need(key_len + value_len);
        }
        self.need(HEAD_BYTES)?;
        let number = |at: usize| {
            let bytes = self.buffer[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes) as usize
        };
        let (key_len, value_len) = (number(self.at), number(self.at + 4));
        if key_len.saturating_add(value_len) > RECORD_BYTES_MAX {
            return Err(io::Error::other("a temporary file is damaged"));
        }
        (self.key_len, self.value_len) = (key_len, value_len);
        self.need(HEAD_BYTES + key_len + value_len)
    }

    /// Reads until `len` bytes are in the buffer from `at` on.
    fn need(&mut self, len: usize) -> io::Result<()> {
        let have = self.buffer.len() - self.at;
        if have >= len {
            return Ok(());
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let left = self.run.len - self.read;
        let wanted = (len - have) as u64;
        if wanted > left {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let more = wanted
            .max(self.read_bytes.saturating_sub(have) as u64)
            .min(left) as usize;
        self.buffer.reserve(more);
        while self.buffer.len() < have + more {
            // Without filling the room with zeros first. More than is asked for may come, if there
            // is room.
            let at = self.run.place.start + self.read;
            let room = spare_capacity(&mut self.buffer);
            match rustix::io::pread(&self.run.place.file, room, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => self.read += got as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // What follows in the file is another run's.
        let others = self.read.saturating_sub(self.run.len);
        self.buffer.truncate(self.buffer.len() - others as usize);
        self.read -= others;
        Ok(())
    }
}
