//! Small files: many in flight, read in inode order, handed out in the order they were asked for.

mod group;

use super::arranged::Arranged;
use super::device::{
    self, DeviceJob, GROUP_BUFFER_BYTES, GROUP_BYTES_MAX, GROUP_GAP_BYTES_MAX, Looked,
};
use super::{SMALL_BYTES_MAX, SMALL_THREADS_MAX};
use super::{SMALL_WINDOW_BYTES_MAX, SMALL_WINDOW_FILES_MAX};
use crate::image::{ImageInode, Place};
use crate::scan::{Directory, Problem};
use bale_format::entry::Entry;
use bale_sys::buffer::AlignedBuffer;
use bytes::Bytes;
use group::{GroupReader, read_in_directory};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What a file in the window takes beside its bytes.
const FILE_BYTES: u64 = 512;
/// Files that a thread takes at once when there are many, and reads with one wait; fewer where few files may be open.
const GROUP_FILES_MAX: usize = 8;
/// Groups of files on a device that are read at a time.
const DEVICE_READS_MAX: usize = 12;
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

struct Shared {
    group_files_max: usize,
    /// No thread was refused a ring to read through.
    rings: AtomicBool,
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
        let shared = Arc::new(Shared {
            group_files_max: (files / 8 / count.max(1)).clamp(1, GROUP_FILES_MAX),
            rings: AtomicBool::new(true),
            state: Mutex::default(),
            work: Condvar::new(),
            front: Condvar::new(),
            room: Condvar::new(),
        });
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

    /// The same, as where the kernel refuses rings: each read is a call of its own.
    pub fn without_rings(self) -> SmallReader {
        self.shared.rings.store(false, Ordering::Relaxed);
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
                state.slots.push_back((cost, None));
                let last = state.first + state.slots.len() as u64 - 1;
                if state.put(last, *file) {
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
                let was_short = state.is_short();
                let (cost, file) = state.slots.pop_front()?;
                state.first += 1;
                state.bytes -= cost;
                drop(state);
                self.shared.room.notify_one();
                if was_short {
                    self.shared.work.notify_all();
                }
                return file;
            }
            if state.slots.is_empty() && state.closed {
                return None;
            }
            assert!(!state.stopped, "a thread that reads files panicked");
            state.front_waits = true;
            if self.threads.is_empty() {
                let group = state.take_group(self.shared.group_files_max);
                let on_device = state.take_device_group();
                if !group.is_empty() || !on_device.is_empty() {
                    drop(state);
                    self.shared.read_group(group, &mut GroupReader::default());
                    let mut buffers = DeviceBuffers::default();
                    self.shared.read_device_group(on_device, &mut buffers);
                    state = self.shared.lock();
                    continue;
                }
            }
            if state.idle > 0 && (state.device_group_is_due() || state.is_short()) {
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

    /// Keeps a file that was read, whose attributes count from now on; true if it is the first.
    fn put(&mut self, place: u64, file: SmallFile) -> bool {
        let at = (place - self.first) as usize;
        let attributes = file.entry.xattrs.len() as u64;
        let slot = &mut self.slots[at];
        slot.0 += attributes;
        slot.1 = Some(file);
        self.bytes += attributes;
        at == 0
    }

    /// What was read is more than was thought when it was asked for: for the time being only the first file is read.
    fn is_short(&self) -> bool {
        self.bytes > SMALL_WINDOW_BYTES_MAX
    }

    /// Goes through inode numbers upwards, then starts again: like a lift.
    fn take_group(&mut self, files_max: usize) -> Vec<Job> {
        if self.is_short() {
            let first = self.waiting.keys().find(|key| key.2 == self.first).copied();
            return Vec::from_iter(first.and_then(|key| self.waiting.remove(&key)));
        }
        let many = self.waiting.len() >= files_max * SMALL_THREADS_MAX;
        let count = if many { files_max } else { 1 };
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
        if self.is_short() {
            let mut keys = self.on_device.keys();
            let first = keys.find(|key| key.1 == self.first).copied();
            let job = first.and_then(|key| self.on_device.remove(&key));
            if let Some(job) = &job {
                self.on_device_bytes -= u64::from(job.span().len);
                self.device_reads += 1;
            }
            return Vec::from_iter(job);
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
        let (mut buffers, mut reader) = (DeviceBuffers::default(), GroupReader::default());
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
            let group = state.take_group(self.group_files_max);
            if group.is_empty() {
                state.idle += 1;
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            } else {
                drop(state);
                self.read_group(group, &mut reader);
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
            is_first |= state.put(place, file);
        }
        state.device_reads -= 1;
        drop(state);
        if is_first {
            self.front.notify_one();
        }
    }

    fn read_group(&self, group: Vec<Job>, reader: &mut GroupReader) {
        reader.read(group, self.group_files_max, &self.rings, |place, file| {
            let is_first = self.lock().put(place, file);
            if is_first {
                self.front.notify_one();
            }
        });
    }
}

/// Reads one small file.
pub fn read_small(place: &Place, entry: Entry) -> SmallFile {
    match place {
        Place::Directory(directory) => read_in_directory(directory, entry),
        Place::Image(inode) => device::read_alone(inode, entry),
    }
}
