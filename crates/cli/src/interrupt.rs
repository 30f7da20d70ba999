//! Ctrl-C and termination: the first asks the operation to end well, the second ends the process at
//! once.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// True after the first Ctrl-C or SIGTERM.
pub fn is_requested() -> bool {
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
        report!("bale: cannot listen for signals: {error}");
    }
}
