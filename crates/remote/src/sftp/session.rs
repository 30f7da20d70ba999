//! A connection with what its server can do, and the files that are open on it.

use super::answer::invalid;
use super::connection::{Connection, Sent, SftpLink};
use super::request::Request;
use super::wire::{SftpAttributes, VERSION, decode_file_system, decode_limits};
use crate::throttle::Throttle;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What every server reads or writes at once.
const TRANSFER_BYTES_DEFAULT: usize = 32 << 10;

/// What is read or written at once at most: with its header it fits into 256 KiB. And at least,
/// whatever a server says.
const TRANSFER_BYTES_MAX: usize = 255 << 10;
const TRANSFER_BYTES_MIN: usize = 1 << 10;

/// Reads and writes in flight on a connection: 16 MiB of them.
const TRANSFERS_MAX: usize = 64;

/// Directories that are read at the same time: on a server that says how many handles it has, a
/// part of them.
const DIRS_AT_ONCE_DEFAULT: usize = 16;
const DIRS_AT_ONCE_MAX: usize = 256;
const HANDLES_SHARE: u64 = 2;

/// Files that stay open for `read_at`.
const OPEN_FILES_MAX: usize = 16;

/// A connection that has said hello.
pub(super) struct Session {
    /// Least recently used first.
    open_files: Mutex<Vec<(String, Arc<OpenHandle>)>>,
    /// Under way on this connection.
    pub(super) uploads: AtomicUsize,
    has_fsync: AtomicBool,
    has_hardlink: AtomicBool,
    has_statvfs: bool,
    read_bytes_max: AtomicUsize,
    pub(super) write_bytes_max: usize,
    pub(super) dirs_at_once: usize,
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
        let (mut read_bytes_max, mut write_bytes_max) =
            (TRANSFER_BYTES_DEFAULT, TRANSFER_BYTES_DEFAULT);
        let mut dirs_at_once = DIRS_AT_ONCE_DEFAULT;
        if server.has_limits {
            match connection.send(&Request::Limits)?.extended() {
                Ok(bytes) => {
                    let limits = decode_limits(&bytes)
                        .map_err(|error| invalid("limits@openssh.com", &format!("is {error}")))?;
                    read_bytes_max = transfer_bytes(limits.read_bytes_max);
                    write_bytes_max = transfer_bytes(limits.write_bytes_max);
                    dirs_at_once = dirs_of_handles(limits.handles_max);
                }
                // Announced and refused.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Session {
            open_files: Mutex::default(),
            uploads: AtomicUsize::new(0),
            has_fsync: AtomicBool::new(server.has_fsync),
            has_hardlink: AtomicBool::new(server.has_hardlink),
            has_statvfs: server.has_statvfs,
            read_bytes_max: AtomicUsize::new(read_bytes_max),
            write_bytes_max,
            dirs_at_once,
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

    /// A file that stays open for the next read.
    pub(super) fn open_cached(&self, path: &str) -> io::Result<Arc<OpenHandle>> {
        let mut files = self.lock_open_files();
        if let Some(at) = files.iter().position(|(open, _)| open == path) {
            let file = files.remove(at);
            let handle = file.1.clone();
            files.push(file);
            return Ok(handle);
        }
        drop(files);
        let sent = self.send(&Request::Open(path))?;
        let handle = Arc::new(self.opened(sent)?);
        let mut files = self.lock_open_files();
        let oldest = (files.len() >= OPEN_FILES_MAX).then(|| files.remove(0));
        files.push((path.to_owned(), handle.clone()));
        drop(files);
        drop(oldest);
        Ok(handle)
    }

    pub(super) fn forget_open(&self, path: &str) {
        let mut files = self.lock_open_files();
        let at = files.iter().position(|(open, _)| open == path);
        let gone = at.map(|at| files.remove(at));
        // Closed without the lock.
        drop(files);
        drop(gone);
    }

    pub(super) fn read_bytes_max(&self) -> usize {
        self.read_bytes_max.load(Ordering::Relaxed)
    }

    /// The server gave less than was asked for, and had more.
    pub(super) fn lower_read_bytes_max(&self, given: usize) {
        let given = given.max(TRANSFER_BYTES_MIN);
        self.read_bytes_max.fetch_min(given, Ordering::Relaxed);
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

    /// Has the file system of `path` no room for so many bytes, as far as the server says?
    pub(super) fn is_full(&self, path: &str, len: u64) -> bool {
        if !self.has_statvfs {
            return false;
        }
        let answer = self.send(&Request::Statvfs(path)).and_then(Sent::extended);
        let space = answer
            .ok()
            .and_then(|bytes| decode_file_system(&bytes).ok());
        space.is_some_and(|space| {
            let free = space.blocks_available.saturating_mul(space.block_bytes);
            free < len.max(1) || space.inodes > 0 && space.inodes_available == 0
        })
    }

    fn lock_open_files(&self) -> MutexGuard<'_, Vec<(String, Arc<OpenHandle>)>> {
        self.open_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// 0 says nothing.
fn transfer_bytes(limit: u64) -> usize {
    match usize::try_from(limit) {
        Ok(0) => TRANSFER_BYTES_DEFAULT,
        Ok(limit) => limit.clamp(TRANSFER_BYTES_MIN, TRANSFER_BYTES_MAX),
        Err(_) => TRANSFER_BYTES_MAX,
    }
}

/// 0 says nothing.
fn dirs_of_handles(handles_max: u64) -> usize {
    match usize::try_from(handles_max / HANDLES_SHARE) {
        Ok(_) if handles_max == 0 => DIRS_AT_ONCE_DEFAULT,
        Ok(dirs) => dirs.clamp(1, DIRS_AT_ONCE_MAX),
        Err(_) => DIRS_AT_ONCE_MAX,
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

/// Bounds the transfers in flight on a connection. Who holds some never waits for more.
#[derive(Default)]
pub(super) struct Permits {
    taken: Mutex<usize>,
    given_back: Condvar,
}

/// One transfer; given back when it is dropped.
pub(super) struct Permit<'a> {
    permits: &'a Permits,
}

impl Permits {
    /// Waits for one; only for those who hold none.
    pub(super) fn take(&self) -> Permit<'_> {
        let taken = self.lock();
        let full = |taken: &mut usize| *taken >= TRANSFERS_MAX;
        let mut taken =
            (self.given_back.wait_while(taken, full)).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Permit { permits: self }
    }

    /// One more, if there is one.
    pub(super) fn try_take(&self) -> Option<Permit<'_>> {
        let mut taken = self.lock();
        if *taken >= TRANSFERS_MAX {
            return None;
        }
        *taken += 1;
        Some(Permit { permits: self })
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.permits.lock() -= 1;
        self.permits.given_back.notify_one();
    }
}
