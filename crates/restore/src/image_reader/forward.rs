//! Who reads forward: clients are told apart by where they read, not by their connections, as one
//! client may have several.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// So far ahead of a reader chunks are read.
pub const AHEAD_BYTES: u64 = 8 << 20;
/// Stretches that are looked at for it.
pub const STRETCHES_AHEAD_MAX: usize = 256;
/// Readers that are known; the one that was seen last is kept longest.
const READERS_MAX: usize = 16;
/// A reader with many requests in flight makes them in no order.
const SLACK_BYTES: u64 = 8 << 20;
/// Reads that make a reader: of one, and of another behind it, nobody knows.
const READS_MIN: u32 = 3;

#[derive(Default)]
pub struct ForwardReads(Mutex<Vec<Reader>>);

struct Reader {
    /// The farthest byte that was read.
    reached: u64,
    reads: u32,
    /// Up to here chunks were read ahead.
    ahead: u64,
}

impl ForwardReads {
    /// Notes a read; what is to be read ahead then, if anything.
    pub fn next(&self, read: Range<u64>, size: u64) -> Option<Range<u64>> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_near = |reader: &Reader| {
            let near = reader.reached.saturating_sub(SLACK_BYTES)..=reader.reached + SLACK_BYTES;
            near.contains(&read.start)
        };
        let Some(found) = readers.iter().rposition(is_near) else {
            if readers.len() == READERS_MAX {
                readers.remove(0);
            }
            readers.push(Reader {
                reached: read.end,
                reads: 1,
                ahead: read.end,
            });
            return None;
        };
        let mut reader = readers.remove(found);
        if read.end > reader.reached {
            reader.reached = read.end;
            reader.reads = reader.reads.saturating_add(1);
        }
        reader.ahead = reader.ahead.max(reader.reached);
        let is_due = reader.reads >= READS_MIN && reader.ahead < reader.reached + AHEAD_BYTES / 2;
        let from = reader.ahead;
        let to = (reader.reached + AHEAD_BYTES).min(size);
        if is_due {
            reader.ahead = to;
        }
        readers.push(reader);
        (is_due && from < to).then_some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u64 = 64 << 10;
    const SIZE: u64 = 1 << 40;

    #[test]
    fn who_reads_forward_is_read_ahead_of_each_byte_once_and_others_not_at_all() {
        let reads = ForwardReads::default();
        let mut ahead = 0;
        for number in 0..1000 {
            let read = number * READ..(number + 1) * READ;
            // Another one, who jumps.
            let jump = SIZE / 2 + number * 64 * AHEAD_BYTES % (SIZE / 4);
            assert_eq!(reads.next(jump..jump + READ, SIZE), None);
            if let Some(range) = reads.next(read.clone(), SIZE) {
                assert!(range.start >= ahead && range.end <= read.end + AHEAD_BYTES);
                ahead = range.end;
            }
            if number > 2 {
                assert!(ahead >= read.end + AHEAD_BYTES / 2, "{number}");
            }
        }
    }

    #[test]
    fn nothing_is_read_behind_the_end() {
        let reads = ForwardReads::default();
        for number in 0..100 {
            let ahead = reads.next(number * READ..(number + 1) * READ, 100 * READ);
            assert!(ahead.is_none_or(|range| range.end <= 100 * READ));
        }
    }
}
