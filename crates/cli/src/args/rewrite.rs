//! Options of `rewrite`.

use super::Select;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `rewrite`
#[derive(Debug, Args)]
pub struct Rewrite {
    /// Snapshots [default: all, or those of --host, --path and --tag]
    pub ids: Vec<String>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Leave out what matches, as of backup: a name (*.key) anywhere, /home/*/x the whole path
    #[arg(
        short,
        long,
        value_name = "PATTERN",
        required_unless_present_any = ["iexclude", "exclude_file"],
    )]
    pub exclude: Vec<String>,
    /// The same without regard to case
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<String>,
    /// Read patterns from a file, one a line; # starts a comment
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub exclude_file: Vec<PathBuf>,
    /// Remove the old snapshots once the new ones are there
    #[arg(long)]
    pub forget: bool,
    /// Print what would be done; change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
