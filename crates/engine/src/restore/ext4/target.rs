//! Where a file system is written: a new file, or a device that nothing uses and that holds nothing.
//!
//! Nothing is opened for writing before the answer is clear. A device is opened exclusively, so the kernel itself refuses
//! one that is mounted, swapped to, or part of something else, and nobody can mount it meanwhile.

use super::image::ImageFile;
use super::signature;
use bale_fsimage::mkext4::Ext4Options;
use bale_sys::open::open_exclusively;
use rustix::fs::{Dev, major, minor};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Front and end of a device that are wiped first: signatures of other kinds lie outside of what ext4 writes.
const WIPED_BYTES: u64 = 256 << 10;

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Nothing was touched.
    #[error("{} {why}", path.display())]
    Refused {
        /// Target.
        path: PathBuf,
        /// What speaks against it.
        why: String,
    },
    /// The kernel refused something.
    #[error("{action} {}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A target that may be written, looked at and not yet touched.
#[derive(Debug)]
pub struct ImageTarget {
    path: PathBuf,
    device_bytes: Option<u64>,
    exists: bool,
    force: bool,
}

impl ImageTarget {
    /// Looks at a path; one that does not exist will be a file. With `force`, what it holds may be lost; what is in use
    /// is refused all the same.
    pub fn look_at(path: &Path, force: bool) -> Result<ImageTarget, TargetError> {
        let target = ImageTarget {
            path: path.to_owned(),
            device_bytes: None,
            exists: true,
            force,
        };
        let meta = match std::fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ImageTarget {
                    exists: false,
                    ..target
                });
            }
            Err(error) => return Err(target.io("look at")(error)),
        };
        if meta.file_type().is_block_device() {
            return target.device(meta.rdev());
        }
        if !meta.is_file() {
            return Err(target.refused("is neither a file nor a block device".to_owned()));
        }
        if let Some(user) = user_of_file(path, &meta) {
            return Err(target.refused(user));
        }
        if meta.len() > 0 && !force {
            return Err(target.refused("exists and is not empty (--force: it is lost)".to_owned()));
        }
        Ok(target)
    }

    fn device(self, device: Dev) -> Result<ImageTarget, TargetError> {
        if let Some(user) = user_of_device(device) {
            return Err(self.refused(user));
        }
        let mut file = open_exclusively(&self.path, false).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => self.refused("is in use".to_owned()),
            _ => self.io("open")(error),
        })?;
        let len = file.seek(SeekFrom::End(0)).map_err(self.io("measure"))?;
        let found = signature::find(&file, len).map_err(self.io("read"))?;
        if let Some(found) = found.filter(|_| !self.force) {
            return Err(self.refused(format!("holds {found} (--force: it is lost)")));
        }
        Ok(ImageTarget {
            device_bytes: Some(len),
            ..self
        })
    }

    /// What follows for the options: a device has its size, and keeps old bytes where nothing is written.
    pub fn apply(&self, options: &mut Ext4Options) {
        options.target_is_zeroed = self.device_bytes.is_none();
        if options.size_bytes.is_none() {
            options.size_bytes = self.device_bytes;
        }
    }

    /// Where temporary files may lie that belong to the image.
    pub fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if self.device_bytes.is_none() && !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    /// Bytes that may be written: the device's size, or what the file system of the file has left.
    pub fn bytes_free(&self) -> Result<u64, TargetError> {
        if let Some(bytes) = self.device_bytes {
            return Ok(bytes);
        }
        let free = rustix::fs::statvfs(self.directory())
            .map_err(|error| self.io("look at the file system of")(error.into()))?;
        Ok(free.f_bavail.saturating_mul(free.f_frsize))
    }

    /// Opens the target for writing: from here on what it held is gone. What was begun is removed when `Unfinished` is
    /// dropped and was not kept.
    pub fn create(self, len_bytes: u64) -> Result<(ImageFile, Unfinished), TargetError> {
        let mut unfinished = Unfinished(None);
        let file = if let Some(device_bytes) = self.device_bytes {
            let file = open_exclusively(&self.path, true).map_err(self.io("open"))?;
            wipe(&file, device_bytes).map_err(self.io("write to"))?;
            file
        } else {
            let mut options = OpenOptions::new();
            options.write(true).read(true);
            match self.exists {
                true => options.truncate(true),
                // Somebody else's file that came meanwhile is not overwritten.
                false => options.create_new(true),
            };
            let file = options.open(&self.path).map_err(self.io("create"))?;
            if !self.exists {
                unfinished.0 = Some(self.path.clone());
            }
            file.set_len(len_bytes).map_err(self.io("extend"))?;
            file
        };
        Ok((ImageFile::new(file), unfinished))
    }

    fn refused(&self, why: String) -> TargetError {
        TargetError::Refused {
            path: self.path.clone(),
            why,
        }
    }

    fn io(&self, action: &'static str) -> impl Fn(io::Error) -> TargetError {
        let path = self.path.clone();
        move |source| TargetError::Io {
            action,
            path: path.clone(),
            source,
        }
    }
}

/// A file that was made for an image: removed unless it is kept. It cannot be mounted before it is finished either way.
#[derive(Debug)]
pub struct Unfinished(Option<PathBuf>);

impl Unfinished {
    /// The file system is complete.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Whoever sees this has been told of the error that led here.
            let _left_behind = std::fs::remove_file(path);
        }
    }
}

fn wipe(file: &File, device_bytes: u64) -> io::Result<()> {
    let zeros = vec![0; WIPED_BYTES.min(device_bytes) as usize];
    file.write_all_at(&zeros, 0)?;
    file.write_all_at(&zeros, device_bytes - zeros.len() as u64)?;
    file.sync_all()
}

/// Who uses this device, as text that follows its path.
fn user_of_device(device: Dev) -> Option<String> {
    let number = format!("{}:{}", major(device), minor(device));
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        if fields.nth(2) == Some(number.as_bytes()) {
            let place = fields.nth(1).unwrap_or_default();
            return Some(format!("is mounted at {}", String::from_utf8_lossy(place)));
        }
    }
    let is_this = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| meta.rdev() == device);
    if swaps().iter().any(|path| is_this(path)) {
        return Some("is swapped to".to_owned());
    }
    let holders = std::fs::read_dir(format!("/sys/dev/block/{number}/holders")).ok()?;
    let holder = holders.flatten().next()?.file_name();
    Some(format!("is part of {}", holder.to_string_lossy()))
}

/// Who uses this file: swap, or a loop device.
fn user_of_file(path: &Path, meta: &std::fs::Metadata) -> Option<String> {
    let is_this = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (meta.dev(), meta.ino()))
    };
    if swaps().iter().any(|path| is_this(path)) {
        return Some("is swapped to".to_owned());
    }
    let real = std::fs::canonicalize(path).ok()?;
    for device in std::fs::read_dir("/sys/block").ok()?.flatten() {
        let behind = std::fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        if behind.strip_suffix(b"\n") == Some(real.as_os_str().as_bytes()) {
            let name = device.file_name();
            return Some(format!("is behind /dev/{}", name.to_string_lossy()));
        }
    }
    None
}

fn swaps() -> Vec<PathBuf> {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let lines = swaps.lines().skip(1);
    lines
        .filter_map(|line| line.split_whitespace().next().map(PathBuf::from))
        .collect()
}
