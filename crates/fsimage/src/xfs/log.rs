//! Whether the log holds work that a mount would do first.
//!
//! Only certainty counts as clean: the newest record is complete, the last thing before the log's
//! head, and says "unmounted"; or everything from the log's tail to its head is copies of the
//! superblock, as a freeze leaves it, or a minute without a change. Everything else is work to do,
//! or too strange to say.

use super::Xfs;
use super::bytes::{BASIC_BLOCK_BYTES, be32, be64, read_into};
use super::error::Result;
use super::log_record::{self, Operations};
use crate::ByteSource;

pub(super) const HEADER_MAGIC: u32 = 0xfeed_babe;
/// One header block covers so many bytes of a record.
pub(super) const BYTES_PER_HEADER: u32 = 32 << 10;
/// The largest record with its headers, in basic blocks: 256 KiB and a header for every 32 KiB.
pub(super) const RECORD_BLOCKS_MAX: u64 = 512 + 8;
/// A freeze leaves two records to replay; with more than these blocks nobody looks what they are.
const COVERED_BLOCKS_MAX: u64 = 4 * RECORD_BLOCKS_MAX;

pub(super) const BLOCK_BYTES: usize = BASIC_BLOCK_BYTES as usize;
pub(super) type Block = [u8; BLOCK_BYTES];

/// What a mount would find in the log. Of a mounted file system this says nothing of the changes
/// still in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Nothing to do: the file system was unmounted.
    Clean,
    /// Nothing but copies of the superblock: the file system was frozen and nothing happened since,
    /// or it is idle, which looks the same. Inodes and names on the device are complete; of an idle
    /// one, content may be in memory alone.
    Covered,
    /// There may be changes that are nowhere but in the log.
    Dirty,
    /// The log is on another device.
    External,
}

/// Finds the newest record and judges it.
pub(super) fn read_state(xfs: &Xfs, source: &dyn ByteSource) -> Result<LogState> {
    let Some(log) = Log::new(xfs, source) else {
        return Ok(LogState::External);
    };
    match log.find_head()? {
        Head::Empty => Ok(LogState::Clean),
        Head::At(head) => log.judge(head),
        Head::Unknown => Ok(LogState::Dirty),
    }
}

/// The log as a ring of basic blocks, each beginning with the number of the lap that wrote it.
pub(super) struct Log<'a> {
    source: &'a dyn ByteSource,
    offset: u64,
    pub(super) len_blocks: u64,
    is_v2: bool,
    uuid: [u8; 16],
}

/// Where the next record would go.
pub(super) enum Head {
    /// Nothing was ever written.
    Empty,
    /// At this block, from 1 to the length of the log.
    At(u64),
    /// The laps make no sense.
    Unknown,
}

impl<'a> Log<'a> {
    /// `None`: it is on another device.
    pub(super) fn new(xfs: &Xfs, source: &'a dyn ByteSource) -> Option<Log<'a>> {
        let superblock = xfs.superblock();
        let blocks = u64::from(superblock.log_blocks);
        if superblock.log_start_block == 0 {
            return None;
        }
        Some(Log {
            source,
            offset: superblock.block_offset(superblock.log_start_block, blocks)?,
            len_blocks: blocks * u64::from(superblock.block_bytes) / BASIC_BLOCK_BYTES,
            is_v2: superblock.log_is_v2,
            uuid: superblock.uuid,
        })
    }

    pub(super) fn find_head(&self) -> Result<Head> {
        let first = self.lap_at(0)?;
        let last = self.lap_at(self.len_blocks - 1)?;
        if first == 0 {
            return Ok(if last == 0 {
                Head::Empty
            } else {
                Head::Unknown
            });
        }
        if last == first {
            return Ok(Head::At(self.len_blocks));
        }
        if last != first - 1 {
            return Ok(Head::Unknown);
        }
        // Blocks before the head are of this lap, those behind it of the last.
        let (mut before, mut behind) = (0, self.len_blocks - 1);
        while behind - before > 1 {
            let middle = before + (behind - before) / 2;
            if self.lap_at(middle)? == first {
                before = middle
            } else {
                behind = middle
            }
        }
        Ok(Head::At(behind))
    }

    /// Judges what lies before `head`.
    fn judge(&self, head: u64) -> Result<LogState> {
        let window_blocks = RECORD_BLOCKS_MAX.min(self.len_blocks);
        let window = self.read_ring(head + self.len_blocks - window_blocks, window_blocks)?;
        let blocks = window.as_chunks::<BLOCK_BYTES>().0;
        let Some(index) = blocks
            .iter()
            .rposition(|block| be32(block, 0) == HEADER_MAGIC)
        else {
            return Ok(LogState::Dirty);
        };
        let Some((record, [])) = self.split_record(&blocks[index..]) else {
            return Ok(LogState::Dirty);
        };
        if log_record::is_unmount(record) {
            return Ok(LogState::Clean);
        }
        let (tail_lap, tail) = (
            be32(&blocks[index], 24),
            u64::from(be32(&blocks[index], 28)),
        );
        if tail >= self.len_blocks || !self.is_covered(tail_lap, tail, head)? {
            return Ok(LogState::Dirty);
        }
        Ok(LogState::Covered)
    }

    /// Whether all records from `tail` to `head` are copies of the superblock.
    fn is_covered(&self, tail_lap: u32, tail: u64, head: u64) -> Result<bool> {
        let count = (head + self.len_blocks - tail) % self.len_blocks;
        if count == 0 || count > COVERED_BLOCKS_MAX {
            return Ok(false);
        }
        let ring = self.read_ring(tail, count)?;
        let mut blocks = ring.as_chunks::<BLOCK_BYTES>().0;
        let mut place = (tail_lap, tail);
        while !blocks.is_empty() {
            let Some((record, rest)) = self.split_record(blocks) else {
                return Ok(false);
            };
            if be64(&blocks[0], 16) != u64::from(place.0) << 32 | place.1
                || !log_record::is_superblock_only(record)
            {
                return Ok(false);
            }
            place.1 += (blocks.len() - rest.len()) as u64;
            if place.1 >= self.len_blocks {
                place = (place.0.wrapping_add(1), place.1 - self.len_blocks);
            }
            blocks = rest;
        }
        Ok(true)
    }

    /// Splits the record at the start of `blocks` from those behind it, if it is complete and this
    /// file system's.
    pub(super) fn split_record<'b>(
        &self,
        blocks: &'b [Block],
    ) -> Option<(Operations<'b>, &'b [Block])> {
        let header = blocks.first()?;
        if be32(header, 0) != HEADER_MAGIC || header[304..320] != self.uuid {
            return None;
        }
        let header_blocks = if self.is_v2 {
            be32(header, 320).div_ceil(BYTES_PER_HEADER).max(1) as usize
        } else {
            1
        };
        let body_blocks = (be32(header, 12) as usize).div_ceil(BLOCK_BYTES);
        let (_, body) = blocks.split_at_checked(header_blocks)?;
        let (body, rest) = body.split_at_checked(body_blocks)?;
        let lap = be32(header, 4);
        // A record across the end of the ring has blocks of two laps.
        let is_complete = body
            .iter()
            .all(|block| [lap, lap.wrapping_add(1)].contains(&be32(block, 0)));
        is_complete.then_some((Operations { header, body }, rest))
    }

    fn lap_at(&self, block: u64) -> Result<u32> {
        let mut bytes = Vec::new();
        read_into(
            self.source,
            self.offset + block * BASIC_BLOCK_BYTES,
            BASIC_BLOCK_BYTES as usize,
            &mut bytes,
        )?;
        let word = be32(&bytes, 0);
        Ok(if word == HEADER_MAGIC {
            be32(&bytes, 4)
        } else {
            word
        })
    }

    /// Reads `count` blocks from block `start`, going on at the beginning behind the end.
    pub(super) fn read_ring(&self, start: u64, count: u64) -> Result<Vec<u8>> {
        let start = start % self.len_blocks;
        let before_end = count.min(self.len_blocks - start);
        let mut bytes = Vec::new();
        let mut rest = Vec::new();
        let len = |blocks: u64| (blocks * BASIC_BLOCK_BYTES) as usize;
        read_into(
            self.source,
            self.offset + start * BASIC_BLOCK_BYTES,
            len(before_end),
            &mut bytes,
        )?;
        read_into(self.source, self.offset, len(count - before_end), &mut rest)?;
        bytes.append(&mut rest);
        Ok(bytes)
    }
}
