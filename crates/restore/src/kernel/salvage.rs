//! What could be had of a damaged file, where something stands at its name: that stays, for it may
//! be whole, and the salvage gets a name of its own beside it. No salvage takes the place of
//! anything.

use crate::kernel::outcome::EntryFailure;
use crate::kernel::target::TargetDirectory;
use crate::kernel::worker::RestoreRun;
use crate::losses::missing_of;
use crate::names::{SALVAGE_NAMES_MAX, salvage_name};
use bale_format::Entry;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::io::Read;
use std::os::fd::OwnedFd;

/// Bytes compared at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// Gives what was written as `part` a name beside the entry's, and tells both. What is there
/// already, at the entry's name or from a restore before, is not kept twice. `missing`: bytes for
/// which zeros stand, where they are known.
pub fn keep_beside(
    run: &RestoreRun,
    directory: &TargetDirectory,
    part: &[u8],
    entry: &Entry,
    missing: u64,
) -> Result<(), EntryFailure> {
    let gaps = missing_of(entry, missing);
    let text = match place(directory, part, entry)? {
        Some(name) => {
            let name = String::from_utf8_lossy(&name).into_owned();
            format!(
                "{gaps}: the existing file is unchanged, what could be read is beside it as {name}"
            )
        }
        None => format!("{gaps}: the existing file is unchanged, as nothing more could be read"),
    };
    run.problem(&entry.path(), "replace", &text);
    Ok(())
}

fn place(
    directory: &TargetDirectory,
    part: &[u8],
    entry: &Entry,
) -> Result<Option<Vec<u8>>, EntryFailure> {
    if is_same(directory, part, &entry.name) {
        directory.remove_quietly(part);
        return Ok(None);
    }
    for number in 1..=SALVAGE_NAMES_MAX {
        let name = salvage_name(&entry.name, number);
        match rename_to_new(directory, part, &name) {
            Ok(()) => return Ok(Some(name)),
            Err(Errno::EXIST) if is_same(directory, part, &name) => {
                directory.remove_quietly(part);
                return Ok(Some(name));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(EntryFailure::os("keep what could be had of")(error)),
        }
    }
    Err(EntryFailure::text(
        "keep what could be had of",
        "there are a hundred salvages of it already",
    ))
}

fn rename_to_new(directory: &TargetDirectory, part: &[u8], name: &[u8]) -> Result<(), Errno> {
    let (at, flags) = (&directory.fd, RenameFlags::NOREPLACE);
    match rustix::fs::renameat_with(at, part, at, name, flags) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        renamed => return renamed,
    }
    rustix::fs::linkat(at, part, at, name, AtFlags::empty())?;
    rustix::fs::unlinkat(at, part, AtFlags::empty())
}

/// Are these two regular files of the same bytes? What cannot be read is not.
fn is_same(directory: &TargetDirectory, one: &[u8], other: &[u8]) -> bool {
    let open = |name: &[u8]| -> Option<std::fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd: OwnedFd = rustix::fs::openat(&directory.fd, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| fd.into())
    };
    let (Some(mut one), Some(mut other)) = (open(one), open(other)) else {
        return false;
    };
    let len = |file: &std::fs::File| file.metadata().map(|meta| meta.len()).ok();
    if len(&one) != len(&other) {
        return false;
    }
    let (mut left, mut right) = (vec![0; WINDOW_BYTES], vec![0; WINDOW_BYTES]);
    loop {
        let Ok(read) = one.read(&mut left) else {
            return false;
        };
        if read == 0 {
            return true;
        }
        if other.read_exact(&mut right[..read]).is_err() || left[..read] != right[..read] {
            return false;
        }
    }
}
