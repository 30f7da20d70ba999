//! A sealed object, as found and with a valid seal over any plaintext.

#![no_main]

use bale_format::ObjectType;
use bale_fuzz::keys;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    const PLAIN_BYTES_MAX: usize = 1 << 20;
    let keys = keys();
    let found = keys.open_object(ObjectType::Snapshot, data, PLAIN_BYTES_MAX);
    assert!(found.is_err(), "nobody guesses a seal");
    let sealed = keys
        .seal_object(ObjectType::Snapshot, data, [3; 32])
        .expect("short enough");
    let opened = keys.open_object(ObjectType::Snapshot, &sealed, PLAIN_BYTES_MAX);
    assert_eq!(opened.as_deref(), Ok(data));
});
