//! Numbers and texts from the front of a message.

use super::{NbdWireError, TEXT_BYTES_MAX};

/// What is left of a message, and what it is, for errors.
pub(super) struct Fields<'a> {
    pub rest: &'a [u8],
    pub what: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(what: &'static str, rest: &'a [u8]) -> Fields<'a> {
        Fields { rest, what }
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], NbdWireError> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(NbdWireError::EndsEarly(self.what))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], NbdWireError> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<LEN>()
            .ok_or(NbdWireError::EndsEarly(self.what))?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, NbdWireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, NbdWireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, NbdWireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text behind its length.
    pub(super) fn text(&mut self) -> Result<String, NbdWireError> {
        let len = self.u32()? as usize;
        let bytes = self.bytes(len)?;
        text(self.what, bytes)
    }

    /// A text that is the rest.
    pub(super) fn rest_as_text(mut self) -> Result<String, NbdWireError> {
        let rest = std::mem::take(&mut self.rest);
        text(self.what, rest)
    }

    pub(super) fn finish(self) -> Result<(), NbdWireError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(NbdWireError::Trailing {
                what: self.what,
                bytes,
            }),
        }
    }
}

fn text(what: &'static str, bytes: &[u8]) -> Result<String, NbdWireError> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(NbdWireError::TooLong {
            what,
            len: bytes.len() as u64,
            max: TEXT_BYTES_MAX as u64,
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| NbdWireError::Text(what))?;
    Ok(text.to_owned())
}
