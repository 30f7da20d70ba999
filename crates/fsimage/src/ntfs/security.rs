//! Security descriptors: who may do what with a file. Files with the same have one in common, by a
//! number; all are in a stream of $Secure, each twice.

use super::bytes::{u32_at, u64_at};
use super::error::{NtfsError, NtfsFault};
use super::record::DATA;
use super::stream::NtfsStream;
use super::{Ntfs, names};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

pub(super) const SECURE_RECORD: u64 = 9;
const STREAM_NAME: &str = "$SDS";
/// Each block is followed by its copy.
const BLOCK_BYTES: u64 = 256 << 10;
const HEAD_BYTES: usize = 20;
/// Windows makes none that is longer.
const DESCRIPTOR_BYTES_MAX: usize = 64 << 10;
/// Descriptors of a volume at most, 24 bytes each: 24 MiB.
const DESCRIPTORS_MAX: usize = 1 << 20;
/// Of those that were read last: most files of a volume share a few.
const RECENT_BYTES_MAX: usize = 1 << 20;

/// All descriptors of a volume, by number.
#[derive(Debug)]
pub struct SecurityDescriptors {
    stream: NtfsStream,
    /// Where each is in the stream, and how long.
    places: HashMap<u32, (u64, u32)>,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    descriptors: HashMap<u32, Vec<u8>>,
    bytes: usize,
}

impl Recent {
    fn add(&mut self, number: u32, descriptor: &[u8]) {
        if self.bytes + descriptor.len() > RECENT_BYTES_MAX {
            *self = Recent::default();
        }
        self.bytes += descriptor.len();
        self.descriptors.insert(number, descriptor.to_vec());
    }
}

impl Ntfs {
    /// Finds all descriptors. One whose checksum is wrong is looked for in the copy.
    pub fn security_descriptors(&self) -> Result<SecurityDescriptors, NtfsError> {
        let fault = NtfsError::record(SECURE_RECORD);
        let name: Vec<u8> = STREAM_NAME
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let stream = self.stream(SECURE_RECORD, DATA, &name)?;
        let mut places = HashMap::new();
        let mut block = vec![0; BLOCK_BYTES as usize];
        for start in (0..stream.size()).step_by(BLOCK_BYTES as usize) {
            let len = (stream.size() - start).min(BLOCK_BYTES) as usize;
            self.read_content(SECURE_RECORD, &stream, start, &mut block[..len])?;
            for (number, at, len) in entries(&block[..len], start) {
                places.entry(number).or_insert((at, len));
                if places.len() > DESCRIPTORS_MAX {
                    return Err(fault(NtfsFault::TooLong));
                }
            }
        }
        Ok(SecurityDescriptors {
            stream,
            places,
            recent: Mutex::default(),
        })
    }

    /// One of them; `None` if there is none of this number.
    pub fn security_descriptor(
        &self,
        all: &SecurityDescriptors,
        number: u32,
    ) -> Result<Option<Vec<u8>>, NtfsError> {
        let Some((at, len)) = all.places.get(&number) else {
            return Ok(None);
        };
        let recent = || all.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = recent().descriptors.get(&number) {
            return Ok(Some(found.clone()));
        }
        let mut bytes = vec![0; *len as usize];
        self.read_content(SECURE_RECORD, &all.stream, *at, &mut bytes)?;
        recent().add(number, &bytes);
        Ok(Some(bytes))
    }
}

/// Number, place and length of each good descriptor in a block.
fn entries(block: &[u8], start: u64) -> Vec<(u32, u64, u32)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((number, len, is_good)) = entry(block, at, start) {
        if is_good {
            let place = start + (at + HEAD_BYTES) as u64;
            found.push((number, place, (len - HEAD_BYTES) as u32));
        }
        at = (at + len).next_multiple_of(16);
    }
    found
}

/// Number and length, and whether the checksum is right; `None` behind the last.
fn entry(block: &[u8], at: usize, start: u64) -> Option<(u32, usize, bool)> {
    let bytes = block.get(at..)?;
    let (checksum, number) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?);
    let (place, len) = (u64_at(bytes, 8)?, u32_at(bytes, 16)? as usize);
    // A copy says the place of what it is a copy of.
    let here = start + at as u64;
    let is_here = place == here || place.checked_add(BLOCK_BYTES) == Some(here);
    if !is_here || !(HEAD_BYTES..=DESCRIPTOR_BYTES_MAX).contains(&len) {
        return None;
    }
    let descriptor = bytes.get(HEAD_BYTES..len)?;
    Some((number, len, checksum == hash(descriptor)))
}

fn hash(descriptor: &[u8]) -> u32 {
    let words = descriptor.as_chunks::<4>().0;
    words.iter().fold(0, |hash: u32, word| {
        u32::from_le_bytes(*word).wrapping_add(hash.rotate_left(3))
    })
}

/// The name under which a program on Linux sees a stream.
pub(super) fn stream_xattr(name: &[u8]) -> Vec<u8> {
    [b"user.".to_vec(), names::utf8(name)].concat()
}
