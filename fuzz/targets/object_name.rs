//! A name found in a store: what is accepted is written the same.

#![no_main]

use bale_repository::store::ObjectName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(name) = ObjectName::parse(text) {
        assert_eq!(name.path(), text);
    }
});
