//! An opened list of condemned packs: what is accepted can be written again.

#![no_main]

use bale_format::Condemned;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(condemned) = Condemned::from_json(data) {
        assert!(condemned.to_json().is_ok(), "written and read back");
    }
});
