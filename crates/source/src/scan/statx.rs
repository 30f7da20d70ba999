//! What `statx` reports, as the walk requests it and as a row has it.

use super::identity::Stay;
use super::identity::identity_of;
use bale_format::entry::{Entry, Kind, Time};
use bytes::Bytes;
use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::AsFd;

/// Is the time of last access part of a row?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Atime {
    /// Nobody asks for it.
    #[default]
    LeftOut,
    Taken,
}

impl Atime {
    pub(crate) fn taken_if(is_wanted: bool) -> Atime {
        match is_wanted {
            true => Atime::Taken,
            false => Atime::LeftOut,
        }
    }
}

/// `statx` of what becomes no row.
pub(super) fn stat_at<Fd: AsFd>(directory: Fd, name: &CStr) -> rustix::io::Result<Statx> {
    stat_row_at(directory, name, Atime::LeftOut)
}

/// `statx` as the walk does it.
pub(super) fn stat_row_at<Fd: AsFd>(
    directory: Fd,
    name: &CStr,
    atime: Atime,
) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    // Everything of `stat` but blocks, and the mount.
    let mut mask = StatxFlags::BASIC_STATS.difference(StatxFlags::BLOCKS) | StatxFlags::MNT_ID;
    mask.set(StatxFlags::ATIME, atime == Atime::Taken);
    loop {
        match rustix::fs::statx(&directory, name, flags, mask) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Id of the mount a file is on; of kernels that do not tell, the device.
pub(super) fn mount_of(stat: &Statx) -> u64 {
    if stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
        stat.stx_mnt_id
    } else {
        1 << 63 | u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor)
    }
}

/// What a source is on.
pub(super) fn stay_of(stat: &Statx) -> Stay {
    Stay {
        device: identity_of(stat).device,
        mount: mount_of(stat),
    }
}

pub(super) fn time_of(stamp: StatxTimestamp) -> Time {
    Time {
        seconds: stamp.tv_sec,
        nanos: stamp.tv_nsec,
    }
}

/// The entry of a `stat`; `None` for a type nobody knows. A file system without access times has
/// none in its rows.
pub(super) fn entry_of(parent: Bytes, name: Bytes, stat: &Statx, atime: Atime) -> Option<Entry> {
    let mode = u32::from(stat.stx_mode);
    let mut entry = Entry::new(parent, name, Kind::from_mode(mode)?);
    set_stat(&mut entry, stat);
    if atime == Atime::Taken && stat.stx_mask & StatxFlags::ATIME.bits() != 0 {
        entry.atime = time_of(stat.stx_atime).into();
    }
    Some(entry)
}

/// Overwrites the fields that `statx` reports, but for the time of last access: that of a row is
/// from before anything was read.
pub fn set_stat(entry: &mut Entry, stat: &Statx) {
    entry.mode = u32::from(stat.stx_mode) & 0o7777;
    entry.uid = stat.stx_uid;
    entry.gid = stat.stx_gid;
    entry.mtime = time_of(stat.stx_mtime);
    entry.ctime = time_of(stat.stx_ctime);
    entry.inode = stat.stx_ino;
    entry.nlink = stat.stx_nlink;
    entry.size = match entry.kind {
        Kind::File | Kind::Symlink => stat.stx_size,
        _ => 0,
    };
    entry.rdev = match entry.kind {
        Kind::BlockDevice | Kind::CharDevice => {
            u64::from(stat.stx_rdev_major) << 32 | u64::from(stat.stx_rdev_minor)
        }
        _ => 0,
    };
}
