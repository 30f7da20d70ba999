//! The words of the command line, and the comparison that they ask for.

use anyhow::{Context, Result};
use bale_compare::{
    Case, CompareOptions, FILES_DEFAULT, QUICK_BUDGET, QUICK_FILES, QUICK_PEERS_MAX, SourceKind,
};
use clap::{Parser, ValueHint};
use jiff::{Span, SpanRelativeTo, Timestamp};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Runs of each cell unless told otherwise.
const RUNS_DEFAULT: u32 = 3;
const RUNS_QUICK: u32 = 1;

/// Well-formed words that cannot be meant.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

const ABOUT: &str = "Compare bale with other backup tools on this machine\n\n\
Makes a tree of small files and lets bale, tar and those of restic, borg, bupstash, kopia, rustic, \
rsync, dump, xfsdump and partclone that are installed scan it, back it up, back it up again \
unchanged and changed, and restore it. Caches are dropped before every run, the tools take turns, \
and operations of the device are counted; that needs root, loop devices and e2fsprogs. Writes a \
page with plots, and the same as JSON and CSV. Nothing else stays behind.";
const EXAMPLES: &str = "Examples:\n  sudo bale-compare --quick\n  \
sudo bale-compare --files 1000000 --runs 3 --dir /srv/compare\n  \
sudo bale-compare --tools bale,tar,restic --work first,unchanged --within 2h\n  \
sudo bale-compare --source xfs --json";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "bale-compare", version, about = ABOUT, after_help = EXAMPLES)]
pub struct Words {
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
    #[arg(
        long,
        value_name = "DIR",
        default_value = "bale-compare",
        value_hint = ValueHint::DirPath,
    )]
    pub dir: PathBuf,
    /// Only these, separated by commas: bale, bale-inode, bale-to-ext4, tar, restic, borg, ...
    /// [default: all installed]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tools: Vec<String>,
    /// Only this work, separated by commas: scan, first, unchanged, changed, restore, one
    /// [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub work: Vec<String>,
    /// File system of the tree: ext4 written as an image, or ext4-kernel and xfs filled through
    /// the kernel
    #[arg(long, value_name = "KIND", default_value = "ext4")]
    pub source: String,
    /// Start no run that would end later than this (90s, 15m, 24h, 7d; 0: at any time)
    /// [quick: 5m]
    #[arg(long, value_name = "DURATION")]
    pub within: Option<String>,
    /// Seed of the tree: the same gives the same tree
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// The bale to compare [default: the one beside this program, or the first of PATH]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::ExecutablePath)]
    pub bale: Option<PathBuf>,
    /// Print JSON objects, one a line
    #[arg(long)]
    pub json: bool,
    /// Say nothing but the result
    #[arg(long, short)]
    pub quiet: bool,
}

impl Words {
    /// The comparison; not yet checked in itself.
    pub fn options(&self) -> Result<CompareOptions> {
        let cases: Option<Vec<Case>> = self.work.iter().map(|word| Case::parse(word)).collect();
        let known = Case::ALL.map(Case::word).join(", ");
        let cases = cases.ok_or_else(|| UsageError(format!("--work takes {known}")))?;
        let budget = match &self.within {
            Some(text) => Some(duration(text)?),
            None => self.quick.then_some(QUICK_BUDGET),
        };
        let (files, runs) = match self.quick {
            true => (QUICK_FILES, RUNS_QUICK),
            false => (FILES_DEFAULT, RUNS_DEFAULT),
        };
        Ok(CompareOptions {
            directory: self.dir.clone(),
            files: self.files.unwrap_or(files),
            runs: self.runs.unwrap_or(runs),
            cases: match cases.is_empty() {
                true => Case::ALL.to_vec(),
                false => cases,
            },
            tools: self.tools.clone(),
            peers_max: match self.quick && self.tools.is_empty() {
                true => QUICK_PEERS_MAX,
                false => usize::MAX,
            },
            source: source(&self.source)?,
            budget: budget.filter(|budget| *budget > Duration::ZERO),
            may_shrink: self.quick && self.files.is_none(),
            seed: self.seed,
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            executable: self.bale()?,
            started: now(),
            command_line: command_line(),
        })
    }

    fn bale(&self) -> Result<PathBuf> {
        if let Some(given) = &self.bale {
            return std::path::absolute(given).context("find the bale to compare");
        }
        let own = std::env::current_exe().context("find this program")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = own.parent().map(Path::to_owned).into_iter();
        directories
            .chain(std::env::split_paths(&path))
            .map(|directory| directory.join("bale"))
            .find(|file| file.is_file())
            .ok_or_else(|| {
                UsageError("no bale beside this program or in PATH: name it with --bale".to_owned())
                    .into()
            })
    }
}

fn duration(text: &str) -> Result<Duration, UsageError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let span = text.parse::<Span>();
    let signed = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    let duration = signed.ok().and_then(|signed| signed.try_into().ok());
    let wrong = || format!("{text:?} is not a duration: write for example 90s, 15m, 24h, 7d");
    duration.ok_or_else(|| UsageError(wrong()))
}

fn source(word: &str) -> Result<SourceKind> {
    let kinds = [SourceKind::Ext4, SourceKind::Ext4Kernel, SourceKind::Xfs];
    let kind = kinds.into_iter().find(|kind| kind.word() == word);
    Ok(kind
        .ok_or_else(|| UsageError(format!("--source {word:?} is not ext4, ext4-kernel or xfs")))?)
}

/// Date and time, to the minute.
fn now() -> String {
    let time = Timestamp::try_from(SystemTime::now()).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// As a shell would take it.
fn command_line() -> String {
    let words = std::env::args_os().enumerate().map(|(at, word)| {
        let word = match at {
            0 => Path::new(&word).file_name().unwrap_or(&word).to_owned(),
            _ => word,
        };
        let word = word.to_string_lossy().into_owned();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:+".contains(letter);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("1h 30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(duration("7d").unwrap(), Duration::from_secs(7 * 86400));
        for wrong in ["", "5", "h", "-5m", "5 parsecs", "2mo"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
