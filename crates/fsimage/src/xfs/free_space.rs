//! Which blocks are in use, by the free-space btrees of the allocation groups.
//!
//! A group is believed if the stretches in its btree, in order, add up to the numbers of its header
//! and hold nothing that is known to be in use; else all of it is in use. So is everything behind
//! the last group. The file system is refused where its log has work to do: blocks that the log
//! allocates are free in the btrees on the device, and to know them is to recover the log.

use std::ops::Range;
use std::sync::Arc;

use super::Xfs;
use super::btree::LEVELS_MAX;
use super::bytes::{SEAL_BNOBT, be16, be32, crc_matches, read_into};
use super::error::{Result, XfsError};
use super::log::LogState;
use crate::ByteSource;
use crate::in_use::{InUse, PORTION_RANGES_MAX, UseDoubt, UsePortion, push_range};

const STRUCTURE: &str = "free space header of allocation group";
const MAGIC: &[u8] = b"XAGF";
const HEADER_SECTOR: u64 = 1;
/// Superblock, free space, inodes and free list have a sector each.
const HEADER_SECTORS: u64 = 4;
const CRC_AT: usize = 216;
const VERSION: u32 = 1;
const RECORD_BYTES: usize = 8;
const NODE_KEY_BYTES: usize = 8;
const NODE_POINTER_BYTES: usize = 4;
const NO_BLOCK: u32 = u32::MAX;
/// Free inodes, reverse mappings, shared blocks, counts in btrees of inodes.
pub(super) const RO_COMPAT_KNOWN: u32 = 0xf;

/// Free stretches of one group that are held, 8 bytes each. Where there are more, the shortest are
/// taken for in use.
const FREE_MAX: usize = PORTION_RANGES_MAX / 2;

/// The free-space btrees of a file system.
pub struct FreeSpace {
    xfs: Xfs,
    source: Arc<dyn ByteSource>,
}

/// Header of an allocation group's free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgFree {
    root: u32,
    levels: u32,
    free: u32,
    longest: u32,
}

/// A free stretch, in blocks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FreeRun {
    start: u32,
    count: u32,
}

impl FreeRun {
    fn end(self) -> u64 {
        u64::from(self.start) + u64::from(self.count)
    }
}

impl FreeSpace {
    /// Opens the file system at the start of a source.
    pub fn open(source: Arc<dyn ByteSource>) -> std::result::Result<FreeSpace, UseDoubt> {
        let xfs = Xfs::open(source.as_ref()).map_err(UseDoubt::damage)?;
        let log = xfs.log_state(source.as_ref()).map_err(UseDoubt::damage)?;
        let why = if log == LogState::Dirty {
            "its log has work to do (mount it once, or freeze it before it is copied)"
        } else if log == LogState::External {
            "its log is on another device"
        } else if xfs.superblock.ro_compat & !RO_COMPAT_KNOWN != 0 {
            "it has features of which it is not known what they change"
        } else {
            return Ok(FreeSpace { xfs, source });
        };
        Err(UseDoubt::Because(why))
    }

    pub fn xfs(&self) -> &Xfs {
        &self.xfs
    }

    /// The free stretches of a group, in order, without some if there are very many.
    fn free_runs(&self, ag: u32) -> Result<Vec<FreeRun>> {
        let header = read_header(&self.xfs, self.source.as_ref(), ag)?;
        let (mut sum, mut longest) = (0, 0);
        let mut kept = LongestRuns::new();
        walk(&self.xfs, self.source.as_ref(), ag, &header, &mut |run| {
            sum += u64::from(run.count);
            longest = longest.max(run.count);
            kept.push(run);
        })?;
        let offset = header_offset(&self.xfs, ag);
        if sum != u64::from(header.free) || longest != header.longest {
            return Err(XfsError::damaged(
                STRUCTURE,
                offset,
                "counts other free blocks than its btree",
            ));
        }
        for known in self.known_used(ag, &header) {
            let at = kept.runs.partition_point(|run| run.end() <= known.start);
            let free = kept.runs.get(at);
            if free.is_some_and(|run| u64::from(run.start) < known.end) {
                return Err(XfsError::damaged(
                    STRUCTURE,
                    offset,
                    "has blocks as free that are in use",
                ));
            }
        }
        Ok(kept.runs)
    }

    /// Blocks of a group that cannot be free: headers, root, log.
    fn known_used(&self, ag: u32, header: &AgFree) -> [Range<u64>; 3] {
        let superblock = &self.xfs.superblock;
        let headers = HEADER_SECTORS * u64::from(superblock.sector_bytes);
        let root = u64::from(header.root);
        let log_start = superblock.log_start_block;
        let log = match log_start >> superblock.ag_blocks_log == u64::from(ag) && log_start != 0 {
            true => {
                let start = log_start & ((1 << superblock.ag_blocks_log) - 1);
                start..start + u64::from(superblock.log_blocks)
            }
            false => 0..0,
        };
        [
            0..headers.div_ceil(u64::from(superblock.block_bytes)),
            root..root + 1,
            log,
        ]
    }
}

impl InUse for FreeSpace {
    fn portion(&mut self, at: u64) -> UsePortion {
        let superblock = &self.xfs.superblock;
        let block_bytes = u64::from(superblock.block_bytes);
        let ag_bytes = u64::from(superblock.ag_blocks) * block_bytes;
        let fs_end = superblock.blocks * block_bytes;
        if at >= fs_end {
            return UsePortion::whole(at..self.source.len_bytes(), None);
        }
        // Less than ag_count, which is a u32.
        let ag = (at / ag_bytes) as u32;
        let start = u64::from(ag) * ag_bytes;
        let end = (start + ag_bytes).min(fs_end);
        match self.free_runs(ag) {
            Ok(runs) => {
                let mut used = Vec::new();
                let mut from = at;
                for run in runs {
                    push_range(&mut used, from..start + u64::from(run.start) * block_bytes);
                    from = from.max(start + run.end() * block_bytes);
                }
                push_range(&mut used, from..end);
                UsePortion {
                    end,
                    used,
                    doubt: None,
                }
            }
            Err(error) => UsePortion::whole(at..end, Some(UseDoubt::damage(error))),
        }
    }
}

/// As many runs as are held, without those shorter than a bound that rises as they become too many.
struct LongestRuns {
    runs: Vec<FreeRun>,
    count_min: u32,
}

impl LongestRuns {
    fn new() -> LongestRuns {
        LongestRuns {
            runs: Vec::new(),
            count_min: 1,
        }
    }

    fn push(&mut self, run: FreeRun) {
        while self.runs.len() >= FREE_MAX {
            self.count_min = self.count_min.saturating_mul(2);
            let count_min = self.count_min;
            self.runs.retain(|run| run.count >= count_min);
            if count_min == u32::MAX {
                self.runs.clear();
            }
        }
        if run.count >= self.count_min {
            self.runs.push(run);
        }
    }
}

fn header_offset(xfs: &Xfs, ag: u32) -> u64 {
    let start = xfs.superblock.ag_block_offset(ag, 0).unwrap_or(0);
    start + HEADER_SECTOR * u64::from(xfs.superblock.sector_bytes)
}

fn read_header(xfs: &Xfs, source: &dyn ByteSource, ag: u32) -> Result<AgFree> {
    let offset = header_offset(xfs, ag);
    let mut sector = Vec::new();
    let len = xfs.superblock.sector_bytes as usize;
    read_into(source, offset, len, &mut sector)?;
    parse_header(xfs, &sector, offset, ag)
}

/// Checks and decodes the sector of a header.
pub(super) fn parse_header(xfs: &Xfs, sector: &[u8], offset: u64, ag: u32) -> Result<AgFree> {
    let superblock = &xfs.superblock;
    let damaged = |fault| Err(XfsError::damaged(STRUCTURE, offset, fault));
    if sector.len() < CRC_AT + 8 || &sector[..4] != MAGIC || be32(sector, 4) != VERSION {
        return damaged("wrong magic");
    }
    if superblock.has_checksums {
        if !crc_matches(sector, CRC_AT) {
            return damaged("checksum does not match");
        }
        if sector[64..80] != superblock.metadata_uuid {
            return damaged("belongs to another file system");
        }
    }
    let len_blocks = superblock.ag_len_blocks(ag);
    if be32(sector, 8) != ag || be32(sector, 12) != len_blocks {
        return damaged("belongs to another allocation group");
    }
    let found = AgFree {
        root: be32(sector, 16),
        levels: be32(sector, 28),
        free: be32(sector, 52),
        longest: be32(sector, 56),
    };
    if found.levels == 0 || found.levels as usize > LEVELS_MAX || found.root >= len_blocks {
        return damaged("impossible btree root");
    }
    Ok(found)
}

/// Down to the first leaf, then from leaf to leaf. Ends: levels fall, and starts of stretches rise.
fn walk(
    xfs: &Xfs,
    source: &dyn ByteSource,
    ag: u32,
    header: &AgFree,
    found: &mut dyn FnMut(FreeRun),
) -> Result<()> {
    let len_blocks = u64::from(xfs.superblock.ag_len_blocks(ag));
    let mut bytes = Vec::new();
    let mut block = header.root;
    for level in (1..header.levels).rev() {
        let node = read_block(xfs, source, ag, block, level, &mut bytes)?;
        let count_max = (bytes.len() - node.header_bytes) / (NODE_KEY_BYTES + NODE_POINTER_BYTES);
        if node.count == 0 || node.count > count_max {
            return node.damaged("impossible number of records");
        }
        block = be32(&bytes, node.header_bytes + count_max * NODE_KEY_BYTES);
    }
    let mut end = None;
    while block != NO_BLOCK {
        let leaf = read_block(xfs, source, ag, block, 0, &mut bytes)?;
        let records = bytes[leaf.header_bytes..].as_chunks::<RECORD_BYTES>().0;
        let is_root = header.levels == 1;
        if leaf.count > records.len() || (leaf.count == 0 && !is_root) {
            return leaf.damaged("impossible number of records");
        }
        for record in &records[..leaf.count] {
            let run = FreeRun {
                start: be32(record, 0),
                count: be32(record, 4),
            };
            // Neighbours would be one stretch.
            if end.is_some_and(|end| u64::from(run.start) <= end) {
                return leaf.damaged("stretches out of order");
            }
            if run.count == 0 || run.end() > len_blocks {
                return leaf.damaged("stretch outside of the allocation group");
            }
            end = Some(run.end());
            found(run);
        }
        if is_root && be32(&bytes, 12) != NO_BLOCK {
            return leaf.damaged("a root with a neighbour");
        }
        block = be32(&bytes, 12);
    }
    Ok(())
}

/// A block of the btree whose header was checked.
struct Block {
    header_bytes: usize,
    count: usize,
    device_offset: u64,
}

impl Block {
    fn damaged<T>(&self, fault: &'static str) -> Result<T> {
        Err(XfsError::damaged(
            SEAL_BNOBT.structure,
            self.device_offset,
            fault,
        ))
    }
}

fn read_block(
    xfs: &Xfs,
    source: &dyn ByteSource,
    ag: u32,
    block: u32,
    level: u32,
    bytes: &mut Vec<u8>,
) -> Result<Block> {
    let superblock = &xfs.superblock;
    let outside = || XfsError::damaged(SEAL_BNOBT.structure, 0, "outside of its allocation group");
    let device_offset = superblock.ag_block_offset(ag, block).ok_or_else(outside)?;
    read_into(
        source,
        device_offset,
        superblock.block_bytes as usize,
        bytes,
    )?;
    let (magic, header_bytes) = match superblock.has_checksums {
        true => (b"AB3B", SEAL_BNOBT.header_bytes),
        false => (b"ABTB", 16),
    };
    let found = Block {
        header_bytes,
        count: usize::from(be16(bytes, 6)),
        device_offset,
    };
    if &bytes[..4] != magic {
        return found.damaged("wrong magic");
    }
    if superblock.has_checksums {
        SEAL_BNOBT.check(xfs, bytes, device_offset, u64::from(ag))?;
    }
    if u32::from(be16(bytes, 4)) != level {
        return found.damaged("wrong level");
    }
    Ok(found)
}

/// A device that is one group, for fuzzing: header and btree.
pub(super) fn check_group(xfs: &Xfs, source: &dyn ByteSource) {
    if let Ok(header) = read_header(xfs, source, 0) {
        let mut end = 0;
        let _ = walk(xfs, source, 0, &header, &mut |run| {
            assert!(u64::from(run.start) >= end);
            end = run.end();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_free_stretches_the_longest_are_held() {
        let mut kept = LongestRuns::new();
        for number in 0..FREE_MAX as u32 * 3 {
            kept.push(FreeRun {
                start: number * 1024,
                count: 1 << (number % 10),
            });
        }
        assert!(kept.runs.len() <= FREE_MAX && kept.runs.len() > FREE_MAX / 4);
        assert!(kept.runs.iter().all(|run| run.count >= 128));
        assert!(
            kept.runs
                .windows(2)
                .all(|runs| runs[0].end() <= u64::from(runs[1].start))
        );
    }
}
