//! Keyed digests of every inode and of every piece of the inode tables, to be compared with a later
//! reading.
//!
//! Eight bytes an inode, SipHash-2-4 with a key that nobody else has and of this file system alone,
//! of all its bytes but those that reading a file changes. Where rows have access times these are
//! digested, too, with another key: neither kind of digest is taken for the other. In an unnamed
//! file, number (8 bytes) and digest (8), in the order in which the tables are read; in memory are
//! 64 bytes for each piece.

use super::append::Appender;
use super::piece_places::PiecePlaces;
use crate::image::{Image, PieceDigest, TablePiece};
use bale_format::entry::Time;
use bale_pipeline::spill::unnamed_file;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Number and digest.
pub(super) const RECORD_BYTES: usize = 16;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

pub type DigestKey = [u8; 16];

/// Digest of one inode; `scratch` is used for a copy.
pub(super) fn digest_of(
    image: &Image,
    key: &DigestKey,
    number: u64,
    raw: &[u8],
    scratch: &mut Vec<u8>,
) -> u64 {
    scratch.clear();
    scratch.extend_from_slice(raw);
    image.tables().forget_reading(scratch, image.atime());
    // All inodes of a file system are of one length, and end in zeros.
    scratch.truncate(used_bytes(scratch));
    sip_hash_2_4(key, [&number.to_le_bytes(), scratch])
}

/// Up to the last that is not zero.
fn used_bytes(bytes: &[u8]) -> usize {
    let mut used = bytes;
    // Sixteen at once: a third of an inode and more is zeros.
    while let Some((rest, last)) = used.split_last_chunk::<16>()
        && *last == [0; 16]
    {
        used = rest;
    }
    let last = used.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |last| last + 1)
}

/// SipHash-2-4 of two parts, one behind the other: digests outlive the compiler that they were made
/// with.
#[expect(deprecated, reason = "what took its place is no hash by name")]
pub(super) fn sip_hash_2_4(key: &DigestKey, parts: [&[u8]; 2]) -> u64 {
    let [low, high] = [0, 8].map(|at| {
        let half = key[at..at + 8].try_into().expect("8 of 16 bytes");
        u64::from_le_bytes(half)
    });
    let mut hasher = std::hash::SipHasher::new_with_keys(low, high);
    parts.into_iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// The key for one file system: what was an inode of another is none here, nor one whose bytes mean
/// something else now, as with other features.
pub(super) fn key_of_filesystem(key: &DigestKey, uuid: &[u8; 16], context: &[u32]) -> DigestKey {
    let mut hasher =
        blake3::Hasher::new_derive_key("bale 1 digests of the inodes of a file system");
    hasher.update(key).update(uuid);
    for number in context {
        hasher.update(&number.to_le_bytes());
    }
    let hash = hasher.finalize();
    *hash.as_bytes().first_chunk().expect("16 of 32 bytes")
}

/// One inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) number: u64,
    pub(super) digest: u64,
}

impl Digest {
    pub(super) fn append(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.digest.to_le_bytes());
    }

    pub(super) fn of(bytes: &[u8; RECORD_BYTES]) -> Digest {
        let (number, digest) = bytes.split_at(8);
        Digest {
            number: u64::from_le_bytes(number.try_into().expect("8 of 16 bytes")),
            digest: u64::from_le_bytes(digest.try_into().expect("8 of 16 bytes")),
        }
    }
}

/// A piece of a table as it was read.
#[derive(Clone, Copy)]
pub(super) struct PieceSeen {
    first_inode: u64,
    /// Of its bytes, whatever they mean.
    pub(super) raw: PieceDigest,
    /// From then on no change leaves the ctime that a directory in it has.
    directories_not_racy_from: Time,
    /// Where its records end in the file.
    end: u64,
}

impl PieceSeen {
    pub(super) fn first_inode(&self) -> u64 {
        self.first_inode
    }

    /// Were all directories in it last changed before this?
    pub(super) fn is_not_racy(&self, t0: Time) -> bool {
        self.directories_not_racy_from <= t0
    }
}

/// Takes pieces in order.
pub(super) struct DigestsWriter {
    file: Appender,
    pieces: Vec<PieceSeen>,
    len: u64,
    /// Where the content of inodes lies, of pieces of which that is known.
    places: Option<BufWriter<File>>,
}

impl DigestsWriter {
    /// `are_placed`: places of pieces will be added.
    pub(super) fn create(spill: &Path, are_placed: bool) -> io::Result<DigestsWriter> {
        let places = are_placed.then(|| unnamed_file(spill)).transpose()?;
        Ok(DigestsWriter {
            places: places.map(BufWriter::new),
            file: Appender::create(spill)?,
            pieces: Vec::new(),
            len: 0,
        })
    }

    /// False: writing failed, and [`DigestsWriter::finish`] tells why. `raw` is `None` where
    /// reading failed.
    pub(super) fn add(
        &mut self,
        first_inode: u64,
        raw: Option<PieceDigest>,
        directories_not_racy_from: Time,
        records: Vec<u8>,
    ) -> bool {
        self.len += records.len() as u64;
        if let Some(raw) = raw {
            self.pieces.push(PieceSeen {
                first_inode,
                raw,
                directories_not_racy_from,
                end: self.len,
            });
        }
        self.file.append(records)
    }

    pub(super) fn add_places(&mut self, places: &PiecePlaces) -> io::Result<()> {
        let Some(file) = &mut self.places else {
            return Ok(());
        };
        let mut record = Vec::new();
        places.append(&mut record);
        file.write_all(&record)
    }

    pub(super) fn finish(self) -> io::Result<Digests> {
        let places = self.places.map(BufWriter::into_inner).transpose();
        Ok(Digests {
            file: self.file.finish()?,
            pieces: self.pieces,
            places: places.map_err(io::IntoInnerError::into_error)?,
        })
    }
}

/// What the tables said.
pub struct Digests {
    file: File,
    /// In the order of their first inodes.
    pieces: Vec<PieceSeen>,
    /// As [`PiecePlaces::append`] makes them.
    places: Option<File>,
}

impl Digests {
    /// The piece as it was; `None`: there was none that began with the same inode.
    pub(super) fn piece(&self, piece: &TablePiece) -> Option<&PieceSeen> {
        let at = self
            .pieces
            .binary_search_by_key(&piece.first_inode, |seen| seen.first_inode);
        at.ok().map(|at| &self.pieces[at])
    }

    /// Where the content of inodes lies, if that was noted.
    pub(super) fn places(&self) -> Option<&File> {
        self.places.as_ref()
    }

    pub(super) fn read(&self) -> DigestReader<'_> {
        DigestReader {
            file: &self.file,
            offset: 0,
            buffer: Vec::new(),
            at: 0,
        }
    }
}

/// A place in the file.
pub(super) struct DigestReader<'a> {
    file: &'a File,
    /// Of the end of the buffer in the file.
    offset: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl DigestReader<'_> {
    /// The record here; `None` at the end.
    pub(super) fn here(&mut self) -> io::Result<Option<Digest>> {
        if self.at >= self.buffer.len() {
            self.fill()?;
        }
        let rest = &self.buffer[self.at..];
        match rest.first_chunk::<RECORD_BYTES>() {
            Some(record) => Ok(Some(Digest::of(record))),
            None if rest.is_empty() => Ok(None),
            None => Err(io::Error::other("a temporary file is damaged")),
        }
    }

    pub(super) fn advance(&mut self) {
        self.at += RECORD_BYTES;
    }

    /// Goes past the records of a piece.
    pub(super) fn skip(&mut self, piece: &PieceSeen) {
        let start = self.offset - self.buffer.len() as u64;
        if piece.end > self.offset {
            self.buffer.clear();
            (self.offset, self.at) = (piece.end, 0);
        } else {
            self.at = self.at.max((piece.end.saturating_sub(start)) as usize);
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.resize(READ_BYTES, 0);
        let mut filled = 0;
        while filled < READ_BYTES {
            let at = self.offset + filled as u64;
            match self.file.read_at(&mut self.buffer[filled..], at)? {
                0 => break,
                got => filled += got,
            }
        }
        self.buffer.truncate(filled);
        self.offset += filled as u64;
        self.at = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the paper and of the reference implementation.
    #[test]
    fn digests_are_siphash_2_4_whatever_the_compiler() {
        let numbers: Vec<u8> = (0..64).collect();
        let key: DigestKey = *numbers.first_chunk().unwrap();
        for (len, hash) in [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (2, 0x0d6c_8009_d9a9_4f5a),
            (3, 0x8567_6696_d7fb_7e2d),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            for at in 0..=len {
                let (first, second) = numbers[..len].split_at(at);
                assert_eq!(sip_hash_2_4(&key, [first, second]), hash, "{len} {at}");
            }
        }
    }

    #[test]
    fn zeros_at_the_end_are_not_hashed() {
        for len in 0..100 {
            let mut bytes = vec![0; len];
            assert_eq!(used_bytes(&bytes), 0);
            for last in 0..len {
                bytes[last] = 1;
                assert_eq!(used_bytes(&bytes), last + 1, "{last} of {len}");
            }
        }
    }

    #[test]
    fn another_repository_or_file_system_has_another_key() {
        let keys = [(1, 1, 0), (1, 2, 0), (2, 1, 0), (2, 2, 0), (1, 1, 1)];
        let keys = keys.map(|(key, uuid, features)| {
            key_of_filesystem(&[key; 16], &[uuid; 16], &[1024, features])
        });
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
        }
    }

    #[test]
    fn digests_come_back_and_whole_pieces_can_be_passed() {
        let mut writer = DigestsWriter::create(&std::env::temp_dir(), false).unwrap();
        let count = 200_000u64;
        let per_piece = 4000;
        for first in (0..count).step_by(per_piece as usize) {
            let mut records = Vec::new();
            for number in first..first + per_piece {
                let digest = number * 7;
                Digest { number, digest }.append(&mut records);
            }
            assert!(writer.add(
                first,
                Some(PieceDigest::default()),
                Time::default(),
                records
            ));
        }
        let digests = writer.finish().unwrap();
        let mut reader = digests.read();
        let mut number = 0;
        while let Some(found) = reader.here().unwrap() {
            assert_eq!((found.number, found.digest), (number, number * 7));
            // Every third piece is passed, some of them from within.
            let is_passed = number / per_piece % 3 == 1 && number % 17 == 5;
            match is_passed {
                true => {
                    let piece = &digests.pieces[(number / per_piece) as usize];
                    reader.skip(piece);
                    number = (number / per_piece + 1) * per_piece;
                }
                false => {
                    reader.advance();
                    number += 1;
                }
            }
        }
        assert_eq!(number, count);
    }
}
