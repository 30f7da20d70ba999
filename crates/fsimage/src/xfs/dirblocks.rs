//! Where a directory's blocks with names lie. A directory block may be several file system blocks,
//! and those may lie apart.

use super::Xfs;
use super::error::{Result, XfsError};
use super::extents::ForkExtents;
use super::inode::{DiskInode, ForkKind};
use crate::{ByteSource, MappedExtent};

/// Hash blocks begin here in a directory's address space; names end before.
const NAMES_END: u64 = 32 << 30;

/// A run of bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicePiece {
    pub device_offset: u64,
    pub len_bytes: u32,
}

/// One directory block to read: its pieces in order make the bytes for [`Xfs::parse_dir_block`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirBlock {
    /// Inode of the directory.
    pub directory: u64,
    /// Offset in the directory.
    pub file_offset: u64,
    /// First piece, nearly always the only one.
    pub first: DevicePiece,
    /// The others, where the block is scattered.
    pub others: Vec<DevicePiece>,
}

impl DirBlock {
    /// All pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = DevicePiece> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// The blocks of one directory in order of name offset, from [`Xfs::dir_blocks`]. Ends after the
/// first error.
pub struct DirBlocks<'a> {
    extents: ForkExtents<'a>,
    directory: u64,
    inode_offset: u64,
    size: u64,
    block_bytes: u64,
    /// What is left of the extent at hand.
    extent: Option<MappedExtent>,
    /// End of the last block in the directory.
    end: u64,
    done: bool,
}

impl<'a> DirBlocks<'a> {
    pub(super) fn new(
        xfs: &'a Xfs,
        source: &'a dyn ByteSource,
        inode: &DiskInode<'a>,
    ) -> Result<DirBlocks<'a>> {
        Ok(DirBlocks {
            extents: ForkExtents::new(xfs, source, inode, ForkKind::Data)?,
            directory: inode.number,
            inode_offset: inode.device_offset,
            size: inode.size,
            block_bytes: u64::from(xfs.superblock().dir_block_bytes),
            extent: None,
            end: 0,
            // A directory inside its inode has no blocks.
            done: inode.is_inline(),
        })
    }

    /// Takes at most `len_max` bytes of the mapping that comes next; `None` behind the last name.
    fn take(&mut self, len_max: u64) -> Result<Option<(u64, DevicePiece)>> {
        let extent = match self.extent.take() {
            Some(extent) => extent,
            None => match self.extents.next().transpose()? {
                Some(extent) if extent.file_offset < NAMES_END => extent,
                // The hash blocks: their extents are counted and checked, but lead nowhere.
                Some(_) => {
                    return self
                        .extents
                        .try_for_each(|extent| extent.map(drop))
                        .map(|()| None);
                }
                None => return Ok(None),
            },
        };
        if extent.unwritten {
            return Err(self.damaged("has an unwritten block"));
        }
        let len = extent.len.min(len_max);
        if len < extent.len {
            self.extent = Some(MappedExtent {
                file_offset: extent.file_offset + len,
                device_offset: extent.device_offset + len,
                len: extent.len - len,
                unwritten: false,
            });
        }
        let len_bytes = u32::try_from(len).expect("at most one directory block");
        Ok(Some((
            extent.file_offset,
            DevicePiece {
                device_offset: extent.device_offset,
                len_bytes,
            },
        )))
    }

    fn next_block(&mut self) -> Result<Option<DirBlock>> {
        let Some((file_offset, first)) = self.take(self.block_bytes)? else {
            if self.end != self.size {
                return Err(self.damaged("does not end with its last block"));
            }
            return Ok(None);
        };
        if file_offset % self.block_bytes != 0 {
            return Err(self.damaged("lacks the start of a block"));
        }
        let mut block = DirBlock {
            directory: self.directory,
            file_offset,
            first,
            others: Vec::new(),
        };
        let mut len = u64::from(first.len_bytes);
        while len < self.block_bytes {
            match self.take(self.block_bytes - len)? {
                Some((offset, piece)) if offset == file_offset + len => {
                    len += u64::from(piece.len_bytes);
                    block.others.push(piece);
                }
                _ => return Err(self.damaged("lacks a part of a block")),
            }
        }
        self.end = file_offset + len;
        Ok(Some(block))
    }

    fn damaged(&self, fault: &'static str) -> XfsError {
        XfsError::damaged("directory of inode", self.inode_offset, fault)
    }
}

impl Iterator for DirBlocks<'_> {
    type Item = Result<DirBlock>;

    fn next(&mut self) -> Option<Result<DirBlock>> {
        if self.done {
            return None;
        }
        let block = self.next_block().transpose();
        self.done = !matches!(block, Some(Ok(_)));
        block
    }
}

/// Reads all pieces of a block, one behind the other, into `buffer`.
pub(super) fn read_block(
    source: &dyn ByteSource,
    block: &DirBlock,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let len_bytes = block.pieces().map(|piece| piece.len_bytes as usize).sum();
    buffer.resize(len_bytes, 0);
    let mut at = 0;
    for piece in block.pieces() {
        let end = at + piece.len_bytes as usize;
        source
            .read_exact_at(piece.device_offset, &mut buffer[at..end])
            .map_err(|source| XfsError::Read {
                offset: piece.device_offset,
                len_bytes: piece.len_bytes as usize,
                source,
            })?;
        at = end;
    }
    Ok(())
}
