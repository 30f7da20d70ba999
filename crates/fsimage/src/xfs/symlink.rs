//! Targets of symbolic links that do not fit into the inode.

use super::Xfs;
use super::bytes::{SEAL_SYMLINK, be32, read_into};
use super::error::{Result, XfsError};
use super::extents::ForkExtents;
use super::inode::{DiskInode, ForkKind};
use crate::{ByteSource, FileKind};

const STRUCTURE: &str = "symbolic link";
const MAGIC: &[u8] = b"XSLM";
/// The longest target that XFS stores.
const TARGET_BYTES_MAX: u64 = 1024;

/// Puts the target of a symbolic link into `target`.
pub(super) fn read_target(
    xfs: &Xfs,
    source: &dyn ByteSource,
    inode: &DiskInode<'_>,
    target: &mut Vec<u8>,
) -> Result<()> {
    let damaged = |fault| XfsError::damaged(STRUCTURE, inode.device_offset, fault);
    target.clear();
    if inode.kind != FileKind::Symlink {
        return Err(damaged("is of another type"));
    }
    if inode.size > TARGET_BYTES_MAX {
        return Err(damaged("is too long"));
    }
    if inode.is_inline() {
        target.extend_from_slice(&inode.data.bytes[..inode.size as usize]);
    } else {
        read_remote(xfs, source, inode, target)?;
    }
    if target.contains(&0) {
        Err(damaged("holds a NUL"))
    } else {
        Ok(())
    }
}

/// Every extent is one buffer with one header, of which only the needed blocks count.
fn read_remote(
    xfs: &Xfs,
    source: &dyn ByteSource,
    inode: &DiskInode<'_>,
    target: &mut Vec<u8>,
) -> Result<()> {
    let superblock = xfs.superblock();
    let header_bytes = if superblock.has_checksums {
        SEAL_SYMLINK.header_bytes
    } else {
        0
    };
    let block_bytes = superblock.block_bytes as usize;
    let size = inode.size as usize;
    let mut bytes_left = size.div_ceil(block_bytes - header_bytes) * block_bytes;
    let mut buffer = Vec::new();
    for extent in ForkExtents::new(xfs, source, inode, ForkKind::Data)? {
        let extent = extent?;
        let damaged = |fault| XfsError::damaged(STRUCTURE, extent.device_offset, fault);
        let len = usize::try_from(extent.len)
            .unwrap_or(usize::MAX)
            .min(bytes_left);
        if len == 0 || target.len() == size {
            break;
        }
        if extent.unwritten {
            return Err(damaged("has an unwritten block"));
        }
        bytes_left -= len;
        read_into(source, extent.device_offset, len, &mut buffer)?;
        let part_len = (size - target.len()).min(len - header_bytes);
        if superblock.has_checksums {
            if &buffer[..4] != MAGIC {
                return Err(damaged("wrong magic"));
            }
            SEAL_SYMLINK.check(xfs, &buffer, extent.device_offset, inode.number)?;
            if be32(&buffer, 4) as usize != target.len() || be32(&buffer, 8) as usize != part_len {
                return Err(damaged("part tells another place"));
            }
        }
        target.extend_from_slice(&buffer[header_bytes..header_bytes + part_len]);
    }
    if target.len() == size {
        Ok(())
    } else {
        Err(XfsError::damaged(
            STRUCTURE,
            inode.device_offset,
            "lacks a part",
        ))
    }
}
