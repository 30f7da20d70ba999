//! `bale dump`

use crate::args::{Dump, Global};
use anyhow::Result;

/// Prints a file, or a directory as a tar archive.
pub fn run(_global: &Global, _options: &Dump) -> Result<i32> {
    Err(anyhow::anyhow!("dump is not wired yet"))
}
