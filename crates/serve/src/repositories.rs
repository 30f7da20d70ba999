//! Repositories by name, below the one directory that is served, reached without following a
//! symbolic link.
//!
//! Some stay open. Each time one is wanted it is looked up again: a directory that was put in the
//! place of another must not be taken for it, nor one that was removed be written to.

use crate::limits::REPOSITORIES_OPEN_MAX;
use crate::target::RepositoryName;
use bale_pipeline::clock::SystemClock;
use bale_repository::store::{LocalStore, StoreError};
use rustix::fs::{Mode, OFlags, fstat, fsync, mkdirat, openat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Directories are for their owner only.
const DIR_MODE: u32 = 0o700;

/// Device and inode.
type FileId = (u64, u64);

/// The directory that is served.
pub struct Repositories {
    dir: PathBuf,
    /// Least recently used first.
    open: Mutex<Vec<(RepositoryName, FileId, LocalStore)>>,
}

impl Repositories {
    /// Of this directory, which must exist.
    pub fn new(dir: PathBuf) -> io::Result<Repositories> {
        let repositories = Repositories {
            dir,
            open: Mutex::default(),
        };
        repositories.root()?;
        Ok(repositories)
    }

    /// The repository of this name; `NotFound` if there is no such directory.
    pub fn find(&self, name: &RepositoryName) -> Result<LocalStore, StoreError> {
        let found = self.walk(name, false).and_then(|dir| {
            let stat = fstat(&dir)?;
            Ok((dir, (stat.st_dev, stat.st_ino)))
        });
        let (dir, id) = found.map_err(|source| self.error("open", name, source))?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|(of, ..)| of == name) {
            let entry = open.remove(at);
            if entry.1 == id {
                let store = entry.2.clone();
                open.push(entry);
                return Ok(store);
            }
        }
        let store = LocalStore::open_within(dir, &self.path(name), &SystemClock)?;
        if open.len() >= REPOSITORIES_OPEN_MAX {
            open.remove(0);
        }
        open.push((name.clone(), id, store.clone()));
        Ok(store)
    }

    /// Makes the directories of a new one; `AlreadyExists` if there is a repository.
    pub fn create(&self, name: &RepositoryName) -> Result<(), StoreError> {
        let dir = self.walk(name, true);
        let dir = dir.map_err(|source| self.error("create", name, source))?;
        LocalStore::create_within(dir, &self.path(name)).map(|_| ())
    }

    fn root(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.dir, flags, Mode::empty())?)
    }

    fn walk(&self, name: &RepositoryName, makes: bool) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = self.root()?;
        for part in name.parts() {
            if makes {
                match mkdirat(&dir, part, Mode::from_raw_mode(DIR_MODE)) {
                    // Another client's request may have made it just now, and not synced it yet.
                    Ok(()) | Err(Errno::EXIST) => sync(&dir)?,
                    Err(errno) => return Err(errno.into()),
                }
            }
            dir = openat(&dir, part, flags, Mode::empty())?;
        }
        Ok(dir)
    }

    fn path(&self, name: &RepositoryName) -> PathBuf {
        self.dir.join(name.as_str())
    }

    fn error(&self, action: &'static str, name: &RepositoryName, source: io::Error) -> StoreError {
        StoreError {
            action,
            object: self.path(name).display().to_string(),
            source,
        }
    }
}

fn sync(dir: &OwnedFd) -> io::Result<()> {
    match fsync(dir) {
        // Some network and FUSE file systems cannot sync a directory.
        Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
