//! Decodes packed inodes into entries, in a thread behind the one that orders directories.

use super::amend;
use super::order::{ListedChildren, Order, OrderItem, SomeChildren, UnchangedRun};
use super::unchanged::UnchangedChildren;
use crate::image::{
    EntryPlace, Extents, Image, ImageInode, OpenedAs, pack_inode, time_of, unpack_inode,
};
use crate::scan::directory::Directory;
use crate::scan::inode::tree::{Child, Marks};
use crate::scan::{Batch, EntryPlaces, ScanItem, ScanProblem};
use bale_format::entry::{Entry, EntryFlags, Kind, Time};
use bale_fsimage::{Inode, Layout};
use bale_pipeline::ahead::Ahead;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Batches in order that wait for their entries.
const ORDERED_AHEAD_MAX: usize = 6;

/// The same of entries for whoever takes them.
const MADE_AHEAD_MAX: usize = 6;
/// Entries in such a batch, or those of one directory more: small directories together, each has a
/// price.
const ENTRIES_AHEAD: usize = 192;

/// Entries of a run that room is made for before they are made.
const ROOM_AT_ONCE: usize = 64;

/// Children that are what they were, and of which nothing but the name goes on, cost as much as one
/// entry.
pub(super) const UNCHANGED_PER_ENTRY: usize = 8;

/// The stream of an inode scan. Iterating yields the stream.
pub struct ImageScanner {
    ordered: Ahead<OrderItem>,
    maker: Maker,
    ready: VecDeque<ScanItem>,
}

impl ImageScanner {
    pub(super) fn behind(order: Order, maker: Maker) -> ImageScanner {
        ImageScanner {
            ordered: Ahead::start_weighed(
                order,
                OrderItem::weight,
                ENTRIES_AHEAD,
                ORDERED_AHEAD_MAX,
            ),
            maker,
            ready: VecDeque::new(),
        }
    }

    /// What is in order, and what makes entries of it.
    pub(super) fn into_parts(self) -> (impl Iterator<Item = OrderItem> + Send, Maker) {
        (self.ordered, self.maker)
    }

    /// The same, made by a thread of its own.
    pub fn ahead(self) -> Ahead<ScanItem> {
        let weight = |item: &ScanItem| match item {
            ScanItem::Entries(batch) => batch.entries.len(),
            ScanItem::Unchanged(unchanged) => unchanged.len().div_ceil(UNCHANGED_PER_ENTRY),
            _ => 1,
        };
        Ahead::start_weighed(self, weight, ENTRIES_AHEAD, MADE_AHEAD_MAX)
    }

    /// Runs of children that are made, and of those that are what they were. What could not be made
    /// is told before its run.
    fn make(&mut self, listed: ListedChildren) {
        let mut bytes = Bytes::from(listed.bytes);
        let mut run = ChildrenRun::of(listed.directory, listed.path, listed.filesystem);
        run.make_room(listed.others);
        for child in listed.children {
            match child {
                SomeChildren::Made(entry, place) => {
                    run.entries.push(*entry);
                    run.places.push(place);
                }
                SomeChildren::Unchanged(unchanged) => {
                    self.ready.extend(run.end());
                    self.ready.push_back(run.unchanged(unchanged, &self.maker));
                }
                SomeChildren::Later {
                    inode,
                    name_bytes,
                    packed_bytes,
                } => {
                    let child = Child {
                        inode,
                        marks: Marks::default(),
                        name: bytes.split_to(usize::from(name_bytes)),
                        packed: bytes.split_to(packed_bytes as usize),
                    };
                    let name = child.name.clone();
                    let made = self.maker.entry_and_place(&run.directory, &run.path, child);
                    match made {
                        Ok((entry, place)) => run.add_made(entry, place),
                        Err(why) => self.ready.extend(missed(&run.path, &name, why)),
                    }
                }
            }
        }
        self.ready.extend(run.end());
    }
}

/// Children of one directory that go into one item.
struct ChildrenRun {
    directory: Arc<Directory>,
    path: Bytes,
    /// Of those that are made here, and of those that are what they were.
    filesystem: u32,
    entries: Vec<Entry>,
    places: Vec<EntryPlace>,
}

impl ChildrenRun {
    fn of(directory: Arc<Directory>, path: Bytes, filesystem: u32) -> ChildrenRun {
        ChildrenRun {
            directory,
            path,
            filesystem,
            entries: Vec::new(),
            places: Vec::new(),
        }
    }

    /// At once, for as many as may follow, or for what most directories hold.
    fn make_room(&mut self, children: usize) {
        let children = children.min(ROOM_AT_ONCE);
        self.entries.reserve(children);
        self.places.reserve(children);
    }

    fn add_made(&mut self, mut entry: Entry, place: EntryPlace) {
        entry.filesystem = self.filesystem;
        self.entries.push(entry);
        self.places.push(place);
    }

    fn end(&mut self) -> Option<ScanItem> {
        let entries = std::mem::take(&mut self.entries);
        let places = EntryPlaces::Each(std::mem::take(&mut self.places));
        (!entries.is_empty()).then_some(ScanItem::Entries(Batch { places, entries }))
    }

    fn unchanged(&self, run: UnchangedRun, maker: &Maker) -> ScanItem {
        ScanItem::Unchanged(UnchangedChildren {
            image: maker.image.clone(),
            barrier: maker.barrier,
            directory: self.directory.clone(),
            path: self.path.clone(),
            filesystem: self.filesystem,
            names: run.names,
            children: run.children,
        })
    }
}

impl Iterator for ImageScanner {
    type Item = ScanItem;

    fn next(&mut self) -> Option<ScanItem> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            match self.ordered.next()? {
                OrderItem::Item(item) => return Some(item),
                OrderItem::Children(listed) => self.make(listed),
            }
        }
    }
}

/// A name that nothing can be said of.
pub(super) fn missed(path: &Bytes, name: &[u8], why: String) -> [ScanItem; 2] {
    let problem = ScanProblem {
        path: bale_format::entry::join(path, name),
        action: "stat",
        error: io::Error::other(why),
    };
    [
        ScanItem::Problem(problem),
        amend(path, EntryFlags::UNREADABLE),
    ]
}

/// Makes entries of packed inodes.
#[derive(Clone)]
pub(in crate::scan::inode) struct Maker {
    pub(in crate::scan::inode) image: Arc<Image>,
    /// What changed at or after it is read through the kernel.
    pub(in crate::scan::inode) barrier: Option<Time>,
    /// The inode unpacked last.
    pub(in crate::scan::inode) raw: Vec<u8>,
}

impl Maker {
    /// Reads an inode whose bytes were not carried because its digest was unchanged.
    pub(super) fn load(&self, child: &mut Child) -> Result<(), String> {
        if !child.marks.has(Marks::UNCHANGED) || !child.packed.is_empty() {
            return Ok(());
        }
        let raw = self.image.content().read_inode(child.inode)?;
        let mut packed = Vec::new();
        pack_inode(&raw, &mut packed);
        child.packed = Bytes::from(packed);
        Ok(())
    }

    /// The inode that a name leads to, or why there is none.
    pub(in crate::scan::inode) fn inode_of(&mut self, child: &mut Child) -> Result<Inode, String> {
        self.load(child)?;
        self.unpacked(child.inode, &child.packed)
    }

    pub(super) fn unpacked(&mut self, number: u64, packed: &[u8]) -> Result<Inode, String> {
        match unpack_inode(packed, &mut self.raw) {
            Some(raw) => self.image.content().decode(number, raw),
            None => Err("a temporary file is damaged".to_owned()),
        }
    }

    /// Its number of file system is not set.
    pub(in crate::scan::inode) fn entry_of(
        &self,
        path: &Bytes,
        name: Bytes,
        inode: &Inode,
    ) -> Result<Entry, String> {
        let Some(kind) = Kind::from_mode(inode.mode) else {
            return Err("unknown file type".to_owned());
        };
        let mut entry = Entry::new(path.clone(), name, kind);
        self.image.set_stat(&mut entry, inode);
        Ok(entry)
    }

    pub(super) fn entry_and_place(
        &mut self,
        directory: &Arc<Directory>,
        path: &Bytes,
        mut child: Child,
    ) -> Result<(Entry, EntryPlace), String> {
        let inode = self.inode_of(&mut child)?;
        let mut entry = self.entry_of(path, child.name, &inode)?;
        let place = self.place_of(directory, &mut entry, &inode, child.packed);
        Ok((entry, place))
    }

    /// Through the kernel: what changed after the barrier, and what only it can read. For the inode
    /// that was unpacked last.
    pub(super) fn place_of(
        &self,
        directory: &Arc<Directory>,
        entry: &mut Entry,
        inode: &Inode,
        packed: Bytes,
    ) -> EntryPlace {
        let through_kernel = self.is_read_through_kernel(entry.kind, inode);
        if through_kernel && entry.kind == Kind::File {
            // To open it by.
            entry.generation = inode.generation;
        }
        match through_kernel {
            true => EntryPlace::Directory(directory.clone()),
            false => EntryPlace::Image(ImageInode {
                image: self.image.clone(),
                number: inode.number,
                packed,
            }),
        }
    }

    /// Only the kernel can read it, or nobody else can be sure. Of the inode that was unpacked
    /// last.
    fn is_read_through_kernel(&self, kind: Kind, inode: &Inode) -> bool {
        let is_early = |stamp, barrier| time_of(stamp).is_stamped_before(barrier);
        let is_late = |barrier| !is_early(inode.ctime, barrier) || !is_early(inode.mtime, barrier);
        let content = self.image.content();
        self.image.state() == OpenedAs::Mounted
            && (self.barrier.is_none_or(is_late)
                || matches!(inode.layout, Layout::Kernel(_))
                || kind == Kind::Symlink && self.is_target_elsewhere(inode)
                || kind == Kind::File && content.mapping_has_nodes(inode.number, &self.raw))
    }

    /// Until Linux 5.19, ext4 had targets that do not fit into the inode in a page cache of their
    /// own, and not in that of the device ("ext4: convert symlink external data block mapping to
    /// bdev").
    fn is_target_elsewhere(&self, inode: &Inode) -> bool {
        const IN_INODE_BYTES_MAX: u64 = 60;
        inode.size >= IN_INODE_BYTES_MAX
            && self.image.facts().has_metadata_in_page_cache
            && !bale_sys::kernel::is_at_least(5, 19)
    }

    /// Of the inode that was unpacked last, if its content is to be read from there.
    pub(super) fn extents_on_device(&self, kind: Kind, inode: &Inode) -> Option<Extents> {
        let is_there = !self.is_read_through_kernel(kind, inode);
        let is_mapped = matches!(inode.layout, Layout::None | Layout::Mapped);
        let extents = || self.image.extents(inode, &self.raw, 0).ok();
        (is_there && is_mapped).then(extents)?
    }
}
