//! A part of a disk: what was recognized in it, and why all of it is read, if it is.

use crate::in_use::UseDoubt;
use crate::lvm2::LvmError;
use crate::partitions::{PartitionError, PartitionFault, PartitionTableKind};
use crate::recognize::Recognized;
use std::fmt;
use std::io;

/// A partition, a logical volume, or the disk around them.
#[derive(Debug)]
pub struct DiskPart {
    /// `disk`; `p1` and so on, as the kernel numbers partitions; the name of a logical volume, with
    /// its group's in front if there is another of that name.
    pub name: String,
    pub content: PartContent,
    /// Bytes of the disk that belong to it and to no part within it.
    pub bytes: u64,
    /// Of those, to be read: known once the ranges came to its end.
    pub allocated_bytes: u64,
    /// Why all of it is read.
    pub whole: Option<WholeReason>,
    /// Portions of it that are read whole: how many, and why the first of them.
    pub doubtful_portions: u64,
    pub first_doubt: Option<UseDoubt>,
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartContent {
    /// Tables, and what is in no partition.
    Table(PartitionTableKind),
    Content(Recognized),
}

/// Why all of a part is read.
#[derive(Debug, thiserror::Error)]
pub enum WholeReason {
    #[error("it is what lies around others")]
    Around,
    #[error("nothing is known of what it holds")]
    Unknown,
    #[error("{0} is not looked into")]
    NotRead(Recognized),
    #[error("it has marks of several kinds")]
    Ambiguous,
    #[error("it has the mark of {0}")]
    Foreign(&'static str),
    #[error("it has a partition table and a file system")]
    TableAndContent,
    #[error("it has a partition table of its own")]
    Nested,
    #[error("it overlaps another part")]
    Overlap,
    #[error("volume: {0}")]
    Volume(&'static str),
    #[error("the header of the swap space contradicts itself")]
    Swap,
    #[error("partition table")]
    Table(#[source] PartitionError),
    #[error("partition table")]
    TableFault(#[source] PartitionFault),
    #[error("LVM2")]
    Lvm2(#[source] LvmError),
    #[error("which blocks are in use")]
    Use(#[source] UseDoubt),
    #[error("read what it is")]
    Read(#[source] io::Error),
}

impl WholeReason {
    /// Could what tells it not be read?
    pub fn is_unread(&self) -> bool {
        let mut error: &(dyn std::error::Error + 'static) = self;
        loop {
            if error.is::<io::Error>() {
                return true;
            }
            match error.source() {
                Some(source) => error = source,
                None => return false,
            }
        }
    }
}

impl DiskPart {
    pub(super) fn new(name: String, content: PartContent) -> DiskPart {
        DiskPart {
            name,
            content,
            bytes: 0,
            allocated_bytes: 0,
            whole: None,
            doubtful_portions: 0,
            first_doubt: None,
        }
    }
}

impl fmt::Display for PartContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartContent::Table(PartitionTableKind::Gpt) => f.write_str("GPT"),
            PartContent::Table(PartitionTableKind::Mbr) => f.write_str("MBR"),
            PartContent::Content(recognized) => recognized.fmt(f),
        }
    }
}
