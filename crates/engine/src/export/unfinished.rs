//! A file on its way to its name: in a hidden directory beside it, which is held while it is
//! written.
//!
//! What a killed run leaves there nobody holds, and the next run beside it removes it. What is
//! locked is the directory and not the file: programs that write the file have locks of their own,
//! which on some file systems are the same. Where directories cannot be locked, nothing is removed.

use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

const PREFIX: &str = ".bale-image-";

/// Directories that others remove before they are held, until that is given up.
const TRIES_MAX: u32 = 16;

/// Leftovers that are looked at, in one run.
const LEFTOVERS_MAX: usize = 1000;

/// Removes itself, whatever is in it, unless it was given its name.
pub(super) struct UnfinishedFile {
    file: NamedTempFile,
    // Behind the file: what is in it goes first. Held to its end.
    _directory: TempDir,
    _held: File,
}

impl UnfinishedFile {
    /// An empty file in this directory, where what killed runs left goes. Whoever writes it finds
    /// the name that it will have, which some formats hold.
    pub(super) fn begin(parent: &Path, name: &OsStr) -> io::Result<UnfinishedFile> {
        remove_leftovers(parent);
        for _ in 0..TRIES_MAX {
            let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            let Some(held) = hold(made.path())? else {
                continue;
            };
            return Ok(UnfinishedFile {
                file: tempfile::Builder::new()
                    .prefix(name)
                    .rand_bytes(0)
                    .tempfile_in(made.path())?,
                _directory: made,
                _held: held,
            });
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Syncs it and gives it its name; with `replaces`, a file of that name makes way.
    pub(super) fn finish(self, target: &Path, replaces: bool) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        let named = match replaces {
            true => self.file.persist(target),
            false => self.file.persist_noclobber(target),
        };
        named.map(drop).map_err(|error| error.error)
    }
}

/// `None`: somebody else has just held it, and may have removed it.
fn hold(directory: &Path) -> io::Result<Option<File>> {
    let file = open(directory)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        // A file system without locks of directories: nobody removes anything there.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    let own = file.metadata()?.ino();
    let found = directory.symlink_metadata();
    let is_there = found.is_ok_and(|found| found.ino() == own);
    Ok(is_there.then_some(file))
}

fn open(directory: &Path) -> io::Result<File> {
    // No link is followed, and what is no directory is not opened.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits() as i32);
    options.open(directory)
}

/// What cannot be removed, or is held, stays for another time.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    };
    let paths = entries.flatten().map(|entry| entry.path()).filter(is_ours);
    for path in paths.take(LEFTOVERS_MAX) {
        let _stays = remove_leftover(&path);
    }
}

fn remove_leftover(directory: &Path) -> io::Result<()> {
    let file = open(directory)?;
    let is_own = file.metadata()?.uid() == rustix::process::geteuid().as_raw();
    if !is_own || file.try_lock().is_err() {
        return Ok(());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)?.take(2) {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            return Ok(());
        }
        files.push(entry.path());
    }
    // With more than a file in it, it is none of ours.
    match files.as_slice() {
        [] => {}
        [file] => fs::remove_file(file)?,
        _ => return Ok(()),
    }
    fs::remove_dir(directory)
}
