//! A directory of the walk: known by its parent and name, open when needed.
//!
//! Few are open at a time: a descriptor that was evicted is opened again from the nearest ancestor
//! that is open. That goes through `openat2` without links, and the directory found must be the one
//! that was stat'ed (device and inode). Chains of any depth: no path longer than the kernel's limit
//! is passed, and nothing recurses.

use super::grafts::Grafts;
use super::handle::FileHandles;
use super::identity::{Handle, Identity, identity_of};
use bale_format::entry::{Entry, Kind};
use bale_sys::handle::FileHandle;
use bale_sys::open::{open_beneath, open_for_reading};
use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of path passed to the kernel at once; its limit is 4096.
const STEP_BYTES_MAX: usize = 3500;

/// A directory found by the walk.
pub struct Directory {
    parent: Option<Arc<Directory>>,
    name: Bytes,
    identity: Identity,
    handle: Option<Handle>,
    path_bytes: usize,
    open: Mutex<Option<Arc<DirectoryFd>>>,
    used: AtomicBool,
    cache: Arc<FdCache>,
}

/// An open directory.
#[derive(Debug)]
pub struct DirectoryFd {
    fd: OwnedFd,
    listable: bool,
}

impl DirectoryFd {
    /// False: there is no right to list it, only to look names up.
    pub fn listable(&self) -> bool {
        self.listable
    }
}

impl AsFd for DirectoryFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Directory")
            .field(&String::from_utf8_lossy(&self.path()))
            .finish()
    }
}

impl Directory {
    pub(super) fn root(cache: &Arc<FdCache>, identity: Identity) -> Arc<Directory> {
        Arc::new(Directory {
            parent: None,
            name: Bytes::new(),
            identity,
            handle: None,
            path_bytes: 0,
            open: Mutex::new(None),
            used: AtomicBool::new(false),
            cache: cache.clone(),
        })
    }

    pub(super) fn child(
        self: &Arc<Self>,
        name: Bytes,
        identity: Identity,
        handle: Option<Handle>,
    ) -> Arc<Directory> {
        Arc::new(Directory {
            path_bytes: self.child_path_bytes(&name),
            parent: Some(self.clone()),
            name,
            identity,
            handle,
            open: Mutex::new(None),
            used: AtomicBool::new(false),
            cache: self.cache.clone(),
        })
    }

    /// Length of the path of a child.
    pub(super) fn child_path_bytes(&self, name: &[u8]) -> usize {
        let slash = usize::from(self.path_bytes > 0);
        self.path_bytes + slash + name.len()
    }

    /// Path without leading slash.
    pub fn path(&self) -> Vec<u8> {
        let mut path = vec![b'/'; self.path_bytes];
        let mut end = self.path_bytes;
        let mut at = Some(self);
        while let Some(directory) = at {
            let start = end - directory.name.len();
            path[start..end].copy_from_slice(&directory.name);
            end = start.saturating_sub(1);
            at = directory.parent.as_deref();
        }
        path
    }

    /// Last component; empty for `/`.
    pub fn name(&self) -> &Bytes {
        &self.name
    }

    /// `None`: it is `/`.
    pub(super) fn parent(&self) -> Option<&Arc<Directory>> {
        self.parent.as_ref()
    }

    /// Directories of this scan that are read somewhere else.
    pub(super) fn grafts(&self) -> &Grafts {
        &self.cache.grafts
    }

    /// What it was when it was found.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// This, or the next directory above it, that has the number of an inode.
    pub(super) fn or_above_with(self: &Arc<Self>, identity: Identity) -> Option<&Arc<Directory>> {
        let mut at = Some(self);
        while let Some(directory) = at {
            if directory.identity == identity {
                return Some(directory);
            }
            at = directory.parent.as_ref();
        }
        None
    }

    /// A descriptor of exactly this directory: the one that is kept, or a new one, which is kept.
    pub fn open(self: &Arc<Self>) -> io::Result<Arc<DirectoryFd>> {
        if let Some(fd) = self.open_fd() {
            return Ok(fd);
        }
        let fd = Arc::new(self.open_anew()?);
        *lock(&self.open) = Some(fd.clone());
        self.cache.keep(self);
        Ok(fd)
    }

    /// Opens a regular file of this directory for reading. What an inode table told of is opened as
    /// that inode in that generation, wherever it was moved meanwhile; if it is gone, or there is
    /// no right to do so, what has its name now.
    pub fn open_file(self: &Arc<Self>, entry: &Entry) -> io::Result<OwnedFd> {
        if let Some(handles) = &self.cache.handles
            && entry.kind == Kind::File
            && let Some(fd) = handles.open_file(self.identity.device, entry)
        {
            return Ok(fd);
        }
        let directory = self.open()?;
        let name = CString::new(&entry.name[..])?;
        open_for_reading(directory.as_fd(), &name, OFlags::empty())
    }

    fn open_fd(&self) -> Option<Arc<DirectoryFd>> {
        let fd = lock(&self.open).clone();
        if fd.is_some() {
            self.used.store(true, Ordering::Relaxed);
        }
        fd
    }

    /// Is the directory gone, not only its name? `None`: that cannot be told. A directory that was
    /// moved is there, under whatever name.
    pub(super) fn is_removed(&self) -> Option<bool> {
        let handle = self.handle.as_ref()?.to_file_handle()?;
        let mut above = self.parent.as_deref();
        while let Some(directory) = above {
            let is_same = directory.identity.device == self.identity.device;
            let opened = is_same.then(|| match directory.open_fd() {
                Some(open_fd) => Ok(Step::Existing(open_fd)),
                None => directory.open_anew().map(Step::New),
            });
            if let Some(Ok(opened)) = opened {
                return is_removed(&handle, opened.as_fd(), self.identity.inode);
            }
            above = directory.parent.as_deref();
        }
        None
    }

    /// Opens it once more, whether or not a descriptor is kept.
    pub(super) fn open_anew(&self) -> io::Result<DirectoryFd> {
        // Names from the nearest open ancestor down to here, last first.
        let mut names: Vec<&Bytes> = Vec::new();
        let mut at = self;
        let mut found: Option<Step> = None;
        let mut fd = loop {
            if let Some(step) = found {
                break step;
            }
            if let Some(place) = self.cache.grafts.place_of(at.identity) {
                found = Some(Step::New(open_place(place)?));
            } else if let Some(parent) = at.parent.as_deref() {
                names.push(&at.name);
                found = parent.open_fd().map(Step::Existing);
                at = parent;
            } else {
                found = Some(Step::New(open_root(names.is_empty())?));
            }
        };
        while !names.is_empty() {
            let path = take_step(&mut names);
            let opened = open_listable(fd.as_fd(), &path, names.is_empty())?;
            fd = Step::New(opened);
        }
        let Step::New(fd) = fd else {
            unreachable!("a directory that is kept was returned before")
        };
        self.check_identity(fd.as_fd())?;
        Ok(fd)
    }

    fn check_identity(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let stat = rustix::fs::statx(
            fd,
            c"",
            AtFlags::EMPTY_PATH,
            StatxFlags::INO | StatxFlags::TYPE,
        )?;
        if identity_of(&stat) != self.identity {
            return Err(replaced());
        }
        Ok(())
    }
}

/// The error for a directory or file that another one took the place of.
pub fn replaced() -> io::Error {
    io::Error::other("replaced by something else while it was scanned")
}

fn is_removed(handle: &FileHandle, mount: BorrowedFd<'_>, inode: u64) -> Option<bool> {
    let opened = match handle.open(mount, OFlags::PATH) {
        Ok(opened) => opened,
        Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {
            return Some(true);
        }
        Err(_) => return None,
    };
    let mask = StatxFlags::INO | StatxFlags::NLINK;
    let stat = rustix::fs::statx(&opened, c"", AtFlags::EMPTY_PATH, mask).ok()?;
    // Without links: removed, but somebody has it open.
    (stat.stx_ino == inode).then_some(stat.stx_nlink == 0)
}

impl Drop for Directory {
    // A chain may be longer than the stack is deep.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(directory) = next {
            next = Arc::into_inner(directory).and_then(|mut last| last.parent.take());
        }
    }
}

enum Step {
    Existing(Arc<DirectoryFd>),
    New(DirectoryFd),
}

impl Step {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Step::Existing(fd) => fd.as_fd(),
            Step::New(fd) => fd.as_fd(),
        }
    }
}

/// As many components as one call takes.
fn take_step(names: &mut Vec<&Bytes>) -> CString {
    let mut path: Vec<u8> = Vec::new();
    while let Some(name) = names.last() {
        if !path.is_empty() {
            if path.len() + 1 + name.len() > STEP_BYTES_MAX {
                break;
            }
            path.push(b'/');
        }
        path.extend_from_slice(name);
        names.pop();
    }
    CString::new(path).expect("names from the kernel have no NUL")
}

fn open_root(listable: bool) -> io::Result<DirectoryFd> {
    let kind = if listable {
        OFlags::RDONLY
    } else {
        OFlags::PATH
    };
    let flags = kind | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(DirectoryFd {
        fd: rustix::fs::openat(CWD, c"/", flags, Mode::empty())?,
        listable,
    })
}

/// A directory that is known by an absolute path.
fn open_place(place: &Path) -> io::Result<DirectoryFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(DirectoryFd {
        fd: rustix::fs::openat(CWD, place, flags, Mode::empty())?,
        listable: true,
    })
}

fn open_listable(base: BorrowedFd<'_>, path: &CString, last: bool) -> io::Result<DirectoryFd> {
    let open = |flags: OFlags| open_beneath(base, path, flags | OFlags::DIRECTORY, Mode::empty());
    let is = |error: &io::Error, errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    if last {
        let result = match open(OFlags::RDONLY | OFlags::NOATIME) {
            Err(error) if is(&error, Errno::PERM) => open(OFlags::RDONLY),
            result => result,
        };
        match result {
            Err(error) if is(&error, Errno::ACCESS) => {}
            result => {
                return Ok(DirectoryFd {
                    fd: result?,
                    listable: true,
                });
            }
        }
    }
    Ok(DirectoryFd {
        fd: open(OFlags::PATH)?,
        listable: false,
    })
}

/// Which directories are open: at most `fds_max`, the one that was not used for longest goes first,
/// nearly.
pub(super) struct FdCache {
    fds_max: usize,
    queue: Mutex<VecDeque<Weak<Directory>>>,
    grafts: Grafts,
    handles: Option<Arc<FileHandles>>,
}

impl FdCache {
    pub(super) fn new(fds_max: usize, grafts: Grafts) -> Arc<FdCache> {
        FdCache::with_handles(fds_max, grafts, None)
    }

    /// Files of a file system that is scanned by inodes are opened by handle.
    pub(super) fn with_handles(
        fds_max: usize,
        grafts: Grafts,
        handles: Option<Arc<FileHandles>>,
    ) -> Arc<FdCache> {
        Arc::new(FdCache {
            fds_max: fds_max.max(1),
            queue: Mutex::new(VecDeque::new()),
            grafts,
            handles,
        })
    }

    fn keep(&self, directory: &Arc<Directory>) {
        let mut closed = Vec::new();
        let mut queue = lock(&self.queue);
        queue.push_back(Arc::downgrade(directory));
        let mut chances = queue.len();
        while queue.len() > self.fds_max {
            let Some(oldest) = queue.pop_front() else {
                break;
            };
            let Some(oldest_directory) = oldest.upgrade() else {
                continue;
            };
            chances = chances.saturating_sub(1);
            if chances > 0 && oldest_directory.used.swap(false, Ordering::Relaxed) {
                queue.push_back(oldest);
            } else {
                closed.push(lock(&oldest_directory.open).take());
            }
        }
        drop(queue);
        drop(closed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
