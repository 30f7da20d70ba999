//! `FtpFiles`: files on an FTP server (RFC 959, 3659), plain or over TLS (RFC 4217), for
//! `FileStore`.
//!
//! FTP has no lock, no condition and no request that makes a file durable, and its rename replaces
//! what has that name: so the name is looked for first, and what is written is looked at before and
//! after. A second writer of one name between look and rename replaces equal bytes by equal ones,
//! but for `config`, which whoever makes a repository reads back. `APPE` is never used.
//!
//! A login is used by one thread at a time; a few are kept. `ftps:` encrypts by `AUTH TLS`,
//! commands and data, and never goes on without.

pub mod facts;
mod place;
mod pool;
mod reply;
mod session;

use crate::files::{FileInfo, RemoteFiles, RemoteUpload};
use crate::login::StoreLogin;
use crate::throttle::Throttle;
use bale_repository::store::ends_early;
use pool::Pool;
use session::{Dial, FtpUpload, Session};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

pub use place::{FtpPlace, FtpPlaceError};

/// What a repository on such a server must do without.
pub const FTP_CAVEAT: &str = "FTP cannot say when a file is durable, cannot lock, and renames over \
    what is there: let no second program make a repository at this place at the same time, and run \
    bale check --read-data after the first backup";

/// Directories that are listed, or made, at the same time; each listing has a login of its own.
const DIRS_AT_ONCE: usize = 3;

/// How an FTP server is reached.
#[derive(Clone, Debug)]
pub struct FtpOptions {
    /// User and password, where the place names none.
    pub login: Option<StoreLogin>,
    /// Certificates (PEM) that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Bytes a second.
    pub throttle: Throttle,
}

impl Default for FtpOptions {
    fn default() -> Self {
        FtpOptions {
            login: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(30),
            // A server replies when the file is where it belongs, and a slow disk takes its time.
            idle_timeout: Duration::from_secs(120),
            throttle: Throttle::default(),
        }
    }
}

/// Files below a directory of a server.
pub struct FtpFiles {
    place: String,
    pool: Pool,
}

impl FtpFiles {
    /// Reads certificates; makes no connection.
    pub fn new(place: FtpPlace, options: &FtpOptions) -> io::Result<FtpFiles> {
        Ok(FtpFiles {
            place: place.to_string(),
            pool: Pool::new(Dial::new(place, options.clone())?),
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Session) -> io::Result<T>) -> io::Result<T> {
        self.pool.with(work)
    }
}

impl RemoteFiles for FtpFiles {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.with(|session| session.store(path, bytes))
    }

    fn takes_streams(&self) -> bool {
        true
    }

    fn upload(&self, path: &str) -> io::Result<Box<dyn RemoteUpload>> {
        Ok(Box::new(FtpUpload::begin(self.pool.own()?, path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.with(|session| match session.size(to)? {
            Some(_) => Err(ErrorKind::AlreadyExists.into()),
            None => session.rename(from, to),
        })
    }

    fn stat(&self, path: &str) -> io::Result<Option<FileInfo>> {
        self.with(|session| session.stat(path))
    }

    fn is_dir(&self, path: &str) -> io::Result<bool> {
        self.with(|session| session.is_dir(path))
    }

    fn read(&self, path: &str, len_max: u64) -> io::Result<Vec<u8>> {
        self.with(|session| match session.size(path)? {
            None => Err(ErrorKind::NotFound.into()),
            Some(len) if len > len_max => Err(ErrorKind::FileTooLarge.into()),
            Some(len) => session.retrieve(path, len),
        })
    }

    fn read_at(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len();
        let read = match len {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => self.with(|session| session.retrieve_range(path, offset, buf)),
        };
        let Err(error) = read else {
            return Ok(());
        };
        // Some say so of an offset behind the end.
        let may_be_short = [
            ErrorKind::UnexpectedEof,
            ErrorKind::NotFound,
            ErrorKind::Unsupported,
            ErrorKind::Other,
        ];
        if !may_be_short.contains(&error.kind()) {
            return Err(error);
        }
        let end = offset.checked_add(len as u64);
        match self.with(|session| session.size(path))? {
            None => Err(ErrorKind::NotFound.into()),
            Some(there) if end.is_none_or(|end| end > there) => Err(ends_early(offset, len, there)),
            Some(_) if len == 0 => Ok(()),
            // All of it is there, and did not come.
            Some(_) if error.kind() == ErrorKind::UnexpectedEof => {
                let why = "the server ended the transfer before the end of the range";
                Err(io::Error::new(ErrorKind::ConnectionAborted, why))
            }
            Some(_) => Err(error),
        }
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.with(|session| session.remove(path))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.with(|session| session.make_dir(path))
    }

    fn make_root(&self) -> io::Result<()> {
        self.with(|session| {
            let root = session.root().to_owned();
            let mut missing = Vec::new();
            let mut next = Some(root.as_str());
            while let Some(dir) = next.filter(|dir| !dir.is_empty()) {
                if session.has_dir(dir)? {
                    break;
                }
                missing.push(dir);
                next = dir.rsplit_once('/').map(|(above, _)| above);
            }
            for dir in missing.into_iter().rev() {
                session.make(dir)?;
            }
            Ok(())
        })
    }

    fn remove_empty_dir(&self, path: &str, _: &str) {
        // One with something in it stays, and so the run goes on.
        let _ = self.with(|session| session.remove_dir(path));
    }

    fn list(&self, path: &str, found: &mut dyn FnMut(&str, FileInfo)) -> io::Result<()> {
        let list =
            |session: &mut Session| session.list(path, &mut |entry| found(entry.name, entry.info));
        self.pool.with_own(list)
    }

    fn dirs_at_once(&self) -> usize {
        DIRS_AT_ONCE
    }
}
