//! libFuzzer around one fuzz target: the one that `BALE_FUZZ_TARGET` names.
//!
//! Arguments are libFuzzer's; `fuzz/run` builds this with coverage and knows them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

const VARIABLE: &str = "BALE_FUZZ_TARGET";

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(init: choose_target(), |data: &[u8]| {
    let target = TARGET.get().expect("chosen before the first input");
    target(data);
});

/// Ends the program if no target has this name: libFuzzer's way to begin knows no error.
fn choose_target() {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    let target = match name.as_str() {
        "canary" => Some(bale_fuzz_targets::canary as fn(&[u8])),
        name => bale_fuzz_targets::find(name),
    };
    let Some(target) = target else {
        eprintln!("search: {VARIABLE} is {name:?}, which is no target");
        std::process::exit(2);
    };
    TARGET.set(target).expect("chosen once");
}
