//! Lists the directories of an XFS that is read through bulkstat, each opened by inode and
//! generation.
//!
//! Every directory that was told of is listed exactly once, opened by inode and generation:
//! wherever it is moved meanwhile, its names are not missed. The order is that of the tree as far
//! as memory goes, and that of inode numbers otherwise: to open a directory that it does not know
//! yet, the kernel looks through its parent for the name, which it needs not do for one whose name
//! was looked up a moment ago. That order needs no tables: they can be read meanwhile.

use super::SORT_NAMES_BYTES;
use super::directory_blocks::{add, push_names};
use super::faults::Faults;
use crate::image::{Image, XfsBulkstat, decode_piece};
use crate::scan::handle::{DIRECTORY, Handles, Name, list};
use crate::scan::{GETDENTS_BYTES, SCAN_THREADS_MAX};
use bale_pipeline::spill::{Sorted, Sorter, Spill};
use bale_sys::handle::FileHandle;
use crossbeam_channel::{Sender, bounded};
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Directories that wait to be listed in the order of the tree; further ones come in the order of
/// numbers.
const WAITING_MAX: usize = 512 << 10;
/// Directories remembered as listed or waiting; of more, the rest comes in the order of numbers.
const SEEN_MAX: usize = (2 << 20) / 8 * 7;
/// Names that go to the sorter at once.
const STRETCH_BYTES: usize = 256 << 10;
/// Stretches on their way to the sorter.
const STRETCHES_AHEAD_MAX: usize = 8;
/// Subdirectories that begin to wait at once.
const CHILDREN_AT_ONCE: usize = 256;

/// Both tables may be copied while they grow.
const SEEN_BYTES: usize = (2 << 20) * (size_of::<u64>() + 1) / 2 * 3;
const WAITING_BYTES: usize = WAITING_MAX * size_of::<DirectoryToList>() / 2 * 3;
/// Memory of listing, beside the sort of names.
pub(super) const LISTER_BYTES: usize = SEEN_BYTES
    + WAITING_BYTES
    + (STRETCHES_AHEAD_MAX + SCAN_THREADS_MAX) * STRETCH_BYTES
    + SCAN_THREADS_MAX * GETDENTS_BYTES;

/// A directory to be listed.
#[derive(Clone, Copy)]
struct DirectoryToList {
    inode: u64,
    generation: u32,
}

/// From a listing thread to the one that sorts.
enum ListerMessage {
    /// One behind the other.
    Names(Vec<u8>),
    /// Of this directory names may be missing.
    Incomplete(u64, String),
    /// It is no use to go on.
    Failed(io::Error),
}

/// Names on their way to be sorted.
pub(super) struct NamesLister<'a> {
    image: &'a Image,
    lister: Lister<'a>,
    names: Sorter,
    faults: Faults,
}

impl<'a> NamesLister<'a> {
    pub(super) fn new(
        image: &'a Image,
        bulkstat: &'a XfsBulkstat,
        names: Sorter,
    ) -> io::Result<NamesLister<'a>> {
        let handles = bulkstat.handles();
        let (_, mount) = FileHandle::of(handles.mount(), c".")?;
        Ok(NamesLister {
            image,
            lister: Lister {
                handles,
                mount,
                queue: Mutex::new(Queue::default()),
                more: Condvar::new(),
                is_stopped: AtomicBool::new(false),
            },
            names,
            faults: Faults::default(),
        })
    }

    /// Lists from the root on while `read` reads the tables.
    pub(super) fn while_reading<T>(
        image: &'a Image,
        bulkstat: &'a XfsBulkstat,
        spill: Spill<'_>,
        read: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<(NamesLister<'a>, T)> {
        let names = Sorter::new(spill.directory, spill.memory.inode_share(SORT_NAMES_BYTES));
        let mut listing = NamesLister::new(image, bulkstat, names)?;
        let (inode, generation) = bulkstat.root_handle();
        listing
            .lister
            .add(&mut vec![DirectoryToList { inode, generation }]);
        let tables = std::thread::scope(|scope| {
            let (lister, names, faults) =
                (&listing.lister, &mut listing.names, &mut listing.faults);
            let listed = scope.spawn(|| lister.list_all(image, names, faults));
            let tables = read();
            lister.is_stopped.store(tables.is_err(), Ordering::Relaxed);
            let listed = listed.join().expect("listing does not panic");
            listed.and(tables)
        })?;
        Ok((listing, tables))
    }

    /// Lists what `places` tells of and was not listed before; gives all names by inode.
    pub(super) fn finish(mut self, places: Sorter, faults: &mut Faults) -> io::Result<Sorted> {
        self.lister.queue().places = Some(places.finish().map_err(io::Error::other)?);
        self.lister
            .list_all(self.image, &mut self.names, &mut self.faults)?;
        faults.add_all(self.faults);
        self.names.finish().map_err(io::Error::other)
    }
}

/// What is to be listed.
#[derive(Default)]
struct Queue {
    /// The last one is next.
    waiting: Vec<DirectoryToList>,
    /// Listed or waiting, as far as that is remembered.
    seen: HashSet<u64>,
    /// All, by number; none as long as the tables are not read.
    places: Option<Sorted>,
    /// Threads that are listing, and may find more.
    at_work: usize,
}

impl Queue {
    /// Is it better to wait for what others find than to go on by number?
    fn should_wait(&self) -> bool {
        self.waiting.is_empty() && self.at_work > 0 && self.seen.len() < SEEN_MAX
    }

    fn take(&mut self) -> io::Result<Option<DirectoryToList>> {
        if let Some(found) = self.waiting.pop() {
            return Ok(Some(found));
        }
        let Some(places) = &mut self.places else {
            return Ok(None);
        };
        while let Some((_, value)) = places.next_record().map_err(io::Error::other)? {
            let damaged = || io::Error::other("a temporary file is damaged");
            let piece = decode_piece(value).ok_or_else(damaged)?;
            let inode = piece.directory;
            let is_new = match self.seen.len() < SEEN_MAX {
                true => self.seen.insert(inode),
                // From here on nothing begins to wait, so that this one cannot come again.
                false => !self.seen.contains(&inode),
            };
            if is_new {
                let generation = piece.generation();
                return Ok(Some(DirectoryToList { inode, generation }));
            }
        }
        Ok(None)
    }

    fn add(&mut self, children: &mut Vec<DirectoryToList>) {
        for child in children.drain(..) {
            let has_room = self.waiting.len() < WAITING_MAX && self.seen.len() < SEEN_MAX;
            if has_room && self.seen.insert(child.inode) {
                self.waiting.push(child);
            }
        }
    }
}

struct Lister<'a> {
    handles: &'a Handles,
    /// Id of the mount that the handles are of.
    mount: i32,
    queue: Mutex<Queue>,
    /// Something waits, or fewer are at work.
    more: Condvar,
    is_stopped: AtomicBool,
}

/// A thread at work.
struct AtWork<'a>(&'a Lister<'a>);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.queue().at_work -= 1;
        self.0.more.notify_all();
    }
}

/// What one thread is about to tell.
struct Outbox {
    names: Vec<u8>,
    sender: Sender<ListerMessage>,
    /// Nobody takes it any more.
    is_closed: bool,
}

impl Outbox {
    fn send(&mut self, bulkstat: ListerMessage) {
        self.is_closed |= self.sender.send(bulkstat).is_err();
    }

    fn name(&mut self, directory: u64, name: Name<'_>) {
        add(&mut self.names, directory, name.inode, name.name);
        if self.names.len() >= STRETCH_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let room = Vec::with_capacity(STRETCH_BYTES + 512);
        let names = std::mem::replace(&mut self.names, room);
        if !names.is_empty() {
            self.send(ListerMessage::Names(names));
        }
    }
}

impl Lister<'_> {
    /// An error ends the threads, too: nobody takes what they tell.
    fn list_all(&self, image: &Image, names: &mut Sorter, faults: &mut Faults) -> io::Result<()> {
        std::thread::scope(|scope| {
            let (sender, results) = bounded(STRETCHES_AHEAD_MAX);
            for _ in 0..SCAN_THREADS_MAX {
                let sender = sender.clone();
                scope.spawn(move || self.work(sender));
            }
            drop(sender);
            for bulkstat in results {
                match bulkstat {
                    ListerMessage::Names(added) => push_names(image, names, &added)?,
                    ListerMessage::Incomplete(directory, why) => faults.directory(directory, why),
                    ListerMessage::Failed(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    fn work(&self, sender: Sender<ListerMessage>) {
        let mut out = Outbox {
            names: Vec::new(),
            sender,
            is_closed: false,
        };
        while !out.is_closed && !self.is_stopped.load(Ordering::Relaxed) {
            match self.take() {
                Ok(Some((found, at_work))) => {
                    self.list(found, &mut out);
                    drop(at_work);
                }
                Ok(None) => break,
                Err(error) => out.send(ListerMessage::Failed(error)),
            }
        }
        out.flush();
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> io::Result<Option<(DirectoryToList, AtWork<'_>)>> {
        let queue = self
            .more
            .wait_while(self.queue(), |queue| queue.should_wait());
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        let found = queue.take()?;
        Ok(found.map(|found| {
            queue.at_work += 1;
            (found, AtWork(self))
        }))
    }

    fn add(&self, children: &mut Vec<DirectoryToList>) {
        if !children.is_empty() {
            self.queue().add(children);
            self.more.notify_all();
        }
    }

    fn list(&self, found: DirectoryToList, out: &mut Outbox) {
        let directory = found.inode;
        let opened = match self.handles.open(directory, found.generation, DIRECTORY) {
            Ok(Some(opened)) => opened,
            // It is gone, which the second look will show: its number is not in use, or has another
            // life.
            Ok(None) => return,
            Err(error) => return out.send(ListerMessage::Incomplete(directory, error.to_string())),
        };
        let mut children = Vec::new();
        let listed = list(&opened.fd, &mut |name| {
            out.name(directory, name);
            if name.is_directory {
                children.extend(self.look_up(&opened.fd, name));
            }
            if children.len() >= CHILDREN_AT_ONCE {
                self.add(&mut children);
            }
        });
        self.add(&mut children);
        if let Err(error) = listed {
            out.send(ListerMessage::Incomplete(directory, error.to_string()));
        }
    }

    /// From now on the kernel knows where this subdirectory is. `None`: something is mounted there,
    /// it was moved meanwhile, or handles are of another kind; then it comes in the order of
    /// numbers.
    fn look_up(&self, directory: &OwnedFd, name: Name<'_>) -> Option<DirectoryToList> {
        let c_name = CString::new(name.name).ok()?;
        let (handle, mount) = FileHandle::of(directory.as_fd(), &c_name).ok()?;
        let (inode, generation) = handle.xfs_parts()?;
        let is_it = mount == self.mount && inode == name.inode;
        is_it.then_some(DirectoryToList { inode, generation })
    }
}
