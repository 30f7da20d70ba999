//! The first bytes of an image of QEMU's formats: the names of files in it.

#![no_main]

use bale_nbd::image_header::{check_vdi, check_vhdx, read_qcow2};
use bale_nbd::vmdk_descriptor::read_vmdk;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (check_vdi(data), check_vhdx(data));
    if let Ok(found) = read_qcow2(data)
        && let Some(backing) = found.backing
    {
        assert!(!backing.name.is_empty() && !backing.name.contains('\0'));
    }
    if let Ok(found) = read_vmdk(data) {
        assert!(found.extents.iter().all(|name| !name.is_empty()));
    }
});
