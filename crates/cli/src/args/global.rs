//! Options of every command, and their absence where they would mean nothing.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Repository directory [default: one in the user's data directory, made when needed]
    #[arg(short, long, global = true, env = "BALE_REPOSITORY", value_hint = ValueHint::DirPath, value_name = "DIR")]
    pub repo: Option<PathBuf>,
    /// Read the password from the first line of this file
    #[arg(short = 'p', long, global = true, env = "BALE_PASSWORD_FILE", value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Run this command and take the first line it prints as the password
    #[arg(
        long,
        global = true,
        env = "BALE_PASSWORD_COMMAND",
        value_name = "COMMAND"
    )]
    pub password_command: Option<String>,
    /// Open the repository with this key file (or a file with a recovery key) instead of a password
    #[arg(long, global = true, env = "BALE_KEY_FILE", value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Directory for what can be rebuilt at any time
    #[arg(long, global = true, env = "BALE_CACHE_DIR", value_hint = ValueHint::DirPath, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only errors and problems
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Tell more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Never draw progress, also on a terminal
    #[arg(long, global = true, env = "BALE_NO_PROGRESS", value_parser = clap::builder::FalseyValueParser::new())]
    pub no_progress: bool,
}

/// Stands in the place of the options about a repository in commands that have none: their help stays silent about
/// them. What the environment says for all commands is no error there.
#[derive(Clone, Debug, Args)]
pub struct NoRepository {
    #[arg(short, long, hide = true)]
    pub repo: Option<PathBuf>,
    #[command(flatten)]
    pub secrets: NoSecrets,
}

/// The same without `--repo`.
#[derive(Clone, Debug, Args)]
pub struct NoSecrets {
    #[arg(short = 'p', long, hide = true)]
    pub password_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub password_command: Option<String>,
    #[arg(long, hide = true)]
    pub key_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub cache_dir: Option<PathBuf>,
}
