//! Small files of directories: one by one, or a group with one wait for the device.
//!
//! A thread opens the files of a group, hands all reads to the kernel at once (`bale_sys::reads`),
//! and goes on when all are answered: half the processor time of waiting for each, and more reads
//! for the device to choose from. What the ring does not give (a file that cannot be read without
//! waiting, an error, a short read, a kernel that refuses rings) is read by itself, as if there
//! were no ring.

use super::{ReadJob, SmallFile, SmallState};
use crate::magic::is_of_kind;
use crate::read::ranges::{Filled, next_data, read_range};
use crate::read::{READ_RETRIES_MAX, SMALL_BYTES_MAX, SMALL_THREADS_MAX};
use crate::read::{is_unchanged, may_have_holes, problem, refresh, stat_of, wait_for_writers};
use crate::scan::{Directory, complete_opened};
use bale_format::entry::{Entry, EntryFlags};
use bale_sys::reads::{Read, ReadRing};
use bytes::{Bytes, BytesMut};
use rustix::fs::Statx;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a thread reads groups with.
#[derive(Default)]
pub(super) struct GroupReader {
    ring: Option<ReadRing>,
}

/// A file on its way.
struct Opened {
    file: SmallFile,
    fd: Option<OwnedFd>,
    bytes: BytesMut,
    /// What the ring gave.
    filled: Option<usize>,
}

impl GroupReader {
    /// Reads all, in any order. `allowed`: no thread was refused a ring yet.
    pub(super) fn read(
        &mut self,
        group: Vec<ReadJob>,
        group_files_max: usize,
        allowed: &AtomicBool,
        mut done: impl FnMut(u64, SmallFile),
    ) {
        if group.len() < 2 || !self.has_ring(group_files_max, allowed) {
            for job in group {
                let place = job.place;
                done(place, read_job(job));
            }
            return;
        }
        let places: Vec<u64> = group.iter().map(|job| job.place).collect();
        let mut opened: Vec<Opened> = group.into_iter().map(Opened::new).collect();
        self.read_opened(&mut opened, allowed);
        for (place, opened) in places.into_iter().zip(opened) {
            done(place, opened.finish());
        }
    }

    fn has_ring(&mut self, entries: usize, allowed: &AtomicBool) -> bool {
        if self.ring.is_none() && allowed.load(Ordering::Relaxed) {
            self.ring = ReadRing::new(entries as u32).ok();
            allowed.fetch_and(self.ring.is_some(), Ordering::Relaxed);
        }
        self.ring.is_some()
    }

    fn read_opened(&mut self, opened: &mut [Opened], allowed: &AtomicBool) {
        let mut reads = Vec::with_capacity(opened.len());
        let mut asked = Vec::with_capacity(opened.len());
        for one in opened {
            if let Some(fd) = &one.fd
                && !one.bytes.is_empty()
            {
                reads.push(Read::new(fd.as_fd(), &mut one.bytes));
                asked.push(&mut one.filled);
            }
        }
        let Some(ring) = &mut self.ring else {
            return;
        };
        if ring.read_all(&mut reads).is_err() {
            // It worked before. Files are read by themselves from now on.
            allowed.store(false, Ordering::Relaxed);
            self.ring = None;
        }
        for (filled, read) in asked.into_iter().zip(reads) {
            *filled = read.result.ok();
        }
    }
}

impl Opened {
    fn new(job: ReadJob) -> Opened {
        let mut file = SmallFile::new(job.entry);
        let fd = file.open(&job.directory);
        let mut bytes = BytesMut::new();
        if let Some(fd) = &fd
            && file.entry.size <= SMALL_BYTES_MAX
        {
            // What somebody may write to is read alone, twice.
            if !wait_for_writers(fd.as_fd(), &mut file.entry) {
                bytes = job.room;
            }
        }
        Opened {
            file,
            fd,
            bytes,
            filled: None,
        }
    }

    fn finish(mut self) -> SmallFile {
        if let Some(fd) = self.fd {
            let filled = self
                .filled
                .filter(|len| *len as u64 >= self.file.entry.size);
            if let Err(error) = self.file.read(fd.as_fd(), self.bytes, filled) {
                self.file.give_up(error);
            }
        }
        self.file
    }
}

/// Files that may be open.
pub(super) fn files_of_this_process() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX).min(1 << 20) as usize
}

/// Threads, of which each has a group of files open.
pub(super) fn threads_of_this_process() -> usize {
    (files_of_this_process() / 8).clamp(1, SMALL_THREADS_MAX)
}

/// Reads one small file.
pub(super) fn read_in_directory(directory: &Arc<Directory>, entry: Entry) -> SmallFile {
    read_job(ReadJob {
        directory: directory.clone(),
        entry,
        place: 0,
        room: BytesMut::new(),
    })
}

fn read_job(job: ReadJob) -> SmallFile {
    let mut file = SmallFile::new(job.entry);
    if let Some(fd) = file.open(&job.directory)
        && let Err(error) = file.read(fd.as_fd(), job.room, None)
    {
        file.give_up(error);
    }
    file
}

impl SmallFile {
    pub(in crate::read) fn new(entry: Entry) -> SmallFile {
        SmallFile {
            listed_inode: (entry.nlink < 2).then_some(entry.inode),
            entry,
            state: SmallState::Read,
            bytes: Bytes::new(),
            hash: None,
            holes: Vec::new(),
            bad: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// `None`: nothing is to be read, and what became of it is said.
    fn open(&mut self, directory: &Arc<Directory>) -> Option<OwnedFd> {
        if self.entry.size == 0 {
            // Not opened: the endless files of `/proc` say that they are empty.
            self.problems
                .extend(directory.complete(&mut self.entry).err());
            return None;
        }
        match directory.open_file(&self.entry) {
            Ok(fd) => return Some(fd),
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                self.state = SmallState::Vanished;
            }
            Err(error) => self.give_up(error),
        }
        None
    }

    /// Four system calls if nothing happened: open, read to the end, stat, close; two for what the
    /// scan left out; and a few for a file written to of late. The `stat` before is the scan's.
    /// `ahead`: so much of `bytes` a first read gave; otherwise they are zeros, or none.
    fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        mut bytes: BytesMut,
        mut ahead: Option<usize>,
    ) -> io::Result<()> {
        for attempt in 0..=READ_RETRIES_MAX + 1 {
            if self.entry.size > SMALL_BYTES_MAX {
                self.state = SmallState::Grown;
                return Ok(());
            }
            let size = self.entry.size as usize;
            let mut is_written = false;
            let filled = match ahead.take() {
                Some(len) => Filled {
                    len,
                    ..Filled::default()
                },
                None => {
                    is_written = wait_for_writers(fd, &mut self.entry);
                    // One byte more than there should be tells in the same call that the file ends
                    // there.
                    if attempt > 0 || bytes.len() != size + 1 {
                        bytes.clear();
                        bytes.resize(size + 1, 0);
                    }
                    read_range(fd, 0, &mut bytes, size.max(1))?
                }
            };
            bytes.truncate(filled.len.min(size));
            let incomplete = complete_opened(fd, &mut self.entry).err();
            let agrees = !is_written || filled.error.is_some() || reads_again(fd, &bytes)?;
            let stat = stat_of(fd)?;
            let moved = !is_unchanged(&self.entry, &stat) || !agrees;
            // Some files are shorter than they say, and stay so; `keep` says where that is right.
            let settled = filled.len == size || attempt > 0;
            if !moved && settled || attempt > READ_RETRIES_MAX {
                self.problems.extend(incomplete);
                self.bytes = bytes.freeze();
                return self.keep(fd, filled, &stat, moved);
            }
            refresh(&mut self.entry, &stat)?;
        }
        unreachable!("the last attempt is kept")
    }

    fn keep(
        &mut self,
        fd: BorrowedFd<'_>,
        filled: Filled,
        stat: &Statx,
        moved: bool,
    ) -> io::Result<()> {
        refresh(&mut self.entry, stat)?;
        let size = self.bytes.len() as u64;
        if moved {
            self.entry.flags.set(EntryFlags::CHANGED);
        }
        if let Some(errno) = filled.error {
            self.entry.flags.set(EntryFlags::INCOMPLETE);
            self.bad = clip(&filled.bad, size);
            self.problems
                .push(problem(&self.entry, "read", errno.into()));
        } else if !moved && filled.len as u64 != self.entry.size && !has_sizes_of_pages(fd) {
            self.entry.flags.set(EntryFlags::INCOMPLETE);
            let given = match size < self.entry.size {
                true => size.to_string(),
                false => "more".to_owned(),
            };
            let why = format!(
                "its file system says {} bytes, and gives {given}, twice",
                self.entry.size
            );
            self.problems
                .push(problem(&self.entry, "read", io::Error::other(why)));
        }
        self.entry.size = size;
        if may_have_holes(stat) && !moved {
            self.holes = self.holes_of(fd);
            if !self.holes.is_empty() {
                self.entry.flags.set(EntryFlags::SPARSE);
            }
        }
        Ok(())
    }

    /// Holes that the file system tells of, and that are zero in what was read: a map may be wrong,
    /// bytes are not.
    fn holes_of(&self, fd: BorrowedFd<'_>) -> Vec<Range<u64>> {
        let size = self.entry.size;
        let mut holes = Vec::new();
        let mut at = 0;
        while at < size {
            let data = next_data(fd, at, size).unwrap_or(Some(at..size));
            let data = data.unwrap_or(size..size);
            let hole = at as usize..data.start as usize;
            if !hole.is_empty() && self.bytes[hole].iter().all(|byte| *byte == 0) {
                holes.push(at..data.start);
            }
            at = data.end;
        }
        holes
    }

    pub(in crate::read) fn give_up(&mut self, error: io::Error) {
        self.state = SmallState::Unreadable;
        self.bytes = Bytes::new();
        self.entry.flags.set(EntryFlags::UNREADABLE);
        self.problems.push(problem(&self.entry, "read", error));
    }
}

/// Whether a second read gives the same bytes, and no more. If so, that is what the file held at
/// the moment between the two, whatever stamps it has.
fn reads_again(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<bool> {
    let mut again = BytesMut::zeroed(bytes.len() + 1);
    let filled = read_range(fd, 0, &mut again, bytes.len().max(1))?;
    Ok(filled.error.is_none()
        && filled.len.min(again.len()) == bytes.len()
        && again[..bytes.len()] == *bytes)
}

/// Whether sizes here are those of pages and not of files: file systems of the kernel's own state,
/// by their magic numbers (linux/magic.h): sysfs, proc, debugfs, tracefs, securityfs, configfs,
/// cgroup, cgroup2, efivarfs, pstore, bpf, selinuxfs.
fn has_sizes_of_pages(fd: BorrowedFd<'_>) -> bool {
    const MAGICS: [u32; 12] = [
        0x6265_6572,
        0x9fa0,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0x6265_6570,
        0x0027_e0eb,
        0x6367_7270,
        0xde5e_81e4,
        0x6165_676c,
        0xcafe_4a11,
        0xf97c_ff8c,
    ];
    is_of_kind(fd, &MAGICS)
}

fn clip(ranges: &[Range<usize>], size: u64) -> Vec<Range<u64>> {
    ranges
        .iter()
        .map(|range| range.start as u64..(range.end as u64).min(size))
        .filter(|range| range.start < range.end)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{ScanItem, ScanOptions, Scanner, Sources};

    #[test]
    fn a_group_is_read_through_a_ring_where_the_kernel_gives_one() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..7_u8 {
            let bytes = vec![number; 100 * usize::from(number)];
            std::fs::write(place.path().join(number.to_string()), bytes).unwrap();
        }
        let (sources, _) = Sources::resolve(&[place.path()]).unwrap();
        let scanner = Scanner::start(&sources, ScanOptions::default()).unwrap();
        let mut group = Vec::new();
        for item in scanner {
            let ScanItem::Entries(batch) = item else {
                continue;
            };
            for (at, entry) in batch.entries.iter().enumerate() {
                if let crate::image::EntryPlace::Directory(directory) = batch.places.of(at)
                    && entry.kind == bale_format::entry::Kind::File
                {
                    group.push(ReadJob {
                        directory,
                        entry: entry.clone(),
                        place: group.len() as u64,
                        room: BytesMut::zeroed(entry.size as usize + 1),
                    });
                }
            }
        }
        let (mut reader, allowed) = (GroupReader::default(), AtomicBool::new(true));
        let mut files = 0;
        reader.read(group, 8, &allowed, |place, file| {
            assert_eq!(file.bytes, vec![place as u8; 100 * place as usize]);
            assert_eq!(file.state, SmallState::Read);
            files += 1;
        });
        assert_eq!(files, 7);
        if reader.ring.is_none() {
            // A kernel without rings is no missing tool; how refusals are met is proven in
            // bale-sys.
            eprintln!("SKIPPED: this kernel gives no io_uring");
        }
    }
}
