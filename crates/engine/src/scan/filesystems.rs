//! The file systems that entries come from.

use bale_format::entry::Time;
use bale_format::snapshot::{Filesystem, PathText};
use bale_sys::inode::filesystem_uuid;
use bale_sys::open::open_beneath;
use rustix::fs::{CWD, Mode, OFlags};
use std::collections::HashMap;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

/// Kinds that keep files in memory: nothing is ever written back, so a store through a map moves no time.
const IN_MEMORY: [&str; 5] = ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"];

/// What older and newer kernels say of an overlay that never writes back.
const VOLATILE: [&[u8]; 2] = [b"volatile", b"fsync=volatile"];

/// Of a file system that is known by its mount; a longer name is cut.
const NAME_BYTES_MAX: usize = 200;

/// All file systems seen, numbered as they were seen: the walk renumbers them in the order of the stream.
pub(super) struct Filesystems {
    barrier: Time,
    doubt_memory: bool,
    known: Mutex<Known>,
    /// Whether files may change without a trace in their times, of file systems with files.
    doubts: Mutex<HashMap<u32, bool>>,
}

#[derive(Default)]
struct Known {
    by_device: HashMap<u64, u32>,
    list: Vec<Filesystem>,
}

impl Filesystems {
    pub(super) fn new(barrier: Time) -> Filesystems {
        Filesystems {
            barrier,
            doubt_memory: true,
            known: Mutex::default(),
            doubts: Mutex::default(),
        }
    }

    /// The same; false: what is in memory is taken to be as good as what is on a disk.
    pub(super) fn doubting_memory(self, doubt_memory: bool) -> Filesystems {
        Filesystems {
            doubt_memory,
            ..self
        }
    }

    /// May a file of this file system change after it was read, and leave a time from before the barrier?
    ///
    /// A store through a map stamps when its page becomes writable, and not again before the page was written back. So what
    /// is in memory is written back before the first file is read: every later store has a later time. What was stamped
    /// before is on the disk then, and nothing that a crash could take back.
    pub(super) fn is_in_doubt(
        &self,
        number: u32,
        write_back: impl FnOnce() -> std::io::Result<()>,
    ) -> bool {
        let doubts = || self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_in_doubt) = doubts().get(&number) {
            return *is_in_doubt;
        }
        let kind = self.get(number).kind;
        *doubts()
            .entry(number)
            .or_insert_with(|| match IN_MEMORY.contains(&&kind[..]) {
                true => self.doubt_memory,
                false => write_back().is_err(),
            })
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
        let filesystem = describe(described, mount, directory, name, self.barrier);
        known.list.push(filesystem);
        known.by_device.insert(device, number);
        number
    }

    /// Takes a file system over that is described already, and was written back if it had to be.
    pub(super) fn adopt(&self, device: u64, filesystem: Filesystem) -> u32 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let number = known.list.len() as u32;
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        doubts.insert(number, false);
        known.list.push(filesystem);
        known.by_device.insert(device, number);
        number
    }

    pub(super) fn get(&self, number: u32) -> Filesystem {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.list[number as usize].clone()
    }
}

pub(super) fn describe(
    device: u64,
    mount: u64,
    directory: BorrowedFd<'_>,
    name: &CStr,
    barrier: Time,
) -> Filesystem {
    let mounted = find_mount(device, mount).unwrap_or_default();
    // Opening a directory wakes no device and no FIFO. A mount of a single file is asked about where the rest of its
    // file system is mounted.
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
        uuid: fd.map_or_else(String::new, |fd| uuid_of(fd, device, &mounted.kind)),
        kind: mounted.kind,
        mount: PathText(mounted.point),
        scanner: "walk".to_string(),
        barrier: Some(barrier),
    }
}

fn device_of(fd: BorrowedFd<'_>) -> Option<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?;
    Some(super::directory::identity_of(&stat).device)
}

/// What the file system says of itself, else what udev says of its device, else the id that `statfs` gives.
fn uuid_of(fd: BorrowedFd<'_>, device: u64, kind: &str) -> String {
    let fsid = rustix::fs::fstatvfs(fd).map_or(0, |stat| stat.f_fsid);
    let mut uuid = match filesystem_uuid(fd) {
        Ok(Some(uuid)) => uuid_text(&uuid),
        _ => uuid_of_device(device).unwrap_or_default(),
    };
    // Subvolumes share a UUID and have inode numbers of their own.
    if uuid.is_empty() || kind == "btrfs" {
        let _ = write!(uuid, "fsid-{fsid:016x}");
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

#[derive(Default)]
struct Mounted {
    kind: String,
    point: Vec<u8>,
    /// What was said to be mounted.
    source: Vec<u8>,
    is_volatile: bool,
}

/// Is it an overlay that says it has written back, and never does?
pub(super) fn is_volatile(device: u64, mount: u64) -> bool {
    find_mount(device, mount).is_some_and(|mounted| mounted.is_volatile)
}

/// The line of `mountinfo` that tells most: the first where all of the file system is mounted, else that of the mount
/// itself, else the first of its device.
fn find_mount(device: u64, mount: u64) -> Option<Mounted> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let number = format!("{}:{}", device >> 32, device as u32);
    let lines = || table.split(|byte| *byte == b'\n').filter_map(parse_mount);
    let of_device = || lines().filter(|line| line.device == number.as_bytes());
    of_device()
        .find(|line| line.root == b"/")
        .or_else(|| lines().find(|line| line.id == mount))
        .or_else(|| of_device().next())
        .map(|line| line.mounted)
}

/// A file system without a device, by what was mounted. Of one device several directories may be mounted, each by a name of
/// its own: exports of one server. `mount` is 0 if it is not known.
pub(super) fn name_of_mount(device: u64, mount: u64) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let number = format!("{}:{}", device >> 32, device as u32);
    let of_device = table
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount)
        .filter(|line| line.device == number.as_bytes());
    let mut found: Option<MountLine> = None;
    for line in of_device {
        if found.is_none() || line.id == mount {
            found = Some(line);
        }
    }
    found.map(|line| mount_name(&line.mounted.kind, &line.mounted.source))
}

struct MountLine<'a> {
    id: u64,
    device: &'a [u8],
    root: &'a [u8],
    mounted: Mounted,
}

/// `nfs4:server:/export`, or the kind alone if what was mounted has other names at other times. Without secrets.
fn mount_name(kind: &str, source: &[u8]) -> String {
    let source = String::from_utf8_lossy(source);
    let is_device = source.starts_with("/dev/");
    let lasting = match source.split_once("://") {
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
    let mut name = format!("{kind}:{lasting}");
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

/// `id parent major:minor root point options [fields] - kind source options`
fn parse_mount(line: &[u8]) -> Option<MountLine<'_>> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = fields.nth(1)?;
    let root = fields.next()?;
    let point = unescape(fields.next()?);
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next().unwrap_or_default());
    let mut options = fields
        .next()
        .unwrap_or_default()
        .split(|byte| *byte == b',');
    let is_volatile = options.any(|option| VOLATILE.contains(&option));
    Some(MountLine {
        id,
        device,
        root,
        mounted: Mounted {
            kind,
            point,
            source,
            is_volatile,
        },
    })
}

/// Undoes `\040` and the like.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 4).filter(|_| text[at] == b'\\');
        let value = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(value.unwrap_or(text[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_parsed_with_escapes_and_optional_fields() {
        let line =
            b"36 35 98:0 /mnt1 /a\\040b\\134 rw,noatime master:1 shared:2 - ext3 /dev/root rw";
        let parsed = parse_mount(line).unwrap();
        assert_eq!(
            (parsed.id, parsed.device, parsed.root),
            (36, &b"98:0"[..], &b"/mnt1"[..])
        );
        assert_eq!(parsed.mounted.point, b"/a b\\");
        assert_eq!(parsed.mounted.kind, "ext3");
        assert!(!parsed.mounted.is_volatile);
        for option in ["volatile", "fsync=volatile"] {
            let line = format!("9 8 0:50 / /o rw - overlay overlay rw,upperdir=/u,{option}");
            assert!(parse_mount(line.as_bytes()).unwrap().mounted.is_volatile);
        }
        assert!(parse_mount(b"").is_none());
        assert!(parse_mount(b"36 35 98:0 / / rw").is_none());
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
        let mounted = parse_mount(line).unwrap().mounted;
        assert_eq!(mounted.source, b"server:/a b");
        assert!(mounted.is_volatile);
    }

    #[test]
    fn uuids_are_written_as_everybody_does() {
        let uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        assert_eq!(uuid_text(&uuid), "00010203-0405-0607-0809-0a0b0c0d0eff");
    }
}
