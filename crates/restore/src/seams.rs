//! What a restore is given: content, catalog, and who listens.

use crate::Plan;
use bale_format::{ChunkId, Entry};
use bale_pipeline::monitor::Act;
use bytes::Bytes;

/// Chunks that a restore may ask for, by what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkUse {
    /// File bytes.
    Data,
    /// A list of pieces.
    Pieces,
    /// A large set of extended attributes.
    Xattrs,
}

/// Where a chunk lies: rows are worked on in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackOffset {
    /// Ordinal of the pack.
    pub pack: u32,
    /// Offset in the pack.
    pub offset: u64,
}

/// Why a chunk cannot be had; a problem of the files that need it.
pub type ChunkTrouble = Box<dyn std::error::Error + Send + Sync>;

/// Where content comes from; used by many threads at once.
pub trait ChunkSource: Sync {
    /// Where the index says that it is; `None` if no index knows it.
    fn place(&self, id: &ChunkId) -> Option<PackOffset>;

    /// Fetches, opens and checks one chunk.
    fn read(&self, id: &ChunkId, wanted: ChunkUse) -> Result<Bytes, ChunkTrouble>;
}

/// Rows in the catalog's order. An `Err` is a stretch of the catalog that cannot be read; later
/// rows may follow.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Entry, ChunkTrouble>> + 'a>;

/// A snapshot's catalog.
pub trait CatalogSource: Sync {
    /// All rows at `path` and below, in order.
    fn rows(&self, path: &[u8]) -> Result<Rows<'_>, ChunkTrouble>;

    /// One row.
    fn lookup(&self, path: &[u8]) -> Result<Option<Entry>, ChunkTrouble>;
}

/// Who watches. Called from many threads.
pub trait Monitor: Sync {
    /// The plan is made; nothing has been written yet.
    fn planned(&self, _plan: &Plan) {}

    /// The file system is planned, in bytes: what the tree needs at least, what it will have, and
    /// its inodes. Nothing has been written yet.
    fn sized(&self, _needed_bytes: u64, _bytes: u64, _inodes: u64) {}

    /// So much more is done.
    fn progress(&self, _entries: u64, _bytes: u64) {}

    /// One entry did not come back as it was. `path` is relative to the target.
    fn problem(&self, path: &[u8], action: &'static str, text: &str);

    /// Something about one entry that is worth a line and no problem.
    fn note(&self, _path: &[u8], _text: &str) {}

    /// What a dry run would do to one path; of any run, what is deleted or left. Of one that is not
    /// dry, what is restored, if the monitor wants to know.
    fn would(&self, _path: &[u8], _act: Act) {}

    /// Shall every path that was restored be told?
    fn wants_restored(&self) -> bool {
        false
    }

    /// Should the restore end early?
    fn stop(&self) -> bool {
        false
    }
}
