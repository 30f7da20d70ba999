//! One run of a backup: its identity, what was asked for, and what came of it.

use bale_format::id::hex;
use bale_format::snapshot::PathText;
use bale_format::{Access, ObjectId, Snapshot, Time};
use bale_pipeline::clock::moment_of;
use bale_pipeline::monitor::Problem;
use bale_repository::error::{Error, Result};
use bale_repository::pack::UploadTotals;
use bale_repository::repository::Repository;
use bale_source::scan::{ScanMode, Sources, source_filesystems};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// What is asked of a backup besides what to scan.
#[derive(Clone, Debug, Default)]
pub struct BackupOptions {
    /// Recorded host name.
    pub host: String,
    /// Recorded user name.
    pub user: String,
    /// Recorded program and version.
    pub program: String,
    pub tags: Vec<String>,
    /// Recorded excludes, as given.
    pub excludes: Vec<String>,
    /// Compare with this snapshot instead of the latest of the same host and sources.
    pub parent: Option<ObjectId>,
    /// Compare with nothing, and read and open every chunk that the repository has before relying
    /// on it.
    pub force: bool,
    /// Recorded as the time of the snapshot, instead of when the run began.
    pub time: Option<Time>,
    /// Rows say when entries were last accessed.
    pub with_atime: bool,
    /// Commit nothing if nothing changed.
    pub skip_if_unchanged: bool,
    /// Store nothing.
    pub dry_run: bool,
    /// What was asked for and is not there: told, counted and recorded like trouble met on the way.
    pub not_found: Vec<Problem>,
    /// Between two records of the unfinished run; for tests.
    pub checkpoint_every: Option<Duration>,
    /// Between two signs of life; for tests.
    pub sign_of_life_every: Option<Duration>,
}

/// What came of a backup.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The snapshot's id; `None` if nothing was committed on purpose.
    pub id: Option<ObjectId>,
    /// What was, or would have been, committed.
    pub snapshot: Snapshot,
    /// How much was named that is no problem.
    pub noted: Noted,
    /// Packs that were sent to a server.
    pub uploads: UploadTotals,
}

/// What was named and is no problem, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Names that were listed and are gone.
    pub vanished: u64,
    /// Places where another file system begins, and which were not crossed.
    pub not_crossed: u64,
    /// The repository, its cache and its key; other repositories.
    pub left_out: u64,
}

/// A run under way.
pub(super) struct BackupRun {
    pub(super) repository: Arc<Repository>,
    pub(super) id: [u8; 16],
    /// Everything that is known before scanning.
    pub(super) draft: Snapshot,
    /// Of the snapshot, if not when the run began.
    pub(super) time: Option<Time>,
}

impl BackupRun {
    /// How long it has lasted.
    pub(super) fn age(&self) -> Duration {
        let began = moment_of(self.draft.time);
        let now = self.repository.clock().now();
        now.duration_since(began).unwrap_or_default()
    }

    /// Paths of the sources, without leading slash.
    pub(super) fn sources(&self) -> Vec<Vec<u8>> {
        let clean = |path: &PathText| bale_repository::snapshots::clean_path(&path.0);
        self.draft.paths.iter().map(clean).collect()
    }

    /// Tells hosts and lists of sources apart, without telling them.
    pub(super) fn name_in_cache(&self) -> String {
        let mut name = self.draft.host.clone().into_bytes();
        for path in &self.draft.paths {
            name.push(0);
            name.extend_from_slice(&path.0);
        }
        hex(&self.repository.keys().content_hash(&name))
    }

    /// The same with what is known by now.
    pub(super) fn with_draft(&self, draft: Snapshot) -> BackupRun {
        BackupRun {
            repository: self.repository.clone(),
            id: self.id,
            draft,
            time: self.time,
        }
    }

    pub(super) fn begin(
        repository: &Arc<Repository>,
        sources: &Sources,
        mode: ScanMode,
        options: &BackupOptions,
    ) -> Result<BackupRun> {
        let paths = sources
            .paths()
            .iter()
            .map(|path| PathText(path.as_os_str().as_bytes().to_vec()))
            .collect();
        let filesystems = source_filesystems(sources, mode);
        let draft = Snapshot::begun([0; 16], repository.clock().time());
        BackupRun::begin_as(repository, (paths, filesystems), draft, options)
    }

    /// A run of these sources and the file systems they are on. Of the draft counts what only its
    /// kind of backup has.
    pub(super) fn begin_as(
        repository: &Arc<Repository>,
        (paths, source_filesystems): (Vec<PathText>, Vec<String>),
        draft: Snapshot,
        options: &BackupOptions,
    ) -> Result<BackupRun> {
        repository.check_access(Access::Write)?;
        if !options.dry_run {
            // Now, and not at the commit: a list that cannot be read would have it refused.
            repository.condemned_at_first()?;
        }
        let id: [u8; 16] = bale_pipeline::random::draw(repository.random())
            .map_err(|error| Error::Other(format!("draw random bytes: {error}")))?;
        let draft = Snapshot {
            run: hex(&id),
            host: options.host.clone(),
            user: options.user.clone(),
            program: options.program.clone(),
            tags: options.tags.clone(),
            paths,
            source_filesystems,
            excludes: options.excludes.clone(),
            atimes: options.with_atime,
            ..draft
        };
        Ok(BackupRun {
            repository: repository.clone(),
            id,
            draft,
            time: options.time,
        })
    }
}
