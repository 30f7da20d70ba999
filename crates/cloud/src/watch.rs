//! Silence: a transfer in which no byte moved for too long is given up. Time counts from the last
//! byte, not from the beginning: a large object over a slow line is no silence.

use crate::pace::Pace;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// Bytes of an object that are handed to the connection at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that a connection has taken.
#[derive(Clone, Debug, Default)]
pub struct PiecesTaken(Arc<AtomicU64>);

impl PiecesTaken {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn advance(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for `work` as long as there is progress within each `idle`; `None` if it was silent.
pub async fn unless_silent<T>(
    idle: Duration,
    progress: &PiecesTaken,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        let before = progress.count();
        match tokio::time::timeout(idle, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if progress.count() != before => {}
            Err(_) => return None,
        }
    }
}

/// An object on its way out, in pieces that count as progress when they are taken.
pub struct OutgoingObject {
    parts: Vec<Bytes>,
    left: u64,
    progress: PiecesTaken,
    pace: Option<Arc<dyn Pace>>,
    /// Until the next piece may go.
    pause: Option<Pin<Box<Sleep>>>,
}

impl OutgoingObject {
    /// `parts` in their order.
    pub fn new(
        mut parts: Vec<Bytes>,
        progress: PiecesTaken,
        pace: Option<Arc<dyn Pace>>,
    ) -> OutgoingObject {
        parts.reverse();
        OutgoingObject {
            left: parts.iter().map(|part| part.len() as u64).sum(),
            parts,
            progress,
            pace,
            pause: None,
        }
    }

    fn take_piece(&mut self) -> Option<Bytes> {
        let pace = self.pace.as_ref();
        let most = pace.map_or(PIECE_BYTES, |pace| {
            pace.upload_piece().clamp(1, PIECE_BYTES)
        });
        loop {
            let part = self.parts.last_mut()?;
            if part.is_empty() {
                self.parts.pop();
                continue;
            }
            let piece = part.split_to(part.len().min(most));
            self.left -= piece.len() as u64;
            return Some(piece);
        }
    }
}

impl Body for OutgoingObject {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        self.progress.advance();
        let piece = self.take_piece();
        if let (Some(pace), Some(piece)) = (&self.pace, &piece) {
            let pause = pace.upload(piece.len());
            self.pause = (!pause.is_zero()).then(|| Box::pin(tokio::time::sleep(pause)));
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
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
        let progress = PiecesTaken::default();
        let mut upload = OutgoingObject::new(parts, progress.clone(), None);
        assert_eq!(upload.size_hint().exact(), Some(200_001));
        let mut sent = Vec::new();
        while let Some(piece) = upload.take_piece() {
            assert!(piece.len() <= PIECE_BYTES);
            sent.extend_from_slice(&piece);
        }
        assert!(sent == whole && upload.is_end_stream());
    }

    #[test]
    fn silence_is_given_up_and_slowness_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let idle = Duration::from_millis(50);
        let nothing = PiecesTaken::default();
        let silent = unless_silent(idle, &nothing, std::future::pending::<()>());
        assert_eq!(runtime.block_on(silent), None);
        // Ten times as long, with a byte now and then.
        let progress = PiecesTaken::default();
        let slow = async {
            for _ in 0..500 {
                progress.advance();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert_eq!(
            runtime.block_on(unless_silent(idle, &progress, slow)),
            Some(())
        );
    }
}
