//! The unencrypted `config` object; what is accepted is checked against the keys too.

#![no_main]

use bale_format::{Access, UnverifiedConfig};
use bale_fuzz::keys;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(config) = UnverifiedConfig::decode(data) {
        let _ = config.repository();
        let _ = config
            .verify(&keys())
            .map(|config| config.check_access(Access::Write));
    }
});
