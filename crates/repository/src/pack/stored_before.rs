//! What chunks take that the repository had before a run wanted them.

use crate::index::ChunkIndex;
use bale_format::ChunkId;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct StoredBefore(AtomicU64);

impl StoredBefore {
    pub(super) fn new() -> StoredBefore {
        StoredBefore(AtomicU64::new(0))
    }

    /// So many bytes of a chunk are wanted, or all of it. Of one that this run stored, nothing is
    /// counted: it is no part of the index that the run began with.
    pub(super) fn count(&self, index: &ChunkIndex, id: &ChunkId, plain_bytes: u64) {
        let Some(place) = index.any(id) else {
            return;
        };
        let (plain, sealed) = (place.chunk.plain_bytes.max(1), place.chunk.sealed_bytes);
        let part = plain_bytes.min(u64::from(plain));
        let bytes = part * u64::from(sealed) / u64::from(plain);
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
