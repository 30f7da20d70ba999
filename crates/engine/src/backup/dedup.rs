//! Deduplicates one small file: looks for identical content stored earlier in this run or known to
//! the index.

use super::dedup_cache::{ChunkNumbers, ContentRef, ContentTable};
use bale_format::{Content, Entry};
use bale_repository::pack::ChunkWriter;

/// Where a small file's content is: where its old row says, if it has the same hash, or where
/// another file of the same content was stored.
pub(super) fn stored_at(
    store: &ChunkWriter,
    chunks: &mut ChunkNumbers,
    contents: &mut ContentTable,
    entry: &Entry,
    old: Option<&Entry>,
) -> Option<ContentRef> {
    let hash = entry.content_hash?;
    if let Some(old) = old.filter(|old| old.content_hash == Some(hash) && old.size == entry.size)
        && let Content::Bundled { chunk, offset } = old.content
        && store.rely_on(&chunk)
        && !store.is_thin(&chunk)
    {
        return Some(ContentRef::Bundled {
            chunk: chunks.known(chunk),
            offset,
        });
    }
    contents.find(&hash, u32::try_from(entry.size).ok()?)
}
