//! Decodes the pages of a column of a Parquet file.
//!
//! All of it works on untrusted bytes: every count is checked against the rows of the segment and
//! every length against the bytes there are, before anything is allocated. Repeated values share
//! bytes, so a few bytes of input cannot unfold to gigabytes. Only what a segment may contain is
//! understood: required columns, pages not compressed, and the encodings PLAIN, dictionary and the
//! three delta encodings.

use super::packed::{unpack_deltas, unpack_indices};
use super::thrift::Thrift;
use super::values::{Arena, BytesColumn, Span, Values};
use super::{ROWS_MAX, SegmentError, damage};
use std::ops::Range;

type Result<T> = std::result::Result<T, SegmentError>;

const PAGE_DATA: i64 = 0;
const PAGE_DICTIONARY: i64 = 2;
const PAGE_DATA_V2: i64 = 3;

const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const DELTA_BINARY_PACKED: i64 = 5;
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;
const RLE_DICTIONARY: i64 = 8;

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
pub(super) trait Integer: Copy + Default + PartialEq {
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

pub(super) fn integers<T: Integer>(
    mut pages: &[u8],
    rows: usize,
    wanted: &Range<usize>,
) -> Result<Values<T>> {
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

pub(super) fn byte_strings(
    mut pages: &[u8],
    rows: usize,
    wanted: &Range<usize>,
) -> Result<BytesColumn> {
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

/// Values as the length shared with the value before and the rest. A value that equals the one
/// before shares its span.
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
