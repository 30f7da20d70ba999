//! Who uses a device or a file while it is read.

use bale_pipeline::users::{is_mounted_read_only, user_of_device, user_of_file};
use bale_sys::open::open_exclusively;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who uses it.
pub(crate) enum Use {
    /// Nobody that is known. A device is held as long as this is: nobody mounts it meanwhile.
    Nobody(#[expect(dead_code, reason = "held")] Option<File>),
    /// Somebody may write to it: text that follows its name.
    Others(String),
}

impl Use {
    /// As it is now.
    pub(crate) fn of(path: &Path, metadata: &Metadata) -> Use {
        if metadata.file_type().is_file() {
            return match user_of_file(path, metadata).or_else(|| unseen_writer(path)) {
                Some(user) => Use::Others(user),
                None => Use::Nobody(None),
            };
        }
        let device = metadata.rdev();
        // What is mounted for reading alone is held by its mount.
        if is_mounted_read_only(device) {
            return Use::Nobody(None);
        }
        if let Some(user) = user_of_device(device) {
            return Use::Others(user);
        }
        match open_exclusively(path, false) {
            Ok(held) => Use::Nobody(Some(held)),
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                Use::Others("or a part of it is in use".to_owned())
            }
            Err(error) => Use::Others(format!("could not be held ({error})")),
        }
    }
}

/// Who has a file open for writing where stores through a map move no time: in memory.
fn unseen_writer(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let is_written = bale_sys::inode::is_in_memory(file.as_fd())
        && bale_sys::lease::is_open_for_writing(file.as_fd()).unwrap_or(true);
    is_written.then(|| "is open for writing in memory, where no time tells of a change".to_owned())
}
