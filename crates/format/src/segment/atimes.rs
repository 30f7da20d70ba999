//! The optional columns of a segment: when its entries were last accessed.
//!
//! A segment has both or neither, and neither if no row has such a time: rows without give the
//! bytes that they always gave. A row without one beside rows with one says so by its nanoseconds.
//! Layout: docs/FORMAT.md, section 8.

use super::columns::Columns;
use super::values::Values;
use super::{NANOS_MAX, SegmentError, damage};
use crate::entry::Time;
use std::ops::Range;

/// Names of the two columns.
pub(super) const SECONDS: &str = "atime_s";
pub(super) const NANOS: &str = "atime_ns";

/// Nanoseconds of a row that has no such time; its seconds are zero.
const NO_TIME: i32 = -1;

/// The two columns, decoded and checked.
#[derive(Clone, Debug)]
pub(super) struct AtimeColumns {
    seconds: Values<i64>,
    nanos: Values<i32>,
}

impl AtimeColumns {
    /// Reads and checks some rows; `None`: the segment has no such columns.
    pub(super) fn read(
        columns: &Columns<'_>,
        rows: &Range<usize>,
    ) -> Result<Option<AtimeColumns>, SegmentError> {
        match [SECONDS, NANOS].map(|name| columns.has(name)) {
            [false, false] => return Ok(None),
            [true, true] => {}
            _ => return Err(damage("one column of access times without the other")),
        }
        let found = AtimeColumns {
            seconds: columns.int64(SECONDS, rows)?,
            nanos: columns.int32(NANOS, rows)?,
        };
        let is_valid = |row| match found.nanos.get(row) {
            NO_TIME => found.seconds.get(row) == 0,
            nanos => (0..=NANOS_MAX).contains(&nanos),
        };
        match (0..rows.len()).all(is_valid) {
            true => Ok(Some(found)),
            false => Err(damage("access time out of range")),
        }
    }

    /// `row` counts from the first one decoded.
    pub(super) fn get(&self, row: usize) -> Option<Time> {
        let nanos = u32::try_from(self.nanos.get(row)).ok()?;
        let seconds = self.seconds.get(row);
        Some(Time { seconds, nanos })
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.seconds.bytes() + self.nanos.bytes()
    }
}

/// The two columns under way. As long as no row has such a time, there is nothing in them.
#[derive(Default)]
pub(super) struct AtimeRows {
    seconds: Vec<i64>,
    nanos: Vec<i32>,
}

impl AtimeRows {
    /// Adds the time of the row that comes behind so many.
    pub(super) fn push(&mut self, rows_before: usize, atime: Option<Time>) {
        if atime.is_none() && self.nanos.is_empty() {
            return;
        }
        self.seconds.resize(rows_before, 0);
        self.nanos.resize(rows_before, NO_TIME);
        self.seconds.push(atime.map_or(0, |time| time.seconds));
        self.nanos
            .push(atime.map_or(NO_TIME, |time| time.nanos as i32));
    }

    /// Seconds and nanoseconds of all rows, if one of these rows has such a time.
    pub(super) fn of_rows(&self, rows: &Range<usize>) -> Option<(&[i64], &[i32])> {
        let nanos = self.nanos.get(rows.clone())?;
        let has_one = nanos.iter().any(|nanos| *nanos != NO_TIME);
        has_one.then_some((&self.seconds, &self.nanos))
    }

    /// Forgets all rows, keeping the memory.
    pub(super) fn clear(&mut self) {
        self.seconds.clear();
        self.nanos.clear();
    }
}
