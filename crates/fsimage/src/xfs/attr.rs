//! Extended attributes of an inode: in the inode, in a tree of blocks, with values beside the names
//! or in blocks of their own.
//!
//! Every block of the fork is needed at most once, so blocks read are counted against those that
//! the fork maps: no arrangement of pointers makes this long. The order of the leaves in the tree
//! must be that of their chain.

use super::Xfs;
use super::acl;
use super::attr_block::{self, AttrBlock, Namespace, RawAttr, RawValue};
use super::bytes::{SEAL_ATTR_VALUE, be32, read_into};
use super::error::{Result, XfsError};
use super::extents::ForkExtents;
use super::inode::{DiskInode, ForkFormat, ForkKind};
use crate::{ByteSource, MappedExtent};

const STRUCTURE: &str = "attributes of inode";
const VALUE_MAGIC: &[u8] = b"XARM";
/// The kernel's own limit of a value.
const VALUE_BYTES_MAX: u32 = 64 << 10;
/// An attribute fork in more pieces is left to the kernel: 32 bytes each.
const FORK_EXTENTS_MAX: u64 = 1 << 17;

/// Hands every attribute to `visit` as full name and value.
pub(super) fn read_all(
    xfs: &Xfs,
    source: &dyn ByteSource,
    inode: &DiskInode<'_>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    let mut names = FullNames {
        name: Vec::new(),
        value: Vec::new(),
        visit,
    };
    if !inode.has_xattrs() {
        return Ok(());
    }
    if inode.attributes.format == ForkFormat::Local {
        return attr_block::short_form(inode.attributes.bytes, |attr| match attr.value {
            RawValue::Local(value) => names.emit(attr.namespace, attr.name, value),
            RawValue::Remote { .. } => Err("value outside of the inode"),
        })
        .map_err(|fault| XfsError::damaged(STRUCTURE, inode.device_offset, fault));
    }
    Fork::open(xfs, source, inode)?.read_tree(&mut names)
}

/// Puts names together and converts ACLs, in buffers that serve all attributes of an inode.
struct FullNames<'v> {
    name: Vec<u8>,
    value: Vec<u8>,
    visit: &'v mut dyn FnMut(&[u8], &[u8]),
}

impl FullNames<'_> {
    fn emit(
        &mut self,
        namespace: Namespace,
        name: &[u8],
        value: &[u8],
    ) -> std::result::Result<(), &'static str> {
        if namespace == Namespace::Root
            && let Some(full_name) = acl::xattr_name(name)
        {
            self.value.clear();
            acl::convert(value, &mut self.value)?;
            (self.visit)(full_name, &self.value);
            return Ok(());
        }
        self.name.clear();
        self.name.extend_from_slice(namespace.prefix());
        self.name.extend_from_slice(name);
        (self.visit)(&self.name, value);
        Ok(())
    }
}

/// An attribute fork made of blocks.
struct Fork<'a> {
    xfs: &'a Xfs,
    source: &'a dyn ByteSource,
    inode: u64,
    inode_offset: u64,
    extents: Vec<MappedExtent>,
    /// Blocks that may still be read.
    blocks_left: u64,
    value: Vec<u8>,
}

/// One level of nodes on the way to the leaf at hand.
struct NodeFrame {
    children: Vec<u32>,
    next: usize,
    level: u16,
}

impl<'a> Fork<'a> {
    fn open(xfs: &'a Xfs, source: &'a dyn ByteSource, inode: &DiskInode<'a>) -> Result<Fork<'a>> {
        if inode.attributes.extent_count > FORK_EXTENTS_MAX {
            return Err(XfsError::unsupported("attribute fork in very many pieces"));
        }
        let extents: Vec<MappedExtent> =
            ForkExtents::new(xfs, source, inode, ForkKind::Attributes)?.collect::<Result<_>>()?;
        let bytes: u64 = extents.iter().map(|extent| extent.len).sum();
        let blocks_left =
            (bytes / u64::from(xfs.superblock().block_bytes)).min(xfs.superblock().blocks);
        Ok(Fork {
            xfs,
            source,
            inode: inode.number,
            inode_offset: inode.device_offset,
            extents,
            blocks_left,
            value: Vec::new(),
        })
    }

    /// Visits the leaves from first to last.
    fn read_tree(mut self, names: &mut FullNames<'_>) -> Result<()> {
        let mut block = Vec::new();
        let mut path: Vec<NodeFrame> = Vec::new();
        let mut next = Some((0, None));
        // What the leaf before says comes next; nothing is known before the first.
        let mut next_leaf = None;
        while let Some((fork_block, level)) = next {
            let device_offset = self.read_blocks(fork_block, 1, &mut block)?.0;
            let damaged = |fault| XfsError::damaged(STRUCTURE, device_offset, fault);
            match attr_block::parse(self.xfs, &block, device_offset, self.inode)? {
                AttrBlock::Node(node) if level.is_none_or(|level| level == node.level) => {
                    path.push(NodeFrame {
                        children: node.children().collect(),
                        next: 0,
                        level: node.level,
                    });
                }
                AttrBlock::Leaf(leaf) if level.is_none_or(|level| level == 0) => {
                    if next_leaf.is_some_and(|next_leaf| next_leaf != fork_block) {
                        return Err(damaged("leaves out of order"));
                    }
                    next_leaf = Some(leaf.next);
                    for attr in leaf.attrs() {
                        self.emit(names, &attr.map_err(damaged)?, device_offset)?;
                    }
                }
                _ => return Err(damaged("wrong level")),
            }
            next = next_child(&mut path).map(|(child, level)| (child, Some(level)));
        }
        if next_leaf == Some(0) {
            Ok(())
        } else {
            Err(self.damaged("leaves that the tree does not reach"))
        }
    }

    fn emit(
        &mut self,
        names: &mut FullNames<'_>,
        attr: &RawAttr<'_>,
        leaf_offset: u64,
    ) -> Result<()> {
        let damaged = |fault| XfsError::damaged(STRUCTURE, leaf_offset, fault);
        match attr.value {
            RawValue::Local(value) => names
                .emit(attr.namespace, attr.name, value)
                .map_err(damaged),
            RawValue::Remote {
                first_block,
                len_bytes,
            } => {
                let mut value = std::mem::take(&mut self.value);
                self.read_value(first_block, len_bytes, &mut value)?;
                names
                    .emit(attr.namespace, attr.name, &value)
                    .map_err(damaged)?;
                self.value = value;
                Ok(())
            }
        }
    }

    /// Reads a value of `len_bytes` from blocks of the fork; with checksums each block has a
    /// header.
    fn read_value(&mut self, first_block: u32, len_bytes: u32, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        if len_bytes == 0 || len_bytes > VALUE_BYTES_MAX {
            return Err(self.damaged("impossible length of a value"));
        }
        let block_bytes = self.xfs.superblock().block_bytes as usize;
        let has_checksums = self.xfs.superblock().has_checksums;
        let header_bytes = if has_checksums {
            SEAL_ATTR_VALUE.header_bytes
        } else {
            0
        };
        let len = len_bytes as usize;
        let mut blocks_left = len.div_ceil(block_bytes - header_bytes) as u32;
        let mut fork_block = first_block;
        let mut buffer = Vec::new();
        while blocks_left > 0 {
            let (run_offset, run_blocks) =
                self.read_blocks(fork_block, blocks_left, &mut buffer)?;
            for (index, block) in buffer.chunks_exact(block_bytes).enumerate() {
                let part =
                    &block[header_bytes..(header_bytes + len - value.len()).min(block_bytes)];
                if has_checksums {
                    let device_offset = run_offset + (index * block_bytes) as u64;
                    self.check_value_block(block, device_offset, value.len(), part.len())?;
                }
                value.extend_from_slice(part);
            }
            blocks_left -= run_blocks;
            fork_block = fork_block.wrapping_add(run_blocks);
        }
        Ok(())
    }

    fn check_value_block(
        &self,
        block: &[u8],
        device_offset: u64,
        done: usize,
        part: usize,
    ) -> Result<()> {
        let damaged = |fault| {
            Err(XfsError::damaged(
                SEAL_ATTR_VALUE.structure,
                device_offset,
                fault,
            ))
        };
        if &block[..4] != VALUE_MAGIC {
            return damaged("wrong magic");
        }
        SEAL_ATTR_VALUE.check(self.xfs, block, device_offset, self.inode)?;
        if be32(block, 4) as usize != done || be32(block, 8) as usize != part {
            return damaged("tells another place");
        }
        Ok(())
    }

    /// Reads as many as `count` blocks that lie in one row; returns where on the device, and how
    /// many.
    fn read_blocks(
        &mut self,
        fork_block: u32,
        count: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(u64, u32)> {
        let block_bytes = u64::from(self.xfs.superblock().block_bytes);
        let file_offset = u64::from(fork_block) * block_bytes;
        let index = self
            .extents
            .partition_point(|extent| extent.file_offset + extent.len <= file_offset);
        let extent = match self.extents.get(index) {
            Some(extent) if extent.file_offset <= file_offset && !extent.unwritten => *extent,
            _ => return Err(self.damaged("points to a block that it does not have")),
        };
        let skipped = file_offset - extent.file_offset;
        let blocks = u64::from(count).min((extent.len - skipped) / block_bytes);
        self.blocks_left = self
            .blocks_left
            .checked_sub(blocks)
            .ok_or_else(|| self.damaged("uses a block more than once"))?;
        let device_offset = extent.device_offset + skipped;
        read_into(
            self.source,
            device_offset,
            (blocks * block_bytes) as usize,
            buffer,
        )?;
        Ok((device_offset, blocks as u32))
    }

    fn damaged(&self, fault: &'static str) -> XfsError {
        XfsError::damaged(STRUCTURE, self.inode_offset, fault)
    }
}

/// The block to visit next and its level, 0 for a leaf.
fn next_child(path: &mut Vec<NodeFrame>) -> Option<(u32, u16)> {
    loop {
        let frame = path.last_mut()?;
        if let Some(child) = frame.children.get(frame.next) {
            frame.next += 1;
            return Some((*child, frame.level - 1));
        }
        path.pop();
    }
}
