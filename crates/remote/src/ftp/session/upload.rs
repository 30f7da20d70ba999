//! Files that are written, whole or piece by piece: one `STOR` each, from the beginning.

use super::super::reply::from_reply;
use super::{ABANDONED_WAIT, Session, Transfer};
use crate::files::RemoteUpload;
use crate::http::from_wire;
use std::io::{self, Write};
use suppaftp::FtpError;

/// Bytes that are given to a data connection at once.
const PIECE_BYTES_MAX: usize = 256 << 10;

impl Session {
    /// Begins to write a file from its beginning.
    pub(super) fn begin_store(&mut self, path: &str) -> io::Result<Transfer> {
        let path = self.at(path);
        self.begin(|stream| stream.put_with_stream(&path))
    }

    /// Sends the next bytes of a file.
    pub(super) fn send(&self, transfer: &mut Transfer, bytes: &[u8]) -> io::Result<()> {
        let piece_bytes = self.throttle.upload_piece().min(PIECE_BYTES_MAX);
        for (number, piece) in bytes.chunks(piece_bytes).enumerate() {
            (self.throttle).upload(number * piece_bytes, piece.len())?;
            transfer.write_all(piece)?;
        }
        transfer.flush()
    }

    /// Ends a file of which everything was sent, or something could not be.
    pub(super) fn end_store(&mut self, transfer: Transfer, sent: io::Result<()>) -> io::Result<()> {
        let Err(error) = sent else {
            let done = transfer.finish();
            return self.check(done);
        };
        // What the server says of it is the better reason, if it says something.
        self.is_over = true;
        self.set_patience(ABANDONED_WAIT);
        match transfer.finish() {
            Err(FtpError::UnexpectedResponse(reply)) => Err(from_reply(&reply).0),
            _ => Err(from_wire(error)),
        }
    }
}

/// A file that is written piece by piece, over a login of its own, which ends with it.
pub struct FtpUpload {
    session: Session,
    /// `None` once it has ended.
    transfer: Option<Transfer>,
}

impl FtpUpload {
    pub fn begin(mut session: Session, path: &str) -> io::Result<FtpUpload> {
        let transfer = Some(session.begin_store(path)?);
        Ok(FtpUpload { session, transfer })
    }
}

impl RemoteUpload for FtpUpload {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(mut transfer) = self.transfer.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        match self.session.send(&mut transfer, bytes) {
            Ok(()) => {
                self.transfer = Some(transfer);
                Ok(())
            }
            failed => self.session.end_store(transfer, failed),
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        match self.transfer.take() {
            Some(transfer) => self.session.end_store(transfer, Ok(())),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Drop for FtpUpload {
    fn drop(&mut self) {
        if let Some(transfer) = self.transfer.take() {
            self.session.abandon(transfer);
        }
    }
}
