//! A piece list, and a walk through lists that all are this one.

#![no_main]

use bale_format::{ChunkId, PieceList, PieceStep, PieceWalk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    const STEPS_MAX: usize = 1000;
    let size = match PieceList::decode(data) {
        Ok(list) => list.bytes().unwrap_or(u64::MAX),
        Err(_) => 1 << 20,
    };
    for from in [0, size / 2] {
        let mut walk = PieceWalk::starting_at(ChunkId([1; 32]), size, from);
        for _ in 0..STEPS_MAX {
            match walk.step() {
                PieceStep::Fetch(_) if walk.supply(data).is_ok() => {}
                PieceStep::Piece { .. } => {}
                _ => break,
            }
        }
    }
});
