//! Buffers aligned for direct reads.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment: the largest that devices ask for in practice.
pub const ALIGNMENT: usize = 4096;

/// Zeroed memory of fixed length whose address is a multiple of [`ALIGNMENT`].
pub struct AlignedBuffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory alone.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `len` bytes, at least 1.
    pub fn new(len: usize) -> AlignedBuffer {
        let layout = Layout::from_size_align(len.max(1), ALIGNMENT)
            .expect("a buffer is far smaller than the address space");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => AlignedBuffer { start, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points at `size` initialized bytes that this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of self makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_aligned_zeroed_and_as_long_as_asked() {
        let mut buffer = AlignedBuffer::new(5000);
        assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(buffer.len(), 5000);
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer[4999] = 7;
        assert_eq!(buffer[4999], 7);
    }
}
