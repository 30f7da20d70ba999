//! Deduplicates one small file: looks for identical content stored earlier in this run or known to
//! the index.

use super::dedup_cache::{ContentRef, ContentTable};
use bale_format::{ChunkId, Content, Entry};
use bale_repository::pack::ChunkWriter;

/// Where a small file's content is: where its old row says, if it has the same hash, or where
/// another file of the same content was stored.
pub(super) fn stored_at(
    store: &ChunkWriter,
    contents: &mut ContentTable,
    entry: &Entry,
    old: Option<&Entry>,
) -> Option<ContentRef> {
    let hash = entry.content_hash?;
    if let Some((chunk, offset)) = old_place(store, entry, old) {
        return Some(ContentRef::Stored(Content::Bundled { chunk, offset }));
    }
    contents.find(&hash, u32::try_from(entry.size).ok()?)
}

/// Chunk and offset that its old row says, if it has the same hash and the chunk is worth relying
/// on.
pub(super) fn old_place(
    store: &ChunkWriter,
    entry: &Entry,
    old: Option<&Entry>,
) -> Option<(ChunkId, u32)> {
    let hash = entry.content_hash?;
    let is_same = |old: &&Entry| old.content_hash == Some(hash) && old.size == entry.size;
    match old.filter(is_same)?.content {
        Content::Bundled { chunk, offset } => {
            (store.rely_on(&chunk) && !store.is_thin(&chunk)).then_some((chunk, offset))
        }
        _ => None,
    }
}
