//! Repositories by name, below the one directory that is served, reached without following a
//! symbolic link.
//!
//! Some stay open. Each time one is wanted it is looked up again: a directory that was put in the
//! place of another must not be taken for it, nor one that was removed be written to. What a server
//! that was killed left in `tmp/` goes once it is a day old, as in any local repository: when the
//! repository is opened, and, since it may stay open for years, once an hour after that.

use crate::limits::REPOSITORIES_OPEN_MAX;
use crate::target::{PARTS_MAX, RepositoryName, is_plain};
use bale_pipeline::clock::Clock;
use bale_repository::store::{Area, LocalStore, StoreError};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, fsync, mkdirat, openat, statat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Directories are for their owner only.
const DIR_MODE: u32 = 0o700;

/// No link is followed.
const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Between two looks into the `tmp/` of a repository that stays open.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// Directories that are looked through for a repository before one is made around them.
const DIRECTORIES_LOOKED_MAX: usize = 10_000;

/// Device and inode.
type FileId = (u64, u64);

/// A repository that stays open.
struct OpenRepository {
    name: RepositoryName,
    id: FileId,
    store: LocalStore,
    swept: SystemTime,
}

/// The directory that is served.
pub struct Repositories {
    dir: PathBuf,
    clock: Box<dyn Clock>,
    /// Least recently used first.
    open: Mutex<Vec<OpenRepository>>,
}

impl Repositories {
    /// Of this directory, which must exist.
    pub fn new(dir: PathBuf, clock: Box<dyn Clock>) -> io::Result<Repositories> {
        let repositories = Repositories {
            dir,
            clock,
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
        let now = self.clock.now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|of| of.name == *name) {
            let mut entry = open.remove(at);
            if entry.id == id {
                let store = entry.store.clone();
                let is_due = is_due(entry.swept, now);
                if is_due {
                    entry.swept = now;
                }
                open.push(entry);
                drop(open);
                if is_due {
                    store.sweep(now)?;
                }
                return Ok(store);
            }
        }
        let store = LocalStore::open_within(dir, &self.path(name), &*self.clock)?;
        if open.len() >= REPOSITORIES_OPEN_MAX {
            open.remove(0);
        }
        open.push(OpenRepository {
            name: name.clone(),
            id,
            store: store.clone(),
            swept: now,
        });
        Ok(store)
    }

    /// Makes the directories of a new one; `AlreadyExists` if there is a repository.
    pub fn create(&self, name: &RepositoryName) -> Result<(), StoreError> {
        let dir = self.walk(name, true);
        let dir = dir.map_err(|source| self.error("create", name, source))?;
        LocalStore::create_within(dir, &self.path(name)).map(|_| ())
    }

    /// The repository in whose directory one of this name would be: what is in it is listed, copied
    /// and removed with the other's objects.
    pub fn around(&self, name: &RepositoryName) -> Result<Option<String>, StoreError> {
        let found = self.find_around(name);
        found.map_err(|source| self.error("create", name, source))
    }

    fn find_around(&self, name: &RepositoryName) -> io::Result<Option<String>> {
        let mut dir = self.root()?;
        let mut above = String::new();
        for part in name.parts() {
            if is_repository(&dir)? {
                return Ok(Some(format!("/{above}")));
            }
            dir = match openat(&dir, part, DIR_FLAGS, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(None),
                opened => opened?,
            };
            above += &format!("{part}/");
        }
        Ok(None)
    }

    /// A repository that one of this name would lie around, and hold among its objects. Of more
    /// directories than [`DIRECTORIES_LOOKED_MAX`] nobody knows.
    pub fn inside(&self, name: &RepositoryName) -> Result<Option<String>, StoreError> {
        let found = self.find_inside(name);
        found.map_err(|source| self.error("create", name, source))
    }

    fn find_inside(&self, name: &RepositoryName) -> io::Result<Option<String>> {
        let dir = match self.walk(name, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            dir => dir?,
        };
        // One that is there already is not made.
        if is_repository(&dir)? {
            return Ok(None);
        }
        let mut left = DIRECTORIES_LOOKED_MAX;
        let mut waiting = vec![(String::new(), 0)];
        while let Some((path, depth)) = waiting.pop() {
            let at = match path.as_str() {
                "" => openat(&dir, ".", DIR_FLAGS, Mode::empty()),
                path => openat(&dir, path, DIR_FLAGS, Mode::empty()),
            };
            let at = match at {
                // Not of this server, or gone.
                Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                at => at?,
            };
            if depth > 0 && is_repository(&at)? {
                return Ok(Some(path));
            }
            for below in directories(&at)? {
                left = left.checked_sub(1).ok_or_else(too_many)?;
                if depth < PARTS_MAX {
                    let slash = if path.is_empty() { "" } else { "/" };
                    waiting.push((format!("{path}{slash}{below}"), depth + 1));
                }
            }
        }
        Ok(None)
    }

    /// A text with the paths in it as clients know them.
    pub fn without_dir(&self, text: &str) -> String {
        let dir = self.dir.display().to_string();
        let dir = dir.trim_end_matches('/');
        match text.split_once(dir) {
            Some((before, "")) => format!("{before}/"),
            Some((before, after)) => format!("{before}{after}"),
            None => text.to_owned(),
        }
    }

    fn root(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.dir, flags, Mode::empty())?)
    }

    fn walk(&self, name: &RepositoryName, makes: bool) -> io::Result<OwnedFd> {
        let mut dir = self.root()?;
        for part in name.parts() {
            if makes {
                match mkdirat(&dir, part, Mode::from_raw_mode(DIR_MODE)) {
                    // Another client's request may have made it just now, and not synced it yet.
                    Ok(()) | Err(Errno::EXIST) => sync(&dir)?,
                    Err(errno) => return Err(errno.into()),
                }
            }
            dir = openat(&dir, part, DIR_FLAGS, Mode::empty())?;
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

/// As `bale init` of a local directory knows one.
fn is_repository(dir: &OwnedFd) -> io::Result<bool> {
    let kind = |name: &str| match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(io::Error::from(errno)),
    };
    for area in [Area::Packs, Area::Keys] {
        if kind(area.text())? != Some(FileType::Directory) {
            return Ok(false);
        }
    }
    for config in Area::CONFIGS {
        if kind(config.text())?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The directories in one that may lead to a repository, or be one.
fn directories(dir: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let is_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        let name = entry.file_name().to_str();
        names.extend(
            name.ok()
                .filter(|name| is_directory && is_plain(name))
                .map(str::to_owned),
        );
    }
    Ok(names)
}

fn too_many() -> io::Error {
    let text = "there are too many directories below it to look for a repository among them";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Also if the clock was set back.
fn is_due(swept: SystemTime, now: SystemTime) -> bool {
    now.duration_since(swept)
        .is_ok_and(|age| age >= SWEEP_EVERY)
        || now < swept
}

fn sync(dir: &OwnedFd) -> io::Result<()> {
    match fsync(dir) {
        // Some network and FUSE file systems cannot sync a directory.
        Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::RequestTarget;
    use bale_pipeline::clock::ManualClock;
    use bale_repository::store::local::TEMPORARY_AGE_MAX;
    use std::sync::Arc;

    struct Shared(Arc<ManualClock>);

    impl Clock for Shared {
        fn now(&self) -> SystemTime {
            self.0.now()
        }
    }

    /// A server that was killed leaves what it was writing; the one that follows runs for years.
    #[test]
    fn what_a_killed_server_left_goes_a_day_later_although_the_repository_stays_open() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let clock = Arc::new(ManualClock::at(now));
        let shared = Box::new(Shared(clock.clone()));
        let repositories = Repositories::new(dir.path().to_owned(), shared).unwrap();
        let target = RequestTarget::parse("/a/").unwrap();
        let name = target.repository().unwrap();
        repositories.create(name).unwrap();
        let left = dir.path().join(format!("a/tmp/.tmp-{}", "0".repeat(32)));
        std::fs::write(&left, b"half").unwrap();
        let of_others = dir.path().join("a/tmp/notes");
        std::fs::write(&of_others, b"not ours").unwrap();
        repositories.find(name).unwrap();
        clock.set(now + TEMPORARY_AGE_MAX - SWEEP_EVERY);
        repositories.find(name).unwrap();
        assert!(left.exists(), "somebody may be writing it");
        clock.set(now + TEMPORARY_AGE_MAX + 2 * SWEEP_EVERY);
        repositories.find(name).unwrap();
        assert!(!left.exists());
        assert!(of_others.exists());
    }
}
