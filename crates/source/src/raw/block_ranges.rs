//! Ranges that a tracker says changed, as many as memory is for.

use bale_format::extent::IMAGE_BLOCK_BYTES;
use std::ops::Range;

/// Changed ranges that are held: where there are more, neighbours become one.
const RANGES_MAX: usize = 1 << 17;

/// Ranges in order, as whole blocks that grow when there are too many of them.
pub struct BlockRanges {
    found: Vec<Range<u64>>,
    block: u64,
    max: usize,
}

impl BlockRanges {
    pub(super) fn within(max: usize) -> BlockRanges {
        BlockRanges {
            found: Vec::new(),
            block: IMAGE_BLOCK_BYTES,
            max,
        }
    }

    /// Adds a range behind all others, as the blocks that it touches.
    pub fn push(&mut self, range: Range<u64>) {
        let start = range.start - range.start % self.block;
        let end = range.end.checked_next_multiple_of(self.block);
        let range = start..end.unwrap_or(u64::MAX);
        match self.found.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => self.found.push(range),
        }
        while self.found.len() > self.max {
            self.block *= 2;
            for range in std::mem::take(&mut self.found) {
                self.push(range);
            }
        }
    }

    /// Sorted and apart.
    pub fn finish(self) -> Vec<Range<u64>> {
        self.found
    }
}

impl Default for BlockRanges {
    fn default() -> BlockRanges {
        BlockRanges::within(RANGES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ranges_than_are_held_become_larger_and_leave_nothing_out() {
        let mut ranges = BlockRanges::within(8);
        let block = IMAGE_BLOCK_BYTES;
        let changed: Vec<u64> = (0..100).map(|number| number * 3 * block + 5).collect();
        for at in &changed {
            ranges.push(*at..*at + 1);
        }
        assert!(ranges.found.len() <= 8, "{}", ranges.found.len());
        let is_in = |at: &u64| ranges.found.iter().any(|range| range.contains(at));
        assert!(changed.iter().all(is_in));
        assert!(
            ranges
                .found
                .windows(2)
                .all(|pair| pair[0].end < pair[1].start)
        );
    }
}
