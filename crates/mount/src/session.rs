//! A mount from its beginning to its end, whoever ends it.

use crate::adapter::{KernelOptions, KernelSession};
use crate::mount_point::{self, HELPER, MountPointError, as_argument, mounted_at};
use crate::tree::SnapshotTree;
use bale_pipeline::secret_variables::withhold_secrets;
use rustix::mount::UnmountFlags;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What became of an attempt to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounting {
    Done,
    /// Somebody has a file open there, or is in one of its directories.
    Busy,
}

/// While it lives, threads answer the kernel. Dropping it leaves the mount where it is.
pub struct MountSession {
    dir: PathBuf,
    /// Of this mount, and no later one at the same place.
    device: Option<String>,
    kernel: KernelSession,
}

impl MountSession {
    /// Mounts a tree.
    pub fn mount(
        dir: &Path,
        tree: &Arc<SnapshotTree>,
        options: &KernelOptions,
    ) -> Result<MountSession, MountPointError> {
        let dir = mount_point::check(dir)?;
        let kernel = KernelSession::start(&dir, tree, options).map_err(MountPointError::Mount)?;
        Ok(MountSession {
            device: mounted_at(&dir),
            dir,
            kernel,
        })
    }

    /// Without links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has somebody unmounted it, and does nobody use it any more?
    pub fn is_over(&self) -> bool {
        self.kernel.is_over()
    }

    /// Is it still to be seen where it was mounted?
    pub fn is_mounted(&self) -> bool {
        self.device.is_some() && mounted_at(&self.dir) == self.device
    }

    /// Unmounts it. Detached, it is gone at once, also while it is in use.
    pub fn unmount(&self, is_detached: bool) -> io::Result<Unmounting> {
        if !self.is_mounted() {
            return Ok(Unmounting::Done);
        }
        if !rustix::process::geteuid().is_root() {
            return self.unmount_by_helper(is_detached);
        }
        let flags = match is_detached {
            true => UnmountFlags::DETACH,
            false => UnmountFlags::empty(),
        };
        match rustix::mount::unmount(&self.dir, flags) {
            Ok(()) => Ok(Unmounting::Done),
            Err(rustix::io::Errno::BUSY) => Ok(Unmounting::Busy),
            // Somebody else was quicker.
            Err(rustix::io::Errno::INVAL) if !self.is_mounted() => Ok(Unmounting::Done),
            Err(error) => Err(error.into()),
        }
    }

    fn unmount_by_helper(&self, is_detached: bool) -> io::Result<Unmounting> {
        let mut helper = Command::new(HELPER);
        withhold_secrets(&mut helper)
            .arg("-u")
            .args(is_detached.then_some("-z"));
        helper
            .arg("--")
            .arg(as_argument(&self.dir))
            .stdin(Stdio::null());
        let output = helper.output()?;
        if output.status.success() || !self.is_mounted() {
            return Ok(Unmounting::Done);
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        match text.to_lowercase().contains("busy") {
            true => Ok(Unmounting::Busy),
            false => Err(io::Error::other(text.trim().to_owned())),
        }
    }
}
