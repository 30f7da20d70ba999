//! What a server of a cloud answers instead of an object: its kind is one of those that are meant,
//! and its text is short and harmless.

#![no_main]

use bale_cloud::{Answer, refusal};
use libfuzzer_sys::fuzz_target;
use std::time::UNIX_EPOCH;

fuzz_target!(|input: (u16, Vec<u8>, Option<&str>, Option<&str>)| {
    let (status, body, code, region) = input;
    let answer = Answer {
        status,
        body: &body,
        code,
        region,
        date: None,
    };
    let refusal = refusal(&answer, UNIX_EPOCH);
    assert!(refusal.text.chars().count() < 1_000);
    assert!(!refusal.text.chars().any(char::is_control));
});
