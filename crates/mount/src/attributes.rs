//! What `stat` shows of anything.

use crate::limits::ROWS_LAST;
use bale_format::{Entry, Kind, Time};
use std::time::Duration;

/// Bytes of the blocks that `st_blocks` counts.
const COUNTED_BYTES: u64 = 512;
/// Bytes of those that file systems have: a file takes whole ones.
pub const BLOCK_BYTES: u64 = 4096;

fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * (BLOCK_BYTES / COUNTED_BYTES)
}

/// What the kernel is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAttributes {
    /// By which the kernel asks for it.
    pub number: u64,
    /// Inode number that is shown: one for all names of a file.
    pub shown: u64,
    pub kind: Kind,
    /// Permissions: lower 12 bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    /// That of the last change, where the snapshot has none.
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub nlink: u32,
    /// `major << 32 | minor`
    pub rdev: u64,
    /// How long the kernel may believe it.
    pub lasts: Duration,
    /// A listing does not know all of it: it is looked up.
    pub is_partly_known: bool,
}

impl NodeAttributes {
    /// Of a row. A file with holes has fewer blocks than this says, until somebody counts them.
    pub fn of_row(number: u64, row: &Entry, group: Option<u64>) -> NodeAttributes {
        let blocks = match row.kind {
            Kind::File => blocks_of(row.size),
            _ => 0,
        };
        NodeAttributes {
            number,
            shown: group.unwrap_or(number),
            kind: row.kind,
            mode: row.mode,
            uid: row.uid,
            gid: row.gid,
            size: row.size,
            blocks,
            atime: row.atime.get().unwrap_or(row.mtime),
            mtime: row.mtime,
            ctime: row.ctime,
            nlink: row.nlink.max(1),
            rdev: row.rdev,
            lasts: ROWS_LAST,
            is_partly_known: group.is_some(),
        }
    }

    /// Of what is not there.
    pub fn nothing() -> NodeAttributes {
        let row = Entry::new(Default::default(), Default::default(), Kind::File);
        NodeAttributes::of_row(0, &row, None)
    }

    /// With so many bytes that are stored.
    pub fn with_data(mut self, bytes: u64) -> NodeAttributes {
        self.blocks = blocks_of(bytes);
        self
    }
}
