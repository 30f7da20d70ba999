//! Removing what the snapshot does not have, on request only.
//!
//! Never through a link, never on another file system, and only paths that are selected.

use super::select::{above, chosen};
use super::sort::{Scratch, Sorted};
use super::target::{Directory, stat_child};
use super::worker::{Failure, Run, Worker};
use super::{Act, CatalogSource, RestoreError};
use bale_format::Entry;
use bale_format::entry::{compare_parents, join};
use bytes::Bytes;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::cmp::Ordering;
use std::sync::atomic;

/// Memory of the sorter of one directory's listing.
const SORTER_BYTES: usize = 8 << 20;

/// Value of a directory whose children may be deleted, in the sorted list of directories.
pub const MAY_DELETE: &[u8] = &[1];

/// Removes, in every directory of the plan, names that the snapshot does not have.
pub fn delete(
    run: &Run,
    catalog: &dyn CatalogSource,
    directories: Sorted,
    scratch: &dyn Scratch,
) -> Result<(), RestoreError> {
    let below = &run.options.below;
    let rows = catalog.rows(below).map_err(RestoreError::Catalog)?;
    let mut pass = Pass {
        worker: Worker::new(run),
        scratch,
        rows: Children {
            rows,
            next: None,
            below: below.clone(),
        },
    };
    for pair in directories {
        let (mut path, value) = pair.map_err(RestoreError::Scratch)?;
        path.iter_mut()
            .filter(|byte| **byte == 0)
            .for_each(|byte| *byte = b'/');
        if value != MAY_DELETE {
            continue;
        }
        if run.has_ended() {
            break;
        }
        match pass.clean(Bytes::from(path.clone())) {
            Ok(()) => {}
            Err(Stop::Directory(failure)) => run.failed(&path, failure),
            Err(Stop::All(text)) => {
                run.problem(&path, "delete", &format!("nothing more is deleted: {text}"));
                break;
            }
        }
    }
    run.outcome()
}

struct Pass<'r> {
    worker: Worker<'r>,
    scratch: &'r dyn Scratch,
    rows: Children<'r>,
}

/// Why deleting ends.
enum Stop {
    /// For this directory.
    Directory(Failure),
    /// For all: what is not known to be absent must stay.
    All(String),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Directory(failure)
    }
}

impl Pass<'_> {
    fn clean(&mut self, path: Bytes) -> Result<(), Stop> {
        let directory = match self.worker.directories.open(&path) {
            Ok(directory) => directory,
            // Of a dry run: not made yet.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(Failure::os("open")(error).into()),
        };
        self.rows.enter(&path).map_err(Stop::All)?;
        let names = list(&directory, self.scratch)?;
        let run = self.worker.run;
        let in_snapshot = join(&run.options.below, &path);
        let above = above(run.options.select, &in_snapshot);
        for pair in names {
            let (name, _) = pair.map_err(|error| Stop::All(error.to_string()))?;
            if self.rows.has(&path, &name).map_err(Stop::All)? {
                continue;
            }
            let Some(stat) = stat_child(&directory, &name).map_err(Failure::os("stat"))? else {
                continue;
            };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let select = run.options.select;
            if !chosen(select, above, &join(&in_snapshot, &name), is_directory) {
                continue;
            }
            let gone = join(&path, &name);
            if run.options.dry_run {
                run.monitor.would(&gone, Act::Delete);
            } else if let Err(failure) = remove_tree(&mut self.worker, &directory, &name, &gone) {
                run.failed(&gone, failure);
                continue;
            }
            run.counters.deleted.fetch_add(1, atomic::Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Names in a directory, sorted as a catalog sorts them.
fn list(directory: &Directory, scratch: &dyn Scratch) -> Result<Sorted, Stop> {
    let text = |error: std::io::Error| Stop::All(error.to_string());
    let mut sorter = scratch.sorter(SORTER_BYTES).map_err(text)?;
    let entries = rustix::fs::Dir::read_from(&directory.fd).map_err(Failure::os("list"))?;
    for entry in entries {
        let entry = entry.map_err(Failure::os("list"))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            sorter.push(name, &[]).map_err(text)?;
        }
    }
    sorter.finish().map_err(text)
}

/// The catalog's rows, asked directory by directory in their own order.
struct Children<'c> {
    rows: super::Rows<'c>,
    next: Option<Entry>,
    below: Bytes,
}

impl Children<'_> {
    /// Goes to the rows of this directory.
    fn enter(&mut self, path: &[u8]) -> Result<(), String> {
        self.skip(|parent, _| compare_parents(parent, path) == Ordering::Less)
    }

    /// Is there a row of this name? Names must be asked in order.
    fn has(&mut self, path: &[u8], name: &[u8]) -> Result<bool, String> {
        self.skip(|parent, row| parent == path && row.name[..] < *name)?;
        let below = &self.below;
        Ok(self
            .next
            .as_ref()
            .is_some_and(|row| relative(below, &row.parent) == Some(path) && row.name == name))
    }

    fn skip(&mut self, unwanted: impl Fn(&[u8], &Entry) -> bool) -> Result<(), String> {
        loop {
            if let Some(row) = &self.next {
                match relative(&self.below, &row.parent) {
                    Some(parent) if !row.name.is_empty() && !unwanted(parent, row) => return Ok(()),
                    _ => {}
                }
            }
            self.next = match self.rows.next() {
                None => None,
                Some(Ok(row)) => Some(row),
                Some(Err(trouble)) => return Err(trouble.to_string()),
            };
            if self.next.is_none() {
                return Ok(());
            }
        }
    }
}

/// A parent as seen from the target; `None` if it is not below `below`.
fn relative<'p>(below: &[u8], parent: &'p [u8]) -> Option<&'p [u8]> {
    if !bale_format::entry::is_below(parent, below) {
        return None;
    }
    match below.len() {
        0 => Some(parent),
        len => Some(&parent[(len + 1).min(parent.len())..]),
    }
}

/// Makes room for something that is no directory: an empty directory goes, a full one only if deleting is asked for.
pub fn clear_directory(
    worker: &mut Worker,
    directory: &Directory,
    entry: &Entry,
) -> Result<(), Failure> {
    let path = entry.path();
    match rustix::fs::unlinkat(&directory.fd, &entry.name[..], AtFlags::REMOVEDIR) {
        Ok(()) => worker.directories.forget(&path),
        Err(Errno::NOTEMPTY | Errno::EXIST) if worker.run.options.delete => {
            remove_tree(worker, directory, &entry.name, &path)?;
        }
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            let text = "a directory that is not empty is there; only --delete removes it";
            return Err(Failure::text("replace", text));
        }
        Err(Errno::NOENT | Errno::NOTDIR) => {}
        Err(error) => return Err(Failure::os("remove the directory")(error)),
    }
    Ok(())
}

/// A directory being emptied.
struct Level {
    path: Bytes,
    /// Directories in it that are not empty.
    full: Vec<Vec<u8>>,
}

/// Removes a file or a whole tree. Depth costs a path, not a descriptor.
fn remove_tree(
    worker: &mut Worker,
    directory: &Directory,
    name: &[u8],
    path: &[u8],
) -> Result<(), Failure> {
    if remove_one(directory, name)? {
        return Ok(());
    }
    let device = rustix::fs::fstat(&directory.fd)
        .map_err(Failure::os("stat"))?
        .st_dev;
    let mut levels = vec![empty(worker, Bytes::copy_from_slice(path), device)?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.full.pop() {
            let below = Bytes::from(join(&level.path, &name));
            levels.push(empty(worker, below, device)?);
            continue;
        }
        let path = levels.pop().expect("there is a last level").path;
        worker.directories.forget(&path);
        let key = bale_format::Key::of_path(&path);
        let parent = worker
            .directories
            .open(&key.parent)
            .map_err(Failure::os("open"))?;
        rustix::fs::unlinkat(&parent.fd, &key.name[..], AtFlags::REMOVEDIR)
            .map_err(Failure::os("remove the directory"))?;
    }
    Ok(())
}

/// Removes everything in a directory but directories that are not empty.
fn empty(worker: &mut Worker, path: Bytes, device: u64) -> Result<Level, Failure> {
    let directory = worker
        .directories
        .open(&path)
        .map_err(Failure::os("open"))?;
    let stat = rustix::fs::fstat(&directory.fd).map_err(Failure::os("stat"))?;
    if stat.st_dev != device {
        return Err(Failure::text(
            "delete",
            "another file system is mounted in it",
        ));
    }
    let mut full = Vec::new();
    let entries = rustix::fs::Dir::read_from(&directory.fd).map_err(Failure::os("list"))?;
    for entry in entries {
        let entry = entry.map_err(Failure::os("list"))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && !remove_one(&directory, name)? {
            full.push(name.to_vec());
        }
    }
    Ok(Level { path, full })
}

/// `false`: a directory that is not empty.
fn remove_one(directory: &Directory, name: &[u8]) -> Result<bool, Failure> {
    match rustix::fs::unlinkat(&directory.fd, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(Failure::os("delete")(error)),
    }
    match rustix::fs::unlinkat(&directory.fd, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(Failure::os("remove the directory")(error)),
    }
}
