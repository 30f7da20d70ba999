//! The words of the command line. Nothing here opens anything: words become options, `commands` turns them into one engine call.

mod ext4;
mod generate;
mod global;
mod restore;

pub use generate::Generate;
pub use global::Global;
use global::NoRepository;
pub use restore::Restore;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Back up file systems with very many files, at the speed of the disk.
#[derive(Debug, Parser)]
#[command(
    name = "bale",
    version,
    about,
    max_term_width = 100,
    after_help = "Exit codes: 0 complete, 1 failed, 2 usage, 3 committed but something could not be read or changed while read, \
4 check found damage, 10 no repository, 11 locked, 12 wrong key, 130 interrupted.\n\n\
Examples:\n  bale backup /home\n  bale restore latest:/home/me/mail --target /tmp/mail\n  bale forget --keep-daily 7 --keep-weekly 5 --prune"
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a repository
    #[command(
        after_help = "Examples:\n  bale init -r /srv/backup\n  BALE_PASSWORD_FILE=/etc/bale/password bale init -r /srv/backup"
    )]
    Init(Init),
    /// Back up files and directories
    #[command(
        after_help = "Examples:\n  bale backup /home /etc --exclude '*.o' --exclude-caches\n  \
find /data -newer stamp -print0 | bale backup --files-from0 -\n  bale backup --dry-run --json /srv"
    )]
    Backup(Box<Backup>),
    /// Tell what a backup would see
    #[command(
        after_help = "Examples:\n  bale scan /home\n  bale scan --scan inode disk.img --densest 20 --json\n  \
bale scan /srv --list --format '%s %p' | sort -n | tail\n\n\
Directives of --format: %p path, %P path below the one given, %f name, %h directory, %d depth, %y type, %s size (0 of directories), \
%m mode, %M mode as ls shows it, %n links, %u or %U user id, %g or %G group id, %i inode, %T@ and %C@ times of change of \
content and inode, %l target, %F file system, %% percent; \\\\n, \\\\t, \\\\0, \\\\\\\\"
    )]
    Scan(Box<ScanPaths>),
    /// List snapshots
    #[command(after_help = "Examples:\n  bale snapshots\n  bale snapshots --host web1 --json")]
    Snapshots(Snapshots),
    /// List what is in a snapshot
    #[command(
        after_help = "Examples:\n  bale ls latest\n  bale ls -l latest:/home/me\n  bale ls --recursive 3fa9c1d2:/etc"
    )]
    Ls(Ls),
    /// Find paths in snapshots by name
    #[command(
        after_help = "Examples:\n  bale find '*.mbox'\n  bale find --snapshot latest --iname 'invoice*' --path /home"
    )]
    Find(Find),
    /// Compare two snapshots
    #[command(
        after_help = "Examples:\n  bale diff latest~1 latest\n  bale diff latest~1:/etc latest:/etc --json"
    )]
    Diff(Diff),
    /// Count what the repository and its snapshots hold
    #[command(after_help = "Examples:\n  bale stats\n  bale stats latest --json")]
    Stats(Stats),
    /// Bring files back
    #[command(
        after_help = "Examples:\n  bale restore latest --target /mnt/new\n  bale restore latest:/home/me/mail --target /tmp/mail\n  \
bale restore latest:/ --include '/etc/**' --target /tmp/r --dry-run\n  \
bale restore latest:/home --to-ext4 /dev/sdx1 --label home --verify   # a ready file system, at the speed of the disk"
    )]
    Restore(Box<Restore>),
    /// Print a file, or a directory as a tar archive
    #[command(
        after_help = "Examples:\n  bale dump latest:/etc/fstab\n  bale dump latest:/home/me | tar tvf -"
    )]
    Dump(Dump),
    /// Look for damage
    #[command(
        after_help = "Examples:\n  bale check\n  bale check --read-data-subset 1/12\n  bale check --scrub   # needs no key"
    )]
    Check(Check),
    /// Remove snapshots by rules
    #[command(
        after_help = "Examples:\n  bale forget --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run\n  bale forget 3fa9c1d2 --prune"
    )]
    Forget(Box<Forget>),
    /// Give back the space of what no snapshot uses
    #[command(after_help = "Examples:\n  bale prune --dry-run\n  bale prune --grace 2h")]
    Prune(Prune),
    /// Manage keys and passwords
    #[command(subcommand)]
    Key(Key),
    /// Work with catalogs
    #[command(subcommand)]
    Catalog(Catalog),
    /// Put right what can be put right by adding
    #[command(subcommand)]
    Repair(Repair),
    /// Make trees of very many files to test with, in a directory or as an ext4 image
    #[command(
        name = "gen",
        after_help = "Examples:\n  bale gen -t /mnt/test -d 7 -D 15 -r 5 -R 14 -f 32 -F 128 -s 1024 -S 2048 -C -N\n  \
bale gen --to-ext4 dense.img --count 1000000 -s 1024 -S 2048 --manifest dense.list\n  \
bale gen -t /mnt/test --change 2 --new 0.5 --delete 0.5 --seed 2\n  \
bale gen -t /tmp/restored --verify-manifest dense.list"
    )]
    Generate(Box<Generate>),
    /// Compare bale with other backup tools on this machine
    #[command(long_about = COMPARE_ABOUT, after_help = COMPARE_EXAMPLES)]
    Compare(Compare),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  bale completions bash > /etc/bash_completion.d/bale")]
    Completions(Completions),
    /// Write the manual pages to a directory
    #[command(after_help = "Example:\n  bale man /usr/local/share/man/man1")]
    Man(Man),
}

/// `--scan`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scan {
    /// Inodes where that is allowed and right, walking otherwise
    Auto,
    /// Directory by directory
    Walk,
    /// From the device, or not at all
    Inode,
}

/// `init`
#[derive(Debug, Args)]
pub struct Init {
    /// Also write a new key file that opens the repository without a password
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub new_key_file: Option<PathBuf>,
    /// Make it in a directory that holds other things, too
    #[arg(long)]
    pub force: bool,
}

/// What to look at, and how: the options of everything that scans.
#[derive(Clone, Debug, Args)]
pub struct Look {
    /// Leave out what matches (a pattern with a slash in front or inside is matched against the whole path)
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// The same without regard to case
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<String>,
    /// Read patterns from a file, one a line; # starts a comment
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub exclude_file: Vec<PathBuf>,
    /// Leave out the content of directories that hold FILE (FILE:TEXT: and it begins with TEXT)
    #[arg(long, value_name = "FILE[:TEXT]")]
    pub exclude_if_present: Vec<String>,
    /// Leave out the content of directories with a valid CACHEDIR.TAG
    #[arg(long)]
    pub exclude_caches: bool,
    /// Back up repositories of Bale, too, that lie below the paths; the one in use never is
    #[arg(long)]
    pub include_repositories: bool,
    /// Leave out files larger than this (512K, 10M, 2G)
    #[arg(long, value_name = "SIZE")]
    pub exclude_larger_than: Option<String>,
    /// Stay on the file systems of the given paths
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// How to find what there is: by inodes from the device (ext4, XFS; also images and unmounted devices), by walking, or
    /// whichever is right
    #[arg(long, value_enum, default_value_t = Scan::Auto)]
    pub scan: Scan,
    /// Never freeze a file system: of ext4 the device then tells only what there is, of XFS the kernel does, and content is
    /// read through the kernel
    #[arg(long)]
    pub no_freeze: bool,
}

/// `backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// Files and directories
    #[arg(value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Read paths from a file, one a line; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from: Vec<PathBuf>,
    /// Read paths from a file, each ended by a zero byte; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from0: Vec<PathBuf>,
    /// What to look at, and how.
    #[command(flatten)]
    pub look: Look,
    /// Read from storage snapshots that this command makes and releases: directories, or devices that are read by inodes
    /// (docs/SNAPSHOTS.md)
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub snapshot_command: Option<String>,
    /// Tag the snapshot (repeat, or separate by commas)
    #[arg(long, value_name = "TAG", value_parser = tags)]
    pub tag: Vec<String>,
    /// Record this host name instead of the machine's [env: BALE_HOST]
    #[arg(short = 'H', long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub host: Option<String>,
    /// Compare with this snapshot instead of the latest of the same host and paths
    #[arg(long, value_name = "SNAP")]
    pub parent: Option<String>,
    /// Compare with nothing: read every file
    #[arg(short, long)]
    pub force: bool,
    /// Make no snapshot when nothing changed
    #[arg(long)]
    pub skip_if_unchanged: bool,
    /// Make a repository of your own if none is named and there is none, also where no terminal shows its recovery key
    /// [env: BALE_INIT]
    #[arg(long, conflicts_with = "dry_run")]
    pub init: bool,
    /// Tell what would be done; store nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// `scan`
#[derive(Debug, Args)]
pub struct ScanPaths {
    /// Files and directories
    #[arg(value_hint = ValueHint::AnyPath, required = true)]
    pub paths: Vec<PathBuf>,
    /// What to look at, and how.
    #[command(flatten)]
    pub look: Look,
    /// Name this many of the directories with the most children
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub densest: usize,
    /// Print every entry, one a line
    #[arg(long)]
    pub list: bool,
    /// Print every entry as it is, each ended by a zero byte
    #[arg(long, conflicts_with = "list")]
    pub list0: bool,
    /// How to print an entry, in the manner of find -printf [default: %p]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<OsString>,
}

/// Which snapshots.
#[derive(Clone, Debug, Default, Args)]
pub struct Select {
    /// Only snapshots of this host
    #[arg(short = 'H', long = "host", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
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
    /// Let latest and latest~N mean what can be read, though other snapshots are damaged; ends with exit code 3
    #[arg(long)]
    pub ignore_damaged: bool,
}

/// Tags separated by commas: at least one.
fn tags(text: &str) -> Result<String, String> {
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
    /// Snapshot, or snapshot:/path
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
    /// Patterns for the last component (with a slash: for the whole path)
    #[arg(required = true, value_parser = NonEmptyStringValueParser::new())]
    pub patterns: Vec<String>,
    /// Only in this snapshot [default: all]
    #[arg(short, long, value_name = "SNAP")]
    pub snapshot: Vec<String>,
    /// Without regard to case
    #[arg(short, long)]
    pub iname: bool,
    /// Only below this path
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
    /// Also tell where only metadata changed
    #[arg(long)]
    pub metadata: bool,
}

/// `stats`
#[derive(Debug, Args)]
pub struct Stats {
    /// Only this snapshot, or snapshot:/path
    pub address: Option<OsString>,
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
}

/// `check`
#[derive(Debug, Args)]
pub struct Check {
    /// Read, decrypt and verify every chunk
    #[arg(long, conflicts_with = "read_data_subset")]
    pub read_data: bool,
    /// The same for a part: n/t (part n of t), x% (chosen at random), or a size (500M)
    #[arg(long, value_name = "PART")]
    pub read_data_subset: Option<String>,
    /// Compare every object with its name; needs no key
    #[arg(long)]
    pub scrub: bool,
    /// Change nothing: do not mark damaged packs, so that backups go on relying on them
    #[arg(long)]
    pub no_mark: bool,
}

/// `forget`
#[derive(Debug, Args)]
#[command(mut_arg("grace", |arg| arg.requires("prune")), mut_arg("repack_below", |arg| arg.requires("prune")))]
pub struct Forget {
    /// Exactly these snapshots or unfinished runs, whatever the rules say; also objects that cannot be read
    pub ids: Vec<String>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// Keep the newest N ("unlimited": all)
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
    /// Keep what is at most this much older than the newest, whatever the date is today (2y5m7d3h); the newest always stays
    #[arg(long, value_name = "DURATION")]
    pub keep_within: Option<String>,
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
    /// Tell what would be done; remove nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Options of prune.
    #[command(flatten)]
    pub prune_options: PruneOptions,
}

/// How to prune.
#[derive(Clone, Debug, Args)]
pub struct PruneOptions {
    /// Delete only packs that were condemned at least this long ago (0: at once; only when no backup runs)
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub grace: String,
    /// Copy what is used out of packs that are less used than this
    #[arg(long, value_name = "PERCENT", default_value = "70")]
    pub repack_below: u8,
}

/// `prune`
#[derive(Debug, Args)]
pub struct Prune {
    /// Options of prune.
    #[command(flatten)]
    pub options: PruneOptions,
    /// Tell what would be done; change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// `key`
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Add a password, a key file or a recovery key
    #[command(
        after_help = "Examples:\n  bale key add --new-password-file /root/second\n  bale key add --recovery"
    )]
    Add(KeyAdd),
    /// Remove a key; the last one stays
    #[command(after_help = "Example:\n  bale key remove 3fa9c1d2")]
    Remove {
        /// Beginning of the key's id
        id: String,
    },
    /// List the keys
    #[command(after_help = "Example:\n  bale key list --json")]
    List,
    /// Change the password: adds the new key, then removes the one that was used
    #[command(after_help = "Example:\n  bale key passwd --new-password-file /root/new")]
    Passwd(KeyAdd),
}

/// `key add` and `key passwd`
#[derive(Debug, Args)]
pub struct KeyAdd {
    /// Read the new password from the first line of this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub new_password_file: Option<PathBuf>,
    /// Write a new key file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "new_password_file")]
    pub new_key_file: Option<PathBuf>,
    /// Make and print a recovery key
    #[arg(long, conflicts_with_all = ["new_password_file", "new_key_file"])]
    pub recovery: bool,
    /// Words to know it by
    #[arg(long, default_value = "")]
    pub label: String,
}

/// `catalog`
#[derive(Debug, Subcommand)]
pub enum Catalog {
    /// Write a snapshot's catalog as Parquet files
    #[command(
        after_help = "Example:\n  bale catalog export latest /tmp/c && duckdb -c \"select count(*), sum(size) from '/tmp/c/*.parquet'\""
    )]
    Export {
        /// Snapshot, or snapshot:/path
        address: OsString,
        /// Directory to make
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// Which snapshots.
        #[command(flatten)]
        select: Pick,
    },
}

/// `repair`
#[derive(Debug, Subcommand)]
pub enum Repair {
    /// List packs that no index names, from their trailers
    #[command(after_help = "Example:\n  bale repair index --dry-run")]
    Index {
        /// Tell what would be done; write nothing
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Save what can still be read of damaged packs, and name what cannot
    #[command(
        after_help = "Examples:\n  bale check --read-data ; bale repair packs\n  bale repair packs --dry-run\n  bale repair packs 3fa9c1d2"
    )]
    Packs {
        /// Packs, by the beginnings of their ids [default: those that a check marked, and those of a wrong length]
        ids: Vec<String>,
        /// Tell what would be done; write nothing
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
}

const COMPARE_ABOUT: &str = "Compare bale with other backup tools on this machine\n\n\
Makes a tree of small files and lets bale, tar and those of restic, borg, bupstash, kopia, rustic, rsync, dump, xfsdump and partclone \
that are installed scan it, back it up, back it up again unchanged and changed, and restore it. Caches are dropped before every run, the \
tools take turns, and operations of the device are counted; that needs root, loop devices and e2fsprogs. Writes a page with plots, and the \
same as JSON and CSV. Nothing else stays behind.";
const COMPARE_EXAMPLES: &str = "Examples:\n  sudo bale compare --quick\n  \
sudo bale compare --files 1000000 --runs 3 --dir /srv/compare\n  \
sudo bale compare --tools bale,tar,restic --work first,unchanged --within 2h\n  \
sudo bale compare --source xfs --json";

/// `compare`
#[derive(Debug, Args)]
pub struct Compare {
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
    /// Finish within five minutes: a small tree, one run of each, tar and at most three other peers
    #[arg(long)]
    pub quick: bool,
    /// Files of the tree [default: 1000000, quick: 25000, fewer where that is too slow]
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// Runs of each tool at each kind of work [default: 3, quick: 1]
    #[arg(long, value_name = "N")]
    pub runs: Option<u32>,
    /// Where to work and to leave the report; about 20 KB of room a file with all tools
    #[arg(long, value_name = "DIR", default_value = "bale-compare", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Only these, separated by commas: bale, bale-inode, bale-to-ext4, tar, restic, borg, ... [default: all installed]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tools: Vec<String>,
    /// Only this work, separated by commas: scan, first, unchanged, changed, restore, one [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub work: Vec<String>,
    /// File system of the tree: ext4 written as an image, or ext4-kernel and xfs filled through the kernel
    #[arg(long, value_name = "KIND", default_value = "ext4")]
    pub source: String,
    /// Start no run that would end later than this (90s, 15m, 24h, 7d) [quick: 5m]
    #[arg(long, value_name = "DURATION")]
    pub within: Option<String>,
    /// Seed of the tree: the same gives the same tree
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// `completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
    /// Which shell
    pub shell: clap_complete::Shell,
}

/// `man`
#[derive(Debug, Args)]
pub struct Man {
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
    /// Directory for the pages
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}
