//! Sources that are empty, or nearly, and were not: what a backup finds where a file system was to
//! be mounted, and is not.
//!
//! The snapshot is made, and the trouble is told: once if the directory was emptied, and by every
//! backup if what it had before was on another file system, or nothing says on which one it is now.
//! It is told by what the snapshots have, so nothing is remembered for it. A few names may be those
//! of the directory under the mount: that is told while nothing is mounted there, and every
//! snapshot of this file system had as few.

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
use rustix::fs::{AtFlags, CWD, Dir, DirEntry, OFlags, StatxAttributes, StatxFlags};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Snapshots in which an empty source is looked for, the newest. Each costs a segment or two of its
/// catalog.
const LOOKED_AT_MAX: usize = 100;

/// Names of a directory that are few.
const FEW_NAMES_MAX: usize = 4;

/// One for each source that is empty now, and was not in the snapshot before, or on the file system
/// that it was on then.
pub(super) fn problems(run: &BackupRun, sources: &Sources) -> Result<Vec<Problem>> {
    let all = sources.paths().iter();
    let few: Vec<(&Path, usize)> = all
        .filter_map(|path| {
            let names = few_names(&sources.in_copy(path).unwrap_or_else(|| path.into()))?;
            Some((path.as_path(), names))
        })
        .collect();
    if few.is_empty() {
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
    let problems = few.into_iter().filter_map(|(path, names)| {
        let (id, snapshot) = had_more(&run.repository, &key, &before, (path, names))?;
        let has = match names {
            0 => "is empty".to_owned(),
            names => format!("has {}", counted(names as u64, "name")),
        };
        // Of several sources nobody has counted the files one by one.
        let had = match (sources.paths().len(), snapshot.totals.files) {
            (1, 1..) => counted(snapshot.totals.files, "file"),
            _ => "something".to_owned(),
        };
        Some(Problem {
            path: path.as_os_str().as_bytes().to_vec(),
            action: "back up",
            text: format!(
                "it {has}, and had {had} in it in snapshot {} of {}: is its file system mounted?",
                id.short(),
                text_of(snapshot.time)
            ),
        })
    });
    Ok(problems.collect())
}

/// Names in a directory that has few, and where nothing is mounted unless it has none. One that
/// cannot be listed is told by the scan. Its atime stays: an inode that changes is written back,
/// and is news to the next look at inode tables.
fn few_names(path: &Path) -> Option<usize> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let directory = open_for_reading(CWD, &path, OFlags::DIRECTORY).ok()?;
    let is_mounted = is_mount_point(&directory);
    let is_name = |entry: &rustix::io::Result<DirEntry>| {
        let name = entry.as_ref().map(|entry| entry.file_name().to_bytes());
        name.map_or(true, |name| !matches!(name, b"." | b".."))
    };
    let listed = Dir::new(directory).ok()?;
    let names = listed.filter(is_name).take(FEW_NAMES_MAX + 1).count();
    (names == 0 || (names <= FEW_NAMES_MAX && !is_mounted)).then_some(names)
}

fn is_mount_point(directory: impl AsFd) -> bool {
    let stat = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE);
    stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The newest snapshot with more in this source: with anything, if it is empty, and that is the
/// newest of this file system, or of another one; with more than a few names, if it has few, and
/// that is of another one, and none of this one had as many since.
fn had_more<'a>(
    repository: &Arc<Repository>,
    key: &SourceKey,
    before: &[&'a Named],
    (path, names): (&Path, usize),
) -> Option<&'a Named> {
    let directory = clean_path(path.as_os_str().as_bytes());
    let least = match names {
        0 => 1,
        _ => FEW_NAMES_MAX + 1,
    };
    let mut had_as_few = false;
    for named in before {
        // A disk whose UUID nobody can tell is not what was known by its mount, nor one that
        // nobody could tell then.
        let is_ours = !key.filesystems.is_empty() && key.filesystems == named.1.source_filesystems;
        if has_names(repository, &named.1, &directory, least) {
            let is_told = match names {
                0 => !is_ours || !had_as_few,
                // Where nobody knows which file system it is, it may be the same.
                _ => !is_ours && !key.filesystems.is_empty(),
            };
            return Some(*named).filter(|_| is_told);
        }
        had_as_few |= is_ours;
    }
    None
}

/// Does its catalog have so many names in this directory? One that cannot be read tells nothing.
fn has_names(
    repository: &Arc<Repository>,
    snapshot: &Snapshot,
    directory: &[u8],
    least: usize,
) -> bool {
    let layers = snapshot.layers.clone();
    let catalog = CatalogReader::open(repository.segment_source(), layers);
    catalog.is_ok_and(|catalog| {
        let names = catalog.list(directory).take(least);
        names.filter(|row| row.is_ok()).count() == least
    })
}
