//! Programs that a test compares with.

use std::process::Command;

/// Can all of them be started? Said loudly if not.
pub fn has_tools(tools: &[&str]) -> bool {
    let is_there = |tool: &&&str| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .output();
        found.is_ok_and(|found| found.status.success())
    };
    let missing: Vec<_> = tools.iter().filter(|tool| !is_there(tool)).collect();
    is_given(missing.is_empty(), &format!("needs the tools {missing:?}"))
}

pub fn is_given(is_given: bool, reason: &str) -> bool {
    if !is_given {
        let demanded = std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_some_and(|value| value == "1");
        assert!(!demanded, "SKIPPED: {reason}");
        eprintln!("SKIPPED: {reason}");
    }
    is_given
}
