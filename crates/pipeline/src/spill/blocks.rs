//! Sorted runs that are read at any place, a block at a time, instead of being merged.

use super::run::{Block, SortedRun, record_at};
use bytes::Bytes;
use std::io;
use std::ops::Range;

/// A few sorted runs. In memory: 32 bytes for each block.
pub struct Runs {
    runs: Vec<SortedRun>,
}

impl Runs {
    pub(super) fn new(runs: Vec<SortedRun>) -> Runs {
        Runs { runs }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// Blocks of a run, ascending.
    pub fn blocks(&self, run: usize) -> &[Block] {
        &self.runs[run].blocks
    }

    /// Reads a block.
    pub fn read(&self, run: usize, block: usize) -> io::Result<Bytes> {
        let mut bytes = Vec::new();
        self.runs[run].read_block(block, &mut bytes)?;
        Ok(Bytes::from(bytes))
    }

    /// Where key and value of the record are that begins at `at` in a block; the next one begins
    /// where the value ends.
    pub fn record(block: &[u8], at: usize) -> io::Result<(Range<usize>, Range<usize>)> {
        record_at(block, at).ok_or_else(|| io::Error::other("a temporary file is damaged"))
    }
}

#[cfg(test)]
mod tests {
    use crate::spill::RunsSorter;

    /// Keys of one beginning, a few of which are in a block.
    const KEYS: u32 = 50;
    const BEGINNINGS: u32 = 1000;

    #[test]
    fn blocks_know_most_beginnings_that_they_have_not() {
        let mut sorter = RunsSorter::new(&std::env::temp_dir(), 0);
        for number in (0..BEGINNINGS * KEYS).rev() {
            let key = [(number / KEYS * 2).to_be_bytes(), number.to_be_bytes()].concat();
            sorter.push(&key, &[7; 60]).unwrap();
        }
        let runs = sorter.finish(4).unwrap();
        let (mut spanned, mut vain) = (0, 0);
        for beginning in 0..2 * BEGINNINGS {
            let (mut is_spanned, mut may_be_there) = (false, false);
            for run in 0..runs.count() {
                let blocks = runs.blocks(run);
                let first = u64::from(beginning) << 32;
                let at = blocks.partition_point(|block| block.last < first);
                if let Some(block) = blocks
                    .get(at)
                    .filter(|block| block.first <= first | 0xffff_ffff)
                {
                    is_spanned = true;
                    may_be_there |= block.may_begin_with(beginning);
                }
            }
            assert!(may_be_there || beginning % 2 == 1, "{beginning} is there");
            spanned += u32::from(is_spanned && beginning % 2 == 1);
            vain += u32::from(may_be_there && beginning % 2 == 1);
        }
        assert!(spanned > 0 && vain * 3 < spanned, "{vain} of {spanned}");
    }
}
