//! Finds the columns of a Parquet file and decodes their pages.
//!
//! All of it works on untrusted bytes: every count is checked against the rows of the segment and every length against
//! the bytes there are, before anything is allocated. Repeated values share bytes, so a few bytes of
//! input cannot unfold to gigabytes. Only what a segment may contain is understood: required columns, pages not
//! compressed, and the encodings PLAIN, dictionary and the three delta encodings.

use super::thrift::{FieldType, Thrift, read_varint, unzigzag};
use super::values::{Arena, BytesColumn, Span, Values};
use super::{ROWS_MAX, SegmentError};
use std::ops::Range;

type Result<T> = std::result::Result<T, SegmentError>;

/// Made only when needed: an error that is made and dropped for every value costs more than the value.
#[cold]
pub(super) fn damage(what: &'static str) -> SegmentError {
    SegmentError::Damaged(what)
}

/// Columns that a file may have: ours and a few of a later version.
const COLUMNS_MAX: usize = 256;
/// Values of one delta block; writers use 128.
const DELTA_BLOCK_VALUES_MAX: u64 = 1 << 16;

const PAGE_DATA: i64 = 0;
const PAGE_DICTIONARY: i64 = 2;
const PAGE_DATA_V2: i64 = 3;

const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const DELTA_BINARY_PACKED: i64 = 5;
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;
const RLE_DICTIONARY: i64 = 8;

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

    /// Decodes some rows of a column of 32-bit integers; only the pages that hold them are looked at.
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
        // A later version's optional column is not read, so its levels do not matter: spoil its name only.
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

/// One page: what it is, how many values, how they are encoded.
struct Page<'a> {
    dictionary: bool,
    values: usize,
    encoding: i64,
    body: &'a [u8],
}

/// Takes the next page off `pages`, or `None` at the end. Index pages and others are passed over.
fn next_page<'a>(pages: &mut &'a [u8]) -> Result<Option<Page<'a>>> {
    while !pages.is_empty() {
        let mut thrift = Thrift::new(pages);
        let (mut page_type, mut len, mut packed_len) = (-1, -1, -1);
        let (mut values, mut encoding, mut levels) = (-1, -1, 0i64);
        thrift.read_struct(|thrift, id, kind| {
            match id {
                1 => page_type = thrift.integer(kind)?,
                2 => len = thrift.integer(kind)?,
                3 => packed_len = thrift.integer(kind)?,
                5 | 7 | 8 => {
                    thrift.expect_struct(kind)?;
                    let is_v2 = id == 8;
                    thrift.read_struct(|thrift, id, kind| {
                        match id {
                            1 => values = thrift.integer(kind)?,
                            2 if !is_v2 => encoding = thrift.integer(kind)?,
                            4 if is_v2 => encoding = thrift.integer(kind)?,
                            2 | 5 | 6 if is_v2 => levels |= thrift.integer(kind)?,
                            _ => return Ok(false),
                        }
                        Ok(true)
                    })?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let rest = &pages[thrift.position()..];
        let body = usize::try_from(packed_len)
            .ok()
            .and_then(|len| rest.get(..len));
        let (Some(body), true, 0) = (body, len == packed_len, levels) else {
            return Err(damage("length of a page"));
        };
        *pages = &rest[body.len()..];
        if matches!(page_type, PAGE_DATA | PAGE_DICTIONARY | PAGE_DATA_V2) {
            let values = usize::try_from(values)
                .ok()
                .filter(|values| *values <= ROWS_MAX)
                .ok_or_else(|| damage("number of values in a page"))?;
            return Ok(Some(Page {
                dictionary: page_type == PAGE_DICTIONARY,
                values,
                encoding,
                body,
            }));
        }
    }
    Ok(None)
}

/// Walks over the data pages of a column and tells what of each is wanted.
struct Progress<'r> {
    rows: usize,
    wanted: &'r Range<usize>,
    /// Rows of the pages before.
    passed: usize,
}

impl<'r> Progress<'r> {
    fn new(rows: usize, wanted: &'r Range<usize>) -> Progress<'r> {
        debug_assert!(wanted.start <= wanted.end && wanted.end <= rows);
        Progress {
            rows,
            wanted,
            passed: 0,
        }
    }

    /// Goes past a page of so many values; the values that are wanted, counted in the page.
    fn pass(&mut self, values: usize) -> Result<Range<usize>> {
        if values > self.rows - self.passed {
            return Err(damage("more values than rows"));
        }
        let page = self.passed..self.passed + values;
        self.passed = page.end;
        let start = self.wanted.start.clamp(page.start, page.end);
        let end = self.wanted.end.clamp(start, page.end);
        Ok(start - page.start..end - page.start)
    }

    fn finish(self) -> Result<()> {
        match self.passed == self.rows {
            true => Ok(()),
            false => Err(damage("fewer values than rows")),
        }
    }
}

/// An integer as Parquet stores it.
trait Integer: Copy + Default + PartialEq {
    const BYTES: usize;
    fn plain(bytes: &[u8]) -> Self;
    /// Deltas wrap, so arithmetic in 64 bits and the lower bits of it are exact for both widths.
    fn wrap(value: i64) -> Self;
}

impl Integer for i32 {
    const BYTES: usize = 4;
    fn plain(bytes: &[u8]) -> i32 {
        i32::from_le_bytes(bytes.try_into().expect("four bytes"))
    }
    fn wrap(value: i64) -> i32 {
        value as i32
    }
}

impl Integer for i64 {
    const BYTES: usize = 8;
    fn plain(bytes: &[u8]) -> i64 {
        i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }
    fn wrap(value: i64) -> i64 {
        value
    }
}

fn integers<T: Integer>(mut pages: &[u8], rows: usize, wanted: &Range<usize>) -> Result<Values<T>> {
    let mut progress = Progress::new(rows, wanted);
    let mut values = Values::default();
    let mut dictionary: Vec<T> = Vec::new();
    while let Some(page) = next_page(&mut pages)? {
        if page.dictionary {
            dictionary = plain_integers(page.body, page.values)?;
            continue;
        }
        let here = progress.pass(page.values)?;
        if here.is_empty() {
            continue;
        }
        let page_at = values.rows();
        let rows_max = wanted.len();
        match page.encoding {
            PLAIN => {
                for value in plain_integers::<T>(page.body, page.values)? {
                    values.push(value, 1, rows_max);
                }
            }
            DELTA_BINARY_PACKED => {
                unpack_deltas(page.body, page.values, |value| {
                    values.push(T::wrap(value), 1, rows_max);
                })?;
            }
            RLE_DICTIONARY | PLAIN_DICTIONARY => {
                unpack_indices(page.body, page.values, |index, count| {
                    let value = dictionary.get(index as usize);
                    let value = *value.ok_or_else(|| damage("index into a dictionary"))?;
                    values.push(value, count, rows_max);
                    Ok(())
                })?
            }
            _ => return Err(damage("encoding of a column")),
        }
        values.keep(page_at, &here);
    }
    progress.finish()?;
    Ok(values)
}

fn plain_integers<T: Integer>(body: &[u8], count: usize) -> Result<Vec<T>> {
    let bytes = body
        .get(..count * T::BYTES)
        .ok_or_else(|| damage("page ends early"))?;
    Ok(bytes.chunks_exact(T::BYTES).map(T::plain).collect())
}

fn byte_strings(mut pages: &[u8], rows: usize, wanted: &Range<usize>) -> Result<BytesColumn> {
    let mut progress = Progress::new(rows, wanted);
    let mut arena = Arena::new(wanted.len());
    let mut dictionary: Vec<Span> = Vec::new();
    while let Some(page) = next_page(&mut pages)? {
        if page.dictionary {
            dictionary.clear();
            plain_strings(page.body, page.values, |value| {
                dictionary.push(arena.span_of(Span::default(), value)?);
                Ok(())
            })?;
            continue;
        }
        let here = progress.pass(page.values)?;
        if here.is_empty() {
            continue;
        }
        let page_at = arena.spans.rows();
        match page.encoding {
            PLAIN => plain_strings(page.body, page.values, |value| arena.push(value))?,
            DELTA_LENGTH_BYTE_ARRAY => {
                arena.make_room(page.body.len(), page.values);
                delta_length_strings(page.body, page.values, |value| arena.push(value))?
            }
            DELTA_BYTE_ARRAY => delta_strings(page.body, page.values, &mut arena)?,
            RLE_DICTIONARY | PLAIN_DICTIONARY => {
                unpack_indices(page.body, page.values, |index, count| {
                    let span = dictionary.get(index as usize);
                    let span = *span.ok_or_else(|| damage("index into a dictionary"))?;
                    arena.push_span(span, count);
                    Ok(())
                })?
            }
            _ => return Err(damage("encoding of a column")),
        }
        arena.spans.keep(page_at, &here);
    }
    progress.finish()?;
    Ok(arena.finish())
}

fn plain_strings(
    mut body: &[u8],
    count: usize,
    mut push: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let damaged = || damage("page ends early");
    for _ in 0..count {
        let (len, rest) = body.split_first_chunk::<4>().ok_or_else(damaged)?;
        let len = u32::from_le_bytes(*len) as usize;
        push(rest.get(..len).ok_or_else(damaged)?)?;
        body = &rest[len..];
    }
    Ok(())
}

fn delta_length_strings(
    body: &[u8],
    count: usize,
    mut push: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut lengths = Vec::with_capacity(count);
    let used = unpack_deltas(body, count, |len| lengths.push(len))?;
    let mut rest = &body[used..];
    for len in lengths {
        let value = take_len(&mut rest, len)?;
        push(value)?;
    }
    Ok(())
}

/// Values as the length shared with the value before and the rest. A value that equals the one before shares its span.
fn delta_strings(body: &[u8], count: usize, arena: &mut Arena) -> Result<()> {
    let mut prefixes = Vec::with_capacity(count);
    let used = unpack_deltas(body, count, |len| prefixes.push(len))?;
    let mut lengths = Vec::with_capacity(count);
    let body = &body[used..];
    let used = unpack_deltas(body, count, |len| lengths.push(len))?;
    let mut rest = &body[used..];
    // A value that equals the one before takes no room.
    let other = prefixes.iter().zip(&lengths).filter(|(_, len)| **len != 0);
    let shared = other.fold(0i64, |sum, (prefix, _)| sum.saturating_add(*prefix));
    let page_bytes = usize::try_from(shared)
        .unwrap_or(0)
        .saturating_add(rest.len());
    arena.make_room(page_bytes, count);
    let mut before = Span::default();
    for (prefix, len) in prefixes.into_iter().zip(lengths) {
        let suffix = take_len(&mut rest, len)?;
        let before_len = before.end - before.start;
        let prefix = u32::try_from(prefix)
            .ok()
            .filter(|prefix| *prefix <= before_len)
            .ok_or_else(|| damage("shared length of a byte string"))?;
        if prefix != before_len || !suffix.is_empty() {
            before.end = before.start + prefix;
            before = arena.span_of(before, suffix)?;
        }
        arena.push_span(before, 1);
    }
    Ok(())
}

fn take_len<'a>(rest: &mut &'a [u8], len: i64) -> Result<&'a [u8]> {
    let taken = usize::try_from(len).ok().and_then(|len| rest.get(..len));
    let taken = taken.ok_or_else(|| damage("length of a byte string"))?;
    *rest = &rest[taken.len()..];
    Ok(taken)
}

/// DELTA_BINARY_PACKED: calls `push` exactly `count` times and returns the bytes used.
fn unpack_deltas(body: &[u8], count: usize, mut push: impl FnMut(i64)) -> Result<usize> {
    let damaged = || damage("page of deltas");
    let mut at = 0;
    let varint = |at: &mut usize| -> Result<u64> {
        let (value, len) = read_varint(&body[*at..])?;
        *at += len;
        Ok(value)
    };
    let block_values = varint(&mut at)?;
    let miniblocks = varint(&mut at)?;
    let total = varint(&mut at)?;
    let mut value = unzigzag(varint(&mut at)?);
    let sane = (1..=DELTA_BLOCK_VALUES_MAX).contains(&block_values)
        && (1..=block_values).contains(&miniblocks)
        && block_values.is_multiple_of(miniblocks)
        && (block_values / miniblocks).is_multiple_of(8)
        && total == count as u64;
    if !sane {
        return Err(damaged());
    }
    let miniblock_values = (block_values / miniblocks) as usize;
    let mut left = count;
    if left > 0 {
        push(value);
        left -= 1;
    }
    while left > 0 {
        let delta_min = unzigzag(varint(&mut at)?);
        let widths = body.get(at..at + miniblocks as usize).ok_or_else(damaged)?;
        at += miniblocks as usize;
        for width in widths {
            if left == 0 {
                break;
            }
            let width = u32::from(*width);
            let len = miniblock_values / 8 * width as usize;
            let packed = body
                .get(at..at + len)
                .filter(|_| width <= 64)
                .ok_or_else(damaged)?;
            at += len;
            let here = left.min(miniblock_values);
            for index in 0..here {
                let delta = if width == 0 {
                    0
                } else {
                    unpack(packed, index, width) as i64
                };
                value = value.wrapping_add(delta_min).wrapping_add(delta);
                push(value);
            }
            left -= here;
        }
    }
    Ok(at)
}

/// Dictionary indices: a width, then runs of one value and runs of packed values. `push` is told an index and of how many
/// rows it is.
fn unpack_indices(
    body: &[u8],
    count: usize,
    mut push: impl FnMut(u32, usize) -> Result<()>,
) -> Result<()> {
    let damaged = || damage("page of dictionary indices");
    let (width, mut rest) = body.split_first().ok_or_else(damaged)?;
    let width = u32::from(*width);
    if width > 32 {
        return Err(damaged());
    }
    let mut left = count as u64;
    while left > 0 {
        let (head, len) = read_varint(rest)?;
        rest = &rest[len..];
        if head & 1 == 0 {
            let value_len = width.div_ceil(8) as usize;
            let value = rest.get(..value_len).ok_or_else(damaged)?;
            rest = &rest[value_len..];
            let value = value
                .iter()
                .rev()
                .fold(0u32, |value, byte| value << 8 | u32::from(*byte));
            let here = left.min(head >> 1);
            push(value, here as usize)?;
            left -= here;
        } else {
            let here = left.min((head >> 1).saturating_mul(8));
            // The last run may be cut short of its padding.
            let len = (here * u64::from(width)).div_ceil(8);
            let full = ((head >> 1).saturating_mul(u64::from(width))).max(len);
            let packed = rest.get(..len as usize).ok_or_else(damaged)?;
            for index in 0..here as usize {
                push(unpack(packed, index, width) as u32, 1)?;
            }
            rest = &rest[(full.min(rest.len() as u64)) as usize..];
            left -= here;
        }
    }
    Ok(())
}

/// The value at `index` of values of `width` bits, lowest bit first. The caller has checked that it is there.
#[inline]
fn unpack(packed: &[u8], index: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let bit = index * width as usize;
    let (at, shift) = (bit / 8, (bit % 8) as u32);
    let mask = u64::MAX >> (64 - width);
    if width <= 56
        && let Some(eight) = packed[at..].first_chunk::<8>()
    {
        return u64::from_le_bytes(*eight) >> shift & mask;
    }
    let mut wide = [0; 16];
    let len = (packed.len() - at).min(16);
    wide[..len].copy_from_slice(&packed[at..at + len]);
    (u128::from_le_bytes(wide) >> shift) as u64 & mask
}
