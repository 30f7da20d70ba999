//! A pack without its trailer: record heads are walked, records opened.

#![no_main]

use bale_format::{Decompressor, SalvageScan, salvage_record};
use bale_fuzz::keys;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let keys = keys();
    let key = keys.pack_key(&[3; 32]);
    let mut contexts = Decompressor::new();
    let mut scan = SalvageScan::new(data.len() as u64);
    let mut last = None;
    while let Some(at) = scan.next_head_at() {
        assert!(last < Some(at), "the scan goes on");
        last = Some(at);
        let Ok(Some(head)) = scan.take(&key, &data[at as usize..]) else {
            break;
        };
        let end = at + head.record_bytes();
        let record = &data[at as usize..end as usize];
        let _ = salvage_record(&keys, &key, at, record, &mut contexts);
    }
});
