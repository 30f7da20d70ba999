//! A recovery key as typed: what is accepted reads the same as we would print it.

#![no_main]

use bale_format::RecoveryKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(key) = RecoveryKey::from_text(text) {
        let printed = key.to_text();
        let again = RecoveryKey::from_text(&printed).expect("we read what we print");
        assert_eq!(again.to_text(), printed);
    }
});
