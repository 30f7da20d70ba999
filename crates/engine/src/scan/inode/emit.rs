//! The second half of an inode scan: the children of one directory after the other, in the order of the catalog.
//!
//! Where the kernel knows better, it is asked, directory by directory: for the directories that lead to a source, and on a
//! mounted file system for what changed after the barrier.

use super::gather::{Faults, Gathered};
use super::tree::{Child, Marks, Position, Tree};
use crate::filter::Filter;
use crate::image::{Image, ImageInode, Place, State, set_stat, unpack_inode};
use crate::scan::directory::{Directory, FdCache, Identity, identity_of};
use crate::scan::filesystems::Filesystems;
use crate::scan::grafts::Grafts;
use crate::scan::list::{ListedNames, list};
use crate::scan::names::{Names, SortedNames};
use crate::scan::pending::{Overflow, Pending, Reach, Subdirectory};
use crate::scan::sources::{SourceNode, Sources};
use crate::scan::stat::{
    Part, Rules, entry_of, mount_of, names_of_marks, names_of_node, reach_of_node, stat_at,
};
use crate::scan::{
    BATCH_ENTRIES_MAX, Batch, DIRECTORY_FDS_MAX, Note, NoteKind, PARENT_BYTES_MAX, Places, Problem,
    ScanItem, ScanOptions,
};
use bale_format::entry::{Entry, EntryFlags, Key, Kind, Time};
use bale_format::snapshot::Filesystem;
use bale_fsimage::{Inode, Layout};
use bytes::Bytes;
use rustix::fs::CWD;
use std::cell::Cell;
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
    /// The source that is an image or device, to be shown as a directory.
    pub image_path: Option<Vec<u8>>,
    /// Entries with a ctime at or after this are read through the kernel.
    pub barrier: Option<Time>,
    /// Inodes that are not what they were gathered as, sorted: the kernel is asked for them.
    pub changed: Arc<Vec<u64>>,
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
    Tree(u64, Position),
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
        let cache = FdCache::new(DIRECTORY_FDS_MAX, Grafts::default());
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
        scanner.push_batch(vec![entry], Places::Directory(directory.clone()));
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
            return Ok(found.map_or(Listing::Done, |position| Listing::Tree(inode, position)));
        }
        self.kernel_listing(directory, path, reach)
    }

    fn kernel_listing(
        &mut self,
        directory: &Arc<Directory>,
        path: &Bytes,
        reach: &Reach,
    ) -> io::Result<Listing> {
        let fd = directory.open()?;
        Ok(match reach {
            Reach::Only(node) => Listing::Few(Some(names_of_node(node))),
            Reach::Marks => Listing::Few(Some(names_of_marks(&self.rules.filter))),
            Reach::All(_) | Reach::AllAnd(..) => {
                let listed = list(&fd, &self.spill, &self.large);
                if let Some(error) = listed.error {
                    self.unreadable(path, "list", error);
                }
                match listed.names {
                    ListedNames::Few(names) => Listing::Few(Some(names)),
                    ListedNames::Many(names) => Listing::Many(names),
                }
            }
        })
    }

    /// Of a mounted file system, what changed and what makes no sense is asked of the kernel.
    fn is_unsure(&mut self, child: &Child) -> bool {
        let odd = child.marks.has(Marks::MISSING) || child.marks.has(Marks::AGAIN);
        odd || self.has_changed(child.inode)
            || unpack_inode(&child.packed, &mut self.raw)
                .is_none_or(|raw| self.image.inode(child.inode, raw).is_err())
    }

    fn has_changed(&self, inode: u64) -> bool {
        self.frame.changed.binary_search(&inode).is_ok()
    }

    /// The next batch of the innermost directory.
    fn emit_children(&mut self) {
        let level = self.levels.last_mut().expect("called inside a directory");
        match std::mem::replace(&mut level.listing, Listing::Done) {
            Listing::Tree(inode, position) => self.emit_from_tree(inode, position),
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

    fn emit_from_kernel(&mut self, names: Names) {
        let level = self.levels.last().expect("called inside a directory");
        let (directory, path) = (level.directory.clone(), level.path.clone());
        let fd = match directory.open() {
            Ok(fd) => fd,
            Err(error) => return self.unreadable(&path, "list", error),
        };
        let part = Part {
            rules: &self.rules,
            directory: &directory,
            fd: &fd,
            reach: &level.reach,
            path: &path,
            last_filesystem: Cell::new(None),
        };
        let mut statted = part.stat(names);
        if statted.incomplete {
            self.ready.push_back(amend(&path, EntryFlags::UNREADABLE));
        }
        let problems = statted.problems.into_iter().map(ScanItem::Problem);
        self.ready.extend(problems);
        self.ready
            .extend(statted.notes.into_iter().map(ScanItem::Note));
        let places = self.show_image(
            &directory,
            &mut statted.entries,
            &mut statted.subdirectories,
        );
        if !statted.entries.is_empty() {
            self.push_batch(statted.entries, places);
        }
        let level = self.levels.last_mut().expect("as above");
        level
            .pending
            .append(statted.subdirectories, &mut self.overflow);
    }

    /// A source that is an image becomes the root directory of what is in it.
    fn show_image(
        &mut self,
        directory: &Arc<Directory>,
        entries: &mut [Entry],
        subdirectories: &mut Vec<Subdirectory>,
    ) -> Places {
        let image_path = self.frame.image_path.as_deref();
        let shown = entries
            .iter_mut()
            .position(|entry| image_path == Some(&entry.path()[..]));
        let Some(at) = shown else {
            return Places::Directory(directory.clone());
        };
        let (parent, name) = (entries[at].parent.clone(), entries[at].name.clone());
        let (entry, inode) = match self.root_entry(parent, name) {
            Ok(found) => found,
            Err(error) => {
                entries[at].flags.set(EntryFlags::UNREADABLE);
                let path = entries[at].path();
                self.unreadable(&Bytes::from(path), "read the root directory in", error);
                return Places::Directory(directory.clone());
            }
        };
        subdirectories.retain(|subdirectory| subdirectory.name != entry.name);
        let place = subdirectories.partition_point(|other| other.name < entry.name);
        subdirectories.insert(
            place,
            Subdirectory {
                name: entry.name.clone(),
                identity: Identity {
                    device: IMAGE_DEVICE,
                    inode: self.image.root(),
                },
                reach: Reach::All(None),
            },
        );
        entries[at] = entry;
        let by_kernel = Place::Directory(directory.clone());
        let mut places = vec![by_kernel; entries.len()];
        places[at] = Place::Image(inode);
        Places::Each(places)
    }

    fn root_entry(&mut self, parent: Bytes, name: Bytes) -> io::Result<(Entry, ImageInode)> {
        let number = self.image.root();
        let raw = self.image.read_inode(number)?;
        let inode = self.image.inode(number, &raw).map_err(io::Error::other)?;
        let mut entry = Entry::new(parent, name, Kind::Directory);
        set_stat(&mut entry, &inode);
        entry.filesystem = self.own;
        let mut packed = Vec::new();
        crate::image::pack_inode(&raw, &mut packed);
        let inode = ImageInode {
            image: self.image.clone(),
            number,
            packed: Bytes::from(packed),
        };
        Ok((entry, inode))
    }

    fn emit_from_tree(&mut self, directory_inode: u64, mut position: Position) {
        let level = self.levels.last().expect("called inside a directory");
        let (directory, path, reach) = (
            level.directory.clone(),
            level.path.clone(),
            level.reach.clone(),
        );
        let mut entries = Vec::new();
        let mut places = Vec::new();
        let mut subdirectories = Vec::new();
        let mut last: Option<Bytes> = None;
        let mut at_end = false;
        while entries.len() < BATCH_ENTRIES_MAX {
            let child = match self.tree.next(directory_inode, &mut position) {
                Ok(Some(child)) => child,
                Ok(None) => {
                    at_end = true;
                    break;
                }
                Err(error) => {
                    self.unreadable(&path, "list", error);
                    at_end = true;
                    break;
                }
            };
            if last.as_ref() == Some(&child.name) {
                self.missed(
                    &path,
                    &child.name,
                    "listed twice in one directory".to_owned(),
                );
                continue;
            }
            last = Some(child.name.clone());
            if !self.is_wanted(&path, &reach, &child.name) {
                continue;
            }
            if self.image.state() == State::Mounted && self.is_unsure(&child) {
                self.emit_changed(
                    &directory,
                    &path,
                    &reach,
                    &child,
                    &mut entries,
                    &mut places,
                    &mut subdirectories,
                );
                continue;
            }
            let Some((mut entry, inode)) = self.entry_of(&path, &child) else {
                continue;
            };
            let node = source_node(&reach, &child.name);
            let named = node.is_some_and(|node| node.is_source);
            if !named && entry.kind == Kind::File && self.rules.filter.excludes_size(entry.size) {
                continue;
            }
            if entry.kind == Kind::Directory
                && let Some(subdirectory) =
                    self.subdirectory(&mut entry, &child, &reach, node.cloned(), &directory)
            {
                subdirectories.push(subdirectory);
            }
            places.push(self.place_of(&directory, &entry, &inode, child));
            entries.push(entry);
        }
        if !entries.is_empty() {
            self.push_batch(entries, Places::Each(places));
        }
        let level = self.levels.last_mut().expect("as above");
        level.pending.append(subdirectories, &mut self.overflow);
        if !at_end {
            level.listing = Listing::Tree(directory_inode, position);
        }
    }

    /// A child that changed since it was gathered: the kernel tells what it is now.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one batch under way"
    )]
    fn emit_changed(
        &mut self,
        directory: &Arc<Directory>,
        path: &Bytes,
        reach: &Reach,
        child: &Child,
        entries: &mut Vec<Entry>,
        places: &mut Vec<Place>,
        subdirectories: &mut Vec<Subdirectory>,
    ) {
        let fd = match directory.open() {
            Ok(fd) => fd,
            Err(error) => return self.missed(path, &child.name, error.to_string()),
        };
        let part = Part {
            rules: &self.rules,
            directory,
            fd: &fd,
            reach,
            path,
            last_filesystem: Cell::new(None),
        };
        let mut names = Names::default();
        names.push(&child.name, child.inode);
        let statted = part.stat(names);
        if statted.incomplete {
            self.ready.push_back(amend(path, EntryFlags::UNREADABLE));
        }
        let problems = statted.problems.into_iter().map(ScanItem::Problem);
        self.ready.extend(problems);
        self.ready
            .extend(statted.notes.into_iter().map(ScanItem::Note));
        let by_kernel = Place::Directory(directory.clone());
        places.extend(std::iter::repeat_n(by_kernel, statted.entries.len()));
        entries.extend(statted.entries);
        subdirectories.extend(statted.subdirectories);
    }

    fn is_wanted(&self, path: &Bytes, reach: &Reach, name: &[u8]) -> bool {
        let is_node = source_node(reach, name).is_some();
        match reach {
            Reach::Only(_) => is_node,
            Reach::Marks => {
                let mut marks = self.rules.filter.marks().iter();
                marks.any(|mark| mark.file().to_bytes() == name)
            }
            Reach::All(_) | Reach::AllAnd(..) => {
                is_node
                    || !self.rules.filter.has_patterns()
                    || !self
                        .rules
                        .filter
                        .excludes(&bale_format::entry::join(path, name))
            }
        }
    }

    /// `None`: it was told why there is no entry.
    fn entry_of(&mut self, path: &Bytes, child: &Child) -> Option<(Entry, Inode)> {
        let inode = match child.marks.has(Marks::MISSING) {
            true => Err(match self.faults.inodes.get(&child.inode) {
                Some(why) => format!("inode {}: {why}", child.inode),
                None => format!("it leads to inode {}, which is not in use", child.inode),
            }),
            false => match unpack_inode(&child.packed, &mut self.raw) {
                Some(raw) => self.image.inode(child.inode, raw),
                None => Err("a temporary file is damaged".to_owned()),
            },
        };
        let inode = match inode {
            Ok(inode) => inode,
            Err(why) => {
                self.missed(path, &child.name, why);
                return None;
            }
        };
        let Some(kind) = Kind::from_mode(inode.mode) else {
            let why = "a type of file that nobody knows".to_owned();
            self.missed(path, &child.name, why);
            return None;
        };
        let mut entry = Entry::new(path.clone(), child.name.clone(), kind);
        set_stat(&mut entry, &inode);
        entry.filesystem = self.own;
        Some((entry, inode))
    }

    /// Through the kernel: what changed after the barrier, and what only it can read.
    fn place_of(
        &self,
        directory: &Arc<Directory>,
        entry: &Entry,
        inode: &Inode,
        child: Child,
    ) -> Place {
        let through_kernel = self.image.state() == State::Mounted
            && (self
                .frame
                .barrier
                .is_none_or(|barrier| entry.ctime >= barrier || entry.mtime >= barrier)
                || matches!(inode.layout, Layout::Kernel(_))
                || entry.kind == Kind::File
                    && self.image.mapping_has_nodes(child.inode, &self.raw));
        match through_kernel {
            true => Place::Directory(directory.clone()),
            false => Place::Image(ImageInode {
                image: self.image.clone(),
                number: child.inode,
                packed: child.packed,
            }),
        }
    }

    /// What of a subdirectory is to be entered; `None`: nothing.
    fn subdirectory(
        &mut self,
        entry: &mut Entry,
        child: &Child,
        reach: &Reach,
        node: Option<Arc<SourceNode>>,
        directory: &Arc<Directory>,
    ) -> Option<Subdirectory> {
        if child.marks.has(Marks::AGAIN) {
            entry.flags.set(EntryFlags::UNREADABLE);
            let error = io::Error::other("a directory that has another name already");
            self.tell(entry.path(), "enter", error);
            return None;
        }
        if directory.child_path_bytes(&entry.name) > PARENT_BYTES_MAX {
            entry.flags.set(EntryFlags::UNREADABLE);
            let error = io::Error::other("its path is too long");
            self.tell(entry.path(), "enter", error);
            return None;
        }
        let reach = match (reach, node) {
            (Reach::Marks, _) => return None,
            (Reach::Only(_), Some(node)) => reach_of_node(&node, None),
            (_, Some(node)) if node.is_source => reach_of_node(&node, None),
            (_, node) if self.is_marked(child) => node.map_or(Reach::Marks, Reach::Only),
            (_, Some(node)) => Reach::AllAnd(None, node),
            (_, None) => Reach::All(None),
        };
        if matches!(reach, Reach::Marks) {
            entry.flags.set(EntryFlags::NOT_CROSSED);
        }
        Some(Subdirectory {
            name: entry.name.clone(),
            identity: Identity {
                device: self.frame.device,
                inode: child.inode,
            },
            reach,
        })
    }

    /// Does the directory bear one of the marks that leave its content out?
    fn is_marked(&mut self, child: &Child) -> bool {
        let filter: &Filter = &self.rules.filter;
        let marks: Vec<_> = filter.marks().to_vec();
        marks.iter().any(|mark| {
            let found = self.tree.child(child.inode, mark.file().to_bytes());
            let Ok(Some(file)) = found else {
                return false;
            };
            mark.header().is_empty() || self.begins_with(&file, mark.header())
        })
    }

    fn begins_with(&self, file: &Child, header: &[u8]) -> bool {
        let inode = ImageInode {
            image: self.image.clone(),
            number: file.inode,
            packed: file.packed.clone(),
        };
        let first = crate::read::read_first_bytes(&inode, header.len());
        first.is_ok_and(|first| first == header)
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

/// What the sources say of a child.
fn source_node<'a>(reach: &'a Reach, name: &[u8]) -> Option<&'a Arc<SourceNode>> {
    match reach {
        Reach::Only(node) | Reach::AllAnd(_, node) => node.children.get(name),
        Reach::All(_) | Reach::Marks => None,
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
