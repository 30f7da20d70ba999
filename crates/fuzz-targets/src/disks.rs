//! What divides a disk, and which of its bytes are in use.

use bale_fsimage::allocated::AllocatedRanges;
use bale_fsimage::lvm2::{LvmText, PhysicalVolume, read_volumes};
use bale_fsimage::partitions::PartitionTable;
use bale_fsimage::recognize::recognize_head;
use std::sync::Arc;

const SECTOR: usize = 512;
const LVM_ID: &str = "abcdef-ghij-klmn-opqr-stuv-wxyz-012345";
/// Where a first area of LVM2 usually is.
const LVM_AREA: usize = 4096;
const DISK_BYTES: u64 = 1 << 40;

/// The first and last sectors of a disk: a partition table, with partitions that lie within it.
/// What is given is the disk, whose length is rounded up to sectors.
pub fn partitions(data: &[u8]) {
    let _ = recognize_head(data);
    let mut disk = data.to_vec();
    disk.resize(data.len().next_multiple_of(SECTOR), 0);
    read(&disk);
    // Again with checksums that are right: what is behind them is looked at, too.
    make_checksums_right(&mut disk);
    read(&disk);
}

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
    let entries = disk.get(start..start.saturating_add(len)).map(gpt_crc32);
    let head_len = number(12) as usize;
    if let Some(entries) = entries {
        disk[SECTOR + 88..SECTOR + 92].copy_from_slice(&entries.to_le_bytes());
    }
    disk[SECTOR + 16..SECTOR + 20].fill(0);
    if let Some(head) = disk.get(SECTOR..SECTOR.saturating_add(head_len)) {
        let checksum = gpt_crc32(head);
        disk[SECTOR + 16..SECTOR + 20].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Metadata of LVM2: a text, and a disk.
pub fn lvm2(data: &[u8]) {
    let mut disk = data.to_vec();
    let _ = PhysicalVolume::read(&disk, 0, disk.len() as u64);
    // Again with checksums of label and area that are right.
    for (at, checked) in [(528, 532..1024), (LVM_AREA, LVM_AREA + 4..LVM_AREA + 512)] {
        if let Some(checksum) = disk.get(checked).map(lvm_crc32) {
            disk[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let _ = PhysicalVolume::read(&disk, 0, disk.len() as u64);
    let Ok(text) = LvmText::parse(data) else {
        return;
    };
    if let Ok((_, volumes)) = read_volumes(&text, LVM_ID, DISK_BYTES) {
        for segment in volumes
            .iter()
            .flat_map(|volume| volume.segments.iter().flatten())
        {
            assert!(segment.bytes > 0 && segment.disk_offset + segment.bytes <= DISK_BYTES);
        }
    }
}
/// A disk, or a file system: what of it is to be read. What is given is the disk, whose length is
/// rounded up to sectors.
pub fn allocated(data: &[u8]) {
    let mut disk = data.to_vec();
    disk.resize(data.len().next_multiple_of(512), 0);
    let len = disk.len() as u64;
    let mut ranges = AllocatedRanges::of(Arc::new(disk), None);
    let (mut end, mut sum) = (None, 0);
    for range in ranges.by_ref() {
        assert!(range.start < range.end && range.end <= len);
        assert!(end.is_none_or(|end| end < range.start));
        end = Some(range.end);
        sum += range.end - range.start;
    }
    let parts = ranges.into_parts();
    assert_eq!(
        sum,
        parts.iter().map(|part| part.allocated_bytes).sum::<u64>()
    );
    assert_eq!(len, parts.iter().map(|part| part.bytes).sum::<u64>());
}

fn gpt_crc32(bytes: &[u8]) -> u32 {
    !crc32(u32::MAX, bytes)
}

fn lvm_crc32(bytes: &[u8]) -> u32 {
    crc32(0xf597_a6cf, bytes)
}

/// Without the last inversion, which LVM2 does not know.
fn crc32(start: u32, bytes: &[u8]) -> u32 {
    let mut value = start;
    for byte in bytes {
        value ^= u32::from(*byte);
        for _ in 0..8 {
            value = (value >> 1) ^ (0xedb8_8320 * (value & 1));
        }
    }
    value
}
