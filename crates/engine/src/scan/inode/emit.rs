//! The second half of an inode scan: the children of one directory after the other, in the order of the catalog.
//!
//! Where the kernel knows better, it is asked, directory by directory: for the directories that lead to a source, and on a
//! mounted file system for what changed after the barrier.

mod children;
mod kernel;

use super::gather::{Faults, Gathered};
use super::tree::{Child, Marks, Position, Tree};
use crate::filter::Filter;
use crate::image::{Image, State};
use crate::scan::directory::{Directory, FdCache, Identity, identity_of};
use crate::scan::filesystems::Filesystems;
use crate::scan::grafts::Grafts;
use crate::scan::handle::FileHandles;
use crate::scan::names::{Names, SortedNames};
use crate::scan::pending::{Overflow, Pending, Reach};
use crate::scan::sources::Sources;
use crate::scan::stat::{Rules, entry_of, mount_of, reach_of_node, stat_at};
use crate::scan::{
    BATCH_ENTRIES_MAX, Batch, DIRECTORY_FDS_MAX, Note, NoteKind, Places, Problem, ScanItem,
    ScanOptions,
};
use bale_format::entry::{Entry, EntryFlags, Key, Time};
use bale_format::snapshot::Filesystem;
use bytes::Bytes;
use rustix::fs::CWD;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Device number of a file system that is in an image and has none.
pub const IMAGE_DEVICE: u64 = u64::MAX;

/// What to leave out, and where temporary files go.
#[derive(Clone)]
pub struct Way {
    /// Paths to leave out.
    pub filter: Arc<Filter>,
    /// Stay on the mount that each source is on.
    pub one_file_system: bool,
    /// Where files without a name go.
    pub spill_directory: PathBuf,
}

impl From<ScanOptions> for Way {
    fn from(options: ScanOptions) -> Way {
        Way {
            filter: Arc::new(options.filter),
            one_file_system: options.one_file_system,
            spill_directory: options.spill_directory,
        }
    }
}

/// How an inode scan is brought into the tree of the sources.
#[derive(Clone)]
pub struct Frame {
    /// Recorded in the snapshot.
    pub filesystem: Filesystem,
    /// `major << 32 | minor` where the file system is mounted, or [`IMAGE_DEVICE`].
    pub device: u64,
    /// The source that is an image or device, to be shown as a directory. `None`, and nothing writes to the image: it stands
    /// for the file system that has its device number.
    pub image_path: Option<Vec<u8>>,
    /// Entries with a ctime at or after this are read through the kernel.
    pub barrier: Option<Time>,
    /// Inodes that are not what they were gathered as, sorted: the kernel is asked for them.
    pub changed: Arc<Vec<u64>>,
    /// For what is read through the kernel.
    pub handles: Option<Arc<FileHandles>>,
}

/// The stream of an inode scan. Iterating yields the stream.
pub struct ImageScanner {
    image: Arc<Image>,
    tree: Tree,
    faults: Faults,
    frame: Frame,
    rules: Rules,
    overflow: Overflow,
    spill: PathBuf,
    large: Mutex<()>,
    levels: Vec<Level>,
    ready: VecDeque<ScanItem>,
    numbers: Vec<Option<u32>>,
    filesystems: u32,
    /// Number of the scanned file system, as the rules know it.
    own: u32,
    raw: Vec<u8>,
}

/// A directory that was entered.
struct Level {
    directory: Arc<Directory>,
    path: Bytes,
    reach: Reach,
    listing: Listing,
    pending: Pending,
}

/// Where the rest of a directory's children come from.
enum Listing {
    Tree(Position),
    Few(Option<Names>),
    Many(SortedNames),
    Done,
}

impl ImageScanner {
    /// Begins to emit.
    pub fn start(
        sources: &Sources,
        gathered: &Gathered,
        frame: Frame,
        way: &Way,
    ) -> io::Result<ImageScanner> {
        let barrier = frame.filesystem.barrier.unwrap_or_default();
        let filesystems = Filesystems::new(barrier);
        let own = filesystems.adopt(frame.device, frame.filesystem.clone());
        let rules = Rules {
            filter: way.filter.clone(),
            filesystems,
            one_file_system: way.one_file_system,
            ask_access: !rustix::process::geteuid().is_root(),
        };
        let handles = frame.handles.clone();
        let cache = FdCache::with_handles(DIRECTORY_FDS_MAX, Grafts::default(), handles);
        let stat = stat_at(CWD, c"/")?;
        let directory = Directory::root(&cache, identity_of(&stat));
        let mut entry = entry_of(Bytes::new(), Bytes::new(), &stat)
            .ok_or_else(|| io::Error::other("the root is of no known type"))?;
        let fd = directory.open()?;
        let (device, mount) = (directory.identity().device, mount_of(&stat));
        entry.filesystem = rules.filesystems.number(device, mount, fd.as_fd(), c".");
        let mut scanner = ImageScanner {
            image: gathered.image.clone(),
            tree: gathered.tree.again(),
            faults: gathered.faults.clone(),
            frame,
            rules,
            overflow: Overflow::new(&way.spill_directory),
            spill: way.spill_directory.clone(),
            large: Mutex::new(()),
            levels: Vec::new(),
            ready: VecDeque::new(),
            numbers: Vec::new(),
            filesystems: 0,
            own,
            raw: Vec::new(),
        };
        let mut entries = vec![entry];
        let places = scanner.show_image(&directory, &mut entries, &mut Vec::new());
        scanner.push_batch(entries, places);
        scanner.tell_general_faults();
        let source_mount = scanner.rules.one_file_system.then_some(mount);
        let reach = reach_of_node(sources.root(), source_mount);
        scanner.enter(directory, Bytes::new(), reach);
        Ok(scanner)
    }

    fn tell_general_faults(&mut self) {
        let at = self.frame.filesystem.mount.0.clone();
        let path = at.strip_prefix(b"/").unwrap_or(&at).to_vec();
        let others = match self.faults.others {
            0 => None,
            others => Some(format!("{others} further damaged inodes or directories")),
        };
        for why in self.faults.general.drain(..).chain(others) {
            self.ready.push_back(ScanItem::Problem(Problem {
                path: path.clone(),
                action: "scan",
                error: io::Error::other(why),
            }));
        }
    }

    /// Emits children, or enters the next directory; false at the end.
    fn step(&mut self) -> bool {
        let Some(level) = self.levels.last_mut() else {
            return false;
        };
        if !matches!(level.listing, Listing::Done) {
            self.emit_children();
            return true;
        }
        match level.pending.pop(&mut self.overflow) {
            Ok(Some(next)) => {
                let directory = level.directory.child(next.name.clone(), next.identity);
                let path = Bytes::from(bale_format::entry::join(&level.path, &next.name));
                self.enter(directory, path, next.reach);
            }
            Ok(None) => {
                self.levels.pop();
            }
            Err(error) => {
                let path = level.path.clone();
                self.unreadable(&path, "remember what is in", error);
                self.levels.pop();
            }
        }
        true
    }

    fn enter(&mut self, directory: Arc<Directory>, path: Bytes, reach: Reach) {
        let listing = match self.listing(&directory, &path, &reach) {
            Ok(listing) => listing,
            Err(error) if is_gone(&error) => {
                let (path, kind) = (path.to_vec(), NoteKind::Vanished);
                self.ready.push_back(ScanItem::Note(Note { path, kind }));
                return;
            }
            Err(error) => {
                self.unreadable(&path, "enter", error);
                return;
            }
        };
        self.levels.push(Level {
            directory,
            path,
            reach,
            listing,
            pending: Pending::default(),
        });
    }

    /// From the device where the directory is on it and stood still; from the kernel otherwise.
    fn listing(
        &mut self,
        directory: &Arc<Directory>,
        path: &Bytes,
        reach: &Reach,
    ) -> io::Result<Listing> {
        let Identity { device, inode } = directory.identity();
        if device == self.frame.device && !self.has_changed(inode) {
            if let Some(why) = self.faults.directories.remove(&inode) {
                if self.image.state() == State::Mounted {
                    return self.kernel_listing(directory, path, reach);
                }
                self.unreadable(path, "list", io::Error::other(why));
            }
            let found = self.tree.find(inode)?;
            return Ok(found.map_or(Listing::Done, Listing::Tree));
        }
        self.kernel_listing(directory, path, reach)
    }

    /// Of a mounted file system, what changed and what makes no sense is asked of the kernel.
    fn is_unsure(&self, child: &Child) -> bool {
        let odd = child.marks.has(Marks::MISSING) || child.marks.has(Marks::AGAIN);
        odd || self.has_changed(child.inode)
    }

    fn has_changed(&self, inode: u64) -> bool {
        self.frame.changed.binary_search(&inode).is_ok()
    }

    /// The next batch of the innermost directory.
    fn emit_children(&mut self) {
        let level = self.levels.last_mut().expect("called inside a directory");
        match std::mem::replace(&mut level.listing, Listing::Done) {
            Listing::Tree(position) => self.emit_from_tree(position),
            Listing::Few(names) => self.emit_from_kernel(names.unwrap_or_default()),
            Listing::Many(mut sorted) => {
                let mut names = Names::default();
                match sorted.take(BATCH_ENTRIES_MAX, &mut names) {
                    Ok(true) => level.listing = Listing::Many(sorted),
                    Ok(false) => {}
                    Err(error) => {
                        let path = level.path.clone();
                        self.unreadable(&path, "sort", error);
                    }
                }
                self.emit_from_kernel(names);
            }
            Listing::Done => {}
        }
    }

    fn missed(&mut self, path: &Bytes, name: &[u8], why: String) {
        let path_of_it = bale_format::entry::join(path, name);
        self.tell(path_of_it, "stat", io::Error::other(why));
        self.ready.push_back(amend(path, EntryFlags::UNREADABLE));
    }

    fn unreadable(&mut self, path: &Bytes, action: &'static str, error: io::Error) {
        self.ready.push_back(amend(path, EntryFlags::UNREADABLE));
        self.tell(path.to_vec(), action, error);
    }

    fn tell(&mut self, path: Vec<u8>, action: &'static str, error: io::Error) {
        self.ready.push_back(ScanItem::Problem(Problem {
            path,
            action,
            error,
        }));
    }

    /// Numbers file systems in the order of the stream.
    fn push_batch(&mut self, mut entries: Vec<Entry>, places: Places) {
        for entry in &mut entries {
            let provisional = entry.filesystem as usize;
            if self.numbers.len() <= provisional {
                self.numbers.resize(provisional + 1, None);
            }
            let number = &mut self.numbers[provisional];
            if number.is_none() {
                let filesystem = self.rules.filesystems.get(entry.filesystem);
                self.ready.push_back(ScanItem::Filesystem(filesystem));
                *number = Some(self.filesystems);
                self.filesystems += 1;
            }
            entry.filesystem = number.expect("set above");
        }
        self.ready
            .push_back(ScanItem::Entries(Batch { places, entries }));
    }
}

impl Iterator for ImageScanner {
    type Item = ScanItem;

    fn next(&mut self) -> Option<ScanItem> {
        while self.ready.is_empty() {
            if !self.step() {
                return None;
            }
        }
        self.ready.pop_front()
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn amend(path: &Bytes, flags: EntryFlags) -> ScanItem {
    ScanItem::Amend {
        key: Key::of_path(path),
        flags,
    }
}
