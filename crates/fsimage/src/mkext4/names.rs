//! The names of one directory, gathered until its run is complete.
//!
//! A directory of one block is written in the order of the catalog; a larger one in the order of
//! its hashes. Beyond a bound, sorted parts go to a scratch file and are merged, so a directory of
//! any size takes the same memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::dirhash::{NameHash, NameHasher};
use super::error::{MkError, Result};
use super::field::get_u32;
use super::sink::{Scratch, ScratchMaker};

/// Bytes of a sorted part in memory while parts are merged: 256 parts, half a billion names, take
/// 32 MiB.
const WINDOW_BYTES: usize = 128 << 10;
/// A window must hold the longest record.
const SPILLED_RECORD_BYTES_MAX: usize = 8 + RECORD_HEADER_BYTES + 255;
const RECORD_HEADER_BYTES: usize = 6;
const SORT_KEY_BYTES: usize = 16;

const _: () = assert!(WINDOW_BYTES >= SPILLED_RECORD_BYTES_MAX);

/// One name, as a directory block will hold it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'a> {
    pub inode: u32,
    pub dirent_type: u8,
    pub bytes: &'a [u8],
}

/// The names of the directory whose run is open.
pub(super) struct NameRun {
    hasher: NameHasher,
    run_bytes_max: usize,
    records: Vec<u8>,
    names_in_memory: usize,
    /// Bytes that the entries take in blocks.
    dirent_bytes: u64,
    last_name: Vec<u8>,
    parts: Vec<(u64, u64)>,
    scratch: Option<Box<dyn Scratch>>,
    scratch_end: u64,
}

impl NameRun {
    pub fn new(hasher: NameHasher, run_bytes_max: usize) -> NameRun {
        NameRun {
            hasher,
            run_bytes_max,
            records: Vec::new(),
            names_in_memory: 0,
            dirent_bytes: 0,
            last_name: Vec::new(),
            parts: Vec::new(),
            scratch: None,
            scratch_end: 0,
        }
    }

    /// Bytes that the entries take in blocks.
    pub fn dirent_bytes(&self) -> u64 {
        self.dirent_bytes
    }

    /// Names of a run ascend.
    pub fn may_follow(&self, name: &[u8]) -> bool {
        self.last_name.as_slice() < name
    }

    pub fn push(&mut self, name: Name<'_>, maker: &mut ScratchMaker) -> Result<()> {
        self.last_name.clear();
        self.last_name.extend_from_slice(name.bytes);
        self.records.extend_from_slice(&name.inode.to_le_bytes());
        self.records
            .extend_from_slice(&[name.dirent_type, name.bytes.len() as u8]);
        self.records.extend_from_slice(name.bytes);
        self.names_in_memory += 1;
        self.dirent_bytes += super::directory::dirent_bytes(name.bytes.len()) as u64;
        if self.records.len() + self.names_in_memory * SORT_KEY_BYTES > self.run_bytes_max {
            self.spill(maker)?;
        }
        Ok(())
    }

    /// Ready for the next directory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.names_in_memory = 0;
        self.dirent_bytes = 0;
        self.last_name.clear();
        self.parts.clear();
        self.scratch_end = 0;
    }

    /// In the order of the catalog. Only for a directory of one block, which is never spilled.
    pub fn in_order(&self) -> impl Iterator<Item = Name<'_>> {
        debug_assert!(self.parts.is_empty());
        let mut rest = self.records.as_slice();
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| {
                let (name, after) = split_record(rest);
                rest = after;
                name
            })
        })
    }

    /// In the order of the hashes; equal hashes in the order of the catalog.
    pub fn for_each_hashed(
        &mut self,
        each: &mut dyn FnMut(NameHash, Name<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.parts.is_empty() {
            for (key, offset) in self.sorted_keys() {
                each(
                    hash_of_key(key),
                    split_record(&self.records[offset as usize..]).0,
                )?;
            }
            return Ok(());
        }
        self.write_part()?;
        let scratch = self.scratch.as_deref().expect("parts were written to it");
        let mut windows = Vec::with_capacity(self.parts.len());
        let mut heap = BinaryHeap::with_capacity(self.parts.len());
        for (part, (start, end)) in self.parts.iter().enumerate() {
            let mut window = PartWindow {
                next: *start,
                end: *end,
                bytes: Vec::new(),
                cursor: 0,
            };
            window.refill(scratch)?;
            if let Some(key) = window.key() {
                heap.push(Reverse((key, part)));
            }
            windows.push(window);
        }
        while let Some(Reverse((key, part))) = heap.pop() {
            let window = &mut windows[part];
            let record = &window.bytes[window.cursor + 8..];
            let (name, _) = split_record(record);
            let record_bytes = 8 + RECORD_HEADER_BYTES + name.bytes.len();
            each(hash_of_key(key), name)?;
            window.cursor += record_bytes;
            window.refill(scratch)?;
            if let Some(key) = window.key() {
                heap.push(Reverse((key, part)));
            }
        }
        Ok(())
    }

    fn sorted_keys(&self) -> Vec<(u64, u32)> {
        let mut keys = Vec::with_capacity(self.names_in_memory);
        let mut rest = self.records.as_slice();
        while !rest.is_empty() {
            let offset = self.records.len() - rest.len();
            let (name, after) = split_record(rest);
            let hash = self.hasher.hash(name.bytes);
            keys.push((
                u64::from(hash.major) << 32 | u64::from(hash.minor),
                offset as u32,
            ));
            rest = after;
        }
        keys.sort_unstable();
        keys
    }

    fn spill(&mut self, maker: &mut ScratchMaker) -> Result<()> {
        if self.scratch.is_none() {
            self.scratch =
                Some(maker().map_err(|source| MkError::Scratch("names of a directory", source))?);
        }
        self.write_part()
    }

    fn write_part(&mut self) -> Result<()> {
        let start = self.scratch_end;
        let mut buffer = Vec::with_capacity(WINDOW_BYTES);
        for (key, offset) in self.sorted_keys() {
            let record = &self.records[offset as usize..];
            let record_bytes = record.len() - split_record(record).1.len();
            if buffer.len() + 8 + record_bytes > WINDOW_BYTES {
                self.append(&buffer)?;
                buffer.clear();
            }
            buffer.extend_from_slice(&key.to_le_bytes());
            buffer.extend_from_slice(&self.records[offset as usize..][..record_bytes]);
        }
        self.append(&buffer)?;
        self.parts.push((start, self.scratch_end));
        self.records.clear();
        self.names_in_memory = 0;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let scratch = self
            .scratch
            .as_deref_mut()
            .expect("made before the first part");
        scratch
            .put_at(self.scratch_end, bytes)
            .map_err(|source| MkError::Scratch("names of a directory", source))?;
        self.scratch_end += bytes.len() as u64;
        Ok(())
    }
}

/// The unread front of one sorted part.
struct PartWindow {
    next: u64,
    end: u64,
    bytes: Vec<u8>,
    cursor: usize,
}

impl PartWindow {
    /// Keeps a whole record in front, while there is one.
    fn refill(&mut self, scratch: &dyn Scratch) -> Result<()> {
        if self.bytes.len() - self.cursor >= SPILLED_RECORD_BYTES_MAX || self.next == self.end {
            return Ok(());
        }
        self.bytes.drain(..self.cursor);
        self.cursor = 0;
        let have = self.bytes.len();
        let more = (self.end - self.next).min((WINDOW_BYTES - have) as u64) as usize;
        self.bytes.resize(have + more, 0);
        scratch
            .get_at(self.next, &mut self.bytes[have..])
            .map_err(|source| MkError::Scratch("names of a directory", source))?;
        self.next += more as u64;
        Ok(())
    }

    fn key(&self) -> Option<u64> {
        let bytes = self.bytes.get(self.cursor..self.cursor + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }
}

fn hash_of_key(key: u64) -> NameHash {
    NameHash {
        major: (key >> 32) as u32,
        minor: key as u32,
    }
}

fn split_record(record: &[u8]) -> (Name<'_>, &[u8]) {
    let end = RECORD_HEADER_BYTES + usize::from(record[5]);
    let name = Name {
        inode: get_u32(record, 0),
        dirent_type: record[4],
        bytes: &record[RECORD_HEADER_BYTES..end],
    };
    (name, &record[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(run_bytes_max: usize, names: u32) -> Vec<(NameHash, Vec<u8>, u32)> {
        let mut maker: ScratchMaker = Box::new(|| Ok(Box::new(tempfile::tempfile()?)));
        let mut run = NameRun::new(NameHasher::new(&[3; 16]), run_bytes_max);
        for inode in 0..names {
            let name = format!("{inode:07}{}", "x".repeat(inode as usize % 249));
            run.push(
                Name {
                    inode,
                    dirent_type: 1,
                    bytes: name.as_bytes(),
                },
                &mut maker,
            )
            .unwrap();
        }
        assert_eq!(run.parts.is_empty(), run_bytes_max > 1 << 24);
        let mut out = Vec::new();
        run.for_each_hashed(&mut |hash, name| {
            out.push((hash, name.bytes.to_vec(), name.inode));
            Ok(())
        })
        .unwrap();
        out
    }

    #[test]
    fn parts_merged_from_a_scratch_file_give_the_same_order_as_memory() {
        let in_memory = hashed(1 << 30, 20_000);
        assert!(in_memory.is_sorted_by_key(|(hash, ..)| *hash));
        assert_eq!(in_memory.len(), 20_000);
        assert_eq!(hashed(100_000, 20_000), in_memory);
    }
}
