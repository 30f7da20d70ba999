//! Runs of blocks of an image in bounded memory: a superset, once they are many.
//!
//! A snapshot records so which blocks were not read since nothing in them is in use. A block that
//! comes into use without being written to (a file that is undeleted, a file system that is put
//! back) changes no byte that a tracker would see. So the next backup reads what this list names
//! and is in use by then, whatever a tracker says. A list too long is made shorter by joining runs
//! that are close: more is read than must be, never less.

use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::snapshot::LEFT_OUT_RUNS_MAX;
use bale_fsimage::in_use::sorted_apart;
use std::ops::Range;

/// Runs collected before they are joined.
const COLLECTED_MAX: usize = 16 * LEFT_OUT_RUNS_MAX;

/// Collects runs in the order of the device.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockRuns {
    runs: Vec<Range<u64>>,
    bytes: u64,
}

impl BlockRuns {
    /// Adds a run of whole blocks (the last may end with the device) behind all others.
    pub(super) fn push(&mut self, range: &Range<u64>) {
        self.bytes += range.end - range.start;
        debug_assert!(
            self.runs
                .last()
                .is_none_or(|last| last.start <= range.start / IMAGE_BLOCK_BYTES)
        );
        let run = range.start / IMAGE_BLOCK_BYTES..range.end.div_ceil(IMAGE_BLOCK_BYTES);
        match self.runs.last_mut() {
            Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
            _ => self.runs.push(run),
        }
        if self.runs.len() >= COLLECTED_MAX {
            join_closest(&mut self.runs, COLLECTED_MAX / 2);
        }
    }

    /// Exactly how much was pushed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Is a block of these ranges in a run?
    pub(super) fn touch(&self, ranges: &[Range<u64>]) -> bool {
        ranges.iter().any(|range| self.touches(range))
    }

    /// Is a block of this range in a run?
    pub(super) fn touches(&self, range: &Range<u64>) -> bool {
        let blocks = range.start / IMAGE_BLOCK_BYTES..range.end.div_ceil(IMAGE_BLOCK_BYTES);
        let first = self.runs.partition_point(|run| run.end <= blocks.start);
        let run = self.runs.get(first);
        run.is_some_and(|run| run.start < blocks.end)
    }

    /// Is a block of these ranges, which are sorted, in the last run?
    pub(super) fn last_touches(&self, ranges: &[Range<u64>]) -> bool {
        self.runs.last().is_some_and(|run| {
            let bytes = run.start * IMAGE_BLOCK_BYTES..run.end.saturating_mul(IMAGE_BLOCK_BYTES);
            let first = ranges.partition_point(|range| range.end <= bytes.start);
            ranges[first..]
                .first()
                .is_some_and(|range| range.start < bytes.end)
        })
    }

    /// Adds those of another list.
    pub(super) fn join(&mut self, other: BlockRuns) {
        self.bytes += other.bytes;
        self.runs.extend(other.runs);
        self.runs = sorted_apart(std::mem::take(&mut self.runs));
    }

    /// As a snapshot has it.
    pub(super) fn into_record(mut self) -> Vec<(u64, u64)> {
        join_closest(&mut self.runs, LEFT_OUT_RUNS_MAX);
        let runs = self.runs.into_iter();
        runs.map(|run| (run.start, run.end - run.start)).collect()
    }
}

/// Joins runs with the smallest gaps until there are no more than so many.
fn join_closest(runs: &mut Vec<Range<u64>>, most: usize) {
    if runs.len() <= most {
        return;
    }
    let mut gaps: Vec<(u64, usize)> = (1..runs.len())
        .map(|at| (runs[at].start - runs[at - 1].end, at))
        .collect();
    gaps.sort_unstable();
    let mut is_joined = vec![false; runs.len()];
    for (_, at) in &gaps[..runs.len() - most] {
        is_joined[*at] = true;
    }
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(most);
    for (run, is_joined) in runs.iter().zip(is_joined) {
        match joined.last_mut().filter(|_| is_joined) {
            Some(last) => last.end = run.end,
            None => joined.push(run.clone()),
        }
    }
    *runs = joined;
}

/// What a snapshot records, in bytes.
pub(super) fn recorded(runs: &[(u64, u64)]) -> impl Iterator<Item = Range<u64>> + '_ {
    let bytes = |blocks: u64| blocks.saturating_mul(IMAGE_BLOCK_BYTES);
    let runs = runs.iter();
    runs.map(move |(first, count)| bytes(*first)..bytes(first.saturating_add(*count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = IMAGE_BLOCK_BYTES;

    #[test]
    fn a_list_too_long_names_all_that_was_pushed_and_joins_what_is_close() {
        let mut runs = BlockRuns::default();
        let mut named = Vec::new();
        let mut at = 0;
        for number in 0..10_000u64 {
            at += 1 + number * 7919 % 97;
            let range = at * BLOCK..(at + 1) * BLOCK;
            runs.push(&range);
            named.push(range);
            at += 1;
        }
        assert_eq!(runs.bytes(), 10_000 * BLOCK);
        let record = runs.into_record();
        assert!(record.len() <= LEFT_OUT_RUNS_MAX, "{}", record.len());
        let runs: Vec<_> = recorded(&record).collect();
        assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
        for range in named {
            let holds = |run: &Range<u64>| run.start <= range.start && range.end <= run.end;
            assert!(runs.iter().any(holds), "{range:?}");
        }
    }

    #[test]
    fn a_short_list_is_exact_and_neighbours_are_one_run() {
        let mut runs = BlockRuns::default();
        for blocks in [0..2, 2..3, 7..9] {
            runs.push(&(blocks.start * BLOCK..blocks.end * BLOCK));
        }
        runs.push(&(11 * BLOCK..11 * BLOCK + 5));
        assert_eq!(runs.bytes(), 5 * BLOCK + 5);
        for (one, other, is_touched) in [
            (0..1, 20 * BLOCK..21 * BLOCK, true),
            (3 * BLOCK..7 * BLOCK, 9 * BLOCK..11 * BLOCK, false),
            (3 * BLOCK..7 * BLOCK + 1, 9 * BLOCK..11 * BLOCK, true),
            (4 * BLOCK..5 * BLOCK, 12 * BLOCK - 1..13 * BLOCK, true),
            (4 * BLOCK..5 * BLOCK, 12 * BLOCK..13 * BLOCK, false),
        ] {
            let ranges = [one, other];
            assert_eq!(runs.touch(&ranges), is_touched, "{ranges:?}");
        }
        for (range, is_touched) in [
            (0..11 * BLOCK, false),
            (7 * BLOCK..11 * BLOCK + 1, true),
            (12 * BLOCK - 1..13 * BLOCK, true),
            (12 * BLOCK..13 * BLOCK, false),
        ] {
            let ranges = [0..BLOCK, range];
            assert_eq!(runs.last_touches(&ranges), is_touched, "{ranges:?}");
        }
        assert_eq!(runs.into_record(), [(0, 3), (7, 2), (11, 1)]);
    }
}
