//! Where a catalog that is being written puts its segments: they are chunks like others.

use bale_format::{ChunkId, ChunkKind};
use bale_repository::catalog::{BoxError, SegmentSink};
use bale_repository::pack::ChunkWriter;
use std::sync::Arc;

/// Stores catalog segments as chunks.
pub(super) struct StoredSegments(pub(super) Arc<ChunkWriter>);

impl SegmentSink for StoredSegments {
    fn store_segment(&mut self, segment: Vec<u8>) -> Result<ChunkId, BoxError> {
        Ok(self.0.store(ChunkKind::Segment, segment)?)
    }
}
