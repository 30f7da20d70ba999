//! Options of commands that read data which may not be readable at once.

use clap::{Args, ValueHint};
use std::ffi::OsString;

/// Days at most for which something is asked of a store: a hundred years.
pub const DAYS_MAX: i64 = 36_500;

/// Of `restore` and `dump`.
#[derive(Debug, Args)]
pub struct ColdReads {
    /// Print the packs that would be read, one JSON object a line, in the order in which they would
    /// be, with the ranges in each; read no data, write nothing
    #[arg(long)]
    pub plan: bool,
    /// Run this command with the lines of --plan as its standard input, and read each pack only
    /// once the command has printed its name
    ///
    /// The names may come in any order, one a line, over any time: files are restored as their
    /// packs become readable (--to-ext4 and dump wait for all of them). The command should end
    /// when it has printed all; packs it does not name are problems, and so are files in them.
    #[arg(
        long,
        value_name = "COMMAND",
        value_hint = ValueHint::CommandString,
        conflicts_with = "plan",
    )]
    pub warm_command: Option<OsString>,
    /// Have the store itself bring packs back from cold classes of S3, for so many days [default:
    /// 7], and read each pack only once it is there
    ///
    /// Files are restored as their packs come, which takes hours (--to-ext4 and dump wait for all
    /// of them). BALE_S3_RESTORE_TIER is Standard, Bulk (cheaper, slower) or Expedited. A command
    /// that is ended leaves packs on their way: the same one goes on.
    #[arg(
        long,
        value_name = "DAYS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "7",
        value_parser = clap::value_parser!(u32).range(1..=DAYS_MAX),
        conflicts_with_all = ["plan", "warm_command"],
    )]
    pub warm_up: Option<u32>,
}

impl ColdReads {
    /// Is something done so that packs become readable?
    pub fn warms(&self) -> bool {
        self.warm_command.is_some() || self.warm_up.is_some()
    }
}
