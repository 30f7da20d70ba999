//! Where a file system is written: a new file, or a device that nothing uses and that holds
//! nothing.
//!
//! What is in use is refused under any of its names (`users`), and so is a file among devices,
//! which is a misspelt one. A new file is for its owner alone: it holds what others may not read.
//!
//! Nothing is opened for writing before the answer is clear. A device is opened exclusively, so the
//! kernel itself refuses one that is mounted, swapped to, or part of something else, and nobody can
//! mount it meanwhile.

use super::image::ImageFile;
use super::signature;
use crate::shared_device::user_of_shared;
use bale_fsimage::mkext4::Ext4Options;
use bale_pipeline::users::{is_for_devices, user_of_device, user_of_file};
use bale_sys::open::open_exclusively;
use rustix::fs::Dev;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Front and end of a device that are wiped first: signatures of other kinds lie outside of what
/// ext4 writes.
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
        path: PathBuf,
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
    /// Looks at a path; one that does not exist will be a file. With `force`, what it holds may be
    /// lost; what is in use is refused all the same.
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
                if is_for_devices(target.directory()) {
                    return Err(target.refused("is not there, and /dev holds no images".to_owned()));
                }
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
        if is_for_devices(target.directory()) {
            return Err(target.refused("is a file among devices, and no device".to_owned()));
        }
        if let Some(user) = user_of_file(path, &meta) {
            return Err(target.refused(user));
        }
        if meta.len() > 0 && !force {
            return Err(
                target.refused("exists and is not empty (--force overwrites it)".to_owned())
            );
        }
        let file = File::open(path).map_err(target.io("open"))?;
        target.refuse_user_elsewhere(&file)?;
        Ok(target)
    }

    /// Of other machines this one knows what is written on the target alone.
    fn refuse_user_elsewhere(&self, target: &File) -> Result<(), TargetError> {
        match user_of_shared(target).map_err(self.io("read"))? {
            Some(user) => Err(self.refused(user.to_owned())),
            None => Ok(()),
        }
    }

    fn device(self, device: Dev) -> Result<ImageTarget, TargetError> {
        if let Some(user) = user_of_device(device) {
            return Err(self.refused(user));
        }
        let mut file = open_exclusively(&self.path, false).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => self.refused("is in use".to_owned()),
            _ => self.io("open")(error),
        })?;
        self.refuse_user_elsewhere(&file)?;
        let len = file.seek(SeekFrom::End(0)).map_err(self.io("measure"))?;
        let found = signature::find(&file, len).map_err(self.io("read"))?;
        if let Some(found) = found.filter(|_| !self.force) {
            return Err(self.refused(format!("holds {found} (--force overwrites it)")));
        }
        Ok(ImageTarget {
            device_bytes: Some(len),
            ..self
        })
    }

    /// What follows for the options: a device has its size, and keeps old bytes where nothing is
    /// written.
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

    /// Opens the target for writing: from here on what it held is gone. What was begun is removed
    /// when `Unfinished` is dropped and was not kept.
    pub fn create(self, len_bytes: u64) -> Result<(ImageFile, Unfinished), TargetError> {
        let mut unfinished = Unfinished(None);
        let file = if let Some(device_bytes) = self.device_bytes {
            let file = open_exclusively(&self.path, true).map_err(self.io("open"))?;
            wipe(&file, device_bytes).map_err(self.io("write to"))?;
            file
        } else {
            let mut options = OpenOptions::new();
            options.write(true).read(true).mode(0o600);
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

/// A file that was made for an image: removed unless it is kept. It cannot be mounted before it is
/// finished either way.
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
