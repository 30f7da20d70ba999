//! An opened record: any compressed bytes with any claimed length.

#![no_main]

use bale_format::{Codec, Decompressor};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((length, payload)) = data.split_first_chunk::<3>() else {
        return;
    };
    let plain_bytes = u32::from_le_bytes([length[0], length[1], length[2], 0]) as usize;
    if let Ok(plain) = Decompressor::new().decompress(Codec::Zstd, payload, plain_bytes) {
        assert_eq!(plain.len(), plain_bytes);
    }
});
