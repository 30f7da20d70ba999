//! Fails soon after it starts, if fuzzing works at all: the run of all targets expects it to.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Three comparisons deep: found within seconds with coverage, never without.
    if data.len() > 2 && data[0] == b'd' && data[1] == b'i' && data[2] == b'e' {
        panic!("the canary died, as it must");
    }
});
