//! The first and last sectors of a disk: a partition table, with partitions that lie within it. What
//! is given is the disk, whose length is rounded up to sectors.

#![no_main]

use bale_fsimage::partitions::PartitionTable;
use bale_fsimage::recognize::recognize_head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = recognize_head(data);
    let mut disk = data.to_vec();
    disk.resize(data.len().next_multiple_of(512), 0);
    for sector_bytes in [None, Some(512), Some(4096)] {
        let Ok(Some(table)) = PartitionTable::read(&disk, sector_bytes) else {
            continue;
        };
        assert!(table.partitions.len() <= 4096);
        for partition in &table.partitions {
            assert!(partition.bytes > 0);
            assert!(partition.offset + partition.bytes <= disk.len() as u64);
        }
    }
});
