//! Buffers of large chunks that nobody needs any more, for the next ones: fresh memory for each
//! chunk takes the kernel longer than checking it takes us.

use crate::limits::{SPARE_BLOCKS_MAX, SPARE_BUFFERS_MAX};
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::limits::{BUNDLE_BYTES_MAX, BUNDLE_BYTES_MIN};
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Smaller chunks than bundles are the allocator's business: in a buffer of 4 MiB, which was full
/// before, each would hold all of it. Blocks of images have buffers of their own size.
const BYTES_MIN: usize = BUNDLE_BYTES_MIN;
const BLOCK_BYTES: usize = IMAGE_BLOCK_BYTES as usize;

/// Where they wait.
#[derive(Clone, Default)]
pub(super) struct SpareBuffers(Arc<Spare>);

#[derive(Default)]
struct Spare {
    bundles: Mutex<Vec<Vec<u8>>>,
    blocks: Mutex<Vec<Vec<u8>>>,
}

impl SpareBuffers {
    /// An empty buffer for a chunk of this size.
    pub(super) fn take(&self, chunk_bytes: usize) -> Vec<u8> {
        let capacity = match chunk_bytes {
            BLOCK_BYTES => BLOCK_BYTES,
            BYTES_MIN..=BUNDLE_BYTES_MAX => BUNDLE_BYTES_MAX,
            _ => return Vec::new(),
        };
        let spare = self
            .waiting(capacity)
            .and_then(|(mut spare, _)| spare.pop());
        spare.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// The chunk; its buffer comes back here when the last part of it is gone.
    pub(super) fn lend(&self, chunk: Vec<u8>) -> Bytes {
        if !matches!(chunk.capacity(), BLOCK_BYTES | BUNDLE_BYTES_MAX) {
            return Bytes::from(chunk);
        }
        Bytes::from_owner(Lent {
            chunk,
            home: self.clone(),
        })
    }

    /// Those of a capacity, and how many may wait.
    fn waiting(&self, capacity: usize) -> Option<(MutexGuard<'_, Vec<Vec<u8>>>, usize)> {
        let (waiting, max) = match capacity {
            BLOCK_BYTES => (&self.0.blocks, SPARE_BLOCKS_MAX),
            BUNDLE_BYTES_MAX => (&self.0.bundles, SPARE_BUFFERS_MAX),
            _ => return None,
        };
        Some((waiting.lock().unwrap_or_else(PoisonError::into_inner), max))
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
        if let Some((mut waiting, max)) = self.home.waiting(buffer.capacity())
            && waiting.len() < max
        {
            waiting.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SpareBuffers {
        fn spare(&self, capacity: usize) -> usize {
            self.waiting(capacity).unwrap().0.len()
        }
    }

    #[test]
    fn a_buffer_comes_back_when_the_last_part_of_its_chunk_is_gone() {
        for (chunk, capacity) in [(BYTES_MIN, BUNDLE_BYTES_MAX), (BLOCK_BYTES, BLOCK_BYTES)] {
            let buffers = SpareBuffers::default();
            let mut bytes = buffers.take(chunk);
            bytes.extend_from_slice(b"some bytes");
            let place = bytes.as_ptr();
            let whole = buffers.lend(bytes);
            let part = whole.slice(5..);
            drop(whole);
            assert_eq!(buffers.spare(capacity), 0);
            assert_eq!(part, "bytes");
            drop(part);
            let again = buffers.take(chunk);
            assert_eq!(again.as_ptr(), place);
            assert!(again.is_empty() && again.capacity() == capacity);
        }
    }

    #[test]
    fn few_wait_and_small_or_huge_ones_never_do() {
        let buffers = SpareBuffers::default();
        let (blocks, bundles) = (SPARE_BLOCKS_MAX, SPARE_BUFFERS_MAX);
        for (chunk, capacity, max) in [
            (BYTES_MIN, BUNDLE_BYTES_MAX, bundles),
            (BLOCK_BYTES, BLOCK_BYTES, blocks),
        ] {
            let take = |_| buffers.lend(buffers.take(chunk));
            let lent: Vec<Bytes> = (0..max + 3).map(take).collect();
            drop(lent);
            assert_eq!(buffers.spare(capacity), max);
        }
        for bytes in [0, BLOCK_BYTES - 1, BYTES_MIN - 1, BUNDLE_BYTES_MAX + 1] {
            assert_eq!(buffers.take(bytes).capacity(), 0);
        }
        drop(buffers.lend(vec![1; 100]));
        let waiting = [BUNDLE_BYTES_MAX, BLOCK_BYTES].map(|capacity| buffers.spare(capacity));
        assert_eq!(waiting, [bundles, blocks]);
    }
}
