//! A description of a kernel's types: an error, or fields within what a load can reach.

#![no_main]

use bale_source::raw::tracking::{Argument, KernelTypes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(types) = KernelTypes::parse(bytes) else {
        return;
    };
    for (of, path) in [
        ("bio", "sector"),
        ("bio", "size"),
        ("bio", "bi_iter.bi_sector"),
    ] {
        for bytes in [4, 8] {
            if let Ok(offset) = types.field(of, path, bytes) {
                assert!(offset + bytes <= i16::MAX as u64);
            }
        }
    }
    let arguments = [Argument::PointerTo("bio"), Argument::Unsigned4];
    if let Ok(found) = types.tracepoint("queue", &arguments) {
        assert_eq!(found.arguments.len(), arguments.len());
    }
});
