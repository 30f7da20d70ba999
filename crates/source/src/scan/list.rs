//! Listing one directory.

use super::directory::DirectoryFd;
use super::names::{NAME_BYTES_MAX, Names, NamesSorter, SortedNames};
use super::{BATCH_ENTRIES_MAX, GETDENTS_BYTES, LIST_NAMES_BYTES_MAX};
use bale_pipeline::spill::Spill;
use rustix::fs::{FileType, RawDir, RawDirEntry, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// What a listing gave.
pub(super) struct Listed {
    pub(super) names: ListedNames,
    /// Why names may be missing.
    pub(super) error: Option<io::Error>,
}

/// Names of a directory, sorted.
pub(super) enum ListedNames {
    /// Few enough for one batch.
    Few(Names),
    /// To be cut into batches.
    Many(SortedNames),
}

/// Calls `take` for each name but `.` and `..`, as the file system lists them from where the
/// descriptor is, until it says that it is enough. Names that come or go meanwhile may be there or
/// not.
pub(super) fn each_entry(
    fd: impl AsFd,
    take: &mut dyn FnMut(&RawDirEntry<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(GETDENTS_BYTES);
    let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
    while let Some(next) = entries.next() {
        let entry = match next {
            Ok(entry) => entry,
            // The directory was removed while it was open: it is empty now.
            Err(Errno::NOENT) => break,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && take(&entry).is_break() {
            break;
        }
    }
    Ok(())
}

/// Lists all names. `large` is held while a directory is listed whose names do not fit a worker's
/// share of memory.
pub(super) fn list(fd: &DirectoryFd, spill: Spill<'_>, large: &Mutex<()>) -> Listed {
    let mut names = Names::default();
    let mut error = None;
    if !fd.listable() {
        return Listed {
            names: ListedNames::Few(names),
            error: Some(Errno::ACCESS.into()),
        };
    }
    // The descriptor may have been listed before.
    if let Err(seek) = rustix::fs::seek(fd, SeekFrom::Start(0)) {
        error = Some(seek.into());
    }
    // Of a large directory, with what says that no other one is listed.
    let mut sorter = None;
    let listed = each_entry(fd, &mut |entry| {
        let name = entry.file_name().to_bytes();
        if name.len() > NAME_BYTES_MAX {
            error = Some(Errno::NAMETOOLONG.into());
            return ControlFlow::Continue(());
        }
        let may_be_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        let pushed = match &mut sorter {
            None => {
                names.push_as(name, entry.ino(), may_be_directory);
                if names.bytes() <= LIST_NAMES_BYTES_MAX {
                    return ControlFlow::Continue(());
                }
                let (_held, sorter) = sorter.insert((large.lock(), NamesSorter::new(spill)));
                sorter.take(&mut names)
            }
            Some((_, sorter)) => sorter.push_as(name, entry.ino(), may_be_directory),
        };
        if let Err(sort) = pushed {
            error = Some(sort);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    let error = listed.err().or(error);
    let names = match sorter {
        Some((_held, sorter)) => sorter.finish().map(ListedNames::Many),
        None => {
            names.sort();
            Ok(match names.items.len() <= BATCH_ENTRIES_MAX {
                true => ListedNames::Few(names),
                false => ListedNames::Many(SortedNames::Memory(names, 0)),
            })
        }
    };
    match names {
        Ok(names) => Listed { names, error },
        Err(sort) => Listed {
            names: ListedNames::Few(Names::default()),
            error: Some(sort),
        },
    }
}
