//! Whether an inode that lost its name has another one, wherever on its file system that is.
//!
//! The file system is asked by the number of the inode. A number has many lives: only one that
//! began before the run did is what was listed in it.

use super::statx::time_of;
use bale_format::entry::Time;
use bale_sys::bulkstat::BulkStat;
use bale_sys::handle::FileHandle;
use rustix::fs::{AtFlags, OFlags, StatxFlags, fstatfs, statx};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// By magic number (linux/magic.h).
const EXT4: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683e;
/// `FILEID_BTRFS_WITHOUT_PARENT` (fs/btrfs/export.h): inode and subvolume in 64 bits each, the
/// generation in 32.
const BTRFS_WITHOUT_PARENT: i32 = 0x4d;

/// Which life of a number is meant.
#[derive(Clone, Copy)]
pub(super) struct Life {
    /// One that began before.
    pub(super) since: Time,
    /// Where a file system does not know when it began: one with this time of modification.
    pub(super) mtime: Option<Time>,
}

/// An inode as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Now {
    /// Names that it has; 0: it is gone, or the number has another life.
    pub(super) names: u32,
    /// Its last change, also of its names.
    pub(super) changed: Time,
}

/// How many names an inode has now; see `now`.
pub(super) fn names(directory: BorrowedFd<'_>, inode: u64, life: Life) -> Option<u32> {
    now(directory, inode, life).map(|now| now.names)
}

/// What became of an inode. `directory` is any directory of its file system and subvolume. `None`:
/// that cannot be told here, as on file systems that find no inode by its number, or without
/// `CAP_DAC_READ_SEARCH`.
pub(super) fn now(directory: BorrowedFd<'_>, inode: u64, life: Life) -> Option<Now> {
    // Magic numbers have 32 bits, whatever type the kernel gives them in.
    let handle = match fstatfs(directory).ok()?.f_type as u32 {
        // Of these two, generation 0 is any.
        EXT4 => FileHandle::ext4(u32::try_from(inode).ok()?, 0),
        BTRFS => in_subvolume(&FileHandle::of(directory, c"").ok()?.0, inode)?,
        XFS => return in_xfs(directory, inode, life),
        _ => return None,
    };
    let place = OFlags::PATH | OFlags::NOFOLLOW;
    let opened = match handle.open(directory, place) {
        Ok(opened) => opened,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::STALE) => {
            return Some(Now::default());
        }
        Err(_) => return None,
    };
    let mask = StatxFlags::BTIME | StatxFlags::NLINK | StatxFlags::MTIME | StatxFlags::CTIME;
    let stat = statx(opened.as_fd(), c"", AtFlags::EMPTY_PATH, mask).ok()?;
    let is_meant = match stat.stx_mask & StatxFlags::BTIME.bits() != 0 {
        true => time_of(stat.stx_btime) < life.since,
        false => time_of(stat.stx_mtime) == life.mtime?,
    };
    let now = Now {
        names: stat.stx_nlink,
        changed: time_of(stat.stx_ctime),
    };
    Some(if is_meant { now } else { Now::default() })
}

fn in_subvolume(of_directory: &FileHandle, inode: u64) -> Option<FileHandle> {
    let subvolume = of_directory.bytes().get(8..16)?;
    let bytes = [&inode.to_ne_bytes()[..], subvolume, &[0; 4]].concat();
    FileHandle::new(BTRFS_WITHOUT_PARENT, &bytes)
}

fn in_xfs(directory: BorrowedFd<'_>, inode: u64, life: Life) -> Option<Now> {
    let mut stats = BulkStat::new(None, 1);
    stats.seek(inode);
    // The next one in use, if this one is not.
    let found = stats.next(directory).ok()?.next();
    let meant = found.filter(|found| {
        let born = Time::from(found.btime);
        // Version 4 does not know.
        let is_meant = match born.seconds {
            0 => life.mtime == Some(Time::from(found.mtime)),
            _ => born < life.since,
        };
        found.inode == inode && is_meant
    });
    Some(meant.map_or_else(Now::default, |found| Now {
        names: found.links,
        changed: Time::from(found.ctime),
    }))
}
