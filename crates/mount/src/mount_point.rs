//! The directory to mount on: what must be so before, and what is mounted there.

use bale_pipeline::secret_variables::withhold_secrets;
use rustix::fs::Access;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the kernel lists what is mounted.
const MOUNTS: &str = "/proc/self/mountinfo";
const DEVICE: &str = "/dev/fuse";
/// Mounts and unmounts for users that may not.
pub const HELPER: &str = "fusermount3";

/// Why nothing can be mounted there, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountPointError {
    #[error("there is no such directory: make it (mkdir) and mount again")]
    Missing,
    #[error("it is no directory: name an empty one")]
    NoDirectory,
    #[error("it is not empty, and a mount would hide what is in it: name an empty directory")]
    NotEmpty,
    #[error(
        "something is mounted there already: name another directory, or unmount it first \
         (fusermount3 -u, umount)"
    )]
    Mounted,
    #[error(
        "a mount was left there by a program that is gone: unmount it first (fusermount3 -u, or \
         umount -l)"
    )]
    LeftBehind,
    #[error(
        "there is no {DEVICE}: this needs FUSE (modprobe fuse; in a container, its device passed \
         in and the right to mount)"
    )]
    NoDevice,
    #[error(
        "there is no {HELPER}, which mounts for users that are not root: install fuse3, or mount \
         as root"
    )]
    NoHelper,
    #[error(
        "this user may not open {DEVICE}: let it (chmod 666 {DEVICE}, as most systems have it), or \
         mount as root"
    )]
    NotAllowed,
    #[error("look at it")]
    Look(#[source] io::Error),
    #[error("mount")]
    Mount(#[source] io::Error),
}

/// The path of the directory without links, if something can be mounted there.
pub fn check(dir: &Path) -> Result<PathBuf, MountPointError> {
    let found = std::fs::metadata(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountPointError::Missing,
        io::ErrorKind::NotConnected => MountPointError::LeftBehind,
        _ => MountPointError::Look(error),
    })?;
    if !found.is_dir() {
        return Err(MountPointError::NoDirectory);
    }
    let dir = dir.canonicalize().map_err(MountPointError::Look)?;
    if mounted_at(&dir).is_some() {
        return Err(MountPointError::Mounted);
    }
    let mut entries = std::fs::read_dir(&dir).map_err(MountPointError::Look)?;
    if entries.next().is_some() {
        return Err(MountPointError::NotEmpty);
    }
    if !Path::new(DEVICE).exists() {
        return Err(MountPointError::NoDevice);
    }
    if !rustix::process::geteuid().is_root() && !has_helper() {
        return Err(MountPointError::NoHelper);
    }
    if rustix::fs::access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_err() {
        return Err(MountPointError::NotAllowed);
    }
    Ok(dir)
}

fn has_helper() -> bool {
    let mut helper = Command::new(HELPER);
    withhold_secrets(&mut helper)
        .arg("--version")
        .stdin(Stdio::null());
    helper.stdout(Stdio::null()).stderr(Stdio::null());
    helper.status().is_ok_and(|status| status.success())
}

/// The device number of what is mounted there last, as the kernel prints it.
pub fn mounted_at(dir: &Path) -> Option<String> {
    let mounts = std::fs::read(MOUNTS).ok()?;
    last_mount_of(&mounts, dir)
}

fn last_mount_of(mounts: &[u8], dir: &Path) -> Option<String> {
    let lines = mounts.split(|byte| *byte == b'\n');
    let mut found = lines.filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = fields.nth(2)?;
        let point = unescaped(fields.nth(1)?);
        (point == dir).then(|| String::from_utf8_lossy(device).into_owned())
    });
    found.next_back()
}

/// Spaces and the like are `\040` there.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match (byte, digits) {
            (b'\\', Some(code)) => {
                path.push(code);
                rest = &behind[3..];
            }
            _ => {
                path.push(*byte);
                rest = behind;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

/// As the helper takes it: a path that begins with a dash is no option.
pub fn as_argument(dir: &Path) -> &OsStr {
    OsStr::from_bytes(dir.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_of_a_directory_is_found_by_any_name() {
        let mounts = b"22 1 0:21 / /a rw - tmpfs tmpfs rw\n\
            23 1 0:45 / /a\\040b\\134c rw - fuse.bale bale rw\n\
            24 1 0:46 / /a rw - fuse bale rw\n";
        let found = |dir: &str| last_mount_of(mounts, Path::new(dir));
        assert_eq!(found("/a"), Some("0:46".to_owned()));
        assert_eq!(found("/a b\\c"), Some("0:45".to_owned()));
        assert_eq!(found("/b"), None);
    }

    #[test]
    fn what_is_wrong_with_a_directory_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let missing = check(&dir.path().join("missing"));
        assert!(matches!(missing, Err(MountPointError::Missing)));
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(matches!(check(&file), Err(MountPointError::NoDirectory)));
        assert!(matches!(check(dir.path()), Err(MountPointError::NotEmpty)));
        let mounted = check(Path::new("/proc"));
        assert!(matches!(mounted, Err(MountPointError::Mounted)));
    }
}
