//! A listing as a WebDAV server sends it: an error or resources, in bounded memory.

#![no_main]

use bale_remote::webdav::read_multistatus;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut found = 0;
    let _ = read_multistatus(bytes, &mut |resource| {
        // A reference is at least as long as the letter that it stands for.
        assert!(!resource.href.is_empty() && resource.href.len() <= bytes.len());
        found += 1;
    });
    assert!(found <= bytes.len() / 20);
});
