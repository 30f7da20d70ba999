//! Where the cache is. What it holds can be rebuilt, so that no place for it is no reason to refuse work.

use super::named::user_dir;
use crate::args::Global;
use crate::exit::Usage;
use crate::variables;
use anyhow::Result;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Of root without a home directory: a unit of the system.
const OF_ROOT: &str = "/var/cache/bale";

/// Stands in for a cache as long as this process runs.
static TEMPORARY: OnceLock<PathBuf> = OnceLock::new();

/// The directory: named, else of the user, else of root, else one of this process alone.
pub fn cache_dir(global: &Global) -> Result<PathBuf> {
    if let Some(dir) = &global.cache_dir {
        return Ok(dir.clone());
    }
    if let Some(dir) = variables::read("BALE_CACHE_DIR")? {
        return Ok(dir.into());
    }
    if let Some(dir) = user_dir("XDG_CACHE_HOME", ".cache") {
        return Ok(dir.join("bale"));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(OF_ROOT.into());
    }
    temporary()
}

/// Removes what stood in for a cache, and says that it did.
pub fn end() {
    let Some(dir) = TEMPORARY.get().filter(|dir| dir.exists()) else {
        return;
    };
    let text = "there is no home directory, so this ran with a cache that is gone now: --cache-dir names one that stays";
    match std::fs::remove_dir_all(dir) {
        Ok(()) => tell!("bale: {text}"),
        Err(error) => tell!("bale: remove {}: {error}", dir.display()),
    }
}

/// Its name cannot be guessed: nobody makes it before us. Made when something is put into it.
fn temporary() -> Result<PathBuf> {
    if let Some(dir) = TEMPORARY.get() {
        return Ok(dir.clone());
    }
    let dir = std::env::temp_dir().join(format!("bale-cache-{}", super::unguessable()?));
    if !dir.is_absolute() {
        return Err(Usage("TMPDIR is no absolute path, and there is no home directory: name a cache with --cache-dir".to_owned()).into());
    }
    Ok(TEMPORARY.get_or_init(|| dir).clone())
}
