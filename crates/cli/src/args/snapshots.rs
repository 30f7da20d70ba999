//! Which snapshots are meant, and the options of commands that look at them.

use super::cold::ColdReads;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Which snapshots.
#[derive(Clone, Debug, Default, Args)]
pub struct Select {
    /// Only snapshots of this host
    #[arg(
        short = 'H',
        long = "host",
        value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new(),
    )]
    pub hosts: Vec<String>,
    /// Only snapshots of this source path
    #[arg(long = "path", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Only snapshots with all of these tags (separated by commas)
    #[arg(long = "tag", value_name = "TAGS", value_parser = tags)]
    pub tags: Vec<String>,
}

/// Which one snapshot, where `latest` may name it.
#[derive(Clone, Debug, Default, Args)]
pub struct Pick {
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Let latest and latest~N mean what can be read, though other snapshots are damaged; ends with
    /// exit code 3
    #[arg(long)]
    pub ignore_damaged: bool,
}

/// Tags separated by commas: at least one.
pub(super) fn tags(text: &str) -> Result<String, String> {
    match text.split(',').any(|tag| !tag.trim().is_empty()) {
        true => Ok(text.to_owned()),
        false => Err("it names no tag".to_owned()),
    }
}

/// `snapshots`
#[derive(Debug, Args)]
pub struct Snapshots {
    /// Only these
    pub ids: Vec<String>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Only the newest N of each group
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub latest: Option<u32>,
    /// Group by host, paths, filesystems, tags
    #[arg(short, long, value_name = "WORDS", default_value = "")]
    pub group_by: String,
}

/// `ls`
#[derive(Debug, Args)]
pub struct Ls {
    /// Snapshot, or snapshot:/path; latest:/path is the newest that was made of all of /path
    pub address: OsString,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// Mode, owner, size and time as well
    #[arg(short, long)]
    pub long: bool,
    /// Everything below
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// `find`
#[derive(Debug, Args)]
pub struct Find {
    /// Patterns, as --exclude takes them: a name (*.mbox) anywhere, a/b anywhere, /home/*/x the
    /// whole path; * and ? stay within a name, ** is any number of directories
    #[arg(required = true, value_parser = NonEmptyStringValueParser::new())]
    pub patterns: Vec<String>,
    /// Only in this snapshot [default: all]
    #[arg(short, long, value_name = "SNAP")]
    pub snapshot: Vec<String>,
    /// Ignore case
    #[arg(short, long)]
    pub iname: bool,
    /// Only this path and what is below it, as `bale ls` prints it
    #[arg(long, value_name = "PATH")]
    pub below: Option<PathBuf>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// Mode, owner, size and time as well
    #[arg(short, long)]
    pub long: bool,
}

/// `diff`
#[derive(Debug, Args)]
pub struct Diff {
    /// Older snapshot, or snapshot:/path
    pub old: OsString,
    /// Newer snapshot, or snapshot:/path
    pub new: OsString,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// Also list paths where only metadata changed
    #[arg(long)]
    pub metadata: bool,
}

/// `stats`
#[derive(Debug, Args)]
pub struct Stats {
    /// Only this snapshot, or snapshot:/path
    pub address: Option<OsString>,
    /// Print how each pack reached its server, of this snapshot or of all
    #[arg(long)]
    pub transfers: bool,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
}

/// `dump`
#[derive(Debug, Args)]
pub struct Dump {
    /// snapshot:/path
    pub address: OsString,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// What is not readable at once.
    #[command(flatten)]
    pub cold: ColdReads,
}
