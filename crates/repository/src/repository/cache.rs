//! Decoded chunks that were used a short time ago. Bounded in bytes, of which whoever puts one
//! tells how many.

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

    pub(super) fn has(&self, id: &ChunkId) -> bool {
        self.chunks.iter().any(|(other, _)| other == id)
    }

    pub(super) fn put(&mut self, id: ChunkId, bytes: Bytes, bytes_max: usize) {
        if self.chunks.iter().any(|(other, _)| *other == id) || bytes.len() > bytes_max {
            return;
        }
        self.bytes += bytes.len();
        self.chunks.push_back((id, bytes));
        while self.bytes > bytes_max {
            let Some((_, oldest)) = self.chunks.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
        }
    }
}
