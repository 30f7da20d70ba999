//! An exclude file and the patterns in it, asked about paths.

#![no_main]

use bale_pipeline::filter::{Filter, FilterOptions, parse_exclude_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let options = FilterOptions {
        patterns: parse_exclude_file(text, text.len() % 2 == 0),
        ..FilterOptions::default()
    };
    if let Ok(filter) = Filter::new(&options) {
        for path in [text, "home/user/.cache/x", "a"] {
            let _ = filter.excludes(path.as_bytes());
        }
    }
});
