//! Listing one directory.
//!
//! A listing is no moment: what is renamed meanwhile may be in it under neither name (every file
//! system), and so may what another file is renamed over (btrfs, tmpfs). So the stamps of the
//! directory are taken before and after; where they moved, it is listed again and all names that
//! any listing had are taken, until the stamps stand still, or two listings in turn have the same
//! names. Where neither comes, the directory is flagged and named: names may be missing.

use super::directory::DirectoryFd;
use super::names::{NAME_BYTES_MAX, Names, NamesSorter, SortedNames};
use super::{BATCH_ENTRIES_MAX, GETDENTS_BYTES, LIST_NAMES_BYTES_MAX, barrier_now};
use crate::magic::is_of_kind;
use bale_format::entry::Time;
use bale_pipeline::spill::Spill;
use rustix::fs::{AtFlags, FileType, RawDir, RawDirEntry, SeekFrom, Statx, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{LockResult, Mutex, MutexGuard};

/// Listings of one directory at most.
const LISTINGS_MAX: usize = 6;

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
    let fd = fd.as_fd();
    let mut buffer: Vec<u8> = Vec::with_capacity(GETDENTS_BYTES);
    let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
    while let Some(next) = entries.next() {
        let entry = match next {
            Ok(entry) => entry,
            // The directory was removed while it was open: it is empty now. A server may say the
            // same of one that is there.
            Err(Errno::NOENT) if has_no_links(fd) => break,
            Err(Errno::NOENT) => return Err(not_listed()),
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

fn has_no_links(fd: BorrowedFd<'_>) -> bool {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
    stat.is_ok_and(|stat| stat.stx_nlink == 0)
}

fn not_listed() -> io::Error {
    io::Error::other("its file system says that it does not exist, though it is open and linked")
}

/// When names of a directory changed last, as its file system stamps it.
#[derive(PartialEq, Eq)]
struct Stamps {
    modified: Time,
    changed: Time,
}

impl Stamps {
    fn of(fd: &DirectoryFd) -> io::Result<Stamps> {
        let mask = StatxFlags::MTIME | StatxFlags::CTIME;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let stat: Statx = rustix::fs::statx(fd, c"", flags, mask)?;
        Ok(Stamps {
            modified: super::statx::time_of(stat.stx_mtime),
            changed: super::statx::time_of(stat.stx_ctime),
        })
    }

    /// Whether a change from this moment on has other stamps.
    fn are_before(&self, moment: Time) -> bool {
        self.modified.is_stamped_before(moment) && self.changed.is_stamped_before(moment)
    }
}

/// The set of names of one listing, by the sum of their hashes: two sets have the same one only by
/// chance.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct NameSum(u128);

impl NameSum {
    fn add(&mut self, name: &[u8]) {
        let hash = blake3::hash(name);
        let (first, _) = hash
            .as_bytes()
            .split_first_chunk()
            .expect("32 bytes are 16");
        self.0 = self.0.wrapping_add(u128::from_le_bytes(*first));
    }
}

/// Lists all names. `large` is held while a directory is listed whose names do not fit a worker's
/// share of memory.
pub(super) fn list(fd: &DirectoryFd, spill: Spill<'_>, large: &Mutex<()>) -> Listed {
    let mut union = Union {
        names: Names::default(),
        sorter: None,
        error: None,
        spill,
        large,
    };
    if !fd.listable() {
        return Listed {
            names: ListedNames::Few(union.names),
            error: Some(Errno::ACCESS.into()),
        };
    }
    let mut listings = 0;
    let mut last = None;
    let mut last_stamps = None;
    let error = loop {
        let moment = barrier_now();
        let before = Stamps::of(fd);
        // Of the first listing nobody needs the sum if nothing changed meanwhile, as nearly always.
        let sum = match union.list_once(fd, listings > 0) {
            Ok(sum) => sum,
            Err(error) => break Some(error),
        };
        listings += 1;
        let after = Stamps::of(fd).ok();
        // Without stamps, two listings have to agree.
        let stamps = after.filter(|after| before.as_ref().is_ok_and(|before| before == after));
        let is_still = stamps.as_ref().is_some_and(|it| it.are_before(moment));
        let agree = sum.is_some() && last == sum;
        // Young, but no other ones than those of the listing before.
        let is_steady = stamps.is_some() && stamps == last_stamps;
        if is_still || (agree && (is_steady || union.has_what_stays(fd))) {
            break None;
        }
        last_stamps = stamps;
        if listings == LISTINGS_MAX {
            break Some(io::Error::other(
                "it changes each time that it is listed: names may be missing (a snapshot of the \
                 file system, by --snapshot-command, stands still)",
            ));
        }
        last = sum;
    };
    union.finish(error, listings > 1)
}

/// Names of one or several listings.
struct Union<'a> {
    names: Names,
    /// Of a large directory, with what says that no other one is listed.
    sorter: Option<(LockResult<MutexGuard<'a, ()>>, NamesSorter)>,
    /// What happened to a name.
    error: Option<io::Error>,
    spill: Spill<'a>,
    large: &'a Mutex<()>,
}

impl Union<'_> {
    /// Whether a listing has each name that is there all the time, whatever comes and goes: what
    /// replaces a name stands where that stood, or all is listed by one call. On btrfs it moves to
    /// the end, where a listing that had begun does not come to.
    fn has_what_stays(&self, fd: &DirectoryFd) -> bool {
        /// By magic number (linux/magic.h): ext2 to ext4, XFS.
        const IN_PLACE: [u32; 2] = [0xef53, 0x5846_5342];
        /// btrfs, tmpfs: nothing changes during a call.
        const BY_CALL: [u32; 2] = [0x9123_683e, 0x0102_1994];
        /// Beside the name, in what the kernel gives.
        const DIRENT_BYTES: usize = 32;
        let names = &self.names;
        let bytes = names.bytes() + names.items.len() * DIRENT_BYTES;
        let is_one_call = self.sorter.is_none() && bytes < GETDENTS_BYTES;
        is_of_kind(fd, &IN_PLACE) || (is_one_call && is_of_kind(fd, &BY_CALL))
    }

    fn list_once(&mut self, fd: &DirectoryFd, sums: bool) -> io::Result<Option<NameSum>> {
        // The descriptor may have been listed before.
        rustix::fs::seek(fd, SeekFrom::Start(0))?;
        let mut sum = sums.then(NameSum::default);
        let mut failed = None;
        each_entry(fd, &mut |entry| {
            let name = entry.file_name().to_bytes();
            if let Some(sum) = &mut sum {
                sum.add(name);
            }
            match self.push(name, entry) {
                Ok(()) => ControlFlow::Continue(()),
                Err(sort) => {
                    failed = Some(sort);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(sum), Err)
    }

    fn push(&mut self, name: &[u8], entry: &RawDirEntry<'_>) -> io::Result<()> {
        if name.len() > NAME_BYTES_MAX {
            self.error = Some(Errno::NAMETOOLONG.into());
            return Ok(());
        }
        let may_be_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if let Some((_, sorter)) = &mut self.sorter {
            return sorter.push_as(name, entry.ino(), may_be_directory);
        }
        self.names.push_as(name, entry.ino(), may_be_directory);
        if self.names.bytes() <= LIST_NAMES_BYTES_MAX {
            return Ok(());
        }
        let sorter = NamesSorter::new(self.spill);
        let (_held, sorter) = self.sorter.insert((self.large.lock(), sorter));
        sorter.take(&mut self.names)
    }

    fn finish(mut self, error: Option<io::Error>, is_union: bool) -> Listed {
        let error = error.or(self.error);
        let names = match self.sorter {
            Some((_held, sorter)) => sorter.finish(is_union).map(ListedNames::Many),
            None => {
                self.names.sort();
                if is_union {
                    self.names.dedup();
                }
                Ok(match self.names.items.len() <= BATCH_ENTRIES_MAX {
                    true => ListedNames::Few(self.names),
                    false => ListedNames::Many(SortedNames::Memory(self.names, 0)),
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
}
