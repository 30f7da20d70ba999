//! Extended attributes by directory and name, links not followed, without opening the file: reading
//! a FIFO's or a device's attributes must not open it. Linux 6.13 has calls for this; before,
//! `/proc/self/fd` leads there.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

const GETXATTRAT: libc::c_long = 464;
const LISTXATTRAT: libc::c_long = 465;

const UNKNOWN: u8 = 0;
const PRESENT: u8 = 1;
const ABSENT: u8 = 2;
static XATTRAT: AtomicU8 = AtomicU8::new(UNKNOWN);

#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

/// Fills `buffer` with NUL-terminated names; returns the bytes used, or needed if `buffer` is
/// empty. `ERANGE`: too small.
pub fn list_at(directory: BorrowedFd<'_>, name: &CStr, buffer: &mut [u8]) -> io::Result<usize> {
    let (start, len) = (buffer.as_mut_ptr(), buffer.len());
    if xattrat_present() {
        // SAFETY: `start` is valid for `len` bytes.
        return size(unsafe {
            libc::syscall(
                LISTXATTRAT,
                directory.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
                start,
                len,
            )
        });
    }
    let path = proc_path(directory, name);
    // SAFETY: `start` is valid for `len` bytes.
    size(unsafe { libc::llistxattr(path.as_ptr(), start.cast(), len) } as libc::c_long)
}

/// Value of one attribute; as [`list_at`].
pub fn get_at(
    directory: BorrowedFd<'_>,
    name: &CStr,
    attribute: &CStr,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let (start, len) = (buffer.as_mut_ptr(), buffer.len());
    if xattrat_present() {
        let args = XattrArgs {
            value: start as u64,
            size: u32::try_from(len).unwrap_or(u32::MAX),
            flags: 0,
        };
        // SAFETY: `args` names `len` valid bytes; all pointers live across the call.
        return size(unsafe {
            libc::syscall(
                GETXATTRAT,
                directory.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
                attribute.as_ptr(),
                &args,
                size_of::<XattrArgs>(),
            )
        });
    }
    let path = proc_path(directory, name);
    // SAFETY: `start` is valid for `len` bytes.
    let got = unsafe { libc::lgetxattr(path.as_ptr(), attribute.as_ptr(), start.cast(), len) };
    size(got as libc::c_long)
}

/// Asked once: a listing of `/` succeeds wherever the call exists and is allowed.
fn xattrat_present() -> bool {
    match XATTRAT.load(Ordering::Relaxed) {
        PRESENT => true,
        ABSENT => false,
        _ => {
            // SAFETY: no buffer is passed: the kernel only returns a size.
            let result = unsafe {
                libc::syscall(
                    LISTXATTRAT,
                    libc::AT_FDCWD,
                    c"/".as_ptr(),
                    0,
                    std::ptr::null_mut::<u8>(),
                    0,
                )
            };
            let present =
                result >= 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP);
            XATTRAT.store(if present { PRESENT } else { ABSENT }, Ordering::Relaxed);
            present
        }
    }
}

fn proc_path(directory: BorrowedFd<'_>, name: &CStr) -> CString {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    CString::new(path).expect("made of a number and a C string")
}

fn size(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, XattrFlags, lremovexattr, lsetxattr, openat};
    use std::os::fd::AsFd;

    fn round_trip(directory: BorrowedFd<'_>) {
        let (file, key) = (c"f", c"user.bale");
        let path = proc_path(directory, file);
        lsetxattr(&path, key, b"value", XattrFlags::empty()).unwrap();
        let mut buffer = [0u8; 64];
        let used = list_at(directory, file, &mut buffer).unwrap();
        assert!(
            buffer[..used]
                .split(|b| *b == 0)
                .any(|name| name == b"user.bale")
        );
        let used = get_at(directory, file, key, &mut buffer).unwrap();
        assert_eq!(&buffer[..used], b"value");
        lremovexattr(&path, key).unwrap();
        assert!(get_at(directory, file, key, &mut buffer).is_err());
    }

    #[test]
    fn attributes_come_back_with_and_without_the_new_calls() {
        let base = std::env::temp_dir().join(format!("bale-sys-xattr-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        std::fs::write(base.join("f"), b"x").unwrap();
        let text = CString::new(base.to_str().unwrap()).unwrap();
        let fd = openat(CWD, &text, OFlags::RDONLY, Mode::empty()).unwrap();
        round_trip(fd.as_fd());
        XATTRAT.store(ABSENT, Ordering::Relaxed);
        round_trip(fd.as_fd());
        XATTRAT.store(UNKNOWN, Ordering::Relaxed);
        std::fs::remove_dir_all(&base).unwrap();
    }
}
