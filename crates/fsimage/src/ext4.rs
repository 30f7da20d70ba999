//! Reading ext4 (and ext2, ext3) from a byte source.
