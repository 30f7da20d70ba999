//! A record of runs, damaged or of somebody else: refused, or one whose steps are due or not at any
//! moment.

#![no_main]

use bale_profile::calendar::Times;
use bale_profile::due::{due, next_part};
use bale_profile::record::RunRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = RunRecord::parse(bytes, "home", "/r") else {
        return;
    };
    let times = [Times::parse("daily 02:30").expect("it is a time")];
    let now = "2026-11-27T03:00:00[UTC]".parse().expect("it is a moment");
    for step in record.steps.values() {
        let _ = due(&times, Some(step), &now).to_string();
        assert!((1..=7).contains(&next_part(Some(step), 7)));
    }
});
