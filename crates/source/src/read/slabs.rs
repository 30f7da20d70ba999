//! Room for the contents of small files: slabs, cut in the order in which files are asked for.
//!
//! Files are taken in that order too, so a slab is free again soon after its last file was asked
//! for: all slabs together take what the window allows and two slabs more. Blocks of their own for
//! each file take as much again: an allocator keeps pages by size and by thread, and here sixteen
//! threads read files of all sizes.

use super::{SMALL_BYTES_MAX, SMALL_WINDOW_BYTES_MAX};
use bale_format::entry::Entry;
use bytes::BytesMut;

/// Bytes of a slab. What is left of it when a file does not fit any more is lost: an eighth at
/// most, more of the smaller ones of a small window.
pub(super) const SLAB_BYTES_MAX: usize = 4 << 20;
const SLAB_BYTES_MIN: usize = 1 << 20;
/// Slabs that a window is worth.
const SLABS_OF_WINDOW: u64 = 4;
const _: () = assert!(SMALL_BYTES_MAX as usize * 8 <= SLAB_BYTES_MAX);
const _: () = assert!((SMALL_BYTES_MAX as usize) < SLAB_BYTES_MIN);

/// Of a window of so many bytes.
pub(super) const fn slab_bytes(window_bytes: u64) -> usize {
    let bytes = (window_bytes / SLABS_OF_WINDOW) as usize;
    if bytes > SLAB_BYTES_MAX {
        SLAB_BYTES_MAX
    } else if bytes < SLAB_BYTES_MIN {
        SLAB_BYTES_MIN
    } else {
        bytes
    }
}

/// What a file in the window takes beside its bytes.
const FILE_BYTES: u64 = 512;

/// What a file counts for in the window.
pub(super) fn cost_of(entry: &Entry) -> u64 {
    FILE_BYTES + entry.size.min(SMALL_BYTES_MAX)
}

/// Cuts rooms from slabs.
pub(super) struct Slabs {
    current: BytesMut,
    slab_bytes: usize,
}

impl Default for Slabs {
    fn default() -> Slabs {
        Slabs::of_window(SMALL_WINDOW_BYTES_MAX)
    }
}

impl Slabs {
    pub(super) fn of_window(window_bytes: u64) -> Slabs {
        Slabs {
            current: BytesMut::new(),
            slab_bytes: slab_bytes(window_bytes),
        }
    }

    /// For a file and one byte more; nothing for one that will not be read.
    pub(super) fn room_for(&mut self, entry: &Entry) -> BytesMut {
        let is_read = (1..=SMALL_BYTES_MAX).contains(&entry.size);
        let bytes = if is_read { entry.size + 1 } else { 0 };
        self.take(bytes as usize)
    }

    /// So many zeros.
    pub(super) fn take(&mut self, bytes: usize) -> BytesMut {
        if bytes > self.slab_bytes {
            return BytesMut::zeroed(bytes);
        }
        if bytes > self.current.len() {
            self.current = BytesMut::zeroed(self.slab_bytes);
        }
        self.current.split_to(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_lie_side_by_side_and_are_zero() {
        let mut slabs = Slabs::of_window(32 << 20);
        let slab = slab_bytes(32 << 20);
        assert_eq!((slab, slab_bytes(1)), (SLAB_BYTES_MAX, SLAB_BYTES_MIN));
        let mut rooms: Vec<BytesMut> = (0..20).map(|_| slabs.take(slab / 8)).collect();
        for room in &mut rooms {
            assert!(room.len() == slab / 8 && room.iter().all(|byte| *byte == 0));
            room.fill(7);
        }
        let at = |room: usize| rooms[room].as_ptr().addr();
        assert_eq!(at(7) - at(0), slab / 8 * 7);
        assert_eq!(slabs.take(slab + 1).len(), slab + 1);
        assert!(slabs.take(0).is_empty());
    }
}
