//! What could be had of a damaged file, where something stands at its name: that stays, for it may
//! be whole, and the salvage gets a name of its own beside it. No salvage takes the place of
//! anything.

use crate::kernel::make;
use crate::kernel::target::TargetDirectory;
use crate::kernel::worker::{EntryFailure, RestoreRun};
use crate::names::NAME_BYTES_MAX;
use bale_format::Entry;
use bale_pipeline::amount;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::io::Read;
use std::os::fd::OwnedFd;

/// Added to the name of a file.
const SUFFIX: &str = ".bale-salvaged";

/// Names that are tried.
const NAMES_MAX: u32 = 100;

/// Bytes compared at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// The salvage's name: the first one, and then numbered ones.
fn name_of(name: &[u8], number: u32) -> Vec<u8> {
    let suffix = match number {
        1 => SUFFIX.to_owned(),
        number => format!("{SUFFIX}.{number}"),
    };
    let kept = name.len().min(NAME_BYTES_MAX - suffix.len());
    [&name[..kept], suffix.as_bytes()].concat()
}

/// Does a name look like one that a restore gave to a salvage?
pub fn is_name_of_one(name: &[u8]) -> bool {
    let suffix = SUFFIX.as_bytes();
    let is_digit_or_dot = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let end = name.iter().rposition(|byte| !is_digit_or_dot(byte));
    let end = end.map_or(0, |last| last + 1);
    let number = std::str::from_utf8(&name[end..]).unwrap_or_default();
    let is_numbered = || {
        let number = number
            .strip_prefix('.')
            .and_then(|number| number.parse().ok());
        number.is_some_and(|number: u32| (2..=NAMES_MAX).contains(&number))
    };
    name[..end].ends_with(suffix) && (number.is_empty() || is_numbered())
}

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
            format!("{gaps}: what stood there stays, and what could be had is beside it as {name}")
        }
        None => format!("{gaps}: what stood there stays, and is all that could be had"),
    };
    run.problem(&entry.path(), "replace", &text);
    Ok(())
}

/// How much of a file is missing, in words.
pub fn missing_of(entry: &Entry, missing: u64) -> String {
    match missing {
        0 => "part of it is missing".to_owned(),
        missing => format!(
            "part of it is missing, {} of {} {}",
            amount::count(missing),
            amount::counted(entry.size, "byte"),
            if missing == 1 {
                "is a zero"
            } else {
                "are zeros"
            },
        ),
    }
}

fn place(
    directory: &TargetDirectory,
    part: &[u8],
    entry: &Entry,
) -> Result<Option<Vec<u8>>, EntryFailure> {
    if is_same(directory, part, &entry.name) {
        make::remove_quietly(directory, part);
        return Ok(None);
    }
    for number in 1..=NAMES_MAX {
        let name = name_of(&entry.name, number);
        match rename_to_new(directory, part, &name) {
            Ok(()) => return Ok(Some(name)),
            Err(Errno::EXIST) if is_same(directory, part, &name) => {
                make::remove_quietly(directory, part);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_salvages_are_names() {
        assert_eq!(name_of(b"a", 1), b"a.bale-salvaged");
        assert_eq!(name_of(b"a", 2), b"a.bale-salvaged.2");
        for number in [1, NAMES_MAX] {
            let name = name_of(&[b'x'; 255], number);
            assert_eq!(name.len(), NAME_BYTES_MAX);
            assert!(is_name_of_one(&name));
        }
        for other in [
            "",
            "a",
            ".2",
            "a.2",
            "bale-salvaged",
            "a.bale-salvaged.x",
            "a.bale-salvaged.1",
        ] {
            assert!(!is_name_of_one(other.as_bytes()), "{other}");
        }
    }
}
