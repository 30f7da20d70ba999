//! All attributes of a file, those of its further records put together with those of its first.
//!
//! A list names each piece by record and instance; a piece that is not found is damage, and so is
//! one whose record belongs to another file. Records are read once each.

use super::Ntfs;
use super::bytes::{u16_at, u32_at, u64_at};
use super::error::{NtfsError, NtfsFault};
use super::record::{ATTRIBUTE_LIST, AttributeBody, MftRecord, MftReference, NtfsAttribute};
use super::stream::{MappedStream, NtfsStream};
use std::collections::BTreeMap;

/// Windows makes none that is longer.
pub(super) const LIST_BYTES_MAX: u64 = 256 << 10;
const ENTRY_BYTES_MIN: usize = 26;
/// Further records of one file that are in memory at once.
const RECORDS_BYTES_MAX: usize = 32 << 20;

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeAttribute {
    pub kind: u32,
    /// UTF-16, little-endian.
    pub name: Vec<u8>,
    pub flags: u16,
    pub stream: NtfsStream,
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListEntry {
    kind: u32,
    first: u64,
    record: MftReference,
    instance: u16,
}

impl Ntfs {
    /// All attributes of a file, by its first record; but for their list.
    pub fn attributes(&self, base: &MftRecord<'_>) -> Result<Vec<WholeAttribute>, NtfsError> {
        self.attributes_of(base, |kind| kind != ATTRIBUTE_LIST)
    }

    /// Those of some kinds.
    pub(super) fn attributes_of(
        &self,
        base: &MftRecord<'_>,
        is_wanted: fn(u32) -> bool,
    ) -> Result<Vec<WholeAttribute>, NtfsError> {
        let fault = NtfsError::record(base.number());
        let mut found = Vec::new();
        match self.attribute_list(base)? {
            None => {
                for attribute in base.attributes() {
                    let attribute = attribute.map_err(&fault)?;
                    if is_wanted(attribute.kind) {
                        self.add(&mut found, &attribute).map_err(&fault)?;
                    }
                }
            }
            Some(list) => self.follow(base, &list, is_wanted, &mut found)?,
        }
        let is_whole = |attribute: &WholeAttribute| match &attribute.stream {
            NtfsStream::Mapped(mapped) => mapped.is_whole(&self.boot),
            NtfsStream::Resident(_) => true,
        };
        match found.iter().find(|attribute| !is_whole(attribute)) {
            Some(attribute) => Err(fault(NtfsFault::Pieces(attribute.kind))),
            None => Ok(found),
        }
    }

    /// The list of attributes; `None` if the record has all.
    pub(super) fn attribute_list(
        &self,
        base: &MftRecord<'_>,
    ) -> Result<Option<Vec<ListEntry>>, NtfsError> {
        let fault = NtfsError::record(base.number());
        for attribute in base.attributes() {
            let attribute = attribute.map_err(&fault)?;
            if attribute.kind != ATTRIBUTE_LIST {
                continue;
            }
            let stream = NtfsStream::begin(&self.boot, &attribute).map_err(&fault)?;
            let bytes = self.value(base.number(), &stream, LIST_BYTES_MAX)?;
            return Ok(Some(decode_list(&bytes).ok_or(fault(NtfsFault::List))?));
        }
        Ok(None)
    }

    fn follow(
        &self,
        base: &MftRecord<'_>,
        list: &[ListEntry],
        is_wanted: fn(u32) -> bool,
        found: &mut Vec<WholeAttribute>,
    ) -> Result<(), NtfsError> {
        let fault = NtfsError::record(base.number());
        let mut others: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for entry in list.iter().filter(|entry| is_wanted(entry.kind)) {
            let number = entry.record.number;
            if number == base.number() {
                let piece = find(base, entry).map_err(&fault)?;
                self.add(found, &piece).map_err(&fault)?;
                continue;
            }
            if !others.contains_key(&number) {
                if (others.len() + 1) * self.boot.record_bytes as usize > RECORDS_BYTES_MAX {
                    return Err(fault(NtfsFault::TooLong));
                }
                others.insert(number, self.read_further(base, entry.record)?);
            }
            let bytes = others.get(&number).map_or(&[][..], Vec::as_slice);
            let record = MftRecord::undone(number, bytes).map_err(NtfsError::record(number))?;
            let piece = find(&record, entry).map_err(&fault)?;
            self.add(found, &piece).map_err(&fault)?;
        }
        Ok(())
    }

    /// A further record of a file, its fixups undone.
    pub(super) fn read_further(
        &self,
        base: &MftRecord<'_>,
        reference: MftReference,
    ) -> Result<Vec<u8>, NtfsError> {
        let mut bytes = Vec::new();
        let record = self.read_record(reference.number, &mut bytes)?;
        let is_of_base = record.is_in_use()
            && record.reference() == reference
            && record.base() == Some(base.reference());
        match is_of_base {
            true => Ok(bytes),
            false => Err(NtfsError::record(base.number())(NtfsFault::List)),
        }
    }

    /// A further piece of the attribute before, or a further attribute.
    fn add(
        &self,
        found: &mut Vec<WholeAttribute>,
        piece: &NtfsAttribute<'_>,
    ) -> Result<(), NtfsFault> {
        if let AttributeBody::Mapped { first: 1.., .. } = piece.body {
            let last = found.last_mut();
            let last = last.filter(|last| last.kind == piece.kind && last.name == piece.name);
            let Some(NtfsStream::Mapped(mapped)) = last.map(|last| &mut last.stream) else {
                return Err(NtfsFault::Pieces(piece.kind));
            };
            return mapped.extend(&self.boot, piece);
        }
        found.push(WholeAttribute {
            kind: piece.kind,
            name: piece.name.to_vec(),
            flags: piece.flags,
            stream: NtfsStream::begin(&self.boot, piece)?,
        });
        Ok(())
    }

    /// Adds to the runs of the MFT those that are in further records, which are found by those
    /// known before.
    pub(super) fn extend_mft(&mut self, base: &MftRecord<'_>) -> Result<(), NtfsError> {
        let fault = NtfsError::record(base.number());
        let Some(list) = self.attribute_list(base)? else {
            return Ok(());
        };
        let is_further = |entry: &&ListEntry| entry.kind == super::record::DATA && entry.first > 0;
        for entry in list.iter().filter(is_further) {
            let bytes = self.read_further(base, entry.record)?;
            let number = entry.record.number;
            let record = MftRecord::undone(number, &bytes).map_err(NtfsError::record(number))?;
            let piece = find(&record, entry).map_err(&fault)?;
            if !piece.name.is_empty() {
                continue;
            }
            let mut mft = MappedStream::clone(&self.mft);
            mft.extend(&self.boot, &piece).map_err(&fault)?;
            self.mft = std::sync::Arc::new(mft);
        }
        Ok(())
    }
}

fn find<'a>(record: &MftRecord<'a>, entry: &ListEntry) -> Result<NtfsAttribute<'a>, NtfsFault> {
    for attribute in record.attributes() {
        let attribute = attribute?;
        let first = match attribute.body {
            AttributeBody::Mapped { first, .. } => first,
            AttributeBody::Resident(_) => 0,
        };
        if attribute.kind == entry.kind
            && attribute.instance == entry.instance
            && first == entry.first
        {
            return Ok(attribute);
        }
    }
    Err(NtfsFault::Missing(entry.kind))
}

/// `None` if it is damaged.
pub(super) fn decode_list(bytes: &[u8]) -> Option<Vec<ListEntry>> {
    let mut entries = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = usize::from(u16_at(rest, 4)?);
        if len < ENTRY_BYTES_MIN || !len.is_multiple_of(8) {
            return None;
        }
        let (entry, after) = rest.split_at_checked(len)?;
        rest = after;
        entries.push(ListEntry {
            kind: u32_at(entry, 0)?,
            first: u64_at(entry, 8)?,
            record: MftReference::from_u64(u64_at(entry, 16)?),
            instance: u16_at(entry, 24)?,
        });
    }
    Some(entries)
}
