//! A tree in an image or on a device: its file system, mounted for this process alone.
//!
//! The mount hangs in no directory, only on a descriptor, and the loop device goes with its last
//! user: the kernel takes both away when the process ends, however it ends. Between attaching a
//! loop device and telling it so lie two starts of `losetup`; a kill in these milliseconds leaves
//! the device attached, and nothing mounted.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::error::{GenerateError, Result, at_path};

/// What can be mounted: name for the kernel, where its mark is, the mark, an option that it needs.
const KINDS: [(&str, u64, &[u8], Option<&str>); 3] = [
    ("ext4", 1080, b"\x53\xef", None),
    // A copy of an image that is mounted has its UUID.
    ("xfs", 0, b"XFSB", Some("nouuid")),
    ("btrfs", 65_600, b"_BHRfS_M", None),
];

/// What will be done to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    /// It is only read.
    Read,
    /// It changes.
    Write,
}

/// A mounted file system, until this is dropped.
#[derive(Debug)]
pub struct MountedImage {
    image: PathBuf,
    mount: OwnedFd,
}

impl MountedImage {
    /// Mounts the file system that a file or device holds. Nothing else may use it.
    pub fn mount(image: &Path, access: MountAccess) -> Result<MountedImage> {
        let refuse = |why: String| GenerateError::Image {
            path: image.to_owned(),
            why,
        };
        if !rustix::process::geteuid().is_root() {
            return Err(refuse(needs_root(image)));
        }
        let file = File::open(image).map_err(at_path("open", image))?;
        let (kind, option) = kind_of(&file)
            .ok_or_else(|| refuse("holds no complete ext4, XFS or Btrfs file system".to_owned()))?;
        let meta = file.metadata().map_err(at_path("look at", image))?;
        let lent = match meta.file_type().is_block_device() {
            true => None,
            false => Some(LentDevice::attach(image, access).map_err(refuse)?),
        };
        let device = lent.as_ref().map_or(image, |lent| &lent.path);
        let mount = attach(kind, device, option, access).map_err(|errno| {
            refuse(match errno {
                Errno::PERM => needs_root(image),
                Errno::NODEV | Errno::NOSYS => {
                    format!("this kernel mounts no {kind}, or is older than Linux 5.2")
                }
                Errno::BUSY => "is in use".to_owned(),
                other => format!("mount its {kind}: {}", io::Error::from(other)),
            })
        })?;
        Ok(MountedImage {
            image: image.to_owned(),
            mount,
        })
    }

    /// The root of the tree, for this process.
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.mount.as_raw_fd()))
    }

    /// An error that happened below [`MountedImage::root`], with the path that its reader knows.
    pub fn rename(&self, error: GenerateError) -> GenerateError {
        match error {
            GenerateError::Path { what, path, source } => {
                let path = match path.strip_prefix(self.root()) {
                    Ok(below) => self.image.join(below),
                    Err(_) => path,
                };
                GenerateError::Path { what, path, source }
            }
            other => other,
        }
    }

    /// Writes everything out and unmounts. Dropping does the same and tells no errors.
    pub fn unmount(self) -> Result<()> {
        // The mount itself is a path only; its root can be opened and synced.
        let root = File::open(self.root()).map_err(at_path("open", &self.image))?;
        rustix::fs::syncfs(&root).map_err(|errno| at_path("write", &self.image)(errno.into()))
    }
}

fn needs_root(image: &Path) -> String {
    format!(
        "a tree in an image is mounted for this, which needs root: run this with sudo, or mount {} \
         and name the place with -t",
        image.display()
    )
}

fn kind_of(file: &File) -> Option<(&'static str, Option<&'static str>)> {
    let holds = |offset: u64, mark: &[u8]| {
        let mut found = vec![0; mark.len()];
        file.read_exact_at(&mut found, offset).is_ok() && found == mark
    };
    let kind = KINDS
        .iter()
        .find(|(_, offset, mark, _)| holds(*offset, mark))?;
    Some((kind.0, kind.3))
}

fn attach(
    kind: &str,
    device: &Path,
    option: Option<&str>,
    access: MountAccess,
) -> std::result::Result<OwnedFd, Errno> {
    let context = mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    mount::fsconfig_set_string(&context, "source", device)?;
    if let Some(option) = option {
        mount::fsconfig_set_flag(&context, option)?;
    }
    if access == MountAccess::Read {
        mount::fsconfig_set_flag(&context, "ro")?;
    }
    mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A loop device that goes with its last user.
struct LentDevice {
    path: PathBuf,
    /// Its user until it is mounted.
    _open: File,
}

impl LentDevice {
    fn attach(image: &Path, access: MountAccess) -> std::result::Result<LentDevice, String> {
        let mut words = vec![OsStr::new("--find"), OsStr::new("--show")];
        if access == MountAccess::Read {
            words.push(OsStr::new("--read-only"));
        }
        words.extend([OsStr::new("--"), image.as_os_str()]);
        let path = PathBuf::from(losetup(&words)?.trim());
        let open = File::open(&path);
        // While somebody has it open, this only says that it shall go with the last who closes it.
        let told = losetup(&[OsStr::new("--detach"), path.as_os_str()]);
        let open = open.map_err(|error| format!("open {}: {error}", path.display()))?;
        told.map(|_| LentDevice { path, _open: open })
    }
}

fn losetup(words: &[&OsStr]) -> std::result::Result<String, String> {
    let output = Command::new("losetup")
        .args(words)
        .output()
        .map_err(|error| format!("losetup (of util-linux) is needed to mount an image: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
