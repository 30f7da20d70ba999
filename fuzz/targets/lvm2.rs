//! Metadata of LVM2: a text, and a disk.

#![no_main]

use bale_fsimage::lvm2::{LvmText, PhysicalVolume, read_volumes};
use libfuzzer_sys::fuzz_target;

const ID: &str = "abcdef-ghij-klmn-opqr-stuv-wxyz-012345";
/// Where a first area usually is.
const AREA: usize = 4096;
const DISK_BYTES: u64 = 1 << 40;

fuzz_target!(|data: &[u8]| {
    let mut disk = data.to_vec();
    let _ = PhysicalVolume::read(&disk, 0, disk.len() as u64);
    // Again with checksums of label and area that are right.
    for (at, checked) in [(528, 532..1024), (AREA, AREA + 4..AREA + 512)] {
        if let Some(checksum) = disk.get(checked).map(crc32) {
            disk[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let _ = PhysicalVolume::read(&disk, 0, disk.len() as u64);
    let Ok(text) = LvmText::parse(data) else {
        return;
    };
    if let Ok((_, volumes)) = read_volumes(&text, ID, DISK_BYTES) {
        for segment in volumes
            .iter()
            .flat_map(|volume| volume.segments.iter().flatten())
        {
            assert!(segment.bytes > 0 && segment.disk_offset + segment.bytes <= DISK_BYTES);
        }
    }
});

fn crc32(bytes: &[u8]) -> u32 {
    let mut value = 0xf597_a6cf;
    for byte in bytes {
        value ^= u32::from(*byte);
        for _ in 0..8 {
            value = (value >> 1) ^ (0xedb8_8320 * (value & 1));
        }
    }
    value
}
