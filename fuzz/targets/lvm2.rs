//! Metadata of LVM2: a text, and a disk.

#![no_main]

use bale_fsimage::lvm2::{LvmText, PhysicalVolume, read_volumes};
use libfuzzer_sys::fuzz_target;

const ID: &str = "abcdef-ghij-klmn-opqr-stuv-wxyz-012345";
const DISK_BYTES: u64 = 1 << 40;

fuzz_target!(|data: &[u8]| {
    let disk = data.to_vec();
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
