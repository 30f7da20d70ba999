//! An object on its way out, in pieces: between them a bound on bytes a second is kept. Each piece
//! has the time-out of a write for itself, so a large object over a slow line is no silence.

use crate::pace::Pace;
use bytes::Bytes;
use std::io::{self, Read};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Bytes of an object that are handed to the connection at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Reads an object to send it.
pub struct OutgoingObject {
    parts: Vec<Bytes>,
    pace: Option<Arc<dyn Pace>>,
    /// Until the next piece may go.
    pause: Duration,
}

impl OutgoingObject {
    /// `parts` in their order.
    pub fn new(mut parts: Vec<Bytes>, pace: Option<Arc<dyn Pace>>) -> OutgoingObject {
        parts.reverse();
        OutgoingObject {
            parts,
            pace,
            pause: Duration::ZERO,
        }
    }

    fn take_piece(&mut self, most: usize) -> Option<Bytes> {
        let pace = self.pace.as_ref();
        let piece = pace.map_or(PIECE_BYTES, |pace| {
            pace.upload_piece().clamp(1, PIECE_BYTES)
        });
        let most = most.min(piece);
        loop {
            let part = self.parts.last_mut()?;
            if part.is_empty() {
                self.parts.pop();
                continue;
            }
            return Some(part.split_to(part.len().min(most)));
        }
    }
}

impl Read for OutgoingObject {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        thread::sleep(std::mem::take(&mut self.pause));
        let Some(piece) = self.take_piece(buf.len()) else {
            return Ok(0);
        };
        buf[..piece.len()].copy_from_slice(&piece);
        if let Some(pace) = &self.pace {
            self.pause = pace.upload(piece.len());
        }
        Ok(piece.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_leaves_in_its_order_and_whole() {
        let whole: Vec<u8> = (0..200_001_u32).map(|n| n as u8).collect();
        let parts = [
            &whole[..1],
            &whole[1..1],
            &whole[1..150_000],
            &whole[150_000..],
        ];
        let parts = parts.map(Bytes::copy_from_slice).to_vec();
        let mut upload = OutgoingObject::new(parts, None);
        let mut sent = Vec::new();
        let mut buf = [0; 100_000];
        loop {
            let read = upload.read(&mut buf).unwrap();
            assert!(read <= PIECE_BYTES);
            if read == 0 {
                break;
            }
            sent.extend_from_slice(&buf[..read]);
        }
        assert!(sent == whole);
    }
}
