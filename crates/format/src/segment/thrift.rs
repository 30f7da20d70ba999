//! Reads the few Thrift structs of a Parquet file that a segment needs.
//!
//! Compact protocol, from untrusted bytes: a collection never claims more elements than there are
//! bytes left, nesting is bounded, and nothing is allocated. Unknown fields are skipped.

use super::SegmentError;

/// Nesting of structs and lists in what is skipped; Parquet itself needs about five.
const SKIP_DEPTH_MAX: u32 = 16;

type Result<T> = std::result::Result<T, SegmentError>;

const BOOL_TRUE: u8 = 1;
const BOOL_FALSE: u8 = 2;
const BYTE: u8 = 3;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Type of a field, as its number in the compact protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldType(u8);

/// A place in a Thrift encoding.
pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Thrift<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Thrift<'a> {
        Thrift { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Reads one struct. `field` gets the number and type of each field, reads it and answers true,
    /// or leaves it alone and answers false.
    pub(super) fn read_struct(
        &mut self,
        mut field: impl FnMut(&mut Thrift<'a>, i64, FieldType) -> Result<bool>,
    ) -> Result<()> {
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            id = match head >> 4 {
                0 => self.zigzag()?,
                delta => id + i64::from(delta),
            };
            if !(0..=i64::from(i16::MAX)).contains(&id) {
                return Err(SegmentError::Damaged("number of a Thrift field"));
            }
            let kind = FieldType(head & 15);
            if !field(self, id, kind)? {
                self.skip(kind.0, SKIP_DEPTH_MAX)?;
            }
        }
    }

    /// Reads a list of structs or other things; `element` is called once for each and must read it.
    pub(super) fn read_list(
        &mut self,
        kind: FieldType,
        mut element: impl FnMut(&mut Thrift<'a>, FieldType) -> Result<()>,
    ) -> Result<()> {
        if kind.0 != LIST {
            return Err(SegmentError::Damaged("type of a Thrift field"));
        }
        let (count, element_kind) = self.list_head()?;
        for _ in 0..count {
            element(self, FieldType(element_kind))?;
        }
        Ok(())
    }

    /// Checks that a field or an element is a struct, before `read_struct`.
    pub(super) fn expect_struct(&self, kind: FieldType) -> Result<()> {
        match kind.0 {
            STRUCT => Ok(()),
            _ => Err(SegmentError::Damaged("type of a Thrift field")),
        }
    }

    pub(super) fn integer(&mut self, kind: FieldType) -> Result<i64> {
        match kind.0 {
            BYTE => Ok(i64::from(self.byte()? as i8)),
            kind if (BYTE..=I64).contains(&kind) => self.zigzag(),
            _ => Err(SegmentError::Damaged("type of a Thrift field")),
        }
    }

    pub(super) fn binary(&mut self, kind: FieldType) -> Result<&'a [u8]> {
        if kind.0 != BINARY {
            return Err(SegmentError::Damaged("type of a Thrift field"));
        }
        let len = self.varint()?;
        self.take(len)
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let taken = rest
            .get(..len)
            .ok_or(SegmentError::Damaged("Thrift ends early"))?;
        self.at += len;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn varint(&mut self) -> Result<u64> {
        let (value, len) = read_varint(&self.bytes[self.at..])?;
        self.at += len;
        Ok(value)
    }

    fn zigzag(&mut self) -> Result<i64> {
        Ok(unzigzag(self.varint()?))
    }

    /// Count and element type. Every element takes at least one byte, so a count above the bytes
    /// left is damage.
    fn list_head(&mut self) -> Result<(u64, u8)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(SegmentError::Damaged("length of a Thrift list"));
        }
        Ok((count, head & 15))
    }

    fn skip(&mut self, kind: u8, depth_left: u32) -> Result<()> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return Err(SegmentError::Damaged("Thrift nested too deeply"));
        };
        match kind {
            BOOL_TRUE | BOOL_FALSE => {}
            BYTE => drop(self.byte()?),
            kind if (BYTE..=I64).contains(&kind) => drop(self.varint()?),
            DOUBLE => drop(self.take(8)?),
            BINARY => {
                let len = self.varint()?;
                self.take(len)?;
            }
            LIST | SET => {
                let (count, element) = self.list_head()?;
                for _ in 0..count {
                    self.skip_element(element, depth_left)?;
                }
            }
            MAP => self.skip_map(depth_left)?,
            STRUCT => loop {
                let head = self.byte()?;
                if head == 0 {
                    break;
                }
                if head >> 4 == 0 {
                    self.varint()?;
                }
                self.skip(head & 15, depth_left)?;
            },
            _ => return Err(SegmentError::Damaged("type of a Thrift field")),
        }
        Ok(())
    }

    fn skip_map(&mut self, depth_left: u32) -> Result<()> {
        let count = self.varint()?;
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(SegmentError::Damaged("length of a Thrift map"));
        }
        if count > 0 {
            let kinds = self.byte()?;
            for _ in 0..count {
                self.skip_element(kinds >> 4, depth_left)?;
                self.skip_element(kinds & 15, depth_left)?;
            }
        }
        Ok(())
    }

    /// Booleans take a byte inside collections, and none as fields.
    fn skip_element(&mut self, kind: u8, depth_left: u32) -> Result<()> {
        match kind {
            BOOL_TRUE | BOOL_FALSE => self.byte().map(drop),
            _ => self.skip(kind, depth_left),
        }
    }
}

/// An unsigned LEB128 number of at most ten bytes, and its length.
pub(super) fn read_varint(bytes: &[u8]) -> Result<(u64, usize)> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok((value, at + 1));
        }
    }
    Err(SegmentError::Damaged("variable-length number"))
}

/// Signed numbers as unsigned ones: 0, -1, 1, -2 ...
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
