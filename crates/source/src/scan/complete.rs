//! What an entry is beyond its `stat`: target, extended attributes, inode flags, project,
//! generation.

use super::directory::Directory;
use super::identity::identity_of;
use crate::problem::ScanProblem;
use bale_format::Xattr;
use bale_format::entry::{Entry, EntryFlags, Kind};
use bale_format::xattrs::LISTED_TWICE;
use bale_sys::inode::{self, flag};
use bale_sys::open::{open_beneath, open_for_reading};
use bale_sys::xattr;
use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Longest set of extended attributes (docs/FORMAT.md, section 8).
pub const ATTRIBUTES_BYTES_MAX: usize = 1 << 20;
/// First byte of an encoded set that stands in its row.
const SET_IN_ROW: u8 = 1;
/// Inode flags that are kept.
pub const FLAGS_STORED: u32 =
    flag::SYNC | flag::IMMUTABLE | flag::APPEND | flag::NODUMP | flag::NOATIME | flag::DIRSYNC;
/// Names and values are first asked for with room for this.
const FIRST_BYTES: usize = 1024;

impl Directory {
    /// Fills in what the scan left out of an entry of this directory. Files that are read anyway
    /// are better completed from their descriptor, with [`complete_opened`]. What cannot be read is
    /// flagged in the entry.
    pub fn complete(self: &Arc<Self>, entry: &mut Entry) -> Result<(), ScanProblem> {
        let directory = match self.open() {
            Ok(directory) => directory,
            Err(error) => {
                entry.flags.set(match entry.kind {
                    Kind::Symlink => EntryFlags::UNREADABLE,
                    _ => EntryFlags::XATTRS_UNREADABLE,
                });
                return Err(problem(entry, "open the directory of", error));
            }
        };
        // The row of `/` is a child of nothing.
        let name = match entry.name.is_empty() {
            true => c".".into(),
            false => CString::new(&entry.name[..])
                .map_err(|error| problem(entry, "name", error.into()))?,
        };
        let at = directory.as_fd();
        match entry.kind {
            Kind::Symlink => read_target(at, &name, entry)?,
            Kind::Directory | Kind::File => {
                let graft = self.grafts().child(&entry.parent, &entry.name);
                let opened = match graft.map(|graft| graft.open()) {
                    Some(opened) => opened.ok(),
                    None => open_plain(at, &name, entry, self),
                };
                if let Some(fd) = opened {
                    return complete_opened(fd.as_fd(), entry);
                }
            }
            _ => {}
        }
        if let Ok(attributes) = inode::fsxattr_at(at, &name) {
            entry.project = attributes.project;
            entry.inode_flags = attributes.inode_flags() & FLAGS_STORED;
        }
        let list = |buffer: &mut [u8]| xattr::list_at(at, &name, buffer);
        let get = |key: &CStr, buffer: &mut [u8]| xattr::get_at(at, &name, key, buffer);
        set_attributes(entry, read_attributes(list, get))
    }
}

/// Fills in what the scan left out, from an open file or directory.
pub fn complete_opened(fd: BorrowedFd<'_>, entry: &mut Entry) -> Result<(), ScanProblem> {
    match inode::fsxattr(fd) {
        Ok(attributes) => {
            entry.project = attributes.project;
            entry.inode_flags = attributes.inode_flags();
            if entry.kind == Kind::Directory {
                entry.inode_flags |= inode::flags(fd).unwrap_or(0);
            }
        }
        Err(_) => entry.inode_flags = inode::flags(fd).unwrap_or(0),
    }
    entry.inode_flags &= FLAGS_STORED;
    entry.generation = inode::generation(fd).unwrap_or(0);
    let list = |buffer: &mut [u8]| Ok(rustix::fs::flistxattr(fd, buffer)?);
    let get = |key: &CStr, buffer: &mut [u8]| Ok(rustix::fs::fgetxattr(fd, key, buffer)?);
    set_attributes(entry, read_attributes(list, get))
}

/// Opens a directory or an empty file to ask it for what names do not tell. Only where nothing can
/// come of opening: not on file systems without a device, whose files are programs (`/proc`,
/// `/sys`). `None`: ask by name.
fn open_plain(
    at: BorrowedFd<'_>,
    name: &CStr,
    entry: &Entry,
    directory: &Directory,
) -> Option<rustix::fd::OwnedFd> {
    let fd = match entry.kind {
        Kind::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            open_beneath(at, name, flags, Mode::empty()).ok()?
        }
        _ if directory.identity().device >> 32 == 0 => return None,
        _ => open_for_reading(at, name, OFlags::empty()).ok()?,
    };
    let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?;
    (identity_of(&stat).inode == entry.inode).then_some(fd)
}

fn read_target(at: BorrowedFd<'_>, name: &CStr, entry: &mut Entry) -> Result<(), ScanProblem> {
    match rustix::fs::readlinkat(at, name, Vec::new()) {
        Ok(target) => {
            let target = target.into_bytes();
            entry.size = target.len() as u64;
            entry.target = target.into();
            Ok(())
        }
        Err(errno) => {
            entry.flags.set(EntryFlags::UNREADABLE);
            Err(problem(entry, "read the target of", errno.into()))
        }
    }
}

fn problem(entry: &Entry, action: &'static str, error: io::Error) -> ScanProblem {
    ScanProblem {
        path: entry.path(),
        action,
        error,
    }
}

fn set_attributes(entry: &mut Entry, set: io::Result<Bytes>) -> Result<(), ScanProblem> {
    match set {
        Ok(set) => {
            entry.xattrs = set;
            Ok(())
        }
        Err(error) => {
            entry.flags.set(EntryFlags::XATTRS_UNREADABLE);
            Err(problem(entry, "read the extended attributes of", error))
        }
    }
}

/// All attributes, encoded as in the `xattrs` column; empty if there are none.
fn read_attributes(
    list: impl Fn(&mut [u8]) -> io::Result<usize>,
    get: impl Fn(&CStr, &mut [u8]) -> io::Result<usize>,
) -> io::Result<Bytes> {
    // Most files have none: ask with a small buffer on the stack first.
    let mut names = match with_room(&list) {
        Ok(names) if names.is_empty() => return Ok(Bytes::new()),
        Err(error) if is(&error, Errno::OPNOTSUPP) => return Ok(Bytes::new()),
        names => names?,
    };
    if names.last() != Some(&0) {
        names.push(0);
    }
    let mut keys: Vec<&CStr> = Vec::new();
    let mut rest = &names[..];
    while let Ok(key) = CStr::from_bytes_until_nul(rest) {
        rest = &rest[key.to_bytes_with_nul().len()..];
        keys.push(key);
    }
    let mut set = Vec::new();
    let mut bytes = 0;
    for key in keys {
        if LISTED_TWICE.contains(&key.to_bytes()) {
            continue;
        }
        let value = match with_room(&|buffer: &mut [u8]| get(key, buffer)) {
            Ok(value) => value,
            // Removed since it was listed.
            Err(error) if is(&error, Errno::NODATA) => continue,
            Err(error) => return Err(error),
        };
        bytes += key.to_bytes().len() + value.len();
        if bytes > ATTRIBUTES_BYTES_MAX {
            return Err(io::Error::other("more than 1 MiB of extended attributes"));
        }
        set.push((key.to_bytes().to_vec(), value));
    }
    encode_xattrs(set)
}

/// Attributes that were read already, encoded as in the `xattrs` column. One that was listed twice
/// is one; the same name with two values is damage.
pub fn encode_xattrs(set: Vec<(Vec<u8>, Vec<u8>)>) -> io::Result<Bytes> {
    let set = set.into_iter().map(|(name, value)| Xattr { name, value });
    let mut set: Vec<Xattr> = set.collect();
    set.sort_unstable();
    set.dedup();
    if set.is_empty() {
        return Ok(Bytes::new());
    }
    let encoded = bale_format::xattrs::encode_xattrs(&mut set).map_err(io::Error::other)?;
    Ok([&[SET_IN_ROW], &encoded[..]].concat().into())
}

/// Calls with a larger buffer until the answer fits.
fn with_room(call: &impl Fn(&mut [u8]) -> io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut small = [0u8; FIRST_BYTES];
    match call(&mut small) {
        Ok(used) => return Ok(small[..used.min(FIRST_BYTES)].to_vec()),
        Err(error) if !is(&error, Errno::RANGE) => return Err(error),
        Err(_) => {}
    }
    let mut buffer = vec![0; 64 << 10];
    loop {
        match call(&mut buffer) {
            Ok(used) => {
                buffer.truncate(used);
                return Ok(buffer);
            }
            Err(error) if is(&error, Errno::RANGE) && buffer.len() < ATTRIBUTES_BYTES_MAX => {
                buffer.resize(buffer.len() * 4, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
