//! The thread that reads what a server sends, and gives each reply to its request.

use super::connection::{Flight, Flights};
use crate::error::NbdFault;
use crate::stream::ReadHalf;
use crate::wire::reply::{
    ChunkHead, DATA_HEAD_BYTES, HEAD_BYTES_MAX, MAGIC_BYTES, ReplyError, ReplyHead, Requested,
    check_chunk, chunk, decode_head, head_bytes, kept_bytes,
};
use crate::wire::{HeaderStyle, NbdWireError};
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::time::Instant;

/// Reads replies until the connection ends; then all that is in flight has ended, too.
pub(super) fn listen(reader: ReadHalf, flights: &Flights, style: HeaderStyle) {
    let mut listener = Listener {
        reader,
        flights,
        style,
        heard: Instant::now(),
        payload: Vec::new(),
    };
    loop {
        if let Err(fault) = listener.message() {
            flights.lose(fault);
            return;
        }
    }
}

struct Listener<'a> {
    reader: ReadHalf,
    flights: &'a Flights,
    style: HeaderStyle,
    /// The last bytes came then.
    heard: Instant,
    /// Of a chunk that is no data; used again.
    payload: Vec<u8>,
}

/// Also when this thread panics: nobody waits for it.
impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.flights.lose(NbdFault::Ended);
        // A writer that waits for a server that reads nothing returns.
        self.reader.socket().shut_down(Shutdown::Both);
    }
}

impl Listener<'_> {
    /// One reply, or one chunk of it.
    fn message(&mut self) -> Result<(), NbdFault> {
        let mut magic = [0; MAGIC_BYTES];
        self.fill(&mut magic)?;
        let mut head = [0; HEAD_BYTES_MAX];
        let head = &mut head[..head_bytes(magic, self.style)?];
        self.fill(head)?;
        let head = decode_head(head)?;
        let cookie = match &head {
            ReplyHead::Simple { cookie, .. } => *cookie,
            ReplyHead::Chunk(chunk) => chunk.cookie,
        };
        let flight = self.flights.take(cookie);
        let mut flight = flight.ok_or(NbdWireError::Unrequested(cookie))?;
        let is_last = match head {
            ReplyHead::Simple { error, .. } => self.simple(&mut flight, error).map(|()| true),
            ReplyHead::Chunk(head) => self.chunk(&mut flight, &head).map(|()| head.is_last),
        };
        match is_last {
            Ok(true) => self.finish(cookie, flight),
            Ok(false) => {
                self.flights.put_back(cookie, flight);
                Ok(())
            }
            Err(fault) => {
                self.flights.put_back(cookie, flight);
                Err(fault)
            }
        }
    }

    fn finish(&mut self, cookie: u64, mut flight: Flight) -> Result<(), NbdFault> {
        let nothing = super::pending::Expected::nothing(flight.expected.action, 0, 0);
        let expected = std::mem::replace(&mut flight.expected, nothing);
        match expected.finish(&self.flights.peer) {
            Ok(answer) => {
                self.flights.leave(flight, answer);
                Ok(())
            }
            Err(fault) => {
                self.flights.put_back(cookie, flight);
                Err(fault.into())
            }
        }
    }

    fn simple(&mut self, flight: &mut Flight, error: u32) -> Result<(), NbdFault> {
        let expected = &mut flight.expected;
        let requested = expected.requested();
        if self.style != HeaderStyle::Simple && requested != Requested::Nothing {
            let what = "a reply without chunks";
            let found = error.into();
            return Err(NbdWireError::Magic { what, found }.into());
        }
        if error != 0 {
            let error = ReplyError {
                code: error,
                message: Vec::new(),
                offset: None,
            };
            return Ok(expected.push_error(error)?);
        }
        match requested {
            Requested::Read => {
                let (offset, bytes) = (expected.offset, expected.bytes);
                let place = expected.place(offset, bytes)?;
                self.fill(place)
            }
            _ => Ok(()),
        }
    }

    fn chunk(&mut self, flight: &mut Flight, head: &ChunkHead) -> Result<(), NbdFault> {
        let expected = &mut flight.expected;
        let asked = expected.offset;
        if let Some(found) = head.offset.filter(|offset| *offset != asked) {
            let expected = asked;
            return Err(NbdWireError::Offset { found, expected }.into());
        }
        check_chunk(head, expected.requested(), expected.bytes, self.style)?;
        if head.kind == chunk::OFFSET_DATA {
            let mut offset = [0; DATA_HEAD_BYTES];
            self.fill(&mut offset)?;
            let bytes = head.len - DATA_HEAD_BYTES as u64;
            let place = expected.place(u64::from_be_bytes(offset), bytes)?;
            return self.fill(place);
        }
        let mut payload = std::mem::take(&mut self.payload);
        let kept = kept_bytes(head);
        payload.resize(kept as usize, 0);
        self.fill(&mut payload)?;
        expected.push(head, &payload)?;
        let mut left = head.len - kept;
        while left > 0 {
            let part = left.min(kept);
            self.fill(&mut payload[..part as usize])?;
            left -= part;
        }
        self.payload = payload;
        Ok(())
    }

    /// Waits for bytes for as long as somebody waits for a reply and some come.
    fn fill(&mut self, mut buffer: &mut [u8]) -> Result<(), NbdFault> {
        while !buffer.is_empty() {
            match self.reader.read(buffer) {
                Ok(0) => return Err(NbdFault::Ended),
                Ok(len) => {
                    self.heard = Instant::now();
                    buffer = &mut buffer[len..];
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => self.check_silence()?,
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(())
    }

    fn check_silence(&self) -> Result<(), NbdFault> {
        let idle_max = self.flights.idle_max;
        let Some(since) = self.flights.waits_since() else {
            return Ok(());
        };
        match since.max(self.heard).elapsed() > idle_max {
            true => Err(NbdFault::Silent(idle_max)),
            false => Ok(()),
        }
    }
}
