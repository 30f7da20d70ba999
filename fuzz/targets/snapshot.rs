//! An opened snapshot: what is accepted can be written again.

#![no_main]

use bale_format::Snapshot;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(snapshot) = Snapshot::from_json(data) {
        assert!(snapshot.to_json().is_ok(), "written and read back");
    }
});
