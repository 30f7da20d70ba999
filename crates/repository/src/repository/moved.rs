//! Reading while prunes go on: what is in use is copied to another pack, and the old one is deleted
//! a grace period later.
//!
//! Whoever reads for longer than that holds an index that names packs which are gone. Then the
//! index is read afresh, and the chunk is read where it is now. Only restores, dumps and listings
//! do so: a backup looks again before it commits, a check looks again at what it found, and a prune
//! has an index of its own making.

use super::Repository;
use crate::catalog::SegmentSource;
use crate::error::Result;
use crate::index::ChunkIndex;
use bale_format::{ChunkId, ChunkKind};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// After an index that was read afresh in vain, the next one comes so much later: a pack that is
/// missing for another reason costs no more. What a prune deletes meanwhile was condemned long
/// before, and its copies are named.
const REST: Duration = Duration::from_secs(10 * 60);

/// Indexes that are tried for one chunk, while prunes follow each other.
const INDEXES_MAX: usize = 4;

impl Repository {
    /// Reads and checks a chunk; where its pack is gone, by an index that is read afresh.
    pub fn read_chunk_wherever(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes> {
        let mut index = self.index()?;
        let mut read = self.read_by(&index, id, kind);
        for _ in 1..INDEXES_MAX {
            if !read.as_ref().is_err_and(|unread| unread.is_gone) {
                break;
            }
            let Some(newer) = self.newer_index(&index) else {
                break;
            };
            index = newer;
            read = self.read_by(&index, id, kind);
            if read.is_ok() {
                // Not in vain.
                *self.read_afresh.lock().expect("holders do not panic") = None;
            }
        }
        read.map_err(|unread| *unread.error)
    }

    /// The same, remembering the last few.
    pub fn read_chunk_wherever_remembering(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes> {
        self.remembering(id, || self.read_chunk_wherever(id, kind))
    }

    /// An index that is not this one: another thread has read it afresh, or this one does; `None`
    /// if it was done in vain a moment ago, or cannot be done.
    fn newer_index(&self, old: &Arc<ChunkIndex>) -> Option<Arc<ChunkIndex>> {
        let mut last = self.read_afresh.lock().expect("holders do not panic");
        let index = self.index().ok()?;
        if !Arc::ptr_eq(&index, old) {
            return Some(index);
        }
        let now = self.clock().now();
        if last.is_some_and(|last| now.duration_since(last).is_ok_and(|ago| ago < REST)) {
            return None;
        }
        *last = Some(now);
        self.reload_index_as_far_as_possible().ok()
    }

    /// Where catalogs read their segments, for whoever may read for long.
    pub fn segment_source_wherever(self: &Arc<Self>) -> Arc<dyn SegmentSource> {
        self.segments(Repository::read_chunk_wherever)
    }

    /// The same for whoever reads many of them and has so much memory for those that are fetched
    /// together from a store that is far away.
    pub fn segment_source_wherever_within(
        self: &Arc<Self>,
        fetched_bytes: usize,
    ) -> Arc<dyn SegmentSource> {
        self.segments_within(Repository::read_chunk_wherever, fetched_bytes)
    }

    /// The same for callers that come back to the same segments.
    pub fn segment_source_wherever_remembering(self: &Arc<Self>) -> Arc<dyn SegmentSource> {
        self.segments(Repository::read_chunk_wherever_remembering)
    }
}
