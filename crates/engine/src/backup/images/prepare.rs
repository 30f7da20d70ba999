//! What the threads that read do with a block: read it, hash it, and find out what of it is other
//! than it was in the parent.

use super::changed_granules::{changed_runs, cover};
use super::parent_images::ParentImage;
use super::stored::is_there;
use bale_format::extent::{IMAGE_BLOCK_BYTES, block_hash};
use bale_format::{ChunkId, ChunkKind, ImageExtent};
use bale_repository::pack::ChunkWriter;
use bale_source::raw::{BlockWork, RawBlock, RawImage};
use std::io;
use std::ops::Range;

/// Extents of a block of the parent that are looked at; one in more is stored whole.
pub(super) const PARENT_EXTENTS_MAX: usize = 256;

/// A block on its way from the threads that read.
pub(super) enum Prepared {
    Zeros(Range<u64>),
    Free(Range<u64>),
    Unchanged(Range<u64>),
    Read {
        range: Range<u64>,
        /// Without an id it is nothing but zeros.
        block: RawBlock,
        id: Option<ChunkId>,
        before: Before,
    },
    Failed(Range<u64>, io::Error),
}

/// What the parent has of a block, as far as it was looked at.
pub(super) enum Before {
    /// The block is stored whole, if it is not there.
    Unknown,
    /// These extents are all of it.
    Same(Vec<ImageExtent>),
    /// These are, but for what changed.
    Changed(Vec<ImageExtent>, Vec<Range<usize>>),
}

/// Work of the threads that read. `before`: the image as the parent has it.
pub(super) fn prepare(
    (image, before): (&RawImage, Option<&ParentImage>),
    store: &ChunkWriter,
    work: BlockWork,
) -> Prepared {
    let range = match work {
        BlockWork::Zeros(range) => return Prepared::Zeros(range),
        BlockWork::Free(range) => return Prepared::Free(range),
        BlockWork::Unchanged(range) => return Prepared::Unchanged(range),
        BlockWork::Read(range) => range,
    };
    let read = match before.filter(|_| image.is_changes_only()) {
        None => image.read(range.clone()).map(Some),
        Some(parent) => image.read_changed(range.clone(), |offset, rest| parent.fill(offset, rest)),
    };
    match read {
        Err(error) => Prepared::Failed(range, error),
        Ok(None) => Prepared::Unchanged(range),
        Ok(Some(block)) => {
            // A part that could not be read is stored, so that the row says so.
            let is_stored = !block.is_zero() || !block.bad.is_empty();
            let id = is_stored.then(|| store.keys().chunk_id(ChunkKind::Data, block.bytes()));
            let is_whole =
                block.bad.is_empty() && block.bytes().len() as u64 == range.end - range.start;
            let before = match (before, id) {
                (Some(before), Some(id)) if is_whole && !is_there(store, &id) => {
                    compare(before, &range, block.bytes(), &id)
                }
                _ => Before::Unknown,
            };
            Prepared::Read {
                range,
                block,
                id,
                before,
            }
        }
    }
}

/// Compares a block that the repository does not have as it is with the parent's.
fn compare(parent: &ParentImage, range: &Range<u64>, bytes: &[u8], id: &ChunkId) -> Before {
    // The last block of an image that grew or shrank is another one.
    let is_full = range.end - range.start == IMAGE_BLOCK_BYTES;
    if range.end > parent.size() || !is_full && range.end != parent.size() {
        return Before::Unknown;
    }
    let Some(extents) = parent.extents(range.clone(), PARENT_EXTENTS_MAX) else {
        return Before::Unknown;
    };
    let Some(first) = extents.first() else {
        return Before::Unknown;
    };
    if first.block_hash == Some(block_hash(id)) && cover(range.start, &extents, bytes) {
        return Before::Same(extents);
    }
    match parent.whole(range) {
        None => Before::Unknown,
        Some(old) => Before::Changed(extents, changed_runs(&old, bytes)),
    }
}
