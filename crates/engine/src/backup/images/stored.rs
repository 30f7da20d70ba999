//! Blocks and what the repository has of them.

use bale_format::ChunkId;
use bale_repository::pack::ChunkWriter;

/// Does the repository have it, where it lasts? Then the snapshot relies on it.
pub(super) fn is_there(store: &ChunkWriter, id: &ChunkId) -> bool {
    !store.is_thin(id) && store.rely_on(id)
}
