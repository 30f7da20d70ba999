//! May a mounted file system be scanned from its device, and from which?
//!
//! Only where every fact that a raw reader relies on is known to hold: exactly the device that the
//! mount has, a file system that keeps data and metadata in places that a freeze makes true, no
//! translation in between. Everything else is a sentence for the user, and a walk.

mod clock_steps;
mod device_node;

pub use clock_steps::ClockSteps;

use super::mount_table::{Mount, MountTable};
use bale_fsimage::ext4;
use bale_sys::buffer::AlignedBuffer;
use bale_sys::inode::filesystem_uuid;
use device_node::DeviceNode;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is read of the start of the device: the superblocks of both.
const START_BYTES: usize = 4096;

/// File systems that can be scanned live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveKind {
    /// ext2, ext3 and ext4.
    Ext4,
    Xfs,
}

/// A mounted file system that may be scanned from its device.
#[derive(Debug)]
pub struct LiveTarget {
    pub kind: LiveKind,
    /// The directory asked for, open for reading: for the freezer, for opening by handle, for
    /// `statx`.
    pub directory: OwnedFd,
    pub inode: u64,
    /// Number of the device: `major << 32 | minor`.
    pub device: u64,
    /// The directory's path from the root of the file system, without leading slash; empty: the
    /// root.
    pub path_inside: PathBuf,
    /// The same of the further sources.
    pub others_inside: Vec<PathBuf>,
    /// Where the file system, or a part of it, is mounted.
    pub mount_point: PathBuf,
    /// Its UUID, as its superblock says; the kernel agrees.
    pub uuid: [u8; 16],
    /// Nothing can be written: neither through this mount nor through another.
    pub read_only: bool,
    /// Places below the directory where something else is mounted, sorted. What lies under them in
    /// this file system is hidden, and what is seen there is not in it.
    pub mounts_below: Vec<PathBuf>,
    node: DeviceNode,
    /// The source itself.
    path: PathBuf,
}

impl LiveTarget {
    /// Where all sources are in the file system, in one: another mount may show another directory
    /// at the path of a source, and nothing on the device says so.
    pub fn places_inside(&self) -> PathBuf {
        let mut places = self.path_inside.clone().into_os_string();
        for other in &self.others_inside {
            places.push("\0");
            places.push(other);
        }
        PathBuf::from(places)
    }

    /// Whether all that this way of scanning needs is still so: asked at the end, of what was true
    /// at the beginning.
    pub fn check_again(&self) -> Result<(), NotPossible> {
        let place = PathTarget::of(&self.path).map_err(|error| {
            NotPossible(format!(
                "{}: it cannot be opened: {error}",
                self.path.display()
            ))
        })?;
        if (place.device, place.inode) != (self.device, self.inode) {
            return not_possible("another directory is at its path than when the scan began");
        }
        let table = MountTable::read()
            .map_err(|error| NotPossible(format!("the table of mounts cannot be read: {error}")))?;
        let Some(mount) = table.find(place.mount) else {
            return not_possible("its mount is not in this process's table of mounts");
        };
        check_options(mount)?;
        if self.read_only && !mount.has_super_option("ro") {
            return not_possible("it was read-only when the scan began, and is written to now");
        }
        Ok(())
    }

    /// The device, to be opened while this exists.
    pub fn device_path(&self) -> &Path {
        self.node.path()
    }
}

/// Why it must be walked, to be said after "because".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotPossible(pub String);

fn not_possible<T>(why: impl Into<String>) -> Result<T, NotPossible> {
    Err(NotPossible(why.into()))
}

/// Looks at a directory of a mounted file system, which may be the mount point. `scratch` is a
/// directory for a device node of our own, should there be none.
pub fn live_target(path: &Path, scratch: &Path) -> Result<LiveTarget, NotPossible> {
    let place = PathTarget::of(path).map_err(|error| {
        let why = match error.raw_os_error() == Some(rustix::io::Errno::NOTDIR.raw_os_error()) {
            true => "it is no directory".to_owned(),
            false => format!("it cannot be opened: {error}"),
        };
        NotPossible(format!("{}: {why}", path.display()))
    })?;
    let table = MountTable::read().map_err(|error| {
        NotPossible(format!(
            "the table of mounts cannot be read: {error} (is /proc mounted?)"
        ))
    })?;
    let Some(mount) = table.find(place.mount) else {
        return not_possible("its mount is not in this process's table of mounts");
    };
    let kind = kind_of(mount, &place)?;
    check_options(mount)?;
    check_device(mount.device)?;
    check_driver(mount)?;
    check_user_namespace()?;
    let Some(path_inside) = mount.path_inside(path) else {
        return not_possible("its path does not lead through its mount point");
    };
    let node = DeviceNode::find(mount, scratch)?;
    let start = read_start(&node, kind)?;
    let uuid = check_superblock(kind, &start, mount, place.directory.as_fd())?;
    Ok(LiveTarget {
        kind,
        inode: place.inode,
        device: mount.device,
        path_inside,
        others_inside: Vec::new(),
        mount_point: PathBuf::from(std::ffi::OsString::from_vec(mount.point.clone())),
        uuid,
        read_only: mount.has_super_option("ro"),
        mounts_below: table.below(path),
        directory: place.directory,
        node,
        path: path.to_owned(),
    })
}

/// The mount that a directory is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountOf {
    pub point: PathBuf,
    /// What: often a device.
    pub source: PathBuf,
    /// `ext4`, `btrfs` ...
    pub kind: String,
    /// The directory's path from the root of the file system, without leading slash; empty: the
    /// root.
    pub path_inside: PathBuf,
    /// Places below the directory where something else is mounted.
    pub mounts_below: Vec<PathBuf>,
}

impl MountOf {
    /// Looks in the table of mounts.
    pub fn directory(path: &Path) -> io::Result<MountOf> {
        let place = PathTarget::of(path)?;
        let table = MountTable::read()?;
        let Some(mount) = table.find(place.mount) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let path_of = |bytes: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
        Ok(MountOf {
            point: path_of(&mount.point),
            source: path_of(&mount.source),
            kind: mount.kind.clone(),
            path_inside: mount.path_inside(path).ok_or(io::ErrorKind::NotFound)?,
            mounts_below: table.below(path),
        })
    }
}

/// What the path leads to.
struct PathTarget {
    directory: OwnedFd,
    inode: u64,
    device: u64,
    mount: u64,
}

impl PathTarget {
    fn of(path: &Path) -> io::Result<PathTarget> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let stat = statx(&directory, c"", AtFlags::EMPTY_PATH, wanted)?;
        if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(io::Error::other(
                "this kernel does not tell which mount a file is on (Linux 5.8 does)",
            ));
        }
        Ok(PathTarget {
            inode: stat.stx_ino,
            device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            mount: stat.stx_mnt_id,
            directory,
        })
    }
}

fn kind_of(mount: &Mount, place: &PathTarget) -> Result<LiveKind, NotPossible> {
    let kind = match mount.kind.as_str() {
        "ext2" | "ext3" | "ext4" => LiveKind::Ext4,
        "xfs" => LiveKind::Xfs,
        other => {
            return not_possible(format!(
                "it is on {other}, and only ext4 and XFS are read from their device"
            ));
        }
    };
    if place.device != mount.device || mount.device >> 32 == 0 {
        return not_possible("its mount has no single device");
    }
    if mount.is_deleted() {
        return not_possible("the directory that is mounted there was deleted");
    }
    Ok(kind)
}

/// Options that put data elsewhere, or owners.
fn check_options(mount: &Mount) -> Result<(), NotPossible> {
    let why = if mount.has_super_option("data=journal") {
        "it is mounted with data=journal: data may be in the journal only"
    } else if mount.has_super_option("dax") || mount.has_super_option("dax=always") {
        "it is mounted with dax: programs write past every barrier"
    } else if mount.super_option_value("rtdev").is_some() {
        "it has a realtime device"
    } else if mount.super_option_value("logdev").is_some() {
        "its log is on another device"
    } else if mount.has_option("idmapped") {
        "owners are translated by an id-mapped mount"
    } else {
        return Ok(());
    };
    not_possible(why)
}

/// Memory that is addressed as a device is written without the kernel's knowledge, whatever the
/// mount options say.
fn check_device(device: u64) -> Result<(), NotPossible> {
    let place = format!("/sys/dev/block/{}:{}", device >> 32, device as u32);
    // A partition's queue is that of its disk.
    for queue in ["queue/dax", "../queue/dax"] {
        let text = std::fs::read(Path::new(&place).join(queue)).unwrap_or_default();
        if text.starts_with(b"1") {
            return not_possible("its device is memory that programs may map (DAX)");
        }
    }
    Ok(())
}

/// What the driver of ext4 says of its file systems: one that is not there is another driver's,
/// which keeps directories in a cache of its own; one that is read-only after an error may have
/// pages in memory that never come to the device.
fn check_driver(mount: &Mount) -> Result<(), NotPossible> {
    const DRIVER: &str = "/sys/fs/ext4";
    if !mount.kind.starts_with("ext") || !Path::new(DRIVER).is_dir() {
        return Ok(());
    }
    let block = format!(
        "/sys/dev/block/{}:{}",
        mount.device >> 32,
        mount.device as u32
    );
    let Ok(block) = std::fs::read_link(block) else {
        return Ok(());
    };
    let state = Path::new(DRIVER).join(block.file_name().unwrap_or_default());
    if !state.is_dir() {
        return match mount.kind.as_str() {
            "ext4" => Ok(()),
            kind => not_possible(format!("its driver is not that of ext4, but of {kind}")),
        };
    }
    let errors = std::fs::read_to_string(state.join("errors_count")).unwrap_or_default();
    match mount.has_super_option("ro") && !matches!(errors.trim(), "" | "0") {
        true => not_possible("it is read-only, and there were errors in it"),
        false => Ok(()),
    }
}

/// In a user namespace owners are other numbers than on the device.
fn check_user_namespace() -> Result<(), NotPossible> {
    // No such file: a kernel without user namespaces.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let identity = ["0", "0", "4294967295"];
    match map.is_empty() || map.split_whitespace().eq(identity) {
        true => Ok(()),
        false => not_possible("owners are translated by a user namespace"),
    }
}

/// Buffered for ext4, whose page cache of the device is the truth; past the cache for XFS, of which
/// buffered reads leave copies that grow old.
fn read_start(node: &DeviceNode, kind: LiveKind) -> Result<Vec<u8>, NotPossible> {
    let flags = match kind {
        LiveKind::Ext4 => OFlags::empty(),
        LiveKind::Xfs => OFlags::DIRECT,
    };
    let mut buffer = AlignedBuffer::new(START_BYTES);
    let device = File::options()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(node.path());
    device
        .and_then(|device| device.read_exact_at(&mut buffer, 0))
        .map_err(|error| NotPossible(format!("its device cannot be read: {error}")))?;
    Ok(buffer.to_vec())
}

/// The UUID of the superblock, which is no secret to the kernel either.
fn check_superblock(
    kind: LiveKind,
    start: &[u8],
    mount: &Mount,
    directory: BorrowedFd<'_>,
) -> Result<[u8; 16], NotPossible> {
    let uuid = match kind {
        LiveKind::Ext4 => {
            let bytes = start[1024..2048].try_into().expect("1024 bytes were cut");
            let superblock = ext4::Superblock::parse(bytes)
                .map_err(|error| NotPossible(format!("its superblock: {error}")))?;
            // Kernels show the default that the superblock sets only when asked elsewhere.
            let by_default = superblock.default_data_mode == ext4::DataMode::Journal;
            if by_default && mount.super_option_value("data").is_none() {
                return not_possible(
                    "data=journal is its default: data may be in the journal only",
                );
            }
            superblock.uuid
        }
        LiveKind::Xfs if &start[..4] != b"XFSB" => {
            return not_possible("its device does not begin with a superblock of XFS");
        }
        LiveKind::Xfs => start[32..48].try_into().expect("16 bytes were cut"),
    };
    // Kernels before 6.9 do not tell; then the number of the device must do.
    match filesystem_uuid(directory) {
        Ok(Some(told)) if told != uuid => {
            not_possible("its device holds a file system with another UUID")
        }
        _ => Ok(uuid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_put_data_or_owners_elsewhere_are_refused() {
        let check = |options: &str, super_options: &str| {
            let line = format!("1 1 8:1 / / {options} - xfs /dev/sda1 {super_options}");
            check_options(&Mount::parse(line.as_bytes()).unwrap()).map_err(|why| why.0)
        };
        assert!(check("rw,noatime", "rw,attr2,data=ordered,dax=inode").is_ok());
        for (options, super_options, word) in [
            ("rw", "rw,data=journal", "journal"),
            ("rw", "rw,dax", "dax"),
            ("rw", "ro,dax=always", "dax"),
            ("rw", "rw,rtdev=/dev/sdb", "realtime"),
            ("rw", "rw,logdev=/dev/sdb", "log"),
            ("rw,idmapped", "rw", "owners"),
        ] {
            let why = check(options, super_options).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
