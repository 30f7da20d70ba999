//! Contents that had to leave memory: sorted runs in files without names, and a filter in front of
//! them.
//!
//! A batch of contents becomes a run ([`LookupRuns`]). A look-up reads a block of each run, and
//! only if the filter says that the content may be there: for new content it nearly always says no
//! (up to 5 million contents 98 times of 100, at the limit 85 times), so that a backup of files
//! that are all different hardly ever asks the disk. In memory are the filter and 32 bytes for each
//! 256 contents.

use super::StoredContent;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::spill::{self, LookupRuns};
use std::path::Path;

/// Contents remembered at most with the usual ceiling of memory, 512 MiB of disk and as much again
/// while runs are merged. Beyond, content is compared with these and with what came last.
const CONTENTS_MAX: usize = 16 << 20;
/// Bytes of the filter with the usual ceiling.
const FILTER_BYTES: usize = 8 << 20;
/// What a content is found by: hash and size.
const KEY_BYTES: usize = 20;
/// Where it is: chunk, offset, and a check of all.
const VALUE_BYTES: usize = 12;

/// All of them.
pub(super) struct OlderContents {
    filter: Vec<u64>,
    runs: LookupRuns<KEY_BYTES, VALUE_BYTES>,
    contents: usize,
    contents_max: usize,
}

impl OlderContents {
    /// None yet; files will be made in `directory`.
    pub(super) fn new(directory: &Path, memory: &MemoryPlan) -> OlderContents {
        OlderContents {
            filter: vec![0; memory.share(FILTER_BYTES) / size_of::<u64>()],
            runs: LookupRuns::new(directory),
            contents: 0,
            contents_max: memory.share(CONTENTS_MAX),
        }
    }

    /// The content, if it is here; what cannot be read is not.
    pub(super) fn find(&self, hash: &[u8; 16], size: u32) -> Option<StoredContent> {
        if !self.may_have(hash) {
            return None;
        }
        let key = key_of(hash, size);
        let value = self.runs.find(&key).ok()??;
        decode(&key, &value)
    }

    fn may_have(&self, hash: &[u8; 16]) -> bool {
        self.filter_bits(hash)
            .iter()
            .all(|bit| self.filter[(bit / 64) as usize] >> (bit % 64) & 1 == 1)
    }

    fn filter_bits(&self, hash: &[u8; 16]) -> [u64; 2] {
        let number = u64::from_le_bytes(hash[8..].try_into().expect("8 of 16 bytes"));
        let bits = self.filter.len() as u64 * 64;
        [(number & u64::from(u32::MAX)) % bits, (number >> 32) % bits]
    }

    fn expect(&mut self, hash: &[u8; 16]) {
        for bit in self.filter_bits(hash) {
            self.filter[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// Is there no room for more?
    pub(super) fn is_full(&self) -> bool {
        self.contents >= self.contents_max
    }

    /// Takes a batch. After an error, all is forgotten.
    pub(super) fn take(&mut self, mut batch: Vec<StoredContent>) -> spill::Result<()> {
        batch.sort_unstable_by_key(|stored| (u128::from_be_bytes(stored.hash), stored.size));
        batch.iter().for_each(|stored| self.expect(&stored.hash));
        self.contents += batch.len();
        self.runs.push(batch.iter().map(encode))
    }
}

/// Ascends as hash and size do.
fn key_of(hash: &[u8; 16], size: u32) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..16].copy_from_slice(hash);
    key[16..].copy_from_slice(&size.to_be_bytes());
    key
}

fn encode(stored: &StoredContent) -> ([u8; KEY_BYTES], [u8; VALUE_BYTES]) {
    let key = key_of(&stored.hash, stored.size);
    let mut value = [0; VALUE_BYTES];
    value[..4].copy_from_slice(&stored.chunk.number().to_le_bytes());
    value[4..8].copy_from_slice(&stored.offset.to_le_bytes());
    let check = check_of(&key, &value);
    value[8..].copy_from_slice(&check.to_le_bytes());
    (key, value)
}

/// `None`: not what was written.
fn decode(key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> Option<StoredContent> {
    let number = |at: usize| u32::from_le_bytes(value[at..at + 4].try_into().expect("4 bytes"));
    let (hash, size) = key.split_first_chunk()?;
    (number(8) == check_of(key, value)).then_some(StoredContent {
        hash: *hash,
        size: u32::from_be_bytes(size.try_into().expect("4 of 20 bytes")),
        chunk: super::ChunkNumber::from_number(number(0)),
        offset: number(4),
    })
}

/// A disk that returns something else must not give a file another's content.
fn check_of(key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> u32 {
    let mut mixed = 0x9e37_79b9_7f4a_7c15_u64;
    for word in key.chunks_exact(4).chain(value[..8].chunks_exact(4)) {
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
        let (key, value) = encode(&stored);
        assert_eq!(decode(&key, &value), Some(stored));
        for bit in 0..8 * (KEY_BYTES + VALUE_BYTES) {
            let (mut key, mut value) = (key, value);
            match bit / 8 {
                at if at < KEY_BYTES => key[at] ^= 1 << (bit % 8),
                at => value[at - KEY_BYTES] ^= 1 << (bit % 8),
            }
            assert_eq!(decode(&key, &value), None, "bit {bit}");
        }
    }
}
