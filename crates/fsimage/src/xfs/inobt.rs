//! Where the inodes are: allocation group headers and the inode btree, as chunks of 64 inodes in
//! order of address.
//!
//! The chunks of all groups together are 32 bytes for every 64 inodes; a caller that cannot have
//! that in memory takes them group by group, or as they come. The caller reads the inodes, in
//! pieces as large as it likes.

use super::Xfs;
use super::btree::{BtreeWalk, LEVELS_MAX, RECORD_BYTES, Tree};
use super::bytes::{be16, be32, be64, crc_matches, read_into};
use super::error::{Result, XfsError};
use crate::ByteSource;

pub const CHUNK_INODES: u32 = 64;
/// One bit of a chunk's hole mask stands for so many inodes.
const HOLE_INODES: u32 = CHUNK_INODES / 16;
const AGI_STRUCTURE: &str = "inode header of allocation group";
const AGI_SECTOR: u64 = 2;
const AGI_CRC_AT: usize = 312;
const AGI_BYTES: usize = 344;

/// Header of an allocation group's inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgInodes {
    /// Allocation group.
    pub ag: u32,
    /// Inodes allocated, used or not.
    pub count: u32,
    /// Of those, not in use.
    pub free: u32,
    /// Root block of the btree, in the group.
    pub(super) root: u32,
    /// Levels of the btree.
    pub(super) levels: u32,
}

/// As many as 64 inodes with numbers and places in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeChunk {
    /// Device offset of slot 0.
    pub device_offset: u64,
    /// Inode number of slot 0.
    pub first_inode: u64,
    /// Bit i: inode `first_inode + i` is in use.
    pub used: u64,
}

impl InodeChunk {
    /// Device offset and length of the slots from the first used to the last, which are never holes
    /// at both ends; `None` if no inode is in use. This is what [`Xfs::chunk_inodes`] wants to see.
    pub fn device_range(&self, inode_bytes: u16) -> Option<(u64, usize)> {
        if self.used == 0 {
            return None;
        }
        let first = self.used.trailing_zeros();
        let end = u64::BITS - self.used.leading_zeros();
        let start = self.device_offset + u64::from(first) * u64::from(inode_bytes);
        Some((start, (end - first) as usize * usize::from(inode_bytes)))
    }
}

/// Reads the header of allocation group `ag`.
pub(super) fn read_ag_inodes(xfs: &Xfs, source: &dyn ByteSource, ag: u32) -> Result<AgInodes> {
    let superblock = xfs.superblock();
    let start = superblock
        .ag_block_offset(ag, 0)
        .ok_or_else(|| XfsError::damaged(AGI_STRUCTURE, 0, "no such allocation group"))?;
    let offset = start + AGI_SECTOR * u64::from(superblock.sector_bytes);
    let mut sector = Vec::new();
    read_into(
        source,
        offset,
        superblock.sector_bytes as usize,
        &mut sector,
    )?;
    parse_ag_inodes(xfs, &sector, offset, ag)
}

/// Checks and decodes the sector of an allocation group's inode header.
pub(super) fn parse_ag_inodes(xfs: &Xfs, sector: &[u8], offset: u64, ag: u32) -> Result<AgInodes> {
    let superblock = xfs.superblock();
    let damaged = |fault| Err(XfsError::damaged(AGI_STRUCTURE, offset, fault));
    if sector.len() < AGI_BYTES || &sector[..4] != b"XAGI" || be32(sector, 4) != 1 {
        return damaged("wrong magic");
    }
    if superblock.has_checksums {
        if !crc_matches(sector, AGI_CRC_AT) {
            return damaged("checksum does not match");
        }
        if sector[296..312] != superblock.metadata_uuid {
            return damaged("belongs to another file system");
        }
    }
    let found = AgInodes {
        ag,
        count: be32(sector, 16),
        root: be32(sector, 20),
        levels: be32(sector, 24),
        free: be32(sector, 28),
    };
    let len_blocks = superblock.ag_len_blocks(ag);
    if be32(sector, 8) != ag || be32(sector, 12) != len_blocks {
        return damaged("belongs to another allocation group");
    }
    if found.levels == 0 || found.levels as usize > LEVELS_MAX || found.root >= len_blocks {
        return damaged("impossible btree root");
    }
    if u64::from(found.count) > u64::from(len_blocks) << superblock.inodes_per_block_log
        || found.free > found.count
    {
        return damaged("impossible number of inodes");
    }
    Ok(found)
}

/// The inode chunks of one allocation group in order of address, from [`Xfs::inode_chunks`].
///
/// An error stands for chunks that could not be found; the iterator goes on behind them. At the end
/// the numbers of inodes are compared with the header's; on a device that is being written they may
/// differ although nothing is wrong, because the header was read first.
pub struct InodeChunks<'a> {
    xfs: &'a Xfs,
    source: &'a dyn ByteSource,
    header: AgInodes,
    walk: BtreeWalk,
    /// The next chunk begins at or behind this inode of the group.
    next_ag_inode: u64,
    found: u64,
    found_free: u64,
    complete: bool,
    done: bool,
}

impl<'a> InodeChunks<'a> {
    pub(super) fn new(
        xfs: &'a Xfs,
        source: &'a dyn ByteSource,
        ag: u32,
    ) -> Result<InodeChunks<'a>> {
        let header = read_ag_inodes(xfs, source, ag)?;
        let blocks_max = u64::from(xfs.superblock().ag_len_blocks(ag));
        let levels = header.levels as usize;
        let walk = BtreeWalk::from_block(
            xfs,
            source,
            Tree::Inode { ag },
            u64::from(header.root),
            levels,
            blocks_max,
        )?;
        Ok(InodeChunks {
            xfs,
            source,
            header,
            walk,
            next_ag_inode: 0,
            found: 0,
            found_free: 0,
            complete: true,
            done: false,
        })
    }

    /// Header of the group, with the number of inodes to expect.
    pub fn header(&self) -> &AgInodes {
        &self.header
    }

    /// The next chunk, and which of its inodes are there, in use or not.
    pub(super) fn next_present(&mut self) -> Option<Result<(InodeChunk, u64)>> {
        if self.done {
            return None;
        }
        let Some(record) = self.walk.next_record(self.xfs, self.source) else {
            self.done = true;
            return self.totals_agree().err().map(Err);
        };
        let chunk = record.and_then(|record| self.decode(&record));
        self.complete &= chunk.is_ok();
        Some(chunk)
    }

    fn decode(&mut self, record: &[u8; RECORD_BYTES]) -> Result<(InodeChunk, u64)> {
        let decoded = decode_record(self.xfs, self.header.ag, record)?;
        if decoded.first_ag_inode < self.next_ag_inode {
            return Err(record_damaged(
                decoded.chunk.device_offset,
                "overlaps the chunk before it",
            ));
        }
        self.next_ag_inode = decoded.first_ag_inode + u64::from(CHUNK_INODES);
        self.found += u64::from(decoded.present.count_ones());
        self.found_free += u64::from(decoded.free);
        Ok((decoded.chunk, decoded.present))
    }

    fn totals_agree(&self) -> Result<()> {
        let (expected, expected_free) = (u64::from(self.header.count), u64::from(self.header.free));
        if !self.complete || (self.found == expected && self.found_free == expected_free) {
            return Ok(());
        }
        Err(XfsError::Incomplete {
            ag: self.header.ag,
            expected,
            expected_free,
            found: self.found,
            found_free: self.found_free,
        })
    }
}

impl Iterator for InodeChunks<'_> {
    type Item = Result<InodeChunk>;

    fn next(&mut self) -> Option<Result<InodeChunk>> {
        let next = self.next_present()?;
        Some(next.map(|(chunk, _)| chunk))
    }
}

/// One record of the inode btree.
struct ChunkRecord {
    chunk: InodeChunk,
    first_ag_inode: u64,
    /// Bit i: inode i of the chunk is there.
    present: u64,
    free: u32,
}

fn decode_record(xfs: &Xfs, ag: u32, record: &[u8; RECORD_BYTES]) -> Result<ChunkRecord> {
    let superblock = xfs.superblock();
    let first_ag_inode = u64::from(be32(record, 0));
    let first_inode = superblock.first_inode_of(ag) + first_ag_inode;
    let (holes, count, free) = if superblock.has_sparse_inodes {
        (
            be16(record, 4),
            Some(u32::from(record[6])),
            u32::from(record[7]),
        )
    } else {
        (0, None, be32(record, 4))
    };
    let free_mask = be64(record, 8);
    let present_mask = present_mask(holes);
    let alignment = CHUNK_INODES.min(1 << superblock.inodes_per_block_log);
    let last_in_ag = first_ag_inode + u64::from(CHUNK_INODES) - 1;
    let (Some(device_offset), Some(_)) = (
        superblock.inode_offset(first_inode),
        superblock.inode_offset(superblock.first_inode_of(ag) + last_in_ag),
    ) else {
        return Err(record_damaged(0, "lies outside of its allocation group"));
    };
    let fault = if last_in_ag >> (superblock.ag_blocks_log + superblock.inodes_per_block_log) != 0 {
        "lies outside of its allocation group"
    } else if first_ag_inode % u64::from(alignment) != 0 {
        "is not aligned"
    } else if count.is_some_and(|count| count != present_mask.count_ones()) {
        "counts other inodes than its mask"
    } else if free != (free_mask & present_mask).count_ones() {
        "counts other free inodes than its mask"
    } else {
        let chunk = InodeChunk {
            device_offset,
            first_inode,
            used: present_mask & !free_mask,
        };
        return Ok(ChunkRecord {
            chunk,
            first_ag_inode,
            present: present_mask,
            free,
        });
    };
    Err(record_damaged(device_offset, fault))
}

/// Decodes a record and forgets it, for fuzzing.
pub(super) fn check_record(xfs: &Xfs, record: &[u8; RECORD_BYTES]) {
    let _ = decode_record(xfs, 0, record);
}

/// One bit an inode from one bit a group of four.
fn present_mask(holes: u16) -> u64 {
    let mut mask = u64::MAX;
    for bit in 0..16 {
        if holes >> bit & 1 != 0 {
            mask &= !(0xf << (bit * HOLE_INODES));
        }
    }
    mask
}

fn record_damaged(offset: u64, fault: &'static str) -> XfsError {
    XfsError::damaged("inode chunk", offset, fault)
}
