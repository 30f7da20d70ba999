//! Options of `schedule`.

use super::{ChosenProfiles, NoRepository, ProfileFiles, StateDir};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `schedule`
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Have profiles run at their times, by timers of systemd or by cron
    #[command(after_help = "Examples:\n  bale schedule install home\n  \
            bale schedule install --all --dry-run\n  bale schedule install home --cron")]
    Install(ScheduleInstall),
    /// Run profiles at no time any more
    #[command(after_help = "Example:\n  bale schedule remove home")]
    Remove(ScheduleRemove),
    /// Show which profiles run when
    #[command(after_help = "Examples:\n  bale schedule status\n  bale schedule status home --json")]
    Status(ScheduleStatus),
}

/// Where a schedule is written.
#[derive(Clone, Debug, Args)]
pub struct SchedulePlace {
    /// Use cron, also where systemd runs
    #[arg(long)]
    pub cron: bool,
    /// Write to this directory (the one above it must be there), and start or stop nothing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub unit_dir: Option<PathBuf>,
}

/// `schedule install`
#[derive(Debug, Args)]
pub struct ScheduleInstall {
    /// Which.
    #[command(flatten)]
    pub chosen: ChosenProfiles,
    /// Where.
    #[command(flatten)]
    pub place: SchedulePlace,
    /// Print the units; write nothing
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

/// `schedule remove`
#[derive(Debug, Args)]
pub struct ScheduleRemove {
    /// Profiles, also such that are in no file any more
    #[arg(value_name = "PROFILE", required = true)]
    pub names: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub place: SchedulePlace,
    /// Print what would be removed; remove nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
}

/// `schedule status`
#[derive(Debug, Args)]
pub struct ScheduleStatus {
    /// Profiles [default: all that have a schedule]
    #[arg(value_name = "PROFILE")]
    pub names: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub place: SchedulePlace,
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
