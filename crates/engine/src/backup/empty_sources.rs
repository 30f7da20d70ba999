//! Sources that are empty and were not: what a backup finds where a file system was to be mounted,
//! and is not.
//!
//! The snapshot is made, and the trouble is told: once if the directory was emptied, and by every
//! backup if what it had before was on another file system, or nothing says on which one it is now.
//! It is told by what the snapshots have, so nothing is remembered for it.

use super::choose::text_of;
use super::run::BackupRun;
use bale_format::Snapshot;
use bale_pipeline::amount::counted;
use bale_pipeline::monitor::Problem;
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Result;
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::{SourceKey, clean_path, newest_first};
use bale_source::scan::Sources;
use bale_sys::open::open_for_reading;
use rustix::fs::{CWD, Dir, DirEntry, OFlags};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Snapshots in which an empty source is looked for, the newest. Each costs a segment or two of its
/// catalog.
const LOOKED_AT_MAX: usize = 100;

/// One for each source that is empty now, and was not in the snapshot before, or on the file system
/// that it was on then.
pub(super) fn problems(run: &BackupRun, sources: &Sources) -> Result<Vec<Problem>> {
    let all = sources.paths().iter();
    let empty: Vec<&Path> = all
        .map(|path| path.as_path())
        .filter(|path| is_empty(&sources.in_copy(path).unwrap_or_else(|| path.into())))
        .collect();
    if empty.is_empty() {
        return Ok(Vec::new());
    }
    let (snapshots, _) = run.repository.snapshots_readable()?;
    let key = SourceKey::of(&run.draft);
    let is_at_place = |named: &&Named| {
        let other = SourceKey::of(&named.1);
        !named.1.partial && other.host == key.host && other.paths == key.paths
    };
    let at_place = snapshots.iter().filter(is_at_place);
    let mut before = newest_first(at_place, run.repository.clock().time()).in_order;
    before.truncate(LOOKED_AT_MAX);
    let problems = empty.into_iter().filter_map(|path| {
        let (id, snapshot) = had_something(&run.repository, &key, &before, path)?;
        // Of several sources nobody has counted the files one by one.
        let had = match (sources.paths().len(), snapshot.totals.files) {
            (1, 1..) => counted(snapshot.totals.files, "file"),
            _ => "something".to_owned(),
        };
        Some(Problem {
            path: path.as_os_str().as_bytes().to_vec(),
            action: "back up",
            text: format!(
                "it is empty, and had {had} in it in snapshot {} of {}: is its file system \
                 mounted?",
                id.short(),
                text_of(snapshot.time)
            ),
        })
    });
    Ok(problems.collect())
}

/// Is it a directory without any name? One that cannot be listed is told by the scan. Its atime
/// stays: an inode that changes is written back, and is news to the next look at inode tables.
fn is_empty(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    let Ok(directory) = open_for_reading(CWD, &path, OFlags::DIRECTORY) else {
        return false;
    };
    let is_name = |entry: rustix::io::Result<DirEntry>| {
        entry.map_or(true, |entry| {
            !matches!(entry.file_name().to_bytes(), b"." | b"..")
        })
    };
    Dir::new(directory).is_ok_and(|names| !names.into_iter().any(is_name))
}

/// The newest snapshot with something in this source, if it is the newest of this file system, or
/// is of another one.
fn had_something<'a>(
    repository: &Arc<Repository>,
    key: &SourceKey,
    before: &[&'a Named],
    path: &Path,
) -> Option<&'a Named> {
    let directory = clean_path(path.as_os_str().as_bytes());
    let mut was_empty = false;
    for named in before {
        // A disk whose UUID nobody can tell is not what was known by its mount, nor one that
        // nobody could tell then.
        let is_ours = !key.filesystems.is_empty() && key.filesystems == named.1.source_filesystems;
        if has_something(repository, &named.1, &directory) {
            return Some(*named).filter(|_| !is_ours || !was_empty);
        }
        was_empty |= is_ours;
    }
    None
}

/// Does its catalog have a name in this directory? A catalog that cannot be read tells nothing.
fn has_something(repository: &Arc<Repository>, snapshot: &Snapshot, directory: &[u8]) -> bool {
    let layers = snapshot.layers.clone();
    let catalog = CatalogReader::open(repository.segment_source(), layers);
    catalog.is_ok_and(|catalog| {
        catalog
            .list(directory)
            .next()
            .is_some_and(|row| row.is_ok())
    })
}
