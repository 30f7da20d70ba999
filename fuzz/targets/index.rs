//! An opened index object, listed and searched.

#![no_main]

use bale_format::{ChunkId, Index};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(index) = Index::decode(data.to_vec()) {
        assert_eq!(index.iter().count(), index.len());
        for entry in index.iter() {
            assert!(index.find(entry.chunk.id).next().is_some(), "all are found");
        }
        let _ = index.find(ChunkId([0x80; 32])).count();
    }
});
