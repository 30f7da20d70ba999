//! Stretches: packs one after the other in one large object, with a table at its end, for stores
//! that want few objects and streams. docs/FORMAT.md, section 11.
//!
//! A table says where the packs of a stretch are; the record of a stretch says it again in a small
//! object of its own, so that nobody reads the end of a tape to find the middle. Whoever has lost
//! the record finds the table by the last 16 bytes.
//!
//! 48 bytes a pack, decoded and encoded.

use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::{ObjectId, from_hex, hex};
use crate::keys::Keys;
use crate::sealed::{OBJECT_BYTES_MIN, ObjectType, object_bytes};
use std::fmt;
use std::ops::Range;

pub use crate::limits::{STRETCH_LEN_MAX, STRETCH_PACKS_MAX};

const TABLE: &str = "table of a stretch";
const RECORD: &str = "record of a stretch";
const TRAILER: &str = "end of a stretch";
const MAGIC: &[u8; 8] = b"BALESTRE";
/// First part of the names of stretches.
const DIRECTORY: &str = "stretches";
/// Of a table, before its entries.
const COUNT_BYTES: usize = 8;
/// One pack in a table.
const ENTRY_BYTES: usize = 48;
/// Of a record, before its table.
const RECORD_FRONT_BYTES: usize = 64;
/// The last bytes of a stretch, which say where its table is.
pub const STRETCH_TRAILER_BYTES: usize = 16;
/// Plaintext of the longest table.
pub(crate) const TABLE_PLAIN_BYTES_MAX: usize = COUNT_BYTES + STRETCH_PACKS_MAX * ENTRY_BYTES;
/// The longest sealed table, for bounding a read.
pub const STRETCH_TABLE_BYTES_MAX: usize = object_bytes(TABLE_PLAIN_BYTES_MAX);
/// Plaintext of the longest record of a stretch.
pub const STRETCH_RECORD_BYTES_MAX: usize = RECORD_FRONT_BYTES + TABLE_PLAIN_BYTES_MAX;
/// The shortest table and the trailer: what follows the packs of any stretch.
const END_BYTES_MIN: u64 = (OBJECT_BYTES_MIN + STRETCH_TRAILER_BYTES) as u64;

/// Name of a stretch: its text is the path of its object, `stretches/<run>/<number>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StretchName {
    /// Random, drawn by each process that writes stretches.
    pub run: [u8; 16],
    /// From 0 on, in the order in which that process wrote them.
    pub number: u32,
}

impl StretchName {
    /// Reads exactly what `Display` writes.
    pub fn parse(path: &str) -> Option<StretchName> {
        let rest = path.strip_prefix(DIRECTORY)?.strip_prefix('/')?;
        let (run, number) = rest.split_once('/')?;
        Some(StretchName {
            run: from_hex(run).ok()?,
            number: u32::from_be_bytes(from_hex(number).ok()?),
        })
    }
}

impl fmt::Display for StretchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DIRECTORY}/{}/{:08x}", hex(&self.run), self.number)
    }
}

/// Where in a stretch a pack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StretchEntry {
    pub pack: ObjectId,
    pub offset: u64,
    pub len: u64,
}

impl StretchEntry {
    /// Its bytes in the stretch.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len)
    }

    fn decode(fields: &mut Fields<'_>) -> Result<StretchEntry, FormatError> {
        Ok(StretchEntry {
            pack: ObjectId(fields.array()?),
            offset: fields.u64()?,
            len: fields.u64()?,
        })
    }
}

/// Where the packs of a stretch are: in the order of their offsets, none over another, none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StretchTable {
    entries: Vec<StretchEntry>,
}

impl StretchTable {
    /// Sorts the entries; what cannot be written is refused.
    pub fn new(mut entries: Vec<StretchEntry>) -> Result<StretchTable, FormatError> {
        if entries.len() > STRETCH_PACKS_MAX {
            return Err(FormatError::TooLarge {
                what: "packs in a stretch",
                found: entries.len() as u64,
                max: STRETCH_PACKS_MAX as u64,
            });
        }
        entries.sort_unstable_by_key(|entry| entry.offset);
        check(&entries).map_err(|fault| FormatError::Unfit { what: TABLE, fault })?;
        Ok(StretchTable { entries })
    }

    /// By offset.
    pub fn entries(&self) -> &[StretchEntry] {
        &self.entries
    }

    /// Does it name no pack?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where the last pack ends.
    pub fn end(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.range().end)
    }

    /// Bytes of the packs that it names.
    pub fn packs_len(&self) -> u64 {
        self.entries.iter().map(|entry| entry.len).sum()
    }

    /// The same without some packs.
    pub fn without(&self, is_deleted: impl Fn(&ObjectId) -> bool) -> StretchTable {
        let entries = self.entries.iter().copied();
        StretchTable {
            entries: entries.filter(|entry| !is_deleted(&entry.pack)).collect(),
        }
    }

    /// The plaintext of the sealed object at the end of a stretch.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(COUNT_BYTES + self.entries.len() * ENTRY_BYTES);
        self.encode_to(&mut bytes);
        bytes
    }

    fn encode_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.pack.0);
            bytes.extend_from_slice(&entry.offset.to_le_bytes());
            bytes.extend_from_slice(&entry.len.to_le_bytes());
        }
    }

    /// Checks every entry. That all are before the table is for who knows where that is:
    /// [`Keys::open_stretch_table`], [`StretchRecord::decode`].
    pub fn decode(plain: &[u8]) -> Result<StretchTable, FormatError> {
        StretchTable::decode_as(TABLE, plain)
    }

    fn decode_as(what: &'static str, plain: &[u8]) -> Result<StretchTable, FormatError> {
        let mut fields = Fields::new(what, plain);
        let packs = fields.u32()? as usize;
        fields.zero(4)?;
        if packs > STRETCH_PACKS_MAX {
            return Err(FormatError::over(
                what,
                "number of packs",
                packs,
                STRETCH_PACKS_MAX,
            ));
        }
        let expected = (packs * ENTRY_BYTES) as u64;
        let found = fields.left() as u64;
        if found != expected {
            let fault = Fault::Length { expected, found };
            return Err(FormatError::damaged(what, fault));
        }
        let mut entries = Vec::with_capacity(packs);
        for _ in 0..packs {
            entries.push(StretchEntry::decode(&mut fields)?);
        }
        fields.end()?;
        check(&entries).map_err(|fault| FormatError::damaged(what, fault))?;
        Ok(StretchTable { entries })
    }

    /// All packs end before byte `end`.
    fn check_before(&self, end: u64) -> Result<(), Fault> {
        if self.end() > end {
            return Err(Fault::Over {
                field: "end of a pack",
                found: self.end(),
                max: end,
            });
        }
        Ok(())
    }
}

/// By offset, none over another, none of no bytes, none twice, and no end above the longest
/// stretch.
fn check(entries: &[StretchEntry]) -> Result<(), Fault> {
    let mut end_before = 0;
    for entry in entries {
        if entry.len == 0 {
            return Err(Fault::Value {
                field: "length of a pack",
                found: 0,
            });
        }
        if entry.offset < end_before {
            return Err(Fault::Order { field: "packs" });
        }
        end_before = entry.range().end;
        if end_before > STRETCH_LEN_MAX {
            return Err(Fault::Over {
                field: "end of a pack",
                found: end_before,
                max: STRETCH_LEN_MAX,
            });
        }
    }
    let mut ids: Vec<&ObjectId> = entries.iter().map(|entry| &entry.pack).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Fault::Mismatch {
            field: "a pack that is there twice",
        });
    }
    Ok(())
}

/// What a `stretched/` object says of a stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StretchRecord {
    pub stretch: StretchName,
    /// Of the whole object.
    pub len: u64,
    /// Of all its bytes; zeros: not known.
    pub hash: [u8; 32],
    pub table: StretchTable,
}

impl StretchRecord {
    /// The hash of all bytes of the stretch, unless who wrote this had not read them.
    pub fn known_hash(&self) -> Option<[u8; 32]> {
        (self.hash != [0; 32]).then_some(self.hash)
    }

    /// The plaintext of the sealed object.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let unfit = |fault| FormatError::Unfit {
            what: RECORD,
            fault,
        };
        self.check_len().map_err(unfit)?;
        let table_bytes = COUNT_BYTES + self.table.entries.len() * ENTRY_BYTES;
        let mut bytes = Vec::with_capacity(RECORD_FRONT_BYTES + table_bytes);
        bytes.extend_from_slice(&self.stretch.run);
        bytes.extend_from_slice(&self.stretch.number.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&self.hash);
        self.table.encode_to(&mut bytes);
        Ok(bytes)
    }

    /// Checks everything that can be known without the stretch.
    pub fn decode(plain: &[u8]) -> Result<StretchRecord, FormatError> {
        let mut fields = Fields::new(RECORD, plain);
        let run = fields.array()?;
        let number = fields.u32()?;
        fields.zero(4)?;
        let len = fields.u64()?;
        let hash = fields.array()?;
        let record = StretchRecord {
            stretch: StretchName { run, number },
            len,
            hash,
            table: StretchTable::decode_as(RECORD, fields.rest())?,
        };
        let checked = record.check_len();
        checked.map_err(|fault| FormatError::damaged(RECORD, fault))?;
        Ok(record)
    }

    /// The stretch is not too long, and has room for a table after its packs.
    fn check_len(&self) -> Result<(), Fault> {
        if self.len > STRETCH_LEN_MAX {
            return Err(Fault::Over {
                field: "length of a stretch",
                found: self.len,
                max: STRETCH_LEN_MAX,
            });
        }
        let Some(end) = self.len.checked_sub(END_BYTES_MIN) else {
            return Err(Fault::Short {
                found: self.len,
                need: END_BYTES_MIN,
            });
        };
        self.table.check_before(end)
    }
}

/// The last bytes of a stretch.
pub fn trailer(table_offset: u64) -> [u8; STRETCH_TRAILER_BYTES] {
    let mut bytes = [0; STRETCH_TRAILER_BYTES];
    bytes[..8].copy_from_slice(&table_offset.to_le_bytes());
    bytes[8..].copy_from_slice(MAGIC);
    bytes
}

/// Where the sealed table is in a stretch of `object_len` bytes, by its last ones: inside of it,
/// and at most [`STRETCH_TABLE_BYTES_MAX`].
pub fn parse_trailer(
    trailer: &[u8; STRETCH_TRAILER_BYTES],
    object_len: u64,
) -> Result<Range<u64>, FormatError> {
    let mut fields = Fields::new(TRAILER, trailer);
    let start = fields.u64()?;
    fields.magic(MAGIC)?;
    let damaged = |fault| FormatError::damaged(TRAILER, fault);
    if object_len > STRETCH_LEN_MAX {
        return Err(damaged(Fault::Over {
            field: "length of a stretch",
            found: object_len,
            max: STRETCH_LEN_MAX,
        }));
    }
    let last_start = object_len.checked_sub(END_BYTES_MIN).ok_or_else(|| {
        damaged(Fault::Short {
            found: object_len,
            need: END_BYTES_MIN,
        })
    })?;
    if start > last_start {
        return Err(damaged(Fault::Over {
            field: "offset of the table",
            found: start,
            max: last_start,
        }));
    }
    let end = object_len - STRETCH_TRAILER_BYTES as u64;
    if end - start > STRETCH_TABLE_BYTES_MAX as u64 {
        return Err(damaged(Fault::Over {
            field: "length of the table",
            found: end - start,
            max: STRETCH_TABLE_BYTES_MAX as u64,
        }));
    }
    Ok(start..end)
}

impl Keys {
    /// What follows the packs of a stretch, from `table_offset` to its end: the sealed table and
    /// the trailer. `random` must be random.
    pub fn seal_stretch_end(
        &self,
        table: &StretchTable,
        table_offset: u64,
        random: [u8; 32],
    ) -> Result<Vec<u8>, FormatError> {
        let unfit = |fault| FormatError::Unfit { what: TABLE, fault };
        table.check_before(table_offset).map_err(unfit)?;
        let mut bytes = self.seal_object(ObjectType::StretchTable, &table.encode(), random)?;
        bytes.extend_from_slice(&trailer(table_offset));
        let len = table_offset.saturating_add(bytes.len() as u64);
        if len > STRETCH_LEN_MAX {
            return Err(FormatError::TooLarge {
                what: "stretch",
                found: len,
                max: STRETCH_LEN_MAX,
            });
        }
        Ok(bytes)
    }

    /// The table, from what [`parse_trailer`] found to be its bytes; `table_offset` is where they
    /// begin.
    pub fn open_stretch_table(
        &self,
        sealed: &[u8],
        table_offset: u64,
    ) -> Result<StretchTable, FormatError> {
        let plain = self.open_object(ObjectType::StretchTable, sealed, TABLE_PLAIN_BYTES_MAX)?;
        let table = StretchTable::decode(&plain)?;
        let checked = table.check_before(table_offset);
        checked.map_err(|fault| FormatError::damaged(TABLE, fault))?;
        Ok(table)
    }
}
