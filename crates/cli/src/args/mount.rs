//! `mount`

use super::snapshots::Select;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `mount`
#[derive(Debug, Args)]
pub struct MountCommand {
    /// An empty directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Only these snapshots, and none that come later
    pub ids: Vec<String>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Let other users in, as far as modes and access control lists of the files let them (users
    /// that are not root need user_allow_other in /etc/fuse.conf for it)
    #[arg(long)]
    pub allow_other: bool,
}
