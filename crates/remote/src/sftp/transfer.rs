//! Large reads and writes: many requests in flight, in order, on one handle.

use super::connection::Sent;
use super::request::Request;
use super::session::{OpenHandle, Permit, Session};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;

/// Requests of one transfer in flight; two transfers fill a connection.
const WINDOW: usize = 32;

struct InFlight<'a> {
    offset: u64,
    len: usize,
    sent: Sent,
    /// Given back when the answer is used.
    permit: Permit<'a>,
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
    loop {
        while next < range.end && in_flight.len() < WINDOW {
            let Some(permit) = permit(session, in_flight.is_empty()) else {
                break;
            };
            let len = piece_len(range.end - next, session.read_bytes_max());
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

/// Writes all of `bytes` at the start of a file.
pub(super) fn write(session: &Session, file: &OpenHandle, bytes: &[u8]) -> io::Result<()> {
    write_at(session, file, 0, bytes)
}

/// The same from an offset on.
pub(super) fn write_at(
    session: &Session,
    file: &OpenHandle,
    offset: u64,
    bytes: &[u8],
) -> io::Result<()> {
    let mut in_flight = VecDeque::new();
    let mut next = 0;
    loop {
        while next < bytes.len() && in_flight.len() < WINDOW {
            let Some(permit) = permit(session, in_flight.is_empty()) else {
                break;
            };
            let len = (bytes.len() - next).min(session.write_bytes_max);
            let len = len.min(session.throttle.upload_piece());
            session.throttle.upload(len)?;
            let piece = &bytes[next..next + len];
            let sent = session.send(&Request::Write(&file.bytes, offset + next as u64, piece))?;
            in_flight.push_back((sent, permit));
            next += len;
        }
        let Some((sent, permit)) = in_flight.pop_front() else {
            return Ok(());
        };
        sent.done()?;
        drop(permit);
    }
}

/// Waits for one only if this transfer has none, so that nobody waits for somebody who waits.
fn permit(session: &Session, has_none: bool) -> Option<Permit<'_>> {
    match has_none {
        true => Some(session.permits.take()),
        false => session.permits.try_take(),
    }
}

fn piece_len(left: u64, len_max: usize) -> usize {
    usize::try_from(left).map_or(len_max, |left| left.min(len_max))
}
