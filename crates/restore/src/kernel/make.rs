//! Making one file whose bytes are at hand: the path that a million small files take.
//!
//! Into a fresh target that is create, write, mode, times, close, and owner or attributes only
//! where they differ from what the creation gave. Where something stands at the name already, the
//! new file is made beside it and renamed over it.

use crate::kernel::outcome::{EntryFailure, EntryOutcome};
use crate::kernel::target::{TargetDirectory, stat_child};
use crate::kernel::worker::{FetchedChunk, Worker};
use crate::kernel::{delete, metadata, salvage, times};
use crate::{Overwrite, names, pieces, row};
use bale_format::{Content, Entry, EntryFlags, Kind};
use bale_pipeline::monitor::Act;
use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Why something stays in the place of a file of which a part is missing.
pub const UNREAD_STAYS: &str =
    "part of its content could not be read by the backup: what stands there stays";

/// What stands at an entry's name and what shall become of it.
pub struct TargetState {
    pub act: Act,
    pub stat: Option<Stat>,
}

/// Looks at what is there, and decides.
pub fn standing(
    worker: &Worker,
    directory: &TargetDirectory,
    entry: &Entry,
) -> Result<TargetState, EntryFailure> {
    let stat = stat_child(directory, &entry.name).map_err(EntryFailure::os("stat"))?;
    let only_metadata = worker.run.options.overwrite == Overwrite::MetadataOnly;
    let act = match &stat {
        stat if only_metadata => {
            require_kind(stat.as_ref(), entry)?;
            Act::Keep
        }
        None => Act::Create,
        Some(_) if worker.run.options.overwrite == Overwrite::Never => Act::Skip,
        Some(stat) => match equal(worker, directory, entry, stat)? {
            true => Act::Keep,
            false => {
                worker.run.check_not_in_use(stat)?;
                Act::Replace
            }
        },
    };
    Ok(TargetState { act, stat })
}

/// Where nothing is made and nothing replaced.
pub fn require_kind(stat: Option<&Stat>, entry: &Entry) -> Result<(), EntryFailure> {
    let kind = |mode: u32| FileType::from_raw_mode(mode);
    let text = match stat {
        None => "it is not there, and only metadata is restored",
        Some(stat) if kind(stat.st_mode) != kind(entry.kind.mode_bits()) => {
            "something of another kind is there, and only metadata is restored"
        }
        // A file that nobody asked us to touch may be the same inode.
        Some(stat) if entry.kind == Kind::File && stat.st_nlink > 1 && entry.nlink == 1 => {
            "it has other names now, which may be somebody else's"
        }
        // Nobody becomes the owner of a file by giving it a name here.
        Some(stat)
            if entry.kind == Kind::File
                && stat.st_nlink > 1
                && (stat.st_uid, stat.st_gid) != (entry.uid, entry.gid) =>
        {
            "it has several names and is somebody else's: one of them may be in another place"
        }
        Some(_) => return Ok(()),
    };
    Err(EntryFailure::text("restore the metadata", text))
}

/// Is what stands there this entry, so that looking after its metadata is enough?
fn equal(
    worker: &Worker,
    directory: &TargetDirectory,
    entry: &Entry,
    stat: &Stat,
) -> Result<bool, EntryFailure> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::from_raw_mode(entry.kind.mode_bits()) {
        return Ok(false);
    }
    // An inode with other names may be a file that nobody asked us to touch.
    if stat.st_nlink > 1 && (entry.nlink == 1 || metadata::differs(entry, stat)) {
        return Ok(false);
    }
    Ok(match entry.kind {
        Kind::File => {
            worker.run.options.overwrite == Overwrite::IfChanged
                && stat.st_size as u64 == entry.size
                && times::mtime_of(stat) == (entry.mtime.seconds, entry.mtime.nanos)
        }
        Kind::Symlink => {
            let target = rustix::fs::readlinkat(&directory.fd, &entry.name[..], Vec::new())
                .map_err(EntryFailure::os("read the link"))?;
            target.as_bytes() == &entry.target[..]
        }
        Kind::BlockDevice | Kind::CharDevice => stat.st_rdev == device(entry),
        Kind::Fifo | Kind::Socket => true,
        Kind::Directory | Kind::Extent => false,
    })
}

/// The kernel's number of a device entry.
pub fn device(entry: &Entry) -> u64 {
    rustix::fs::makedev((entry.rdev >> 32) as u32, entry.rdev as u32)
}

/// A file that lies inside a chunk, or an empty one (`slot` is not asked).
pub fn file(
    worker: &mut Worker,
    entry: &Entry,
    slot: &FetchedChunk,
) -> Result<EntryOutcome, EntryFailure> {
    let directory = worker.directory(entry)?;
    let mut standing = TargetState {
        act: Act::Create,
        stat: None,
    };
    if !worker.run.target.fresh {
        standing = self::standing(worker, &directory, entry)?;
    }
    if let Some(done) = make_without_content(worker, &directory, entry, &standing)? {
        return Ok(done);
    }
    let bytes = bytes_of(worker, entry, slot)?;
    if standing.act == Act::Create {
        match create(&directory, &entry.name) {
            Ok(fd) => return fill(worker, &directory, &entry.name, fd, entry, &bytes),
            Err(Errno::EXIST) => standing = self::standing(worker, &directory, entry)?,
            Err(error) => return Err(EntryFailure::os("create")(error)),
        }
        if let Some(done) = make_without_content(worker, &directory, entry, &standing)? {
            return Ok(done);
        }
    }
    let (part, fd) = create_part(&directory, &entry.name)?;
    if entry.flags.has(EntryFlags::INCOMPLETE) && standing.stat.is_some() {
        fill_unsealed(worker, &directory, fd.as_fd(), entry, &bytes)
            .and_then(|()| salvage::keep_beside(worker.run, &directory, &part, entry, 0))
            .inspect_err(|_| directory.remove_quietly(&part))?;
        return Ok(EntryOutcome::Salvaged);
    }
    let done = fill_unsealed(worker, &directory, fd.as_fd(), entry, &bytes)
        .and_then(|()| publish(worker, &directory, &part, entry, &standing))
        .inspect_err(|_| directory.remove_quietly(&part));
    done?;
    seal(worker, fd.as_fd(), entry)?;
    Ok(written(entry))
}

/// Of a file in a chunk: all of it, unless the backup could not read all.
fn written(entry: &Entry) -> EntryOutcome {
    match entry.flags.has(EntryFlags::INCOMPLETE) {
        true => EntryOutcome::Incomplete(entry.size),
        false => EntryOutcome::Written(entry.size),
    }
}

/// Tells what a restore would do with an entry.
pub fn would(worker: &mut Worker, entry: &Entry) -> Result<EntryOutcome, EntryFailure> {
    let act = match worker.directory_to_read(entry)? {
        Some(directory) => would_at(worker, &directory, entry)?,
        None => Act::Create,
    };
    worker.run.monitor.would(&entry.path(), act);
    Ok(match act {
        Act::Keep => EntryOutcome::Kept,
        Act::Skip => EntryOutcome::Skipped,
        _ if entry.kind == Kind::File => EntryOutcome::Written(data_bytes(worker, entry)),
        _ => EntryOutcome::Made,
    })
}

/// Holes are not written.
fn data_bytes(worker: &Worker, entry: &Entry) -> u64 {
    match &entry.content {
        Content::Pieces { list } if entry.flags.has(EntryFlags::SPARSE) => {
            pieces::data_bytes(list, entry.size, worker.run.chunks)
        }
        _ => entry.size,
    }
}

fn would_at(
    worker: &mut Worker,
    directory: &TargetDirectory,
    entry: &Entry,
) -> Result<Act, EntryFailure> {
    let standing = standing(worker, directory, entry)?;
    let is_full = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if worker.run.options.delete && standing.stat.as_ref().is_some_and(is_full) {
        delete::clear_directory(worker, directory, entry)?;
    }
    Ok(standing.act)
}

/// What needs no content: entries that stay or are skipped.
pub fn make_without_content(
    worker: &mut Worker,
    directory: &TargetDirectory,
    entry: &Entry,
    standing: &TargetState,
) -> Result<Option<EntryOutcome>, EntryFailure> {
    match standing.act {
        Act::Skip => Ok(Some(EntryOutcome::Skipped)),
        Act::Keep => {
            keep(worker, directory, entry)?;
            Ok(Some(EntryOutcome::Kept))
        }
        _ => Ok(None),
    }
}

/// Looks after the metadata of an inode that stays.
fn keep(
    worker: &mut Worker,
    directory: &TargetDirectory,
    entry: &Entry,
) -> Result<(), EntryFailure> {
    let regular = entry.kind == Kind::File;
    let opened = match regular {
        true => worker
            .directories
            .open_child(directory, &entry.name, OFlags::RDONLY),
        false => Err(Errno::ACCESS),
    };
    let fd = match opened {
        Ok(fd) => fd,
        // A file that its owner may not read: by place.
        Err(Errno::ACCESS) => {
            let place = worker
                .directories
                .open_child(directory, &entry.name, OFlags::PATH);
            let place = place.map_err(EntryFailure::os("open"))?;
            let stat = checked_at(worker, &place, entry)?;
            return metadata::adjust(
                worker,
                metadata::TargetInode::PathOnly(place.as_fd()),
                entry,
                &stat,
            );
        }
        Err(error) => return Err(EntryFailure::os("open")(error)),
    };
    let stat = checked_at(worker, &fd, entry)?;
    let is_time_other = times::mtime_of(&stat) != (entry.mtime.seconds, entry.mtime.nanos);
    if regular && is_time_other && worker.run.options.overwrite == Overwrite::MetadataOnly {
        (worker.run.counters.times_changed).fetch_add(1, Ordering::Relaxed);
    }
    metadata::adjust(
        worker,
        metadata::TargetInode::Open(fd.as_fd()),
        entry,
        &stat,
    )?;
    seal(worker, fd.as_fd(), entry)
}

/// The same where names of one file may still have other metadata.
fn checked_at(worker: &Worker, fd: &OwnedFd, entry: &Entry) -> Result<Stat, EntryFailure> {
    if worker.run.options.overwrite != Overwrite::MetadataOnly {
        return checked_stat(fd, entry);
    }
    let stat = rustix::fs::fstat(fd).map_err(EntryFailure::os("stat"))?;
    require_kind(Some(&stat), entry)?;
    Ok(stat)
}

/// Of an inode about to be changed: still of the kind that was decided on, and not somebody else's
/// with another name.
pub fn checked_stat(fd: &OwnedFd, entry: &Entry) -> Result<Stat, EntryFailure> {
    let stat = rustix::fs::fstat(fd).map_err(EntryFailure::os("stat"))?;
    let kind = FileType::from_raw_mode(entry.kind.mode_bits());
    let foreign = stat.st_nlink > 1 && (entry.nlink == 1 || metadata::differs(entry, &stat));
    if FileType::from_raw_mode(stat.st_mode) != kind || foreign {
        return Err(EntryFailure::text(
            "restore",
            "another process changed it during the restore",
        ));
    }
    Ok(stat)
}

/// The file's bytes in its chunk; a row that points outside is damaged.
pub fn bytes_of(
    worker: &Worker,
    entry: &Entry,
    slot: &FetchedChunk,
) -> Result<Bytes, EntryFailure> {
    if entry.flags.has(EntryFlags::UNREADABLE) {
        return Err(EntryFailure::text(
            "restore",
            "its content could not be read by the backup",
        ));
    }
    if entry.size == 0 {
        return Ok(Bytes::new());
    }
    let Content::Bundled { chunk, offset } = &entry.content else {
        return Err(EntryFailure::text("restore", "damaged row: no content"));
    };
    let chunk = slot.get(chunk, worker.run.chunks)?;
    match row::bundled(&chunk, *offset, entry.size) {
        Ok(bytes) => Ok(chunk.slice_ref(bytes)),
        Err(text) => Err(EntryFailure::text("restore", text)),
    }
}

/// Makes a file that must not be there; nobody may read it yet.
pub fn create(directory: &TargetDirectory, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&directory.fd, name, flags, Mode::empty())
}

/// Makes a temporary file for `name`; what an earlier run left there goes.
pub fn create_part(
    directory: &TargetDirectory,
    name: &[u8],
) -> Result<(Vec<u8>, OwnedFd), EntryFailure> {
    let part = names::part_name(name);
    let fd = match create(directory, &part) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(&directory.fd, &part, AtFlags::empty())
                .map_err(EntryFailure::os("remove the temporary file of"))?;
            create(directory, &part)
        }
        other => other,
    };
    Ok((
        part,
        fd.map_err(EntryFailure::os("create a temporary file for"))?,
    ))
}

/// Best effort, after a failure that is reported.
fn fill(
    worker: &mut Worker,
    directory: &TargetDirectory,
    name: &[u8],
    fd: OwnedFd,
    entry: &Entry,
    bytes: &[u8],
) -> Result<EntryOutcome, EntryFailure> {
    fill_unsealed(worker, directory, fd.as_fd(), entry, bytes)
        .inspect_err(|_| directory.remove_quietly(name))?;
    seal(worker, fd.as_fd(), entry)?;
    Ok(written(entry))
}

fn fill_unsealed(
    worker: &mut Worker,
    directory: &TargetDirectory,
    fd: std::os::fd::BorrowedFd,
    entry: &Entry,
    bytes: &[u8],
) -> Result<(), EntryFailure> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(fd, rest) {
            Ok(0) => return Err(EntryFailure::text("write", "nothing was taken")),
            Ok(len) => rest = &rest[len..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(EntryFailure::os("write")(error)),
        }
    }
    metadata::finish_file(worker, directory, fd, entry)
}

/// Inode flags, unless further names follow: an immutable inode takes none.
pub fn seal(
    worker: &mut Worker,
    fd: std::os::fd::BorrowedFd,
    entry: &Entry,
) -> Result<(), EntryFailure> {
    match entry.is_hard_link() {
        true => Ok(()),
        false => metadata::seal(worker, fd, entry),
    }
}

/// Renames what was made as `part` to the entry's name, over what stands there.
pub fn publish(
    worker: &mut Worker,
    directory: &TargetDirectory,
    part: &[u8],
    entry: &Entry,
    standing: &TargetState,
) -> Result<(), EntryFailure> {
    if let Some(stat) = &standing.stat
        && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
    {
        delete::clear_directory(worker, directory, entry)?;
    }
    rustix::fs::renameat(&directory.fd, part, &directory.fd, &entry.name[..])
        .map_err(EntryFailure::os("rename into place"))
}
