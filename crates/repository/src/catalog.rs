//! The catalog: one sorted table of entries, stored as segments in a few layers.
//!
//! The first layer is the *base*; the others are *overlays* of changed and removed rows, newest
//! last. Reading merges them. Writing costs in proportion to what changed: stretches of the base
//! are rewritten (*folded*) only where overlays have grown past a share of them. Nothing here holds
//! more than a few segments in memory, whatever the catalog's size. This module does not know what
//! a segment is stored in, and does not decide what has changed.
//!
//! ```text
//! parent ──▶ ParentCursor ──▶ what changed ──▶ CatalogWriter ──▶ layers of the new snapshot
//! ```

mod clip;
mod cursor;
mod cut;
mod decoded;
mod densest;
mod diff;
mod export;
mod load;
mod loader;
mod numbered;
mod parent;
mod reader;
mod writer;

pub use clip::splice;
pub use cut::{CutRule, SegmentWriter};
pub use decoded::{DecodedSegments, KeptSegments};
pub use densest::DensestDirectories;
pub use diff::{Difference, Differences, diff};
pub use export::{ExportError, Exported, export};
pub use numbered::{NumberedCatalog, NumberedRows, RowNumber};
pub use parent::{ParentCursor, ParentRow};
pub use reader::{CatalogReader, Rows, counted_rows};
pub use writer::file_bytes;
pub use writer::{CatalogWriter, FinishedCatalog, Partial};

use bale_format::{ChunkId, Key, SegmentError};
use bytes::Bytes;

/// Layers of one snapshot's catalog: the base and seven overlays.
pub const LAYERS_MAX: usize = 8;
/// A stretch of the base is folded when overlays have more than this share of its rows: one in
/// eight.
pub(crate) const FOLD_SHARE: u64 = 8;
/// The same share of its bytes counts from here on: writing rows anew must be little beside what
/// may be given back.
pub(crate) const FOLD_BYTES_MIN: u64 = 1 << 20;

/// Why the other side of a seam failed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Result of reading or writing a catalog.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// Where stored segments are read from. The repository is one.
pub trait SegmentSource: Send + Sync {
    /// The plaintext of a chunk of kind segment, its id checked.
    fn segment(&self, id: &ChunkId) -> std::result::Result<Bytes, BoxError>;

    /// How many segments of one layer it is worth naming before they are read; 0: none.
    fn ahead_max(&self) -> usize {
        0
    }

    /// These will be read next: who has them far away fetches them together, the first so many of
    /// them as it says. What cannot be had is said when it is read.
    fn fetch_ahead(&self, ids: &[ChunkId]) -> usize {
        ids.len()
    }

    /// Where segments are kept decoded, whole, by who comes back to them.
    fn kept_decoded(&self) -> Option<&DecodedSegments> {
        None
    }
}

/// Where finished segments go. The repository is one, a closure another.
pub trait SegmentSink {
    /// Stores a segment as a chunk; one that is stored already is not stored again.
    fn store_segment(&mut self, segment: Vec<u8>) -> std::result::Result<ChunkId, BoxError>;
}

impl<F: FnMut(Vec<u8>) -> std::result::Result<ChunkId, BoxError>> SegmentSink for F {
    fn store_segment(&mut self, segment: Vec<u8>) -> std::result::Result<ChunkId, BoxError> {
        self(segment)
    }
}

/// A catalog cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// A segment could not be fetched.
    #[error("read segment {} of the catalog", id.short())]
    Read { id: ChunkId, source: BoxError },
    /// A segment's bytes are not what a segment is.
    #[error("decode segment {} of the catalog", id.short())]
    Decode { id: ChunkId, source: SegmentError },
    /// A segment is valid but not the one that the snapshot describes.
    #[error("segment {} of the catalog differs from its snapshot in {what}", id.short())]
    Mismatch {
        id: ChunkId,
        /// `rows`, `first key` or `last key`.
        what: &'static str,
    },
    /// The snapshot's list of segments makes no sense.
    #[error("the snapshot's list of segments is damaged: {what}")]
    Layers {
        /// What is wrong.
        what: &'static str,
    },
    /// A row could not be put into a segment.
    #[error("add a row to the catalog")]
    Row(#[source] SegmentError),
    /// Changes came out of order, which would lose rows.
    #[error("rows of a catalog out of order at {}", String::from_utf8_lossy(path).escape_debug())]
    Order {
        /// Path of the later one.
        path: Vec<u8>,
    },
    /// A segment could not be stored.
    #[error("store a segment of the catalog")]
    Store(#[source] BoxError),
    /// The writer failed before and does nothing more.
    #[error("the catalog's writer failed earlier")]
    Poisoned,
}

impl CatalogError {
    /// The stored segment whose bytes are gone or wrong, if that is the trouble.
    pub fn unreadable_segment(&self) -> Option<ChunkId> {
        match self {
            CatalogError::Read { id, .. }
            | CatalogError::Decode { id, .. }
            | CatalogError::Mismatch { id, .. } => Some(*id),
            _ => None,
        }
    }
}

/// A range of keys: from `start` (included) to `end` (not included); `None` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// First key that is in the range.
    pub start: Option<Key>,
    /// First key that is not.
    pub end: Option<Key>,
}

impl KeyRange {
    /// Everything.
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    pub fn one(key: &Key) -> KeyRange {
        KeyRange {
            start: Some(key.clone()),
            end: Some(after(key)),
        }
    }

    /// The children of a directory.
    pub fn children(directory: &[u8]) -> KeyRange {
        // No name begins with a zero byte, so this is before all children and after the root's own
        // row. No parent is directory + '/', and it sorts before everything below the children.
        KeyRange {
            start: Some(key(directory, b"\0")),
            end: Some(key(&[directory, b"/"].concat(), b"")),
        }
    }

    /// Everything below a directory, without its own row.
    pub fn below(directory: &[u8]) -> KeyRange {
        // A slash sorts as a zero byte, so the byte 1 is after everything below.
        let end = (!directory.is_empty()).then(|| key(&[directory, b"\x01"].concat(), b""));
        KeyRange {
            start: Some(key(directory, b"\0")),
            end,
        }
    }

    /// Is the key inside?
    pub fn contains(&self, key: &Key) -> bool {
        self.start.as_ref().is_none_or(|start| start <= key)
            && self.end.as_ref().is_none_or(|end| key < end)
    }

    /// All keys but those of some ranges, in order.
    pub fn all_but(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
        ranges.sort_by(|one, other| one.start.cmp(&other.start)); // None is the least.
        let (mut rest, mut start) = (Vec::with_capacity(ranges.len() + 1), Some(None));
        for range in ranges {
            let Some(from) = start.take() else {
                break;
            };
            if range.start > from {
                rest.push(KeyRange {
                    start: from.clone(),
                    end: range.start,
                });
            }
            // Without an end nothing is left.
            start = range.end.map(|end| Some(end).max(from));
        }
        rest.extend(start.map(|start| KeyRange { start, end: None }));
        rest
    }

    /// What is in both.
    fn intersect(&self, other: &KeyRange) -> KeyRange {
        let ends = [&self.end, &other.end].into_iter().flatten();
        KeyRange {
            start: self.start.clone().max(other.start.clone()), // None is the least.
            end: ends.min().cloned(),
        }
    }
}

/// The least key after `key`.
fn after(key: &Key) -> Key {
    Key {
        parent: key.parent.clone(),
        name: [&key.name[..], b"\0"].concat().into(),
    }
}

fn key(parent: &[u8], name: &[u8]) -> Key {
    Key {
        parent: Bytes::copy_from_slice(parent),
        name: Bytes::copy_from_slice(name),
    }
}
