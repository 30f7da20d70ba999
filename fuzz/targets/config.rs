//! The unencrypted `config` object; what is accepted is checked against the keys too.

#![no_main]

use bale_format::config::is_authentic;
use bale_format::{Access, UnverifiedConfig};
use bale_fuzz::keys;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let keys = keys();
    let is_authentic = is_authentic(data, &keys);
    if let Ok(config) = UnverifiedConfig::decode(data) {
        assert!(data.starts_with(config.line()));
        let _ = config.repository();
        if let Ok(config) = config.verify(&keys) {
            assert!(
                is_authentic,
                "what is believed is what a holder of the keys wrote"
            );
            let _ = config.check_access(Access::Write);
        }
    }
});
