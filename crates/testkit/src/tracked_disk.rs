//! What every tracker of changes must hold: whoever reads what it reports, and nothing else, has
//! the disk.
//!
//! A disk that a tracker follows is written to at random: data, discards, zeroes. A copy of it is
//! brought up to date with what is reported, as backups do, of which some fail; it must be the disk
//! each time. After a loss a tracker says that it knows nothing, and why, and goes on from there.

use crate::choices::Choices;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_pipeline::random::SeededRandom;
use bale_source::raw::{ChangeTracker, Changes};
use std::ops::Range;

/// What discards and zeroes are aligned to.
const ALIGNMENT: u64 = 4096;
/// Writes between two backups.
const WRITES_MAX: usize = 12;
/// Bytes of one.
const WRITE_BYTES_MAX: usize = 3 << 20;

/// A disk, and who follows it.
pub trait TrackedDisk {
    fn len_bytes(&self) -> u64;
    fn write(&mut self, offset: u64, bytes: &[u8]);
    /// What is there afterwards is whatever the disk makes of it.
    fn discard(&mut self, range: Range<u64>);
    fn write_zeroes(&mut self, range: Range<u64>);
    /// What a backup reads that begins now.
    fn content(&mut self) -> Vec<u8>;
    /// As a backup opens it.
    fn begin(&mut self) -> Box<dyn ChangeTracker>;
}

/// Keeps a copy of a disk by what its tracker reports.
pub struct Follower<D> {
    pub disk: D,
    /// What the last snapshot recorded.
    pub basis: Option<String>,
    copy: Vec<u8>,
    random: SeededRandom,
    /// Blocks that were read because they were reported.
    pub blocks_read: u64,
    /// Each time the tracker knew nothing: why.
    pub everything: Vec<String>,
}

impl<D: TrackedDisk> Follower<D> {
    /// Of a disk of which there is no snapshot.
    pub fn new(disk: D, seed: u64) -> Follower<D> {
        Follower {
            disk,
            basis: None,
            copy: Vec::new(),
            random: SeededRandom::new(seed),
            blocks_read: 0,
            everything: Vec::new(),
        }
    }

    /// Writes and backs up, again and again; an error names what was not reported.
    pub fn follow(&mut self, rounds: usize) -> Result<(), String> {
        for round in 0..rounds {
            self.write();
            // One of three fails before it is committed; the last one does not.
            let is_committed = self.random.pick(3) > 0 || round + 1 == rounds;
            let done = self.back_up(is_committed);
            done.map_err(|error| format!("round {round}: {error}"))?;
        }
        Ok(())
    }

    /// Some writes.
    pub fn write(&mut self) {
        for _ in 0..self.random.pick(WRITES_MAX) {
            self.write_once();
        }
    }

    fn write_once(&mut self) {
        let len = self.disk.len_bytes();
        let at = self.random.pick(len as usize - WRITE_BYTES_MAX) as u64;
        let bytes = match self.random.pick(4) {
            0 => 1 + self.random.pick(WRITE_BYTES_MAX),
            _ => 1 + self.random.pick(70_000),
        };
        let start = at - at % ALIGNMENT;
        let range = start..(start + bytes as u64).next_multiple_of(ALIGNMENT);
        match self.random.pick(5) {
            0 => self.disk.discard(range),
            1 => self.disk.write_zeroes(range),
            // Also within a sector.
            _ => {
                let fill = 1 + self.random.pick(255) as u8;
                self.disk.write(at, &vec![fill; bytes]);
            }
        }
    }

    /// A backup, and the last snapshot as it is then, unless it fails before its end.
    pub fn back_up(&mut self, is_committed: bool) -> Result<(), String> {
        let mut tracker = self.disk.begin();
        let content = self.disk.content();
        let changes = tracker.changed_since(self.basis.as_deref());
        let mut copy = self.copy.clone();
        match changes {
            Changes::Everything(why) if why.is_empty() => return Err("no reason".to_owned()),
            Changes::Everything(why) => {
                self.everything.push(why);
                copy.clone_from(&content);
            }
            Changes::Ranges(_) if self.basis.is_none() && tracker.since_snapshot().is_none() => {
                return Err("changes since nothing".to_owned());
            }
            Changes::Ranges(ranges) => {
                self.blocks_read += read_blocks(&ranges, &content, &mut copy)?;
            }
        }
        if let Some(block) = differing_block(&copy, &content) {
            return Err(format!("block {block} changed, and was not reported"));
        }
        if is_committed {
            tracker.committed();
            self.basis = tracker.next_basis();
            self.copy = copy;
        }
        Ok(())
    }

    /// After what is done to the disk the tracker knows nothing, and says `why`; the backups after
    /// that go on as ever.
    pub fn admits(&mut self, why: &str, act: impl FnOnce(&mut D)) -> Result<(), String> {
        self.follow(2)?;
        act(&mut self.disk);
        self.write();
        let before = self.everything.len();
        self.back_up(true)?;
        match &self.everything[before..] {
            [said] if said.contains(why) => {}
            said => return Err(format!("it said {said:?}, and not {why:?}")),
        }
        self.follow(3)
    }
}

/// Reads the blocks of ranges; how many there were.
fn read_blocks(ranges: &[Range<u64>], content: &[u8], copy: &mut [u8]) -> Result<u64, String> {
    if copy.len() != content.len() {
        return Err("ranges of a disk of another length".to_owned());
    }
    let is_apart = |pair: &[Range<u64>]| pair[0].end <= pair[1].start;
    if !ranges.windows(2).all(is_apart) || ranges.iter().any(|range| range.is_empty()) {
        return Err(format!("{ranges:?} are not sorted and apart"));
    }
    let mut blocks = 0;
    for range in ranges {
        let start = range.start - range.start % IMAGE_BLOCK_BYTES;
        let end = range
            .end
            .next_multiple_of(IMAGE_BLOCK_BYTES)
            .min(content.len() as u64);
        if start >= end {
            continue;
        }
        blocks += (end - start).div_ceil(IMAGE_BLOCK_BYTES);
        let part = start as usize..end as usize;
        copy[part.clone()].copy_from_slice(&content[part]);
    }
    Ok(blocks)
}

fn differing_block(copy: &[u8], content: &[u8]) -> Option<usize> {
    let blocks = IMAGE_BLOCK_BYTES as usize;
    let mut pairs = copy.chunks(blocks).zip(content.chunks(blocks));
    match pairs.position(|(copy, content)| copy != content) {
        None if copy.len() != content.len() => Some(copy.len().min(content.len()) / blocks),
        differing => differing,
    }
}
