//! Leases: asking the kernel whether anybody may be writing to a file.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Of `asm-generic/fcntl.h`; the crate lacks it.
const F_SETSIG: libc::c_int = 10;

/// Has anybody this regular file open for writing, or mapped so? Writes that were begun and are
/// still under way count, also where their program is gone.
///
/// Asks for a lease, which the kernel grants only where nobody has, and returns it at once: whoever
/// opens the file for writing in between waits for that long. `fd` must be open for nothing but
/// reading. On a network file system the answer is the server's, and says nothing of who writes
/// elsewhere.
///
/// # Errors
/// Whatever the kernel gives where it does not say: `EACCES` for files of others without the right
/// to leases, `EINVAL` where a file system has none.
pub fn is_open_for_writing(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // Somebody in that moment makes the kernel send a signal: one that is ignored by default, where
    // the usual one would end the process.
    control(fd, F_SETSIG, libc::SIGURG)?;
    match control(fd, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            control(fd, libc::F_SETLEASE, libc::F_UNLCK)?;
            Ok(false)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

fn control(fd: BorrowedFd<'_>, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: these commands take a number and touch no memory of the process.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_writer_is_seen_as_long_as_it_has_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(is_open_for_writing(reader.as_fd()).unwrap());
        drop(writer);
        let other_reader = File::open(&path).unwrap();
        assert!(!is_open_for_writing(reader.as_fd()).unwrap());
        // The lease is gone again: nobody has to wait.
        let again = File::options().append(true).open(&path).unwrap();
        assert!(is_open_for_writing(other_reader.as_fd()).unwrap());
        drop(again);
    }

    #[test]
    fn what_has_no_leases_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap();
        assert!(is_open_for_writing(opened.as_fd()).is_err());
    }
}
