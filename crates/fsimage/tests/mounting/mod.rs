//! Mounting beside other tests.

use std::process::Command;
use std::time::Duration;

/// Looks for a device that is busy.
const ATTEMPTS: u32 = 100;

/// Runs a `mount`, again while it says that something is busy: another test's child, between fork
/// and exec, may hold the mount before this one for a moment longer.
pub fn mount_patiently(mount: &mut Command) -> Result<(), String> {
    let mut attempts = 0;
    loop {
        let output = mount.output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        attempts += 1;
        if attempts == ATTEMPTS || !error.contains("busy") {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
