//! Parsers of ext4.

use bale_fsimage::ext4::fuzz_entry;

/// ext4: a superblock.
pub fn superblock(data: &[u8]) {
    fuzz_entry::superblock(data);
}

/// ext4: a superblock, then a group descriptor.
pub fn group_descriptor(data: &[u8]) {
    fuzz_entry::group_descriptor(data);
}

/// ext4: a superblock, then inodes.
pub fn inode_table(data: &[u8]) {
    fuzz_entry::inode_table(data);
}

/// ext4: a superblock, an inode and the device its mapping refers to.
pub fn file_mapping(data: &[u8]) {
    fuzz_entry::file_mapping(data);
}

/// ext4: a superblock, an inode and a block of a directory.
pub fn dir_block(data: &[u8]) {
    fuzz_entry::dir_block(data);
}

/// ext4: a superblock, then a block of extended attributes.
pub fn xattr_block(data: &[u8]) {
    fuzz_entry::xattr_block(data);
}

/// ext4: a journal.
pub fn journal(data: &[u8]) {
    fuzz_entry::journal(data);
}

/// ext4: a whole image.
pub fn image(data: &[u8]) {
    fuzz_entry::image(data);
}
