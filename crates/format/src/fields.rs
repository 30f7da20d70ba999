//! Reading fixed little-endian fields one after the other, every read checked.

use crate::error::{Fault, FormatError};

/// What is left of some untrusted bytes.
pub(crate) struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Fields<'a> {
        Fields { what, rest: bytes }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(FormatError::damaged(
                self.what,
                Fault::Short {
                    found: self.rest.len() as u64,
                    need: count as u64,
                },
            )),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(self
            .bytes(N)?
            .try_into()
            .expect("bytes() returns exactly as many as asked for"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Bytes that must be zero, so that a later version can use them.
    pub(crate) fn zero(&mut self, count: usize) -> Result<(), FormatError> {
        match self.bytes(count)?.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(byte) => Err(FormatError::damaged(
                self.what,
                Fault::Value {
                    field: "reserved byte",
                    found: u64::from(*byte),
                },
            )),
        }
    }

    pub(crate) fn magic(&mut self, magic: &[u8]) -> Result<(), FormatError> {
        if self.bytes(magic.len())? == magic {
            Ok(())
        } else {
            Err(FormatError::damaged(self.what, Fault::Magic))
        }
    }

    pub(crate) fn version(&mut self, known: u16) -> Result<(), FormatError> {
        let found = self.u16()?;
        if found > known {
            return Err(FormatError::Newer {
                what: self.what,
                found: u64::from(found),
                known: u64::from(known),
            });
        }
        if found == 0 {
            return Err(self.value("version", 0));
        }
        Ok(())
    }

    pub(crate) fn value(&self, field: &'static str, found: u64) -> FormatError {
        FormatError::damaged(self.what, Fault::Value { field, found })
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may follow.
    pub(crate) fn end(self) -> Result<(), FormatError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(FormatError::damaged(
            self.what,
            Fault::Length {
                expected: 0,
                found: self.rest.len() as u64,
            },
        ))
    }
}
