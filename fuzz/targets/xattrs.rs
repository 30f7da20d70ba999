//! A set of extended attributes: what is accepted has one encoding.

#![no_main]

use bale_format::xattrs::{decode_xattrs, encode_xattrs};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(mut attributes) = decode_xattrs(data) {
        let again = encode_xattrs(&mut attributes);
        assert_eq!(again.as_deref(), Ok(data));
    }
});
