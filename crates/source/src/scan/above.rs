//! The directories that lead to the sources, for what does not read them.
//!
//! Their rows are in every snapshot, since a restore makes them again with owner and rights. A scan
//! that finds a file system unchanged below its mount point has not looked at them: so what they
//! are is part of what has to be equal. Their times are not: those of a directory above change with
//! whatever others make beside the source.

use super::Sources;
use super::complete::complete_opened;
use super::statx::{set_stat, stat_at};
use bale_format::entry::{Entry, Kind};
use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Differs if a directory above a source is another one, or has another owner, other rights or
/// attributes. `None`: one of them cannot be looked at.
pub fn fingerprint_above(sources: &Sources) -> Option<[u8; 32]> {
    let ancestors = sources
        .paths()
        .iter()
        .flat_map(|path| path.ancestors().skip(1));
    let ancestors: BTreeSet<&Path> = ancestors.collect();
    let mut hasher = blake3::Hasher::new();
    for path in ancestors {
        let entry = entry_of_directory(path)?;
        let path = path.as_os_str().as_bytes();
        hasher.update(&(path.len() as u64).to_le_bytes());
        hasher.update(path);
        for number in [
            entry.mode,
            entry.uid,
            entry.gid,
            entry.inode_flags,
            entry.project,
        ] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(&entry.inode.to_le_bytes());
        hasher.update(&(entry.xattrs.len() as u64).to_le_bytes());
        hasher.update(&entry.xattrs);
    }
    Some(*hasher.finalize().as_bytes())
}

fn entry_of_directory(path: &Path) -> Option<Entry> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut entry = Entry::new(Bytes::new(), Bytes::new(), Kind::Directory);
    set_stat(&mut entry, &stat_at(CWD, &name).ok()?);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, &*name, flags, Mode::empty()).ok()?;
    complete_opened(opened.as_fd(), &mut entry).ok()?;
    Some(entry)
}
