//! Identifies the file systems of the sources, so that two disks mounted at one place are two
//! sources.
//!
//! Only what lasts is told: the UUID of a file system on a device, which survives a reboot, a
//! snapshot and a copy of the device. What comes over a network, is in memory or put together at
//! every start has none that lasts: it is known by its kind and by what was mounted, so that the
//! empty directory in its place, while it is not mounted, is not taken for it.

use super::filesystems::{name_of_mount, uuid_of_device, uuid_text};
use super::identity::identity_of;
use super::{ScanMode, Sources};
use bale_format::snapshot::SOURCE_IS_IMAGE;
use bale_sys::inode::filesystem_uuid;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use std::collections::{BTreeSet, HashSet};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Of btrfs, whose device numbers say nothing.
const BTRFS_MAGIC: u64 = 0x9123_683e;

/// File systems of the sources, as far as they are known, sorted, each once.
pub fn source_filesystems(sources: &Sources, mode: ScanMode) -> Vec<String> {
    let (mut found, mut devices) = (BTreeSet::new(), HashSet::new());
    for path in sources.paths() {
        let Ok(metadata) = std::fs::symlink_metadata(path) else {
            continue;
        };
        if mode == ScanMode::Inode && !metadata.is_dir() {
            found.insert(SOURCE_IS_IMAGE.to_owned());
        } else if devices.insert(metadata.dev()) {
            found.extend(name_of(path, &metadata));
        }
    }
    found.into_iter().collect()
}

fn name_of(path: &Path, metadata: &std::fs::Metadata) -> Option<String> {
    let directory = match metadata.is_dir() {
        true => path,
        false => path.parent()?,
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, directory, flags, Mode::empty()).ok();
    let opened = opened.and_then(|fd| {
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let stat = statx(&fd, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
        Some((fd, stat))
    });
    let (major, minor) = (
        rustix::fs::major(metadata.dev()),
        rustix::fs::minor(metadata.dev()),
    );
    let named = u64::from(major) << 32 | u64::from(minor);
    let device = match &opened {
        // An automount is mounted by being opened.
        Some((_, stat)) if metadata.is_dir() => identity_of(stat).device,
        _ => named,
    };
    // A file may be a mount of its own: then its directory is another file system's.
    let opened = opened.filter(|(_, stat)| identity_of(stat).device == device);
    let is_btrfs = opened.as_ref().is_some_and(|(fd, _)| {
        let stat = rustix::fs::fstatfs(fd.as_fd());
        stat.is_ok_and(|stat| stat.f_type as u64 == BTRFS_MAGIC)
    });
    if device >> 32 == 0 && !is_btrfs {
        let mount = opened.map_or(0, |(_, stat)| {
            match stat.stx_mask & StatxFlags::MNT_ID.bits() {
                0 => 0,
                _ => stat.stx_mnt_id,
            }
        });
        return name_of_mount(device, mount);
    }
    let own = opened.and_then(|(fd, _)| filesystem_uuid(fd.as_fd()).ok().flatten());
    let own = own.map(|uuid| uuid_text(&uuid));
    own.or_else(|| uuid_of_device(device))
}
