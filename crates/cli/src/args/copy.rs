//! Options of `copy`: snapshots of another repository.

use super::Select;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// The repository that is copied from.
#[derive(Clone, Debug, Args)]
pub struct FromRepository {
    /// Repository to copy from, named as --repo names them [env: BALE_FROM_REPOSITORY]
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "REPOSITORY")]
    pub from_repo: Option<OsString>,
    /// Read its password from the first line of this file [env: BALE_FROM_PASSWORD_FILE, or the
    /// password in BALE_FROM_PASSWORD]
    #[arg(long, value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub from_password_file: Option<PathBuf>,
    /// Run this command and take the first line it prints as its password [env:
    /// BALE_FROM_PASSWORD_COMMAND]
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub from_password_command: Option<String>,
    /// Open it with this key file, or a file with a recovery key [env: BALE_FROM_KEY_FILE]
    #[arg(long, value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub from_key_file: Option<PathBuf>,
    /// Read user and password of its server from the first line of this file [env:
    /// BALE_FROM_LOGIN_FILE]
    #[arg(long, value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub from_login_file: Option<PathBuf>,
}

/// `copy`
#[derive(Debug, Args)]
pub struct Copy {
    /// Only these snapshots
    pub ids: Vec<String>,
    /// Where from.
    #[command(flatten)]
    pub from: FromRepository,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Look whether the copies that are there have all their packs, even if the target's index and
    /// packs seem to agree
    #[arg(long)]
    pub verify: bool,
    /// Print what would be copied; read catalogs only, and store nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
