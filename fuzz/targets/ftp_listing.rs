//! Lines of an FTP server's listing: an error or names, each a part of what came.

#![no_main]

use bale_remote::ftp::facts::{read_facts, read_listing};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut found = 0;
    let _ = read_listing(bytes, &mut |entry| {
        assert!(!entry.name.is_empty() && !entry.name.contains('/'));
        found += 1;
    });
    assert!(found <= bytes.len());
    let _ = str::from_utf8(bytes).map(read_facts);
});
