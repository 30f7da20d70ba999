//! Small files: many in flight, read in inode order, handed out in the order they were asked for.

mod device_queue;
mod file;
mod group;

use super::SMALL_THREADS_MAX;
use super::arranged::Arranged;
use super::device::{
    self, DeviceJob, PreparedFile, REST_BUFFER_BYTES, group_buffer_bytes, group_bytes,
};
use super::slabs::{Slabs, cost_of};
use super::{SMALL_WINDOW_BYTES_MAX, SMALL_WINDOW_FILES_MAX};
use crate::image::EntryPlace;
use crate::scan::Directory;
use bale_format::entry::Entry;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::on_panic::OnPanic;
use bale_sys::buffer::AlignedBuffer;
use bytes::BytesMut;
use device_queue::DeviceQueue;
pub use file::{ReadBefore, SmallFile, SmallState};
use group::{GroupReader, files_of_this_process, read_in_directory, threads_of_this_process};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Files that a thread takes at once when there are many, and reads with one wait; fewer where few
/// files may be open.
const GROUP_FILES_MAX: usize = 8;
/// How long the first file is waited for until it is read with whatever neighbours there are: no
/// more may come before it is taken.
const FRONT_PATIENCE: Duration = Duration::from_millis(50);
/// Stack of a reading thread.
const STACK_BYTES: usize = 256 << 10;

struct ReadJob {
    directory: Arc<Directory>,
    entry: Entry,
    place: u64,
    /// For the file and one byte more.
    room: BytesMut,
}

#[derive(Default)]
struct ReaderState {
    /// By device, inode, place.
    waiting: BTreeMap<(u64, u64, u64), ReadJob>,
    /// Where the last group ended.
    last: (u64, u64, u64),
    on_device: DeviceQueue,
    /// Somebody waits for the first file, and has waited long.
    front_stalls: bool,
    /// Slots of the files asked for, in order, with the bytes they count for.
    slots: VecDeque<(u64, Option<SmallFile>)>,
    slabs: Slabs,
    /// Place of the first slot.
    first: u64,
    bytes: u64,
    bytes_max: u64,
    closed: bool,
    stopped: bool,
    idle: usize,
}

struct Shared {
    group_files_max: usize,
    /// Of neighbours on a device.
    group_bytes: usize,
    /// No thread was refused a ring to read through.
    rings: AtomicBool,
    state: Mutex<ReaderState>,
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
        let threads = threads.unwrap_or_else(threads_of_this_process);
        SmallReader::with(&MemoryPlan::USUAL, threads, SMALL_WINDOW_BYTES_MAX)
    }

    /// Starts so many threads at most; so many bytes of files are asked for and not yet handed out.
    pub fn within(memory: &MemoryPlan, threads_max: usize, window_bytes: usize) -> SmallReader {
        let threads = threads_max.min(threads_of_this_process());
        SmallReader::with(memory, threads, window_bytes as u64)
    }

    fn with(memory: &MemoryPlan, count: usize, window_bytes: u64) -> SmallReader {
        let files = files_of_this_process();
        let shared = Arc::new(Shared {
            group_files_max: (files / 8 / count.max(1)).clamp(1, GROUP_FILES_MAX),
            group_bytes: group_bytes(memory),
            rings: AtomicBool::new(true),
            state: Mutex::new(ReaderState {
                bytes_max: window_bytes,
                slabs: Slabs::of_window(window_bytes),
                ..ReaderState::default()
            }),
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
    pub fn push(&self, place: &EntryPlace, entry: Entry) {
        match place {
            EntryPlace::Directory(directory) => self.push_in_directory(directory, entry),
            EntryPlace::Image(inode) => self.push_on_device(device::prepare(inode, entry, 0)),
        }
    }

    /// The content of a file that was read before it is asked for; if it was not, it must be
    /// pushed.
    pub fn read_before<'a>(&self, place: &'a EntryPlace) -> Option<ReadBefore<'a>> {
        let EntryPlace::Image(inode) = place else {
            return None;
        };
        let mut arranged = self.arranged.lock().unwrap_or_else(PoisonError::into_inner);
        let content = arranged.as_mut()?.take(inode.number)?;
        Some(ReadBefore { inode, content })
    }

    fn push_on_device(&self, looked: PreparedFile) {
        let mut state = self.shared.lock();
        let entry = match &looked {
            PreparedFile::Done(file) => &file.entry,
            PreparedFile::Job(job) => &job.entry,
        };
        while !state.has_room(entry) && !state.stopped {
            let waited = self.shared.room.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let cost = cost_of(entry);
        state.bytes += cost;
        match looked {
            PreparedFile::Done(file) => {
                state.slots.push_back((cost, None));
                let last = state.first + state.slots.len() as u64 - 1;
                if state.put(last, *file) {
                    self.shared.front.notify_one();
                }
            }
            PreparedFile::Job(mut job) => {
                job.place = state.first + state.slots.len() as u64;
                job.room = state.slabs.take(job.entry.size as usize);
                state.slots.push_back((cost, None));
                state.on_device.push(*job);
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
        let room = state.slabs.room_for(&entry);
        let directory = directory.clone();
        state.waiting.insert(
            key,
            ReadJob {
                directory,
                entry,
                place,
                room,
            },
        );
        if state.idle > 0 {
            self.shared.work.notify_one();
        }
    }

    /// Ends the reading threads; whoever waits for room waits no longer. Nothing may be taken after
    /// this.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// No more files will be asked for.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.front.notify_all();
        self.shared.work.notify_all();
    }

    /// The next file in the order asked for; waits until it is read. `None`: closed, and all were
    /// taken.
    pub fn pop(&self) -> Option<SmallFile> {
        let mut state = self.shared.lock();
        loop {
            if let Some((_, Some(_))) = state.slots.front() {
                let was_short = state.is_short();
                let (cost, file) = state.slots.pop_front()?;
                state.first += 1;
                state.bytes -= cost;
                state.front_stalls = false;
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
            if self.threads.is_empty() {
                state.front_stalls = true;
                let group = state.take_group(self.shared.group_files_max);
                let on_device = state.take_device_group(self.shared.group_bytes);
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
            let waited = self.shared.front.wait_timeout(state, FRONT_PATIENCE);
            let (woken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.front_stalls |= waited.timed_out() && !state.on_device.is_read();
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

impl ReaderState {
    /// A file that is alone always fits.
    fn has_room(&self, entry: &Entry) -> bool {
        self.slots.is_empty()
            || self.slots.len() < SMALL_WINDOW_FILES_MAX
                && self.bytes + cost_of(entry) <= self.bytes_max
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

    /// What was read is more than was thought when it was asked for: for the time being only the
    /// first file is read.
    fn is_short(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Goes through inode numbers upwards, then starts again: like a lift.
    fn take_group(&mut self, files_max: usize) -> Vec<ReadJob> {
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

impl ReaderState {
    /// A group on a device is worth reading: there is much to choose from, or nobody can wait any
    /// longer.
    fn device_group_is_due(&self) -> bool {
        self.on_device.may_be_read()
            && (self.front_stalls || self.closed || self.on_device.is_much())
    }

    /// Files near each other; where memory is short, the first file alone.
    fn take_device_group(&mut self, group_bytes: usize) -> Vec<DeviceJob> {
        match (self.device_group_is_due(), self.is_short()) {
            (false, _) => Vec::new(),
            (true, true) => Vec::from_iter(self.on_device.take(self.first)),
            (true, false) => self.on_device.take_group(group_bytes),
        }
    }
}

/// Buffers of a thread that reads from devices, made when they are needed.
#[derive(Default)]
struct DeviceBuffers {
    group: Option<AlignedBuffer>,
    rest: Option<AlignedBuffer>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ReaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.work.notify_all();
        self.front.notify_all();
        self.room.notify_all();
    }

    fn work(&self) {
        let _guard = OnPanic(|| self.stop());
        let (mut buffers, mut reader) = (DeviceBuffers::default(), GroupReader::default());
        let mut state = self.lock();
        while !state.stopped {
            let on_device = state.take_device_group(self.group_bytes);
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
        let group_bytes = group_buffer_bytes(self.group_bytes);
        let buffer = buffers
            .group
            .get_or_insert_with(|| AlignedBuffer::new(group_bytes));
        let rest = || AlignedBuffer::new(REST_BUFFER_BYTES);
        let rest = buffers.rest.get_or_insert_with(rest);
        let mut files = Vec::with_capacity(group.len());
        device::read_group(group, buffer, rest, |place, file| files.push((place, file)));
        let mut state = self.lock();
        let mut is_first = false;
        for (place, file) in files {
            is_first |= state.put(place, file);
        }
        state.on_device.was_read();
        drop(state);
        if is_first {
            self.front.notify_one();
        }
    }

    fn read_group(&self, group: Vec<ReadJob>, reader: &mut GroupReader) {
        reader.read(group, self.group_files_max, &self.rings, |place, file| {
            let is_first = self.lock().put(place, file);
            if is_first {
                self.front.notify_one();
            }
        });
    }
}

/// Reads one small file.
pub fn read_small(place: &EntryPlace, entry: Entry) -> SmallFile {
    match place {
        EntryPlace::Directory(directory) => read_in_directory(directory, entry),
        EntryPlace::Image(inode) => device::read_alone(inode, entry),
    }
}
