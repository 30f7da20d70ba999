//! The first and last sectors of a disk: a partition table, with partitions that lie within it. What
//! is given is the disk, whose length is rounded up to sectors.

#![no_main]

use bale_fsimage::partitions::PartitionTable;
use bale_fsimage::recognize::recognize_head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = recognize_head(data);
    let mut disk = data.to_vec();
    disk.resize(data.len().next_multiple_of(SECTOR), 0);
    read(&disk);
    // Again with checksums that are right: what is behind them is looked at, too.
    make_checksums_right(&mut disk);
    read(&disk);
});

const SECTOR: usize = 512;

fn read(disk: &Vec<u8>) {
    for sector_bytes in [None, Some(512), Some(4096)] {
        let Ok(Some(table)) = PartitionTable::read(disk, sector_bytes) else {
            continue;
        };
        assert!(table.partitions.len() <= 4096);
        for partition in &table.partitions {
            assert!(partition.bytes > 0);
            assert!(partition.offset + partition.bytes <= disk.len() as u64);
        }
    }
}

fn make_checksums_right(disk: &mut [u8]) {
    let Some(head) = disk.get(SECTOR..2 * SECTOR) else {
        return;
    };
    let number = |at: usize| {
        head[at..]
            .first_chunk::<4>()
            .map_or(0, |it| u32::from_le_bytes(*it))
    };
    let (start, len) = (
        number(72) as usize,
        number(80) as usize * number(84) as usize,
    );
    let start = start.saturating_mul(SECTOR);
    let entries = disk.get(start..start.saturating_add(len)).map(crc32);
    let head_len = number(12) as usize;
    if let Some(entries) = entries {
        disk[SECTOR + 88..SECTOR + 92].copy_from_slice(&entries.to_le_bytes());
    }
    disk[SECTOR + 16..SECTOR + 20].fill(0);
    if let Some(head) = disk.get(SECTOR..SECTOR.saturating_add(head_len)) {
        let checksum = crc32(head);
        disk[SECTOR + 16..SECTOR + 20].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut value = u32::MAX;
    for byte in bytes {
        value ^= u32::from(*byte);
        for _ in 0..8 {
            value = (value >> 1) ^ (0xedb8_8320 * (value & 1));
        }
    }
    !value
}
