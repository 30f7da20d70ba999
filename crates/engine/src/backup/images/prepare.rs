//! What the threads that read do with a block: read it, and hash it.

use super::parent_images::ParentImage;
use bale_format::{ChunkId, ChunkKind};
use bale_repository::pack::ChunkWriter;
use bale_source::raw::{BlockWork, RawBlock, RawImage};
use std::io;
use std::ops::Range;

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
    },
    Failed(Range<u64>, io::Error),
}

/// Work of the threads that read.
pub(super) fn prepare(
    (image, parent): (&RawImage, Option<&ParentImage>),
    store: &ChunkWriter,
    work: BlockWork,
) -> Prepared {
    let range = match work {
        BlockWork::Zeros(range) => return Prepared::Zeros(range),
        BlockWork::Free(range) => return Prepared::Free(range),
        BlockWork::Unchanged(range) => return Prepared::Unchanged(range),
        BlockWork::Read(range) => range,
    };
    let read = match parent {
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
            Prepared::Read { range, block, id }
        }
    }
}
