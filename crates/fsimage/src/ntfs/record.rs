//! A record of the MFT and the attributes in it.
//!
//! A record proves itself by its fixups only: the last two bytes of each stretch of 512 are the
//! same number, and what stood there is in its head. A record torn between two writes is noticed by
//! that.

use super::bytes::{u16_at, u32_at, u64_at};
use super::error::NtfsFault;

/// Fixups stand at the ends of such stretches, whatever the size of sectors.
const FIXUP_STRIDE: usize = 512;
const HEADER_BYTES: usize = 42;
const FLAG_IN_USE: u16 = 1;
const FLAG_DIRECTORY: u16 = 2;
const ATTRIBUTES_END: u32 = u32::MAX;
const RESIDENT_HEAD: usize = 24;
const MAPPED_HEAD: usize = 64;
/// In $STANDARD_INFORMATION.
const ACCESSED_AT: usize = 24;

pub(super) const STANDARD_INFORMATION: u32 = 0x10;
pub(super) const ATTRIBUTE_LIST: u32 = 0x20;
pub(super) const FILE_NAME: u32 = 0x30;
pub(super) const SECURITY_DESCRIPTOR: u32 = 0x50;
pub(super) const VOLUME_INFORMATION: u32 = 0x70;
pub(super) const DATA: u32 = 0x80;
pub(super) const REPARSE_POINT: u32 = 0xc0;
pub(super) const EXTENDED_ATTRIBUTES: u32 = 0xe0;

/// A record whose fixups are right, and undone.
#[derive(Clone, Copy, Debug)]
pub struct MftRecord<'a> {
    number: u64,
    bytes: &'a [u8],
}

/// A record's number and the count of how often it was used for another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MftReference {
    pub number: u64,
    pub sequence: u16,
}

impl MftReference {
    pub(super) fn from_u64(word: u64) -> MftReference {
        MftReference {
            number: word & 0xffff_ffff_ffff,
            sequence: (word >> 48) as u16,
        }
    }
}

/// An attribute, or a piece of one, as a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NtfsAttribute<'a> {
    pub kind: u32,
    /// UTF-16, little-endian.
    pub name: &'a [u8],
    /// Compressed, encrypted, sparse.
    pub flags: u16,
    pub instance: u16,
    pub body: AttributeBody<'a>,
}

pub(super) const FLAG_COMPRESSED: u16 = 0x00ff;
pub(super) const FLAG_ENCRYPTED: u16 = 0x4000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeBody<'a> {
    /// The value.
    Resident(&'a [u8]),
    Mapped {
        /// First cluster of this piece, and the one behind its last.
        first: u64,
        end: u64,
        runs: &'a [u8],
        /// Logarithm of clusters that are compressed together.
        unit_log: u8,
        /// Bytes; only right in the first piece.
        allocated: u64,
        size: u64,
        initialized: u64,
    },
}

impl<'a> MftRecord<'a> {
    /// Undoes the fixups of a record as it was read, and checks it.
    pub fn parse(number: u64, bytes: &'a mut [u8]) -> Result<MftRecord<'a>, NtfsFault> {
        if !bytes.starts_with(b"FILE") {
            return Err(NtfsFault::Magic);
        }
        undo_fixups(bytes)?;
        MftRecord::undone(number, bytes)
    }

    /// Checks a record whose fixups are undone; behind its bytes there may be others.
    pub fn undone(number: u64, bytes: &'a [u8]) -> Result<MftRecord<'a>, NtfsFault> {
        let record = MftRecord { number, bytes };
        let in_use = record.u32_at(24) as usize;
        let first = usize::from(record.u16_at(20));
        let has_number = first >= 48;
        if in_use > bytes.len()
            || first < HEADER_BYTES
            || first + 4 > in_use
            || !first.is_multiple_of(8)
        {
            return Err(NtfsFault::Header);
        }
        if has_number && u64::from(record.u32_at(44)) != number & 0xffff_ffff {
            return Err(NtfsFault::Number);
        }
        let bytes = &bytes[..in_use];
        Ok(MftRecord { number, bytes })
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Those in use, the fixups undone.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn is_in_use(&self) -> bool {
        self.u16_at(22) & FLAG_IN_USE != 0
    }

    pub fn is_directory(&self) -> bool {
        self.u16_at(22) & FLAG_DIRECTORY != 0
    }

    pub fn reference(&self) -> MftReference {
        MftReference {
            number: self.number,
            sequence: self.u16_at(16),
        }
    }

    /// Names that the record counts, 8.3 names as well.
    pub fn link_count(&self) -> u16 {
        self.u16_at(18)
    }

    /// The record whose attributes go on in this one; `None` if it is a file's first.
    pub fn base(&self) -> Option<MftReference> {
        let base = u64_at(self.bytes, 32).unwrap_or(0);
        (base != 0).then(|| MftReference::from_u64(base))
    }

    /// In order; after an error there are no more.
    pub fn attributes(&self) -> NtfsAttributes<'a> {
        NtfsAttributes {
            bytes: self.bytes,
            at: usize::from(self.u16_at(20)),
        }
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16_at(self.bytes, at).unwrap_or(0)
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32_at(self.bytes, at).unwrap_or(0)
    }
}

/// Zeroes in a record whose fixups are undone what reading its file changes: the access time if
/// that is to be forgotten, the place in the log, and the number of the fixups.
pub fn forget_reading(bytes: &mut [u8], with_accessed: bool) {
    let number = u32_at(bytes, 44).unwrap_or(0);
    let Ok(record) = MftRecord::undone(number.into(), bytes) else {
        return;
    };
    let mut attributes = record.attributes();
    let mut accessed = None;
    loop {
        let at = attributes.at;
        match attributes.next() {
            Some(Ok(found)) if found.kind == STANDARD_INFORMATION && with_accessed => {
                let value = u16_at(bytes, at + 20).map_or(0, usize::from);
                accessed = Some(at + value + ACCESSED_AT);
            }
            Some(Ok(_)) => {}
            _ => break,
        }
    }
    let fixups = u16_at(bytes, 4).map_or(0, usize::from);
    let places = [(8, 8), (fixups, 2)].into_iter();
    for (at, len) in places.chain(accessed.map(|at| (at, 8))) {
        if let Some(place) = bytes.get_mut(at..at + len) {
            place.fill(0);
        }
    }
}

/// Puts back what stood at the end of each stretch. Done once: after that the bytes are another
/// thing.
pub(super) fn undo_fixups(bytes: &mut [u8]) -> Result<(), NtfsFault> {
    let at = u16_at(bytes, 4).map_or(0, usize::from);
    let count = u16_at(bytes, 6).map_or(0, usize::from);
    let strides = bytes.len() / FIXUP_STRIDE;
    let table_end = at.checked_add(count * 2);
    let is_good = strides > 0
        && bytes.len().is_multiple_of(FIXUP_STRIDE)
        && count == strides + 1
        && at.is_multiple_of(2)
        && at >= 8
        && table_end.is_some_and(|end| end <= FIXUP_STRIDE - 2);
    if !is_good {
        return Err(NtfsFault::Header);
    }
    let number = u16_at(bytes, at);
    let ends = (1..=strides).map(|stride| stride * FIXUP_STRIDE - 2);
    if ends.clone().any(|end| u16_at(bytes, end) != number) {
        return Err(NtfsFault::Fixup);
    }
    for (index, end) in (1..).zip(ends) {
        let from = at + index * 2;
        bytes.copy_within(from..from + 2, end);
    }
    Ok(())
}

/// The attributes of a record.
#[derive(Clone, Debug)]
pub struct NtfsAttributes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for NtfsAttributes<'a> {
    type Item = Result<NtfsAttribute<'a>, NtfsFault>;

    fn next(&mut self) -> Option<Result<NtfsAttribute<'a>, NtfsFault>> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        match u32_at(rest, 0) {
            // Without an end it is not known whether there were more.
            None if self.at > self.bytes.len() => None,
            None => {
                self.at = usize::MAX;
                Some(Err(NtfsFault::Attribute))
            }
            Some(ATTRIBUTES_END) => None,
            Some(_) => {
                let len = u32_at(rest, 4).unwrap_or(0) as usize;
                let is_good = len >= RESIDENT_HEAD && len.is_multiple_of(8);
                let bytes = rest.get(..len).filter(|_| is_good);
                let found = bytes.and_then(decode).ok_or(NtfsFault::Attribute);
                self.at = match found {
                    Ok(_) => self.at + len,
                    Err(_) => usize::MAX,
                };
                Some(found)
            }
        }
    }
}

/// `bytes` are all of the attribute.
fn decode(bytes: &[u8]) -> Option<NtfsAttribute<'_>> {
    let name_bytes = usize::from(*bytes.get(9)?) * 2;
    let name = match name_bytes {
        0 => &[],
        _ => {
            let at = usize::from(u16_at(bytes, 10)?);
            bytes.get(at..)?.get(..name_bytes)?
        }
    };
    let body = match bytes.get(8)? {
        0 => {
            let at = usize::from(u16_at(bytes, 20)?);
            let len = u32_at(bytes, 16)? as usize;
            AttributeBody::Resident(bytes.get(at..)?.get(..len)?)
        }
        1 => {
            let (first, last) = (u64_at(bytes, 16)?, u64_at(bytes, 24)?);
            bytes.get(..MAPPED_HEAD)?;
            AttributeBody::Mapped {
                first,
                // An empty one ends before it begins.
                end: last.wrapping_add(1),
                runs: bytes.get(usize::from(u16_at(bytes, 32)?)..)?,
                unit_log: *bytes.get(34)?,
                allocated: u64_at(bytes, 40)?,
                size: u64_at(bytes, 48)?,
                initialized: u64_at(bytes, 56)?,
            }
        }
        _ => return None,
    };
    Some(NtfsAttribute {
        kind: u32_at(bytes, 0)?,
        name,
        flags: u16_at(bytes, 12)?,
        instance: u16_at(bytes, 14)?,
        body,
    })
}
