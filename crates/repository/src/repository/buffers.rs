//! Buffers of large chunks that nobody needs any more, for the next ones: fresh memory for each
//! chunk takes the kernel longer than checking it takes us.

use crate::limits::SPARE_BUFFERS_MAX;
use bale_format::limits::{BUNDLE_BYTES_MAX, BUNDLE_BYTES_MIN};
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Smaller chunks are the allocator's business: in a buffer of 4 MiB, which was full before, each
/// would hold all of it.
const BYTES_MIN: usize = BUNDLE_BYTES_MIN;

/// Where they wait.
#[derive(Clone, Default)]
pub(super) struct SpareBuffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl SpareBuffers {
    /// An empty buffer for a chunk of this size.
    pub(super) fn take(&self, chunk_bytes: usize) -> Vec<u8> {
        if !(BYTES_MIN..=BUNDLE_BYTES_MAX).contains(&chunk_bytes) {
            return Vec::new();
        }
        let spare = self.lock().pop();
        spare.unwrap_or_else(|| Vec::with_capacity(BUNDLE_BYTES_MAX))
    }

    /// The chunk; its buffer comes back here when the last part of it is gone.
    pub(super) fn lend(&self, chunk: Vec<u8>) -> Bytes {
        if chunk.capacity() != BUNDLE_BYTES_MAX {
            return Bytes::from(chunk);
        }
        Bytes::from_owner(Lent {
            chunk,
            home: self.clone(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Lent {
    chunk: Vec<u8>,
    home: SpareBuffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.chunk);
        buffer.clear();
        let mut waiting = self.home.lock();
        if waiting.len() < SPARE_BUFFERS_MAX {
            waiting.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_the_last_part_of_its_chunk_is_gone() {
        let buffers = SpareBuffers::default();
        let mut chunk = buffers.take(BYTES_MIN);
        chunk.extend_from_slice(b"some bytes");
        let place = chunk.as_ptr();
        let whole = buffers.lend(chunk);
        let part = whole.slice(5..);
        drop(whole);
        assert!(buffers.lock().is_empty());
        assert_eq!(part, "bytes");
        drop(part);
        let again = buffers.take(BUNDLE_BYTES_MAX);
        assert_eq!(again.as_ptr(), place);
        assert!(again.is_empty() && again.capacity() == BUNDLE_BYTES_MAX);
    }

    #[test]
    fn few_wait_and_small_or_huge_ones_never_do() {
        let buffers = SpareBuffers::default();
        let lent: Vec<Bytes> = (0..SPARE_BUFFERS_MAX + 3)
            .map(|_| buffers.lend(buffers.take(BYTES_MIN)))
            .collect();
        drop(lent);
        assert_eq!(buffers.lock().len(), SPARE_BUFFERS_MAX);
        for bytes in [0, BYTES_MIN - 1, BUNDLE_BYTES_MAX + 1] {
            assert_eq!(buffers.take(bytes).capacity(), 0);
        }
        drop(buffers.lend(vec![1; 100]));
        assert_eq!(buffers.lock().len(), SPARE_BUFFERS_MAX);
    }
}
