//! Where a fork's bytes lie: extents from the inode itself or from its btree, one after another.

use super::Xfs;
use super::btree::{BtreeWalk, RECORD_BYTES};
use super::bytes::be64;
use super::error::{Result, XfsError};
use super::inode::{DiskInode, EXTENT_BYTES, ForkFormat, ForkKind};
use crate::{ByteSource, MappedExtent};

const STRUCTURE: &str = "extent of inode";
/// No file reaches further.
const FILE_END_MAX: u64 = 1 << 63;

/// The extents of one fork in order of file offset, from [`Xfs::extents`]. Ends after the first
/// error.
///
/// Extents may reach past the end of the file (preallocation): the caller cuts at the size.
pub struct ForkExtents<'a> {
    xfs: &'a Xfs,
    source: &'a dyn ByteSource,
    inode_offset: u64,
    records: Records<'a>,
    /// Extents still to come by the inode's own count.
    left: u64,
    /// The next extent begins at or behind this byte of the file.
    file_offset_min: u64,
}

enum Records<'a> {
    List(&'a [u8]),
    // Boxed: most files have a list, and it is moved often.
    Tree(Box<BtreeWalk>),
}

impl<'a> ForkExtents<'a> {
    pub(super) fn new(
        xfs: &'a Xfs,
        source: &'a dyn ByteSource,
        inode: &DiskInode<'a>,
        kind: ForkKind,
    ) -> Result<ForkExtents<'a>> {
        if kind == ForkKind::Data && inode.is_realtime() {
            return Err(XfsError::unsupported("content on the realtime device"));
        }
        let fork = inode.fork(kind);
        let records = match fork.format {
            ForkFormat::None | ForkFormat::Local => Records::List(&[]),
            ForkFormat::Extents => {
                Records::List(&fork.bytes[..fork.extent_count as usize * EXTENT_BYTES])
            }
            ForkFormat::Btree => Records::Tree(Box::new(BtreeWalk::from_inode_root(
                fork.bytes,
                inode.number,
                inode.device_offset,
                inode.blocks.min(xfs.superblock().blocks),
            )?)),
        };
        Ok(ForkExtents {
            xfs,
            source,
            inode_offset: inode.device_offset,
            records,
            left: fork.extent_count,
            file_offset_min: 0,
        })
    }

    fn next_record(&mut self) -> Option<Result<[u8; RECORD_BYTES]>> {
        match &mut self.records {
            Records::List(bytes) => {
                let (record, rest) = bytes.split_first_chunk::<RECORD_BYTES>()?;
                *bytes = rest;
                Some(Ok(*record))
            }
            Records::Tree(walk) => walk.next_record(self.xfs, self.source),
        }
    }

    fn decode(&mut self, record: &[u8; RECORD_BYTES]) -> Result<MappedExtent> {
        let superblock = self.xfs.superblock();
        let extent = DiskExtent::decode(record);
        let block_bytes = u64::from(superblock.block_bytes);
        let file_offset = extent.file_block.checked_mul(block_bytes);
        let len = extent.count * block_bytes;
        let end = file_offset
            .and_then(|offset| offset.checked_add(len))
            .filter(|&end| end <= FILE_END_MAX);
        let fault = if extent.count == 0 {
            "is empty"
        } else if self.left == 0 {
            "is one more than counted"
        } else if let (Some(file_offset), Some(end)) = (file_offset, end) {
            if file_offset < self.file_offset_min {
                "overlaps the one before it"
            } else if let Some(device_offset) = superblock.block_offset(extent.block, extent.count)
            {
                self.left -= 1;
                self.file_offset_min = end;
                return Ok(MappedExtent {
                    file_offset,
                    device_offset,
                    len,
                    unwritten: extent.unwritten,
                });
            } else {
                "points outside of its allocation group"
            }
        } else {
            "lies behind the largest file offset"
        };
        Err(self.damaged(fault))
    }

    fn damaged(&self, fault: &'static str) -> XfsError {
        XfsError::damaged(STRUCTURE, self.inode_offset, fault)
    }
}

impl Iterator for ForkExtents<'_> {
    type Item = Result<MappedExtent>;

    fn next(&mut self) -> Option<Result<MappedExtent>> {
        let extent = match self.next_record() {
            Some(record) => record.and_then(|record| self.decode(&record)),
            None if self.left == 0 => return None,
            None => Err(self.damaged("is missing")),
        };
        if extent.is_err() {
            self.left = 0;
            self.records = Records::List(&[]);
        }
        Some(extent)
    }
}

/// An extent record, unpacked and not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DiskExtent {
    file_block: u64,
    block: u64,
    count: u64,
    unwritten: bool,
}

impl DiskExtent {
    /// 1 bit unwritten, 54 bits file block, 52 bits block, 21 bits count.
    fn decode(record: &[u8; RECORD_BYTES]) -> DiskExtent {
        let (high, low) = (be64(record, 0), be64(record, 8));
        DiskExtent {
            unwritten: high >> 63 != 0,
            file_block: (high & (u64::MAX >> 1)) >> 9,
            block: (high & 0x1ff) << 43 | low >> 21,
            count: low & 0x1f_ffff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_extent_at_the_start_is_damage() {
        let xfs = super::super::fuzz::example(false);
        let device = Vec::new();
        let mut extents = ForkExtents {
            xfs: &xfs,
            source: &device,
            inode_offset: 0,
            records: Records::List(&[0; RECORD_BYTES]),
            left: 1,
            file_offset_min: 0,
        };
        assert!(matches!(
            extents.next(),
            Some(Err(XfsError::Damaged {
                fault: "is empty",
                ..
            }))
        ));
        assert!(extents.next().is_none(), "goes on after an error");
    }

    #[test]
    fn an_extent_record_unpacks_to_its_four_fields() {
        let high = 1u64 << 63 | 0x2a_bcde_f012_3456 << 9 | 0x155;
        let low = 0x7_ffff_fff1u64 << 21 | 0x1f_fffe;
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&high.to_be_bytes());
        record[8..].copy_from_slice(&low.to_be_bytes());
        let extent = DiskExtent::decode(&record);
        assert_eq!(
            extent,
            DiskExtent {
                unwritten: true,
                file_block: 0x2a_bcde_f012_3456,
                block: 0x155 << 43 | 0x7_ffff_fff1,
                count: 0x1f_fffe
            }
        );
    }
}
