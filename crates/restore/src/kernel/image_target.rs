//! The file or device that an image is written to.
//!
//! In a directory it is a file of the image's own name, and follows the rules of all files there.
//! Named itself, it is a new file, a file, or a device; then nothing but its bytes is touched, and
//! a file is never cut that was not asked to be. What is in use is refused under any of its names;
//! a device is opened exclusively, so that nobody mounts it meanwhile.

use crate::kernel::make::{TargetState, create, standing};
use crate::kernel::outcome::EntryFailure;
use crate::kernel::target::{TargetDirectory, stat_child};
use crate::kernel::worker::Worker;
use crate::shared_device::user_of_shared;
use crate::{Overwrite, kernel::outcome::Cause};
use bale_format::Entry;
use bale_pipeline::monitor::Act;
use bale_pipeline::users::{is_for_devices, user_of_device, user_of_file};
use bale_sys::cache::forget_cached;
use bale_sys::open::open_exclusively;
use rustix::fs::{FileType, OFlags, Stat};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What may stand at the image's name.
#[derive(Clone, Copy)]
pub enum ImageRule<'p> {
    /// A file of that name in the target.
    InDirectory,
    /// This path itself.
    Named {
        path: &'p Path,
        /// A file that is longer than the image may be cut.
        may_cut: bool,
    },
}

/// A target that is open.
pub struct OpenedTarget {
    pub file: File,
    /// It was made, and holds nothing.
    pub is_new: bool,
    /// Owner, mode and times are the image's.
    pub has_metadata: bool,
}

/// What is to be done.
pub enum ImagePlan {
    Write(OpenedTarget),
    /// It stays as it is.
    Keep,
    Skip,
}

/// Opens the target for writing, or only looks at it in a dry run: then there is none.
pub fn open(
    worker: &mut Worker,
    directory: &TargetDirectory,
    entry: &Entry,
    rule: ImageRule,
) -> Result<ImagePlan, EntryFailure> {
    let found = match rule {
        ImageRule::InDirectory => standing(worker, directory, entry)?,
        ImageRule::Named { .. } => named(worker, directory, entry)?,
    };
    let Some(stat) = &found.stat else {
        return make(directory, entry, rule).map(ImagePlan::Write);
    };
    match found.act {
        Act::Skip => return Ok(ImagePlan::Skip),
        Act::Keep => return Ok(ImagePlan::Keep),
        _ => {}
    }
    let file = match (rule, FileType::from_raw_mode(stat.st_mode)) {
        (ImageRule::Named { path, .. }, FileType::BlockDevice) => device(path, stat, entry)?,
        (_, FileType::RegularFile) => existing(worker, directory, (entry, stat), rule)?,
        _ => return Err(refused("something else stands there: move it away first")),
    };
    Ok(ImagePlan::Write(OpenedTarget {
        file,
        is_new: false,
        has_metadata: matches!(rule, ImageRule::InDirectory),
    }))
}

/// Opens the target for comparing.
pub fn open_to_compare(
    worker: &mut Worker,
    directory: &TargetDirectory,
    entry: &Entry,
    rule: ImageRule,
) -> Result<Option<File>, EntryFailure> {
    let stat = stat_child(directory, &entry.name).map_err(EntryFailure::os("stat"))?;
    let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
    if let (ImageRule::Named { path, .. }, Some(FileType::BlockDevice)) = (rule, kind) {
        let file = File::open(path).map_err(|error| failed("open", &error))?;
        return Ok(Some(file));
    }
    let fd = crate::kernel::read_back::open_file(worker, directory, entry)?;
    Ok(fd.map(File::from))
}

/// What stands at a path that was named: links to it were followed.
fn named(
    worker: &Worker,
    directory: &TargetDirectory,
    entry: &Entry,
) -> Result<TargetState, EntryFailure> {
    let stat = stat_child(directory, &entry.name).map_err(EntryFailure::os("stat"))?;
    let act = match &stat {
        None => Act::Create,
        Some(_) if worker.run.options.overwrite == Overwrite::Never => Act::Skip,
        Some(stat) => {
            worker.run.check_not_in_use(stat)?;
            Act::Replace
        }
    };
    Ok(TargetState { act, stat })
}

fn make(
    directory: &TargetDirectory,
    entry: &Entry,
    rule: ImageRule,
) -> Result<OpenedTarget, EntryFailure> {
    if let ImageRule::Named { path, .. } = rule
        && path.parent().is_some_and(is_for_devices)
    {
        return Err(refused("is not there, and /dev holds no images"));
    }
    let file = create(directory, &entry.name).map_err(EntryFailure::os("create"))?;
    let file = File::from(file);
    // Its owner may go on after an interruption; whoever it is for gets it when it is whole.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
        .map_err(|error| failed("set the mode of", &error))?;
    file.set_len(entry.size)
        .map_err(|error| failed("extend", &error))?;
    Ok(OpenedTarget {
        file,
        is_new: true,
        has_metadata: true,
    })
}

fn existing(
    worker: &mut Worker,
    directory: &TargetDirectory,
    (entry, stat): (&Entry, &Stat),
    rule: ImageRule,
) -> Result<File, EntryFailure> {
    let is_longer = stat.st_size as u64 > entry.size;
    if is_longer && matches!(rule, ImageRule::Named { may_cut: false, .. }) {
        return Err(refused(&format!(
            "the file has {} bytes, the image {}, and nothing is cut off unasked: --force cuts it",
            stat.st_size, entry.size
        )));
    }
    if stat.st_nlink > 1 {
        return Err(refused(
            "the file there has other names: move it away first",
        ));
    }
    let flags = OFlags::RDWR;
    let opened = worker.directories.open_child(directory, &entry.name, flags);
    let file = File::from(opened.map_err(EntryFailure::os("open"))?);
    refuse_user(&file)?;
    file.set_len(entry.size)
        .map_err(|error| failed("set the length of", &error))?;
    Ok(file)
}

/// A file that is mounted, attached or locked.
fn refuse_user(file: &File) -> Result<(), EntryFailure> {
    let meta = file.metadata().map_err(|error| failed("stat", &error))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match user_of_file(Path::new(&path), &meta) {
        Some(user) => Err(refused(&format!("it {user}"))),
        None => Ok(()),
    }
}

/// A device that nobody uses and that has room for the image.
fn device(path: &Path, stat: &Stat, entry: &Entry) -> Result<File, EntryFailure> {
    if let Some(user) = user_of_device(stat.st_rdev) {
        return Err(refused(&format!("it {user}")));
    }
    let mut file = open_exclusively(path, true).map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => refused("it is in use: unmount what is on it first"),
        _ => failed("open", &error),
    })?;
    if let Some(user) = user_of_shared(&file).map_err(|error| failed("read", &error))? {
        return Err(refused(&format!("it {user}")));
    }
    // What is compared is what is on it.
    forget_cached(&file);
    let len = file.seek(SeekFrom::End(0));
    let len = len.map_err(|error| failed("measure", &error))?;
    if len < entry.size {
        return Err(refused(&format!(
            "the device has {len} bytes, the image {}",
            entry.size
        )));
    }
    Ok(file)
}

fn refused(text: &str) -> EntryFailure {
    EntryFailure::text("restore the image", text)
}

fn failed(action: &'static str, error: &std::io::Error) -> EntryFailure {
    match rustix::io::Errno::from_io_error(error) {
        Some(errno) => EntryFailure::os(action)(errno),
        None => EntryFailure {
            action,
            cause: Cause::Text(error.to_string()),
        },
    }
}

/// For what works on descriptors.
pub fn descriptor(file: File) -> OwnedFd {
    file.into()
}
