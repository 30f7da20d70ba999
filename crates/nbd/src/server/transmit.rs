//! Requests of one client, one after the other; a client that wants more at once has more
//! connections.

use super::negotiate::{ALLOCATION_ID, Session};
use crate::error::ServerCode;
use crate::export::AllocationRun;
use crate::stream::{ReadHalf, WriteHalf};
use crate::wire::reply::{
    ChunkHead, DATA_HEAD_BYTES, Descriptor, ReplyHead, chunk, encode_error, encode_extents,
    encode_head,
};
use crate::wire::request::{NbdRequest, command, decode_request, request_bytes, request_flags};
use crate::wire::{HeaderStyle, REQUEST_BYTES_MAX, status_flags};
use std::io;
use std::sync::{Mutex, PoisonError};

/// Bytes of data that are in memory for a read that may be answered in pieces.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

/// Extents in one reply at most.
pub(super) const EXTENTS_MAX: usize = 16 << 10;

/// Serves requests until the client says farewell or is gone.
pub(super) fn transmit(
    session: &Session,
    large: &Mutex<()>,
    reader: &mut ReadHalf,
    writer: &mut WriteHalf,
) -> io::Result<()> {
    let mut head = vec![0; request_bytes(session.style)];
    let mut buffer = Vec::new();
    loop {
        reader.fill(&mut head)?;
        let request = decode_request(&head, session.style).map_err(io::Error::other)?;
        let mut turn = Turn {
            session,
            large,
            request,
            writer,
            buffer: &mut buffer,
        };
        if request.command == command::DISCONNECT {
            return Ok(());
        }
        match turn.has_data()? {
            true => turn.receive_and_write(reader)?,
            false => turn.answer()?,
        }
    }
}

/// One request.
struct Turn<'a> {
    session: &'a Session,
    large: &'a Mutex<()>,
    request: NbdRequest,
    writer: &'a mut WriteHalf,
    buffer: &'a mut Vec<u8>,
}

/// Why a request is refused, or fails.
struct Refusal(ServerCode, String);

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        use io::ErrorKind as Kind;
        let code = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => ServerCode::NO_SPACE,
            Kind::ReadOnlyFilesystem | Kind::PermissionDenied => ServerCode::PERM,
            Kind::InvalidInput => ServerCode::INVALID,
            _ => ServerCode::IO,
        };
        Refusal(code, error.to_string())
    }
}

fn refusal<T>(code: ServerCode, why: &str) -> Result<T, Refusal> {
    Err(Refusal(code, why.to_owned()))
}

impl Turn<'_> {
    /// Does data follow the request?
    fn has_data(&self) -> io::Result<bool> {
        let is_write = self.request.command == command::WRITE;
        let says_data = self.request.flags & request_flags::PAYLOAD_LEN != 0;
        if self.session.style == HeaderStyle::Extended && says_data != is_write {
            return Err(io::Error::other(
                "data where there is none, or none where there is",
            ));
        }
        if is_write && self.request.bytes > REQUEST_BYTES_MAX.into() {
            return Err(io::Error::other("more data than was allowed"));
        }
        Ok(is_write)
    }

    /// Takes the data of a write piece by piece, all of it even if it is not wanted, so that the
    /// next request is found behind it.
    fn receive_and_write(&mut self, reader: &mut ReadHalf) -> io::Result<()> {
        let NbdRequest { offset, bytes, .. } = self.request;
        let mut done = self.check();
        let mut at = 0;
        while at < bytes {
            let piece = (bytes - at).min(PIECE_BYTES);
            self.buffer.resize(piece as usize, 0);
            reader.fill(self.buffer)?;
            if done.is_ok() {
                let written = self.session.export.write_at(offset + at, self.buffer);
                done = written.map_err(Refusal::from);
            }
            at += piece;
        }
        match done.and_then(|()| self.flush_if_asked()) {
            Ok(()) => self.done(),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn flush_if_asked(&self) -> Result<(), Refusal> {
        if self.request.flags & request_flags::FUA != 0 {
            self.session.export.flush()?;
        }
        Ok(())
    }

    fn answer(&mut self) -> io::Result<()> {
        let done = match self.check() {
            Err(refusal) => Err(refusal),
            Ok(()) => match self.request.command {
                command::READ => return self.read(),
                command::BLOCK_STATUS => return self.block_status(),
                _ => self.change(),
            },
        };
        match done {
            Ok(()) => self.done(),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        let NbdRequest {
            command,
            offset,
            bytes,
            ..
        } = self.request;
        let export = &self.session.export;
        let changes = [command::WRITE, command::TRIM, command::WRITE_ZEROES].contains(&command);
        if changes && !export.is_writable() {
            return refusal(ServerCode::PERM, "this export is read-only");
        }
        let is_known = changes
            || command == command::READ
            || command == command::FLUSH
            || command == command::BLOCK_STATUS && self.session.has_allocation;
        if !is_known {
            return refusal(ServerCode::INVALID, "there is no such request here");
        }
        let known_flags = match command {
            command::READ => request_flags::DF,
            command::BLOCK_STATUS => request_flags::REQ_ONE,
            command::WRITE => request_flags::FUA | request_flags::PAYLOAD_LEN,
            command::WRITE_ZEROES => request_flags::FUA | request_flags::NO_HOLE,
            command::TRIM => request_flags::FUA,
            _ => 0,
        };
        if self.request.flags & !known_flags != 0 {
            return refusal(
                ServerCode::INVALID,
                "a flag that this request does not have",
            );
        }
        if command == command::FLUSH {
            return Ok(());
        }
        let end = offset.checked_add(bytes).filter(|end| *end <= export.len());
        match end {
            None if changes => refusal(ServerCode::NO_SPACE, "beyond the end of the export"),
            None => refusal(ServerCode::INVALID, "beyond the end of the export"),
            Some(_) if bytes == 0 => refusal(ServerCode::INVALID, "nothing is requested"),
            Some(_) if command == command::READ && bytes > REQUEST_BYTES_MAX.into() => {
                refusal(ServerCode::OVERFLOW, "more than one request may have")
            }
            Some(_) => Ok(()),
        }
    }

    fn change(&mut self) -> Result<(), Refusal> {
        let NbdRequest {
            command,
            flags,
            offset,
            bytes,
            ..
        } = self.request;
        let export = &self.session.export;
        match command {
            command::TRIM => export.trim(offset, bytes)?,
            command::WRITE_ZEROES => {
                export.zero(offset, bytes, flags & request_flags::NO_HOLE != 0)?;
            }
            _ => export.flush()?,
        }
        self.flush_if_asked()
    }

    fn read(&mut self) -> io::Result<()> {
        let NbdRequest { offset, bytes, .. } = self.request;
        let is_whole = self.request.flags & request_flags::DF != 0;
        if self.session.style == HeaderStyle::Simple || is_whole {
            return self.read_whole();
        }
        let mut at = offset;
        let end = offset + bytes;
        while at < end {
            match self.read_piece(at, end) {
                Ok((bytes, is_hole)) => {
                    let is_last = at + bytes == end;
                    match is_hole {
                        true => self.send_hole(at, bytes, is_last)?,
                        false => self.send_data(at, is_last)?,
                    }
                    at += bytes;
                }
                Err(refusal) => return self.refuse(&refusal),
            }
        }
        Ok(())
    }

    /// Before anything is sent all of it must be there: one of those that are large at a time.
    fn read_whole(&mut self) -> io::Result<()> {
        let NbdRequest { offset, bytes, .. } = self.request;
        let is_large = bytes > PIECE_BYTES;
        let _turn = is_large.then(|| self.large.lock().unwrap_or_else(PoisonError::into_inner));
        self.buffer.resize(bytes as usize, 0);
        let answered = match self.session.export.read_at(offset, self.buffer) {
            Ok(()) => self.send_data(offset, true),
            Err(error) => self.refuse(&error.into()),
        };
        self.buffer.truncate(PIECE_BYTES as usize);
        self.buffer.shrink_to(PIECE_BYTES as usize);
        answered
    }

    /// How many bytes from there on, and whether they are a hole; if not, they are in the buffer.
    fn read_piece(&mut self, at: u64, end: u64) -> Result<(u64, bool), Refusal> {
        let run = self.run_at(at)?;
        let bytes = run.bytes.min(end - at);
        if run.is_hole {
            return Ok((bytes, true));
        }
        let bytes = bytes.min(PIECE_BYTES);
        self.buffer.resize(bytes as usize, 0);
        self.session.export.read_at(at, self.buffer)?;
        Ok((bytes, false))
    }

    fn run_at(&self, at: u64) -> Result<AllocationRun, Refusal> {
        let run = self.session.export.run_at(at)?;
        match run.bytes {
            0 => refusal(ServerCode::IO, "the export has a run without bytes"),
            _ => Ok(run),
        }
    }

    fn block_status(&mut self) -> io::Result<()> {
        let NbdRequest { offset, bytes, .. } = self.request;
        let max = match self.request.flags & request_flags::REQ_ONE {
            0 => EXTENTS_MAX,
            _ => 1,
        };
        let end = offset + bytes;
        let mut at = offset;
        let mut extents: Vec<Descriptor> = Vec::new();
        while at < end {
            let run = match self.run_at(at) {
                Ok(run) => run,
                // What is known is enough for an answer.
                Err(_) if !extents.is_empty() => break,
                Err(refusal) => return self.refuse(&refusal),
            };
            let bytes = run.bytes.min(end - at);
            let flags = match run.is_hole {
                true => status_flags::HOLE | status_flags::ZERO,
                false => 0,
            };
            let is_full = extents.len() == max;
            match extents.last_mut() {
                Some(last) if last.flags == flags => last.bytes += bytes,
                _ if is_full => break,
                _ => extents.push(Descriptor { bytes, flags }),
            }
            at += bytes;
        }
        let kind = match self.session.style {
            HeaderStyle::Extended => chunk::BLOCK_STATUS_EXTENDED,
            _ => chunk::BLOCK_STATUS,
        };
        let payload = encode_extents(ALLOCATION_ID, &extents, self.session.style);
        self.send_chunk(kind, true, &payload, &[])
    }

    fn send_hole(&mut self, offset: u64, bytes: u64, is_last: bool) -> io::Result<()> {
        // No longer than a request for data.
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        let payload = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
        self.send_chunk(chunk::OFFSET_HOLE, is_last, &payload, &[])
    }

    /// What is in the buffer.
    fn send_data(&mut self, offset: u64, is_last: bool) -> io::Result<()> {
        let data = std::mem::take(self.buffer);
        let sent = match self.session.style {
            HeaderStyle::Simple => self.send_simple(0, &data),
            _ => self.send_chunk(chunk::OFFSET_DATA, is_last, &offset.to_be_bytes(), &data),
        };
        *self.buffer = data;
        sent
    }

    fn done(&mut self) -> io::Result<()> {
        match self.session.style {
            HeaderStyle::Simple => self.send_simple(0, &[]),
            _ => self.send_chunk(chunk::NONE, true, &[], &[]),
        }
    }

    fn refuse(&mut self, refusal: &Refusal) -> io::Result<()> {
        let Refusal(code, why) = refusal;
        match self.session.style {
            HeaderStyle::Simple => self.send_simple(code.0, &[]),
            _ => self.send_chunk(chunk::ERROR_PLAIN, true, &encode_error(code.0, why), &[]),
        }
    }

    fn send_simple(&mut self, error: u32, data: &[u8]) -> io::Result<()> {
        let cookie = self.request.cookie;
        let head = encode_head(&ReplyHead::Simple { error, cookie });
        self.writer.send(&head, data)
    }

    fn send_chunk(
        &mut self,
        kind: u16,
        is_last: bool,
        payload: &[u8],
        data: &[u8],
    ) -> io::Result<()> {
        debug_assert!(data.is_empty() || payload.len() == DATA_HEAD_BYTES);
        let offset = (self.session.style == HeaderStyle::Extended).then_some(self.request.offset);
        let head = encode_head(&ReplyHead::Chunk(ChunkHead {
            is_last,
            kind,
            cookie: self.request.cookie,
            offset,
            len: (payload.len() + data.len()) as u64,
        }));
        self.writer.send(&[&head, payload].concat(), data)
    }
}
