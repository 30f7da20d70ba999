//! The directory everything is restored into, and the only way down from it.
//!
//! Every directory is opened below the target's own descriptor without following a link (`openat2`
//! with BENEATH and NO_SYMLINKS; where that call is missing, one component at a time). So a link in
//! the target, old, restored or put there while we work, ends in an error and never outside.

use crate::names::check_path;
use crate::totals::PlanTotals;
use crate::{RestoreError, RestoreOptions};
use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Longest path given to one call; the kernel takes 4095 bytes.
const STEP_BYTES_MAX: usize = 4000;

/// How often a call that the kernel asks to repeat is repeated.
const AGAIN_MAX: usize = 100;

/// Mode of a directory until everything in it is there.
pub const MODE_UNFINISHED: Mode = Mode::from_raw_mode(0o700);

pub struct Target {
    path: PathBuf,
    /// `None` only in a dry run into nothing.
    root: Option<OwnedFd>,
    /// Did it hold nothing when we came?
    pub fresh: bool,
    /// Is this user root?
    pub privileged: bool,
    /// Did we make it?
    pub is_made: bool,
    /// Directories that were made for the sake of what is in them.
    made_for_others: AtomicU64,
    stepwise: AtomicBool,
}

/// Opens for reading so that the time of last access stays, where the kernel lets us.
fn without_access(
    flags: OFlags,
    open: impl Fn(OFlags) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        opened => opened,
    }
}

impl Target {
    /// Opens the target; makes it, with its parents, if `make`.
    pub fn open(path: &Path, make: bool) -> Result<Target, RestoreError> {
        let fail = |action, source: io::Error| RestoreError::Target {
            action,
            path: path.to_owned(),
            source,
        };
        let is_made = path.symlink_metadata().is_err();
        if make {
            std::fs::create_dir_all(path).map_err(|error| fail("make the target", error))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = without_access(flags, |flags| rustix::fs::open(path, flags, Mode::empty()));
        let root = match opened {
            Ok(root) => Some(root),
            Err(Errno::NOENT) if !make => None,
            Err(error) => return Err(fail("open the target", error.into())),
        };
        let fresh = match &root {
            None => true,
            Some(root) => is_empty(root.as_fd()).map_err(|error| fail("list the target", error))?,
        };
        Ok(Target {
            path: path.to_owned(),
            root,
            fresh,
            privileged: rustix::process::geteuid().is_root(),
            is_made,
            made_for_others: AtomicU64::new(0),
            stepwise: AtomicBool::new(false),
        })
    }

    /// Refuses a plan that cannot fit. A target that holds files may hold part of the plan already,
    /// so only what could never fit is refused there.
    pub fn check_space(
        &self,
        plan: &PlanTotals,
        options: &RestoreOptions,
    ) -> Result<(), RestoreError> {
        let Some(root) = &self.root else {
            return Ok(());
        };
        if options.force_space || options.dry_run {
            return Ok(());
        }
        let stat = rustix::fs::fstatvfs(root)
            .map_err(|error| self.trouble("read the free space of", error.into()))?;
        let block_bytes = stat.f_frsize.max(1);
        let (blocks, inodes) = match (self.fresh, self.privileged) {
            (true, true) => (stat.f_bfree, stat.f_ffree),
            (true, false) => (stat.f_bavail, stat.f_favail),
            (false, _) => (stat.f_blocks, stat.f_files),
        };
        // Some file systems make inodes as they need them and report none.
        let inodes_free = if stat.f_files == 0 { u64::MAX } else { inodes };
        let bytes_free = blocks.saturating_mul(block_bytes);
        let inodes_needed = plan.inodes();
        let bytes_needed = plan.bytes_on_device(block_bytes);
        if bytes_needed > bytes_free || inodes_needed > inodes_free {
            return Err(RestoreError::NoSpace {
                bytes_needed,
                bytes_free,
                inodes_needed,
                inodes_free,
            });
        }
        Ok(())
    }

    /// Directories that were made because something in them came first.
    pub fn made_for_others(&self) -> u64 {
        self.made_for_others.load(Ordering::Relaxed)
    }

    /// Everything written is on the device when this returns, unless that is not wanted.
    pub fn sync(&self, options: &RestoreOptions) -> Result<(), RestoreError> {
        match &self.root {
            Some(root) if options.sync && !options.dry_run => rustix::fs::syncfs(root)
                .map_err(|error| self.trouble("flush the file system of", error.into())),
            _ => Ok(()),
        }
    }

    /// An error about the target itself.
    pub fn trouble(&self, action: &'static str, source: io::Error) -> RestoreError {
        RestoreError::Target {
            action,
            path: self.path.clone(),
            source,
        }
    }

    /// The same, about a path below it.
    pub fn trouble_at(&self, action: &'static str, path: &[u8], source: io::Error) -> RestoreError {
        use std::os::unix::ffi::OsStrExt;
        RestoreError::Target {
            action,
            path: self.path.join(std::ffi::OsStr::from_bytes(path)),
            source,
        }
    }

    fn root(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.root.as_ref().map(AsFd::as_fd).ok_or(Errno::NOENT)
    }

    /// Opens a directory as a place, making it if it is missing; never follows a link.
    fn open_or_make_child(&self, parent: BorrowedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.open_below(parent, name, flags) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        match rustix::fs::mkdirat(parent, name, MODE_UNFINISHED) {
            Ok(()) => {
                self.made_for_others.fetch_add(1, Ordering::Relaxed);
                self.open_below(parent, name, flags)
            }
            Err(Errno::EXIST) => self.open_below(parent, name, flags),
            Err(error) => Err(error),
        }
    }

    /// Opens `path` below `start`, never following a link. `flags` are for the last component.
    fn open_below(&self, start: BorrowedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut at: Option<OwnedFd> = None;
        let mut rest = path;
        loop {
            let here = at.as_ref().map_or(start, AsFd::as_fd);
            let stepwise = self.stepwise.load(Ordering::Relaxed);
            let (step, after) = take_step(rest, stepwise);
            let last = after.is_empty();
            let step_flags = if last {
                flags
            } else {
                OFlags::PATH | OFlags::DIRECTORY
            };
            match open_step(here, step, step_flags, stepwise) {
                Ok(fd) if last => return Ok(fd),
                Ok(fd) => {
                    at = Some(fd);
                    rest = after;
                }
                Err(Errno::NOSYS) if !stepwise => self.stepwise.store(true, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Cuts the next step off a path: one component, or as many as one call takes.
fn take_step(path: &[u8], one: bool) -> (&[u8], &[u8]) {
    if !one && path.len() <= STEP_BYTES_MAX {
        return (path, &[]);
    }
    let slash = |byte: &u8| *byte == b'/';
    let cut = if one {
        path.iter().position(slash)
    } else {
        // A component is at most 255 bytes, so there is a slash.
        path[..STEP_BYTES_MAX].iter().rposition(slash)
    };
    match cut {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (path, &[]),
    }
}

fn open_step(at: BorrowedFd, step: &[u8], flags: OFlags, stepwise: bool) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if stepwise {
        return rustix::fs::openat(at, step, flags, Mode::empty());
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut result = Err(Errno::AGAIN);
    for _ in 0..AGAIN_MAX {
        result = rustix::fs::openat2(at, step, flags, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

fn is_empty(dir: BorrowedFd) -> io::Result<bool> {
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b".." | b"lost+found") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An open directory of the target.
pub struct TargetDirectory {
    /// Its descriptor; `O_PATH` where the directory cannot be read.
    pub fd: OwnedFd,
    /// Can it be listed and asked for attributes?
    pub readable: bool,
    /// Do new files get an access control list from it?
    pub gives_acl: bool,
    /// Owner and group that a new file in it has: seen on the first one.
    pub gives_owner: OnceLock<(u32, u32)>,
}

impl TargetDirectory {
    /// Removes a temporary file of ours, if it is there.
    pub fn remove_quietly(&self, name: &[u8]) {
        let _gone_or_not = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
    }
}

/// Directories one thread has open, by path.
pub struct Directories<'t> {
    target: &'t Target,
    open: Vec<Open>,
    open_max: usize,
    tick: u64,
}

struct Open {
    path: Bytes,
    directory: Arc<TargetDirectory>,
    used: u64,
}

impl<'t> Directories<'t> {
    pub fn new(target: &'t Target, open_max: usize) -> Directories<'t> {
        Directories {
            target,
            open: Vec::with_capacity(open_max),
            open_max,
            tick: 0,
        }
    }

    /// Opens a directory of the target that exists.
    pub fn open(&mut self, path: &Bytes) -> Result<Arc<TargetDirectory>, Errno> {
        self.tick += 1;
        // The last one asked for is at the end.
        if let Some(at) = self.open.iter().rposition(|open| open.path == *path) {
            self.open[at].used = self.tick;
            return Ok(self.open[at].directory.clone());
        }
        check_path(path).map_err(|_| Errno::INVAL)?;
        let directory = Arc::new(self.open_anew(path)?);
        self.remember(path.clone(), directory.clone());
        Ok(directory)
    }

    /// Opens a directory, making it and those above it where they are missing: each is looked at
    /// once, so that a path of very many components, as a hostile catalog may have, costs no more
    /// than it is long.
    pub fn open_or_make(&mut self, path: &Bytes) -> Result<Arc<TargetDirectory>, Errno> {
        match self.open(path) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (start, rest) = self.nearest_open(path)?;
        let mut made: Option<OwnedFd> = None;
        for name in rest.split(|byte| *byte == b'/') {
            let here = made.as_ref().map_or(start, AsFd::as_fd);
            made = Some(self.target.open_or_make_child(here, name)?);
        }
        self.open(path)
    }

    /// Forgets a directory that is about to be replaced, and all below it.
    pub fn forget(&mut self, path: &[u8]) {
        self.open
            .retain(|open| !bale_format::entry::is_below(&open.path, path));
    }

    /// Opens something that is no directory, as a place (`O_PATH`) or for reading, which is no
    /// access.
    pub fn open_child(
        &mut self,
        directory: &TargetDirectory,
        name: &[u8],
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let flags = if flags.contains(OFlags::PATH) {
            flags - OFlags::NONBLOCK
        } else {
            flags
        };
        let open = |flags| rustix::fs::openat(&directory.fd, name, flags, Mode::empty());
        match flags.intersects(OFlags::PATH | OFlags::WRONLY | OFlags::RDWR) {
            true => open(flags),
            false => without_access(flags, open),
        }
    }

    fn remember(&mut self, path: Bytes, directory: Arc<TargetDirectory>) {
        if self.open.len() >= self.open_max.max(1) {
            let oldest = (0..self.open.len())
                .min_by_key(|at| self.open[*at].used)
                .expect("the list is full, so not empty");
            self.open.remove(oldest);
        }
        self.open.push(Open {
            path,
            directory,
            used: self.tick,
        });
    }

    /// The directory above `path` that is open and nearest, and the rest of the path below it.
    fn nearest_open<'a>(&self, path: &'a [u8]) -> Result<(BorrowedFd<'_>, &'a [u8]), Errno> {
        let above = self
            .open
            .iter()
            .filter(|open| {
                !open.path.is_empty()
                    && open.path.len() < path.len()
                    && bale_format::entry::is_below(path, &open.path)
            })
            .max_by_key(|open| open.path.len());
        Ok(match above {
            Some(open) => (open.directory.fd.as_fd(), &path[open.path.len() + 1..]),
            None => (self.target.root()?, path),
        })
    }

    fn open_anew(&self, path: &[u8]) -> Result<TargetDirectory, Errno> {
        let (start, rest) = self.nearest_open(path)?;
        let rest = if rest.is_empty() { b"." } else { rest };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let (fd, readable) = match self.target.open_below(start, rest, flags) {
            Ok(fd) => (fd, true),
            Err(Errno::ACCESS) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                (self.target.open_below(start, rest, flags)?, false)
            }
            Err(error) => return Err(error),
        };
        let acl = &b"system.posix_acl_default"[..];
        let gives_acl = readable && rustix::fs::fgetxattr_query(&fd, acl).is_ok();
        Ok(TargetDirectory {
            fd,
            readable,
            gives_acl,
            gives_owner: OnceLock::new(),
        })
    }
}

/// What stands at a name, links not followed.
pub fn stat_child(
    directory: &TargetDirectory,
    name: &[u8],
) -> Result<Option<rustix::fs::Stat>, Errno> {
    match rustix::fs::statat(&directory.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_walked_in_steps_that_fit() {
        let path = vec!["d"; 5000].join("/").into_bytes();
        let (mut rest, mut whole) = (&path[..], Vec::new());
        while !rest.is_empty() {
            let (step, after) = take_step(rest, false);
            assert!(!step.is_empty() && step.len() <= STEP_BYTES_MAX);
            whole.push(step.to_vec());
            rest = after;
        }
        assert_eq!(whole.join(&b'/'), path);
    }

    /// Issue 13: a catalog may name a directory below 200,000 others; a look at each from the top
    /// took minutes.
    #[test]
    fn a_directory_below_very_many_missing_ones_is_made_with_one_look_at_each() {
        let place = tempfile::tempdir().unwrap();
        let target = Target::open(place.path(), false).unwrap();
        let path = Bytes::from(vec!["d"; 3_000].join("/"));
        let mut directories = Directories::new(&target, 4);
        directories.open_or_make(&path).unwrap();
        assert!(directories.tick < 10, "{} looks", directories.tick);
        assert!(directories.open(&path).is_ok());
        // Deeper than the standard library can remove.
        let top = place.path().join("d");
        let removed = std::process::Command::new("rm")
            .arg("-rf")
            .arg(top)
            .status();
        assert!(removed.unwrap().success());
    }

    #[test]
    fn a_link_on_the_way_is_an_error_with_and_without_openat2() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("t/a/b")).unwrap();
        std::fs::create_dir(place.path().join("outside")).unwrap();
        std::os::unix::fs::symlink("../outside", place.path().join("t/link")).unwrap();
        std::os::unix::fs::symlink("a", place.path().join("t/inside")).unwrap();
        let target = Target::open(&place.path().join("t"), false).unwrap();
        for stepwise in [false, true] {
            target.stepwise.store(stepwise, Ordering::Relaxed);
            let mut directories = Directories::new(&target, 4);
            assert!(directories.open(&Bytes::from("a/b")).is_ok());
            for path in ["link", "inside/b", "..", "a/../a", "link/x"] {
                assert!(directories.open(&Bytes::from(path)).is_err(), "{path}");
            }
        }
    }
}
