//! A file system in an image file on a loop device, mounted and unmounted around every run. Needs
//! root.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::error::{Result, at_path};
use super::mounts;
use super::programs::Programs;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Detached when dropped.
pub(super) struct Volume {
    programs: Programs,
    pub image: PathBuf,
    pub device: PathBuf,
    pub point: PathBuf,
    mount_options: &'static str,
    pub is_direct: bool,
}

impl Volume {
    /// Attaches an image that exists; with direct I/O where the file below allows it, so that
    /// nothing is cached twice.
    pub fn attach(
        programs: &Programs,
        image: PathBuf,
        point: PathBuf,
        mount_options: &'static str,
    ) -> Result<Volume> {
        fs::create_dir_all(&point).map_err(at_path("create", &point))?;
        let attach = |direct: &str| {
            let words = [
                OsStr::new("--find"),
                OsStr::new("--show"),
                OsStr::new(direct),
                image.as_os_str(),
            ];
            programs.run("losetup", &words)
        };
        let (shown, is_direct) = match attach("--direct-io=on") {
            Ok(shown) => (shown, true),
            Err(_) => (attach("--direct-io=off")?, false),
        };
        let device = PathBuf::from(shown.trim());
        Ok(Volume {
            programs: programs.clone(),
            image,
            device,
            point,
            mount_options,
            is_direct,
        })
    }

    pub fn mount(&self) -> Result<()> {
        let words = [
            OsStr::new("-o"),
            OsStr::new(self.mount_options),
            self.device.as_os_str(),
            self.point.as_os_str(),
        ];
        self.programs.run("mount", &words).map(drop)
    }

    pub fn unmount(&self) -> Result<()> {
        while mounts::below(&self.point).contains(&self.point) {
            mounts::unmount(&self.programs, &self.point)?;
        }
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = self.unmount();
        let _ = self
            .programs
            .run("losetup", &[Path::new("-d"), &self.device]);
    }
}

/// Makes an empty sparse file.
pub(super) fn make_sparse(path: &Path, len_bytes: u64) -> Result<()> {
    let file = File::create(path).map_err(at_path("create", path))?;
    file.set_len(len_bytes).map_err(at_path("size", path))
}

/// Writes all caches out.
pub(super) fn sync() {
    rustix::fs::sync();
}

/// Makes the kernel forget what it read. Needs root.
pub(super) fn drop_caches() -> Result<()> {
    sync();
    fs::write(DROP_CACHES, b"3\n").map_err(at_path("write", Path::new(DROP_CACHES)))
}
