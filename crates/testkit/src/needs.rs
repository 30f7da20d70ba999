//! What a test needs of the machine: had, or said loudly that it is missing.

use std::process::{Command, Stdio};

/// Says that a test could not run here; where all must run, fails.
pub fn skipped(why: &str) {
    println!("SKIPPED: {why}");
    let must = std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_some();
    assert!(!must, "could not be tested: {why}");
}

/// Does this process run as root?
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Can this program be started?
pub fn have(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}
