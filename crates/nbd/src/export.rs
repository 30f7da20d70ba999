//! What is served: bytes of a fixed number, and which of them are allocated.

use std::io;

/// A stretch that is alike: allocated, or a hole that reads as zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationRun {
    pub bytes: u64,
    pub is_hole: bool,
}

/// An image that a server serves. Its methods are called from several threads at once, with ranges
/// that lie within it.
pub trait NbdExport: Send + Sync {
    /// Bytes; they do not change.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills the buffer, whole.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// The run that is at `offset`, from there on, of at least one byte. Where nothing is known,
    /// everything is allocated.
    fn run_at(&self, offset: u64) -> io::Result<AllocationRun> {
        Ok(AllocationRun {
            bytes: self.len() - offset,
            is_hole: false,
        })
    }

    /// Who says no here is served read-only, and nothing below is called.
    fn is_writable(&self) -> bool {
        false
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// Makes a range zero, as a hole unless `is_allocated`.
    fn zero(&self, _offset: u64, _bytes: u64, _is_allocated: bool) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// Nobody needs these bytes any more: may do nothing.
    fn trim(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// What was written stays when this returns, whichever connection it came by.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
