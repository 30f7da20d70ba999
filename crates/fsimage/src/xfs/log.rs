//! Whether the log holds work that a mount would do first.
//!
//! Only certainty counts as clean: the newest record is complete, the last thing before the log's head, and says
//! "unmounted". Everything else is work to do, or too strange to say.

use super::Xfs;
use super::bytes::{BASIC_BLOCK_BYTES, be32, read_into};
use super::error::Result;
use crate::ByteSource;

const HEADER_MAGIC: u32 = 0xfeed_babe;
/// One header block covers so many bytes of a record.
const BYTES_PER_HEADER: u32 = 32 << 10;
/// The largest record with its headers, in basic blocks: 256 KiB and a header for every 32 KiB.
const RECORD_BLOCKS_MAX: u64 = 512 + 8;
const OPERATION_UNMOUNT: u8 = 0x20;

/// What a mount would find in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Nothing to do: the file system was unmounted.
    Clean,
    /// There may be changes that are nowhere but in the log.
    Dirty,
    /// The log is on another device.
    External,
}

/// Finds the newest record and judges it.
pub(super) fn read_state(xfs: &Xfs, source: &dyn ByteSource) -> Result<LogState> {
    let superblock = xfs.superblock();
    let len_blocks =
        u64::from(superblock.log_blocks) * u64::from(superblock.block_bytes) / BASIC_BLOCK_BYTES;
    let Some(offset) =
        superblock.block_offset(superblock.log_start_block, u64::from(superblock.log_blocks))
    else {
        return Ok(LogState::External);
    };
    if superblock.log_start_block == 0 {
        return Ok(LogState::External);
    }
    let log = Log {
        source,
        offset,
        len_blocks,
        is_v2: superblock.log_is_v2,
        uuid: superblock.uuid,
    };
    Ok(match log.find_head()? {
        Head::Empty => LogState::Clean,
        Head::At(head) if log.ends_with_unmount(head)? => LogState::Clean,
        Head::At(_) | Head::Unknown => LogState::Dirty,
    })
}

/// The log as a ring of basic blocks, each beginning with the number of the lap that wrote it.
struct Log<'a> {
    source: &'a dyn ByteSource,
    offset: u64,
    len_blocks: u64,
    is_v2: bool,
    uuid: [u8; 16],
}

/// Where the next record would go.
enum Head {
    /// Nothing was ever written.
    Empty,
    /// At this block, from 1 to the length of the log.
    At(u64),
    /// The laps make no sense.
    Unknown,
}

impl Log<'_> {
    fn find_head(&self) -> Result<Head> {
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

    /// Whether the last record before `head` is complete and says that the file system was unmounted.
    fn ends_with_unmount(&self, head: u64) -> Result<bool> {
        let window_blocks = RECORD_BLOCKS_MAX.min(self.len_blocks);
        let window = self.read_ring(head + self.len_blocks - window_blocks, window_blocks)?;
        let blocks = window.as_chunks::<{ BASIC_BLOCK_BYTES as usize }>().0;
        let Some(index) = blocks
            .iter()
            .rposition(|block| be32(block, 0) == HEADER_MAGIC)
        else {
            return Ok(false);
        };
        let (header, lap) = (&blocks[index], be32(&blocks[index], 4));
        let len_bytes = be32(header, 12);
        let header_blocks = if self.is_v2 {
            be32(header, 320).div_ceil(BYTES_PER_HEADER).max(1) as usize
        } else {
            1
        };
        let record_blocks = (len_bytes as usize)
            .div_ceil(BASIC_BLOCK_BYTES as usize)
            .saturating_add(header_blocks);
        let record = &blocks[index..];
        let is_complete = record.len() == record_blocks
            && record[header_blocks..]
                .iter()
                .all(|block| be32(block, 0) == lap)
            && header[304..320] == self.uuid;
        Ok(is_complete
            && be32(header, 40) == 1
            && record
                .get(header_blocks)
                .is_some_and(|block| block[9] & OPERATION_UNMOUNT != 0))
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
    fn read_ring(&self, start: u64, count: u64) -> Result<Vec<u8>> {
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
