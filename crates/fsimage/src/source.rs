//! Where file-system bytes come from: a device, an image file, or a buffer in a test.

use std::io;

/// Bytes addressed by absolute offset. Shared between threads, so reading takes `&self`.
pub trait ByteSource: Send + Sync {
    /// Fills all of `buf` from `offset`, or fails; a read past the end is `UnexpectedEof`.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Length in bytes. Structures that point beyond it are damage, not a reason to read.
    fn len_bytes(&self) -> u64;
}

impl ByteSource for Vec<u8> {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start
            .checked_add(buf.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len_bytes(&self) -> u64 {
        self.len() as u64
    }
}

impl ByteSource for std::fs::File {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }

    fn len_bytes(&self) -> u64 {
        use std::io::{Seek, SeekFrom};
        // Seeking finds the size of a block device too, where metadata says 0; positioned reads
        // ignore the cursor.
        let mut file = self;
        file.seek(SeekFrom::End(0)).unwrap_or(0)
    }
}
