//! Every bound of the ext4 reader, by name.

/// Block sizes go from 1 KiB to 1 KiB << 6.
pub(super) const LOG_BLOCK_KIB_MAX: u32 = 6;
/// Largest block: buffers of tree nodes and directory blocks are never longer.
pub(super) const BLOCK_BYTES_MAX: u32 = 1024 << LOG_BLOCK_KIB_MAX;
/// Clusters of at most 2^20 blocks; mke2fs stops at 2^15.
pub(super) const LOG_CLUSTER_RATIO_MAX: u32 = 20;
/// Inodes of ext2 revision 0, and the part of every inode that is always there.
pub(super) const INODE_BYTES_MIN: u32 = 128;
/// Inodes below are reserved in every revision.
pub(super) const FIRST_INODE_MIN: u32 = 11;
/// Descriptor without the 64bit feature.
pub(super) const DESC_BYTES_MIN: u32 = 32;
/// Descriptors never exceed the smallest block.
pub(super) const DESC_BYTES_MAX: u32 = 1024;
/// The root directory.
pub(super) const ROOT_INODE: u32 = 2;
/// Groups that we hold in memory, 16 bytes each: 128 MiB for the 1 PiB that this allows with 4 KiB
/// blocks.
pub(super) const GROUPS_MAX: u32 = 1 << 23;
/// Unusable groups after which a file system is refused instead of read in part.
pub(super) const GROUP_PROBLEMS_MAX: usize = 1 << 16;
/// Group descriptors are read in pieces of this many bytes.
pub(super) const DESCRIPTORS_READ_BYTES: usize = 1 << 20;
/// Root in the inode plus five levels: more than 2^32 blocks need.
pub(super) const EXTENT_DEPTH_MAX: u16 = 5;
/// What the kernel's interface can carry; longer values exist on no healthy file system.
pub(super) const XATTR_VALUE_BYTES_MAX: u64 = 64 << 10;
/// All xattr values of one inode together: 4096 values of the length above must not come out of one
/// small block.
pub(super) const XATTRS_BYTES_MAX: u64 = 16 << 20;
/// Longest symbolic link: one page, NUL included, whatever the block size.
pub(super) const SYMLINK_BYTES_MAX: u64 = 4096;
/// Blocks and revocations a journal replay may hold, 24 and 16 bytes each: 160 MiB at most, and 16
/// GiB of journal.
pub(super) const JOURNAL_ENTRIES_MAX: usize = 4 << 20;
/// A torn read of the superblock of a mounted file system is tried this often before a backup is
/// used.
pub(super) const SUPERBLOCK_READS_MAX: u32 = 3;

const _: () = assert!(
    BLOCK_BYTES_MAX == 65536,
    "rec_len encoding below 64 KiB differs"
);
