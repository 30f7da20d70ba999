//! The sorter sorts, stably, within its memory, and leaves nothing behind.

use bale_pipeline::spill::{MEMORY_BYTES_MIN, Runs, RunsSorter, Sorter};
use proptest::prelude::*;

fn sorted(records: &[(Vec<u8>, Vec<u8>)], memory_bytes: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let directory = tempfile::tempdir().unwrap();
    let mut sorter = Sorter::new(directory.path(), memory_bytes);
    for (key, value) in records {
        sorter.push(key, value).unwrap();
    }
    assert_eq!(sorter.records(), records.len() as u64);
    let sorted = sorter.finish().unwrap();
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        0,
        "no file has a name"
    );
    sorted.map(|record| record.unwrap()).collect()
}

proptest! {
    #[test]
    fn records_come_out_in_order_of_keys_and_then_of_arrival(
        keys in prop::collection::vec(prop::collection::vec(0..4u8, 0..12), 0..2000),
    ) {
        let records: Vec<_> = keys.into_iter().enumerate().map(|(n, key)| (key, n.to_le_bytes().to_vec())).collect();
        let mut expected = records.clone();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        prop_assert_eq!(sorted(&records, MEMORY_BYTES_MIN), expected);
    }
}

/// Records whose keys repeat, in no order.
fn records(count: u64, value_len: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let record = |n: u64| {
        let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
        let mut value = n.to_le_bytes().to_vec();
        value.resize(value_len, 0);
        (key.to_be_bytes().to_vec(), value)
    };
    (0..count).map(record).collect()
}

#[test]
fn runs_on_disk_are_merged_in_order_and_stably() {
    let records = records(300_000, 16); // About ten times the memory.
    let mut expected = records.clone();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(sorted(&records, MEMORY_BYTES_MIN) == expected);
}

/// The last records are sorted in two halves.
#[test]
fn the_last_buffer_keeps_its_order_beside_a_run_and_alone() {
    let records = records(400_000, 8);
    let mut expected = records.clone();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(sorted(&records, 32 << 20) == expected);
    let directory = tempfile::tempdir().unwrap();
    for memory_bytes in [32 << 20, 256 << 20] {
        let mut sorter = RunsSorter::new(directory.path(), memory_bytes);
        for (key, value) in &records {
            sorter.push(key, value).unwrap();
        }
        let runs = sorter.finish(16).unwrap();
        let mut found = Vec::new();
        for run in 0..runs.count() {
            for block in 0..runs.blocks(run).len() {
                let (bytes, mut at) = (runs.read(run, block).unwrap(), 0);
                while at < bytes.len() {
                    let (key, value) = Runs::record(&bytes, at).unwrap();
                    at = value.end;
                    found.push((bytes[key].to_vec(), bytes[value].to_vec()));
                }
            }
        }
        assert!(runs.count() > 1);
        // Runs hold what came earlier before what came later.
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(found == expected);
    }
}

#[test]
fn more_runs_than_are_merged_at_once_need_several_passes() {
    let records = records(30_000, 4000); // 120 MB with 768 KiB of buffer: about 155 runs.
    let mut expected = records.clone();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(sorted(&records, MEMORY_BYTES_MIN) == expected);
}

#[test]
fn records_larger_than_the_memory_pass_through() {
    let mut records = records(20, 2 << 20);
    records.push((vec![7; 3 << 20], Vec::new()));
    records.push((Vec::new(), Vec::new()));
    let mut expected = records.clone();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(sorted(&records, MEMORY_BYTES_MIN) == expected);
}

#[test]
fn a_directory_that_is_not_there_is_an_error_that_names_it() {
    let mut sorter = Sorter::new(std::path::Path::new("/nowhere/at/all"), MEMORY_BYTES_MIN);
    let error = (0..100).find_map(|_| sorter.push(&[0; 8], &[0; 50_000]).err());
    assert!(error.unwrap().to_string().contains("/nowhere/at/all"));
}
