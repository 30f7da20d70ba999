//! Opening without being led astray: never through a symbolic link, never out of the directory.

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long somebody else may hold a block device before it counts as used: whoever looks for a
/// free loop device claims each one for an instant (`loop_configure` in the kernel's
/// drivers/block/loop.c), and so do programs that ask what is on a device.
pub const HELD_FOR_A_MOMENT: Duration = Duration::from_millis(500);

static OPENAT2_MISSING: AtomicBool = AtomicBool::new(false);

/// Opens `path`, relative to `directory`, of one or more components. No component may be a symbolic
/// link (`ELOOP`), and the path may not lead out of the directory. Where the kernel has no
/// `openat2`, the components are opened one by one, and `..` is refused altogether.
pub fn open_beneath(
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if !OPENAT2_MISSING.load(Ordering::Relaxed) {
        let resolve =
            ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            match openat2(directory, path, flags, mode, resolve) {
                // Somebody renamed on the way; the kernel asks to try again.
                Err(Errno::AGAIN) => std::thread::yield_now(),
                Err(Errno::INTR) => {}
                Err(Errno::NOSYS) => {
                    OPENAT2_MISSING.store(true, Ordering::Relaxed);
                    break;
                }
                // A seccomp filter may answer for the kernel: decide by the other way of opening.
                Err(Errno::PERM) => break,
                result => return Ok(result?),
            }
        }
    }
    open_by_components(directory, path, flags, mode)
}

/// Opens a block device (or a file, where it makes no difference) as its only user: nobody has it
/// mounted, and nobody mounts it before it is closed.
///
/// # Errors
/// `EBUSY` if it was used for all of [`HELD_FOR_A_MOMENT`]; what `open` says.
pub fn open_exclusively(path: &Path, write: bool) -> io::Result<File> {
    let began = Instant::now();
    loop {
        let opened = OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(OFlags::EXCL.bits() as i32)
            .open(path);
        match opened {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && began.elapsed() < HELD_FOR_A_MOMENT =>
            {
                std::thread::sleep(HELD_FOR_A_MOMENT / 50);
            }
            opened => return opened,
        }
    }
}

fn open_by_components(
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    let mut components = path.to_bytes().split(|byte| *byte == b'/').peekable();
    while let Some(component) = components.next() {
        if component == b".." || component.is_empty() {
            return Err(Errno::XDEV.into());
        }
        let name = CString::new(component).expect("a part of a C string has no NUL");
        let base = at.as_ref().map_or(directory, |fd| fd.as_fd());
        if components.peek().is_none() {
            return Ok(openat(base, &name, flags, mode)?);
        }
        at = Some(openat(base, &name, way, Mode::empty())?);
    }
    Err(Errno::NOENT.into())
}

/// Opens one name in a directory for reading: links not followed, a FIFO not waited for, atime left
/// alone where the kernel lets us (owner or root).
pub fn open_for_reading(
    directory: BorrowedFd<'_>,
    name: &CStr,
    extra: OFlags,
) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC
        | extra;
    let mut waited = Duration::ZERO;
    loop {
        let opened = match openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => openat(directory, name, flags, Mode::empty()),
            opened => opened,
        };
        match opened {
            Err(Errno::INTR) => {}
            // Somebody has a lease on it, whom this call has asked to give it back.
            Err(Errno::AGAIN) if wait_for_lease(&mut waited) => {}
            opened => return Ok(opened?),
        }
    }
}

/// Longest wait for a lease: the kernel takes it away after 45 seconds (fs.lease-break-time).
const LEASE_WAIT_MAX: Duration = Duration::from_secs(46);
/// All waits of this process together.
const LEASE_WAITS_MAX: Duration = Duration::from_secs(600);

static LEASE_WAITS_MILLIS: AtomicU64 = AtomicU64::new(0);

/// False: it was waited for long enough.
fn wait_for_lease(waited: &mut Duration) -> bool {
    let pause = (*waited / 4).clamp(Duration::from_millis(2), Duration::from_millis(500));
    let millis = LEASE_WAITS_MILLIS.fetch_add(pause.as_millis() as u64, Ordering::Relaxed);
    if *waited >= LEASE_WAIT_MAX || u128::from(millis) >= LEASE_WAITS_MAX.as_millis() {
        return false;
    }
    std::thread::sleep(pause);
    *waited += pause;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;

    fn path(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    #[test]
    fn both_ways_of_opening_refuse_links_and_dots() {
        let base = std::env::temp_dir().join(format!("bale-sys-open-{}", std::process::id()));
        let inside = base.join("a/b");
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::write(inside.join("f"), b"x").unwrap();
        std::os::unix::fs::symlink("a", base.join("link")).unwrap();
        let base_text = path(base.to_str().unwrap());
        let top = openat(CWD, &base_text, OFlags::RDONLY, Mode::empty()).unwrap();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        type Open = fn(BorrowedFd<'_>, &CStr, OFlags, Mode) -> io::Result<OwnedFd>;
        for open in [open_beneath as Open, open_by_components as Open] {
            assert!(open(top.as_fd(), &path("a/b/f"), flags, Mode::empty()).is_ok());
            for refused in ["link/b/f", "../x", "link", "/etc"] {
                assert!(open(top.as_fd(), &path(refused), flags, Mode::empty()).is_err());
            }
        }
        std::fs::remove_dir_all(&base).unwrap();
    }
}
