//! What the pages of a column become: a value for each row.

use super::{DECODED_BYTES_MAX, SegmentError, damage};
use bytes::Bytes;
use std::ops::Range;

type Result<T> = std::result::Result<T, SegmentError>;

/// A value for each row. Where all are equal, which most columns are, it is there once.
#[derive(Clone, Debug, Default)]
pub(super) struct Values<T> {
    values: Vec<T>,
    rows: usize,
    /// From one row's value to the next one's: 0 or 1.
    step: usize,
}

impl<T: Copy + PartialEq> Values<T> {
    pub(super) fn get(&self, row: usize) -> T {
        assert!(row < self.rows, "a row that was not decoded");
        self.values[row * self.step]
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<T>()
    }

    /// Adds the same value for some rows; `rows_max` are expected in all.
    #[inline]
    pub(super) fn push(&mut self, value: T, rows: usize, rows_max: usize) {
        if self.step == 0 {
            match self.values.first() {
                Some(first) if *first == value => {
                    self.rows += rows;
                    return;
                }
                None if rows > 0 => {
                    self.values.push(value);
                    self.rows = rows;
                    return;
                }
                None => return,
                Some(first) => self.unfold(*first, rows_max),
            }
        }
        self.rows += rows;
        match rows {
            1 => self.values.push(value),
            _ => self.values.resize(self.rows, value),
        }
    }

    #[cold]
    fn unfold(&mut self, first: T, rows_max: usize) {
        self.values.reserve_exact(rows_max.max(self.rows));
        self.values.resize(self.rows, first);
        self.step = 1;
    }

    /// Of the values from `page_at` on, all of one page, only some stay.
    pub(super) fn keep(&mut self, page_at: usize, wanted: &Range<usize>) {
        self.rows = page_at + wanted.len();
        if self.step == 0 {
            self.values.truncate(self.rows);
            return;
        }
        self.values.truncate(page_at + wanted.end);
        self.values.drain(page_at..page_at + wanted.start);
    }
}

/// Byte strings of all rows, in one buffer that rows share.
#[derive(Clone, Debug, Default)]
pub(super) struct BytesColumn {
    data: Bytes,
    pub(super) spans: Values<Span>,
}

/// A row's bytes in the shared buffer. Rows with equal spans have equal bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl BytesColumn {
    pub(super) fn get(&self, row: usize) -> &[u8] {
        let span = self.spans.get(row);
        &self.data[span.start as usize..span.end as usize]
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.data.len() + self.spans.bytes()
    }

    /// The row's bytes, sharing the buffer; empty ones hold nothing alive.
    pub(super) fn shared(&self, row: usize) -> Bytes {
        let span = self.spans.get(row);
        match span.start == span.end {
            true => Bytes::new(),
            false => self.data.slice(span.start as usize..span.end as usize),
        }
    }
}

/// Collects byte strings, with a bound on all of them together.
pub(super) struct Arena {
    data: Vec<u8>,
    pub(super) spans: Values<Span>,
    /// Rows that are wanted.
    rows_max: usize,
}

impl Arena {
    pub(super) fn new(rows_max: usize) -> Arena {
        Arena {
            data: Vec::new(),
            spans: Values::default(),
            rows_max,
        }
    }

    pub(super) fn finish(self) -> BytesColumn {
        BytesColumn {
            data: Bytes::from(self.data),
            spans: self.spans,
        }
    }

    pub(super) fn span_of(&mut self, prefix: Span, suffix: &[u8]) -> Result<Span> {
        let prefix_range = prefix.start as usize..prefix.end as usize;
        let start = self.data.len();
        if start + prefix_range.len() + suffix.len() > DECODED_BYTES_MAX {
            return Err(damage("byte strings are too long"));
        }
        self.data.extend_from_within(prefix_range);
        self.data.extend_from_slice(suffix);
        Ok(Span {
            start: start as u32,
            end: self.data.len() as u32,
        })
    }

    pub(super) fn push(&mut self, value: &[u8]) -> Result<()> {
        let span = self.span_of(Span::default(), value)?;
        self.push_span(span, 1);
        Ok(())
    }

    pub(super) fn push_span(&mut self, span: Span, rows: usize) {
        self.spans.push(span, rows, self.rows_max);
    }

    /// Makes room for a page's values, which take so many bytes, and for those of as many more
    /// pages of the kind as there are rows for: growing step by step copies them.
    pub(super) fn make_room(&mut self, page_bytes: usize, page_rows: usize) {
        let (used, free) = (self.data.len(), self.data.capacity() - self.data.len());
        if page_bytes > free {
            let rows_left = self.rows_max.saturating_sub(self.spans.rows());
            let pages_left = rows_left.div_ceil(page_rows.max(1)).max(1);
            let wanted = page_bytes.saturating_mul(pages_left);
            let wanted = wanted.min(DECODED_BYTES_MAX.saturating_sub(used));
            // Without it, growing step by step may still do.
            let _ = self.data.try_reserve_exact(wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Pages of runs, of each of which a part is kept, against a list.
        #[test]
        fn values_are_those_of_a_list(
            pages in prop::collection::vec(
                (prop::collection::vec((0..3u8, 1..5usize), 1..6), any::<[u8; 2]>()),
                0..6,
            ),
        ) {
            let (mut values, mut list) = (Values::default(), Vec::new());
            for (runs, [start, len]) in pages {
                let page_at = values.rows();
                prop_assert_eq!(page_at, list.len());
                for (value, rows) in runs {
                    // Long stretches of one value are what this is for.
                    let value = value / 2;
                    values.push(value, rows, 7);
                    list.resize(list.len() + rows, value);
                }
                let rows = list.len() - page_at;
                let start = usize::from(start) % rows;
                let end = start + 1 + usize::from(len) % (rows - start);
                values.keep(page_at, &(start..end));
                list.truncate(page_at + end);
                list.drain(page_at..page_at + start);
            }
            prop_assert_eq!(values.rows(), list.len());
            for (row, value) in list.iter().enumerate() {
                prop_assert_eq!(values.get(row), *value);
            }
        }
    }
}
