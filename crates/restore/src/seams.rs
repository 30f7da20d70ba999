//! What a restore is given: content and catalog.

use bale_format::extent::extent_offset;
use bale_format::{ChunkId, ChunkKind, ChunkPlace, Entry};
use bytes::Bytes;

/// Why a chunk cannot be had; a problem of the files that need it.
pub type ChunkTrouble = Box<dyn std::error::Error + Send + Sync>;

/// Trouble as text for a problem.
pub(crate) fn text_of(trouble: &ChunkTrouble) -> String {
    bale_pipeline::error::with_causes(&**trouble)
}

/// Where content comes from; used by many threads at once.
pub trait ChunkSource: Sync {
    /// Where the index says that it is; `None` if no index knows it. Rows are worked on in the
    /// order of pack and offset.
    fn place(&self, id: &ChunkId) -> Option<ChunkPlace>;

    /// These chunks of files will be read soon, perhaps; called in the order of places. Whoever has
    /// them far away may fetch them.
    fn expect(&self, _ids: &[ChunkId]) {}

    /// These lists will be read next: whoever has them far away fetches them together.
    fn fetch_ahead(&self, _ids: &[ChunkId]) {}

    /// Is it worth saying what is expected, and what comes next?
    fn is_far_away(&self) -> bool {
        false
    }

    /// Fetches, opens and checks one chunk.
    fn read(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes, ChunkTrouble>;
}

/// Rows in the catalog's order. An `Err` is a stretch of the catalog that cannot be read; later
/// rows may follow.
pub type CatalogRows<'a> = Box<dyn Iterator<Item = Result<Entry, ChunkTrouble>> + 'a>;

/// A snapshot's catalog.
pub trait CatalogSource: Sync {
    /// All rows at `path` and below, in order.
    fn rows(&self, path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble>;

    /// The rows that are the bytes of the image at `path`, in the order of the device.
    fn extents(&self, path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble>;

    /// The same without those that begin before `start`, the first byte of a block.
    fn extents_from(&self, path: &[u8], start: u64) -> Result<CatalogRows<'_>, ChunkTrouble> {
        let is_before = move |row: &Result<Entry, ChunkTrouble>| {
            let offset = row.as_ref().ok().and_then(|row| extent_offset(&row.name));
            offset.is_some_and(|offset| offset < start)
        };
        let rows = self.extents(path)?;
        Ok(Box::new(rows.filter(move |row| !is_before(row))))
    }

    /// One row.
    fn lookup(&self, path: &[u8]) -> Result<Option<Entry>, ChunkTrouble>;
}
