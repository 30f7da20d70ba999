//! Profiles as their users meet them: shown, run, with hooks, and scheduled. Nothing of the machine
//! that runs the tests is touched.

mod hooks;
mod judged;
mod runs;
mod scene;
mod schedules;
mod shown;

#[path = "../end_to_end/bench.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod bench;
