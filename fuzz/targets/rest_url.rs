//! A URL as a user writes it: what is accepted keeps its host and path, and shows no password.

#![no_main]

use bale_remote::HttpUrl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(url) = HttpUrl::parse(text) {
        let base = url.to_string();
        assert!(base.ends_with('/') && !base.contains('@') && !base.contains("/../"));
        assert_eq!(
            HttpUrl::parse(&base).map(|again| again.to_string()),
            Ok(base)
        );
    }
});
