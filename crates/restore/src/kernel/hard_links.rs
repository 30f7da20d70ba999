//! Further names of inodes: linked to the first name once its content is there.
//!
//! The first name is opened without following a link and must be what its row says; the link is
//! made from that descriptor, so nothing else can ever be linked. Where the first name failed, or
//! its inode has no room for more names, the next name gets the content again and is the first from
//! then on.

use crate::kernel::make::{self, publish};
use crate::kernel::outcome::{EntryFailure, EntryOutcome};
use crate::kernel::queue::work;
use crate::kernel::target::{TargetDirectory, stat_child};
use crate::kernel::worker::{FetchedChunk, RestoreRun, Worker};
use crate::kernel::{metadata, specials, times, write_large};
use crate::scratch::{Pair, SortedPairs};
use crate::{Overwrite, RestoreError, names, row};
use bale_format::{Content, Entry, EntryFlags, Kind};
use bale_pipeline::monitor::Act;
use rustix::fs::{AtFlags, CWD, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::iter::Peekable;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Names linked by one task.
const TASK_ROWS_MAX: usize = 512;

/// The same, where inode flags follow the last name, so that a group may not be cut: more than ext4
/// allows an inode.
const SEALED_ROWS_MAX: usize = 1 << 17;

/// Bytes of a group's number, the beginning of its keys.
const GROUP_KEY_BYTES: usize = 8;

/// A first name and some of the others.
pub struct LinkGroup {
    pub first: Vec<u8>,
    pub others: Vec<Vec<u8>>,
}

/// Makes all further names.
pub fn restore(run: &RestoreRun, links: SortedPairs) -> Result<(), RestoreError> {
    work(run, run.threads, link_all, |feeder| {
        feed(links, run.options.inode_flags, |group| feeder.send(group))
    })
}

/// Cuts the sorted links into groups and sends them until `send` wants no more.
pub fn feed(
    links: SortedPairs,
    sealed: bool,
    send: impl Fn(LinkGroup) -> bool,
) -> Result<(), RestoreError> {
    let mut links = links.peekable();
    while let Some((key, first)) = links.next().transpose().map_err(RestoreError::Scratch)? {
        let number = key.get(..GROUP_KEY_BYTES).unwrap_or(&key);
        let rows_max = match sealed {
            true => SEALED_ROWS_MAX,
            false => TASK_ROWS_MAX,
        };
        loop {
            let others = gather(&mut links, number, rows_max)?;
            let done = others.len() < rows_max;
            let first = first.clone();
            if !send(LinkGroup { first, others }) {
                return Ok(());
            }
            if done {
                break;
            }
        }
    }
    Ok(())
}

fn gather(
    links: &mut Peekable<SortedPairs>,
    number: &[u8],
    rows_max: usize,
) -> Result<Vec<Vec<u8>>, RestoreError> {
    let mut rows = Vec::new();
    let more = |pair: &std::io::Result<Pair>| match pair {
        Ok((key, _)) => key.starts_with(number),
        Err(_) => true,
    };
    while rows.len() < rows_max {
        match links.next_if(more) {
            Some(pair) => rows.push(pair.map_err(RestoreError::Scratch)?.1),
            None => break,
        }
    }
    Ok(rows)
}

/// The inode that names are given to.
struct LinkSource {
    place: OwnedFd,
    stat: Stat,
}

fn link_all(worker: &mut Worker, group: LinkGroup) {
    if worker.run.options.dry_run {
        return crate::kernel::write_content::each_row(worker, group.others, |worker, entry| {
            Ok(match make::would(worker, entry)? {
                EntryOutcome::Kept => EntryOutcome::Kept,
                EntryOutcome::Skipped => EntryOutcome::Skipped,
                _ => EntryOutcome::Linked,
            })
        });
    }
    let mut first = match row::decode(group.first) {
        Ok(first) => first,
        Err(error) => return worker.run.end(RestoreError::Scratch(error)),
    };
    let mut source = source(worker, &first).ok().flatten();
    for row in group.others {
        if worker.run.has_ended() {
            return;
        }
        let entry = match row::decode(row) {
            Ok(entry) => entry,
            Err(error) => return worker.run.end(RestoreError::Scratch(error)),
        };
        let result = match link(worker, source.as_ref(), &entry) {
            Ok(None) => {
                let made = make_again(worker, &entry);
                source = self::source(worker, &entry).ok().flatten();
                first = entry.clone();
                made
            }
            Ok(Some(done)) => Ok(done),
            Err(failure) => Err(failure),
        };
        worker.done(&entry, result);
    }
    if worker.run.options.inode_flags && source.is_some() {
        let sealed = seal(worker, &first);
        if let Err(failure) = sealed {
            worker.run.failed(&first.path(), failure);
        }
    }
}

/// Opens the name that was restored, if it is what its row says.
fn source(worker: &mut Worker, first: &Entry) -> Result<Option<LinkSource>, EntryFailure> {
    let directory = worker.directory(first)?;
    let place = worker
        .directories
        .open_child(&directory, &first.name, OFlags::PATH)
        .map_err(EntryFailure::os("open"))?;
    let stat = rustix::fs::fstat(&place).map_err(EntryFailure::os("stat"))?;
    Ok(is_entry(&place, &stat, first).then_some(LinkSource { place, stat }))
}

/// Kind, and what tells two of a kind apart.
pub fn is_entry(place: &OwnedFd, stat: &Stat, entry: &Entry) -> bool {
    if FileType::from_raw_mode(stat.st_mode) != FileType::from_raw_mode(entry.kind.mode_bits()) {
        return false;
    }
    match entry.kind {
        Kind::File => stat.st_size as u64 == entry.size && times::is_mtime_of(stat, entry),
        Kind::Symlink => rustix::fs::readlinkat(place, "", Vec::new())
            .is_ok_and(|target| target.as_bytes() == &entry.target[..]),
        Kind::BlockDevice | Kind::CharDevice => stat.st_rdev == make::device(entry),
        Kind::Fifo | Kind::Socket => true,
        Kind::Directory | Kind::Extent => false,
    }
}

/// Gives the source this name; `None` if there is no source or it takes no more names.
fn link(
    worker: &mut Worker,
    source: Option<&LinkSource>,
    entry: &Entry,
) -> Result<Option<EntryOutcome>, EntryFailure> {
    let directory = worker.directory(entry)?;
    let Some(source) = source else {
        return Ok(None);
    };
    match link_from(worker, source, &directory, &entry.name) {
        Ok(()) => Ok(Some(EntryOutcome::Linked)),
        Err(Errno::EXIST) => link_over(worker, source, &directory, entry),
        Err(Errno::MLINK | Errno::PERM | Errno::NOTSUP | Errno::XDEV) => Ok(None),
        Err(error) => Err(EntryFailure::os("link")(error)),
    }
}

fn link_over(
    worker: &mut Worker,
    source: &LinkSource,
    directory: &TargetDirectory,
    entry: &Entry,
) -> Result<Option<EntryOutcome>, EntryFailure> {
    let stat = stat_child(directory, &entry.name).map_err(EntryFailure::os("stat"))?;
    if let Some(stat) = &stat {
        if (stat.st_dev, stat.st_ino) == (source.stat.st_dev, source.stat.st_ino) {
            return Ok(Some(EntryOutcome::Kept));
        }
        if worker.run.options.overwrite == Overwrite::Never {
            return Ok(Some(EntryOutcome::Skipped));
        }
        worker.run.check_not_in_use(stat)?;
        if entry.flags.has(EntryFlags::INCOMPLETE) {
            return Err(EntryFailure::text("replace", make::UNREAD_STAYS));
        }
    }
    let part = names::part_name(&entry.name);
    directory.remove_quietly(&part);
    match link_from(worker, source, directory, &part) {
        Ok(()) => {}
        Err(Errno::MLINK | Errno::PERM | Errno::NOTSUP | Errno::XDEV) => return Ok(None),
        Err(error) => return Err(EntryFailure::os("link")(error)),
    }
    let standing = make::TargetState {
        act: Act::Replace,
        stat,
    };
    publish(worker, directory, &part, entry, &standing)
        .inspect_err(|_| directory.remove_quietly(&part))?;
    Ok(Some(EntryOutcome::Linked))
}

/// Links the very inode that is open; only the way to say so differs.
fn link_from(
    worker: &Worker,
    source: &LinkSource,
    directory: &TargetDirectory,
    name: &[u8],
) -> Result<(), Errno> {
    if worker.run.target.privileged {
        let linked =
            rustix::fs::linkat(&source.place, "", &directory.fd, name, AtFlags::EMPTY_PATH);
        if linked != Err(Errno::NOENT) {
            return linked;
        }
    }
    let magic = format!("/proc/self/fd/{}", source.place.as_fd().as_raw_fd());
    rustix::fs::linkat(CWD, magic, &directory.fd, name, AtFlags::SYMLINK_FOLLOW)
}

/// A name that cannot be a link becomes a file of its own.
fn make_again(worker: &mut Worker, entry: &Entry) -> Result<EntryOutcome, EntryFailure> {
    match (entry.kind, &entry.content) {
        (Kind::File, Content::Pieces { .. }) if entry.size > 0 => {
            write_large::restore_alone(worker, entry)
        }
        (Kind::File, _) => make::file(worker, entry, &FetchedChunk::default()),
        _ => specials::make(worker, entry),
    }
}

fn seal(worker: &mut Worker, first: &Entry) -> Result<(), EntryFailure> {
    if first.kind != Kind::File {
        return Ok(());
    }
    let directory = worker.directory(first)?;
    let fd = worker
        .directories
        .open_child(&directory, &first.name, OFlags::RDONLY)
        .map_err(EntryFailure::os("open"))?;
    let stat = rustix::fs::fstat(&fd).map_err(EntryFailure::os("stat"))?;
    match is_entry(&fd, &stat, first) {
        true => metadata::seal(worker, fd.as_fd(), first),
        false => Err(EntryFailure::text(
            "restore",
            "another process changed it during the restore",
        )),
    }
}

/// Compares the names of a group: one inode, as the first says.
pub fn compare_group(worker: &mut Worker, group: LinkGroup) {
    let decoded = row::decode(group.first);
    let first = match decoded {
        Ok(first) => first,
        Err(error) => return worker.run.end(RestoreError::Scratch(error)),
    };
    let source = source(worker, &first).ok().flatten();
    crate::kernel::write_content::each_row(worker, group.others, |worker, entry| {
        let directory = worker.directory(entry)?;
        let stat = stat_child(&directory, &entry.name).map_err(EntryFailure::os("stat"))?;
        let same = match (&source, stat) {
            (Some(source), Some(stat)) => {
                (stat.st_dev, stat.st_ino) == (source.stat.st_dev, source.stat.st_ino)
            }
            _ => false,
        };
        if same {
            return Ok(EntryOutcome::Linked);
        }
        let text = "it is not the same inode as its first name";
        worker.run.problem(&entry.path(), "verify", text);
        Ok(EntryOutcome::Different)
    });
}
