//! The journal, replayed in memory: which journal block stands for which block of the file system.
//!
//! Only transactions with a good commit block count. A damaged block inside a committed transaction
//! is an error and never an older state; so is everything that only the kernel can replay (fast
//! commits, journals on other devices). The result is a list of substitutions, 24 bytes each,
//! bounded by `JOURNAL_ENTRIES_MAX`; data stays in the journal.

use std::collections::HashMap;

use super::bytes::{be16_at, be32_at, be64_at, join_u64};
use super::checksum::{crc32_be, crc32c};
use super::error::JournalDamage;
use super::limits::JOURNAL_ENTRIES_MAX;
use super::overlay::Patch;
use crate::{ByteSource, MappedExtent};

const MAGIC: u32 = 0xC03B_3998;
const BLOCK_DESCRIPTOR: u32 = 1;
const BLOCK_COMMIT: u32 = 2;
const BLOCK_SUPERBLOCK_V1: u32 = 3;
const BLOCK_SUPERBLOCK_V2: u32 = 4;
const BLOCK_REVOKE: u32 = 5;

const COMPAT_CHECKSUM: u32 = 1;
const INCOMPAT_REVOKE: u32 = 0x1;
const INCOMPAT_64BIT: u32 = 0x2;
const INCOMPAT_CSUM_V2: u32 = 0x8;
const INCOMPAT_CSUM_V3: u32 = 0x10;
const INCOMPAT_FAST_COMMIT: u32 = 0x20;
/// Asynchronous commits cannot tell an interrupted commit from damage, so they are refused.
const INCOMPAT_SUPPORTED: u32 =
    INCOMPAT_REVOKE | INCOMPAT_64BIT | INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3;

const TAG_ESCAPED: u32 = 1;
const TAG_SAME_UUID: u32 = 2;
const TAG_LAST: u32 = 8;

const HEADER_BYTES: usize = 12;
const REVOKE_HEADER_BYTES: usize = 16;
const SUPERBLOCK_BYTES: usize = 1024;
const SUPERBLOCK_CHECKSUM: usize = 252;
const COMMIT_CHECKSUM: usize = 16;
const COMMIT_BYTES: usize = 60;

/// The journal's own superblock, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalSuperblock {
    /// First block of the log and the block behind its last.
    first: u32,
    end: u32,
    /// Block where replay begins; 0 when there is nothing to replay.
    pub(super) start: u32,
    sequence: u32,
    compat: u32,
    incompat: u32,
    seed: u32,
}

impl JournalSuperblock {
    /// Checks the first block of a journal; `bytes` may be longer than the superblock.
    pub(super) fn parse(
        bytes: &[u8],
        block_bytes: u32,
    ) -> Result<JournalSuperblock, JournalDamage> {
        let bytes = bytes
            .get(..SUPERBLOCK_BYTES)
            .ok_or(JournalDamage::Superblock)?;
        let version = be32_at(bytes, 4);
        let known = matches!(version, BLOCK_SUPERBLOCK_V1 | BLOCK_SUPERBLOCK_V2);
        if be32_at(bytes, 0) != MAGIC || !known || be32_at(bytes, 12) != block_bytes {
            return Err(JournalDamage::Superblock);
        }
        let v2 = version == BLOCK_SUPERBLOCK_V2;
        let feature = |offset: usize| if v2 { be32_at(bytes, offset) } else { 0 };
        let sb = JournalSuperblock {
            first: be32_at(bytes, 20),
            end: be32_at(bytes, 16),
            start: be32_at(bytes, 28),
            sequence: be32_at(bytes, 24),
            compat: feature(36),
            incompat: feature(40),
            seed: crc32c(!0, &bytes[48..64]),
        };
        let crc = crc32c(crc32c(!0, &bytes[..SUPERBLOCK_CHECKSUM]), &[0; 4]);
        let crc = crc32c(crc, &bytes[SUPERBLOCK_CHECKSUM + 4..]);
        if sb.has_checksums() && crc != be32_at(bytes, SUPERBLOCK_CHECKSUM) {
            return Err(JournalDamage::Superblock);
        }
        let start_possible = sb.start == 0 || (sb.first..sb.end).contains(&sb.start);
        if sb.first == 0 || sb.first >= sb.end || !start_possible {
            return Err(JournalDamage::Superblock);
        }
        Ok(sb)
    }

    /// Whether this reader can replay it. A clean journal is never asked.
    pub(super) fn check_features(&self) -> Result<(), JournalDamage> {
        if self.incompat & INCOMPAT_FAST_COMMIT != 0 {
            return Err(JournalDamage::FastCommit);
        }
        let unknown = self.incompat & !INCOMPAT_SUPPORTED;
        let both = INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3;
        if unknown != 0 || self.incompat & both == both {
            return Err(JournalDamage::Features(self.incompat));
        }
        Ok(())
    }

    fn has_checksums(&self) -> bool {
        self.incompat & (INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3) != 0
    }

    fn tag_bytes(&self) -> usize {
        if self.incompat & INCOMPAT_CSUM_V3 != 0 {
            return 16;
        }
        let v2 = if self.incompat & INCOMPAT_CSUM_V2 != 0 {
            2
        } else {
            0
        };
        let wide = if self.incompat & INCOMPAT_64BIT != 0 {
            4
        } else {
            0
        };
        8 + v2 + wide
    }
}

/// The journal of one file system while it is read.
pub(super) struct Log<'a> {
    pub(super) source: &'a dyn ByteSource,
    pub(super) superblock: JournalSuperblock,
    pub(super) block_bytes: u32,
    /// Blocks of the file system: targets must be below.
    pub(super) blocks_count: u64,
    /// Where the journal file lies.
    pub(super) extents: &'a [MappedExtent],
}

/// A block that a transaction wants to write.
#[derive(Clone, Copy)]
struct Tag {
    block: u64,
    journal_block: u32,
    flags: u32,
    checksum: u32,
}

#[derive(Clone, Copy)]
struct Write {
    sequence: u32,
    tag: Tag,
}

/// What was read of a transaction that has not committed yet.
#[derive(Default)]
struct Transaction {
    tags: Vec<Tag>,
    revoked: Vec<u64>,
    damaged: Option<u32>,
    v1_checksum: u32,
}

#[derive(Default)]
struct Committed {
    writes: HashMap<u64, Write>,
    revoked: HashMap<u64, u32>,
    last_commit_seconds: u64,
}

#[derive(PartialEq)]
enum Next {
    Transaction,
    /// Where the last commit ended: what follows is from an earlier lap of the log.
    End,
}

impl Log<'_> {
    /// All substitutions, sorted by block.
    pub(super) fn replay(&self) -> Result<Vec<Patch>, JournalDamage> {
        self.superblock.check_features()?;
        let committed = self.scan()?;
        let mut patches = Vec::with_capacity(committed.writes.len());
        for (block, write) in &committed.writes {
            // A revocation covers its own transaction and all before.
            let revoked = committed
                .revoked
                .get(block)
                .is_some_and(|at| !is_after(write.sequence, *at));
            if !revoked {
                patches.push(self.patch(write)?);
            }
        }
        patches.sort_unstable_by_key(|patch| patch.block);
        Ok(patches)
    }

    fn scan(&self) -> Result<Committed, JournalDamage> {
        let mut committed = Committed::default();
        let mut transaction = Transaction::new();
        let mut sequence = self.superblock.sequence;
        let mut block = self.superblock.start;
        let mut block_bytes = vec![0; self.block_bytes as usize];
        // One lap at most: blocks behind it were seen already.
        let mut left = self.superblock.end - self.superblock.first;
        while left > 0 {
            self.read(block, &mut block_bytes)?;
            if be32_at(&block_bytes, 0) != MAGIC || be32_at(&block_bytes, 8) != sequence {
                break;
            }
            let before = transaction.tags.len();
            match be32_at(&block_bytes, 4) {
                BLOCK_DESCRIPTOR => self.descriptor(block, &block_bytes, &mut transaction)?,
                BLOCK_REVOKE => self.revoke(block, &block_bytes, &mut transaction)?,
                BLOCK_COMMIT => {
                    if self.commit(block, &block_bytes, sequence, &mut committed, &transaction)?
                        == Next::End
                    {
                        break;
                    }
                    sequence = sequence.wrapping_add(1);
                    transaction = Transaction::new();
                }
                _ => break,
            }
            let data_blocks = transaction.tags.len().saturating_sub(before) as u32;
            left = left.saturating_sub(1 + data_blocks);
            block = self.after(block, 1 + data_blocks);
        }
        Ok(committed)
    }

    /// Reads the tags of a descriptor block; their data blocks follow it.
    fn descriptor(
        &self,
        at: u32,
        bytes: &[u8],
        transaction: &mut Transaction,
    ) -> Result<(), JournalDamage> {
        if !self.tail_checksum_matches(bytes) {
            transaction.damaged.get_or_insert(at);
        }
        let tag_bytes = self.superblock.tag_bytes();
        let tags_end = bytes.len()
            - if self.superblock.has_checksums() {
                4
            } else {
                0
            };
        let first_new = transaction.tags.len();
        let mut offset = HEADER_BYTES;
        while let Some(bytes) = bytes
            .get(offset..offset + tag_bytes)
            .filter(|_| offset + tag_bytes <= tags_end)
        {
            if transaction.tags.len() >= JOURNAL_ENTRIES_MAX {
                return Err(JournalDamage::TooLarge);
            }
            let ordinal = (transaction.tags.len() - first_new) as u32;
            let tag = self.tag(bytes, self.after(at, 1 + ordinal));
            transaction.tags.push(tag);
            offset += tag_bytes
                + if tag.flags & TAG_SAME_UUID == 0 {
                    16
                } else {
                    0
                };
            if tag.flags & TAG_LAST != 0 {
                break;
            }
        }
        if self.superblock.compat & COMPAT_CHECKSUM != 0 {
            transaction.v1_checksum = crc32_be(transaction.v1_checksum, bytes);
            let mut data = vec![0; self.block_bytes as usize];
            for tag in &transaction.tags[first_new..] {
                self.read(tag.journal_block, &mut data)?;
                transaction.v1_checksum = crc32_be(transaction.v1_checksum, &data);
            }
        }
        Ok(())
    }

    fn tag(&self, bytes: &[u8], journal_block: u32) -> Tag {
        let wide = self.superblock.incompat & INCOMPAT_64BIT != 0;
        let high = |offset: usize| if wide { be32_at(bytes, offset) } else { 0 };
        let low = be32_at(bytes, 0);
        if self.superblock.incompat & INCOMPAT_CSUM_V3 != 0 {
            let (flags, checksum) = (be32_at(bytes, 4), be32_at(bytes, 12));
            return Tag {
                block: join_u64(high(8), low),
                journal_block,
                flags,
                checksum,
            };
        }
        let (checksum, flags) = (be16_at(bytes, 4).into(), be16_at(bytes, 6).into());
        Tag {
            block: join_u64(high(8), low),
            journal_block,
            flags,
            checksum,
        }
    }

    fn revoke(
        &self,
        at: u32,
        bytes: &[u8],
        transaction: &mut Transaction,
    ) -> Result<(), JournalDamage> {
        if !self.tail_checksum_matches(bytes) {
            transaction.damaged.get_or_insert(at);
        }
        let record_bytes = if self.superblock.incompat & INCOMPAT_64BIT != 0 {
            8
        } else {
            4
        };
        let used = be32_at(bytes, 12) as usize;
        let room = bytes.len()
            - if self.superblock.has_checksums() {
                4
            } else {
                0
            };
        if used > room {
            transaction.damaged.get_or_insert(at);
            return Ok(());
        }
        let records = bytes
            .get(REVOKE_HEADER_BYTES..used)
            .unwrap_or(&[])
            .chunks_exact(record_bytes);
        if transaction.revoked.len() + records.len() > JOURNAL_ENTRIES_MAX {
            return Err(JournalDamage::TooLarge);
        }
        transaction
            .revoked
            .extend(records.map(|record| match record_bytes {
                8 => be64_at(record, 0),
                _ => be32_at(record, 0).into(),
            }));
        Ok(())
    }

    fn commit(
        &self,
        at: u32,
        bytes: &[u8],
        sequence: u32,
        committed: &mut Committed,
        transaction: &Transaction,
    ) -> Result<Next, JournalDamage> {
        let seconds = be64_at(bytes, 48);
        let damaged = transaction
            .damaged
            .or_else(|| (!self.commit_checksum_matches(bytes, transaction)).then_some(at));
        if let Some(block) = damaged {
            // Left over from an earlier life of the log: older than what was committed before it.
            let stale = seconds < committed.last_commit_seconds;
            return if stale {
                Ok(Next::End)
            } else {
                Err(JournalDamage::Descriptor(block))
            };
        }
        committed.last_commit_seconds = seconds;
        for tag in &transaction.tags {
            if tag.block >= self.blocks_count {
                return Err(JournalDamage::Target(tag.block));
            }
            committed.writes.insert(
                tag.block,
                Write {
                    sequence,
                    tag: *tag,
                },
            );
        }
        for block in &transaction.revoked {
            committed.revoked.insert(*block, sequence);
        }
        if committed.writes.len().max(committed.revoked.len()) > JOURNAL_ENTRIES_MAX {
            return Err(JournalDamage::TooLarge);
        }
        Ok(Next::Transaction)
    }

    fn commit_checksum_matches(&self, bytes: &[u8], transaction: &Transaction) -> bool {
        let stored = be32_at(bytes, COMMIT_CHECKSUM);
        if self.superblock.has_checksums() {
            let crc = crc32c(
                crc32c(self.superblock.seed, &bytes[..COMMIT_CHECKSUM]),
                &[0; 4],
            );
            // A power cut may tear the block: only its first sector means anything, the rest was to
            // be zeros.
            let fields = &bytes[COMMIT_CHECKSUM + 4..COMMIT_BYTES];
            let torn = || crc32c(crc32c(crc, fields), &vec![0; bytes.len() - COMMIT_BYTES]);
            return crc32c(crc, &bytes[COMMIT_CHECKSUM + 4..]) == stored || torn() == stored;
        }
        if self.superblock.compat & COMPAT_CHECKSUM != 0 {
            let (kind, size) = (bytes[12], bytes[13]);
            let unused = kind == 0 && size == 0 && stored == 0;
            return unused || (kind == 1 && size == 4 && stored == transaction.v1_checksum);
        }
        true
    }

    /// Checksum at the end of descriptor and revoke blocks.
    fn tail_checksum_matches(&self, bytes: &[u8]) -> bool {
        let Some((head, tail)) = bytes.split_last_chunk::<4>() else {
            return false;
        };
        let matches =
            || crc32c(crc32c(self.superblock.seed, head), &[0; 4]) == u32::from_be_bytes(*tail);
        !self.superblock.has_checksums() || matches()
    }

    /// Checks the data of the write that wins and turns it into a substitution.
    fn patch(&self, write: &Write) -> Result<Patch, JournalDamage> {
        let Tag {
            block,
            journal_block,
            flags,
            checksum,
        } = write.tag;
        if self.superblock.has_checksums() {
            let mut data = vec![0; self.block_bytes as usize];
            self.read(journal_block, &mut data)?;
            let crc = crc32c(
                crc32c(self.superblock.seed, &write.sequence.to_be_bytes()),
                &data,
            );
            let v3 = self.superblock.incompat & INCOMPAT_CSUM_V3 != 0;
            if checksum != if v3 { crc } else { crc & 0xFFFF } {
                return Err(JournalDamage::DataBlock(journal_block));
            }
        }
        let device_offset = self
            .device_offset(journal_block)
            .ok_or(JournalDamage::Hole(journal_block))?;
        Ok(Patch {
            block,
            device_offset,
            escaped: flags & TAG_ESCAPED != 0,
        })
    }

    /// The block `count` places on, round the end of the log.
    fn after(&self, block: u32, count: u32) -> u32 {
        let lap = u64::from(self.superblock.end - self.superblock.first);
        let in_log = u64::from(block.saturating_sub(self.superblock.first)) + u64::from(count);
        self.superblock.first + (in_log % lap) as u32
    }

    fn read(&self, block: u32, bytes: &mut [u8]) -> Result<(), JournalDamage> {
        let offset = self
            .device_offset(block)
            .ok_or(JournalDamage::Hole(block))?;
        self.source
            .read_exact_at(offset, bytes)
            .map_err(|_| JournalDamage::Hole(block))
    }

    fn device_offset(&self, block: u32) -> Option<u64> {
        let file_offset = u64::from(block) * u64::from(self.block_bytes);
        let index = self
            .extents
            .partition_point(|extent| extent.file_offset + extent.len <= file_offset);
        let extent = self
            .extents
            .get(index)
            .filter(|extent| extent.file_offset <= file_offset && !extent.unwritten)?;
        let inside = file_offset - extent.file_offset;
        (inside + u64::from(self.block_bytes) <= extent.len)
            .then_some(extent.device_offset + inside)
    }
}

impl Transaction {
    fn new() -> Transaction {
        Transaction {
            v1_checksum: !0,
            ..Transaction::default()
        }
    }
}

/// Sequence numbers wrap: `a` is later if it is less than half a circle ahead.
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
