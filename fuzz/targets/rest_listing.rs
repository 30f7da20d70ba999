//! A listing as a REST server sends it: an error or names, in bounded memory.

#![no_main]

use bale_remote::rest::read_listing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut listed = 0;
    let _ = read_listing(bytes, &mut |name, _| {
        assert!(name.len() <= bytes.len());
        listed += 1;
    });
    // The shortest entry, and what stands between two.
    assert!(listed <= bytes.len() / 20 + 1);
});
