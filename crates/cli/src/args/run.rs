//! Options of `run`.

use super::{ChosenProfiles, NoRepository, ProfileFiles};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Where what is known of past runs is.
#[derive(Clone, Debug, Args)]
pub struct StateDir {
    /// Directory for the record of past runs [env: BALE_STATE_DIR] [default: /var/lib/bale for
    /// root, else one in the user's state directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
}

/// `run`
#[derive(Debug, Args)]
pub struct RunProfiles {
    /// Which.
    #[command(flatten)]
    pub chosen: ChosenProfiles,
    /// Do every step, also what is not due
    #[arg(long)]
    pub now: bool,
    /// Print what is due, why, and the commands; do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Where profiles are.
    #[command(flatten)]
    pub files: ProfileFiles,
    /// Where the record is.
    #[command(flatten)]
    pub state: StateDir,
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
}
