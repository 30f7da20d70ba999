//! Whether a refusal without a reason is one for want of room.
//!
//! A server that runs full under several uploads refuses each of them, and each gives back what it
//! had written before the server is asked what it has left. So the room is held against what all
//! of them needed, and by the largest of them: what is refused may be small beside it.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the uploads of a store need at once, as far as it has seen.
pub(crate) struct Room {
    largest: AtomicU64,
    uploads_max: u64,
}

impl Room {
    pub(crate) fn for_uploads(uploads_max: usize) -> Room {
        Room {
            largest: AtomicU64::new(1),
            uploads_max: uploads_max as u64,
        }
    }

    /// An upload of so many bytes begins, or has come so far.
    pub(crate) fn note(&self, len: u64) {
        self.largest.fetch_max(len, Ordering::Relaxed);
    }

    /// `StorageFull` if so many free bytes are fewer than what is under way; else what was the
    /// matter. `free` is `None` where the server does not say.
    pub(crate) fn full_or(&self, error: io::Error, free: Option<u64>) -> io::Error {
        let largest = self.largest.load(Ordering::Relaxed);
        let needed = largest.saturating_mul(self.uploads_max);
        match free {
            Some(free) if free < needed => {
                let text = format!("no space left: the server has room for {free} bytes ({error})");
                io::Error::new(ErrorKind::StorageFull, text)
            }
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_object_beside_large_ones_is_refused_for_the_room_they_need() {
        let room = Room::for_uploads(4);
        let refused = || io::Error::other("failure");
        room.note(1000);
        assert_eq!(room.full_or(refused(), None).kind(), ErrorKind::Other);
        assert_eq!(room.full_or(refused(), Some(4000)).kind(), ErrorKind::Other);
        let full = room.full_or(refused(), Some(3999));
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        room.note(10);
        let full = room.full_or(refused(), Some(3999));
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn a_server_without_a_free_byte_is_full_whatever_was_written() {
        let full = Room::for_uploads(4).full_or(io::Error::other("failure"), Some(0));
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        assert!(full.to_string().contains("failure"), "{full}");
    }
}
