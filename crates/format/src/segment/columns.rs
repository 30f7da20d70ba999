//! Finds the columns of an untrusted Parquet file: its frame, its footer and where the pages of
//! each column are.

use super::pages::{byte_strings, integers};
use super::thrift::{FieldType, Thrift};
use super::values::{BytesColumn, Values};
use super::{ROWS_MAX, SegmentError, damage};
use std::ops::Range;

type Result<T> = std::result::Result<T, SegmentError>;

/// Columns that a file may have: ours and a few of a later version.
const COLUMNS_MAX: usize = 256;

/// Physical type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Physical {
    Int32,
    Int64,
    Bytes,
}

impl Physical {
    fn number(self) -> i64 {
        match self {
            Physical::Int32 => 1,
            Physical::Int64 => 2,
            Physical::Bytes => 6,
        }
    }
}

/// Where the columns of a file are.
pub(super) struct Columns<'a> {
    /// Rows of the file.
    pub(super) rows: usize,
    columns: Vec<Column<'a>>,
}

/// One column's pages.
#[derive(Clone, Default)]
struct Column<'a> {
    name: &'a [u8],
    physical: i64,
    pages: &'a [u8],
}

impl<'a> Columns<'a> {
    /// Reads the footer.
    pub(super) fn open(file: &'a [u8]) -> Result<Columns<'a>> {
        let damaged = SegmentError::Damaged("frame of the Parquet file");
        if file.len() < 12 || !file.starts_with(b"PAR1") || !file.ends_with(b"PAR1") {
            return Err(damaged);
        }
        let tail = file.len() - 8;
        let footer_len = u32::from_le_bytes(file[tail..tail + 4].try_into().expect("four bytes"));
        let footer_at = tail
            .checked_sub(footer_len as usize)
            .filter(|at| *at >= 4)
            .ok_or(damaged)?;
        let mut found = Columns {
            rows: 0,
            columns: Vec::new(),
        };
        let body = &file[..footer_at];
        let mut names = Vec::new();
        let mut rows = -1;
        Thrift::new(&file[footer_at..tail]).read_struct(|thrift, id, kind| {
            match id {
                2 => {
                    thrift.read_list(kind, |thrift, kind| read_schema(thrift, kind, &mut names))?
                }
                3 => rows = thrift.integer(kind)?,
                4 => thrift.read_list(kind, |thrift, kind| {
                    read_row_group(thrift, kind, body, &mut found.columns)
                })?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        found.rows = usize::try_from(rows)
            .ok()
            .filter(|rows| (1..=ROWS_MAX).contains(rows))
            .ok_or_else(|| damage("number of rows"))?;
        if names.len() != found.columns.len() {
            return Err(damage("schema of the Parquet file"));
        }
        for (column, name) in found.columns.iter_mut().zip(names) {
            column.name = name;
        }
        Ok(found)
    }

    fn pages(&self, name: &str, physical: Physical) -> Result<&'a [u8]> {
        let column = self
            .columns
            .iter()
            .find(|column| column.name == name.as_bytes());
        match column {
            Some(column) if column.physical == physical.number() => Ok(column.pages),
            _ => Err(damage("a column is missing or has the wrong type")),
        }
    }

    /// Is there a column of this name?
    pub(super) fn has(&self, name: &str) -> bool {
        let mut columns = self.columns.iter();
        columns.any(|column| column.name == name.as_bytes())
    }

    /// Decodes some rows of a column of 32-bit integers; only the pages that hold them are looked
    /// at.
    pub(super) fn int32(&self, name: &str, rows: &Range<usize>) -> Result<Values<i32>> {
        integers(self.pages(name, Physical::Int32)?, self.rows, rows)
    }

    /// The same for 64-bit integers.
    pub(super) fn int64(&self, name: &str, rows: &Range<usize>) -> Result<Values<i64>> {
        integers(self.pages(name, Physical::Int64)?, self.rows, rows)
    }

    /// The same for byte strings.
    pub(super) fn bytes(&self, name: &str, rows: &Range<usize>) -> Result<BytesColumn> {
        byte_strings(self.pages(name, Physical::Bytes)?, self.rows, rows)
    }
}

fn read_schema<'a>(
    thrift: &mut Thrift<'a>,
    kind: FieldType,
    names: &mut Vec<&'a [u8]>,
) -> Result<()> {
    thrift.expect_struct(kind)?;
    let (mut name, mut children, mut repetition) = (&[][..], 0, 0);
    thrift.read_struct(|thrift, id, kind| {
        match id {
            3 => repetition = thrift.integer(kind)?,
            4 => name = thrift.binary(kind)?,
            5 => children = thrift.integer(kind)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // The root is the one element with children; a nested or optional column is not a segment's.
    let is_root = children > 0;
    if is_root != names.is_empty() && (is_root || children != 0) || names.len() >= COLUMNS_MAX {
        return Err(damage("schema of the Parquet file"));
    }
    if !is_root {
        // A later version's optional column is not read, so its levels do not matter: spoil its
        // name only.
        names.push(if repetition == 0 { name } else { &[] });
    }
    Ok(())
}

fn read_row_group<'a>(
    thrift: &mut Thrift<'a>,
    kind: FieldType,
    body: &'a [u8],
    columns: &mut Vec<Column<'a>>,
) -> Result<()> {
    thrift.expect_struct(kind)?;
    if !columns.is_empty() {
        return Err(damage("more than one row group"));
    }
    thrift.read_struct(|thrift, id, kind| {
        if id != 1 {
            return Ok(false);
        }
        thrift.read_list(kind, |thrift, kind| {
            thrift.expect_struct(kind)?;
            if columns.len() >= COLUMNS_MAX {
                return Err(damage("too many columns"));
            }
            let mut column = Column::default();
            thrift.read_struct(|thrift, id, kind| {
                if id == 3 {
                    thrift.expect_struct(kind)?;
                    column = read_column(thrift, body)?;
                }
                Ok(id == 3)
            })?;
            columns.push(column);
            Ok(())
        })?;
        Ok(true)
    })
}

fn read_column<'a>(thrift: &mut Thrift<'a>, body: &'a [u8]) -> Result<Column<'a>> {
    let (mut physical, mut codec, mut len, mut data_at, mut dictionary_at) = (-1, -1, -1, -1, None);
    thrift.read_struct(|thrift, id, kind| {
        match id {
            1 => physical = thrift.integer(kind)?,
            4 => codec = thrift.integer(kind)?,
            7 => len = thrift.integer(kind)?,
            9 => data_at = thrift.integer(kind)?,
            11 => dictionary_at = Some(thrift.integer(kind)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // Some writers store 0 for "no dictionary".
    let at = dictionary_at
        .filter(|at| *at > 0)
        .map_or(data_at, |at| at.min(data_at));
    let range = usize::try_from(at)
        .ok()
        .zip(usize::try_from(len).ok())
        .and_then(|(at, len)| Some(at..at.checked_add(len)?));
    match range.and_then(|range| body.get(range)) {
        Some(pages) if codec == 0 => Ok(Column {
            name: &[],
            physical,
            pages,
        }),
        _ => Err(damage("place or codec of a column")),
    }
}
