//! What can be chosen about a file system.

use super::error::{MkError, Result};
use crate::inode::Timestamp;

/// Longest label, bytes.
pub const LABEL_BYTES_MAX: usize = 16;
/// Share of a fitted size that stays free unless chosen, per cent.
pub const FREE_PERCENT_DEFAULT: u32 = 5;
/// Groups whose bitmaps and inode tables lie together.
pub const GROUPS_PER_FLEX_DEFAULT: u32 = 16;
/// Least journal the kernel accepts, blocks.
pub const JOURNAL_BLOCKS_MIN: u32 = 1024;
/// Largest journal, blocks: 40 GiB at 4 KiB, far above any use.
pub const JOURNAL_BLOCKS_MAX: u32 = 10 << 20;

/// Choices for a new file system. The same options, totals and entries give the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext4Options {
    /// 1024, 2048 or 4096 bytes. 1024 saves half the space of files of 1-2 KiB.
    pub block_size: u32,
    /// A power of two from 128 to the block size. 128 keeps neither nanoseconds nor times
    /// after 2038.
    pub inode_size: u32,
    /// Size of the file system; `None` fits it to the tree.
    pub size_bytes: Option<u64>,
    /// Share of a fitted size that stays free, per cent of what the tree needs.
    pub free_percent: u32,
    /// Number of inodes, rounded up to whole groups; `None` chooses from the tree and the size.
    pub inodes: Option<u64>,
    /// Volume label, at most 16 bytes, no NUL.
    pub label: Vec<u8>,
    /// UUID; choose a random one for a file system that will be used.
    pub uuid: [u8; 16],
    /// Seed of directory hashes, random for the same reason.
    pub hash_seed: [u8; 16],
    /// Time of creation, also of the root and `lost+found` where the tree does not give theirs.
    pub created: Timestamp,
    /// The journal, always empty.
    pub journal: Journal,
    /// Groups whose bitmaps and inode tables lie together: a power of two up to 256.
    pub groups_per_flex: u32,
    /// What is not written reads as zeros: a new sparse file. Else the journal is zeroed here, and
    /// the kernel zeroes the unused inode tables after the first mount.
    pub target_is_zeroed: bool,
    /// What the writer holds. Changes no byte of what is written.
    pub memory: WriterMemory,
}

/// What the writer of a file system holds in memory before it uses scratch files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterMemory {
    /// Inodes that are not final yet: of directories and of files with several names.
    pub inode_bytes: usize,
    /// Names of one directory.
    pub name_bytes: usize,
    /// Directories that were named and have not come yet.
    pub directory_bytes: usize,
}

impl WriterMemory {
    /// All of it.
    pub const fn bytes(&self) -> usize {
        self.inode_bytes + self.name_bytes + self.directory_bytes
    }

    /// 98,000 inodes of 256 bytes, 400,000 names, 125,000 directories.
    pub const USUAL: WriterMemory = WriterMemory {
        inode_bytes: 24 << 20,
        name_bytes: 16 << 20,
        directory_bytes: 4 << 20,
    };
}

impl Default for WriterMemory {
    fn default() -> WriterMemory {
        WriterMemory::USUAL
    }
}

impl Default for Ext4Options {
    fn default() -> Ext4Options {
        Ext4Options {
            block_size: 4096,
            inode_size: 256,
            size_bytes: None,
            free_percent: FREE_PERCENT_DEFAULT,
            inodes: None,
            label: Vec::new(),
            uuid: *b"bale-ext4-image1",
            hash_seed: *b"bale-hash-seed-1",
            created: Timestamp::default(),
            journal: Journal::Auto,
            groups_per_flex: GROUPS_PER_FLEX_DEFAULT,
            target_is_zeroed: true,
            memory: WriterMemory::default(),
        }
    }
}

/// How large the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// By the size of the file system: 1,024 to 262,144 blocks, none below 2,048 blocks.
    Auto,
    /// None at all.
    None,
    /// This many blocks, at least 1,024.
    Blocks(u32),
}

impl Journal {
    /// Blocks of the journal for a file system of `blocks`.
    pub(super) fn blocks(self, blocks: u64) -> u32 {
        const STEPS: [(u64, u32); 7] = [
            (2048, 0),
            (32 << 10, 1 << 10),
            (256 << 10, 4 << 10),
            (512 << 10, 8 << 10),
            (4096 << 10, 16 << 10),
            (8192 << 10, 32 << 10),
            (16384 << 10, 64 << 10),
        ];
        match self {
            Journal::None => 0,
            Journal::Blocks(count) => count,
            Journal::Auto => STEPS
                .iter()
                .find(|(below, _)| blocks < *below)
                .map_or(256 << 10, |(_, count)| *count),
        }
    }
}

impl Ext4Options {
    /// Checks every choice by itself; whether the tree fits is the plan's business.
    pub fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(MkError::Options(text));
        if ![1024, 2048, 4096].contains(&self.block_size) {
            return refuse(format!(
                "block size {} is not 1024, 2048 or 4096",
                self.block_size
            ));
        }
        if !self.inode_size.is_power_of_two()
            || self.inode_size < 128
            || self.inode_size > self.block_size
        {
            return refuse(format!(
                "inode size {} is not a power of two from 128 to the block size",
                self.inode_size
            ));
        }
        if self.label.len() > LABEL_BYTES_MAX || self.label.contains(&0) {
            return refuse(format!(
                "label is longer than {LABEL_BYTES_MAX} bytes or holds a NUL"
            ));
        }
        if self.uuid == [0; 16] {
            return refuse("UUID is all zeros".to_owned());
        }
        if !self.groups_per_flex.is_power_of_two() || self.groups_per_flex > 256 {
            return refuse(format!(
                "{} groups per flex group is no power of two up to 256",
                self.groups_per_flex
            ));
        }
        if let Journal::Blocks(count) = self.journal
            && !(JOURNAL_BLOCKS_MIN..=JOURNAL_BLOCKS_MAX).contains(&count)
        {
            return refuse(format!(
                "journal of {count} blocks is not within \
                 {JOURNAL_BLOCKS_MIN}..={JOURNAL_BLOCKS_MAX}"
            ));
        }
        if self.free_percent > 10_000 {
            return refuse(format!(
                "{} per cent free is above 10000",
                self.free_percent
            ));
        }
        if self.created.nanos >= 1_000_000_000 {
            return refuse("creation time has more than a second of nanoseconds".to_owned());
        }
        Ok(())
    }
}
