//! Header and footer of a pack.

#![no_main]

use bale_format::{PackFooter, PackHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = PackHeader::decode(data);
    if let Ok(footer) = PackFooter::decode(data, data.len() as u64 * 1000) {
        let range = footer.trailer_range();
        assert!(
            range.start <= range.end && range.end <= data.len() as u64 * 1000,
            "outside the pack"
        );
    }
});
