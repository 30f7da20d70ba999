//! Rows of the plan in a file without a name, in the order in which they came; any stretch of them
//! is read at any time.

use crate::RestoreError;
use crate::scratch::{Pair, SortedPairs};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// From and to, in bytes of the file, with whole rows between.
pub type Stretch = Range<u64>;

/// Bytes of each buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// Lengths of key and row.
const HEAD_BYTES: usize = 8;

/// Key and row together. What a plan holds is shorter.
const ROW_BYTES_MAX: usize = bale_pipeline::spill::RECORD_BYTES_MAX;

/// Takes rows.
pub struct RowsFile {
    file: Arc<File>,
    writer: BufWriter<Arc<File>>,
    len: u64,
}

impl RowsFile {
    /// In a file of which nothing is written yet.
    pub fn new(file: File) -> RowsFile {
        let file = Arc::new(file);
        RowsFile {
            writer: BufWriter::with_capacity(BUFFER_BYTES, file.clone()),
            file,
            len: 0,
        }
    }

    pub fn push(&mut self, key: &[u8], row: &[u8]) -> io::Result<()> {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
        self.writer.write_all(&len(key)?.to_le_bytes())?;
        self.writer.write_all(&len(row)?.to_le_bytes())?;
        self.writer.write_all(key)?;
        self.writer.write_all(row)?;
        self.len += (HEAD_BYTES + key.len() + row.len()) as u64;
        Ok(())
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All rows.
    pub fn read_all(&mut self) -> Result<SortedPairs, RestoreError> {
        self.read(0..self.len)
    }

    /// The rows of a stretch.
    pub fn read(&mut self, stretch: Stretch) -> Result<SortedPairs, RestoreError> {
        self.writer.flush().map_err(RestoreError::Scratch)?;
        let part = Part {
            file: self.file.clone(),
            left: stretch,
        };
        let mut rows = BufReader::with_capacity(BUFFER_BYTES, part);
        let mut has_failed = false;
        Ok(Box::new(std::iter::from_fn(move || {
            let next = match has_failed {
                true => return None,
                false => next_row(&mut rows).transpose()?,
            };
            has_failed = next.is_err();
            Some(next)
        })))
    }
}

fn next_row(rows: &mut BufReader<Part>) -> io::Result<Option<Pair>> {
    if rows.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut len = || -> io::Result<usize> {
        let mut bytes = [0; HEAD_BYTES / 2];
        rows.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes) as usize)
    };
    let (key_len, row_len) = (len()?, len()?);
    if key_len + row_len > ROW_BYTES_MAX {
        return Err(io::Error::other("a temporary file is damaged"));
    }
    let (mut key, mut row) = (vec![0; key_len], vec![0; row_len]);
    rows.read_exact(&mut key)?;
    rows.read_exact(&mut row)?;
    Ok(Some((key, row)))
}

/// What is left of a stretch.
struct Part {
    file: Arc<File>,
    left: Stretch,
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left.end - self.left.start).unwrap_or(usize::MAX);
        let room = buf.len().min(left);
        let got = self.file.read_at(&mut buf[..room], self.left.start)?;
        self.left.start += got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_stretch_is_read_while_more_comes() {
        let mut rows = RowsFile::new(tempfile::tempfile().unwrap());
        let mut starts = Vec::new();
        for number in 0..5000u32 {
            starts.push(rows.len());
            rows.push(&number.to_be_bytes(), &vec![7; number as usize % 300])
                .unwrap();
            if number % 500 == 3 {
                let from = number as usize / 2;
                let read = rows.read(starts[from]..starts[number as usize]).unwrap();
                let keys: Vec<_> = read.map(|pair| pair.unwrap().0).collect();
                let expected = (from as u32..number).map(|key| key.to_be_bytes().to_vec());
                assert_eq!(keys, expected.collect::<Vec<_>>());
            }
        }
        assert_eq!(rows.read_all().unwrap().count(), 5000);
        assert!(rows.read(0..0).unwrap().next().is_none());
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_an_error_and_the_end() {
        let mut rows = RowsFile::new(tempfile::tempfile().unwrap());
        rows.push(b"key", b"row").unwrap();
        let mut read = rows.read(0..rows.len() - 1).unwrap();
        assert!(read.next().unwrap().is_err() && read.next().is_none());
        rows.file.write_all_at(&[0xff; 4], 0).unwrap();
        assert!(rows.read_all().unwrap().next().unwrap().is_err());
    }
}
