//! Decoded chunks that were used a short time ago. Bounded in bytes.

use crate::limits::CHUNK_CACHE_BYTES;
use bale_format::ChunkId;
use bytes::Bytes;
use std::collections::VecDeque;

/// Least recently used goes first. A few dozen chunks, so a list is as good as a map.
#[derive(Default)]
pub(super) struct ChunkCache {
    chunks: VecDeque<(ChunkId, Bytes)>,
    bytes: usize,
}

impl ChunkCache {
    pub(super) fn get(&mut self, id: &ChunkId) -> Option<Bytes> {
        let at = self.chunks.iter().position(|(other, _)| other == id)?;
        let found = self.chunks.remove(at)?;
        let bytes = found.1.clone();
        self.chunks.push_back(found);
        Some(bytes)
    }

    pub(super) fn put(&mut self, id: ChunkId, bytes: Bytes) {
        if self.chunks.iter().any(|(other, _)| *other == id) || bytes.len() > CHUNK_CACHE_BYTES {
            return;
        }
        self.bytes += bytes.len();
        self.chunks.push_back((id, bytes));
        while self.bytes > CHUNK_CACHE_BYTES {
            let Some((_, oldest)) = self.chunks.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
        }
    }
}
