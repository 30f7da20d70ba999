//! Doors for fuzzers: every parser of this reader as a function of bytes. None may panic, hang or
//! allocate without bound.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::groups::Descriptor;
use super::inodes::RawInode;
use super::journal::{JournalSuperblock, Log};
use super::superblock::{SUPERBLOCK_BYTES, Superblock};
use super::{DirContext, Ext4, acl, directory, inodes, mapping, xattr};
use crate::MappedExtent;

/// Splits input into a superblock and the rest; `None` unless the superblock is accepted.
fn split(data: &[u8]) -> Option<(Superblock, &[u8])> {
    let (first, rest) = data.split_first_chunk::<SUPERBLOCK_BYTES>()?;
    Some((Superblock::parse(first).ok()?, rest))
}

pub fn superblock(data: &[u8]) {
    if let Some(bytes) = data.first_chunk() {
        let _ = Superblock::parse(bytes).map(|sb| sb.features.names());
    }
}

/// A superblock, then a group descriptor.
pub fn group_descriptor(data: &[u8]) {
    if let Some((sb, rest)) = split(data) {
        let _ = rest
            .get(..sb.desc_bytes as usize)
            .map(|bytes| Descriptor::parse(&sb, 0, bytes));
    }
}

/// A superblock, then inodes; of each the in-inode xattrs too.
pub fn inode_table(data: &[u8]) {
    if let Some((sb, rest)) = split(data) {
        inodes::parse(&sb, 1, rest, &mut |result| {
            if let inodes::InodeResult::Used(_, raw) = result {
                let _ = xattr::in_inode(&raw, &mut |entry| drop(xattr::full_name(&entry)));
            }
        });
    }
}

/// A superblock, then one inode, then the device that its mapping refers to.
pub fn file_mapping(data: &[u8]) {
    let Some((sb, rest)) = split(data) else {
        return;
    };
    let Some((inode, device)) = rest.split_at_checked(sb.inode_bytes as usize) else {
        return;
    };
    if let Some(raw) = RawInode::new(12, inode) {
        let _ = mapping::walk(&device.to_vec(), &sb, &raw, &mut |_| {
            ControlFlow::Continue(())
        });
    }
}

/// A superblock, then one inode of the directory, then one block, parsed as a block and as inline
/// content.
pub fn dir_block(data: &[u8]) {
    let Some((sb, rest)) = split(data) else {
        return;
    };
    let Some((inode, block)) = rest.split_at_checked(sb.inode_bytes as usize) else {
        return;
    };
    if let Some(raw) = RawInode::new(12, inode) {
        let _ = directory::parse_block(&sb, &DirContext::new(&sb, &raw), 0, block, &mut |_| {});
        let _ = directory::parse_inline(&sb, block, &mut |_| {});
    }
}

/// A superblock, then an xattr block, then an ACL.
pub fn xattr_block(data: &[u8]) {
    if let Some((sb, rest)) = split(data) {
        let _ = xattr::in_block(&sb, 1, rest, &mut |entry| {
            if let xattr::Value::Here(value) = entry.value {
                let _ = acl::to_xattr(value);
            }
        });
    }
    let _ = acl::to_xattr(data);
}

/// A journal from its superblock on, with blocks of 1 KiB.
pub fn journal(data: &[u8]) {
    const BLOCK_BYTES: u32 = 1024;
    let Ok(superblock) = JournalSuperblock::parse(data, BLOCK_BYTES) else {
        return;
    };
    let whole = [MappedExtent {
        file_offset: 0,
        device_offset: 0,
        len: data.len() as u64,
        unwritten: false,
    }];
    let source = data.to_vec();
    let log = Log {
        source: &source,
        superblock,
        block_bytes: BLOCK_BYTES,
        blocks_count: 1 << 32,
        extents: &whole,
    };
    let _ = log.replay();
}

/// A whole image: opened, replayed, every inode, name, extent and xattr read.
pub fn image(data: &[u8]) {
    let source = Arc::new(data.to_vec());
    for fs in [Ext4::open(source.clone()), Ext4::open_replayed(source)]
        .into_iter()
        .flatten()
    {
        let mut bytes = Vec::new();
        for range in fs
            .itable_ranges()
            .into_iter()
            .flat_map(|range| range.pieces(1 << 20))
        {
            bytes.resize(range.len_bytes() as usize, 0);
            if fs
                .source()
                .read_exact_at(range.device_offset, &mut bytes)
                .is_ok()
            {
                fs.parse_inodes(range.first_inode, &bytes, &mut |result| {
                    if let inodes::InodeResult::Used(_, raw) = result {
                        let _ = fs.xattrs(&raw);
                        let _ = fs.read_dir(&raw, &mut |_| {});
                        let _ = fs.walk_mapping(&raw, &mut |_| ControlFlow::Continue(()));
                    }
                });
            }
        }
    }
}
