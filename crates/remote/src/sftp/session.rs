//! A connection with what its server can do, and the files that are open on it.

use super::connection::{Connection, Sent, SftpLink};
use super::limits::{DIRS_AT_ONCE_DEFAULT, Limits, TRANSFER_BYTES_DEFAULT, TRANSFER_BYTES_MIN};
use super::open_files::OpenFiles;
use super::permits::Permits;
use super::request::Request;
use super::wire::{SftpAttributes, VERSION, decode_file_system};
use crate::throttle::Throttle;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A connection that has said hello.
pub(super) struct Session {
    pub(super) open_files: OpenFiles,
    /// Under way on this connection.
    pub(super) uploads: AtomicUsize,
    has_fsync: AtomicBool,
    has_hardlink: AtomicBool,
    has_statvfs: bool,
    limits: Limits,
    /// Answers to reads have shown that there is no more at once.
    read_bytes_lowered: AtomicUsize,
    pub(super) permits: Permits,
    pub(super) throttle: Throttle,
    connection: Arc<Connection>,
}

impl Session {
    /// Says hello, and finds out what the server can do.
    pub(super) fn open(
        link: SftpLink,
        timeout: Duration,
        throttle: Throttle,
    ) -> io::Result<Session> {
        let (connection, server) = Connection::open(link, timeout)?;
        if server.version != VERSION {
            let text = format!(
                "the server speaks version {} of SFTP, and not {VERSION}",
                server.version
            );
            return Err(io::Error::new(ErrorKind::Unsupported, text));
        }
        // Nobody waits for them before something large goes either way.
        let asked = server.has_limits.then(|| connection.send(&Request::Limits));
        let limits = Limits::asked(asked.transpose()?);
        Ok(Session {
            open_files: OpenFiles::default(),
            uploads: AtomicUsize::new(0),
            has_fsync: AtomicBool::new(server.has_fsync),
            has_hardlink: AtomicBool::new(server.has_hardlink),
            has_statvfs: server.has_statvfs,
            limits,
            read_bytes_lowered: AtomicUsize::new(usize::MAX),
            permits: Permits::default(),
            throttle,
            connection: Arc::new(connection),
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.connection.has_ended()
    }

    /// Nothing more is sent; the server sees that once everything before has reached it.
    pub(super) fn close(&self) {
        self.connection.close();
    }

    pub(super) fn send(&self, request: &Request<'_>) -> io::Result<Sent> {
        self.connection.send(request)
    }

    /// Of the name itself, not of what a link leads to.
    pub(super) fn lstat(&self, path: &str) -> io::Result<Option<SftpAttributes>> {
        self.send(&Request::Lstat(path))?.attributes()
    }

    /// Is it a directory, or a link to one?
    pub(super) fn is_dir(&self, path: &str) -> io::Result<bool> {
        let there = self.send(&Request::Stat(path))?.attributes()?;
        Ok(there.is_some_and(|there| there.is_dir()))
    }

    /// The handle of a request that opened something.
    pub(super) fn opened(&self, sent: Sent) -> io::Result<OpenHandle> {
        let bytes = sent.handle()?;
        Ok(OpenHandle {
            bytes,
            is_closed: false,
            connection: self.connection.clone(),
        })
    }

    pub(super) fn read_bytes_max(&self, len: u64) -> io::Result<usize> {
        let max = match len <= TRANSFER_BYTES_DEFAULT as u64 {
            true => TRANSFER_BYTES_DEFAULT,
            false => self.limits.known()?.read_bytes_max,
        };
        Ok(max.min(self.read_bytes_lowered.load(Ordering::Relaxed)))
    }

    /// The server gave less than was asked for, and had more.
    pub(super) fn lower_read_bytes_max(&self, given: usize) {
        let given = given.max(TRANSFER_BYTES_MIN);
        self.read_bytes_lowered.fetch_min(given, Ordering::Relaxed);
    }

    /// For writes of `len` bytes.
    pub(super) fn write_bytes_max(&self, len: usize) -> io::Result<usize> {
        match len <= TRANSFER_BYTES_DEFAULT {
            true => Ok(TRANSFER_BYTES_DEFAULT),
            false => Ok(self.limits.known()?.write_bytes_max),
        }
    }

    /// Of `dirs` directories.
    pub(super) fn dirs_at_once(&self, dirs: usize) -> io::Result<usize> {
        match dirs <= DIRS_AT_ONCE_DEFAULT {
            true => Ok(DIRS_AT_ONCE_DEFAULT),
            false => Ok(self.limits.known()?.dirs_at_once),
        }
    }

    pub(super) fn has_fsync(&self) -> bool {
        self.has_fsync.load(Ordering::Relaxed)
    }

    /// It was announced, and refused.
    pub(super) fn lacks_fsync(&self) {
        self.has_fsync.store(false, Ordering::Relaxed);
    }

    pub(super) fn has_hardlink(&self) -> bool {
        self.has_hardlink.load(Ordering::Relaxed)
    }

    /// It was announced, and refused.
    pub(super) fn lacks_hardlink(&self) {
        self.has_hardlink.store(false, Ordering::Relaxed);
    }

    /// Room in bytes on the file system of `path`, where the server says; none if it has no inode
    /// for one more file.
    pub(super) fn free_bytes(&self, path: &str) -> Option<u64> {
        if !self.has_statvfs {
            return None;
        }
        let answer = self.send(&Request::Statvfs(path)).and_then(Sent::extended);
        let space = decode_file_system(&answer.ok()?).ok()?;
        match space.inodes > 0 && space.inodes_available == 0 {
            true => Some(0),
            false => Some(space.blocks_available.saturating_mul(space.block_bytes)),
        }
    }
}

/// A file or directory that is open on the server; closed when it is dropped, without waiting.
pub(super) struct OpenHandle {
    pub(super) bytes: Vec<u8>,
    is_closed: bool,
    connection: Arc<Connection>,
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        if !self.is_closed {
            // A connection that has ended has closed everything.
            let _ = self.connection.send(&Request::Close(&self.bytes));
        }
    }
}

impl OpenHandle {
    /// Asks for its end; the answer says whether everything that was written has gone well.
    pub(super) fn close(mut self) -> io::Result<Sent> {
        self.is_closed = true;
        self.connection.send(&Request::Close(&self.bytes))
    }
}
