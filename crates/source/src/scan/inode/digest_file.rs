//! The file of the digest cache: the digest of all inodes and one of each, from one backup to the
//! next. Equal digests of all mean that nothing was changed; an inode with an equal digest need not
//! be decoded.
//!
//! A file in the cache, whose loss costs time:
//!
//! ```text
//! head    "BALEINO4" | name 16 | key 16 | snapshot 32 | all inodes 32 | seal 16
//! block   length 4 | seal 16 | records
//! record  distance to the number before, 1 to 10 bytes | digest 8
//! ```
//!
//! The name is random. The key is the one that the digests were made with, combined with what only
//! the caller can say of the name (exclusive or), so that the file alone does not tell it. The head
//! says for which snapshot the file holds, and is written again in its place where the next
//! snapshot changed nothing. The digest of all is zeros where it would prove nothing. Of a distance
//! each byte has seven bits, the low ones first. A seal is a keyed hash of the caller: that of the
//! head of what stands before it, that of a block of the file's name, the number of the block and
//! its records.
//!
//! Beside it is the file of the places of pieces ([`super::piece_places`]), where they are noted.
//!
//! Nothing is believed of a file whose head has no valid seal, or is another snapshot's; nothing of
//! a block without one, nor of what follows it. An inode without a digest is taken for a changed
//! one.

use super::digests::{Digest, DigestKey, DigestReader, Digests};
use super::piece_places::{self, ParentPlaces, PiecePlaces};
use super::sealed_blocks::{SEAL_BYTES, Seal, read_block, write_block};
use crate::image::TablePiece;
use bale_format::ObjectId;
use bale_pipeline::private_dir;
use bale_pipeline::random::{OsRandom, draw};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"BALEINO4";
const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = size_of::<DigestKey>();
const SNAPSHOT_BYTES: usize = 32;
const ALL_BYTES: usize = 32;
/// Sealed bytes of the head.
const HEAD_SEALED_BYTES: usize = MAGIC.len() + NAME_BYTES + KEY_BYTES + SNAPSHOT_BYTES + ALL_BYTES;
const HEAD_BYTES: usize = HEAD_SEALED_BYTES + SEAL_BYTES;
/// Hashes a head or a block with a key of the caller.
pub type Sealer = Arc<dyn Fn(&[u8]) -> [u8; SEAL_BYTES] + Send + Sync>;
/// Of all inodes, and of what else must be equal if nothing was changed.
pub type AllInodesDigest = [u8; ALL_BYTES];
/// Records of a block, in bytes; one more may follow.
const BLOCK_BYTES: usize = 256 << 10;
const RECORD_BYTES_MAX: usize = 18;

/// Where the digests of one host and list of sources are, and who seals them.
#[derive(Clone)]
pub struct DigestFile {
    path: PathBuf,
    sealer: Sealer,
}

struct Head {
    name: [u8; NAME_BYTES],
    key: DigestKey,
    snapshot: ObjectId,
    all: Option<AllInodesDigest>,
}

impl DigestFile {
    /// The file need not be there.
    pub fn new(path: PathBuf, sealer: Sealer) -> DigestFile {
        DigestFile { path, sealer }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key of the digests as of a snapshot.
    pub fn key(&self, snapshot: &ObjectId) -> Option<DigestKey> {
        let mut file = private_dir::open(&self.path).ok()?;
        Some(self.read_head(&mut file, snapshot)?.key)
    }

    /// The digest of all inodes as of a snapshot, if there is one.
    pub fn all_inodes(&self, snapshot: &ObjectId) -> Option<AllInodesDigest> {
        let mut file = private_dir::open(&self.path).ok()?;
        self.read_head(&mut file, snapshot)?.all
    }

    /// The digests of inodes as of a snapshot.
    pub fn open(&self, snapshot: &ObjectId) -> Option<ParentDigests> {
        let mut file = private_dir::open(&self.path).ok()?;
        let head = self.read_head(&mut file, snapshot)?;
        Some(ParentDigests {
            places: self.open_places(&head),
            file,
            name: head.name,
            sealer: self.sealer.clone(),
            block: Vec::new(),
            at: 0,
            blocks: 0,
            last: 0,
            here: None,
            ended: false,
            is_replaced: None,
            are_changes_noted: false,
        })
    }

    /// Writes what the tables said for a snapshot, by digests of this key, without the inodes of
    /// `without`, which are sorted. The old file or the new one is there afterwards.
    pub fn write(
        &self,
        (snapshot, key): (&ObjectId, &DigestKey),
        all: Option<AllInodesDigest>,
        digests: Option<&Digests>,
        without: &[u64],
    ) -> io::Result<()> {
        let head = Head {
            name: draw(&OsRandom)?,
            key: *key,
            snapshot: *snapshot,
            all,
        };
        let new = private_dir::name_beside(&self.path)?;
        let digests_alone = digests.filter(|_| without.is_empty());
        let written = self
            .write_places(&head, digests_alone.and_then(Digests::places))
            .and_then(|()| self.write_new(&new, &head, digests, without))
            .and_then(|()| std::fs::rename(&new, &self.path));
        if written.is_err() {
            // Whatever is the matter, there may be little room.
            let _ = std::fs::remove_file(&new);
        }
        written
    }

    fn places_path(&self) -> PathBuf {
        self.path.with_extension("places")
    }

    /// `None`: there are none of this head.
    fn open_places(&self, head: &Head) -> Option<ParentPlaces> {
        let file = private_dir::open(&self.places_path()).ok()?;
        let (sealer, name) = (self.sealer.clone(), head.name);
        let seal = move |block: u64, records: &[u8]| seal_of(&sealer, &name, block, records);
        ParentPlaces::open(file, Box::new(seal))
    }

    /// Those that were there hold for other digests, whether these are written or not.
    fn write_places(&self, head: &Head, noted: Option<&File>) -> io::Result<()> {
        let path = self.places_path();
        let Some(noted) = noted else {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        let new = private_dir::name_beside(&path)?;
        let seal = |block: u64, records: &[u8]| seal_of(&self.sealer, &head.name, block, records);
        let write = || {
            let mut file = BufWriter::new(private_dir::create_new(&new)?);
            piece_places::write(&mut file, noted, &seal)?;
            file.flush()?;
            std::fs::rename(&new, &path)
        };
        let written = write();
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        written
    }

    /// What holds for one snapshot holds for the next, too: nothing was changed. Torn, the head has
    /// no valid seal. False: the file is not that of `from`.
    pub fn pass_on(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        all: Option<AllInodesDigest>,
    ) -> io::Result<bool> {
        let Ok(mut file) = private_dir::open_to_change(&self.path) else {
            return Ok(false);
        };
        let Some(head) = self.read_head(&mut file, from) else {
            return Ok(false);
        };
        let head = Head {
            snapshot: *to,
            all,
            ..head
        };
        file.write_all_at(&head.encode(&self.sealer), 0)?;
        Ok(true)
    }

    fn read_head(&self, file: &mut File, snapshot: &ObjectId) -> Option<Head> {
        let mut bytes = [0; HEAD_BYTES];
        file.read_exact(&mut bytes).ok()?;
        Head::decode(&bytes, &self.sealer).filter(|head| head.snapshot == *snapshot)
    }

    fn write_new(
        &self,
        path: &Path,
        head: &Head,
        digests: Option<&Digests>,
        without: &[u64],
    ) -> io::Result<()> {
        let mut file = BufWriter::new(private_dir::create_new(path)?);
        file.write_all(&head.encode(&self.sealer))?;
        if let Some(digests) = digests {
            write_blocks(&mut file, digests, without, &head.name, &self.sealer)?;
        }
        file.flush()
    }
}

impl Head {
    fn encode(&self, sealer: &Sealer) -> Vec<u8> {
        let all = self.all.unwrap_or([0; ALL_BYTES]);
        let key = masked(&self.key, &self.name, sealer);
        let mut bytes = [MAGIC, &self.name[..], &key, &self.snapshot.0, &all].concat();
        bytes.extend_from_slice(&sealer(&bytes));
        bytes
    }

    /// `None`: it is not sealed with this key.
    fn decode(bytes: &[u8; HEAD_BYTES], sealer: &Sealer) -> Option<Head> {
        let (sealed, seal) = bytes.split_last_chunk::<SEAL_BYTES>()?;
        let fields = sealed.strip_prefix(MAGIC)?;
        if sealer(sealed) != *seal {
            return None;
        }
        let (name, fields) = fields.split_first_chunk()?;
        let (key, fields) = fields.split_first_chunk()?;
        let (snapshot, all) = fields.split_first_chunk()?;
        let all: AllInodesDigest = all.try_into().ok()?;
        Some(Head {
            name: *name,
            key: masked(key, name, sealer),
            snapshot: ObjectId(*snapshot),
            all: (all != [0; ALL_BYTES]).then_some(all),
        })
    }
}

/// A key as it stands in the file, or such a one as it is.
fn masked(key: &DigestKey, name: &[u8; NAME_BYTES], sealer: &Sealer) -> DigestKey {
    let mask = sealer(&[&b"key "[..], name].concat());
    std::array::from_fn(|at| key[at] ^ mask[at])
}

/// Digests of the last backup, as far as they are sealed with the right key.
pub struct ParentDigests {
    file: File,
    places: Option<ParentPlaces>,
    name: [u8; NAME_BYTES],
    sealer: Sealer,
    block: Vec<u8>,
    at: usize,
    blocks: u64,
    /// The number before.
    last: u64,
    here: Option<Digest>,
    ended: bool,
    is_replaced: Option<IsReplaced>,
    are_changes_noted: bool,
}

/// May bytes of this range of the file system be other than they were?
pub type IsReplaced = Arc<dyn Fn(&Range<u64>) -> bool + Send + Sync>;

impl ParentDigests {
    /// Equal digests do not hold for inodes whose content is in ranges of which this is true, nor
    /// for those of which it takes reading to know where all of it is: for scans of which rows say
    /// where on the device content is.
    pub fn but_for(self, is_replaced: IsReplaced) -> ParentDigests {
        ParentDigests {
            is_replaced: Some(is_replaced),
            ..self
        }
    }

    /// Asks for what changed alone, where that is little.
    pub fn noting_changes(self) -> ParentDigests {
        ParentDigests {
            are_changes_noted: true,
            ..self
        }
    }

    /// Asks for everything.
    pub(crate) fn noting_nothing(self) -> ParentDigests {
        ParentDigests {
            are_changes_noted: false,
            ..self
        }
    }

    pub(super) fn are_changes_noted(&self) -> bool {
        self.are_changes_noted
    }

    pub(super) fn is_replaced(&self) -> Option<IsReplaced> {
        self.is_replaced.clone()
    }

    /// The places of a piece of the tables, if nothing of it is other than it was. Asked in order
    /// of pieces.
    pub(super) fn kept_places(
        &mut self,
        piece: &TablePiece,
        key: &DigestKey,
    ) -> Option<PiecePlaces> {
        let places = self.places.as_mut()?.take(piece.first_inode)?;
        let is_replaced = self.is_replaced.as_deref()?;
        let are_kept = places.are_as_they_were(piece, key, is_replaced);
        are_kept.then_some(places)
    }

    /// Appends the digests of inodes from `first` on and before `end`, but no more than
    /// `digests_max`. Ranges ascend. False if any before `end` was left out.
    pub(super) fn take(
        &mut self,
        first: u64,
        end: Option<u64>,
        digests_max: usize,
        out: &mut Vec<Digest>,
    ) -> bool {
        let mut are_all = true;
        while let Some(digest) = self.here() {
            if end.is_some_and(|end| digest.number >= end) {
                break;
            }
            match digest.number >= first && out.len() < digests_max {
                true => out.push(digest),
                false => are_all = false,
            }
            self.here = None;
        }
        are_all
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
        let (sealer, name, number) = (&self.sealer, &self.name, self.blocks);
        self.at = 0;
        self.blocks += 1;
        let len_max = BLOCK_BYTES + RECORD_BYTES_MAX;
        read_block(&mut self.file, len_max, &mut self.block, |records| {
            seal_of(sealer, name, number, records)
        })
    }
}

fn write_blocks(
    file: &mut impl Write,
    digests: &Digests,
    without: &[u64],
    name: &[u8; NAME_BYTES],
    sealer: &Sealer,
) -> io::Result<()> {
    let mut reader: DigestReader<'_> = digests.read();
    let (mut block, mut blocks, mut last) = (Vec::new(), 0, 0);
    let mut without = without.iter().copied().peekable();
    loop {
        let here = reader.here()?;
        if block.len() >= BLOCK_BYTES || here.is_none() && !block.is_empty() {
            write_block(file, &seal_of(sealer, name, blocks, &block), &block)?;
            block.clear();
            blocks += 1;
        }
        let Some(Digest { number, digest }) = here else {
            return Ok(());
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

fn seal_of(sealer: &Sealer, name: &[u8; NAME_BYTES], block: u64, records: &[u8]) -> Seal {
    let mut sealed = b"block of digests".to_vec();
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

    const SNAPSHOT: ObjectId = ObjectId([7; 32]);
    const NEXT: ObjectId = ObjectId([8; 32]);
    const ALL: Option<AllInodesDigest> = Some([9; 32]);
    const KEY: DigestKey = *b"sixteen bytes of";

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

    fn written(without: &[u64]) -> (tempfile::TempDir, DigestFile) {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = DigestsWriter::create(directory.path(), false).unwrap();
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
        let file = DigestFile::new(directory.path().join("kept"), sealer(1));
        let digests = writer.finish().unwrap();
        let written = file.write((&SNAPSHOT, &KEY), ALL, Some(&digests), without);
        written.unwrap();
        (directory, file)
    }

    fn each(file: &DigestFile, snapshot: &ObjectId) -> Option<Vec<Digest>> {
        let mut found = Vec::new();
        file.open(snapshot)?.take(0, None, usize::MAX, &mut found);
        Some(found)
    }

    #[test]
    fn digests_come_back_but_for_those_that_are_to_be_forgotten() {
        let (directory, file) = written(&[0, 1, 2, 9, u64::MAX]);
        let mut expected = digests();
        expected.retain(|digest| ![0, 9].contains(&digest.number));
        assert_eq!(each(&file, &SNAPSHOT), Some(expected));
        assert_eq!(file.all_inodes(&SNAPSHOT), ALL);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_key_comes_back_and_the_file_alone_does_not_tell_it() {
        let (_directory, file) = written(&[]);
        assert_eq!(file.key(&SNAPSHOT), Some(KEY));
        assert_eq!(file.key(&NEXT), None);
        assert!(file.pass_on(&SNAPSHOT, &NEXT, ALL).unwrap());
        assert_eq!(file.key(&NEXT), Some(KEY));
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(!bytes.windows(KEY_BYTES).any(|window| window == KEY));
    }

    #[test]
    fn ranges_get_what_is_in_them_and_no_more_than_they_ask_for() {
        let (_directory, file) = written(&[]);
        let mut known = file.open(&SNAPSHOT).unwrap();
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
    fn a_file_of_another_snapshot_or_key_is_refused() {
        let (_directory, file) = written(&[]);
        let other = DigestFile::new(file.path.clone(), sealer(2));
        for (file, snapshot) in [(&file, &NEXT), (&other, &SNAPSHOT)] {
            assert_eq!(file.all_inodes(snapshot), None);
            assert_eq!(each(file, snapshot), None);
            assert!(!file.pass_on(snapshot, &NEXT, ALL).unwrap());
        }
        assert_eq!(each(&file, &SNAPSHOT), Some(digests()));
        // Blocks of one file behind the head of another.
        let (_directory, second) = written(&[3]);
        let mut bytes = std::fs::read(&second.path).unwrap();
        let whole = std::fs::read(&file.path).unwrap();
        bytes.truncate(HEAD_BYTES);
        bytes.extend_from_slice(&whole[HEAD_BYTES..]);
        std::fs::write(&second.path, bytes).unwrap();
        assert_eq!(each(&second, &SNAPSHOT), Some(Vec::new()));
    }

    #[test]
    fn what_is_passed_on_holds_for_the_next_snapshot_alone() {
        let (_directory, file) = written(&[]);
        for (all, expected) in [(None, None), (ALL, ALL)] {
            assert!(file.pass_on(&SNAPSHOT, &NEXT, all).unwrap());
            assert_eq!(each(&file, &SNAPSHOT), None);
            assert_eq!(each(&file, &NEXT), Some(digests()));
            assert_eq!(file.all_inodes(&NEXT), expected);
            assert!(file.pass_on(&NEXT, &SNAPSHOT, all).unwrap());
        }
        std::fs::remove_file(&file.path).unwrap();
        assert!(!file.pass_on(&SNAPSHOT, &NEXT, ALL).unwrap());
    }

    /// A crash while it was written again leaves the beginning of one and the end of the other.
    #[test]
    fn a_head_that_was_half_written_is_refused() {
        let (_directory, file) = written(&[]);
        let before = std::fs::read(&file.path).unwrap();
        assert!(file.pass_on(&SNAPSHOT, &NEXT, Some([1; 32])).unwrap());
        let after = std::fs::read(&file.path).unwrap();
        assert_eq!(before[HEAD_BYTES..], after[HEAD_BYTES..]);
        // Between where the two heads begin to differ and where they end: one byte of a seal in so
        // many is that of the other.
        let differing = |&at: &usize| before[at] != after[at];
        let first = (0..HEAD_BYTES).find(differing).unwrap();
        let last = (0..HEAD_BYTES).rfind(differing).unwrap();
        assert_eq!(first, MAGIC.len() + NAME_BYTES + KEY_BYTES);
        for at in first + 1..=last {
            let torn = [&after[..at], &before[at..HEAD_BYTES]].concat();
            std::fs::write(&file.path, torn).unwrap();
            for snapshot in [&SNAPSHOT, &NEXT] {
                assert_eq!(file.all_inodes(snapshot), None, "{at}");
                assert!(file.open(snapshot).is_none(), "{at}");
            }
        }
    }

    #[test]
    fn nothing_is_believed_behind_what_was_touched() {
        let (_directory, file) = written(&[]);
        let whole = std::fs::read(&file.path).unwrap();
        assert!(whole.len() > 3 * BLOCK_BYTES);
        let in_head = (0..HEAD_BYTES).step_by(7);
        for at in in_head.chain((HEAD_BYTES..whole.len()).step_by(whole.len() / 97)) {
            let mut touched = whole.clone();
            touched[at] ^= 1;
            let cut = whole[..at].to_vec();
            for bytes in [touched, cut] {
                std::fs::write(&file.path, &bytes).unwrap();
                let found = each(&file, &SNAPSHOT);
                assert_eq!(found.is_some(), at >= HEAD_BYTES, "{at}");
                assert_eq!(file.all_inodes(&SNAPSHOT).is_some(), at >= HEAD_BYTES);
                let found = found.unwrap_or_default();
                assert_eq!(found, digests()[..found.len()]);
                assert!(found.len() <= at / 9);
            }
        }
    }
}
