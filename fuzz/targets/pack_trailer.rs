//! The opened trailer of a pack: every entry lies inside the pack, none over another.

#![no_main]

use bale_format::pack::{decode_trailer, encode_trailer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    const PACK_BYTES: u64 = 1 << 30;
    if let Ok(entries) = decode_trailer(data, PACK_BYTES) {
        assert!(entries.iter().all(|entry| entry.range().end <= PACK_BYTES));
        assert_eq!(encode_trailer(&entries), data);
    }
});
