//! An opened mark of damaged packs: what is accepted can be written again.

#![no_main]

use bale_format::DamagedPacks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(damaged) = DamagedPacks::from_json(data) {
        assert!(damaged.to_json().is_ok(), "written and read back");
    }
});
