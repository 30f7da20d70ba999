//! Extended attributes: a set in one canonical form, and what a row says about it. docs/FORMAT.md,
//! section 8.

use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::ChunkId;
use crate::limits::{XATTR_NAME_BYTES_MAX, XATTRS_BYTES_MAX, XATTRS_INLINE_BYTES_MAX};
use bytes::Bytes;

const WHAT: &str = "set of extended attributes";
const COLUMN_INLINE: u8 = 1;
const COLUMN_CHUNK: u8 = 2;

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// With its namespace: `user.x`.
    pub name: Vec<u8>,
    /// Any bytes.
    pub value: Vec<u8>,
}

/// Access control lists in the form that XFS stores them in, which Linux lists once more beside
/// their common names. They are in no set: who reads or compares what is listed leaves them out.
pub const LISTED_TWICE: [&[u8]; 2] = [b"trusted.SGI_ACL_FILE", b"trusted.SGI_ACL_DEFAULT"];

/// Sorts by name and encodes: equal sets give equal bytes.
pub fn encode_xattrs(attributes: &mut [Xattr]) -> Result<Vec<u8>, FormatError> {
    attributes.sort_unstable();
    let mut bytes = Vec::new();
    let mut last: Option<&[u8]> = None;
    for Xattr { name, value } in attributes.iter() {
        if name.is_empty() || last == Some(name) {
            return Err(FormatError::Unfit {
                what: WHAT,
                fault: Fault::Order { field: "names" },
            });
        }
        if name.contains(&0) {
            return Err(FormatError::Unfit {
                what: WHAT,
                fault: Fault::Value {
                    field: "byte in a name",
                    found: 0,
                },
            });
        }
        last = Some(name);
        let bytes_after = bytes.len() + 6 + name.len() + value.len();
        for (found, max) in [
            (name.len(), XATTR_NAME_BYTES_MAX),
            (bytes_after, XATTRS_BYTES_MAX),
        ] {
            if found > max {
                return Err(FormatError::TooLarge {
                    what: WHAT,
                    found: found as u64,
                    max: max as u64,
                });
            }
        }
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    Ok(bytes)
}

/// The attributes of a set, sorted by name.
pub fn decode_xattrs(bytes: &[u8]) -> Result<Vec<Xattr>, FormatError> {
    if bytes.len() > XATTRS_BYTES_MAX {
        return Err(FormatError::over(
            WHAT,
            "length",
            bytes.len(),
            XATTRS_BYTES_MAX,
        ));
    }
    let mut fields = Fields::new(WHAT, bytes);
    let mut attributes: Vec<Xattr> = Vec::new();
    while fields.left() > 0 {
        let name_bytes = usize::from(fields.u16()?);
        let value_bytes = fields.u32()? as usize;
        if name_bytes == 0 || name_bytes > XATTR_NAME_BYTES_MAX {
            return Err(fields.value("length of a name", name_bytes as u64));
        }
        let name = fields.bytes(name_bytes)?.to_vec();
        if name.contains(&0) {
            return Err(fields.value("byte in a name", 0));
        }
        let value = fields.bytes(value_bytes)?.to_vec();
        if attributes.last().is_some_and(|last| last.name >= name) {
            return Err(FormatError::damaged(WHAT, Fault::Order { field: "names" }));
        }
        attributes.push(Xattr { name, value });
    }
    Ok(attributes)
}

/// What the `xattrs` column of a row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XattrsColumn {
    /// No attributes.
    None,
    /// The set itself.
    Inline(Bytes),
    /// The chunk of kind xattrs that is the set.
    Chunk(ChunkId),
}

impl XattrsColumn {
    /// For an encoded set: `None` says that it is too long for a row and must be stored as a chunk.
    pub fn inline(set: &[u8]) -> Option<Bytes> {
        if set.is_empty() {
            return Some(Bytes::new());
        }
        if set.len() > XATTRS_INLINE_BYTES_MAX {
            return None;
        }
        let mut column = Vec::with_capacity(1 + set.len());
        column.push(COLUMN_INLINE);
        column.extend_from_slice(set);
        Some(Bytes::from(column))
    }

    /// For a set stored as a chunk.
    pub fn chunk(id: ChunkId) -> Bytes {
        let mut column = [COLUMN_CHUNK; 33];
        column[1..].copy_from_slice(&id.0);
        Bytes::copy_from_slice(&column)
    }

    /// The chunk that a column names, if it names one: for whoever needs nothing else of it.
    pub fn chunk_of(column: &[u8]) -> Option<ChunkId> {
        match column.split_first() {
            Some((&COLUMN_CHUNK, id)) => ChunkId::from_slice(id).ok(),
            _ => None,
        }
    }

    /// From the bytes of the column.
    pub fn decode(column: &Bytes) -> Result<XattrsColumn, FormatError> {
        let damaged = || {
            FormatError::damaged(
                "xattrs column",
                Fault::Value {
                    field: "first byte",
                    found: column.first().copied().map_or(0, u64::from),
                },
            )
        };
        match column.split_first() {
            None => Ok(XattrsColumn::None),
            Some((&COLUMN_INLINE, _)) => Ok(XattrsColumn::Inline(column.slice(1..))),
            Some((&COLUMN_CHUNK, id)) => ChunkId::from_slice(id)
                .map(XattrsColumn::Chunk)
                .map_err(|_| damaged()),
            Some(_) => Err(damaged()),
        }
    }
}
