//! Both ends of a pack, as found, and the head of a record once opened.

#![no_main]

use bale_format::{PackFooter, PackHeader, RecordHead};
use bale_fuzz::keys;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = PackHeader::decode(data);
    if let Ok(head) = RecordHead::decode(data) {
        assert!(
            head.payload_bytes <= head.plain_bytes && head.payload_bytes < head.sealed_bytes,
            "the payload is in the body"
        );
    }
    let _ = keys().pack_key_by_ends(data.first_chunk(), data.last_chunk());
    let key = keys().pack_key(&[3; 32]);
    if let Ok(footer) = PackFooter::open(&key, data, data.len() as u64 * 1000) {
        let range = footer.trailer_range();
        assert!(
            range.start <= range.end && range.end <= data.len() as u64 * 1000,
            "outside the pack"
        );
    }
});
