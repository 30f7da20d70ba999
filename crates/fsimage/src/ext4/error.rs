//! What can be wrong with an ext4 file system, in two sizes.
//!
//! [`Ext4Error`] ends an operation. [`Damage`] belongs to one structure (an inode, a directory
//! block): it is small and `Copy`, so that a scan can report thousands of them without stopping and
//! without allocating.

use std::io;

/// Why an operation on an ext4 file system failed.
#[derive(Debug, thiserror::Error)]
pub enum Ext4Error {
    /// The source refused to deliver bytes.
    #[error("read {what} at byte {offset}")]
    Read {
        /// What was to be read.
        what: &'static str,
        /// Where on the device.
        offset: u64,
        source: io::Error,
    },
    /// There is no ext2, ext3 or ext4 here.
    #[error("no ext4 superblock")]
    NotExt4,
    /// Neither the superblock nor a backup of it has a matching checksum.
    #[error("superblock is damaged, and no intact backup was found")]
    SuperblockDamaged,
    /// Features whose meaning this reader does not know: reading on would be guessing.
    #[error("unsupported ext4 features: {names}")]
    Unsupported {
        /// The bits of the incompatible feature set that are not supported; 0 when it is not about
        /// feature bits.
        incompat_bits: u32,
        /// Their names.
        names: String,
    },
    /// The superblock contradicts itself or names a size beyond our bounds.
    #[error("superblock field {field} is out of range: {value}")]
    Geometry { field: &'static str, value: u64 },
    /// The file system claims to be longer than its device: a truncated image.
    #[error("file system needs {need_bytes} bytes but the source has {have_bytes}")]
    Truncated {
        /// Length according to the superblock.
        need_bytes: u64,
        /// Length of the source.
        have_bytes: u64,
    },
    /// Something that belongs to one inode is damaged.
    #[error("inode {inode}")]
    Inode {
        inode: u64,
        /// What is wrong.
        source: Damage,
    },
    /// A block group cannot be used.
    #[error("block group {group}")]
    Group {
        group: u32,
        /// What is wrong.
        source: Damage,
    },
    /// The journal cannot be replayed. The file system without it may be inconsistent: do not scan
    /// it.
    #[error("replay the journal")]
    Journal {
        /// What is wrong.
        source: JournalDamage,
    },
}

/// What is wrong with one structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The stored checksum does not match. On a live device it may be a torn read: read again.
    #[error("{0} checksum does not match")]
    Checksum(Structure),
    /// The structure does not begin as it must.
    #[error("{0} has a wrong magic number or header")]
    Header(Structure),
    /// A block number outside the file system.
    #[error("block {0} is outside the file system")]
    BlockOutside(u64),
    /// Extents overlap, go backwards, or leave the range their parent gave them.
    #[error("extents out of order at file block {0}")]
    ExtentOrder(u64),
    /// An indirect block is reached twice.
    #[error("indirect block {0} is used twice")]
    Cycle(u64),
    /// The mode names no file type, or the inode contradicts itself.
    #[error("mode {0:o} is not a file type")]
    Mode(u32),
    /// Size impossible for this kind of inode.
    #[error("size {0} is impossible here")]
    Size(u64),
    /// Inode number 0 or above the inode count.
    #[error("inode number {0} does not exist")]
    InodeOutside(u64),
    /// The inode is not in use.
    #[error("inode is not in use")]
    Unused,
    /// `i_extra_isize` leaves the inode.
    #[error("extra inode size {0} is impossible")]
    ExtraSize(u16),
    /// Inline data is shorter than the file, or flagged without the feature.
    #[error("inline data is missing or short")]
    InlineData,
    /// A directory entry does not fit its block. Names after it in the block are unknown.
    #[error("directory entry at byte {0} of its block is malformed")]
    DirEntry(u32),
    /// A name that no kernel would accept.
    #[error("directory entry at byte {0} of its block has an impossible name")]
    DirName(u32),
    /// A directory with a hole: names may be missing.
    #[error("directory has a hole at byte {0}")]
    DirHole(u64),
    /// Names are ciphertext.
    #[error("directory is encrypted")]
    Encrypted,
    /// An xattr entry or value leaves its region.
    #[error("xattr entry is malformed")]
    XattrEntry,
    /// An xattr value longer than any kernel returns.
    #[error("xattr value of {0} bytes is too long")]
    XattrSize(u64),
    /// An ACL that cannot be converted.
    #[error("posix ACL is malformed")]
    Acl,
    /// A file that is not mapped by blocks was asked for its blocks, or too much was asked for at
    /// once.
    #[error("content of {0} bytes is over the limit of this call")]
    TooLong(u64),
    /// A block bitmap and its descriptor count differently.
    #[error("block bitmap has {0} free clusters, its descriptor counts others")]
    FreeCount(u64),
    /// A block bitmap without the tables of its own group.
    #[error("block bitmap has the table at block {0} as free")]
    TableFree(u64),
    /// The source failed while this structure was read.
    #[error("structure could not be read")]
    Unreadable,
}

/// Which structure is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    Inode,
    /// A node of an extent tree.
    ExtentNode,
    /// A directory block with names.
    DirBlock,
    /// An index block of a hashed directory.
    DirIndex,
    /// A block of extended attributes.
    XattrBlock,
    /// The value of an extended attribute that has its own inode.
    XattrValue,
    GroupDescriptor,
    InodeBitmap,
    BlockBitmap,
}

impl std::fmt::Display for Structure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Structure::Inode => "inode",
            Structure::ExtentNode => "extent node",
            Structure::DirBlock => "directory block",
            Structure::DirIndex => "directory index block",
            Structure::XattrBlock => "xattr block",
            Structure::XattrValue => "xattr value",
            Structure::GroupDescriptor => "group descriptor",
            Structure::InodeBitmap => "inode bitmap",
            Structure::BlockBitmap => "block bitmap",
        })
    }
}

/// Why a journal cannot be replayed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalDamage {
    /// The journal lies on another device.
    #[error("the journal is on another device")]
    External,
    /// Fast commits are logical records; only the kernel replays them.
    #[error("the journal may hold fast commits")]
    FastCommit,
    /// Unknown journal features.
    #[error("unknown journal features {0:#x}")]
    Features(u32),
    /// The journal's superblock is not one, or contradicts the file system.
    #[error("journal superblock is damaged")]
    Superblock,
    /// The journal inode has holes or is shorter than the journal.
    #[error("journal file has a hole at block {0}")]
    Hole(u32),
    /// A descriptor or revoke block of a committed transaction is damaged.
    #[error("descriptor block {0} of the journal is damaged")]
    Descriptor(u32),
    /// A block of a committed transaction is damaged.
    #[error("journal block {0} does not match its checksum")]
    DataBlock(u32),
    /// A target outside the file system.
    #[error("journal writes to block {0}, outside the file system")]
    Target(u64),
    /// More blocks or revocations than we hold in memory.
    #[error("journal is larger than the replay limit")]
    TooLarge,
}

impl Ext4Error {
    pub(super) fn inode(inode: u64) -> impl Fn(Damage) -> Ext4Error {
        move |source| Ext4Error::Inode { inode, source }
    }

    /// The damage, where this error is about one structure.
    pub fn damage(&self) -> Option<Damage> {
        match self {
            Ext4Error::Inode { source, .. } | Ext4Error::Group { source, .. } => Some(*source),
            _ => None,
        }
    }
}

impl From<JournalDamage> for Ext4Error {
    fn from(source: JournalDamage) -> Self {
        Ext4Error::Journal { source }
    }
}
