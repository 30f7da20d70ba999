//! A text that may be the URI of an export: what is read of it is written and read as the same.

#![no_main]

use bale_nbd::NbdUri;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match NbdUri::parse(text) {
        Ok(mut uri) => {
            // It is not shown, being of no use to anybody else.
            uri.certificates = None;
            assert_eq!(NbdUri::parse(&uri.to_string()), Ok(uri));
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
});
