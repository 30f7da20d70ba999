//! Removing a name that the snapshot does not have, with everything below it but what stays.
//!
//! Depth costs a path, not a descriptor. A dry run goes the same way and only counts.

use crate::guard::{Protected, Stays};
use crate::kernel::outcome::EntryFailure;
use crate::kernel::target::{TargetDirectory, stat_child};
use crate::kernel::worker::{RestoreRun, Worker};
use bale_format::Entry;
use bale_format::entry::join;
use bale_pipeline::monitor::Act;
use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Why something mounted stays.
pub const OTHER_MOUNT: &str = "nothing in it is deleted: something else is mounted there";

/// A mount: its number where the kernel tells it, for a file system may be mounted in itself, and
/// the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    number: Option<u64>,
    device: u64,
}

/// The mount that something open is on.
pub fn mount_of(fd: BorrowedFd<'_>) -> Result<Mount, Errno> {
    let device = rustix::fs::fstat(fd)?.st_dev;
    let found = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let number = found
        .ok()
        .filter(|stat| stat.stx_mask & StatxFlags::MNT_ID.bits() != 0)
        .map(|stat| stat.stx_mnt_id);
    Ok(Mount { number, device })
}

/// Is this directory in the repository, the cache, or what else is in use?
pub fn is_inside_of_what_is_in_use(fd: BorrowedFd<'_>, guard: &Protected) -> Result<bool, Errno> {
    if guard.in_use.is_empty() {
        return Ok(false);
    }
    let up = |fd: BorrowedFd<'_>| -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(fd, "..", flags, Mode::empty())
    };
    let mut here = rustix::fs::fstat(fd)?;
    let mut above = up(fd)?;
    loop {
        if guard.is_in_use(&here) {
            return Ok(true);
        }
        let next = rustix::fs::fstat(&above)?;
        if (next.st_dev, next.st_ino) == (here.st_dev, here.st_ino) {
            return Ok(false);
        }
        here = next;
        above = up(above.as_fd())?;
    }
}

/// Tells that something stays because this command needs it.
pub fn note_in_use(run: &RestoreRun, path: &[u8]) {
    run.counters.spared.fetch_add(1, Ordering::Relaxed);
    let text = "nothing in it is deleted: it is the repository, cache or key in use";
    run.note(path, text);
}

/// Tells that a directory stays because it is a repository.
pub fn note_repository(run: &RestoreRun, path: &[u8]) {
    run.counters.spared.fetch_add(1, Ordering::Relaxed);
    let text = "nothing in it is deleted: it is marked as a repository of Bale";
    run.note(path, text);
}

/// Tells that a directory stays because backups leave out what is in it, since it was marked.
pub fn note_marked(run: &RestoreRun, path: &[u8]) {
    run.counters.spared.fetch_add(1, Ordering::Relaxed);
    let text = "nothing in it is deleted: it was marked since the backup, and is left out of \
        backups from then on";
    run.note(path, text);
}

/// Makes room for something that is no directory: an empty directory goes, a full one only if
/// deleting is asked for.
pub fn clear_directory(
    worker: &mut Worker,
    directory: &TargetDirectory,
    entry: &Entry,
) -> Result<(), EntryFailure> {
    let run = worker.run;
    let path = entry.path();
    if !run.options.dry_run {
        match rustix::fs::unlinkat(&directory.fd, &entry.name[..], AtFlags::REMOVEDIR) {
            Ok(()) => {
                worker.directories.forget(&path);
                return Ok(());
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(error) => return Err(EntryFailure::os("remove the directory")(error)),
        }
    }
    let knows = run.options.guard.knows_children(&join(&run.strip, &path));
    if !run.options.delete || !knows {
        let text = "a directory that is not empty is there; only --delete removes it";
        return Err(EntryFailure::text("replace", text));
    }
    if run
        .options
        .guard
        .is_repository(directory.fd.as_fd(), &entry.name)
    {
        note_repository(run, &path);
        return Err(EntryFailure::text(
            "replace",
            "a repository of Bale is there",
        ));
    }
    let in_snapshot = join(&run.strip, &path);
    let guard = &run.options.guard;
    if guard.is_marked_now(directory.fd.as_fd(), &entry.name, &in_snapshot) {
        note_marked(run, &path);
        return Err(EntryFailure::text(
            "replace",
            "a directory is there that is marked to be left out of backups",
        ));
    }
    let root = worker.directories.open(&Bytes::new());
    let root = root.map_err(EntryFailure::os("open the target"))?;
    let mount = mount_of(root.fd.as_fd()).map_err(EntryFailure::os("stat"))?;
    match (Sweep { worker, mount }).tree(Bytes::from(path))? {
        true => Ok(()),
        false => {
            let text = "a directory is there that holds what --delete leaves";
            Err(EntryFailure::text("replace", text))
        }
    }
}

/// Removes a name with everything below it that is on this mount, but what stays, and what holds
/// something that stays.
pub fn sweep(
    worker: &mut Worker,
    mount: Mount,
    directory: &TargetDirectory,
    name: &[u8],
    path: &[u8],
) -> Result<(), EntryFailure> {
    let mut sweep = Sweep { worker, mount };
    if sweep.take(directory, name, path)? == Taken::Directory {
        sweep.tree(Bytes::copy_from_slice(path))?;
    }
    Ok(())
}

/// A directory being emptied.
struct DeleteLevel {
    path: Bytes,
    /// Directories in it.
    inner: Vec<Vec<u8>>,
    /// Is there something in it that stays?
    stays: bool,
}

/// What became of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Gone,
    Stays,
    /// What is in it comes first.
    Directory,
}

struct Sweep<'w, 'r> {
    worker: &'w mut Worker<'r>,
    /// The target's own.
    mount: Mount,
}

impl Sweep<'_, '_> {
    /// Removes a directory; `false`: something in it stays, and so does it.
    fn tree(&mut self, path: Bytes) -> Result<bool, EntryFailure> {
        let mut levels = vec![self.enter(path)?];
        let mut is_gone = true;
        while let Some(level) = levels.last_mut() {
            if self.worker.run.has_ended() {
                return Ok(false);
            }
            if let Some(name) = level.inner.pop() {
                let below = Bytes::from(join(&level.path, &name));
                levels.push(self.enter(below)?);
                continue;
            }
            let level = levels.pop().expect("there is a last level");
            is_gone = !level.stays;
            match (is_gone, levels.last_mut()) {
                (true, _) => self.remove_directory(&level.path)?,
                (false, Some(above)) => above.stays = true,
                (false, None) => {}
            }
        }
        Ok(is_gone)
    }

    /// Removes everything in a directory but directories, which are listed.
    fn enter(&mut self, path: Bytes) -> Result<DeleteLevel, EntryFailure> {
        let run = self.worker.run;
        let opened = self.worker.directories.open(&path);
        let directory = opened.map_err(EntryFailure::os("open"))?;
        let mut level = DeleteLevel {
            path,
            inner: Vec::new(),
            stays: false,
        };
        if mount_of(directory.fd.as_fd()).map_err(EntryFailure::os("stat"))? != self.mount {
            run.problem(&level.path, "delete", OTHER_MOUNT);
            level.stays = true;
            return Ok(level);
        }
        let entries =
            rustix::fs::Dir::read_from(&directory.fd).map_err(EntryFailure::os("list"))?;
        for entry in entries {
            let entry = entry.map_err(EntryFailure::os("list"))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let path = join(&level.path, name);
            match self.take(&directory, name, &path) {
                Ok(Taken::Gone) => {}
                Ok(Taken::Stays) => level.stays = true,
                Ok(Taken::Directory) => level.inner.push(name.to_vec()),
                Err(failure) => {
                    run.failed(&path, failure);
                    level.stays = true;
                }
            }
        }
        Ok(level)
    }

    /// Removes a name that is no directory, unless it stays.
    fn take(
        &mut self,
        directory: &TargetDirectory,
        name: &[u8],
        path: &[u8],
    ) -> Result<Taken, EntryFailure> {
        let run = self.worker.run;
        let Some(stat) = stat_child(directory, name).map_err(EntryFailure::os("stat"))? else {
            return Ok(Taken::Gone);
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if self.stays(directory, name, path, &stat) {
            return Ok(Taken::Stays);
        }
        if is_directory {
            return Ok(Taken::Directory);
        }
        if !run.options.dry_run {
            match rustix::fs::unlinkat(&directory.fd, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(EntryFailure::os("delete")(error)),
            }
        }
        count(run, path);
        Ok(Taken::Gone)
    }

    /// Must this name stay? Whoever asked for deleting learns of it.
    fn stays(&self, directory: &TargetDirectory, name: &[u8], path: &[u8], stat: &Stat) -> bool {
        let run = self.worker.run;
        let in_snapshot = join(&run.strip, path);
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if run.options.select.excludes(&in_snapshot, is_directory) {
            return true;
        }
        let guard = &run.options.guard;
        match guard.stays(directory.fd.as_fd(), name, &in_snapshot, stat) {
            None => false,
            Some(Stays::InUse) => {
                note_in_use(run, path);
                true
            }
            Some(Stays::LeftOut | Stays::Withheld | Stays::Source | Stays::Salvage) => {
                run.counters.spared.fetch_add(1, Ordering::Relaxed);
                run.monitor.would(path, Act::Leave);
                true
            }
        }
    }

    fn remove_directory(&mut self, path: &Bytes) -> Result<(), EntryFailure> {
        let run = self.worker.run;
        if !run.options.dry_run {
            self.worker.directories.forget(path);
            let key = bale_format::Key::of_path(path);
            let opened = self.worker.directories.open(&key.parent);
            let parent = opened.map_err(EntryFailure::os("open"))?;
            match rustix::fs::unlinkat(&parent.fd, &key.name[..], AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(EntryFailure::os("remove the directory")(error)),
            }
        }
        count(run, path);
        Ok(())
    }
}

fn count(run: &RestoreRun, path: &[u8]) {
    run.counters.deleted.fetch_add(1, Ordering::Relaxed);
    run.monitor.would(path, Act::Delete);
}
