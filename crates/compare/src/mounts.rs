//! What is mounted and which loop devices there are below a directory, and how to be rid of them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::programs::Programs;

/// A killed child may hold a mount for a moment.
const UNMOUNT_ATTEMPTS: u32 = 25;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(200);

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub point: PathBuf,
    /// `major:minor` of its device.
    pub device_number: String,
    pub kind: String,
    pub source: String,
    /// Options of the mount and of the file system.
    pub options: String,
}

/// All mounts, in the order in which they were made.
pub(super) fn all() -> Vec<Mount> {
    let bytes = fs::read("/proc/self/mountinfo").unwrap_or_default();
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect()
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/x rw,errors=continue`
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |at: usize| {
        fields
            .get(at)
            .map(|field| String::from_utf8_lossy(field).into_owned())
    };
    Some(Mount {
        point: PathBuf::from(unescaped(fields.get(4)?)),
        device_number: text(2)?,
        kind: text(dash + 1)?,
        source: text(dash + 2)?,
        options: format!("{},{}", text(5)?, text(dash + 3)?),
    })
}

/// Spaces and their like stand as `\040` there.
fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(field[at]));
        at += if byte.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(bytes)
}

/// The mount that a path lies on.
pub(super) fn of_path(path: &Path) -> Option<Mount> {
    all()
        .into_iter()
        .rev()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().len())
}

/// Mounts below a directory, the last made first.
pub(super) fn below(directory: &Path) -> Vec<PathBuf> {
    let mounts = all().into_iter().rev().map(|mount| mount.point);
    mounts
        .filter(|point| point.starts_with(directory))
        .collect()
}

/// Loop devices whose file lies, or lay, below a directory.
pub(super) fn loops_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Ok(file) = fs::read(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let file = Path::new(OsStr::from_bytes(file.strip_suffix(b"\n").unwrap_or(&file)));
        if file.starts_with(directory) {
            found.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    found
}

/// Unmounts a path, waiting for those that still let go of it; at last lazily.
pub(super) fn unmount(programs: &Programs, point: &Path) -> super::error::Result<()> {
    for _ in 0..UNMOUNT_ATTEMPTS {
        if programs.run("umount", &[point.as_os_str()]).is_ok() {
            return Ok(());
        }
        std::thread::sleep(UNMOUNT_PAUSE);
    }
    programs
        .run("umount", &[OsStr::new("-l"), point.as_os_str()])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_odd_names() {
        let line = b"36 35 7:0 / /mnt/a\\040b rw,noatime shared:1 master:2 - ext4 /dev/loop0 \
            rw,noinit_itable";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!(
            (mount.kind.as_str(), mount.source.as_str()),
            ("ext4", "/dev/loop0")
        );
        assert_eq!(mount.options, "rw,noatime,rw,noinit_itable");
        assert_eq!(mount.device_number, "7:0");
        assert_eq!(parse(b""), None);
        assert_eq!(unescaped(b"a\\09\\134"), "a\\09\\");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(of_path(Path::new("/")).is_some());
    }
}
