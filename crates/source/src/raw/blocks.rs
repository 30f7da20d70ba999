//! What is done with each block of a device: read, known to be zeros, free, or known to be
//! unchanged.
//!
//! Ranges of any length and alignment become whole blocks: one that holds data anywhere, and in
//! which anything is in use, is read, unless a tracker says of all of it that nothing changed.

use super::{Changes, DeviceRanges};
use bale_format::extent::IMAGE_BLOCK_BYTES;
use std::iter::Peekable;
use std::ops::Range;

/// A run of a device, of whole blocks but at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockWork {
    /// To be read: one block.
    Read(Range<u64>),
    /// It holds nothing.
    Zeros(Range<u64>),
    /// The file system that it belongs to has all of it as free.
    Free(Range<u64>),
    /// As it was.
    Unchanged(Range<u64>),
}

/// Runs in order, without gaps, up to the end of the device.
pub struct BlockPlan {
    len_bytes: u64,
    at: u64,
    data: Peekable<DeviceRanges>,
    /// `None`: nobody knows what is free.
    in_use: Option<Peekable<DeviceRanges>>,
    /// `None`: everything may have changed.
    changes: Option<Peekable<std::vec::IntoIter<Range<u64>>>>,
}

/// The plan for a device of so many bytes. `in_use` is a superset of what is not free; `None`: all.
pub fn plan(
    len_bytes: u64,
    data: DeviceRanges,
    in_use: Option<DeviceRanges>,
    changes: Changes,
) -> BlockPlan {
    BlockPlan {
        len_bytes,
        at: 0,
        data: data.peekable(),
        in_use: in_use.map(Iterator::peekable),
        changes: match changes {
            Changes::Everything(_) => None,
            Changes::Ranges(ranges) => Some(ranges.into_iter().peekable()),
        },
    }
}

impl Iterator for BlockPlan {
    type Item = BlockWork;

    fn next(&mut self) -> Option<BlockWork> {
        let (at, end) = (self.at, self.len_bytes);
        if at >= end {
            return None;
        }
        let data = first_block_of(&mut self.data, at..end);
        if data > at {
            self.at = data;
            return Some(BlockWork::Zeros(at..data));
        }
        // The block holds data, and so do those behind it up to the end of what was handed out.
        let data_end = self.data.peek().map_or(end, |range| range.end).min(end);
        let mut data_end = data_end.next_multiple_of(IMAGE_BLOCK_BYTES).min(end);
        if let Some(in_use) = &mut self.in_use {
            let used = first_block_of(in_use, at..end);
            if used > at {
                self.at = used.min(data_end);
                return Some(BlockWork::Free(at..self.at));
            }
            let used_end = in_use.peek().map_or(end, |range| range.end);
            data_end = data_end.min(used_end.next_multiple_of(IMAGE_BLOCK_BYTES));
        }
        let changed = match &mut self.changes {
            None => at,
            Some(changes) => first_block_of(changes, at..end),
        };
        if changed > at {
            self.at = changed.min(data_end);
            return Some(BlockWork::Unchanged(at..self.at));
        }
        self.at = (at + IMAGE_BLOCK_BYTES).min(end);
        Some(BlockWork::Read(at..self.at))
    }
}

/// Where in a part of the device, which begins with a block, the first block lies that a range
/// touches; the end, if none does.
fn first_block_of<I: Iterator<Item = Range<u64>>>(
    ranges: &mut Peekable<I>,
    part: Range<u64>,
) -> u64 {
    while ranges
        .next_if(|range| range.end <= part.start || range.is_empty())
        .is_some()
    {}
    match ranges.peek() {
        Some(range) if range.start < part.end => {
            let block = range.start - range.start % IMAGE_BLOCK_BYTES;
            block.max(part.start)
        }
        _ => part.end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = IMAGE_BLOCK_BYTES;

    fn planned(len: u64, data: Vec<Range<u64>>, changes: Option<&[Range<u64>]>) -> Vec<BlockWork> {
        planned_of(len, data, None, changes)
    }

    fn planned_of(
        len: u64,
        data: Vec<Range<u64>>,
        in_use: Option<Vec<Range<u64>>>,
        changes: Option<&[Range<u64>]>,
    ) -> Vec<BlockWork> {
        let changes = match changes {
            None => Changes::Everything(String::new()),
            Some(changes) => Changes::Ranges(changes.to_vec()),
        };
        let in_use = in_use.map(|ranges| Box::new(ranges.into_iter()) as DeviceRanges);
        plan(len, Box::new(data.into_iter()), in_use, changes).collect()
    }

    #[test]
    fn a_block_is_read_if_any_byte_of_it_holds_data_and_may_have_changed() {
        let data = vec![BLOCK - 1..BLOCK, 2 * BLOCK + 5..2 * BLOCK + 6];
        let len = 3 * BLOCK + 7;
        let expected = [
            BlockWork::Read(0..BLOCK),
            BlockWork::Zeros(BLOCK..2 * BLOCK),
            BlockWork::Read(2 * BLOCK..3 * BLOCK),
            BlockWork::Zeros(3 * BLOCK..len),
        ];
        assert_eq!(planned(len, data.clone(), None), expected);
        let changed = std::slice::from_ref(&(2 * BLOCK + 9..2 * BLOCK + 10));
        let expected = [
            BlockWork::Unchanged(0..BLOCK),
            BlockWork::Zeros(BLOCK..2 * BLOCK),
            BlockWork::Read(2 * BLOCK..3 * BLOCK),
            BlockWork::Zeros(3 * BLOCK..len),
        ];
        assert_eq!(planned(len, data, Some(changed)), expected);
        assert_eq!(planned(0, Vec::new(), None), []);
    }

    /// Sorted and apart.
    fn ranges(len: u64) -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::btree_set(0..len, 0..12).prop_map(|points| {
            let points: Vec<u64> = points.into_iter().collect();
            points
                .chunks_exact(2)
                .map(|pair| pair[0]..pair[1])
                .collect()
        })
    }

    fn touches(ranges: &[Range<u64>], block: &Range<u64>) -> bool {
        let mut ranges = ranges.iter();
        ranges.any(|range| range.start < block.end && block.start < range.end)
    }

    proptest! {
        #[test]
        fn every_byte_is_planned_once_and_as_its_ranges_say(
            data in ranges(9 * BLOCK), in_use in prop::option::of(ranges(9 * BLOCK)),
            changes in prop::option::of(ranges(9 * BLOCK)), len in 7 * BLOCK..9 * BLOCK,
        ) {
            let mut at = 0;
            for work in planned_of(len, data.clone(), in_use.clone(), changes.as_deref()) {
                let (BlockWork::Read(range)
                | BlockWork::Zeros(range)
                | BlockWork::Free(range)
                | BlockWork::Unchanged(range)) = &work;
                prop_assert_eq!(range.start, at);
                prop_assert!(range.end > at);
                at = range.end;
                for start in (range.start..range.end).step_by(BLOCK as usize) {
                    let block = start..(start + BLOCK).min(len);
                    let holds = touches(&data, &block);
                    let is_used = in_use.as_ref().is_none_or(|in_use| touches(in_use, &block));
                    let may_differ = changes.as_ref().is_none_or(|changes| touches(changes, &block));
                    match work {
                        BlockWork::Read(_) => prop_assert!(holds && is_used && may_differ),
                        BlockWork::Zeros(_) => prop_assert!(!holds),
                        BlockWork::Free(_) => prop_assert!(holds && !is_used),
                        BlockWork::Unchanged(_) => prop_assert!(holds && is_used && !may_differ),
                    }
                }
            }
            prop_assert_eq!(at, len);
        }
    }
}
