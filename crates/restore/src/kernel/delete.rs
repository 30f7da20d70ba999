//! Removing what the snapshot does not have, on request only.
//!
//! Never through a link, never on another mount, only paths that are selected, and only where the
//! snapshot knows what was there: what may never have been backed up stays, and so does what this
//! command lives on (`guard`).

mod children;
mod foreign_names;
mod tree;

pub use tree::clear_directory;

use crate::kernel::outcome::EntryFailure;
use crate::kernel::target::{TargetDirectory, stat_child};
use crate::kernel::worker::{RestoreRun, Worker};
use crate::scratch::{ScratchSpace, SortedPairs};
use crate::select::{above, chosen};
use crate::{CatalogSource, Overwrite, RestoreError};
use bale_format::entry::{is_below, join};
use bytes::Bytes;
use children::{Children, DeleteStop};
use foreign_names::{Unknown, foreign_names, list};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use tree::{Mount, mount_of, sweep};

/// Why the place of a mount stays as it is.
const NOT_MOUNTED: &str = "nothing in it is deleted: another file system was mounted there when it \
    was backed up, so that what lies below the mount was not";

/// Why what the snapshot does not have stays, all of it.
pub fn hindrance(run: &RestoreRun, is_complete: bool) -> Option<String> {
    if !is_complete {
        return Some("nothing is deleted, for part of the catalog cannot be read".to_owned());
    }
    let counters = &run.counters;
    let parts = counters.incomplete.load(Relaxed) + counters.salvaged.load(Relaxed);
    (parts > 0 || counters.has_damage.load(Relaxed)).then(|| {
        "nothing is deleted: some content could not be had, and what the snapshot does not have \
         may be the last copy of it. --exclude what is named above and run the command again"
            .to_owned()
    })
}

/// A directory in the sorted list of directories: may its children be deleted, and what was mounted
/// there?
#[derive(Clone, Copy)]
pub struct ListedDirectory {
    /// Only of a directory whose children the snapshot knows.
    pub may_delete: bool,
    /// Position in the snapshot's list of file systems.
    pub filesystem: u32,
}

impl ListedDirectory {
    /// As the value of a sorter.
    pub fn to_bytes(self) -> [u8; 5] {
        let [a, b, c, d] = self.filesystem.to_le_bytes();
        [u8::from(self.may_delete), a, b, c, d]
    }

    fn from_bytes(bytes: &[u8]) -> Option<ListedDirectory> {
        let [may_delete, filesystem @ ..]: [u8; 5] = bytes.try_into().ok()?;
        Some(ListedDirectory {
            may_delete: may_delete == 1,
            filesystem: u32::from_le_bytes(filesystem),
        })
    }
}

/// Removes, in every directory of the plan, names that the snapshot does not have.
pub fn delete(
    run: &RestoreRun,
    catalog: &dyn CatalogSource,
    directories: SortedPairs,
    scratch: &ScratchSpace,
) -> Result<(), RestoreError> {
    let below = &run.options.below;
    let rows = catalog.rows(below).map_err(RestoreError::Catalog)?;
    let mut worker = Worker::new(run);
    let Some(mount) = root_mount(run, &mut worker)? else {
        return Ok(());
    };
    let mut pass = DeletePass {
        worker,
        scratch,
        rows: Children::new(rows, below.clone()),
        mount,
        above: Vec::new(),
        spared: None,
    };
    for pair in directories {
        let (mut path, value) = pair.map_err(RestoreError::Scratch)?;
        path.iter_mut()
            .filter(|byte| **byte == 0)
            .for_each(|byte| *byte = b'/');
        let listed = ListedDirectory::from_bytes(&value)
            .ok_or_else(|| RestoreError::Scratch(io::ErrorKind::InvalidData.into()))?;
        if !listed.may_delete {
            continue;
        }
        if run.has_ended() {
            break;
        }
        let was_mounted = pass.was_mount_point(&path, listed.filesystem);
        match pass.clean(Bytes::from(path.clone()), was_mounted) {
            Ok(()) => {}
            Err(DeleteStop::Directory(failure)) => run.failed(&path, failure),
            Err(DeleteStop::All(text)) => {
                run.problem(&path, "delete", &format!("nothing more is deleted: {text}"));
                break;
            }
        }
    }
    run.outcome()
}

/// Where the target is mounted. `None`: nothing may be deleted, or there is nothing.
fn root_mount(run: &RestoreRun, worker: &mut Worker) -> Result<Option<Mount>, RestoreError> {
    let trouble = |error: Errno| run.target.trouble("look at the target", error.into());
    let root = match worker.directories.open(&Bytes::new()) {
        Ok(root) => root,
        // Of a dry run: not made yet.
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(trouble(error)),
    };
    if tree::is_inside_of_what_is_in_use(root.fd.as_fd(), &run.options.guard).map_err(trouble)? {
        let text = "nothing is deleted: the target is in the repository or cache in use";
        run.problem(b"", "delete", text);
        return Ok(None);
    }
    mount_of(root.fd.as_fd()).map(Some).map_err(trouble)
}

struct DeletePass<'r> {
    worker: Worker<'r>,
    scratch: &'r ScratchSpace,
    rows: Children<'r>,
    /// The target's own.
    mount: Mount,
    /// The directories above the next one whose children may go, with the file system that each was
    /// on.
    above: Vec<(Vec<u8>, u32)>,
    /// A directory in which, and below which, nothing is deleted.
    spared: Option<Vec<u8>>,
}

impl DeletePass<'_> {
    /// Was the directory on another file system than the one above it when it was backed up?
    fn was_mount_point(&mut self, path: &[u8], filesystem: u32) -> bool {
        while self
            .above
            .pop_if(|(above, _)| !is_below(path, above))
            .is_some()
        {}
        let above = self.above.last().map(|(_, filesystem)| *filesystem);
        self.above.push((path.to_vec(), filesystem));
        above.is_some_and(|above| above != filesystem)
    }

    fn clean(&mut self, path: Bytes, was_mounted: bool) -> Result<(), DeleteStop> {
        let directory = match self.worker.directories.open(&path) {
            Ok(directory) => directory,
            // Of a dry run: not made yet.
            Err(Errno::NOENT) => return Ok(()),
            // Of a dry run: something else is there, or above, which the directory would replace.
            Err(Errno::NOTDIR | Errno::LOOP) if self.would_be_replaced() => return Ok(()),
            Err(error) => return Err(EntryFailure::os("open")(error).into()),
        };
        if self.is_spared(&path, &directory)? {
            return Ok(());
        }
        // It is on the target's mount, or it would be spared.
        if was_mounted {
            self.worker.run.problem(&path, "delete", NOT_MOUNTED);
            self.spared = Some(path.to_vec());
            return Ok(());
        }
        self.rows.enter(&path).map_err(DeleteStop::All)?;
        let listed = list(&directory, self.scratch)?;
        let Unknown {
            names,
            changes_names,
        } = foreign_names(&mut self.rows, self.scratch, &path, &directory, listed)?;
        let run = self.worker.run;
        let in_snapshot = join(&run.strip, &path);
        let above = above(run.options.select, &in_snapshot);
        for pair in names.into_iter().flatten() {
            let (name, _) = pair.map_err(|error| DeleteStop::All(error.to_string()))?;
            let Some(stat) = stat_child(&directory, &name).map_err(EntryFailure::os("stat"))?
            else {
                continue;
            };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let select = run.options.select;
            if !chosen(select, above, &join(&in_snapshot, &name), is_directory) {
                continue;
            }
            if changes_names {
                run.problem(&path, "delete", foreign_names::CHANGES_NAMES);
                return Ok(());
            }
            let gone = join(&path, &name);
            if let Err(failure) = sweep(&mut self.worker, self.mount, &directory, &name, &gone) {
                run.failed(&gone, failure);
            }
        }
        Ok(())
    }

    fn would_be_replaced(&self) -> bool {
        let options = self.worker.run.options;
        options.dry_run && options.overwrite != Overwrite::Never
    }

    /// Is this directory, or one above it, on another mount than the target, in use, a repository,
    /// or marked? Those above come first, and what is below them next.
    fn is_spared(
        &mut self,
        path: &[u8],
        directory: &TargetDirectory,
    ) -> Result<bool, EntryFailure> {
        if let Some(spared) = &self.spared
            && is_below(path, spared)
        {
            return Ok(true);
        }
        self.spared = None;
        let run = self.worker.run;
        let stat = rustix::fs::fstat(&directory.fd).map_err(EntryFailure::os("stat"))?;
        if run.options.guard.is_in_use(&stat) {
            tree::note_in_use(run, path);
        } else if mount_of(directory.fd.as_fd()).map_err(EntryFailure::os("stat"))? != self.mount {
            run.problem(path, "delete", tree::OTHER_MOUNT);
        } else if run.options.guard.is_repository(directory.fd.as_fd(), b".") {
            tree::note_repository(run, path);
        } else if (run.options.guard).is_marked_now(
            directory.fd.as_fd(),
            b".",
            &join(&run.strip, path),
        ) {
            tree::note_marked(run, path);
        } else {
            return Ok(false);
        }
        self.spared = Some(path.to_vec());
        Ok(true)
    }
}
