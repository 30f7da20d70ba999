//! Options of `rewrite`.

use super::{Excludes, Select};
use clap::{ArgGroup, Args};

/// `rewrite`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("excludes")
    .args(["exclude", "iexclude", "exclude_file"])
    .required(true)
    .multiple(true))]
pub struct Rewrite {
    /// Snapshots [default: all, or those of --host, --path and --tag]
    pub ids: Vec<String>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Patterns of what is to go.
    #[command(flatten)]
    pub excludes: Excludes,
    /// Remove the old snapshots once the new ones are there
    #[arg(long)]
    pub forget: bool,
    /// Print what would be done; change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
