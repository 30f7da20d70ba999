//! Buffers that blocks are read into: aligned for direct reads, with room behind the block to be
//! sealed where it lies, and used again by whoever reads next.

use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::record::record_bytes;
use bale_sys::buffer::ALIGNMENT;

const BLOCK_BYTES: usize = IMAGE_BLOCK_BYTES as usize;

/// Room to begin at a multiple of [`ALIGNMENT`], and behind the block for padding and a tag.
pub(super) const BUFFER_BYTES: usize = ALIGNMENT + record_bytes(BLOCK_BYTES);

/// Bytes of one block, from `start` on.
pub(super) struct BlockBuffer {
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
}

impl BlockBuffer {
    /// Of a vector that has been used before, if it is large enough.
    pub(super) fn of(spent: Option<Vec<u8>>) -> BlockBuffer {
        let spent = spent.filter(|spent| spent.capacity() >= BUFFER_BYTES);
        let mut bytes = spent.unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        let start = bytes.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        bytes.resize(start + BLOCK_BYTES, 0);
        BlockBuffer { bytes, start }
    }

    pub(super) fn block(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(super) fn block_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_has_room_behind_the_block_also_when_it_is_used_again() {
        let first = BlockBuffer::of(None);
        let place = first.bytes.as_ptr();
        let mut spent = first.bytes;
        spent.truncate(10);
        let again = BlockBuffer::of(Some(spent));
        assert_eq!(again.bytes.as_ptr(), place);
        for buffer in [again, BlockBuffer::of(Some(vec![1; 100]))] {
            assert_eq!(buffer.block().as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!(buffer.block().len(), BLOCK_BYTES);
            let room = buffer.bytes.capacity() - buffer.start;
            assert!(room >= record_bytes(BLOCK_BYTES));
        }
    }
}
