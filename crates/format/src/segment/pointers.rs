//! What the rows of a segment point at, without the rows: the question behind prune.
//!
//! Three columns of 25 are decoded and checked; the others are not looked at.

use super::check::check_xattrs;
use super::columns::Columns;
use super::{SEGMENT_BYTES_MAX, SegmentError};
use crate::id::ChunkId;

/// A chunk that some row points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// A data chunk in which bundled files lie.
    Bundle(ChunkId),
    /// The root of a file's piece list.
    Pieces(ChunkId),
    /// A large set of extended attributes.
    Xattrs(ChunkId),
}

/// Everything that the rows of an untrusted segment point at, at most two for each row;
/// neighbouring rows that point at the same are told once.
pub fn pointers(file: &[u8]) -> Result<Vec<Pointer>, SegmentError> {
    if file.len() > SEGMENT_BYTES_MAX {
        return Err(SegmentError::Damaged("longer than a chunk"));
    }
    let columns = Columns::open(file)?;
    let rows = 0..columns.rows;
    let layout = columns.int32("layout", &rows)?;
    let chunks = columns.bytes("chunk", &rows)?;
    let xattrs = columns.bytes("xattrs", &rows)?;
    let mut found = Vec::new();
    let (mut last, mut last_set) = (None, None);
    for row in rows {
        // Rows with equal spans have equal bytes: most point where the one before does.
        let place = (layout.get(row), chunks.spans.get(row));
        if last != Some(place) {
            last = Some(place);
            found.extend(content(layout.get(row), chunks.get(row))?);
        }
        let set = xattrs.spans.get(row);
        if last_set != Some(set) {
            last_set = Some(set);
            check_xattrs(xattrs.get(row)).map_err(SegmentError::Damaged)?;
            if let Some((2, id)) = xattrs.get(row).split_first() {
                found.push(Pointer::Xattrs(id_of(id)?));
            }
        }
    }
    Ok(found)
}

fn content(layout: i32, chunk: &[u8]) -> Result<Option<Pointer>, SegmentError> {
    match layout {
        0 | 3 if chunk.is_empty() => Ok(None),
        1 => Ok(Some(Pointer::Bundle(id_of(chunk)?))),
        2 => Ok(Some(Pointer::Pieces(id_of(chunk)?))),
        _ => Err(SegmentError::Damaged("layout does not fit the row")),
    }
}

fn id_of(bytes: &[u8]) -> Result<ChunkId, SegmentError> {
    ChunkId::from_slice(bytes).map_err(|_| SegmentError::Damaged("length of a chunk id"))
}
