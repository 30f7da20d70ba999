//! What is compared, and with how much patience.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::error::{CompareError, Result};

/// Files of a comparison that nobody sized.
pub const FILES_DEFAULT: u64 = 1_000_000;
/// Files of `--quick`: everything fits into [`QUICK_BUDGET`] on two cores and a virtual disk.
pub const QUICK_FILES: u64 = 25_000;
/// All of `--quick`, the report included.
pub const QUICK_BUDGET: Duration = Duration::from_secs(5 * 60);
/// Installed peers besides tar that `--quick` runs.
pub const QUICK_PEERS_MAX: usize = 3;
/// A larger tree would outlast the people who wait for it.
pub const FILES_MAX: u64 = 1_000_000_000;
/// More runs do not make a median better.
pub const RUNS_MAX: u32 = 99;

/// One kind of work that all tools do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// Name and size of every file.
    Scan,
    /// The first backup.
    First,
    /// A backup of a tree in which nothing changed.
    Unchanged,
    /// A backup after one per cent of the files changed and one per cent came.
    Changed,
    /// Everything into a fresh file system, written out to the disk.
    Restore,
    OneFile,
}

impl Case {
    /// In the order in which they are run.
    pub const ALL: [Case; 6] = [
        Case::Scan,
        Case::First,
        Case::Unchanged,
        Case::Changed,
        Case::Restore,
        Case::OneFile,
    ];

    /// The word on the command line and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Case::Scan => "scan",
            Case::First => "first",
            Case::Unchanged => "unchanged",
            Case::Changed => "changed",
            Case::Restore => "restore",
            Case::OneFile => "one",
        }
    }

    /// The words on a page.
    pub fn title(self) -> &'static str {
        match self {
            Case::Scan => "Scan",
            Case::First => "First backup",
            Case::Unchanged => "Unchanged",
            Case::Changed => "1 % changed + 1 % new",
            Case::Restore => "Restore everything",
            Case::OneFile => "Restore one file",
        }
    }

    /// A backup into a repository.
    pub fn is_backup(self) -> bool {
        matches!(self, Case::First | Case::Unchanged | Case::Changed)
    }

    /// Reads the word of the command line.
    pub fn parse(word: &str) -> Option<Case> {
        Case::ALL.into_iter().find(|case| case.word() == word)
    }
}

/// The file system that holds the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// ext4, written directly: young, and the files of a directory lie together.
    Ext4,
    /// ext4 filled through the kernel by as many threads as there are cores.
    Ext4Kernel,
    /// XFS filled the same way.
    Xfs,
}

impl SourceKind {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            SourceKind::Ext4 => "ext4",
            SourceKind::Ext4Kernel => "ext4-kernel",
            SourceKind::Xfs => "xfs",
        }
    }

    /// How the tree came to be, in words.
    pub fn describe(self) -> &'static str {
        match self {
            SourceKind::Ext4 => {
                "ext4 written as an image: young, files of a directory lie together in order of \
                 name"
            }
            SourceKind::Ext4Kernel => {
                "ext4 filled through the kernel, several directories at a time: young"
            }
            SourceKind::Xfs => {
                "XFS filled through the kernel, several directories at a time: young"
            }
        }
    }

    pub(super) fn is_ext4(self) -> bool {
        self != SourceKind::Xfs
    }
}

/// A comparison.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Where images, repositories and caches are made, and removed again.
    pub directory: PathBuf,
    /// Regular files of the tree.
    pub files: u64,
    /// Runs of each cell.
    pub runs: u32,
    /// What is measured; what that builds on is run without being measured.
    pub cases: Vec<Case>,
    /// Names of tools; empty for all that are installed.
    pub tools: Vec<String>,
    /// At most this many installed peers besides tar, in order of [`super::tool_names`].
    pub peers_max: usize,
    /// The file system of the tree.
    pub source: SourceKind,
    /// No run starts when it would end later than this, and none goes on.
    pub budget: Option<Duration>,
    /// Begin again with fewer files when the first tools show that these are too many for the
    /// budget.
    pub may_shrink: bool,
    /// Seed of the tree and of its changes.
    pub seed: u64,
    /// `PATH`.
    pub search_path: OsString,
    /// This program, which is run as a child like any peer.
    pub executable: PathBuf,
    /// When it began, for the report.
    pub started: String,
    /// The words that started it, for the report.
    pub command_line: String,
}

impl CompareOptions {
    pub fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(CompareError::Options(text));
        if !(1..=FILES_MAX).contains(&self.files) {
            return refuse(format!(
                "--files {} is not within 1..={FILES_MAX}",
                self.files
            ));
        }
        if !(1..=RUNS_MAX).contains(&self.runs) {
            return refuse(format!("--runs {} is not within 1..={RUNS_MAX}", self.runs));
        }
        if self.cases.is_empty() {
            return refuse("--work names no work".to_owned());
        }
        for name in &self.tools {
            if !super::tool_names().any(|known| known == name) {
                let known: Vec<_> = super::tool_names().collect();
                return refuse(format!(
                    "--tools: no tool {name:?}; there are {}",
                    known.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Is this work measured?
    pub fn measures(&self, case: Case) -> bool {
        self.cases.contains(&case)
    }

    /// Is this work done, because it is measured or because other work builds on it?
    pub(super) fn does(&self, case: Case) -> bool {
        self.measures(case)
            || (case == Case::First && self.cases.iter().any(|other| *other > Case::First))
    }
}
