//! Small files: many in flight, read in inode order, handed out in the order they were asked for.

use super::arranged::Arranged;
use super::device::{
    self, DeviceJob, GROUP_BUFFER_BYTES, GROUP_BYTES_MAX, GROUP_GAP_BYTES_MAX, Looked,
};
use super::ranges::{next_data, read_range};
use super::{READ_RETRIES_MAX, SMALL_BYTES_MAX, SMALL_THREADS_MAX};
use super::{SMALL_WINDOW_BYTES_MAX, SMALL_WINDOW_FILES_MAX};
use super::{is_unchanged, may_have_holes, problem, refresh, stat_of, wait_for_writers};
use crate::image::{ImageInode, Place};
use crate::scan::{Directory, Problem, complete_opened};
use bale_format::entry::{Entry, EntryFlags};
use bale_sys::buffer::AlignedBuffer;
use bale_sys::open::open_for_reading;
use bytes::Bytes;
use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What a file in the window takes beside its bytes.
const FILE_BYTES: u64 = 512;
/// Files that a thread takes at once when there are many.
const GROUP_FILES_MAX: usize = 8;
/// Groups of files on a device that are read at a time.
const DEVICE_READS_MAX: usize = 4;
/// Files on a device wait until there is this much of them, unless somebody waits for one of them.
const DEVICE_BYTES_MIN: u64 = 4 << 20;
/// Stack of a reading thread.
const STACK_BYTES: usize = 256 << 10;

/// A small file, read.
#[derive(Debug)]
pub struct SmallFile {
    /// The entry as of the read: completed, and with what happened in its flags.
    pub entry: Entry,
    /// What became of it.
    pub state: SmallState,
    /// The file's bytes, `entry.size` of them; perhaps a part of something larger that was read at once.
    pub bytes: Bytes,
    /// Hash of these as a row wants it, if it was made while reading.
    pub hash: Option<[u8; 16]>,
    /// Ranges of `bytes` that are holes: zero, and without blocks in the source.
    pub holes: Vec<Range<u64>>,
    /// Ranges of `bytes` that could not be read.
    pub bad: Vec<Range<u64>>,
    /// What went wrong.
    pub problems: Vec<Problem>,
}

/// Content of a small file on a device that was read with many others.
pub struct ReadBefore<'a> {
    inode: &'a ImageInode,
    content: (Bytes, Option<[u8; 16]>),
}

impl ReadBefore<'_> {
    /// The file with this content.
    pub fn into_file(self, entry: Entry) -> SmallFile {
        device::looked_at(self.inode, entry, self.content)
    }
}

/// What became of a file that was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallState {
    /// `bytes` is its content; see the entry's flags for reservations.
    Read,
    /// It is not there any more.
    Vanished,
    /// It is too large by now: to be read by a [`super::LargeReader`].
    Grown,
    /// Nothing could be read; there is a problem that says why.
    Unreadable,
}

struct Job {
    directory: Arc<Directory>,
    entry: Entry,
    place: u64,
}

#[derive(Default)]
struct State {
    /// By device, inode, place.
    waiting: BTreeMap<(u64, u64, u64), Job>,
    /// Where the last group ended.
    last: (u64, u64, u64),
    /// Files on a device, by place on the device.
    on_device: BTreeMap<(u64, u64), DeviceJob>,
    on_device_bytes: u64,
    /// Where the last group on a device ended.
    last_on_device: (u64, u64),
    /// Groups on a device being read.
    device_reads: usize,
    /// Somebody waits for the first file.
    front_waits: bool,
    /// Slots of the files asked for, in order, with the bytes they count for.
    slots: VecDeque<(u64, Option<SmallFile>)>,
    /// Place of the first slot.
    first: u64,
    bytes: u64,
    closed: bool,
    stopped: bool,
    idle: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    front: Condvar,
    room: Condvar,
}

/// Reads small files. One thread may ask while another takes.
pub struct SmallReader {
    shared: Arc<Shared>,
    /// Files on a device that are read all at once.
    arranged: Mutex<Option<Arranged>>,
    threads: Vec<JoinHandle<()>>,
}

impl SmallReader {
    /// Starts the threads; `threads` is for tests.
    pub fn start(threads: Option<usize>) -> SmallReader {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let files = limit.current.unwrap_or(u64::MAX).min(1 << 20) as usize;
        let count = threads.unwrap_or((files / 8).clamp(1, SMALL_THREADS_MAX));
        let shared = Arc::new(Shared::default());
        let mut started = Vec::new();
        for _ in 0..count {
            let shared = shared.clone();
            let builder = std::thread::Builder::new()
                .name("read".to_string())
                .stack_size(STACK_BYTES);
            // Where the system has no thread for us, the taker reads by itself.
            let Ok(thread) = builder.spawn(move || shared.work()) else {
                break;
            };
            started.push(thread);
        }
        SmallReader {
            shared,
            arranged: Mutex::new(None),
            threads: started,
        }
    }

    /// The same, for many files on a device that will be asked for.
    pub fn with_arranged(self, arranged: Option<Arranged>) -> SmallReader {
        *self.arranged.lock().unwrap_or_else(PoisonError::into_inner) = arranged;
        self
    }

    /// Is there room, so that [`SmallReader::push`] will not wait?
    pub fn has_room(&self, entry: &Entry) -> bool {
        self.shared.lock().has_room(entry)
    }

    /// Files asked for and not taken yet.
    pub fn pending(&self) -> usize {
        self.shared.lock().slots.len()
    }

    /// Asks for a regular file. Waits for room: another thread must take files meanwhile.
    pub fn push(&self, place: &Place, entry: Entry) {
        match place {
            Place::Directory(directory) => self.push_in_directory(directory, entry),
            Place::Image(inode) => self.push_on_device(device::look(inode, entry, 0)),
        }
    }

    /// The content of a file that was read before it is asked for; if it was not, it must be pushed.
    pub fn read_before<'a>(&self, place: &'a Place) -> Option<ReadBefore<'a>> {
        let Place::Image(inode) = place else {
            return None;
        };
        let mut arranged = self.arranged.lock().unwrap_or_else(PoisonError::into_inner);
        let content = arranged.as_mut()?.take(inode.number)?;
        Some(ReadBefore { inode, content })
    }

    fn push_on_device(&self, looked: Looked) {
        let mut state = self.shared.lock();
        let entry = match &looked {
            Looked::Done(file) => &file.entry,
            Looked::Job(job) => &job.entry,
        };
        while !state.has_room(entry) && !state.stopped {
            let waited = self.shared.room.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let cost = cost_of(entry);
        state.bytes += cost;
        match looked {
            Looked::Done(file) => {
                state.slots.push_back((cost, Some(*file)));
                if state.slots.len() == 1 {
                    self.shared.front.notify_one();
                }
            }
            Looked::Job(mut job) => {
                job.place = state.first + state.slots.len() as u64;
                state.slots.push_back((cost, None));
                state.on_device_bytes += u64::from(job.span().len);
                let key = (job.span().offset, job.place);
                state.on_device.insert(key, *job);
                if state.idle > 0 && state.device_group_is_due() {
                    self.shared.work.notify_one();
                }
            }
        }
    }

    fn push_in_directory(&self, directory: &Arc<Directory>, entry: Entry) {
        let mut state = self.shared.lock();
        while !state.has_room(&entry) && !state.stopped {
            let waited = self.shared.room.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let cost = cost_of(&entry);
        let place = state.first + state.slots.len() as u64;
        state.bytes += cost;
        state.slots.push_back((cost, None));
        let key = (directory.identity().device, entry.inode, place);
        let directory = directory.clone();
        state.waiting.insert(
            key,
            Job {
                directory,
                entry,
                place,
            },
        );
        if state.idle > 0 {
            self.shared.work.notify_one();
        }
    }

    /// Ends the reading threads; whoever waits for room waits no longer. Nothing may be taken after this.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// No more files will be asked for.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.front.notify_all();
        self.shared.work.notify_all();
    }

    /// The next file in the order asked for; waits until it is read. `None`: closed, and all were taken.
    pub fn pop(&self) -> Option<SmallFile> {
        let mut state = self.shared.lock();
        loop {
            if let Some((_, Some(_))) = state.slots.front() {
                let (cost, file) = state.slots.pop_front()?;
                state.first += 1;
                state.bytes -= cost;
                drop(state);
                self.shared.room.notify_one();
                return file;
            }
            if state.slots.is_empty() && state.closed {
                return None;
            }
            assert!(!state.stopped, "a thread that reads files panicked");
            state.front_waits = true;
            if self.threads.is_empty() {
                let group = state.take_group();
                let on_device = state.take_device_group();
                if !group.is_empty() || !on_device.is_empty() {
                    drop(state);
                    self.shared.read_group(group);
                    let mut buffers = DeviceBuffers::default();
                    self.shared.read_device_group(on_device, &mut buffers);
                    state = self.shared.lock();
                    continue;
                }
            }
            if state.idle > 0 && state.device_group_is_due() {
                self.shared.work.notify_one();
            }
            let waited = self.shared.front.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.front_waits = false;
        }
    }
}

impl Drop for SmallReader {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

fn cost_of(entry: &Entry) -> u64 {
    FILE_BYTES + entry.size.min(SMALL_BYTES_MAX)
}

impl State {
    /// A file that is alone always fits.
    fn has_room(&self, entry: &Entry) -> bool {
        self.slots.is_empty()
            || self.slots.len() < SMALL_WINDOW_FILES_MAX
                && self.bytes + cost_of(entry) <= SMALL_WINDOW_BYTES_MAX
    }

    /// Goes through inode numbers upwards, then starts again: like a lift.
    fn take_group(&mut self) -> Vec<Job> {
        let many = self.waiting.len() >= GROUP_FILES_MAX * SMALL_THREADS_MAX;
        let count = if many { GROUP_FILES_MAX } else { 1 };
        let mut group = Vec::with_capacity(count);
        while group.len() < count {
            let above = self.waiting.range(self.last..).next();
            let Some((key, _)) = above.or_else(|| self.waiting.iter().next()) else {
                break;
            };
            self.last = *key;
            group.extend(self.waiting.remove(&self.last));
        }
        group
    }
}

impl State {
    /// A group is worth reading: there is much to choose from, or somebody waits.
    fn device_group_is_due(&self) -> bool {
        !self.on_device.is_empty()
            && self.device_reads < DEVICE_READS_MAX
            && (self.front_waits || self.closed || self.on_device_bytes >= DEVICE_BYTES_MIN)
    }

    /// Files near each other, from where the last group ended upwards.
    fn take_device_group(&mut self) -> Vec<DeviceJob> {
        if !self.device_group_is_due() {
            return Vec::new();
        }
        let mut group: Vec<DeviceJob> = Vec::new();
        let (mut start, mut end) = (0, 0);
        loop {
            let above = self.on_device.range(self.last_on_device..).next();
            let next = match group.is_empty() {
                true => above.or_else(|| self.on_device.iter().next()),
                false => above,
            };
            let Some((key, job)) = next else {
                break;
            };
            let span = job.span();
            if group.is_empty() {
                (start, end) = (span.offset, span.offset);
            }
            let far = span.offset > end + GROUP_GAP_BYTES_MAX;
            if !group.is_empty() && (far || span.end().max(end) - start > GROUP_BYTES_MAX) {
                break;
            }
            end = end.max(span.end());
            self.last_on_device = *key;
            group.extend(self.on_device.remove(&self.last_on_device));
            self.on_device_bytes -= u64::from(span.len);
        }
        self.device_reads += 1;
        group
    }
}

/// Buffers of a thread that reads from devices, made when they are needed.
#[derive(Default)]
struct DeviceBuffers {
    group: Option<AlignedBuffer>,
    rest: Option<AlignedBuffer>,
}

struct StopOnPanic<'a>(&'a Shared);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.work.notify_all();
        self.front.notify_all();
        self.room.notify_all();
    }

    fn work(&self) {
        let _guard = StopOnPanic(self);
        let mut buffers = DeviceBuffers::default();
        let mut state = self.lock();
        while !state.stopped {
            let on_device = state.take_device_group();
            if !on_device.is_empty() {
                if state.idle > 0 && state.device_group_is_due() {
                    self.work.notify_one();
                }
                drop(state);
                self.read_device_group(on_device, &mut buffers);
                state = self.lock();
                continue;
            }
            let group = state.take_group();
            if group.is_empty() {
                state.idle += 1;
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            } else {
                drop(state);
                self.read_group(group);
                state = self.lock();
            }
        }
    }

    fn read_device_group(&self, group: Vec<DeviceJob>, buffers: &mut DeviceBuffers) {
        if group.is_empty() {
            return;
        }
        let new = || AlignedBuffer::new(GROUP_BUFFER_BYTES);
        let buffer = buffers.group.get_or_insert_with(new);
        let rest = buffers.rest.get_or_insert_with(new);
        let mut files = Vec::with_capacity(group.len());
        device::read_group(group, buffer, rest, |place, file| files.push((place, file)));
        let mut state = self.lock();
        let mut is_first = false;
        for (place, file) in files {
            let at = (place - state.first) as usize;
            state.slots[at].1 = Some(file);
            is_first |= at == 0;
        }
        state.device_reads -= 1;
        drop(state);
        if is_first {
            self.front.notify_one();
        }
    }

    fn read_group(&self, group: Vec<Job>) {
        for job in group {
            let file = read_in_directory(&job.directory, job.entry);
            let mut state = self.lock();
            let at = (job.place - state.first) as usize;
            state.slots[at].1 = Some(file);
            drop(state);
            if at == 0 {
                self.front.notify_one();
            }
        }
    }
}

/// Reads one small file.
pub fn read_small(place: &Place, entry: Entry) -> SmallFile {
    match place {
        Place::Directory(directory) => read_in_directory(directory, entry),
        Place::Image(inode) => device::read_alone(inode, entry),
    }
}

fn read_in_directory(directory: &Arc<Directory>, entry: Entry) -> SmallFile {
    let mut file = SmallFile::new(entry);
    if file.entry.size == 0 {
        // Not opened: the endless files of `/proc` say that they are empty.
        file.problems
            .extend(directory.complete(&mut file.entry).err());
        return file;
    }
    let opened = directory.open().and_then(|directory| {
        let name = CString::new(&file.entry.name[..])?;
        open_for_reading(directory.as_fd(), &name, OFlags::empty())
    });
    let result = match opened {
        Ok(fd) => file.read(fd.as_fd()),
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            file.state = SmallState::Vanished;
            return file;
        }
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        file.give_up(error);
    }
    file
}

impl SmallFile {
    pub(super) fn new(entry: Entry) -> SmallFile {
        SmallFile {
            entry,
            state: SmallState::Read,
            bytes: Bytes::new(),
            hash: None,
            holes: Vec::new(),
            bad: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Four system calls if nothing happened: open, read to the end, stat, close; two for what the scan left out; and
    /// one for a file written to of late. The `stat` before is the scan's.
    fn read(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for attempt in 0..=READ_RETRIES_MAX + 1 {
            if self.entry.size > SMALL_BYTES_MAX {
                self.state = SmallState::Grown;
                return Ok(());
            }
            let size = self.entry.size as usize;
            // One byte more than there should be tells in the same call that the file ends there.
            wait_for_writers(fd, &self.entry);
            bytes.clear();
            bytes.resize(size + 1, 0);
            let filled = read_range(fd, 0, &mut bytes, size + 1)?;
            bytes.truncate(filled.len.min(size));
            let incomplete = complete_opened(fd, &mut self.entry).err();
            let stat = stat_of(fd)?;
            let moved = !is_unchanged(&self.entry, &stat);
            // Some files are shorter than they say (`/sys`), and stay so.
            let settled = filled.len == size || attempt > 0;
            if !moved && settled || attempt > READ_RETRIES_MAX {
                self.problems.extend(incomplete);
                self.bytes = Bytes::from(bytes);
                return self.keep(fd, filled, &stat, moved);
            }
            refresh(&mut self.entry, &stat)?;
        }
        unreachable!("the last attempt is kept")
    }

    fn keep(
        &mut self,
        fd: BorrowedFd<'_>,
        filled: super::ranges::Filled,
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

    /// Holes that the file system tells of, and that are zero in what was read: a map may be wrong, bytes are not.
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

    pub(super) fn give_up(&mut self, error: io::Error) {
        self.state = SmallState::Unreadable;
        self.bytes = Bytes::new();
        self.entry.flags.set(EntryFlags::UNREADABLE);
        self.problems.push(problem(&self.entry, "read", error));
    }
}

fn clip(ranges: &[Range<usize>], size: u64) -> Vec<Range<u64>> {
    ranges
        .iter()
        .map(|range| range.start as u64..(range.end as u64).min(size))
        .filter(|range| range.start < range.end)
        .collect()
}
