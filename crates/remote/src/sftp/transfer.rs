//! Large reads and writes: many requests in flight, in order, on one handle.

use super::connection::Sent;
use super::limits::TRANSFER_BYTES_DEFAULT;
use super::permits::{Permit, Turn};
use super::request::Request;
use super::session::{OpenHandle, Session};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;

/// Requests of one transfer in flight; two transfers fill a connection.
const WINDOW: usize = 32;

struct InFlight<'a> {
    offset: u64,
    len: usize,
    sent: Sent,
    /// Given back when the answer is used; none for what is small.
    permit: Option<Permit<'a>>,
}

/// Gives the bytes of a range to `sink`, in order; says how many there were before the file ended.
pub(super) fn read(
    session: &Session,
    file: &OpenHandle,
    range: Range<u64>,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut in_flight = VecDeque::new();
    let mut next = range.start;
    let mut turn = turn(session, range.end - range.start);
    loop {
        let bytes_max = session.read_bytes_max(range.end - range.start)?;
        while next < range.end && in_flight.len() < WINDOW {
            let permit = turn.as_ref().map(Turn::permit);
            let len = piece_len(range.end - next, bytes_max);
            session.throttle.download(len)?;
            let sent = session.send(&Request::Read(&file.bytes, next, len))?;
            in_flight.push_back(InFlight {
                offset: next,
                len,
                sent,
                permit,
            });
            next += len as u64;
        }
        if next >= range.end {
            turn = None;
        }
        let Some(first) = in_flight.pop_front() else {
            return Ok(range.end - range.start);
        };
        let InFlight {
            offset,
            len,
            sent,
            permit,
        } = first;
        let mut got = 0;
        let mut answer = Some(sent);
        while got < len {
            let sent = match answer.take() {
                Some(sent) => sent,
                None => {
                    session.send(&Request::Read(&file.bytes, offset + got as u64, len - got))?
                }
            };
            let Some(bytes) = sent.data(len - got)? else {
                return Ok(offset - range.start + got as u64);
            };
            if got > 0 {
                // It was not the end of the file that made the first answer short.
                session.lower_read_bytes_max(got);
            }
            sink(&bytes)?;
            got += bytes.len();
        }
        drop(permit);
    }
}

/// Writes that are sent, and whose last answers nobody has waited for.
#[derive(Default)]
#[must_use = "what was written is known with the answers only"]
pub(super) struct Written<'a> {
    in_flight: VecDeque<(Sent, Option<Permit<'a>>)>,
}

impl Written<'_> {
    /// Waits for the answers; the first error counts.
    pub(super) fn done(self) -> io::Result<()> {
        let mut answers = self.in_flight.into_iter();
        answers.try_for_each(|(sent, _permit)| sent.done())
    }
}

/// Writes all of `bytes` from an offset on. What is sent behind it about the same file is done
/// behind it (draft-ietf-secsh-filexfer-02, 6.1).
pub(super) fn write_at<'a>(
    session: &'a Session,
    file: &OpenHandle,
    offset: u64,
    bytes: &[u8],
) -> io::Result<Written<'a>> {
    let bytes_max = session.write_bytes_max(bytes.len())?;
    let turn = turn(session, bytes.len() as u64);
    let mut written = Written::default();
    let mut next = 0;
    while next < bytes.len() {
        if written.in_flight.len() == WINDOW {
            let first = written.in_flight.pop_front();
            first.map_or(Ok(()), |(sent, _permit)| sent.done())?;
        }
        let permit = turn.as_ref().map(Turn::permit);
        let len = (bytes.len() - next).min(bytes_max);
        let len = len.min(session.throttle.upload_piece());
        session.throttle.upload(next, len)?;
        let piece = &bytes[next..next + len];
        let sent = session.send(&Request::Write(&file.bytes, offset + next as u64, piece))?;
        written.in_flight.push_back((sent, permit));
        next += len;
    }
    Ok(written)
}

/// What is small is sent at once.
fn turn(session: &Session, len: u64) -> Option<Turn<'_>> {
    (len > TRANSFER_BYTES_DEFAULT as u64).then(|| session.permits.turn())
}

fn piece_len(left: u64, len_max: usize) -> usize {
    usize::try_from(left).map_or(len_max, |left| left.min(len_max))
}
