//! Which snapshots are meant, and the options of commands that look at them.

use super::cold::ColdReads;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum, ValueHint};
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

/// How paths are listed.
#[derive(Clone, Debug, Default, Args)]
pub struct LongListing {
    /// Mode, links, owner, group, size and time as well; owners by the names that this machine has
    /// for their numbers
    #[arg(short, long)]
    pub long: bool,
    /// Owners and groups as the numbers that the snapshot holds
    #[arg(long)]
    pub numeric_owner: bool,
}

/// `ls`
#[derive(Debug, Args)]
pub struct Ls {
    /// Snapshot, or snapshot:/path; latest:/path is the newest that was made of all of /path
    pub address: OsString,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// How they are listed.
    #[command(flatten)]
    pub listing: LongListing,
    /// Everything below
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Sort all that is listed, least first [default: by directory as it is stored, without
    /// waiting]
    #[arg(long, value_name = "BY")]
    pub sort: Option<SortBy>,
    /// The greatest, newest, last first [default: of names]
    #[arg(long)]
    pub reverse: bool,
    /// Print everything below in the format of ncdu 1, for ncdu -f and its like
    #[arg(long, conflicts_with_all = ["long", "recursive", "sort", "reverse", "numeric_owner"])]
    pub ncdu: bool,
}

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// By path, each directory followed by what is below it
    Name,
    /// By bytes of content
    Size,
    /// By last change of content
    #[value(alias = "mtime")]
    Time,
    /// By what follows the last dot of the name
    Extension,
}

/// `find`
#[derive(Debug, Args)]
pub struct Find {
    /// Patterns, as --exclude takes them: a name (*.mbox) anywhere, a/b anywhere, /home/*/x the
    /// whole path; * and ? stay within a name, ** is any number of directories [default: every
    /// path, if there is a condition]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
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
    /// What must hold beside the patterns.
    #[command(flatten)]
    pub conditions: FindConditions,
    /// Print of each path only the newest snapshot that has it so
    #[arg(long, conflicts_with = "earliest")]
    pub latest: bool,
    /// Print of each path only the oldest snapshot that has it so
    #[arg(long)]
    pub earliest: bool,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// How they are listed.
    #[command(flatten)]
    pub listing: LongListing,
}

/// What `find` looks for beside names. All of it must hold.
#[derive(Clone, Debug, Default, Args)]
pub struct FindConditions {
    /// Files of at least this size (512K, 10M, 2G)
    #[arg(long, value_name = "SIZE")]
    pub min_size: Option<String>,
    /// Files of at most this size
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
    /// Content changed since then: a duration (36h, 7d), a date, or a date and a time
    #[arg(short = 'O', long, visible_alias = "oldest", value_name = "TIME")]
    pub newer_than: Option<String>,
    /// Content not changed since then
    #[arg(short = 'N', long, visible_alias = "newest", value_name = "TIME")]
    pub older_than: Option<String>,
    /// Only these, as letters separated by commas: files, directories, symbolic links, block and
    /// character devices, pipes, sockets
    #[arg(long = "type", value_name = "f,d,l,b,c,p,s", value_delimiter = ',')]
    pub kinds: Vec<FindKind>,
    /// Files with this content_hash, as `bale ls --json` prints it
    #[arg(long, value_name = "HASH")]
    pub content_hash: Option<String>,
}

/// A kind, by its letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FindKind {
    #[value(name = "f", alias = "file", help = "Files")]
    File,
    #[value(name = "d", alias = "dir", help = "Directories")]
    Directory,
    #[value(name = "l", alias = "symlink", help = "Symbolic links")]
    Symlink,
    #[value(name = "b", alias = "blockdev", help = "Block devices")]
    BlockDevice,
    #[value(name = "c", alias = "chardev", help = "Character devices")]
    CharDevice,
    #[value(name = "p", alias = "fifo", help = "Named pipes")]
    Fifo,
    #[value(name = "s", alias = "socket", help = "Sockets")]
    Socket,
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
    /// Read files that differ: those with the same bytes count as metadata, and of text files of up
    /// to 1 MiB the lines that differ are printed, as diff -u has them
    #[arg(long)]
    pub content: bool,
}

/// `stats`
#[derive(Debug, Args)]
pub struct Stats {
    /// Only this snapshot, or snapshot:/path
    pub address: Option<OsString>,
    /// What to count of the snapshot, or of all that the options choose [default: restore-size of
    /// some, the whole repository without any]
    #[arg(long, value_name = "MODE", conflicts_with = "transfers")]
    pub mode: Option<StatsMode>,
    /// Print how each pack reached its server, of this snapshot or of all
    #[arg(long)]
    pub transfers: bool,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
}

/// What `stats` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatsMode {
    /// Files and bytes that restoring them would bring
    RestoreSize,
    /// What is stored for them, each chunk once, compressed (restic: raw-data)
    #[value(alias = "raw-data")]
    Stored,
    /// What is stored for each of them and for no other snapshot: what forgetting it would free
    Unique,
    /// All of that by host and paths
    BySource,
}

impl StatsMode {
    /// As it is given.
    pub fn word(self) -> &'static str {
        match self {
            StatsMode::RestoreSize => "restore-size",
            StatsMode::Stored => "stored",
            StatsMode::Unique => "unique",
            StatsMode::BySource => "by-source",
        }
    }
}

/// `dump`
#[derive(Debug, Args)]
pub struct Dump {
    /// snapshot:/path
    pub address: OsString,
    /// Write to this file, which gets its name when it is whole, and is yours alone [default:
    /// standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub target: Option<PathBuf>,
    /// Replace the file of --target
    #[arg(long, requires = "target")]
    pub force: bool,
    /// What a directory becomes [default: tar]
    #[arg(short, long, value_name = "FORMAT")]
    pub archive: Option<DumpArchive>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// What is not readable at once.
    #[command(flatten)]
    pub cold: ColdReads,
}

/// Formats of archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DumpArchive {
    /// With everything that a restore brings but sockets
    Tar,
    /// Deflated, for machines without tar: files, directories, symbolic links, modes, times and
    /// owner numbers; hard links become files, and there are no holes, attributes or nodes
    Zip,
}
