//! One entry of the target, read again: is it there, and is it what was to be written?

use crate::kernel::metadata::{self, TargetInode};
use crate::kernel::outcome::{EntryFailure, EntryOutcome};
use crate::kernel::target::TargetDirectory;
use crate::kernel::worker::Worker;
use bale_format::Entry;
use rustix::fs::{Advice, FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes compared at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// Opens a regular file of the right length for comparing; `None` if there is none, which has been
/// reported.
pub fn open_file(
    worker: &mut Worker,
    directory: &TargetDirectory,
    entry: &Entry,
) -> Result<Option<OwnedFd>, EntryFailure> {
    let fd = match worker
        .directories
        .open_child(directory, &entry.name, OFlags::RDONLY)
    {
        Ok(fd) => fd,
        Err(error) => {
            let failure = EntryFailure::os("open")(error);
            if failure.is_missing() {
                let _told = missing(worker, entry);
                return Ok(None);
            }
            return Err(failure);
        }
    };
    let stat = rustix::fs::fstat(&fd).map_err(EntryFailure::os("stat"))?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !regular || stat.st_size as u64 != entry.size {
        let text = match regular {
            true => format!("{} bytes, should be {}", stat.st_size, entry.size),
            false => "it is not a regular file".to_owned(),
        };
        worker.run.problem(&entry.path(), "verify", &text);
        return Ok(None);
    }
    // What the page cache holds is what was written, not what the device kept.
    let _advice_only = rustix::fs::fadvise(&fd, 0, None, Advice::DontNeed);
    Ok(Some(fd))
}

/// Compares metadata and reports what differs.
pub fn metadata_of(
    worker: &mut Worker,
    fd: &OwnedFd,
    entry: &Entry,
) -> Result<EntryOutcome, EntryFailure> {
    let stat = rustix::fs::fstat(fd).map_err(EntryFailure::os("stat"))?;
    differences(worker, TargetInode::Open(fd.as_fd()), entry, &stat)
}

/// The same of an inode that may not be open.
pub fn differences(
    worker: &mut Worker,
    inode: TargetInode,
    entry: &Entry,
    stat: &rustix::fs::Stat,
) -> Result<EntryOutcome, EntryFailure> {
    let words = metadata::compare(worker, inode, entry, stat)?;
    if words.is_empty() {
        return Ok(EntryOutcome::Kept);
    }
    worker.run.problem(&entry.path(), "verify", &words);
    Ok(EntryOutcome::Different)
}

/// Are these the bytes at `offset`?
pub fn same_at(fd: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<(), EntryFailure> {
    let mut buffer = vec![0; WINDOW_BYTES.min(bytes.len())];
    let mut done = 0;
    while done < bytes.len() {
        let window = &mut buffer[..WINDOW_BYTES.min(bytes.len() - done)];
        let at = offset + done as u64;
        let len = match rustix::io::pread(fd, &mut window[..], at) {
            Ok(len) => len,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(EntryFailure::os("read")(error)),
        };
        if len == 0 || window[..len] != bytes[done..done + len] {
            return Err(EntryFailure::text(
                "verify",
                format!("content differs after byte {at}"),
            ));
        }
        done += len;
    }
    Ok(())
}

/// Does this stretch read as zeros? Holes are skipped.
pub fn is_zero(fd: &OwnedFd, offset: u64, length: u64) -> bool {
    let end = offset + length;
    let mut at = offset;
    let mut buffer = vec![0; WINDOW_BYTES];
    while at < end {
        match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(data) if data >= end => return true,
            Ok(data) => at = data,
            Err(Errno::NXIO) => return true,
            Err(_) => {}
        }
        let window = WINDOW_BYTES.min(usize::try_from(end - at).unwrap_or(WINDOW_BYTES));
        match rustix::io::pread(fd, &mut buffer[..window], at) {
            Ok(0) => return true,
            Ok(len) if buffer[..len].iter().any(|byte| *byte != 0) => return false,
            Ok(len) => at += len as u64,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Reports that an entry is not in the target.
pub fn missing(worker: &Worker, entry: &Entry) -> EntryOutcome {
    worker
        .run
        .problem(&entry.path(), "verify", "it is not there");
    EntryOutcome::Different
}
