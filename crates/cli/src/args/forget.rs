//! Options of `forget` and `prune`.

use super::Select;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

/// `forget`
#[derive(Debug, Args)]
#[command(
    mut_arg("grace", |arg| arg.requires("prune")),
    mut_arg("repack_below", |arg| arg.requires("prune")),
)]
pub struct Forget {
    /// Exactly these snapshots or unfinished runs, whatever the rules say, unless they are pinned;
    /// also objects that cannot be read
    pub ids: Vec<String>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Keep the newest N ("unlimited": all; 0, of each of these rules: as if it were not given)
    #[arg(short = 'l', long, value_name = "N")]
    pub keep_last: Option<String>,
    /// Keep one for each of N hours
    #[arg(long, value_name = "N")]
    pub keep_hourly: Option<String>,
    /// Keep one for each of N days
    #[arg(short = 'd', long, value_name = "N")]
    pub keep_daily: Option<String>,
    /// Keep one for each of N weeks
    #[arg(short = 'w', long, value_name = "N")]
    pub keep_weekly: Option<String>,
    /// Keep one for each of N months
    #[arg(short = 'm', long, value_name = "N")]
    pub keep_monthly: Option<String>,
    /// Keep one for each of N years
    #[arg(short = 'y', long, value_name = "N")]
    pub keep_yearly: Option<String>,
    /// Keep what is at most this much older than the newest, whatever the date is today (2y5m7d3h);
    /// the newest always stays
    #[arg(long, value_name = "DURATION")]
    pub keep_within: Option<String>,
    /// Keep one for each hour of those that are at most this much older than the newest
    #[arg(long, value_name = "DURATION")]
    pub keep_within_hourly: Option<String>,
    /// Keep one for each day of those that are at most this much older than the newest
    #[arg(long, value_name = "DURATION")]
    pub keep_within_daily: Option<String>,
    /// Keep one for each week of those that are at most this much older than the newest
    #[arg(long, value_name = "DURATION")]
    pub keep_within_weekly: Option<String>,
    /// Keep one for each month of those that are at most this much older than the newest
    #[arg(long, value_name = "DURATION")]
    pub keep_within_monthly: Option<String>,
    /// Keep one for each year of those that are at most this much older than the newest
    #[arg(long, value_name = "DURATION")]
    pub keep_within_yearly: Option<String>,
    /// Keep what has all of these tags (separated by commas)
    #[arg(long, value_name = "TAGS")]
    pub keep_tag: Vec<String>,
    /// Group by host, paths, filesystems (those that the paths were on), tags
    #[arg(
        short,
        long,
        value_name = "WORDS",
        default_value = "host,paths,filesystems"
    )]
    pub group_by: String,
    /// Prune afterwards
    #[arg(long)]
    pub prune: bool,
    /// Print what would be done; remove nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Options of prune.
    #[command(flatten)]
    pub prune_options: PruneChoices,
}

/// How to prune.
#[derive(Clone, Debug, Args)]
pub struct PruneChoices {
    /// Delete only packs that were condemned at least this long ago (0: at once; only when no
    /// backup runs)
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub grace: String,
    /// Copy what is used out of packs that are less used than this
    #[arg(long, value_name = "PERCENT", default_value = "70")]
    pub repack_below: u8,
    /// Go on though this snapshot replaced many files by data that does not compress, as if
    /// somebody had encrypted them: the change is meant (bale status names such snapshots). It is
    /// remembered on this machine
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub despite_sudden_change: Vec<String>,
}

/// `prune`
#[derive(Debug, Args)]
pub struct Prune {
    /// Options of prune.
    #[command(flatten)]
    pub options: PruneChoices,
    /// Print what would be done; change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
