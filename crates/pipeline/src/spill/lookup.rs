//! Records of one length, looked up by key while more of them come.
//!
//! What is pushed becomes a run; a look-up reads one block of each run. Runs become one as soon as
//! there are [`FAN_IN`] of a level, so there are few. In memory: 32 bytes for each block.

use super::levels::Levels;
use super::run::{Layout, RunWriter, SortedRun};
use super::{MEMORY_BYTES_MIN, Result, prefix};
use std::io;
use std::path::Path;

/// Runs of one level that become one.
const FAN_IN: usize = 8;
/// Read by a look-up.
const BLOCK_BYTES: usize = 8 << 10;
/// Bytes of the buffers of one merge.
const MERGE_BYTES: usize = MEMORY_BYTES_MIN / 2;

/// Sorted runs of keys of `KEY` bytes and values of `VALUE`.
pub struct LookupRuns<const KEY: usize, const VALUE: usize> {
    levels: Levels,
}

impl<const KEY: usize, const VALUE: usize> LookupRuns<KEY, VALUE> {
    /// None yet; files will be made in `directory`.
    pub fn new(directory: &Path) -> LookupRuns<KEY, VALUE> {
        let layout = Layout {
            record: Some((KEY, VALUE)),
            block_bytes: Some(BLOCK_BYTES),
        };
        LookupRuns {
            levels: Levels::new(directory, layout, FAN_IN, MERGE_BYTES),
        }
    }

    /// Adds records in the order of their keys. After an error, what is here is not whole.
    pub fn push(&mut self, records: impl Iterator<Item = ([u8; KEY], [u8; VALUE])>) -> Result<()> {
        let mut writer = RunWriter::new(self.levels.place()?, self.levels.layout());
        for (key, value) in records {
            let pushed = writer.push(&key, &value);
            pushed.map_err(self.levels.error("write"))?;
        }
        let run = writer.finish().map_err(self.levels.error("write"))?;
        self.levels.add(run)
    }

    /// The value that was pushed last with this key. What the disk made of it is for the caller to
    /// check.
    pub fn find(&self, key: &[u8; KEY]) -> Result<Option<[u8; VALUE]>> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        for run in self.levels.youngest_first() {
            let found = find_in_run(run, key, &mut block);
            if let Some(value) = found.map_err(self.levels.error("read"))? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

fn find_in_run<const KEY: usize, const VALUE: usize>(
    run: &SortedRun,
    key: &[u8; KEY],
    block: &mut Vec<u8>,
) -> io::Result<Option<[u8; VALUE]>> {
    let wanted = prefix(key).0;
    let start = run.blocks.partition_point(|block| block.last < wanted);
    // Keys that begin with the same eight bytes may fill several.
    for (number, _) in run.blocks[start..]
        .iter()
        .take_while(|block| block.first <= wanted)
        .enumerate()
    {
        block.clear();
        run.read_block(start + number, block)?;
        let record = |at: usize| &block[at * (KEY + VALUE)..][..KEY + VALUE];
        let (mut low, mut high) = (0, block.len() / (KEY + VALUE));
        // Of equal keys the last.
        while low < high {
            let middle = low.midpoint(high);
            match record(middle)[..KEY] <= key[..] {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let Some(last) = low.checked_sub(1).map(record) else {
            continue;
        };
        if let Some(value) = last.strip_prefix(&key[..]) {
            return Ok(value.first_chunk().copied());
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> ([u8; 8], [u8; 4]) {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        (key, (number as u32).to_le_bytes())
    }

    fn batch(first: u64, count: u64) -> Vec<([u8; 8], [u8; 4])> {
        let mut records: Vec<_> = (first..first + count).map(record).collect();
        records.sort_unstable();
        records
    }

    #[test]
    fn every_record_is_found_while_more_come_and_no_other_one_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut runs = LookupRuns::new(directory.path());
        // Runs of three levels.
        for first in (0..100 * 1000).step_by(1000) {
            runs.push(batch(first, 1000).into_iter()).unwrap();
            for number in (0..first + 1000).step_by(997) {
                let (key, value) = record(number);
                assert_eq!(runs.find(&key).unwrap(), Some(value), "{number}");
            }
            assert_eq!(runs.find(&record(first + 1000).0).unwrap(), None);
        }
        assert!(runs.levels.youngest_first().count() < 3 * FAN_IN);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn of_equal_keys_the_value_that_came_last_is_found() {
        let mut runs = LookupRuns::<8, 4>::new(&std::env::temp_dir());
        for turn in 0..20u32 {
            let records = [[1; 8], [2; 8], [2; 8], [3; 8]];
            let values = [turn, 0, turn, turn].map(u32::to_le_bytes);
            runs.push(records.into_iter().zip(values)).unwrap();
            for key in [[1; 8], [2; 8], [3; 8]] {
                assert_eq!(runs.find(&key).unwrap(), Some(turn.to_le_bytes()));
            }
        }
    }

    #[test]
    fn keys_of_one_beginning_are_found_over_many_blocks() {
        let mut runs = LookupRuns::<12, 1>::new(&std::env::temp_dir());
        let key = |number: u32| {
            let mut key = [7; 12];
            key[8..].copy_from_slice(&number.to_be_bytes());
            key
        };
        let records = (0..10_000).map(|number| (key(2 * number), [number as u8]));
        runs.push(records).unwrap();
        for number in 0..10_000 {
            assert_eq!(runs.find(&key(2 * number)).unwrap(), Some([number as u8]));
            assert_eq!(runs.find(&key(2 * number + 1)).unwrap(), None);
        }
    }

    #[test]
    fn whatever_the_disk_makes_of_a_run_nothing_panics() {
        let mut runs = LookupRuns::<8, 4>::new(&std::env::temp_dir());
        runs.push(batch(0, 20_000).into_iter()).unwrap();
        let run = runs.levels.youngest_first().next().unwrap();
        let (file, len) = (run.place.file.clone(), run.len);
        for number in 0..200 {
            let at = record(number).0[0];
            let at = (u64::from(at) << 16 | number) % len;
            rustix::io::pwrite(&file, &[number as u8; 50], at).unwrap();
            let _value_or_nothing = runs.find(&record(number).0);
        }
        for first in 2..FAN_IN as u64 {
            runs.push(batch(first * 20_000, 10).into_iter()).unwrap();
        }
        file.set_len(len / 2).unwrap();
        let found = (0..20_000).map(|number| runs.find(&record(number).0));
        let errors = found.filter(|found| found.is_err()).count();
        assert!(errors > 5000, "{errors}");
        // Becomes one run with what is gone; where nothing is left, a disk reads zeros.
        let _merged_or_not = runs.push(batch(0, 10).into_iter());
        let _value_or_nothing = runs.find(&record(1).0);
    }
}
