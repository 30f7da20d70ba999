//! Options of `compare`.

use super::NoRepository;
use clap::{Args, ValueHint};
use std::path::PathBuf;

pub(super) const COMPARE_ABOUT: &str = "Compare bale with other backup tools on this machine\n\n\
Makes a tree of small files and lets bale, tar and those of restic, borg, bupstash, kopia, rustic, rsync, dump, xfsdump and partclone \
that are installed scan it, back it up, back it up again unchanged and changed, and restore it. Caches are dropped before every run, the \
tools take turns, and operations of the device are counted; that needs root, loop devices and e2fsprogs. Writes a page with plots, and the \
same as JSON and CSV. Nothing else stays behind.";
pub(super) const COMPARE_EXAMPLES: &str = "Examples:\n  sudo bale compare --quick\n  \
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
