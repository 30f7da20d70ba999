//! `LocalStore`: a repository in a directory.
//!
//! An object is written under a temporary name in `tmp/`, synced, given its name, and the directory
//! is synced; only then does the call return. Whatever the moment of a crash, a name in an area
//! therefore stands for a whole object, and what was acknowledged is still there. So the whole
//! directory must be one file system. Temporary files that a dead process left are swept when they
//! are a day old.
//!
//! After a failed write or sync the file is given up and never synced again: the kernel may have
//! dropped the bytes and would report success. After a failed sync of a directory the whole store
//! refuses to write.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bale_format::id::hex;

use super::disk::{DirEntryKind, Disk, Expect, FileStat, OpenFile, OsDisk};
use super::{
    Area, ForeignEntry, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store,
    StoreError, ends_early,
};
use bale_pipeline::clock::Clock;
use bale_pipeline::filter::{TAG_NAME, TAG_SIGNATURE};
use bale_pipeline::random::{OsRandom, Random};

mod listing;
mod temporary;

use listing::Listed;
pub use temporary::TEMPORARY_AGE_MAX;
use temporary::{LocalWriter, TEMPORARY_DIR};

/// Files kept open for `read_at`; small against the 64 descriptors of the tightest limit we run
/// under.
const OPEN_FILES_MAX: usize = 16;

/// How often a name is tried again after its directory was missing: another process may remove it
/// once more.
const NAMING_ATTEMPTS_MAX: u32 = 3;

/// A repository in a directory.
#[derive(Clone)]
pub struct LocalStore {
    core: Arc<Core>,
}

struct Core {
    disk: Arc<dyn Disk>,
    random: Arc<dyn Random>,
    refusing: AtomicBool,
    /// Directories whose own name is known to be durable: the areas, 256 pack directories.
    synced: Mutex<BTreeSet<String>>,
    /// Least recently used first.
    open_files: Mutex<Vec<(ObjectName, Arc<dyn OpenFile>)>>,
}

impl LocalStore {
    /// Lays out a new repository directory, making `path` where it is missing. `AlreadyExists` if
    /// one is there. What an interrupted `create` left is completed.
    pub fn create(path: &Path) -> Result<Self> {
        let disk = OsDisk::create(path).map_err(|source| at_path("create", path, source))?;
        let store = Self::create_on(Arc::new(disk), Arc::new(OsRandom))?;
        store.core.write_tag()?;
        Ok(store)
    }

    /// Opens a repository directory, changing nothing.
    pub fn open(path: &Path) -> Result<Self> {
        let disk = OsDisk::open(path).map_err(|source| at_path("open", path, source))?;
        Ok(Self::open_on(Arc::new(disk), Arc::new(OsRandom)))
    }

    /// Opens a repository directory and removes what dead processes left in `tmp/`.
    pub fn open_to_write(path: &Path, clock: &dyn Clock) -> Result<Self> {
        let store = Self::open(path)?;
        store.sweep(clock.now())?;
        Ok(store)
    }

    /// `create` in a directory that is open already, without following a symbolic link in it:
    /// for servers. `path` is for messages.
    pub fn create_within(root: OwnedFd, path: &Path) -> Result<Self> {
        let disk = Arc::new(OsDisk::within(root, path));
        let store = Self::create_on(disk, Arc::new(OsRandom))?;
        store.core.write_tag()?;
        Ok(store)
    }

    /// `open_to_write`, likewise.
    pub fn open_within(root: OwnedFd, path: &Path, clock: &dyn Clock) -> Result<Self> {
        let store = Self::open_on(Arc::new(OsDisk::within(root, path)), Arc::new(OsRandom));
        store.sweep(clock.now())?;
        Ok(store)
    }

    /// Lists an area of objects that is a directory, and names what is none in it.
    pub fn list_and_name(
        &self,
        area: Area,
        found: &mut dyn FnMut(ObjectInfo),
        foreign: &mut dyn FnMut(ForeignEntry),
    ) -> Result<()> {
        let list = self.core.list_area(area, &mut Listed { found, foreign });
        list.map_err(|error| self.core.error("list", area, error))
    }

    /// `create` on any disk.
    pub fn create_on(disk: Arc<dyn Disk>, random: Arc<dyn Random>) -> Result<Self> {
        let store = Self::open_on(disk, random);
        store.core.lay_out()?;
        Ok(store)
    }

    /// `open` on any disk.
    pub fn open_on(disk: Arc<dyn Disk>, random: Arc<dyn Random>) -> Self {
        let core = Core {
            disk,
            random,
            refusing: AtomicBool::new(false),
            synced: Mutex::default(),
            open_files: Mutex::default(),
        };
        Self {
            core: Arc::new(core),
        }
    }
}

impl LocalStore {
    /// Closes an object that reads keep open: the next read is of whatever has its name then. For
    /// those who live longer than a command.
    pub fn close_object(&self, name: &ObjectName) {
        self.core.lock_open_files().retain(|(open, _)| open != name);
    }
}

impl Store for LocalStore {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.core.check_not_refusing("write")?;
        if self.core.stat("write", name)?.is_some() {
            return self.core.make_name_last(name);
        }
        let mut writer = LocalWriter::new(&self.core, Expect::Small)?;
        writer.append(bytes)?;
        Box::new(writer).publish(name)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Data)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        let expect = match content {
            PackContent::Data => Expect::Bulk,
            PackContent::Metadata => Expect::Small,
        };
        Ok(Box::new(LocalWriter::new(&self.core, expect)?))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let read = || {
            let file = self.core.disk.open(&name.path())?;
            if file.len() > len_max {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let len = usize::try_from(file.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len)?;
            bytes.resize(len, 0);
            file.read_at(0, &mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| self.core.error("read", name, error))
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = self
            .core
            .open_cached(name)
            .and_then(|file| file.read_at(offset, buf));
        read.map_err(|error| {
            let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
            let stat = is_short.then(|| self.core.stat("read", name));
            let error = match stat {
                Some(Ok(Some(stat))) => ends_early(offset, buf.len(), stat.len),
                _ => error,
            };
            self.core.error("read", name, error)
        })
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        let stat = self.core.stat("stat", name)?;
        Ok(stat.map(|stat| ObjectInfo {
            name: *name,
            len: stat.len,
            modified: stat.modified,
        }))
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        if let Some(single) = ObjectName::single(area) {
            self.stat(&single)?.into_iter().for_each(found);
            return Ok(());
        }
        self.list_and_name(area, found, &mut |_| {})
    }

    fn list_foreign(&self, area: Area, found: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        match ObjectName::single(area) {
            Some(single) => self.core.foreign_single(&single, found),
            None => self.list_and_name(area, &mut |_| {}, found),
        }
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.core.check_not_refusing("delete")?;
        self.close_object(name);
        self.core
            .delete(name)
            .map_err(|error| self.core.error("delete", name, error))
    }

    fn place(&self) -> String {
        self.core.disk.place()
    }

    fn keeps_the_first(&self) -> bool {
        true
    }
}

impl Core {
    /// Directories first, each durable; `config` is the caller's last step.
    fn lay_out(&self) -> Result<()> {
        for config in ObjectName::configs() {
            if self.stat("create", &config)?.is_some() {
                return Err(self.error(
                    "create",
                    "repository",
                    io::ErrorKind::AlreadyExists.into(),
                ));
            }
        }
        let areas = Area::ALL
            .into_iter()
            .filter(|area| area.is_directory())
            .map(|area| area.text().to_owned());
        for dir in areas.chain([TEMPORARY_DIR.to_owned()]).chain(pack_dirs()) {
            ignore_present(self.disk.make_dir(&dir))
                .map_err(|error| self.error("create", dir, error))?;
        }
        for dir in [Area::Packs.text(), ""] {
            self.sync_dir(dir)
                .map_err(|error| self.error("create", dir, error))?;
        }
        Ok(())
    }

    /// Marks the directory, so that backups of the machine leave it out. It is no object: without
    /// it nothing is missing.
    fn write_tag(&self) -> Result<()> {
        let (temporary, mut file) = self.create_temporary(Expect::Small)?;
        let text = format!(
            "{TAG_SIGNATURE}
"
        );
        let write = || {
            file.append(text.as_bytes())?;
            file.sync()?;
            if let Err(error) = self.disk.rename_new(&temporary, TAG_NAME) {
                // An earlier attempt has written it, whole.
                ignore_present(Err(error))?;
                self.disk.unlink(&temporary)?;
            }
            self.sync_dir("")
        };
        write().map_err(|error| self.error("write", TAG_NAME, error))
    }

    /// Gives a synced file its name, durably. If the name is taken, that object is as good and
    /// stays.
    fn give_name(&self, temporary: &str, name: &ObjectName) -> Result<()> {
        let path = name.path();
        for attempts_left in (0..NAMING_ATTEMPTS_MAX).rev() {
            let Err(error) = self.disk.rename_new(temporary, &path) else {
                break;
            };
            match error.kind() {
                io::ErrorKind::AlreadyExists if self.stat("write", name)?.is_some() => break,
                // Deleted this moment, or a foreign thing.
                io::ErrorKind::AlreadyExists if attempts_left > 0 => {}
                io::ErrorKind::NotFound if attempts_left > 0 => {
                    self.make_dirs_of(name)
                        .map_err(|error| self.error("write", name, error))?;
                }
                _ => return Err(self.error("write", name, error)),
            }
        }
        self.make_name_last(name)
    }

    /// The object's name, and those of the directories above it, which another process may have
    /// made just now.
    fn make_name_last(&self, name: &ObjectName) -> Result<()> {
        let dir = name.dir();
        self.sync_dir(&dir)
            .and_then(|()| self.sync_parents(&dir))
            .map_err(|error| self.error("write", name, error))
    }

    fn sync_parents(&self, dir: &str) -> io::Result<()> {
        if dir.is_empty() || self.lock_synced().contains(dir) {
            return Ok(());
        }
        let parent = dir.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.sync_dir(parent)?;
        self.sync_parents(parent)?;
        // A run's directory goes when it is empty and may come again, so it is never taken for
        // granted.
        if parent != Area::Runs.text() && parent != Area::Stretches.text() {
            self.lock_synced().insert(dir.to_owned());
        }
        Ok(())
    }

    /// Tools that copy repositories may leave out empty directories, which those of
    /// `refuse_missing` are not once in use.
    fn make_dirs_of(&self, name: &ObjectName) -> io::Result<()> {
        self.refuse_missing(name.area)?;
        let dir = name.dir();
        if let Some((parent, _)) = dir.rsplit_once('/') {
            ignore_present(self.disk.make_dir(parent))?;
        }
        ignore_present(self.disk.make_dir(&dir))
    }

    fn delete(&self, name: &ObjectName) -> io::Result<()> {
        let dir = name.dir();
        ignore_missing(self.disk.unlink(&name.path()))?;
        ignore_missing(self.sync_dir(&dir))?;
        if !name.area.is_by_run() {
            return Ok(());
        }
        // Fails unless it was the last object; either way the run is gone or still has some.
        let _ = self.disk.remove_dir(&dir);
        ignore_missing(self.sync_dir(name.area.text()))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        match self.disk.sync_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
            Err(error) => {
                self.refusing.store(true, Ordering::SeqCst);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    fn check_not_refusing(&self, action: &'static str) -> Result<()> {
        match self.refusing.load(Ordering::SeqCst) {
            true => Err(self.error(
                action,
                "object",
                io::Error::other("refused after a directory could not be synced"),
            )),
            false => Ok(()),
        }
    }

    fn stat(&self, action: &'static str, name: &ObjectName) -> Result<Option<FileStat>> {
        let stat = self
            .disk
            .stat(&name.path())
            .map_err(|error| self.error(action, name, error))?;
        Ok(stat.filter(|stat| stat.kind == DirEntryKind::File))
    }

    fn open_cached(&self, name: &ObjectName) -> io::Result<Arc<dyn OpenFile>> {
        let mut files = self.lock_open_files();
        if let Some(at) = files.iter().position(|(open, _)| open == name) {
            let entry = files.remove(at);
            let file = entry.1.clone();
            files.push(entry);
            return Ok(file);
        }
        drop(files);
        let file = self.disk.open(&name.path())?;
        let mut files = self.lock_open_files();
        if files.len() >= OPEN_FILES_MAX {
            files.remove(0);
        }
        files.push((*name, file.clone()));
        Ok(file)
    }

    fn lock_synced(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_open_files(&self) -> std::sync::MutexGuard<'_, Vec<(ObjectName, Arc<dyn OpenFile>)>> {
        self.open_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn error(
        &self,
        action: &'static str,
        object: impl std::fmt::Display,
        source: io::Error,
    ) -> StoreError {
        StoreError {
            action,
            object: format!("{object} in {}", self.disk.place()),
            source,
        }
    }
}

fn pack_dirs() -> impl Iterator<Item = String> {
    (0..=u8::MAX).map(|first| format!("{}/{}", Area::Packs.text(), hex(&[first])))
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    ignore(io::ErrorKind::NotFound, result)
}

fn ignore_present(result: io::Result<()>) -> io::Result<()> {
    ignore(io::ErrorKind::AlreadyExists, result)
}

fn ignore(kind: io::ErrorKind, result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != kind => Err(error),
        _ => Ok(()),
    }
}

fn at_path(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError {
        action,
        object: path.display().to_string(),
        source,
    }
}
