//! Options of `profile`, and which files hold profiles.

use super::NoRepository;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// Where profiles are.
#[derive(Clone, Debug, Args)]
pub struct ProfileFiles {
    /// Read profiles from this file (repeat for several; of profiles of one name the last file's
    /// counts) [env: BALE_PROFILES] [default: /etc/bale/bale.toml and bale/bale.toml in the user's
    /// configuration directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profiles: Vec<PathBuf>,
}

/// `profile`
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Print what of a profile counts, and where each value comes from
    #[command(after_help = "Examples:\n  bale profile show home\n  \
            bale profile show --profiles ./bale.toml --json")]
    Show(ProfileShow),
    /// List the profiles
    #[command(after_help = "Examples:\n  bale profile list\n  bale profile list --json")]
    List(ProfileList),
}

/// `profile show`
#[derive(Debug, Args)]
pub struct ProfileShow {
    /// Profiles [default: all]
    #[arg(value_name = "PROFILE")]
    pub names: Vec<String>,
    /// Where profiles are.
    #[command(flatten)]
    pub files: ProfileFiles,
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
}

/// `profile list`
#[derive(Debug, Args)]
pub struct ProfileList {
    /// Where profiles are.
    #[command(flatten)]
    pub files: ProfileFiles,
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
}
