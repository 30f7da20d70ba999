//! The file systems that entries come from.

use super::identity::promises_inode_numbers;
use super::mount_table::{Mount, MountTable};
use bale_format::entry::Time;
use bale_format::snapshot::{Filesystem, PathText};
use bale_sys::inode::{filesystem_uuid, snapshot_origin};
use bale_sys::open::open_beneath;
use rustix::fs::{CWD, Mode, OFlags};
use std::collections::HashMap;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

/// Kinds that keep files in memory: nothing is ever written back, so a store through a map moves no
/// time.
const IN_MEMORY: [&str; 5] = ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"];

/// What older and newer kernels say of an overlay that never writes back.
const VOLATILE: [&str; 2] = ["volatile", "fsync=volatile"];

/// Snapshots that are mounted: to back them up would store everything once more, each time.
const OWN_MOUNT: &str = "fuse.bale";
/// What stands where others name the device.
const OWN_SOURCE: &[u8] = b"bale";

/// Of a file system that is known by its mount; a longer name is cut.
const NAME_BYTES_MAX: usize = 200;

/// All file systems seen, numbered as they were seen: the walk renumbers them in the order of the
/// stream.
pub(super) struct Filesystems {
    barrier: Time,
    memory_is_racy: bool,
    known: Mutex<SeenFilesystems>,
    mounts: Mutex<SeenMounts>,
    /// By number: files of this file system are always racy.
    always_racy: Mutex<HashMap<u32, bool>>,
}

#[derive(Default)]
struct SeenFilesystems {
    by_device: HashMap<u64, u32>,
    list: Vec<Filesystem>,
}

impl Filesystems {
    pub(super) fn new(barrier: Time) -> Filesystems {
        Filesystems {
            barrier,
            memory_is_racy: true,
            known: Mutex::default(),
            mounts: Mutex::default(),
            always_racy: Mutex::default(),
        }
    }

    /// Tests switch off that files of memory file systems are always racy.
    pub(super) fn with_racy_memory(self, memory_is_racy: bool) -> Filesystems {
        Filesystems {
            memory_is_racy,
            ..self
        }
    }

    /// True if files of this file system are always racy: they may change after they were read and
    /// keep a ctime before the barrier. A store through a mapping stamps when the page becomes
    /// writable, and not again until it was written back; so `syncfs` runs before the first file is
    /// read, and every later store gets a later time.
    pub(super) fn is_always_racy(
        &self,
        number: u32,
        write_back: impl FnOnce() -> std::io::Result<()>,
    ) -> bool {
        let always_racy = || {
            self.always_racy
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(is_always_racy) = always_racy().get(&number) {
            return *is_always_racy;
        }
        let kind = self.get(number).kind;
        *always_racy()
            .entry(number)
            .or_insert_with(|| match IN_MEMORY.contains(&&kind[..]) {
                true => self.memory_is_racy,
                false => write_back().is_err(),
            })
    }

    /// Number of the file system with this device, if it has one by now.
    pub(super) fn known(&self, device: u64) -> Option<u32> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_device.get(&device).copied()
    }

    /// Number of the file system that `name` in a directory is on.
    pub(super) fn number(
        &self,
        device: u64,
        mount: u64,
        directory: BorrowedFd<'_>,
        name: &CStr,
    ) -> u32 {
        self.number_as(device, (device, mount), directory, name)
    }

    /// The same, described as the file system with this device and mount, which `name` leads to.
    pub(super) fn number_as(
        &self,
        device: u64,
        (described, mount): (u64, u64),
        directory: BorrowedFd<'_>,
        name: &CStr,
    ) -> u32 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = known.by_device.get(&device) {
            return *number;
        }
        let number = known.list.len() as u32;
        let mounted = self.mount(described, mount);
        let filesystem = describe_mount(described, mounted, directory, name, self.barrier);
        known.list.push(filesystem);
        known.by_device.insert(device, number);
        number
    }

    /// Takes a file system over that is described already, and was written back if it had to be.
    pub(super) fn adopt(&self, device: u64, filesystem: Filesystem) -> u32 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let number = known.list.len() as u32;
        let mut always_racy = self
            .always_racy
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        always_racy.insert(number, false);
        known.list.push(filesystem);
        known.by_device.insert(device, number);
        number
    }

    fn mount(&self, device: u64, mount: u64) -> Option<Mount> {
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        mounts.find(device, mount)
    }

    /// Is it an overlay that says it has written back, and never does?
    pub(super) fn is_volatile(&self, device: u64, mount: u64) -> bool {
        let mounted = self.mount(device, mount);
        mounted.is_some_and(|mounted| never_writes_back(&mounted))
    }

    /// Are snapshots of a repository mounted there?
    pub(super) fn is_of_bale(&self, device: u64, mount: u64) -> bool {
        let mounted = self.mount(device, mount);
        mounted.is_some_and(|mounted| {
            // Root mounts without the helper that knows kinds of FUSE.
            mounted.kind == OWN_MOUNT || mounted.kind == "fuse" && mounted.source == OWN_SOURCE
        })
    }

    pub(super) fn get(&self, number: u32) -> Filesystem {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.list[number as usize].clone()
    }
}

/// The table of mounts as it was read last. It is read again for a file system or a mount that is
/// not in it: thousands of mounts are thousands of lines, for each of them.
#[derive(Default)]
struct SeenMounts(Option<MountTable>);

impl SeenMounts {
    fn find(&mut self, device: u64, mount: u64) -> Option<Mount> {
        let known = self.0.as_ref().filter(|table| {
            let found = table.find(mount);
            found.is_some_and(|found| found.device == device)
        });
        if known.is_none() {
            self.0 = MountTable::read().ok();
        }
        find_mount(self.0.as_ref()?, device, mount)
    }
}

pub(super) fn describe(
    device: u64,
    mount: u64,
    directory: BorrowedFd<'_>,
    name: &CStr,
    barrier: Time,
) -> Filesystem {
    let mounted = SeenMounts::default().find(device, mount);
    describe_mount(device, mounted, directory, name, barrier)
}

fn describe_mount(
    device: u64,
    mounted: Option<Mount>,
    directory: BorrowedFd<'_>,
    name: &CStr,
    barrier: Time,
) -> Filesystem {
    let mounted = mounted.unwrap_or_default();
    // Opening a directory wakes no device and no FIFO. A mount of a single file is asked about
    // where the rest of its file system is mounted.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut fd = open_beneath(directory, name, flags, Mode::empty()).ok();
    if fd.is_none() {
        let point = std::ffi::OsStr::from_bytes(&mounted.point);
        let opened = rustix::fs::openat(CWD, point, flags, Mode::empty()).ok();
        fd = opened.filter(|fd| device_of(fd.as_fd()) == Some(device));
    }
    let fd = match &fd {
        Some(fd) => Some(fd.as_fd()),
        None => Some(directory).filter(|fd| device_of(*fd) == Some(device)),
    };
    Filesystem {
        uuid: fd.map_or_else(String::new, |fd| uuid_of(fd, device, &mounted)),
        kind: mounted.kind,
        mount: PathText(mounted.point),
        scanner: "walk".to_string(),
        barrier: Some(barrier),
    }
}

fn device_of(fd: BorrowedFd<'_>) -> Option<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?;
    Some(super::identity::identity_of(&stat).device)
}

/// What the file system says of itself, else what udev says of its device, else the id that
/// `statfs` gives, with a hash of what was mounted where others say which numbers there are.
fn uuid_of(fd: BorrowedFd<'_>, device: u64, mounted: &Mount) -> String {
    let kind = &mounted.kind[..];
    let fsid = rustix::fs::fstatvfs(fd).map_or(0, |stat| stat.f_fsid);
    let mut uuid = match filesystem_uuid(fd) {
        Ok(Some(uuid)) => uuid_text(&uuid),
        _ => uuid_of_device(device).unwrap_or_default(),
    };
    // Subvolumes share a UUID and have inode numbers of their own. A snapshot has those of what it
    // is of, and another one is at its path tomorrow.
    let origin = match kind {
        "btrfs" => snapshot_origin(fd).ok().flatten(),
        _ => None,
    };
    match origin {
        Some(origin) => {
            let _ = write!(uuid, "snapshot-of-{}", uuid_text(&origin));
        }
        None if uuid.is_empty() || kind == "btrfs" => {
            let is_named = uuid.is_empty() && !promises_inode_numbers(kind);
            let _ = write!(uuid, "fsid-{fsid:016x}");
            // A program or a server that says 0, as most do, for another one at the same path, with
            // the same numbers.
            if is_named {
                let name = blake3::hash(mount_name(kind, &mounted.source).as_bytes());
                let _ = write!(uuid, "-{}", &name.to_hex()[..16]);
            }
        }
        None => {}
    }
    uuid
}

pub(super) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(super) fn uuid_of_device(device: u64) -> Option<String> {
    let number = rustix::fs::makedev((device >> 32) as u32, device as u32);
    for link in std::fs::read_dir("/dev/disk/by-uuid").ok()?.flatten() {
        if std::fs::metadata(link.path()).is_ok_and(|node| node.rdev() == number) {
            return link.file_name().into_string().ok();
        }
    }
    None
}

fn never_writes_back(mounted: &Mount) -> bool {
    VOLATILE
        .iter()
        .any(|option| mounted.has_super_option(option))
}

/// The line of `mountinfo` that says most: the first where all of the file system is mounted, else
/// that of the mount itself, else the first of its device.
fn find_mount(table: &MountTable, device: u64, mount: u64) -> Option<Mount> {
    let mut of_device = table.of_device(device);
    let found = of_device.find(|mounted| mounted.root == b"/");
    let found = found.or_else(|| table.find(mount));
    found.or_else(|| table.of_device(device).next()).cloned()
}

/// A file system without a device, by what was mounted. Of one device several directories may be
/// mounted, each by a name of its own: exports of one server. `mount` is 0 if it is not known.
pub(super) fn name_of_mount(device: u64, mount: u64) -> Option<String> {
    let table = MountTable::read().ok()?;
    let mut found: Option<&Mount> = None;
    for mounted in table.of_device(device) {
        if found.is_none() || mounted.id == mount {
            found = Some(mounted);
        }
    }
    found.map(|mounted| mount_name(&mounted.kind, &mounted.source))
}

/// `nfs4:server:/export`, or the kind alone if what was mounted has other names at other times.
/// Without secrets.
fn mount_name(kind: &str, source: &[u8]) -> String {
    let source = String::from_utf8_lossy(source);
    let is_device = source.starts_with("/dev/");
    let stable_name = match source.split_once("://") {
        _ if is_device || source.is_empty() => return kind.to_owned(),
        // A snapshot, every night another one.
        _ if kind == "zfs" => source.split('@').next().unwrap_or_default().to_owned(),
        Some((scheme, rest)) => {
            let host = rest.find('/').unwrap_or(rest.len());
            let user = rest[..host].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[user..])
        }
        None => source.into_owned(),
    };
    let mut name = format!("{kind}:{stable_name}");
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_parsed_with_escapes_and_optional_fields() {
        let line =
            b"36 35 98:0 /mnt1 /a\\040b\\134 rw,noatime master:1 shared:2 - ext3 /dev/root rw";
        let parsed = Mount::parse(line).unwrap();
        assert_eq!(
            (parsed.id, parsed.device, &parsed.root[..]),
            (36, 98 << 32, &b"/mnt1"[..])
        );
        assert_eq!(parsed.point, b"/a b\\");
        assert_eq!(parsed.kind, "ext3");
        assert!(!never_writes_back(&parsed));
        for option in ["volatile", "fsync=volatile"] {
            let line = format!("9 8 0:50 / /o rw - overlay overlay rw,upperdir=/u,{option}");
            assert!(never_writes_back(&Mount::parse(line.as_bytes()).unwrap()));
        }
        assert!(Mount::parse(b"").is_none());
        assert!(Mount::parse(b"36 35 98:0 / / rw").is_none());
    }

    #[test]
    fn without_a_device_a_file_system_is_known_by_what_was_mounted() {
        let names = [
            ("nfs4", "server:/export/a", "nfs4:server:/export/a"),
            ("cifs", "//server/share", "cifs://server/share"),
            ("fuse.sshfs", "me@host:/srv", "fuse.sshfs:me@host:/srv"),
            ("tmpfs", "tmpfs", "tmpfs:tmpfs"),
            ("bcachefs", "/dev/sda:/dev/sdb", "bcachefs"),
            ("fuse", "", "fuse"),
            ("zfs", "pool/data@2026-11-23", "zfs:pool/data"),
            ("fuse", "ftp://me:se@cret@host/a@b", "fuse:ftp://host/a@b"),
        ];
        for (kind, source, name) in names {
            assert_eq!(mount_name(kind, source.as_bytes()), name);
        }
        let long = mount_name("fuse.mergerfs", "/ä".repeat(200).as_bytes());
        assert!(
            (NAME_BYTES_MAX - 1..=NAME_BYTES_MAX).contains(&long.len()),
            "{long}"
        );
        let line = b"9 8 0:50 / /o rw shared:2 - nfs4 server:/a\\040b rw,fsync=volatile";
        let mounted = Mount::parse(line).unwrap();
        assert_eq!(mounted.source, b"server:/a b");
        assert!(never_writes_back(&mounted));
    }

    #[test]
    fn uuids_are_written_as_everybody_does() {
        let uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        assert_eq!(uuid_text(&uuid), "00010203-0405-0607-0809-0a0b0c0d0eff");
    }
}
