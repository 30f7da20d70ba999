//! Options of `mirror`: a second place of the same repository.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// `mirror`
#[derive(Debug, Args)]
pub struct Mirror {
    /// Where to, named as --repo names repositories: an empty place, or a mirror of this
    /// repository. Nobody backs up into a mirror: only what is in this repository lasts there
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "PLACE")]
    pub to: OsString,
    /// Log in there with the first line of this file, USER:PASSWORD [env: BALE_TO_LOGIN_FILE]
    #[arg(long, value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub to_login_file: Option<PathBuf>,
    /// Also read what is there, and write again what is damaged
    #[arg(long)]
    pub verify: bool,
    /// Delete there what the repository does not have any more
    #[arg(long)]
    pub delete: bool,
    /// Print what would be sent and deleted
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
