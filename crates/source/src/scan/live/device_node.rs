//! A path that opens exactly the block device of a mount.
//!
//! The same bytes read through another device (the whole disk instead of the partition) come
//! through another page cache, which nobody keeps current.

use super::{NotPossible, not_possible};
use crate::scan::mount_table::Mount;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The path; a node of our own is removed with it.
#[derive(Debug)]
pub(super) struct DeviceNode {
    path: PathBuf,
    /// The directory it is alone in.
    made_in: Option<PathBuf>,
}

impl DeviceNode {
    pub(super) fn find(mount: &Mount, scratch: &Path) -> Result<DeviceNode, NotPossible> {
        let (major, minor) = ((mount.device >> 32) as u32, mount.device as u32);
        let number = rustix::fs::makedev(major, minor);
        let numbers = format!("{major}:{minor}");
        let candidates = [
            Some(PathBuf::from(OsStr::from_bytes(&mount.source))),
            Some(Path::new("/dev/block").join(&numbers)),
            name_of(&numbers).map(|name| Path::new("/dev").join(name)),
        ];
        let found = candidates
            .into_iter()
            .flatten()
            .find(|path| path.is_absolute() && is_device(path, number));
        let node = match found {
            Some(path) => DeviceNode {
                path,
                made_in: None,
            },
            None => make(scratch, number).map_err(|error| {
                NotPossible(format!(
                    "there is no node for its device {numbers} in /dev, and none can be made: \
                     {error}"
                ))
            })?,
        };
        match std::fs::File::open(&node.path) {
            Ok(_) => Ok(node),
            Err(error) => not_possible(format!(
                "the device of its file system, {}, cannot be opened: {error} (in a container or \
                 virtual machine without access to it, --scan walk says nothing of this)",
                node.path.display()
            )),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DeviceNode {
    fn drop(&mut self) {
        if let Some(directory) = &self.made_in {
            // What stays behind is an empty directory or a node that only root opens.
            let _ = std::fs::remove_file(&self.path);
            let _ = std::fs::remove_dir(directory);
        }
    }
}

fn is_device(path: &Path, number: u64) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|node| node.file_type().is_block_device() && node.rdev() == number)
}

/// The kernel's name of a device.
fn name_of(numbers: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/dev/block/{numbers}/uevent")).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    name.map(str::to_owned)
}

fn make(scratch: &Path, number: u64) -> std::io::Result<DeviceNode> {
    use std::os::unix::fs::DirBuilderExt;
    let process = rustix::process::getpid().as_raw_nonzero();
    let directory = scratch.join(format!("bale-device-{process}-{number:x}"));
    std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
    let node = DeviceNode {
        path: directory.join("device"),
        made_in: Some(directory),
    };
    let owner = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &node.path, FileType::BlockDevice, owner, number)?;
    Ok(node)
}
