//! Where the content of the inodes of one piece of the tables lies: as long as nothing in those
//! places changed, nor a byte of the piece, rows of its inodes are what they were, and the piece
//! need not be read.
//!
//! Noted of the file systems in images, whose rows say where content is. From one backup to the
//! next they are in a file beside the digests of the inodes ([`super::digest_file`]), whose loss
//! costs time:
//!
//! ```text
//! head    "BALEPLC1"
//! block   length 4 | seal 16 | records
//! record  first inode 8 | fingerprint 16 | number of runs 1 | runs
//! run     first 8 | end 8, in units of `PLACE_BYTES` of the file system
//! ```
//!
//! A seal is that of a block of the digests, of a number that no block of theirs has. So it holds
//! for the file of digests of the same name alone. Nothing is believed of a block without one, nor
//! of what follows it.

use super::digests::DigestKey;
use super::sealed_blocks::{Seal, read_block, write_block};
use crate::image::{Image, TablePiece};
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;

/// What is told apart: content that is nearer to a change counts as changed.
pub(super) const PLACE_BYTES: u64 = 1 << 20;
/// Runs of one piece; nearest neighbours are put together until they are so few.
const RUNS_MAX: usize = 32;
/// Ranges that are held of a piece before they are put together.
const RANGES_MAX: usize = 8192;

const MAGIC: &[u8; 8] = b"BALEPLC1";
const FINGERPRINT_BYTES: usize = 16;
const HEAD_BYTES: usize = 8 + FINGERPRINT_BYTES + 1;
const RECORD_BYTES_MAX: usize = HEAD_BYTES + RUNS_MAX * 16;
/// Records of a block, in bytes; one more may follow.
const BLOCK_BYTES: usize = 64 << 10;
/// Blocks of places are no blocks of digests.
const FIRST_BLOCK: u64 = 1 << 63;

/// Seals a block of this number.
pub(super) type SealBlock<'a> = &'a dyn Fn(u64, &[u8]) -> Seal;

/// What is seen of the places of a piece.
#[derive(Default)]
pub(super) struct PlacesSeen {
    ranges: Vec<Range<u64>>,
    /// Of something it takes reading to know where it lies.
    is_unknown: bool,
}

impl PlacesSeen {
    /// Bytes of the file system.
    pub(super) fn see(&mut self, range: &Range<u64>) {
        let range = range.start / PLACE_BYTES..range.end.div_ceil(PLACE_BYTES);
        match self.ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if range.start <= last.end && last.start <= range.end => {
                *last = last.start.min(range.start)..last.end.max(range.end);
            }
            _ => {
                if self.ranges.len() >= RANGES_MAX {
                    self.ranges = runs_of(std::mem::take(&mut self.ranges));
                }
                self.ranges.push(range);
            }
        }
    }

    pub(super) fn unknown(&mut self) {
        self.is_unknown = true;
    }

    /// `None`: they are not known.
    pub(super) fn of_piece(self, piece: &TablePiece, key: &DigestKey) -> Option<PiecePlaces> {
        (!self.is_unknown).then(|| PiecePlaces {
            first_inode: piece.first_inode,
            fingerprint: piece.fingerprint(key),
            runs: runs_of(self.ranges),
        })
    }
}

/// Sorted, apart, and no more than [`RUNS_MAX`].
fn runs_of(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match runs.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => runs.push(range),
        }
    }
    if runs.len() > RUNS_MAX {
        let mut gaps: Vec<u64> = runs
            .windows(2)
            .map(|two| two[1].start - two[0].end)
            .collect();
        let wide = RUNS_MAX - 1;
        gaps.sort_unstable_by(|one, other| other.cmp(one));
        // Gaps wider than this stay: there are fewer than so many.
        let widest = gaps[wide];
        let mut few: Vec<Range<u64>> = Vec::with_capacity(RUNS_MAX);
        for run in runs {
            match few.last_mut() {
                Some(last) if run.start - last.end <= widest => last.end = run.end,
                _ => few.push(run),
            }
        }
        runs = few;
    }
    runs
}

/// Of a piece of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PiecePlaces {
    first_inode: u64,
    /// Of the piece, and of what its bytes mean.
    fingerprint: [u8; FINGERPRINT_BYTES],
    runs: Vec<Range<u64>>,
}

impl PiecePlaces {
    /// Are they of this piece, and is nothing of it other than it was?
    pub(super) fn are_as_they_were(
        &self,
        piece: &TablePiece,
        key: &DigestKey,
        is_replaced: &dyn Fn(&Range<u64>) -> bool,
    ) -> bool {
        let bytes = |run: &Range<u64>| {
            run.start.saturating_mul(PLACE_BYTES)..run.end.saturating_mul(PLACE_BYTES)
        };
        self.fingerprint == piece.fingerprint(key)
            && !is_replaced(&(piece.span.offset..piece.span.end()))
            && !self.runs.iter().any(|run| is_replaced(&bytes(run)))
    }

    pub(super) fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first_inode.to_le_bytes());
        out.extend_from_slice(&self.fingerprint);
        out.push(self.runs.len() as u8);
        for run in &self.runs {
            out.extend_from_slice(&run.start.to_le_bytes());
            out.extend_from_slice(&run.end.to_le_bytes());
        }
    }

    /// The record at the beginning of these bytes, and what follows it.
    fn split(bytes: &[u8]) -> Option<(PiecePlaces, &[u8])> {
        let (first_inode, bytes) = bytes.split_first_chunk()?;
        let (fingerprint, bytes) = bytes.split_first_chunk()?;
        let (count, bytes) = bytes.split_first()?;
        let (runs, rest) = bytes.split_at_checked(usize::from(*count) * 16)?;
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        let runs = runs.chunks_exact(16);
        let runs = runs.map(|run| Some(number(&run[..8])?..number(&run[8..])?));
        let places = PiecePlaces {
            first_inode: u64::from_le_bytes(*first_inode),
            fingerprint: *fingerprint,
            runs: runs.collect::<Option<_>>()?,
        };
        Some((places, rest))
    }
}

/// Is it noted where the inodes of a file system have their content? What a replayed journal has
/// otherwise lies elsewhere.
pub(super) fn are_noted(image: &Image) -> bool {
    image.is_part() && !image.facts().is_replayed && !image.names().are_with_inodes()
}

/// Records one behind the other, as [`PiecePlaces::append`] makes them.
struct Records<R> {
    from: R,
    bytes: Vec<u8>,
    at: usize,
    has_ended: bool,
    /// Loads more behind what is there; `None`: there is no more.
    load: fn(&mut R, &mut Vec<u8>) -> Option<()>,
}

impl<R> Records<R> {
    fn next_record(&mut self) -> Option<PiecePlaces> {
        loop {
            if let Some((places, rest)) = PiecePlaces::split(&self.bytes[self.at..]) {
                self.at = self.bytes.len() - rest.len();
                return Some(places);
            }
            self.bytes.drain(..self.at);
            self.at = 0;
            let is_loaded =
                !self.has_ended && (self.load)(&mut self.from, &mut self.bytes).is_some();
            if !is_loaded {
                // What was loaded in part is nothing.
                self.has_ended = true;
                self.bytes.clear();
                return None;
            }
        }
    }
}

/// Writes the places that were noted in one scan to the cache.
pub(super) fn write(out: &mut impl Write, noted: &File, seal: SealBlock<'_>) -> io::Result<()> {
    let mut noted = Records {
        from: (noted, 0u64),
        bytes: Vec::new(),
        at: 0,
        has_ended: false,
        load: |(file, offset), bytes| {
            use std::os::unix::fs::FileExt;
            let len = bytes.len();
            bytes.resize(len + BLOCK_BYTES, 0);
            let got = file.read_at(&mut bytes[len..], *offset).ok()?;
            bytes.truncate(len + got);
            *offset += got as u64;
            (got > 0).then_some(())
        },
    };
    out.write_all(MAGIC)?;
    let (mut block, mut number) = (Vec::new(), FIRST_BLOCK);
    loop {
        let record = noted.next_record();
        if block.len() >= BLOCK_BYTES || record.is_none() && !block.is_empty() {
            write_block(out, &seal(number, &block), &block)?;
            block.clear();
            number += 1;
        }
        match record {
            Some(record) => record.append(&mut block),
            None => return Ok(()),
        }
    }
}

/// Seals a block of a number as the file of digests does that they belong to.
pub(super) type Sealing = Box<dyn Fn(u64, &[u8]) -> Seal + Send>;

/// The places that the last backup noted, in the order of their pieces.
pub(super) struct ParentPlaces {
    records: Records<(File, Sealing, u64)>,
    here: Option<PiecePlaces>,
}

impl ParentPlaces {
    /// `None`: it is no such file.
    pub(super) fn open(mut file: File, sealing: Sealing) -> Option<ParentPlaces> {
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic).ok()?;
        (magic == *MAGIC).then(|| ParentPlaces {
            records: Records {
                from: (file, sealing, FIRST_BLOCK),
                bytes: Vec::new(),
                at: 0,
                has_ended: false,
                load: load_block,
            },
            here: None,
        })
    }

    /// Of the piece that begins with this inode. Pieces ascend.
    pub(super) fn take(&mut self, first_inode: u64) -> Option<PiecePlaces> {
        loop {
            let here = match self.here.take() {
                Some(here) => here,
                None => self.records.next_record()?,
            };
            match here.first_inode.cmp(&first_inode) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Some(here),
                std::cmp::Ordering::Greater => {
                    self.here = Some(here);
                    return None;
                }
            }
        }
    }
}

fn load_block(
    (file, sealing, number): &mut (File, Sealing, u64),
    bytes: &mut Vec<u8>,
) -> Option<()> {
    // Records end with their block.
    if !bytes.is_empty() {
        return None;
    }
    let block = *number;
    *number += 1;
    read_block(file, BLOCK_BYTES + RECORD_BYTES_MAX, bytes, |records| {
        sealing(block, records)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;

    fn seal(number: u64, bytes: &[u8]) -> [u8; 16] {
        let hash = blake3::hash(&[&number.to_le_bytes(), bytes].concat());
        *hash.as_bytes().first_chunk().unwrap()
    }

    fn places(first_inode: u64) -> PiecePlaces {
        let runs = (0..first_inode % 5).map(|run| run * 10..run * 10 + 1 + first_inode);
        PiecePlaces {
            first_inode,
            fingerprint: [first_inode as u8; 16],
            runs: runs.collect(),
        }
    }

    fn written(count: u64) -> Vec<u8> {
        let mut noted = tempfile::tempfile().unwrap();
        let mut bytes = Vec::new();
        (1..=count).for_each(|one| places(one * 3).append(&mut bytes));
        noted.write_all(&bytes).unwrap();
        let mut file = Vec::new();
        write(&mut file, &noted, &seal).unwrap();
        file
    }

    fn opened(bytes: &[u8]) -> Option<ParentPlaces> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        ParentPlaces::open(file, Box::new(seal))
    }

    #[test]
    fn places_come_back_for_their_pieces_and_for_no_others() {
        let mut parent = opened(&written(5000)).unwrap();
        for first in [3, 4, 6, 300, 301, 302, 303, 15_000, 15_001] {
            let expected = (first % 3 == 0).then(|| places(first));
            assert_eq!(parent.take(first), expected, "{first}");
        }
    }

    #[test]
    fn what_is_damaged_is_not_believed_nor_what_follows_it() {
        let whole = written(5000);
        for at in [0, 9, 15, 40, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let taken = opened(&bytes).map(|mut parent| {
                let taken = (1..=5000).map(|one| (one * 3, parent.take(one * 3)));
                taken
                    .filter_map(|(first, taken)| taken.map(|taken| taken == places(first)))
                    .collect::<Vec<bool>>()
            });
            let taken = taken.unwrap_or_default();
            assert!(taken.iter().all(|is_right| *is_right), "{at}");
            assert!(taken.len() < 5000, "{at}");
        }
        let mut cut = opened(&whole[..whole.len() - 1]).unwrap();
        assert_eq!(cut.take(15_000), None);
    }

    #[test]
    fn runs_cover_all_that_was_seen_and_are_few() {
        let mut seen = PlacesSeen::default();
        let mut all = Vec::new();
        for number in 0..40_000u64 {
            let start = (number * 7919 % 1000) * 50 * PLACE_BYTES + number % 3;
            let range = start..start + number % 9 * PLACE_BYTES;
            seen.see(&range);
            all.push(range);
        }
        let runs = runs_of(seen.ranges);
        assert!(runs.len() <= RUNS_MAX, "{}", runs.len());
        assert!(runs.windows(2).all(|two| two[0].end < two[1].start));
        for range in all.iter().filter(|range| !range.is_empty()) {
            let covers = |run: &Range<u64>| {
                run.start * PLACE_BYTES <= range.start && range.end <= run.end * PLACE_BYTES
            };
            assert!(runs.iter().any(covers), "{range:?}");
        }
        let mut three = PlacesSeen::default();
        [5, 1, 9, 6].into_iter().for_each(|at| {
            three.see(&(at * PLACE_BYTES..at * PLACE_BYTES + 1));
        });
        assert_eq!(runs_of(three.ranges), [1..2, 5..7, 9..10]);
    }
}
