//! Contents that had to leave memory: sorted runs in files without names, and a filter in front of
//! them.
//!
//! A batch of contents becomes a run, sorted by hash; as soon as there are `FAN_IN` runs of a size,
//! they become one. A look-up reads one page of each run, and only if the filter says that the
//! content may be there: for new content it nearly always says no (up to 5 million contents 98
//! times of 100, at the limit 85 times), so that a backup of files that are all different hardly
//! ever asks the disk. In memory are the filter and four bytes for each page.

use super::StoredContent;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Contents remembered at most, 512 MiB of disk and as much again while runs are merged. Beyond,
/// content is compared with these and with what came last.
const CONTENTS_MAX: u64 = 16 << 20;
/// Bits of the filter: 8 MiB.
const FILTER_BITS: u64 = 1 << 26;
/// Runs of about one size that become one.
const FAN_IN: usize = 8;
/// A content in a run: hash, size, chunk, offset, and a check of all.
const RECORD_BYTES: usize = 32;
/// Contents that are read together.
const PAGE_RECORDS: usize = 128;
const PAGE_BYTES: usize = PAGE_RECORDS * RECORD_BYTES;
/// Read or written at once while runs are made and merged, for each run.
const BUFFER_BYTES: usize = 16 * PAGE_BYTES;

/// All of them.
pub(super) struct OlderContents {
    directory: PathBuf,
    filter: Vec<u64>,
    /// The largest first.
    runs: Vec<BackupRun>,
    contents: u64,
}

struct BackupRun {
    file: File,
    records: u64,
    /// How often it was merged.
    level: u32,
    /// First four bytes of the first hash of each page.
    firsts: Vec<u32>,
}

impl OlderContents {
    /// None yet; files will be made in `directory`.
    pub(super) fn new(directory: PathBuf) -> OlderContents {
        OlderContents {
            directory,
            filter: vec![0; (FILTER_BITS / 64) as usize],
            runs: Vec::new(),
            contents: 0,
        }
    }

    /// The content, if it is here; what cannot be read is not.
    pub(super) fn find(&self, hash: &[u8; 16], size: u32) -> Option<StoredContent> {
        if !self.may_have(hash) {
            return None;
        }
        let mut page = [0; PAGE_BYTES];
        let mut runs = self.runs.iter().rev();
        runs.find_map(|run| run.find(hash, size, &mut page))
    }

    fn may_have(&self, hash: &[u8; 16]) -> bool {
        filter_bits(hash)
            .iter()
            .all(|bit| self.filter[(bit / 64) as usize] >> (bit % 64) & 1 == 1)
    }

    fn expect(&mut self, hash: &[u8; 16]) {
        for bit in filter_bits(hash) {
            self.filter[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// Is there no room for more?
    pub(super) fn is_full(&self) -> bool {
        self.contents >= CONTENTS_MAX
    }

    /// Takes a batch. After an error, all is forgotten.
    pub(super) fn take(&mut self, mut batch: Vec<StoredContent>) -> io::Result<()> {
        batch.sort_unstable_by_key(|stored| u128::from_be_bytes(stored.hash));
        let mut writer = ContentsRunWriter::new(&self.directory)?;
        for stored in &batch {
            self.expect(&stored.hash);
            writer.push(&encode(stored))?;
        }
        self.contents += batch.len() as u64;
        self.runs.push(writer.finish(0)?);
        while let Some(first) = self.runs.len().checked_sub(FAN_IN)
            && self.runs[first].level == self.runs[self.runs.len() - 1].level
        {
            let equals = self.runs.split_off(first);
            let merged = merge(&self.directory, equals);
            self.runs.push(merged?);
        }
        Ok(())
    }
}

impl BackupRun {
    fn find(
        &self,
        hash: &[u8; 16],
        size: u32,
        page: &mut [u8; PAGE_BYTES],
    ) -> Option<StoredContent> {
        let wanted = first_of(hash);
        // Pages that begin with the same four bytes may all have it, and the one before.
        let end = self.firsts.partition_point(|first| *first <= wanted);
        let start = self.firsts.partition_point(|first| *first < wanted);
        (start.saturating_sub(1)..end).find_map(|number| {
            let records = (self.records as usize - number * PAGE_RECORDS).min(PAGE_RECORDS);
            let page = &mut page[..records * RECORD_BYTES];
            let read = self.file.read_exact_at(page, (number * PAGE_BYTES) as u64);
            read.ok()?;
            let mut records = page.chunks_exact(RECORD_BYTES);
            let record = records
                .find(|record| record[..16] == *hash && record[16..20] == size.to_le_bytes())?;
            decode(record)
        })
    }
}

struct ContentsRunWriter {
    file: BufWriter<File>,
    records: u64,
    firsts: Vec<u32>,
}

impl ContentsRunWriter {
    fn new(directory: &std::path::Path) -> io::Result<ContentsRunWriter> {
        Ok(ContentsRunWriter {
            file: BufWriter::with_capacity(
                BUFFER_BYTES,
                bale_pipeline::spill::unnamed_file(directory)?,
            ),
            records: 0,
            firsts: Vec::new(),
        })
    }

    fn push(&mut self, record: &[u8]) -> io::Result<()> {
        if self.records.is_multiple_of(PAGE_RECORDS as u64) {
            let hash = record[..16]
                .try_into()
                .expect("a record begins with 16 bytes");
            self.firsts.push(first_of(hash));
        }
        self.records += 1;
        self.file.write_all(record)
    }

    fn finish(self, level: u32) -> io::Result<BackupRun> {
        let file = self.file.into_inner();
        Ok(BackupRun {
            file: file.map_err(io::IntoInnerError::into_error)?,
            records: self.records,
            level,
            firsts: self.firsts,
        })
    }
}

/// Reads a run from its beginning.
struct ContentsRunReader {
    run: BackupRun,
    read: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl ContentsRunReader {
    /// The record at hand; `None`: no more.
    fn head(&mut self) -> io::Result<Option<u128>> {
        if self.at == self.buffer.len() {
            let left = self.run.records * RECORD_BYTES as u64 - self.read;
            self.buffer
                .resize(left.min(BUFFER_BYTES as u64) as usize, 0);
            self.run.file.read_exact_at(&mut self.buffer, self.read)?;
            self.read += self.buffer.len() as u64;
            self.at = 0;
        }
        let hash = self.buffer[self.at..].first_chunk::<16>();
        Ok(hash.map(|hash| u128::from_be_bytes(*hash)))
    }
}

fn merge(directory: &std::path::Path, runs: Vec<BackupRun>) -> io::Result<BackupRun> {
    let level = runs.iter().map(|run| run.level).max().unwrap_or(0) + 1;
    let mut writer = ContentsRunWriter::new(directory)?;
    let reader = |run| ContentsRunReader {
        run,
        read: 0,
        buffer: Vec::new(),
        at: 0,
    };
    let mut readers: Vec<ContentsRunReader> = runs.into_iter().map(reader).collect();
    let mut heads = Vec::with_capacity(readers.len());
    for reader in &mut readers {
        heads.push(reader.head()?);
    }
    // Few enough to look at all.
    while let Some((least, _)) = heads
        .iter()
        .enumerate()
        .filter_map(|(number, head)| Some((number, (*head)?)))
        .min_by_key(|(_, head)| *head)
    {
        let reader = &mut readers[least];
        writer.push(&reader.buffer[reader.at..reader.at + RECORD_BYTES])?;
        reader.at += RECORD_BYTES;
        heads[least] = reader.head()?;
    }
    writer.finish(level)
}

fn first_of(hash: &[u8; 16]) -> u32 {
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

fn filter_bits(hash: &[u8; 16]) -> [u64; 2] {
    let number = u64::from_le_bytes(hash[8..].try_into().expect("8 of 16 bytes"));
    [number & (FILTER_BITS - 1), number >> 32 & (FILTER_BITS - 1)]
}

fn encode(stored: &StoredContent) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..16].copy_from_slice(&stored.hash);
    record[16..20].copy_from_slice(&stored.size.to_le_bytes());
    record[20..24].copy_from_slice(&stored.chunk.number().to_le_bytes());
    record[24..28].copy_from_slice(&stored.offset.to_le_bytes());
    let check = check_of(&record);
    record[28..].copy_from_slice(&check.to_le_bytes());
    record
}

/// `None`: not what was written.
fn decode(record: &[u8]) -> Option<StoredContent> {
    let number = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
    (number(28) == check_of(record)).then(|| StoredContent {
        hash: record[..16].try_into().expect("16 bytes"),
        size: number(16),
        chunk: super::ChunkNumber::from_number(number(20)),
        offset: number(24),
    })
}

/// A disk that returns something else must not give a file another's content.
fn check_of(record: &[u8]) -> u32 {
    let mut mixed = 0x9e37_79b9_7f4a_7c15_u64;
    for word in record[..28].chunks_exact(4) {
        mixed ^= u64::from(u32::from_le_bytes(word.try_into().expect("4 bytes")));
        mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 32;
    }
    mixed as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_made_of_a_content_is_not_believed() {
        let stored = StoredContent {
            hash: *blake3::hash(b"77").as_bytes().first_chunk().unwrap(),
            size: 77,
            chunk: super::super::ChunkNumber::from_number(3),
            offset: 4_000_000,
        };
        let record = encode(&stored);
        assert_eq!(decode(&record), Some(stored));
        for bit in 0..8 * RECORD_BYTES {
            let mut flipped = record;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), None, "bit {bit}");
        }
    }
}
