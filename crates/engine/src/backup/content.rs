//! Is this content stored already?

use super::seen::{Chunks, ContentTable, Spot};
use crate::pack::ChunkWriter;
use bale_format::{Content, Entry};

/// Where a small file's content is: where its old row says, if it has the same hash, or where another file of the same
/// content was stored.
pub(super) fn known(
    store: &ChunkWriter,
    chunks: &mut Chunks,
    contents: &mut ContentTable,
    entry: &Entry,
    old: Option<&Entry>,
) -> Option<Spot> {
    let hash = entry.content_hash?;
    if let Some(old) = old.filter(|old| old.content_hash == Some(hash) && old.size == entry.size)
        && let Content::Bundled { chunk, offset } = old.content
        && store.rely_on(&chunk)
        && !store.is_thin(&chunk)
    {
        return Some(Spot::Bundled {
            chunk: chunks.known(chunk),
            offset,
        });
    }
    contents.find(&hash, u32::try_from(entry.size).ok()?)
}
