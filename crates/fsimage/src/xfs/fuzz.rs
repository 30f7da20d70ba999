//! Entrances for fuzzing: each parser over bare bytes, in a made-up file system. Not for other use.

use std::ops::ControlFlow;

use super::btree::RECORD_BYTES;
use super::{DevicePiece, DirBlock, ForkKind, Superblock, Xfs};

/// Directory that made-up blocks belong to.
const DIRECTORY: u64 = 128;

/// A file system of 4 KiB blocks and 512-byte inodes, 1 GiB in 4 groups, with or without checksums.
pub(crate) fn example(has_checksums: bool) -> Xfs {
    Xfs {
        superblock: Superblock {
            uuid: [0; 16],
            metadata_uuid: [0; 16],
            label: Vec::new(),
            has_checksums,
            block_bytes: 4096,
            sector_bytes: 512,
            inode_bytes: 512,
            dir_block_bytes: 4096,
            blocks: 4 * 65536,
            ag_count: 4,
            ag_blocks: 65536,
            root_inode: DIRECTORY,
            inode_count: 0,
            inode_free_count: 0,
            log_start_block: 0,
            log_blocks: 0,
            internal_inodes: [0; 5],
            has_file_types: true,
            has_sparse_inodes: has_checksums,
            log_is_v2: true,
            ro_compat: 0,
            log_unit_bytes: 1,
            ag_blocks_log: 16,
            inodes_per_block_log: 3,
            has_bigtime: has_checksums,
            has_large_extent_counts: has_checksums,
        },
    }
}

/// A superblock's sector.
pub fn superblock(bytes: &[u8]) {
    let _ = Superblock::parse(bytes, 1 << 40);
}

/// Header of an allocation group's inodes.
pub fn ag_inodes(bytes: &[u8]) {
    let _ = super::inobt::parse_ag_inodes(&example(false), bytes, 1024, 0);
}

/// An inode with everything that can be read of it; what it points to is `bytes` again, as a
/// device. Returns whether they passed for an inode.
pub fn inode(bytes: &[u8]) -> bool {
    let xfs = example(false);
    let device = bytes.to_vec();
    let Ok(inode) = xfs.parse_inode(DIRECTORY, bytes) else {
        return false;
    };
    let _ = inode.to_inode();
    for fork in [ForkKind::Data, ForkKind::Attributes] {
        if let Ok(extents) = xfs.extents(&device, &inode, fork) {
            extents.for_each(drop);
        }
    }
    let _ = xfs.read_dir(&device, &inode, &mut |_| ());
    let _ = xfs.xattrs(&device, &inode, &mut |_, _| ());
    let _ = xfs.symlink_target(&device, &inode, &mut Vec::new());
    true
}

/// A directory block, the first of its directory. Returns the number of names, so that nothing is
/// optimised away.
pub fn dir_block(bytes: &[u8]) -> usize {
    let first = DevicePiece {
        device_offset: 1 << 20,
        len_bytes: 4096,
    };
    let block = DirBlock {
        directory: DIRECTORY,
        file_offset: 0,
        first,
        others: Vec::new(),
    };
    let mut bytes = bytes.to_vec();
    bytes.resize(4096, 0);
    let mut names = 0;
    let _ = example(false).parse_dir_block(&block, &bytes, &mut |_| names += 1);
    names
}

/// A block of an attribute fork. Returns the number of attributes.
pub fn attr_block(bytes: &[u8]) -> usize {
    use super::attr_block::{AttrBlock, parse};
    let mut bytes = bytes.to_vec();
    bytes.resize(4096, 0);
    match parse(&example(false), &bytes, 1 << 20, DIRECTORY) {
        Ok(AttrBlock::Leaf(leaf)) => leaf.attrs().count(),
        Ok(AttrBlock::Node(node)) => node.children().count(),
        Err(_) => 0,
    }
}

/// An ACL as an attribute stores it.
pub fn acl(bytes: &[u8]) {
    let _ = super::acl::convert(bytes, &mut Vec::new());
}

/// A log of as many whole blocks as `bytes` has.
pub fn log(bytes: &[u8]) {
    let mut xfs = example(true);
    let blocks = bytes.len() / xfs.superblock.block_bytes as usize;
    if blocks == 0 {
        return;
    }
    xfs.superblock.log_start_block = 1;
    xfs.superblock.log_blocks = blocks.min(60_000) as u32;
    let mut device = vec![0; xfs.superblock.block_bytes as usize];
    device.extend_from_slice(bytes);
    let _ = xfs.log_state(&device);
    if let Ok(Some(place)) = xfs.newest_log_record(&device) {
        let _ = xfs.inodes_logged_since(&device, place);
    }
}

/// An allocation group: header of its free space, and the btree that the header leads to.
pub fn free_space(bytes: &[u8]) {
    let mut device = bytes.to_vec();
    device.resize(bytes.len().next_multiple_of(4096), 0);
    super::free_space::check_group(&example(false), &device);
}

/// Two states of a device: one of these bytes, but for the number in front, and one that differs
/// from it in the byte that this number says. Returns how many files passed for unchanged.
pub fn unchanged(bytes: &[u8]) -> u64 {
    let Some((differs, device)) = bytes.split_first_chunk::<4>() else {
        return 0;
    };
    let (old, mut new) = (device.to_vec(), device.to_vec());
    let at = u32::from_le_bytes(*differs) as usize % device.len().max(1);
    if let Some(byte) = new.get_mut(at) {
        *byte ^= 1;
    }
    let xfs = example(false);
    let end = xfs.superblock.blocks * u64::from(xfs.superblock.block_bytes);
    super::unchanged::check_states(&xfs, [old, new], &mut |range| {
        assert!(range.start < range.end && range.end <= end);
        ControlFlow::Continue(())
    })
}

/// Records of an inode btree.
pub fn inode_chunk_records(bytes: &[u8]) {
    for record in bytes.as_chunks::<RECORD_BYTES>().0 {
        super::inobt::check_record(&example(true), record);
    }
}
