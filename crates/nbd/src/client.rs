//! A client: the export of a server, read and written by many requests at once.
//!
//! A request returns at once and is waited for later; its buffer is handed in and comes back, so
//! that data goes from the socket to where it is used. Requests in flight are bounded in number and
//! in bytes. A connection that is lost fails all its requests, and nothing is made again here: what
//! a caller repeats, and from where, is his to know.

mod connection;
mod extents;
mod handshake;
mod listen;
mod pending;

use crate::error::{NbdAction, NbdError, NbdFault};
use crate::socket::Socket;
use crate::stream::{ReadHalf, WriteHalf};
use crate::uri::NbdUri;
use crate::wire::export_flags;
use crate::wire::negotiation::BlockSizes;
use crate::wire::request::command;
use connection::{Connection, Ticket};
use handshake::Negotiated;
use pending::Expected;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use extents::{EXTENTS_BYTES, NbdExtent, NbdExtents};

/// Connections to one server at most, if it allows several.
const CONNECTIONS_MAX: usize = 16;

/// Bytes of one read or write that this client makes of a longer one.
const PART_BYTES: u64 = 1 << 20;

/// Parts of a longer read that are under way at once.
const PARTS_MAX: usize = 8;

/// Bytes of a request without data at most, where lengths have 32 bits.
const SHORT_BYTES_MAX: u64 = 1 << 30;

/// What a client is to do, and how long it waits.
#[derive(Clone, Debug)]
pub struct NbdClientOptions {
    /// For a connection, with everything that is said before the first request.
    pub connect_max: Duration,
    /// For a server that has something to answer, or to take, and does nothing.
    pub idle_max: Duration,
    /// Connections, if the server allows several; one is enough for one reader.
    pub connections: usize,
    /// Is it to be requested what is allocated? A server that cannot say it has an export that is
    /// one extent of data.
    pub wants_allocation: bool,
    /// Name of a dirty bitmap of QEMU. A server that has none of that name is refused.
    pub dirty_bitmap: Option<String>,
}

impl Default for NbdClientOptions {
    fn default() -> NbdClientOptions {
        NbdClientOptions {
            connect_max: Duration::from_secs(30),
            idle_max: Duration::from_secs(60),
            connections: 1,
            wants_allocation: true,
            dirty_bitmap: None,
        }
    }
}

/// An export that is open.
pub struct NbdClient {
    peer: Arc<str>,
    connections: Vec<Connection>,
    next: AtomicUsize,
    negotiated: Negotiated,
}

/// A connection that is held and not used, so that who serves it does not end.
pub(crate) struct Tether {
    _halves: (ReadHalf, WriteHalf),
}

impl Tether {
    /// Opens the export over a connection that exists.
    pub(crate) fn hold(
        socket: Socket,
        uri: &NbdUri,
        options: &NbdClientOptions,
        deadline: Instant,
    ) -> Result<Tether, NbdFault> {
        let (reader, writer, _) = handshake::open_on(socket, uri, options, deadline)?;
        let _halves = (reader, writer);
        Ok(Tether { _halves })
    }
}

/// A read that is under way.
pub struct NbdReading(Ticket);

/// A write, or another request that changes something, that is under way.
pub struct NbdWriting(Ticket);

impl NbdReading {
    /// The buffer, full.
    pub fn wait(self) -> Result<Vec<u8>, NbdError> {
        self.0.wait().map(|answer| answer.buffer)
    }
}

impl NbdWriting {
    pub fn wait(self) -> Result<(), NbdError> {
        self.0.wait().map(|_| ())
    }
}

impl NbdClient {
    /// Connects to a server and opens the export.
    pub fn connect(uri: &NbdUri, options: &NbdClientOptions) -> Result<NbdClient, NbdError> {
        let peer: Arc<str> = uri.to_string().into();
        let failed = |fault: NbdFault| NbdError::Connect {
            peer: peer.clone(),
            source: Arc::new(fault),
        };
        let open = || {
            let deadline = Instant::now() + options.connect_max;
            let opened = handshake::open(uri, options, deadline);
            opened.map_err(|fault| match fault {
                NbdFault::Io(error) if is_time_out(&error) => NbdFault::Slow(options.connect_max),
                fault => fault,
            })
        };
        let (reader, writer, negotiated) = open().map_err(failed)?;
        let start = |reader, writer, negotiated: &Negotiated| {
            Connection::start(peer.clone(), reader, writer, negotiated, options.idle_max)
        };
        let mut connections = vec![start(reader, writer, &negotiated).map_err(failed)?];
        let may_be_more = negotiated.flags & export_flags::CAN_MULTI_CONN != 0;
        let wanted = if may_be_more { options.connections } else { 1 };
        while connections.len() < wanted.min(CONNECTIONS_MAX) {
            let (reader, writer, second) = open().map_err(failed)?;
            if !second.is_of_same_export(&negotiated) {
                return Err(failed(NbdFault::Unequal {
                    first: negotiated.len,
                    second: second.len,
                }));
            }
            connections.push(start(reader, writer, &second).map_err(failed)?);
        }
        Ok(NbdClient {
            peer,
            connections,
            next: AtomicUsize::new(0),
            negotiated,
        })
    }

    /// Names of the exports of a server, which need not list them.
    pub fn list(uri: &NbdUri, options: &NbdClientOptions) -> Result<Vec<String>, NbdError> {
        let deadline = Instant::now() + options.connect_max;
        let listed = handshake::list(uri, options, deadline);
        listed.map_err(|fault| NbdError::Connect {
            peer: uri.to_string().into(),
            source: Arc::new(fault),
        })
    }

    /// Bytes of the export.
    pub fn len(&self) -> u64 {
        self.negotiated.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_read_only(&self) -> bool {
        self.has(export_flags::READ_ONLY)
    }

    /// Sizes of blocks that the server wants; requests here are made of them.
    pub fn block_sizes(&self) -> BlockSizes {
        self.negotiated.blocks
    }

    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Does the server say what is allocated?
    pub fn has_allocation(&self) -> bool {
        self.negotiated.contexts.allocation.is_some()
    }

    /// Bytes of one request for data at most; offsets and lengths are multiples of the smallest
    /// block, but for the end of the export.
    pub fn request_bytes_max(&self) -> u32 {
        self.negotiated.blocks.maximum
    }

    fn has(&self, flag: u16) -> bool {
        self.negotiated.flags & flag != 0
    }

    fn connection(&self) -> &Connection {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        &self.connections[next % self.connections.len()]
    }

    fn impossible(
        &self,
        action: NbdAction,
        offset: u64,
        bytes: u64,
        why: &'static str,
    ) -> NbdError {
        NbdError::Impossible {
            peer: self.peer.clone(),
            action,
            offset,
            bytes,
            why,
        }
    }

    /// A range in the export whose ends are those of blocks.
    fn check(&self, action: NbdAction, offset: u64, bytes: u64) -> Result<(), NbdError> {
        let bad = |why| Err(self.impossible(action, offset, bytes, why));
        let block = u64::from(self.negotiated.blocks.minimum);
        let end = offset.checked_add(bytes).filter(|end| *end <= self.len());
        let Some(end) = end else {
            return bad("that is beyond its end");
        };
        if !offset.is_multiple_of(block) || !(end.is_multiple_of(block) || end == self.len()) {
            return bad("the server takes whole blocks only");
        }
        Ok(())
    }

    fn check_data(&self, action: NbdAction, offset: u64, bytes: u64) -> Result<(), NbdError> {
        self.check(action, offset, bytes)?;
        match bytes {
            0 => Err(self.impossible(action, offset, bytes, "there is nothing to do")),
            _ if bytes > self.request_bytes_max().into() => {
                let why = "the server takes less in one request";
                Err(self.impossible(action, offset, bytes, why))
            }
            _ => Ok(()),
        }
    }

    /// Begins to fill the buffer, and may wait for others in flight to end.
    pub fn start_read(&self, offset: u64, buffer: Vec<u8>) -> Result<NbdReading, NbdError> {
        let bytes = buffer.len() as u64;
        self.check_data(NbdAction::Read, offset, bytes)?;
        let expected = Expected::read(offset, buffer);
        let ticket = self.connection().submit(command::READ, 0, expected, &[])?;
        Ok(NbdReading(ticket))
    }

    /// Fills the buffer from any place and with any length, by several requests at once.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        let bytes = buffer.len() as u64;
        let end = offset.checked_add(bytes).filter(|end| *end <= self.len());
        let end = end.ok_or_else(|| {
            self.impossible(NbdAction::Read, offset, bytes, "that is beyond its end")
        })?;
        let block = u64::from(self.negotiated.blocks.minimum);
        let part = u64::from(self.request_bytes_max()).min(PART_BYTES);
        let part = (part - part % block).max(block);
        let mut flights: VecDeque<(u64, NbdReading)> = VecDeque::new();
        let mut next = offset - offset % block;
        let mut spare = Vec::new();
        while next < end || !flights.is_empty() {
            if next < end && flights.len() < PARTS_MAX {
                // What is before the end may share the last block with what is not wanted.
                let until = (next + part)
                    .min(end.next_multiple_of(block))
                    .min(self.len());
                let mut part = std::mem::take(&mut spare);
                part.resize((until - next) as usize, 0);
                flights.push_back((next, self.start_read(next, part)?));
                next = until;
                continue;
            }
            let Some((at, reading)) = flights.pop_front() else {
                break;
            };
            let part = reading.wait()?;
            let from = at.max(offset);
            let until = (at + part.len() as u64).min(end);
            let target = (from - offset) as usize..(until - offset) as usize;
            buffer[target].copy_from_slice(&part[(from - at) as usize..(until - at) as usize]);
            spare = part;
        }
        Ok(())
    }

    /// Extents of a range, in order, whatever its length in bounded memory.
    pub fn extents(&self, range: std::ops::Range<u64>) -> NbdExtents<&NbdClient> {
        NbdExtents::new(self, range)
    }

    /// All extents of the export, for as long as somebody takes them.
    pub fn into_extents(client: Arc<NbdClient>) -> NbdExtents<Arc<NbdClient>> {
        let whole = 0..client.len();
        NbdExtents::new(client, whole)
    }

    /// Sends the data and returns; that it is written is known when it is waited for, that it stays
    /// after a flush.
    pub fn start_write(&self, offset: u64, data: &[u8]) -> Result<NbdWriting, NbdError> {
        let bytes = data.len() as u64;
        self.check_writable(NbdAction::Write, offset, bytes)?;
        self.check_data(NbdAction::Write, offset, bytes)?;
        let expected = Expected::nothing(NbdAction::Write, offset, bytes);
        let ticket = self
            .connection()
            .submit(command::WRITE, 0, expected, data)?;
        Ok(NbdWriting(ticket))
    }

    /// Writes whole blocks of any number.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), NbdError> {
        self.check_writable(NbdAction::Write, offset, data.len() as u64)?;
        self.check(NbdAction::Write, offset, data.len() as u64)?;
        let block = u64::from(self.negotiated.blocks.minimum);
        let part = u64::from(self.request_bytes_max()).min(PART_BYTES);
        let part = (part - part % block).max(block);
        let mut flights: VecDeque<NbdWriting> = VecDeque::new();
        let mut at = offset;
        for part in data.chunks(part as usize) {
            if flights.len() == PARTS_MAX
                && let Some(first) = flights.pop_front()
            {
                first.wait()?;
            }
            flights.push_back(self.start_write(at, part)?);
            at += part.len() as u64;
        }
        flights.into_iter().try_for_each(NbdWriting::wait)
    }

    /// Can whole ranges be made zero without sending zeroes?
    pub fn can_write_zeroes(&self) -> bool {
        self.has(export_flags::SEND_WRITE_ZEROES)
    }

    /// Makes a range zero; it may become a hole.
    pub fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), NbdError> {
        let needs = export_flags::SEND_WRITE_ZEROES;
        self.change(
            NbdAction::Zero,
            command::WRITE_ZEROES,
            needs,
            offset..offset.saturating_add(bytes),
        )
    }

    /// Says that nobody needs a range; what is in it then is not defined.
    pub fn trim(&self, offset: u64, bytes: u64) -> Result<(), NbdError> {
        let needs = export_flags::SEND_TRIM;
        self.change(
            NbdAction::Trim,
            command::TRIM,
            needs,
            offset..offset.saturating_add(bytes),
        )
    }

    fn change(
        &self,
        action: NbdAction,
        command: u16,
        needs: u16,
        range: std::ops::Range<u64>,
    ) -> Result<(), NbdError> {
        let bytes = range.end - range.start;
        self.check_writable(action, range.start, bytes)?;
        self.check(action, range.start, bytes)?;
        if !self.has(needs) {
            return Err(self.impossible(
                action,
                range.start,
                bytes,
                "the server has no such request",
            ));
        }
        let mut at = range.start;
        while at < range.end {
            let part = (range.end - at).min(SHORT_BYTES_MAX);
            let expected = Expected::nothing(action, at, part);
            self.connection()
                .submit(command, 0, expected, &[])?
                .wait()?;
            at += part;
        }
        Ok(())
    }

    /// Waits until everything that was written and waited for stays, over whichever connection. A
    /// server that cannot be requested to says so by that.
    pub fn flush(&self) -> Result<(), NbdError> {
        if !self.has(export_flags::SEND_FLUSH) {
            return Ok(());
        }
        let expected = Expected::nothing(NbdAction::Flush, 0, 0);
        let ticket = self.connection().submit(command::FLUSH, 0, expected, &[])?;
        ticket.wait().map(|_| ())
    }

    fn check_writable(&self, action: NbdAction, offset: u64, bytes: u64) -> Result<(), NbdError> {
        match self.is_read_only() {
            true => Err(self.impossible(action, offset, bytes, "it is read-only")),
            false => Ok(()),
        }
    }

    /// One reply about extents, from `offset` on.
    fn block_status(&self, offset: u64, bytes: u64) -> Result<pending::Statuses, NbdError> {
        let expected = Expected::status(offset, bytes, &self.negotiated);
        // Extents come from one connection: their order is that of the requests.
        let connection = &self.connections[0];
        let ticket = connection.submit(command::BLOCK_STATUS, 0, expected, &[])?;
        ticket.wait().map(|answer| answer.statuses)
    }
}

fn is_time_out(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock)
}
