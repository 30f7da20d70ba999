//! From file offsets to device offsets: extent trees of ext4, pointer blocks of ext2 and ext3.
//!
//! Extents come out in file order, joined where they touch in both spaces, cut at the end of the
//! file. A tree that goes backwards, overlaps, points outside or returns to itself ends with a
//! [`Damage`], never with a wrong or endless answer: depth only falls in an extent tree and its
//! keys only rise, and a pointer block may be visited once.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use super::bytes::{join_u64, u16_at, u32_at};
use super::checksum::{crc32c, inode_seed};
use super::error::{Damage, Structure};
use super::inodes::{FLAG_EXTENTS, RawInode};
use super::limits::EXTENT_DEPTH_MAX;
use super::superblock::Superblock;
use crate::{ByteSource, MappedExtent};

/// What a walk over the mapping of a file meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping<'a> {
    /// A run of the file's bytes.
    Extent(MappedExtent),
    /// A tree node or pointer block that the following extents depend on. Keep (a hash of) it to
    /// verify later that the mapping has not changed.
    Node {
        /// Where it lies.
        device_offset: u64,
        /// Its bytes, one block.
        bytes: &'a [u8],
    },
}

/// Receives the mapping; `Break` ends the walk early without an error.
pub type MappingVisitor<'v> = dyn FnMut(Mapping<'_>) -> ControlFlow<()> + 'v;

const EXTENT_MAGIC: u16 = 0xF30A;
/// Header, index entry and extent are 12 bytes each.
const ENTRY_BYTES: usize = 12;
/// Lengths above mean unwritten.
const WRITTEN_BLOCKS_MAX: u32 = 0x8000;
const DIRECT_POINTERS: u64 = 12;

/// Why a walk stopped before the end.
enum Stop {
    Damage(Damage),
    Visitor,
}

impl From<Damage> for Stop {
    fn from(damage: Damage) -> Self {
        Stop::Damage(damage)
    }
}

/// Walks the mapping of an inode. Inodes without mapped content have none.
pub(super) fn walk(
    source: &dyn ByteSource,
    sb: &Superblock,
    raw: &RawInode<'_>,
    visitor: &mut MappingVisitor<'_>,
) -> Result<(), Damage> {
    if !raw.is_mapped(sb) {
        return Ok(());
    }
    let mut walk = Walk {
        source,
        sb,
        seed: inode_seed(sb.checksum_seed, raw.number_u32(), raw.generation()),
        end_bytes: raw.mapped_size(sb),
        pending: None,
        visitor,
    };
    let done = if raw.flags() & FLAG_EXTENTS != 0 {
        walk.extent_node(raw.block_map(), None, 0..1 << 32)
    } else {
        walk.pointers(raw.block_map())
    };
    match done.and_then(|()| walk.flush()) {
        Ok(()) | Err(Stop::Visitor) => Ok(()),
        Err(Stop::Damage(damage)) => Err(damage),
    }
}

struct Walk<'a, 'v> {
    source: &'a dyn ByteSource,
    sb: &'a Superblock,
    seed: u32,
    end_bytes: u64,
    /// Last extent, held back because the next one may continue it.
    pending: Option<MappedExtent>,
    visitor: &'a mut MappingVisitor<'v>,
}

impl Walk<'_, '_> {
    /// `range` is what the parent says this node covers, in file blocks; `depth` is known except in
    /// the root.
    fn extent_node(
        &mut self,
        node: &[u8],
        depth: Option<u16>,
        mut range: Range<u64>,
    ) -> Result<(), Stop> {
        let (entries, depth) = check_extent_header(node, depth)?;
        for i in 0..entries {
            let at = ENTRY_BYTES * (i + 1);
            let entry = node
                .get(at..at + ENTRY_BYTES)
                .ok_or(Damage::Header(Structure::ExtentNode))?;
            let first = u64::from(u32_at(entry, 0));
            if !range.contains(&first) {
                return Err(Damage::ExtentOrder(first).into());
            }
            if first * u64::from(self.sb.block_bytes) >= self.end_bytes {
                return Ok(());
            }
            if depth == 0 {
                range.start = self.leaf_entry(entry, &range)?;
                continue;
            }
            let next = node
                .get(at + ENTRY_BYTES..at + 2 * ENTRY_BYTES)
                .filter(|_| i + 1 < entries);
            let end = next.map_or(range.end, |next| u64::from(u32_at(next, 0)));
            if end <= first || end > range.end {
                return Err(Damage::ExtentOrder(first).into());
            }
            let block = join_u64(u16_at(entry, 8).into(), u32_at(entry, 4));
            let child = self.read_node(block)?;
            self.check_node_checksum(&child)?;
            self.extent_node(&child, Some(depth - 1), first..end)?;
            range.start = end;
        }
        Ok(())
    }

    /// Emits one extent; answers the first file block that may follow.
    fn leaf_entry(&mut self, entry: &[u8], range: &Range<u64>) -> Result<u64, Stop> {
        let first = u64::from(u32_at(entry, 0));
        let stored_blocks = u32::from(u16_at(entry, 4));
        let unwritten = stored_blocks > WRITTEN_BLOCKS_MAX;
        let blocks = u64::from(if unwritten {
            stored_blocks - WRITTEN_BLOCKS_MAX
        } else {
            stored_blocks
        });
        if blocks == 0 || first + blocks > range.end {
            return Err(Damage::ExtentOrder(first).into());
        }
        self.run(
            first,
            join_u64(u16_at(entry, 6).into(), u32_at(entry, 8)),
            blocks,
            unwritten,
        )?;
        Ok(first + blocks)
    }

    fn check_node_checksum(&self, node: &[u8]) -> Result<(), Damage> {
        if !self.sb.has_checksums() {
            return Ok(());
        }
        let tail = ENTRY_BYTES * (usize::from(u16_at(node, 4)) + 1);
        let covered = node.get(..tail).filter(|_| tail + 4 <= node.len());
        let covered = covered.ok_or(Damage::Header(Structure::ExtentNode))?;
        let matches = crc32c(self.seed, covered) == u32_at(node, tail);
        if matches {
            Ok(())
        } else {
            Err(Damage::Checksum(Structure::ExtentNode))
        }
    }

    /// The classic map: direct pointers, then three trees of pointer blocks of rising height.
    fn pointers(&mut self, map: &[u8]) -> Result<(), Stop> {
        let mut visited = HashSet::new();
        for i in 0..DIRECT_POINTERS {
            self.pointer(u32_at(map, 4 * i as usize), 0, i, &mut visited)?;
        }
        let per_block = u64::from(self.sb.block_bytes / 4);
        let mut first = DIRECT_POINTERS;
        for height in 1..=3 {
            let pointer = u32_at(map, 4 * (DIRECT_POINTERS as usize + height as usize - 1));
            self.pointer(pointer, height, first, &mut visited)?;
            first += per_block.pow(height);
        }
        Ok(())
    }

    /// A pointer to a data block (`height` 0) or to a block of pointers; `first` is the first file
    /// block below it.
    fn pointer(
        &mut self,
        block: u32,
        height: u32,
        first: u64,
        visited: &mut HashSet<u32>,
    ) -> Result<(), Stop> {
        if block == 0 || first * u64::from(self.sb.block_bytes) >= self.end_bytes {
            return Ok(());
        }
        if height == 0 {
            return self.run(first, block.into(), 1, false);
        }
        // At most 1/256 of the file's blocks: 8 MiB for a file of 2^32 bytes in 1 KiB blocks, the
        // densest case of use.
        if !visited.insert(block) {
            return Err(Damage::Cycle(block.into()).into());
        }
        let node = self.read_node(block.into())?;
        let below = u64::from(self.sb.block_bytes / 4).pow(height - 1);
        for (i, pointer) in (0..).zip(node.chunks_exact(4)) {
            self.pointer(u32_at(pointer, 0), height - 1, first + i * below, visited)?;
        }
        Ok(())
    }

    fn read_node(&mut self, block: u64) -> Result<Vec<u8>, Stop> {
        let offset = self
            .sb
            .block_offset(block)
            .ok_or(Damage::BlockOutside(block))?;
        let mut bytes = vec![0; self.sb.block_bytes as usize];
        self.source
            .read_exact_at(offset, &mut bytes)
            .map_err(|_| Damage::Unreadable)?;
        match (self.visitor)(Mapping::Node {
            device_offset: offset,
            bytes: &bytes,
        }) {
            ControlFlow::Continue(()) => Ok(bytes),
            ControlFlow::Break(()) => Err(Stop::Visitor),
        }
    }

    /// A run of blocks, checked against the device, cut at the end of the file and joined with the
    /// run before.
    fn run(&mut self, first: u64, block: u64, blocks: u64, unwritten: bool) -> Result<(), Stop> {
        let device_offset = self
            .sb
            .run_offset(block, blocks)
            .ok_or(Damage::BlockOutside(block))?;
        let file_offset = first * u64::from(self.sb.block_bytes);
        let len = (blocks * u64::from(self.sb.block_bytes))
            .min(self.end_bytes.saturating_sub(file_offset));
        if len == 0 {
            return Ok(());
        }
        match &mut self.pending {
            Some(last)
                if last.unwritten == unwritten
                    && last.file_offset + last.len == file_offset
                    && last.device_offset + last.len == device_offset =>
            {
                last.len += len;
                Ok(())
            }
            _ => {
                self.flush()?;
                self.pending = Some(MappedExtent {
                    file_offset,
                    device_offset,
                    len,
                    unwritten,
                });
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        match self
            .pending
            .take()
            .map(|extent| (self.visitor)(Mapping::Extent(extent)))
        {
            None | Some(ControlFlow::Continue(())) => Ok(()),
            Some(ControlFlow::Break(())) => Err(Stop::Visitor),
        }
    }
}

/// Number of entries and depth of a node, both possible.
fn check_extent_header(node: &[u8], expected_depth: Option<u16>) -> Result<(usize, u16), Damage> {
    let (entries, max, depth) = (u16_at(node, 2), u16_at(node, 4), u16_at(node, 6));
    let fits = usize::from(max) < node.len() / ENTRY_BYTES && entries <= max && max > 0;
    let depth_right =
        expected_depth.map_or(depth <= EXTENT_DEPTH_MAX, |expected| depth == expected);
    // An empty index node would let many keys share one child.
    if u16_at(node, 0) != EXTENT_MAGIC || !fits || !depth_right || (entries == 0 && depth > 0) {
        return Err(Damage::Header(Structure::ExtentNode));
    }
    Ok((entries.into(), depth))
}

#[cfg(test)]
mod tests {
    use super::super::superblock::tests::valid_bytes;
    use super::*;

    /// A file of `size` bytes whose extent tree lies in the inode.
    fn file(size: u32, extents: &[(u32, u16, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[..2].copy_from_slice(&0o100644_u16.to_le_bytes());
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        bytes[32..36].copy_from_slice(&FLAG_EXTENTS.to_le_bytes());
        bytes[40..48].copy_from_slice(&[0x0A, 0xF3, extents.len() as u8, 0, 4, 0, 0, 0]);
        for (i, (first, blocks, device)) in extents.iter().enumerate() {
            let entry = &mut bytes[52 + 12 * i..64 + 12 * i];
            entry[..4].copy_from_slice(&first.to_le_bytes());
            entry[4..6].copy_from_slice(&blocks.to_le_bytes());
            entry[8..12].copy_from_slice(&device.to_le_bytes());
        }
        bytes
    }

    fn extents(inode: &[u8]) -> Result<Vec<(u64, u64, u64, bool)>, Damage> {
        let sb = Superblock::parse(&valid_bytes()).unwrap();
        let mut found = Vec::new();
        walk(
            &vec![0; 1 << 20],
            &sb,
            &RawInode::new(12, inode).unwrap(),
            &mut |mapping| {
                if let Mapping::Extent(e) = mapping {
                    found.push((e.file_offset, e.device_offset, e.len, e.unwritten));
                }
                ControlFlow::Continue(())
            },
        )?;
        Ok(found)
    }

    #[test]
    fn touching_extents_are_joined_and_the_last_is_cut_at_the_end_of_the_file() {
        let inode = file(5000, &[(0, 2, 100), (2, 1, 102), (4, 3, 200)]);
        assert_eq!(
            extents(&inode),
            Ok(vec![(0, 102_400, 3072, false), (4096, 204_800, 904, false)])
        );
    }

    #[test]
    fn unwritten_extents_say_so_and_are_not_joined_with_written_ones() {
        let inode = file(4096, &[(0, 2, 100), (2, 0x8002, 102)]);
        assert_eq!(
            extents(&inode),
            Ok(vec![(0, 102_400, 2048, false), (2048, 104_448, 2048, true)])
        );
        let longest = file(u32::MAX, &[(0, 0x8000, 100)]);
        assert_eq!(extents(&longest), Err(Damage::BlockOutside(100)));
    }

    #[test]
    fn extents_beyond_the_end_of_the_file_are_not_content() {
        assert_eq!(
            extents(&file(1000, &[(0, 1, 100), (1, 5, 101)])),
            Ok(vec![(0, 102_400, 1000, false)])
        );
        assert_eq!(extents(&file(0, &[(0, 5, 100)])), Ok(vec![]));
    }

    #[test]
    fn disorder_overlap_emptiness_and_foreign_blocks_are_damage() {
        assert_eq!(
            extents(&file(9000, &[(4, 1, 100), (0, 1, 101)])),
            Err(Damage::ExtentOrder(0))
        );
        assert_eq!(
            extents(&file(9000, &[(0, 3, 100), (2, 1, 110)])),
            Err(Damage::ExtentOrder(2))
        );
        assert_eq!(
            extents(&file(9000, &[(0, 0, 100)])),
            Err(Damage::ExtentOrder(0))
        );
        assert_eq!(
            extents(&file(9000, &[(0, 1, 1024)])),
            Err(Damage::BlockOutside(1024))
        );
        assert_eq!(
            extents(&file(9000, &[(0, 2, 1023)])),
            Err(Damage::BlockOutside(1023))
        );
        assert_eq!(
            extents(&file(9000, &[(0, 1, 0)])),
            Err(Damage::BlockOutside(0))
        );
    }

    #[test]
    fn a_visitor_can_end_the_walk() {
        let sb = Superblock::parse(&valid_bytes()).unwrap();
        let inode = file(9000, &[(0, 1, 100), (2, 1, 110), (4, 1, 120)]);
        let mut seen = 0;
        let walked = walk(
            &vec![0; 1 << 20],
            &sb,
            &RawInode::new(12, &inode).unwrap(),
            &mut |_| {
                seen += 1;
                ControlFlow::Break(())
            },
        );
        assert_eq!((walked, seen), (Ok(()), 1));
    }
}
