//! What a request expects of its reply, and what has come of it.

use super::handshake::Negotiated;
use crate::error::{NbdAction, NbdError, ServerCode};
use crate::shown::shown;
use crate::wire::reply::{
    ChunkHead, Descriptor, ReadCoverage, ReplyError, Requested, StatusRange, chunk, decode_error,
    decode_extents, decode_hole,
};
use crate::wire::{HeaderStyle, NbdWireError};
use std::sync::Arc;

/// Errors in one reply at most: a server may name several places.
const ERRORS_MAX: usize = 64;

/// Extents of each context, from the place that was requested on.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    pub found: Vec<(u32, Vec<Descriptor>)>,
}

/// What a reply brought.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub buffer: Vec<u8>,
    pub statuses: Statuses,
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Expected {
    pub action: NbdAction,
    pub offset: u64,
    pub bytes: u64,
    pub answer: Answer,
    coverage: Option<ReadCoverage>,
    /// Contexts of which extents must come, and where the export ends.
    contexts: Vec<u32>,
    export_len: u64,
    style: HeaderStyle,
    error: Option<ReplyError>,
    errors: usize,
}

impl Expected {
    fn new(action: NbdAction, offset: u64, bytes: u64) -> Expected {
        Expected {
            action,
            offset,
            bytes,
            answer: Answer::default(),
            coverage: None,
            contexts: Vec::new(),
            export_len: 0,
            style: HeaderStyle::Simple,
            error: None,
            errors: 0,
        }
    }

    pub(super) fn nothing(action: NbdAction, offset: u64, bytes: u64) -> Expected {
        Expected::new(action, offset, bytes)
    }

    pub(super) fn read(offset: u64, buffer: Vec<u8>) -> Expected {
        let bytes = buffer.len() as u64;
        let mut expected = Expected::new(NbdAction::Read, offset, bytes);
        expected.answer.buffer = buffer;
        expected.coverage = Some(ReadCoverage::new(offset, bytes));
        expected
    }

    pub(super) fn status(offset: u64, bytes: u64, negotiated: &Negotiated) -> Expected {
        let mut expected = Expected::new(NbdAction::ListExtents, offset, bytes);
        let contexts = negotiated.contexts;
        expected.contexts = (contexts.allocation.into_iter().chain(contexts.dirty)).collect();
        expected.export_len = negotiated.len;
        expected.style = negotiated.style;
        expected
    }

    pub(super) fn requested(&self) -> Requested {
        match self.action {
            NbdAction::Read => Requested::Read,
            NbdAction::ListExtents => Requested::Status,
            _ => Requested::Nothing,
        }
    }

    /// Where the data of a chunk belongs.
    pub(super) fn place(&mut self, offset: u64, bytes: u64) -> Result<&mut [u8], NbdWireError> {
        let coverage = self.coverage.as_mut();
        let coverage = coverage.ok_or(NbdWireError::ChunkOfAnother(chunk::OFFSET_DATA))?;
        let start = coverage.push(offset, bytes)? as usize;
        Ok(&mut self.answer.buffer[start..start + bytes as usize])
    }

    /// Takes a chunk that is no data, as far as it is kept.
    pub(super) fn push(&mut self, head: &ChunkHead, payload: &[u8]) -> Result<(), NbdWireError> {
        match head.kind {
            chunk::NONE => Ok(()),
            chunk::OFFSET_HOLE => {
                let (offset, bytes) = decode_hole(payload)?;
                self.place(offset, bytes)?.fill(0);
                Ok(())
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXTENDED => {
                let range = StatusRange {
                    offset: self.offset,
                    bytes: self.bytes,
                    export_len: self.export_len,
                };
                let (context, found) = decode_extents(payload, head.len, range, self.style)?;
                let statuses = &mut self.answer.statuses.found;
                let is_twice = statuses.iter().any(|(other, _)| *other == context);
                if is_twice || !self.contexts.contains(&context) {
                    return Err(NbdWireError::Context(context));
                }
                statuses.push((context, found));
                Ok(())
            }
            kind => self.push_error(decode_error(kind, payload)?),
        }
    }

    pub(super) fn push_error(&mut self, error: ReplyError) -> Result<(), NbdWireError> {
        let is_inside = |offset: &u64| {
            let from = offset.checked_sub(self.offset);
            from.is_some_and(|from| from < self.bytes.max(1))
        };
        if let Some(offset) = error.offset.filter(|offset| !is_inside(offset)) {
            return Err(NbdWireError::Outside { offset, bytes: 0 });
        }
        self.errors += 1;
        if self.errors > ERRORS_MAX {
            return Err(NbdWireError::Errors);
        }
        self.error.get_or_insert(error);
        Ok(())
    }

    /// After the last chunk: the answer, the server's error, or that something is missing.
    pub(super) fn finish(self, peer: &Arc<str>) -> Result<Result<Answer, NbdError>, NbdWireError> {
        if let Some(error) = self.error {
            let words = shown(&error.message);
            let place = error.offset.map(|offset| format!(" at {offset}"));
            let words = if words.is_empty() {
                words
            } else {
                format!(": {words}")
            };
            return Ok(Err(NbdError::Server {
                peer: peer.clone(),
                action: self.action,
                offset: self.offset,
                bytes: self.bytes,
                code: ServerCode(error.code),
                message: format!("{}{words}", place.unwrap_or_default()),
            }));
        }
        if let Some(coverage) = &self.coverage {
            coverage.finish()?;
        }
        for context in &self.contexts {
            let mut found = self.answer.statuses.found.iter();
            if !found.any(|(named, _)| named == context) {
                return Err(NbdWireError::NoExtents(*context));
            }
        }
        Ok(Ok(self.answer))
    }
}
