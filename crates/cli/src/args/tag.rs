//! Options of `tag`, `pin` and `unpin`.

use super::Select;
use super::snapshots::tags;
use clap::Args;

/// `tag`
#[derive(Debug, Args)]
pub struct Tag {
    /// Snapshots; without any, those of --host, --path and --tag
    #[arg(required_unless_present_any = ["hosts", "paths", "tags"])]
    pub ids: Vec<String>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Add these tags (repeat, or separate by commas)
    #[arg(
        long,
        value_name = "TAGS",
        value_parser = tags,
        required_unless_present_any = ["remove", "set"],
    )]
    pub add: Vec<String>,
    /// Remove these tags
    #[arg(long, value_name = "TAGS", value_parser = tags)]
    pub remove: Vec<String>,
    /// Have these tags and no others ("": none)
    #[arg(long, value_name = "TAGS", conflicts_with_all = ["add", "remove"])]
    pub set: Vec<String>,
    /// Print what would be done; change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// `pin` and `unpin`
#[derive(Debug, Args)]
pub struct Pin {
    /// Snapshots
    #[arg(required = true)]
    pub ids: Vec<String>,
    /// Which snapshots latest means.
    #[command(flatten)]
    pub select: Select,
    /// Print what would be done; change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
