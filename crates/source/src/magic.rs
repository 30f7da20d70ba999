//! Kinds of file systems by magic number (linux/magic.h).

use std::os::fd::AsFd;

/// Whether what is open is on a file system with one of these numbers.
pub(crate) fn is_of_kind(fd: impl AsFd, magics: &[u32]) -> bool {
    // They have 32 bits, whatever type the kernel gives them in.
    rustix::fs::fstatfs(fd).is_ok_and(|told| magics.contains(&(told.f_type as u32)))
}
