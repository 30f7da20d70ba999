//! The bytes of a chunk on their way to a pack: sealed where they lie, and given back to whoever
//! has a use for the buffer.

use crossbeam_channel::Sender;

/// Bytes of a chunk, in a buffer of which they may be the end only. With room behind them for
/// padding and a tag they are sealed without a copy.
pub struct ChunkBytes {
    buffer: Vec<u8>,
    start: usize,
    owner: Option<Sender<Vec<u8>>>,
}

impl ChunkBytes {
    /// `buffer` from `start` on. It goes back to its owner, if that has room for it, when the chunk
    /// is stored, or known.
    ///
    /// # Panics
    ///
    /// If the buffer ends in front of `start`.
    pub fn lent(buffer: Vec<u8>, start: usize, owner: Sender<Vec<u8>>) -> ChunkBytes {
        assert!(start <= buffer.len(), "a chunk begins within its buffer");
        ChunkBytes {
            buffer,
            start,
            owner: Some(owner),
        }
    }

    pub(super) fn plain(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// The buffer, and where in it the chunk begins; what is in front stays.
    pub(super) fn in_place(&mut self) -> (&mut Vec<u8>, usize) {
        (&mut self.buffer, self.start)
    }

    /// Is this a buffer of this size that nobody waits for?
    pub(super) fn is_free(&self, capacity: usize) -> bool {
        self.owner.is_none() && self.buffer.capacity() >= capacity
    }

    pub(super) fn into_buffer(mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }
}

impl From<Vec<u8>> for ChunkBytes {
    fn from(buffer: Vec<u8>) -> ChunkBytes {
        ChunkBytes {
            buffer,
            start: 0,
            owner: None,
        }
    }
}

impl Drop for ChunkBytes {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            let _it_has_enough = owner.try_send(std::mem::take(&mut self.buffer));
        }
    }
}
