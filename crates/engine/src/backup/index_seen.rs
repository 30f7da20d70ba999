//! Which index objects were there when a snapshot was made here. A pack that is gone together with
//! the index object that named it leaves nothing in the store that tells, and a backup looks up
//! only what rows point at: not the pieces of an unchanged large file, and nothing at all where
//! inode tables say that nothing changed.
//!
//! A file in the cache for each host and list of sources, sealed with a key of the repository's.
//! Without it, or if objects have gone since (a prune replaces them, too), a backup follows
//! everything to its chunks: losing it costs time.

use super::parent::Parent;
use super::run::BackupRun;
use bale_format::ObjectId;
use bale_repository::error::Result;
use bale_repository::repository::{Repository, SealedFile};
use bale_repository::store::Area;
use std::path::PathBuf;
use std::sync::Arc;

/// Whose names these are, then the names; two million of them at most.
const FILE: SealedFile = SealedFile {
    magic: b"BALEIDX1",
    body_bytes_max: 64 << 20,
};

/// What a file is about.
#[derive(Clone, Copy)]
pub(super) enum MadeFor {
    /// The snapshot of that name.
    Snapshot(ObjectId),
    /// The record of an unfinished run.
    UnfinishedRun(ObjectId),
}

impl MadeFor {
    fn id(self) -> ObjectId {
        match self {
            MadeFor::Snapshot(id) | MadeFor::UnfinishedRun(id) => id,
        }
    }

    fn extension(self) -> &'static str {
        match self {
            MadeFor::Snapshot(_) => "snapshot",
            MadeFor::UnfinishedRun(_) => "run",
        }
    }
}

/// Names of all index objects, sorted.
pub(super) fn now(repository: &Repository) -> Result<Arc<[ObjectId]>> {
    let mut names = Vec::new();
    repository.store().list(Area::Index, &mut |info| {
        names.extend(info.name.id());
    })?;
    names.sort_unstable();
    Ok(names.into())
}

/// The same at the beginning of a run.
pub(super) fn at_first(repository: &Repository) -> Result<Arc<[ObjectId]>> {
    let listed = repository.share_first(Area::Index)?;
    let mut names: Vec<ObjectId> = listed.iter().filter_map(|info| info.name.id()).collect();
    names.sort_unstable();
    Ok(names.into())
}

/// Is an index object gone that was there when the parent was made, as far as this machine can say?
pub(super) fn may_have_lost_some(run: &BackupRun, parent: &Parent) -> bool {
    let made = [
        parent.id.map(MadeFor::Snapshot),
        parent.run.map(MadeFor::UnfinishedRun),
    ];
    let is_there = |id: &ObjectId| parent.index_objects.binary_search(id).is_ok();
    made.into_iter()
        .flatten()
        .any(|made| load(run, made).is_none_or(|seen| !seen.iter().all(is_there)))
}

/// Remembers those that were there when the run began, and those that are there now.
pub(super) fn remember(run: &BackupRun, made: MadeFor, before: &[ObjectId]) -> Result<()> {
    remember_these(run, made, before, &now(&run.repository)?)
}

/// The same for names that were listed.
pub(super) fn remember_these(
    run: &BackupRun,
    made: MadeFor,
    before: &[ObjectId],
    now: &[ObjectId],
) -> Result<()> {
    let mut seen = now.to_vec();
    seen.extend_from_slice(before);
    seen.sort_unstable();
    seen.dedup();
    let mut body = made.id().0.to_vec();
    seen.iter().for_each(|id| body.extend_from_slice(&id.0));
    FILE.save(&run.repository, &path(run, made)?, &body)
}

fn path(run: &BackupRun, made: MadeFor) -> Result<PathBuf> {
    let name = run.name_in_cache();
    let directory = run.repository.cache_dir()?.join("index-seen");
    Ok(directory.join(name).with_extension(made.extension()))
}

/// `None` if nothing is remembered of just this one.
fn load(run: &BackupRun, made: MadeFor) -> Option<Vec<ObjectId>> {
    let body = FILE.load(&run.repository, &path(run, made).ok()?)?;
    let (id, names) = body.split_first_chunk()?;
    let (names, rest) = names.as_chunks();
    let is_whole = made.id() == ObjectId(*id) && rest.is_empty();
    is_whole.then(|| names.iter().copied().map(ObjectId).collect())
}
