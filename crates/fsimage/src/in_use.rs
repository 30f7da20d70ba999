//! Which bytes of a file system are in use, portion by portion, so that memory is bounded whatever
//! its size.
//!
//! What is not in use need not be read; so whoever answers here says "in use" wherever something
//! contradicts itself, and why. The other mistake loses data.

use std::error::Error;
use std::ops::Range;

/// Ranges of one portion at most, 16 bytes each: 16 MiB.
pub(crate) const PORTION_RANGES_MAX: usize = 1 << 20;

/// A file system that can say which of its bytes are in use.
pub trait InUse: Send {
    /// The portion that byte `at` is in, from that byte on. `at` is less than the length of the
    /// source that was opened, and portions go on to its end.
    fn portion(&mut self, at: u64) -> UsePortion;
}

/// A part of a file system.
#[derive(Debug)]
pub struct UsePortion {
    /// Where it ends, and the next begins; behind the byte that it was requested for.
    pub end: u64,
    /// In use, sorted, apart from each other, within the portion.
    pub used: Vec<Range<u64>>,
    /// Why all of it is given as in use.
    pub doubt: Option<UseDoubt>,
}

/// Why it is not believed that something is free.
#[derive(Debug, thiserror::Error)]
pub enum UseDoubt {
    #[error("{0}")]
    Because(&'static str),
    #[error(transparent)]
    Damage(Box<dyn Error + Send + Sync>),
}

impl UseDoubt {
    pub(crate) fn damage(error: impl Error + Send + Sync + 'static) -> UseDoubt {
        UseDoubt::Damage(Box::new(error))
    }
}

impl UsePortion {
    pub(crate) fn whole(range: Range<u64>, doubt: Option<UseDoubt>) -> UsePortion {
        UsePortion {
            end: range.end,
            used: vec![range],
            doubt,
        }
    }
}

/// Adds a range that begins behind all others, or at the end of the last one.
pub(crate) fn push_range(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}

/// Ranges in any order as sorted ones that are apart.
pub fn sorted_apart(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut apart = Vec::new();
    for range in ranges {
        push_range(&mut apart, range);
    }
    apart
}

/// Runs of ones among the first `count` bits, the lowest bit of a byte first.
pub(crate) fn runs_of_ones(bitmap: &[u8], count: u64, mut run: impl FnMut(Range<u64>)) {
    let mut start = None;
    let mut at = 0;
    while at < count {
        let byte = bitmap.get((at / 8) as usize).copied().unwrap_or(u8::MAX);
        let is_alike = at % 8 == 0 && at + 8 <= count;
        match (byte, start) {
            (u8::MAX, Some(_)) | (0, None) if is_alike => at += 8,
            _ => {
                let is_set = byte >> (at % 8) & 1 != 0;
                match (is_set, start) {
                    (true, None) => start = Some(at),
                    (false, Some(from)) => {
                        run(from..at);
                        start = None;
                    }
                    _ => {}
                }
                at += 1;
            }
        }
    }
    if let Some(from) = start {
        run(from..count);
    }
}

/// Zeroes among the first `count` bits.
pub(crate) fn count_zeros(bitmap: &[u8], count: u64) -> u64 {
    let mut ones = 0;
    runs_of_ones(bitmap, count, |run| ones += run.end - run.start);
    count - ones
}

/// Sets bits `range`, as far as the bitmap goes.
pub(crate) fn set_bits(bitmap: &mut [u8], range: Range<u64>) {
    for bit in range {
        let Some(byte) = bitmap.get_mut((bit / 8) as usize) else {
            return;
        };
        *byte |= 1 << (bit % 8);
    }
}

/// Are all bits of `range` set?
pub(crate) fn are_set(bitmap: &[u8], range: Range<u64>) -> bool {
    range.into_iter().all(|bit| {
        let byte = bitmap.get((bit / 8) as usize);
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_that_a_look_at_each_bit_finds() {
        let mut state = 1u32;
        for count in [0, 1, 7, 8, 9, 63, 64, 200, 1000] {
            // Bytes that are all zeros and all ones are frequent, as they are on disks.
            let bitmap: Vec<u8> = (0..125)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    match state >> 30 {
                        0 => 0,
                        1 => u8::MAX,
                        _ => (state >> 8) as u8,
                    }
                })
                .collect();
            let mut found = vec![false; count as usize];
            let mut end = None;
            runs_of_ones(&bitmap, count, |run| {
                assert!(end.is_none_or(|end| end < run.start) && !run.is_empty());
                end = Some(run.end);
                found[run.start as usize..run.end as usize].fill(true);
            });
            let expected: Vec<_> = (0..count)
                .map(|bit| are_set(&bitmap, bit..bit + 1))
                .collect();
            assert_eq!(found, expected);
            let zeros = expected.iter().filter(|is_set| !**is_set).count();
            assert_eq!(count_zeros(&bitmap, count), zeros as u64);
        }
    }

    #[test]
    fn neighbours_are_one_range() {
        let mut ranges = Vec::new();
        for range in [0..4, 4..8, 9..9, 10..12, 11..20] {
            push_range(&mut ranges, range);
        }
        assert_eq!(ranges, [0..8, 10..20]);
    }

    #[test]
    fn ranges_in_any_order_are_sorted_and_joined_where_they_touch() {
        let ranges = vec![10..12, 0..4, 9..9, 11..20, 4..8, 1..2];
        assert_eq!(sorted_apart(ranges), [0..8, 10..20]);
    }
}
