//! Symbolic links, devices, pipes and sockets: no content, so only their metadata needs care.
//!
//! They cannot be opened, so the new inode is held as a place (`O_PATH`) and checked before its
//! owner is changed.

use crate::kernel::make::{checked_stat, device, make_without_content, publish, standing};
use crate::kernel::metadata::{self, TargetInode};
use crate::kernel::outcome::{EntryFailure, EntryOutcome};
use crate::kernel::target::TargetDirectory;
use crate::kernel::worker::Worker;
use crate::losses::LossKind;
use crate::names;
use bale_format::{Entry, Kind};
use bale_pipeline::monitor::Act;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Makes one.
pub fn make(worker: &mut Worker, entry: &Entry) -> Result<EntryOutcome, EntryFailure> {
    match entry.kind {
        Kind::Symlink => {}
        _ if !worker.run.options.specials => {
            worker.lose(LossKind::Special, entry, "not asked for");
            return Ok(EntryOutcome::Skipped);
        }
        _ => {}
    }
    let directory = worker.directory(entry)?;
    let standing = standing(worker, &directory, entry)?;
    if let Some(done) = make_without_content(worker, &directory, entry, &standing)? {
        return Ok(done);
    }
    let part = names::part_name(&entry.name);
    let name = match standing.act {
        Act::Create => &entry.name[..],
        _ => &part[..],
    };
    match create(&directory, name, entry) {
        Ok(()) => {}
        Err(Errno::EXIST) if standing.act != Act::Create => {
            directory.remove_quietly(name);
            create(&directory, name, entry).map_err(EntryFailure::os("create"))?;
        }
        // The program that listens makes its socket anew anyway, so a file system that takes none
        // loses nothing.
        Err(error) if entry.kind == Kind::Socket && is_refusal(error) => {
            worker.lose(LossKind::Socket, entry, "the file system takes no sockets");
            return Ok(EntryOutcome::Skipped);
        }
        Err(Errno::PERM) if entry.kind != Kind::Symlink => {
            worker.lose(LossKind::Special, entry, "only root makes device nodes");
            return Ok(EntryOutcome::Skipped);
        }
        Err(error) => return Err(EntryFailure::os("create")(error)),
    }
    finish(worker, &directory, name, entry).inspect_err(|_| directory.remove_quietly(name))?;
    if standing.act != Act::Create {
        publish(worker, &directory, &part, entry, &standing)
            .inspect_err(|_| directory.remove_quietly(name))?;
    }
    Ok(EntryOutcome::Made)
}

fn is_refusal(error: Errno) -> bool {
    matches!(
        error,
        Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS
    )
}

fn create(directory: &TargetDirectory, name: &[u8], entry: &Entry) -> Result<(), Errno> {
    let kind = match entry.kind {
        Kind::Symlink => return rustix::fs::symlinkat(&entry.target[..], &directory.fd, name),
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::Socket => FileType::Socket,
        _ => FileType::Fifo,
    };
    let number = match kind {
        FileType::Fifo | FileType::Socket => 0,
        _ => device(entry),
    };
    rustix::fs::mknodat(&directory.fd, name, kind, Mode::empty(), number)
}

fn finish(
    worker: &mut Worker,
    directory: &TargetDirectory,
    name: &[u8],
    entry: &Entry,
) -> Result<(), EntryFailure> {
    let place = worker
        .directories
        .open_child(directory, name, OFlags::PATH)
        .map_err(EntryFailure::os("open"))?;
    let stat = checked_new(&place, entry)?;
    metadata::adjust(worker, TargetInode::PathOnly(place.as_fd()), entry, &stat)
}

/// The inode just made has one name and is what was made: nobody put another in its place.
fn checked_new(
    place: &std::os::fd::OwnedFd,
    entry: &Entry,
) -> Result<rustix::fs::Stat, EntryFailure> {
    let one_name = Entry {
        nlink: 1,
        ..entry.clone()
    };
    let stat = checked_stat(place, &one_name)?;
    let same = match entry.kind {
        Kind::Symlink => rustix::fs::readlinkat(place, "", Vec::new())
            .is_ok_and(|target| target.as_bytes() == &entry.target[..]),
        Kind::Fifo | Kind::Socket => true,
        _ => stat.st_rdev == device(entry),
    };
    match same {
        true => Ok(stat),
        false => Err(EntryFailure::text(
            "restore",
            "another process changed it during the restore",
        )),
    }
}
