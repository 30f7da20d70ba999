//! What stands in for a cache as long as this process runs, and its end.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Made at the first use.
pub static DIR: OnceLock<PathBuf> = OnceLock::new();

/// Was the reason said already?
pub static IS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Removes the directory, if there is one, and says that it did.
pub fn remove() {
    let Some(dir) = DIR.get().filter(|dir| dir.exists()) else {
        return;
    };
    let text = "there is no home directory, so this ran with a cache that is gone now: --cache-dir \
        names one that stays";
    match std::fs::remove_dir_all(dir) {
        Ok(()) if IS_REPORTED.load(Ordering::Relaxed) => {}
        Ok(()) => report!("bale: {text}"),
        Err(error) => report!("bale: remove {}: {error}", dir.display()),
    }
}
