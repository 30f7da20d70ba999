//! The digest file of the cache: one digest per inode, from one backup to the next. An inode with
//! an equal digest need not be decoded.
//!
//! A file in the cache, whose loss costs time. `BALEINO2`, sixteen random bytes that name the file,
//! and blocks: length (4), seal (16), records. A record is the distance to the number before (1 to
//! 10 bytes, seven bits each, low ones first) and the digest (8). The seal is a keyed hash of name,
//! number of the block and records; what follows a block without a valid one counts as not there,
//! and so does what is missing at the end. An inode without a digest is taken for a changed one.

use super::digests::{Digest, DigestReader, Digests};
use bale_pipeline::private_dir;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"BALEINO2";
/// Names a file.
pub const NAME_BYTES: usize = 16;
const SEAL_BYTES: usize = 16;
/// Hashes a block with a key of the caller.
pub type Sealer = Arc<dyn Fn(&[u8]) -> [u8; SEAL_BYTES] + Send + Sync>;
/// Records of a block, in bytes; one more may follow.
const BLOCK_BYTES: usize = 256 << 10;
const RECORD_BYTES_MAX: usize = 18;

/// A file of the last backup, as far as it is sealed with the right key.
pub struct ParentDigests {
    file: File,
    name: [u8; NAME_BYTES],
    sealer: Sealer,
    block: Vec<u8>,
    at: usize,
    blocks: u64,
    /// The number before.
    last: u64,
    here: Option<Digest>,
    ended: bool,
}

impl ParentDigests {
    /// Opens a file that [`write`] made. Its name must be the one that is expected.
    pub fn open(path: &Path, name: &[u8; NAME_BYTES], sealer: Sealer) -> io::Result<ParentDigests> {
        let mut file = private_dir::open(path)?;
        let mut head = [0; MAGIC.len() + NAME_BYTES];
        file.read_exact(&mut head)?;
        if head[..MAGIC.len()] != *MAGIC || head[MAGIC.len()..] != *name {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(ParentDigests {
            file,
            name: *name,
            sealer,
            block: Vec::new(),
            at: 0,
            blocks: 0,
            last: 0,
            here: None,
            ended: false,
        })
    }

    /// Appends the digests of inodes from `first` on and before `end`, but no more than
    /// `digests_max`. Ranges ascend.
    pub(super) fn take(
        &mut self,
        first: u64,
        end: Option<u64>,
        digests_max: usize,
        out: &mut Vec<Digest>,
    ) {
        while let Some(digest) = self.here() {
            if end.is_some_and(|end| digest.number >= end) {
                return;
            }
            if digest.number >= first && out.len() < digests_max {
                out.push(digest);
            }
            self.here = None;
        }
    }

    fn here(&mut self) -> Option<Digest> {
        if self.here.is_none() && !self.ended {
            self.here = self.next_record();
            self.ended = self.here.is_none();
        }
        self.here
    }

    fn next_record(&mut self) -> Option<Digest> {
        if self.at == self.block.len() {
            self.load()?;
        }
        let mut distance = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.block.get(self.at)?;
            self.at += 1;
            distance |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let digest = self.block.get(self.at..)?.first_chunk::<8>()?;
                self.at += 8;
                self.last = self.last.checked_add(distance)?;
                return Some(Digest {
                    number: self.last,
                    digest: u64::from_le_bytes(*digest),
                });
            }
        }
        None
    }

    /// The next block, if it is whole and sealed.
    fn load(&mut self) -> Option<()> {
        let mut head = [0; 4 + SEAL_BYTES];
        self.file.read_exact(&mut head).ok()?;
        let (len, seal) = head.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        if len == 0 || len > BLOCK_BYTES + RECORD_BYTES_MAX {
            return None;
        }
        self.block.resize(len, 0);
        self.at = 0;
        self.file.read_exact(&mut self.block).ok()?;
        let sealed = seal_of(&self.sealer, &self.name, self.blocks, &self.block);
        self.blocks += 1;
        (seal == sealed).then_some(())
    }
}

/// Writes what the tables said, without the inodes of `without`, which are sorted.
pub(super) fn write(
    digests: &Digests,
    without: &[u64],
    path: &Path,
    name: &[u8; NAME_BYTES],
    sealer: &Sealer,
) -> io::Result<()> {
    let mut file = BufWriter::new(private_dir::create_new(path)?);
    file.write_all(MAGIC)?;
    file.write_all(name)?;
    let mut reader: DigestReader<'_> = digests.read();
    let (mut block, mut blocks, mut last) = (Vec::new(), 0, 0);
    let mut without = without.iter().copied().peekable();
    loop {
        let here = reader.here()?;
        if block.len() >= BLOCK_BYTES || here.is_none() && !block.is_empty() {
            file.write_all(&(block.len() as u32).to_le_bytes())?;
            file.write_all(&seal_of(sealer, name, blocks, &block))?;
            file.write_all(&block)?;
            block.clear();
            blocks += 1;
        }
        let Some(Digest { number, digest }) = here else {
            return file.flush();
        };
        reader.advance();
        while without.next_if(|other| *other < number).is_some() {}
        // Numbers ascend; what does not is not worth remembering.
        if without.peek() == Some(&number) || number < last {
            continue;
        }
        let mut distance = number - last;
        while distance >= 0x80 {
            block.push(distance as u8 | 0x80);
            distance >>= 7;
        }
        block.push(distance as u8);
        block.extend_from_slice(&digest.to_le_bytes());
        last = number;
    }
}

fn seal_of(
    sealer: &Sealer,
    name: &[u8; NAME_BYTES],
    block: u64,
    records: &[u8],
) -> [u8; SEAL_BYTES] {
    let mut sealed = b"digests of inodes".to_vec();
    sealed.extend_from_slice(name);
    sealed.extend_from_slice(&block.to_le_bytes());
    sealed.extend_from_slice(records);
    sealer(&sealed)
}

#[cfg(test)]
mod tests {
    use super::super::digests::DigestsWriter;
    use super::*;
    use crate::image::PieceDigest;
    use bale_format::Time;

    const NAME: [u8; NAME_BYTES] = [7; NAME_BYTES];

    fn sealer(key: u8) -> Sealer {
        Arc::new(move |bytes| {
            let mut hash = [0; 16];
            hash.copy_from_slice(&blake3::keyed_hash(&[key; 32], bytes).as_bytes()[..16]);
            hash
        })
    }

    /// Of every third inode, with a wide gap.
    fn digests() -> Vec<Digest> {
        let numbers = (0..100_000).map(|n| n * 3 + if n > 5000 { 1 << 40 } else { 0 });
        let digest = |number: u64| Digest {
            number,
            digest: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        numbers.map(digest).collect()
    }

    fn written(without: &[u64]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = DigestsWriter::create(directory.path()).unwrap();
        for piece in digests().chunks(1000) {
            let mut records = Vec::new();
            piece.iter().for_each(|digest| digest.append(&mut records));
            writer.add(
                piece[0].number,
                Some(PieceDigest::default()),
                Time::default(),
                records,
            );
        }
        let path = directory.path().join("kept");
        write(&writer.finish().unwrap(), without, &path, &NAME, &sealer(1)).unwrap();
        (directory, path)
    }

    fn all(path: &Path, key: u8) -> Vec<Digest> {
        let mut known = ParentDigests::open(path, &NAME, sealer(key)).unwrap();
        let mut found = Vec::new();
        known.take(0, None, usize::MAX, &mut found);
        found
    }

    #[test]
    fn digests_come_back_but_for_those_that_are_to_be_forgotten() {
        let (_directory, path) = written(&[0, 1, 2, 9, u64::MAX]);
        let mut expected = digests();
        expected.retain(|digest| ![0, 9].contains(&digest.number));
        assert_eq!(all(&path, 1), expected);
    }

    #[test]
    fn ranges_get_what_is_in_them_and_no_more_than_they_ask_for() {
        let (_directory, path) = written(&[]);
        let mut known = ParentDigests::open(&path, &NAME, sealer(1)).unwrap();
        let numbers = |known: &mut ParentDigests, first, end, max| {
            let mut found = Vec::new();
            known.take(first, Some(end), max, &mut found);
            found.iter().map(|digest| digest.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&mut known, 2, 10, 9), [3, 6, 9]);
        assert_eq!(numbers(&mut known, 10, 20, 1), [12]);
        assert_eq!(numbers(&mut known, 20, 21, 9), [0; 0]);
        assert_eq!(numbers(&mut known, 21, 22, 9), [21]);
    }

    #[test]
    fn nothing_is_believed_behind_what_was_touched() {
        let (_directory, path) = written(&[]);
        let whole = std::fs::read(&path).unwrap();
        assert!(whole.len() > 3 * BLOCK_BYTES);
        assert!(all(&path, 2).is_empty(), "another key");
        for at in (0..whole.len()).step_by(whole.len() / 97) {
            let mut touched = whole.clone();
            touched[at] ^= 1;
            std::fs::write(&path, &touched).unwrap();
            if ParentDigests::open(&path, &NAME, sealer(1)).is_err() {
                assert!(at < MAGIC.len() + NAME_BYTES);
                continue;
            }
            let found = all(&path, 1);
            assert_eq!(found, digests()[..found.len()]);
            assert!(found.len() <= at / 9);
            std::fs::write(&path, &whole[..at]).unwrap();
            let found = all(&path, 1);
            assert_eq!(found, digests()[..found.len()]);
        }
    }
}
