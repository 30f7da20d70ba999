//! Parsers of XFS.

use bale_fsimage::xfs::fuzz;

/// XFS: a superblock.
pub fn superblock(data: &[u8]) {
    fuzz::superblock(data);
}

/// XFS: an allocation group's header of inodes.
pub fn ag_inodes(data: &[u8]) {
    fuzz::ag_inodes(data);
}

/// XFS: records of an inode btree.
pub fn inode_chunk_records(data: &[u8]) {
    fuzz::inode_chunk_records(data);
}

/// XFS: an inode and all it refers to.
pub fn inode(data: &[u8]) {
    let _ = fuzz::inode(data);
}

/// XFS: a block of a directory.
pub fn dir_block(data: &[u8]) {
    let _ = fuzz::dir_block(data);
}

/// XFS: a block of extended attributes.
pub fn attr_block(data: &[u8]) {
    let _ = fuzz::attr_block(data);
}

/// XFS: an access control list.
pub fn acl(data: &[u8]) {
    fuzz::acl(data);
}

/// XFS: a log.
pub fn log(data: &[u8]) {
    fuzz::log(data);
}

/// XFS: an allocation group, of which the header of its free space and the btree are read.
pub fn free_space(data: &[u8]) {
    fuzz::free_space(data);
}

/// XFS: a number, and an allocation group with inodes, of which two states are compared that differ
/// in the byte that the number says.
pub fn unchanged(data: &[u8]) {
    let _how_many = fuzz::unchanged(data);
}
