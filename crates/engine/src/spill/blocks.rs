//! Sorted runs that are read at any place, a block at a time, instead of being merged.

use super::run::{Block, Run, record_at};
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use std::io;
use std::ops::Range;

/// A few sorted runs. In memory: 24 bytes for each block.
pub struct Runs {
    runs: Vec<Run>,
}

impl Runs {
    pub(super) fn new(runs: Vec<Run>) -> Runs {
        Runs { runs }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// Blocks of a run, ascending.
    pub fn blocks(&self, run: usize) -> &[Block] {
        &self.runs[run].blocks
    }

    /// Reads a block. Its room is not filled with zeros first: everything that was sorted comes through here.
    pub fn read(&self, run: usize, block: usize) -> io::Result<Bytes> {
        let run = &self.runs[run];
        let start = run.blocks[block].offset;
        let end = run
            .blocks
            .get(block + 1)
            .map_or(run.len, |next| next.offset);
        let len = (end - start) as usize;
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = start + bytes.len() as u64;
            match rustix::io::pread(&run.file, spare_capacity(&mut bytes), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        bytes.truncate(len);
        Ok(Bytes::from(bytes))
    }

    /// Where key and value of the record are that begins at `at` in a block; the next one begins where the value ends.
    pub fn record(block: &[u8], at: usize) -> io::Result<(Range<usize>, Range<usize>)> {
        record_at(block, at).ok_or_else(|| io::Error::other("a temporary file is damaged"))
    }
}
