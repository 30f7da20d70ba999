//! What an answer carries: bytes that are there, or pieces that a thread makes while they are sent.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::Receiver;

/// The body of an answer.
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// One piece after the other; an error ends the connection, so that nobody takes a part for the
    /// whole.
    Pieces {
        pieces: Receiver<io::Result<Bytes>>,
        /// Where it is known beforehand.
        len: Option<u64>,
    },
}

impl AnswerBody {
    /// No bytes.
    pub fn empty() -> AnswerBody {
        AnswerBody::Whole(Bytes::new())
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            AnswerBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            AnswerBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            AnswerBody::Pieces { pieces, .. } => pieces
                .poll_recv(context)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, AnswerBody::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            AnswerBody::Pieces { len: Some(len), .. } => SizeHint::with_exact(*len),
            AnswerBody::Pieces { len: None, .. } => SizeHint::default(),
        }
    }
}
