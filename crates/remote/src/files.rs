//! `FileStore`: a repository in a directory of a server that keeps files and can rename them, as
//! WebDAV and FTP servers do.
//!
//! An object is written in `tmp/`, its length is looked at, and it is given its name by a rename
//! that does not replace, as far as the protocol can; then it is looked at again. So a name stands
//! for a whole object, and nothing is ever appended to or resumed. What a protocol's rename may
//! replace is looked for before; names are hashes, and whoever makes a repository reads `config`
//! back. What is durable is for the server to see to: neither protocol has a request for it.
//!
//! The protocols are implementations of `RemoteFiles`. Each request is made once.

mod layout;
mod listing;
mod stream;
mod temporary;

use bale_pipeline::filter::{TAG_NAME, TAG_SIGNATURE};
use bale_pipeline::random::OsRandom;
use bale_repository::limits::UPLOADS_MAX;
use bale_repository::store::{
    Area, ForeignEntry, ObjectInfo, ObjectName, ObjectWriter, Result, Store, StoreError,
    StoreShape, WholeWriter,
};
use listing::{ListedFor, Met};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

/// How often a name is tried again after its directory was missing: another process may remove it
/// once more.
const NAMING_ATTEMPTS_MAX: u32 = 3;

/// Kinds of a rename that the server did not do, and said so.
const REFUSALS: [ErrorKind; 6] = [
    ErrorKind::AlreadyExists,
    ErrorKind::NotFound,
    ErrorKind::PermissionDenied,
    ErrorKind::ResourceBusy,
    ErrorKind::Unsupported,
    ErrorKind::Other,
];

/// What a server says of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Bytes; `None` of what is no file.
    pub len: Option<u64>,
    /// When it was last written, by the server's clock.
    pub modified: Option<SystemTime>,
}

/// Files on a server. Paths begin at the directory of the repository, which is `""`; `NotFound` and
/// `AlreadyExists` mean what they mean of a file system.
pub trait RemoteFiles: Send + Sync {
    /// Where they are, for messages.
    fn place(&self) -> String;

    /// Writes a file; nobody else writes one of that name. `NotFound` if its directory is missing.
    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()>;

    /// Can it write a file whose length is not known at its beginning?
    fn takes_streams(&self) -> bool {
        false
    }

    /// Begins such a file, otherwise as `write`. Only of those that take streams.
    fn upload(&self, path: &str) -> io::Result<Box<dyn RemoteUpload>> {
        let _is_refused = path;
        Err(ErrorKind::Unsupported.into())
    }

    /// Gives a file another name. `AlreadyExists` if that is there, as far as can be known;
    /// `NotFound` if its directory is missing.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// `None` if nothing is there.
    fn stat(&self, path: &str) -> io::Result<Option<FileInfo>>;

    /// Is there a directory of that name?
    fn is_dir(&self, path: &str) -> io::Result<bool>;

    /// A whole file of at most `len_max` bytes, else `FileTooLarge`.
    fn read(&self, path: &str, len_max: u64) -> io::Result<Vec<u8>>;

    /// Fills `buf`; a file too short is `UnexpectedEof` in the words of `ends_early`.
    fn read_at(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Removes a file; one that is not there is no error.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Makes a directory; one that is there is no error. `NotFound` if that above is missing.
    fn make_dir(&self, path: &str) -> io::Result<()>;

    /// Makes that of the repository, and those above where they are missing.
    fn make_root(&self) -> io::Result<()>;

    /// Removes a directory in which nothing is, and no other, as far as the protocol can. `aside`
    /// is a name that nobody else uses.
    fn remove_empty_dir(&self, path: &str, aside: &str);

    /// Calls `found` with each name in a directory, itself left out. `NotFound` if it is missing.
    fn list(&self, path: &str, found: &mut dyn FnMut(&str, FileInfo)) -> io::Result<()>;

    /// Directories that may be listed, or made, at the same time.
    fn dirs_at_once(&self) -> usize;
}

/// A file that is being written, piece by piece. Dropping it leaves some of it, or nothing.
pub trait RemoteUpload: Send {
    /// After an error nothing more is taken.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns once the server has said that it has all of it.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// A repository in a directory of a server; a handle.
pub struct FileStore<F> {
    core: Arc<Core<F>>,
}

impl<F> Clone for FileStore<F> {
    fn clone(&self) -> Self {
        FileStore {
            core: self.core.clone(),
        }
    }
}

struct Core<F> {
    files: F,
    random: OsRandom,
    /// `tmp/` was looked through, or is being.
    is_swept: AtomicBool,
}

impl<F: RemoteFiles + 'static> FileStore<F> {
    /// A repository there. Nothing is requested yet.
    pub fn open(files: F) -> FileStore<F> {
        let core = Core {
            files,
            random: OsRandom,
            is_swept: AtomicBool::new(false),
        };
        FileStore {
            core: Arc::new(core),
        }
    }

    /// Lays out a new repository, making its directory where it is missing. `AlreadyExists` if one
    /// is there. What an interrupted `create` left is completed.
    pub fn create(files: F) -> Result<FileStore<F>> {
        let store = FileStore::open(files);
        store.lay_out()?;
        Ok(store)
    }

    pub(crate) fn lay_out(&self) -> Result<()> {
        self.with("create", "repository", Core::lay_out)?;
        self.with("write", TAG_NAME, |core| {
            let text = format!("{TAG_SIGNATURE}\n");
            let publish = || core.publish(TAG_NAME, None, text.as_bytes());
            // Of two that lay out at once: some servers say so while the other's takes the place.
            publish().or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => publish(),
                _ => Err(error),
            })
        })
    }

    /// Does something, and says what was attempted on what if it fails.
    fn with<T>(
        &self,
        action: &'static str,
        object: impl Display,
        work: impl FnOnce(&Core<F>) -> io::Result<T>,
    ) -> Result<T> {
        work(&self.core).map_err(|source| StoreError {
            action,
            object: format!("{object} in {}", self.core.files.place()),
            source,
        })
    }
}

impl<F: RemoteFiles + 'static> Store for FileStore<F> {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.with("write", name, |core| {
            core.sweep_once();
            core.publish(&name.path(), Some(name), bytes)
        })
    }

    fn shape(&self) -> StoreShape {
        let uploads_max = UPLOADS_MAX;
        StoreShape::Whole { uploads_max }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(WholeWriter::new(self.clone())))
    }

    fn takes_streams(&self) -> bool {
        self.core.files.takes_streams()
    }

    fn begin_stream(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(self.stream()?))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.with("read", name, |core| core.files.read(&name.path(), len_max))
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with("read", name, |core| {
            core.files.read_at(&name.path(), offset, buf)
        })
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.with("stat", name, |core| {
            let there = core.files.stat(&name.path())?;
            Ok(there.and_then(|there| object_info(*name, there)))
        })
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        if let Some(single) = ObjectName::single(area) {
            self.stat(&single)?.into_iter().for_each(found);
            return Ok(());
        }
        self.with("list", area, |core| {
            core.list_area(area, ListedFor::Objects, &mut |met| {
                if let Met::Object(info) = met {
                    found(info);
                }
            })
        })
    }

    fn list_foreign(&self, area: Area, found: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        if let Some(single) = ObjectName::single(area) {
            let foreign = self.with("stat", single, |core| core.foreign_single(&single))?;
            foreign.into_iter().for_each(found);
            return Ok(());
        }
        self.with("list", area, |core| {
            core.list_area(area, ListedFor::Foreign, &mut |met| {
                if let Met::Foreign(entry) = met {
                    found(entry);
                }
            })
        })
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.with("delete", name, |core| {
            core.files.remove(&name.path())?;
            if name.area.is_by_run() {
                let aside = core.draw_temporary_name()?;
                core.files.remove_empty_dir(&name.dir(), &aside);
            }
            Ok(())
        })
    }

    fn place(&self) -> String {
        self.core.files.place()
    }
}

impl<F: RemoteFiles> Core<F> {
    /// Makes a whole file; one of that name that is there already stays.
    fn publish(&self, path: &str, name: Option<&ObjectName>, bytes: &[u8]) -> io::Result<()> {
        if self.len(path)?.is_some() {
            return Ok(());
        }
        let len = bytes.len() as u64;
        let temporary = self.draw_temporary_name()?;
        let published = self.write_temporary(&temporary, bytes).and_then(|()| {
            self.check_arrived(&temporary, len)?;
            self.give_name(&temporary, path, name, len)
        });
        match published {
            Ok(Named::Now) => self.check_named(path, len),
            // What cannot be removed is swept another day.
            Ok(Named::ByAnother) => {
                let _ = self.files.remove(&temporary);
                Ok(())
            }
            Err(error) => {
                let _ = self.files.remove(&temporary);
                Err(error)
            }
        }
    }

    fn write_temporary(&self, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        self.in_temporary_dir(|| self.files.write(temporary, bytes))
    }

    /// Does something in `tmp/`, which is made if it is missing.
    fn in_temporary_dir<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.files.make_dir(temporary::TEMPORARY_DIR)?;
                work()
            }
            done => done,
        }
    }

    /// Is all there that was sent?
    fn check_arrived(&self, temporary: &str, len: u64) -> io::Result<()> {
        check_whole(self.len(temporary)?, len).map_err(|error| {
            // The way may have been cut, and the server have taken that for the end.
            io::Error::new(ErrorKind::ConnectionAborted, error.to_string())
        })
    }

    fn check_named(&self, path: &str, len: u64) -> io::Result<()> {
        check_whole(self.len(path)?, len).inspect_err(|_| {
            // It has its name and is not whole: better none.
            let _ = self.files.remove(path);
        })
    }

    fn give_name(
        &self,
        temporary: &str,
        path: &str,
        name: Option<&ObjectName>,
        len: u64,
    ) -> io::Result<Named> {
        let mut attempts_left = NAMING_ATTEMPTS_MAX;
        loop {
            let error = match self.files.rename(temporary, path) {
                Ok(()) => return Ok(Named::Now),
                Err(error) => error,
            };
            let is_connection = !REFUSALS.contains(&error.kind());
            if is_connection {
                return Err(error);
            }
            match self.len(path)? {
                Some(there) if there == len => return Ok(Named::ByAnother),
                Some(there) => return Err(in_the_way(there, len)),
                None => {}
            }
            attempts_left -= 1;
            // Servers have several words for a directory that is missing; and somebody else may
            // have made it this moment.
            match name {
                Some(name) if attempts_left > 0 => {
                    if !self.files.is_dir(&name.dir())? {
                        self.make_dirs_of(name)?;
                    }
                }
                _ => return Err(error),
            }
        }
    }

    fn len(&self, path: &str) -> io::Result<Option<u64>> {
        Ok(self.files.stat(path)?.and_then(|there| there.len))
    }
}

/// Who gave a file its name.
enum Named {
    Now,
    ByAnother,
}

fn object_info(name: ObjectName, there: FileInfo) -> Option<ObjectInfo> {
    Some(ObjectInfo {
        name,
        len: there.len?,
        modified: there.modified,
    })
}

fn check_whole(there: Option<u64>, len: u64) -> io::Result<()> {
    if there == Some(len) {
        return Ok(());
    }
    let there = there.map_or("nothing".to_owned(), |there| format!("{there} bytes"));
    let text = format!("of the {len} bytes that were written, the server has {there}");
    Err(io::Error::new(ErrorKind::WriteZero, text))
}

fn in_the_way(there: u64, len: u64) -> io::Error {
    let text = format!("there are {there} bytes of that name already, and not its {len}");
    io::Error::new(ErrorKind::AlreadyExists, text)
}
