//! Sources that are another directory at the end than at the beginning: what was moved away while
//! it was read is in the snapshot in part, or not at all, and so is what came in its place.

use super::tally::Tally;
use bale_source::scan::Sources;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Major and minor number of the device, and inode.
type Identity = (u32, u32, u64);

/// The directories among the sources, as they were at one moment: 16 bytes for each, and its path.
pub(super) struct SourceDirectories(Vec<(PathBuf, Identity)>);

impl SourceDirectories {
    /// Without sources that are read from a copy: what becomes of them meanwhile is no matter.
    pub(super) fn of(sources: &Sources) -> SourceDirectories {
        let live = sources.paths().iter();
        let live = live.filter(|path| sources.in_copy(path).is_none());
        let directories = live.filter_map(|path| {
            let identity = directory_at(path).ok()??;
            Some((path.clone(), identity))
        });
        SourceDirectories(directories.collect())
    }

    /// A problem for each that is another one now, or none.
    pub(super) fn report_replaced(&self, tally: &Tally<'_>) {
        for (path, before) in &self.0 {
            let text = match directory_at(path) {
                Ok(Some(now)) if now == *before => continue,
                Ok(_) => {
                    "another file or directory came to its path while it was backed up: of what \
                     was there, and of what is there now, something may be missing"
                        .to_owned()
                }
                Err(error) => format!(
                    "it went from its path while it was backed up, and something of it may be \
                     missing: {error}"
                ),
            };
            let bytes = path.as_os_str().as_bytes();
            let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
            tally.report_problem(bytes, "back up", text);
        }
    }
}

/// `None`: it is no directory.
fn directory_at(path: &Path) -> io::Result<Option<Identity>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::INO)?;
    let is_directory = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
    let identity = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    Ok(is_directory.then_some(identity))
}
