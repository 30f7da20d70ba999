//! Keyed digests of every inode and of every piece of the inode tables, to be compared with a later
//! reading.
//!
//! Eight bytes an inode, made with a key that nobody else has, of all its bytes but those that
//! reading a file changes. In an unnamed file, number (8 bytes) and digest (8), in the order in
//! which the tables are read; in memory are 64 bytes for each piece.

use super::append::Appender;
use crate::image::{Image, PieceDigest, TablePiece};
use bale_format::entry::Time;
use std::fs::File;
use std::hash::Hasher;
use std::io;
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
    image.forget_atime(scratch);
    // All inodes of a file system are of one length, and end in zeros.
    let used = scratch.iter().rposition(|byte| *byte != 0);
    scratch.truncate(used.map_or(0, |last| last + 1));
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(key);
    hasher.write(&number.to_le_bytes());
    hasher.write(scratch);
    hasher.finish()
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
}

impl DigestsWriter {
    pub(super) fn create(spill: &Path) -> io::Result<DigestsWriter> {
        Ok(DigestsWriter {
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

    pub(super) fn finish(self) -> io::Result<Digests> {
        Ok(Digests {
            file: self.file.finish()?,
            pieces: self.pieces,
        })
    }
}

/// What the tables said.
pub struct Digests {
    file: File,
    /// In the order of their first inodes.
    pieces: Vec<PieceSeen>,
}

impl Digests {
    /// Writes them to a file for the next backup, without inodes that are not what they were any
    /// more (sorted).
    pub fn keep(
        &self,
        without: &[u64],
        path: &Path,
        name: &[u8; super::digest_file::NAME_BYTES],
        sealer: &super::digest_file::Sealer,
    ) -> io::Result<()> {
        super::digest_file::write(self, without, path, name, sealer)
    }

    /// The piece as it was; `None`: there was none that began with the same inode.
    pub(super) fn piece(&self, piece: &TablePiece) -> Option<&PieceSeen> {
        let at = self
            .pieces
            .binary_search_by_key(&piece.first_inode, |seen| seen.first_inode);
        at.ok().map(|at| &self.pieces[at])
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

    #[test]
    fn digests_come_back_and_whole_pieces_can_be_passed() {
        let mut writer = DigestsWriter::create(&std::env::temp_dir()).unwrap();
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
