//! Ctrl-C and termination: the first asks the operation to end well, the second ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Has the user asked to stop?
pub fn asked() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Starts listening for SIGINT, SIGTERM and SIGHUP.
pub fn listen() {
    let result = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(crate::exit::INTERRUPTED);
        }
    });
    if let Err(error) = result {
        tell!("bale: cannot listen for signals: {error}");
    }
}
