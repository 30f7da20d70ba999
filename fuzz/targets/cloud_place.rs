//! The name of a place in a cloud, as a user writes it: what is accepted is written in one way, and
//! leads nowhere else.

#![no_main]

use bale_cloud::{Cloud, CloudPlace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for cloud in Cloud::ALL {
        match CloudPlace::parse(cloud, text) {
            Ok(place) => {
                let shown = place.to_string();
                assert!(!shown.contains("/../") && !shown.contains('@'));
                let rest = shown.split_once(':').expect("a scheme").1;
                assert_eq!(CloudPlace::parse(cloud, rest), Ok(place));
            }
            Err(error) => drop(error.to_string()),
        }
    }
});
