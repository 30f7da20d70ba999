//! Which inodes the log tells of: every change of an inode goes through it, so an inode that is not
//! told of since some moment is what it was then.
//!
//! A moment is a record of the log that was complete at that time ([`newest_record`]); what is told
//! of is in the transactions that began behind it ([`inodes_since`]). They are read only if nothing
//! is in doubt: every record is where the one before it ends, names that one, has its checksum, and
//! the last ends where the log does. After a freeze all that happened before it is there. A
//! transaction that began earlier was closed earlier: its changes are older than the moment.

use super::Xfs;
use super::bytes::{BASIC_BLOCK_BYTES, be32, be64};
use super::error::Result;
use super::log::{BLOCK_BYTES, Block, HEADER_MAGIC, Head, Log, RECORD_BLOCKS_MAX};
use crate::ByteSource;
use std::collections::HashMap;

/// What is read of the log at most.
pub const LOG_BYTES_MAX: usize = 8 << 20;
const BLOCKS_MAX: u64 = LOG_BYTES_MAX as u64 / BASIC_BLOCK_BYTES;
/// Transactions that are under way in the log at a time, far more than a kernel writes.
const OPEN_MAX: usize = 64;

/// Blocks whose first words one header keeps.
const WORDS_PER_HEADER: usize = 64;
/// Of the header of a record, as kernels of 64 and of 32 bits lay it out.
const HEADER_BYTES: [usize; 2] = [328, 324];
/// Of the headers behind the first.
const NEXT_HEADER_BYTES: usize = 4 + 4 * WORDS_PER_HEADER;
const CRC_AT: usize = 32;

const FORMAT_LINUX_LITTLE_ENDIAN: u32 = 1;
const OPERATION_BYTES: usize = 12;
const CLIENT_TRANSACTION: u8 = 0x69;
const FLAG_START: u8 = 0x01;
const FLAG_COMMIT: u8 = 0x02;
const FLAG_CONTINUES: u8 = 0x04;
const FLAG_CONTINUED: u8 = 0x08;
const FLAG_UNMOUNT: u8 = 0x20;
const TRANSACTION_MAGIC: &[u8] = b"NART";
const TRANSACTION_HEADER_BYTES: usize = 16;
const ITEM_INODE: u16 = 0x123b;
const ITEM_INODE_BYTES: usize = 56;
const ITEM_INODE_NUMBER_AT: usize = 16;
/// The kinds of items that are known, from extents that are to be freed to references on a realtime
/// device.
const ITEMS: std::ops::RangeInclusive<u16> = 0x1236..=0x124f;
/// What is kept of a region that goes on in the next record: enough of whatever is looked at.
const KEPT_BYTES: usize = 64;

/// A record of the log: lap and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlace {
    lap: u32,
    block: u64,
}

impl LogPlace {
    fn of(header: &[u8]) -> LogPlace {
        let place = be64(header, 16);
        LogPlace {
            lap: (place >> 32) as u32,
            block: place & 0xffff_ffff,
        }
    }
}

/// A complete record that is not known to be followed by another.
pub(super) fn newest_record(xfs: &Xfs, source: &dyn ByteSource) -> Result<Option<LogPlace>> {
    let Some(log) = Log::new(xfs, source).filter(|_| xfs.superblock().has_checksums) else {
        return Ok(None);
    };
    let Head::At(head) = log.find_head()? else {
        return Ok(None);
    };
    let count = RECORD_BLOCKS_MAX.min(log.len_blocks);
    let start = (head + log.len_blocks - count) % log.len_blocks;
    let window = log.read_ring(start, count)?;
    let blocks = window.as_chunks::<BLOCK_BYTES>().0;
    let found = (0..blocks.len()).rev().find_map(|at| {
        let place = LogPlace::of(&blocks[at]);
        let is_here = be32(&blocks[at], 0) == HEADER_MAGIC
            && place.block == (start + at as u64) % log.len_blocks;
        let record = Record::split(&log, &blocks[at..]).filter(|_| is_here);
        record.map(|_| place)
    });
    Ok(found)
}

/// Inodes that transactions behind a record tell of, sorted, each once; `None` if that cannot be
/// told.
pub(super) fn inodes_since(
    xfs: &Xfs,
    source: &dyn ByteSource,
    since: LogPlace,
) -> Result<Option<Vec<u64>>> {
    let Some(log) = Log::new(xfs, source).filter(|_| xfs.superblock().has_checksums) else {
        return Ok(None);
    };
    let Head::At(head) = log.find_head()? else {
        return Ok(None);
    };
    if since.block >= log.len_blocks {
        return Ok(None);
    }
    let count = (head + log.len_blocks - since.block) % log.len_blocks;
    if count == 0 || count > BLOCKS_MAX {
        return Ok(None);
    }
    let bytes = log.read_ring(since.block, count)?;
    let unit = u64::from(xfs.superblock().log_unit_bytes) / BASIC_BLOCK_BYTES;
    let ring = Ring {
        log: &log,
        unit: unit.max(1),
        place: since,
        before: None,
        blocks: bytes.as_chunks::<BLOCK_BYTES>().0,
    };
    Ok(ring.inodes())
}

/// A stretch of the log, record by record.
struct Ring<'a> {
    log: &'a Log<'a>,
    /// Records begin at multiples of so many blocks.
    unit: u64,
    place: LogPlace,
    /// Block of the record before.
    before: Option<u64>,
    blocks: &'a [Block],
}

impl Ring<'_> {
    fn inodes(mut self) -> Option<Vec<u64>> {
        let mut transactions = Transactions::default();
        while !self.blocks.is_empty() {
            let is_first = self.before.is_none();
            let record = self.next_record()?;
            if !is_first {
                transactions.read(&record)?;
            }
        }
        let mut inodes = transactions.inodes;
        inodes.sort_unstable();
        inodes.dedup();
        Some(inodes)
    }

    fn next_record(&mut self) -> Option<Record<'_>> {
        let (record, len) = Record::split(self.log, self.blocks)?;
        let header = &self.blocks[0];
        let names_the_one_before = match self.before {
            Some(before) => u64::from(be32(header, 36)) == before,
            None => true,
        };
        if LogPlace::of(header) != self.place || !names_the_one_before {
            return None;
        }
        self.before = Some(self.place.block);
        let end = (self.place.block + len as u64).next_multiple_of(self.unit);
        self.blocks = self.blocks.get((end - self.place.block) as usize..)?;
        self.place = match end.checked_sub(self.log.len_blocks) {
            None => LogPlace {
                block: end,
                ..self.place
            },
            Some(block) => LogPlace {
                lap: self.place.lap.wrapping_add(1),
                block,
            },
        };
        Some(record)
    }
}

/// A complete record with its checksum.
struct Record<'a> {
    headers: &'a [Block],
    body: &'a [Block],
    body_bytes: usize,
}

impl<'a> Record<'a> {
    /// The record at the start of `blocks`, and how many of them it takes.
    fn split(log: &Log<'_>, blocks: &'a [Block]) -> Option<(Record<'a>, usize)> {
        let (operations, rest) = log.split_record(blocks)?;
        let len = blocks.len() - rest.len();
        let headers = len - operations.body.len();
        let record = Record {
            headers: &blocks[..headers],
            body: operations.body,
            body_bytes: be32(operations.header, 12) as usize,
        };
        let format = be32(operations.header, 300);
        (format == FORMAT_LINUX_LITTLE_ENDIAN && record.has_its_checksum()).then_some((record, len))
    }

    fn has_its_checksum(&self) -> bool {
        let (Some(header), Some(body)) = (
            self.headers.first(),
            self.body.as_flattened().get(..self.body_bytes),
        ) else {
            return false;
        };
        let stored = &header[CRC_AT..CRC_AT + 4];
        // Headers beyond the body have nothing to keep.
        let used = self.body.len().div_ceil(WORDS_PER_HEADER).max(1);
        let next = self.headers.get(1..used).unwrap_or_default();
        HEADER_BYTES.into_iter().any(|header_bytes| {
            let mut crc = crc32c::crc32c(&header[..CRC_AT]);
            crc = crc32c::crc32c_append(crc, &[0; 4]);
            crc = crc32c::crc32c_append(crc, &header[CRC_AT + 4..header_bytes]);
            for next in next {
                crc = crc32c::crc32c_append(crc, &next[..NEXT_HEADER_BYTES]);
            }
            crc32c::crc32c_append(crc, body).to_le_bytes() == stored
        })
    }

    /// The body with the words that the lap number took the place of.
    fn restored(&self) -> Vec<u8> {
        let mut bytes = self.body.as_flattened().to_vec();
        for (index, block) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let (header, word) = (index / WORDS_PER_HEADER, index % WORDS_PER_HEADER);
            let words_at = if header == 0 { 44 } else { 4 };
            if let Some(header) = self.headers.get(header) {
                let at = words_at + 4 * word;
                block[..4].copy_from_slice(&header[at..at + 4]);
            }
        }
        bytes.truncate(self.body_bytes);
        bytes
    }
}

/// Transactions whose beginning was seen.
#[derive(Default)]
struct Transactions {
    open: HashMap<u32, Transaction>,
    inodes: Vec<u64>,
}

impl Transactions {
    /// `None`: something is not as it should be.
    fn read(&mut self, record: &Record<'_>) -> Option<()> {
        let bytes = record.restored();
        let mut rest = &bytes[..];
        for _ in 0..be32(record.headers.first()?, 40) {
            let (operation, behind) = rest.split_at_checked(OPERATION_BYTES)?;
            let (body, behind) = behind.split_at_checked(be32(operation, 4) as usize)?;
            rest = behind;
            self.operation(be32(operation, 0), operation[8], operation[9], body)?;
        }
        Some(())
    }

    fn operation(&mut self, id: u32, client: u8, flags: u8, body: &[u8]) -> Option<()> {
        if client != CLIENT_TRANSACTION || flags & FLAG_UNMOUNT != 0 {
            return None;
        }
        if flags & FLAG_START != 0 {
            let is_new = self.open.insert(id, Transaction::default()).is_none();
            return (is_new && body.is_empty() && self.open.len() <= OPEN_MAX).then_some(());
        }
        // One that is not known began before.
        if flags & FLAG_COMMIT != 0 {
            let ended = self.open.remove(&id);
            return ended.is_none_or(|ended| ended.is_whole()).then_some(());
        }
        match self.open.get_mut(&id) {
            Some(transaction) => {
                let inode = transaction.region(flags, body)?;
                self.inodes.extend(inode);
                Some(())
            }
            None => Some(()),
        }
    }
}

/// How far a transaction has come.
#[derive(Default)]
struct Transaction {
    has_header: bool,
    /// Of the item that is being told of.
    regions_left: u16,
    /// The beginning of a region that goes on, and its length so far.
    part: Option<(Vec<u8>, usize)>,
}

impl Transaction {
    fn is_whole(&self) -> bool {
        self.has_header && self.regions_left == 0 && self.part.is_none()
    }

    /// The inode that a region tells of, if it does.
    fn region(&mut self, flags: u8, body: &[u8]) -> Option<Option<u64>> {
        let is_continued = flags & FLAG_CONTINUED != 0;
        let (mut kept, len) = match (self.part.take(), is_continued) {
            (Some(part), true) => part,
            (None, false) => (Vec::new(), 0),
            _ => return None,
        };
        let room = KEPT_BYTES - kept.len();
        kept.extend_from_slice(&body[..body.len().min(room)]);
        let len = len + body.len();
        if flags & FLAG_CONTINUES != 0 {
            self.part = Some((kept, len));
            return Some(None);
        }
        self.whole_region(&kept, len)
    }

    fn whole_region(&mut self, bytes: &[u8], len: usize) -> Option<Option<u64>> {
        if !self.has_header {
            self.has_header = true;
            let is_header = len == TRANSACTION_HEADER_BYTES && bytes.starts_with(TRANSACTION_MAGIC);
            return is_header.then_some(None);
        }
        if self.regions_left > 0 {
            self.regions_left -= 1;
            return Some(None);
        }
        // Items are in the byte order of the machine.
        let kind = u16::from_le_bytes(*bytes.first_chunk()?);
        let regions = u16::from_le_bytes(*bytes.get(2..)?.first_chunk()?);
        if !ITEMS.contains(&kind) {
            return None;
        }
        self.regions_left = regions.checked_sub(1)?;
        if kind != ITEM_INODE {
            return Some(None);
        }
        if len != ITEM_INODE_BYTES {
            return None;
        }
        let number = bytes.get(ITEM_INODE_NUMBER_AT..)?.first_chunk()?;
        Some(Some(u64::from_le_bytes(*number)))
    }
}
