//! Directories one after the other, in the order of the catalog, and what is in each.

use super::make::{Maker, UNCHANGED_PER_ENTRY};
use super::{EmitOptions, MountContext, amend};
use crate::image::{EntryPlace, Image, OpenedAs};
use crate::scan::barrier_now;
use crate::scan::directory::{Directory, FdCache};
use crate::scan::filesystems::Filesystems;
use crate::scan::grafts::Grafts;
use crate::scan::identity::{Identity, identity_of};
use crate::scan::inode::faults::Faults;
use crate::scan::inode::gather::Gathered;
use crate::scan::inode::tree::{ChildHere, Marks, Position, Tree};
use crate::scan::names::{Names, SortedNames};
use crate::scan::pending::{ChildrenReach, Overflow, Pending};
use crate::scan::sources::Sources;
use crate::scan::stat::{Rules, reach_of_node};
use crate::scan::statx::{entry_of, mount_of, stat_row_at, stay_of};
use crate::scan::vanished::{Lost, Unfound};
use crate::scan::{
    BATCH_ENTRIES_MAX, Batch, DIRECTORY_FDS_MAX, EntryPlaces, ScanItem, ScanProblem,
};
use bale_format::entry::{Entry, EntryFlags, Time};
use bale_pipeline::memory::MemoryPlan;
use bytes::Bytes;
use rustix::fs::CWD;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
/// Puts directories, and what is in them, into the order of the catalog. Iterating yields the
/// stream.
pub(super) struct Order {
    pub(super) image: Arc<Image>,
    pub(super) tree: Tree,
    pub(super) faults: Faults,
    pub(super) context: MountContext,
    pub(super) rules: Rules,
    pub(super) overflow: Overflow,
    pub(super) spill: PathBuf,
    pub(super) memory: MemoryPlan,
    pub(super) large: Mutex<()>,
    pub(super) levels: Vec<EmitLevel>,
    pub(super) ready: VecDeque<OrderItem>,
    pub(super) numbers: Vec<Option<u32>>,
    pub(super) filesystems: u32,
    /// Number of the scanned file system, as the rules know it.
    pub(super) own: u32,
    pub(super) maker: Maker,
    pub(super) unfound: Unfound,
}

/// Something in the order of the stream.
pub(super) enum OrderItem {
    Item(ScanItem),
    Children(ListedChildren),
}

impl OrderItem {
    /// In entries.
    pub(super) fn weight(&self) -> usize {
        match self {
            OrderItem::Item(_) => 1,
            OrderItem::Children(listed) => {
                listed.others + listed.unchanged.div_ceil(UNCHANGED_PER_ENTRY)
            }
        }
    }
}

/// Children of one directory, of which some are not made yet.
pub(super) struct ListedChildren {
    pub(super) directory: Arc<Directory>,
    pub(super) path: Bytes,
    /// Number in the stream of the file system of those that are not made yet.
    pub(super) filesystem: u32,
    pub(super) children: Vec<SomeChildren>,
    /// How many of them are what they were, and how many are not.
    unchanged: usize,
    pub(super) others: usize,
    /// Of those that are made later: name and packed inode, one behind the other.
    pub(super) bytes: Vec<u8>,
}

/// A child, or several.
pub(super) enum SomeChildren {
    Made(Box<Entry>, EntryPlace),
    /// Neighbours with unchanged inode digests.
    Unchanged(UnchangedRun),
    /// Only its inode is needed for it.
    Later {
        inode: u64,
        name_bytes: u16,
        packed_bytes: u32,
    },
}

/// Names one behind the other; inodes, and the lengths of their names.
pub(super) struct UnchangedRun {
    pub(super) names: Vec<u8>,
    pub(super) children: Vec<(u64, u16)>,
}

/// Room that is made at once: most directories need no more.
const UNCHANGED_USUAL: usize = 64;
const UNCHANGED_NAMES_USUAL: usize = 1024;

impl UnchangedRun {
    fn with_room() -> UnchangedRun {
        UnchangedRun {
            names: Vec::with_capacity(UNCHANGED_NAMES_USUAL),
            children: Vec::with_capacity(UNCHANGED_USUAL),
        }
    }
}

impl ListedChildren {
    pub(super) fn of(directory: Arc<Directory>, path: Bytes) -> ListedChildren {
        ListedChildren {
            directory,
            path,
            filesystem: 0,
            children: Vec::new(),
            unchanged: 0,
            others: 0,
            bytes: Vec::new(),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.unchanged + self.others
    }

    pub(super) fn add_made(&mut self, entry: Entry, place: EntryPlace) {
        self.others += 1;
        let made = SomeChildren::Made(Box::new(entry), place);
        self.children.push(made);
    }

    /// Adds a child whose entry is made later, or not at all.
    pub(super) fn add_later(&mut self, child: ChildHere) {
        let (inode, name_bytes) = (child.inode, child.name.len() as u16);
        if child.marks.has(Marks::UNCHANGED) {
            self.unchanged += 1;
            if !matches!(self.children.last(), Some(SomeChildren::Unchanged(_))) {
                self.children
                    .push(SomeChildren::Unchanged(UnchangedRun::with_room()));
            }
            if let Some(SomeChildren::Unchanged(run)) = self.children.last_mut() {
                run.names.extend_from_slice(child.name);
                run.children.push((inode, name_bytes));
            }
            return;
        }
        self.others += 1;
        self.bytes.extend_from_slice(child.name);
        self.bytes.extend_from_slice(child.packed);
        self.children.push(SomeChildren::Later {
            inode,
            name_bytes,
            packed_bytes: child.packed.len() as u32,
        });
    }
}

/// A directory that was entered.
pub(super) struct EmitLevel {
    pub(super) directory: Arc<Directory>,
    pub(super) path: Bytes,
    pub(super) reach: ChildrenReach,
    pub(super) listing: RestOfChildren,
    pub(super) pending: Pending,
}

/// Where the rest of a directory's children come from.
pub(super) enum RestOfChildren {
    Tree(Position),
    Few(Option<Names>),
    Many(SortedNames),
    Done,
}

impl Order {
    /// Begins to emit.
    pub(super) fn start(
        sources: &Sources,
        gathered: &Gathered,
        context: MountContext,
        emit_options: &EmitOptions,
    ) -> io::Result<Order> {
        let handles = context.handles.clone();
        let cache = FdCache::with_handles(DIRECTORY_FDS_MAX, Grafts::default(), handles);
        let atime = gathered.image.atime();
        let stat = stat_row_at(CWD, c"/", atime)?;
        let directory = Directory::root(&cache, identity_of(&stat));
        let mut entry = entry_of(Bytes::new(), Bytes::new(), &stat, atime)
            .ok_or_else(|| io::Error::other("the root is of no known type"))?;
        let fd = directory.open()?;
        let (device, mount) = (directory.identity().device, mount_of(&stat));
        let mut order = Order::of(gathered, context, emit_options);
        let filesystems = &order.rules.filesystems;
        entry.filesystem = filesystems.number(device, mount, fd.as_fd(), c".");
        let mut entries = vec![entry];
        let places = order.show_image(&directory, &mut entries, &mut Vec::new());
        order.push_batch(entries, places);
        order.report_general_faults();
        let stay = order.rules.one_file_system.then(|| stay_of(&stat));
        let reach = reach_of_node(sources.root(), stay);
        order.enter(directory, Bytes::new(), reach);
        Ok(order)
    }

    /// Begins to emit all of a file system that nothing writes to, as a directory of this name
    /// below the root. The kernel is asked nothing.
    pub(super) fn start_as(
        name: Bytes,
        gathered: &Gathered,
        context: MountContext,
        emit_options: &EmitOptions,
    ) -> io::Result<Order> {
        let mut order = Order::of(gathered, context, emit_options);
        let number = order.image.facts().root;
        let (entry, inode) = order.directory_entry(number, Bytes::new(), name.clone())?;
        let places = EntryPlaces::Each(vec![EntryPlace::Image(inode)]);
        order.push_batch(vec![entry], places);
        order.report_general_faults();
        let (device, inode) = (order.context.device, number);
        let cache = FdCache::with_handles(DIRECTORY_FDS_MAX, Grafts::default(), None);
        let root = Directory::root(&cache, Identity { device, inode: 0 });
        let directory = root.child(name.clone(), Identity { device, inode }, None);
        order.enter(directory, name, ChildrenReach::All(None));
        Ok(order)
    }

    fn of(gathered: &Gathered, context: MountContext, emit_options: &EmitOptions) -> Order {
        let barrier = context.filesystem.barrier.unwrap_or_default();
        let filesystems = Filesystems::new(barrier);
        let own = filesystems.adopt(context.device, context.filesystem.clone());
        let rules = Rules {
            filter: emit_options.filter.clone(),
            filesystems,
            one_file_system: emit_options.one_file_system,
            left_out: emit_options.left_out.clone(),
            atime: gathered.image.atime(),
            stat_access: !rustix::process::geteuid().is_root(),
        };
        let maker = Maker {
            image: gathered.image.clone(),
            barrier: context.barrier,
            raw: Vec::new(),
        };
        Order {
            image: gathered.image.clone(),
            tree: gathered.tree.again(),
            faults: gathered.faults.clone(),
            context,
            rules,
            overflow: Overflow::new(&emit_options.spill_directory, emit_options.memory),
            spill: emit_options.spill_directory.clone(),
            memory: emit_options.memory,
            large: Mutex::new(()),
            levels: Vec::new(),
            ready: VecDeque::new(),
            numbers: Vec::new(),
            filesystems: 0,
            own,
            maker,
            unfound: Unfound::default(),
        }
    }

    fn report_general_faults(&mut self) {
        let at = self.context.filesystem.mount.0.clone();
        let path = at.strip_prefix(b"/").unwrap_or(&at).to_vec();
        let others = match self.faults.others {
            0 => None,
            others => Some(format!("{others} further damaged inodes or directories")),
        };
        for why in std::mem::take(&mut self.faults.general)
            .into_iter()
            .chain(others)
        {
            self.put(ScanItem::Problem(ScanProblem {
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
        if !matches!(level.listing, RestOfChildren::Done) {
            self.emit_children();
            return true;
        }
        match level.pending.pop(&mut self.overflow) {
            Ok(Some(next)) => {
                let directory =
                    level
                        .directory
                        .child(next.name.clone(), next.identity, next.handle);
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

    fn enter(&mut self, directory: Arc<Directory>, path: Bytes, reach: ChildrenReach) {
        let listing = match self.listing(&directory, &path, &reach) {
            Ok(listing) => listing,
            Err(error) => {
                return match Lost::of_directory(&directory, &error) {
                    Some(lost) => self.look_for(vec![lost]),
                    None => self.unreadable(&path, "enter", error),
                };
            }
        };
        self.levels.push(EmitLevel {
            directory,
            path,
            reach,
            listing,
            pending: Pending::default(),
        });
    }

    /// From the device where the directory is on it and stood still; from the kernel otherwise, and
    /// wherever only the way to a source leads: another directory, even of the same file system,
    /// may be mounted on it, of which the device says nothing.
    fn listing(
        &mut self,
        directory: &Arc<Directory>,
        path: &Bytes,
        reach: &ChildrenReach,
    ) -> io::Result<RestOfChildren> {
        let Identity { device, inode } = directory.identity();
        let is_above_sources =
            matches!(reach, ChildrenReach::Only(_)) && self.image.state() == OpenedAs::Mounted;
        if device == self.context.device && !is_above_sources && !self.has_changed(inode) {
            if let Some(why) = self.faults.directories.remove(&inode) {
                if self.image.state() == OpenedAs::Mounted {
                    return self.kernel_listing(directory, path, reach);
                }
                self.unreadable(path, "list", io::Error::other(why));
            }
            match self.tree.find(inode)? {
                Some(position) => return Ok(RestOfChildren::Tree(position)),
                // Empty, or one that came after the tables were read: of these two it knows
                // nothing.
                None if self.image.state() == OpenedAs::Mounted => {}
                None => return Ok(RestOfChildren::Done),
            }
        }
        self.kernel_listing(directory, path, reach)
    }

    /// On a mounted file system, changed inodes and inconsistent ones are stat'ed through the
    /// kernel.
    pub(super) fn is_unsure(&self, inode: u64, marks: Marks) -> bool {
        let odd = marks.has(Marks::MISSING) || marks.has(Marks::AGAIN);
        odd || self.has_changed(inode)
    }

    pub(super) fn has_changed(&self, inode: u64) -> bool {
        self.context.changed.binary_search(&inode).is_ok()
    }

    /// The next batch of the innermost directory.
    fn emit_children(&mut self) {
        let level = self.levels.last_mut().expect("called inside a directory");
        match std::mem::replace(&mut level.listing, RestOfChildren::Done) {
            RestOfChildren::Tree(position) => self.emit_from_tree(position),
            RestOfChildren::Few(names) => self.emit_from_kernel(names.unwrap_or_default()),
            RestOfChildren::Many(mut sorted) => {
                let mut names = Names::default();
                match sorted.take(BATCH_ENTRIES_MAX, &mut names) {
                    Ok(true) => level.listing = RestOfChildren::Many(sorted),
                    Ok(false) => {}
                    Err(error) => {
                        let path = level.path.clone();
                        self.unreadable(&path, "sort", error);
                    }
                }
                self.emit_from_kernel(names);
            }
            RestOfChildren::Done => {}
        }
    }

    /// Of what was born later nothing can be lost.
    fn began(&self) -> Time {
        self.context.barrier.unwrap_or_else(barrier_now)
    }

    /// Looks for what was not found, when there is enough of it.
    pub(super) fn look_for(&mut self, lost: Vec<Lost>) {
        lost.into_iter().for_each(|lost| self.unfound.push(lost));
        let full = self.unfound.take_full();
        let items = full.map_or_else(Vec::new, |mut full| full.look_again(self.began()));
        self.ready.extend(items.into_iter().map(OrderItem::Item));
    }

    pub(super) fn missed(&mut self, path: &Bytes, name: &[u8], why: String) {
        for item in super::make::missed(path, name, why) {
            self.put(item);
        }
    }

    pub(super) fn put(&mut self, item: ScanItem) {
        self.ready.push_back(OrderItem::Item(item));
    }

    pub(super) fn unreadable(&mut self, path: &Bytes, action: &'static str, error: io::Error) {
        self.put(amend(path, EntryFlags::UNREADABLE));
        self.report(path.to_vec(), action, error);
    }

    pub(super) fn report(&mut self, path: Vec<u8>, action: &'static str, error: io::Error) {
        self.put(ScanItem::Problem(ScanProblem {
            path,
            action,
            error,
        }));
    }

    /// Numbers file systems in the order of the stream.
    fn numbered(&mut self, provisional: u32) -> u32 {
        let place = provisional as usize;
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, None);
        }
        if let Some(number) = self.numbers[place] {
            return number;
        }
        let filesystem = self.rules.filesystems.get(provisional);
        self.put(ScanItem::Filesystem(filesystem));
        let number = self.filesystems;
        self.numbers[place] = Some(number);
        self.filesystems += 1;
        number
    }

    pub(super) fn push_batch(&mut self, mut entries: Vec<Entry>, places: EntryPlaces) {
        for entry in &mut entries {
            entry.filesystem = self.numbered(entry.filesystem);
        }
        self.put(ScanItem::Entries(Batch { places, entries }));
    }

    pub(super) fn push_children(&mut self, mut listed: ListedChildren) {
        for child in &mut listed.children {
            match child {
                SomeChildren::Made(entry, _) => entry.filesystem = self.numbered(entry.filesystem),
                SomeChildren::Unchanged(_) | SomeChildren::Later { .. } => {
                    listed.filesystem = self.numbered(self.own);
                }
            }
        }
        self.ready.push_back(OrderItem::Children(listed));
    }
}

impl Iterator for Order {
    type Item = OrderItem;

    fn next(&mut self) -> Option<OrderItem> {
        while self.ready.is_empty() {
            if !self.step() {
                let items = self.unfound.look_again(self.began());
                self.ready.extend(items.into_iter().map(OrderItem::Item));
                return self.ready.pop_front();
            }
        }
        self.ready.pop_front()
    }
}
