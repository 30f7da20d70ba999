//! What a restore is given: content and catalog.

use bale_format::{ChunkId, Entry};
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
