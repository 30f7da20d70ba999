//! Who reads small files in the order of rows: readers are told apart by where they read, as
//! programs are not.
//!
//! The next files of such a reader are pushed into the kernel's cache, so that it asks for one of
//! them in hundreds.

use crate::limits::{ASKED_EVERY, PUSHED_FILES};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Readers that are known; the one that was seen last is kept longest.
const READERS_MAX: usize = 16;
/// Rows that lie between files that are read: directories, links, empty files, and such as another
/// layer hides, which nobody has listed.
const GAP_ROWS: u64 = 16;
/// Reads that make a reader: of one, nobody knows.
const READS_MIN: u32 = 2;

#[derive(Default)]
pub struct ForwardRows(Mutex<Vec<RowReader>>);

struct RowReader {
    /// Behind the last one that was read.
    next: u64,
    reads: u32,
    /// Up to here files were pushed.
    pushed: u64,
}

/// It is not pushed, so that it is asked for: then more are pushed, long before the last of those
/// that are there is read.
pub const fn is_left_out(number: u64) -> bool {
    number.is_multiple_of(ASKED_EVERY)
}

impl ForwardRows {
    /// Notes that a file is read; the numbers that are to be pushed then, if any: as far as
    /// somebody has listed them, for the kernel knows no others.
    pub fn next(&self, number: u64, is_listed: impl Fn(u64) -> bool) -> Option<Range<u64>> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_near = |reader: &RowReader| {
            (reader.next..=reader.pushed.max(reader.next) + GAP_ROWS).contains(&number)
        };
        let Some(found) = readers.iter().rposition(is_near) else {
            let reader = RowReader {
                next: number + 1,
                reads: 1,
                pushed: number + 1,
            };
            put_last(&mut readers, reader);
            return None;
        };
        let mut reader = readers.remove(found);
        reader.next = number + 1;
        reader.reads = reader.reads.saturating_add(1);
        reader.pushed = reader.pushed.max(number + 1);
        let is_due =
            reader.reads >= READS_MIN && reader.pushed <= number + PUSHED_FILES - ASKED_EVERY + 1;
        let from = reader.pushed;
        if is_due {
            let most = from..number + 1 + PUSHED_FILES;
            reader.pushed = listed_until(most, is_listed);
        }
        let to = reader.pushed;
        readers.push(reader);
        (from < to).then_some(from..to)
    }

    /// So many were pushed for a reader that is expected: of many files it will ask for one.
    pub fn pushed(&self, numbers: Range<u64>) {
        if numbers.end - numbers.start <= ASKED_EVERY {
            return;
        }
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = RowReader {
            next: numbers.start,
            reads: READS_MIN,
            pushed: numbers.end,
        };
        put_last(&mut readers, reader);
    }
}

/// The one that was seen longest ago makes room.
fn put_last(readers: &mut Vec<RowReader>, reader: RowReader) {
    if readers.len() == READERS_MAX {
        readers.remove(0);
    }
    readers.push(reader);
}

fn listed_until(numbers: Range<u64>, is_listed: impl Fn(u64) -> bool) -> u64 {
    let mut until = numbers.start;
    for number in numbers {
        if is_listed(number) {
            until = number + 1;
        } else if number - until >= GAP_ROWS {
            break;
        }
    }
    until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_in_order_is_pushed_each_file_once_and_others_nothing() {
        let rows = ForwardRows::default();
        let mut pushed = 0;
        for number in (1000..5000).step_by(3) {
            // Another one, who jumps.
            assert_eq!(
                rows.next(1_000_000 + number * 7919 % 65_536 * 64, |_| true),
                None
            );
            if let Some(range) = rows.next(number, |_| true) {
                assert!(range.start >= pushed && range.start > number, "{range:?}");
                pushed = range.end;
            }
            assert!(
                number < 1003 || pushed > number + PUSHED_FILES / 3,
                "{number}"
            );
        }
    }

    /// What was pushed is not asked for: the next read is behind it.
    #[test]
    fn a_reader_that_finds_what_was_pushed_goes_on_behind_it() {
        let rows = ForwardRows::default();
        assert_eq!(rows.next(10, |_| true), None);
        let first = rows.next(11, |_| true).unwrap();
        assert_eq!(first, 12..12 + PUSHED_FILES);
        let second = rows.next(first.end, |_| true).unwrap();
        assert_eq!(second.start, first.end + 1);
    }

    /// The next directory is listed when it is its turn, and all of it is pushed then.
    #[test]
    fn what_nobody_has_listed_is_pushed_once_somebody_has() {
        let rows = ForwardRows::default();
        rows.next(10, |number| number < 50);
        assert_eq!(rows.next(11, |number| number < 50), Some(12..50));
        assert_eq!(rows.next(50, |number| number < 90), Some(51..90));
        // A few are hidden by another layer.
        let is_listed = |number| number < 120 && !(95..100).contains(&number);
        assert_eq!(rows.next(90, is_listed), Some(91..120));
    }
}
