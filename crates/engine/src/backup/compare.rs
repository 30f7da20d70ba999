//! Compares the scan with the parent's catalog: what is unchanged costs a comparison, the rest
//! becomes items.
//!
//! Unchanged means: everything `stat` reports is equal, the row is not racy (its ctime is before
//! the barrier of the run that made it), it has no trouble flag, and its content is still in the
//! repository (`rule`).

mod content;
mod trouble;

use super::amendments::Amendments;
use super::live_statted::LiveStatted;
use super::moved::Moved;
use super::parent::Parent;
use super::queue::{Gone, ItemSender, PackingItem};
use super::rule;
use super::tally::Tally;
use bale_format::snapshot::Filesystem;
use bale_format::{ChunkId, Content, Entry, EntryFlags, Key, Kind, RowView};
use bale_pipeline::memory::MemoryPlan;
use bale_repository::catalog::{CatalogError, KeyRange, ParentCursor, ParentRow};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_source::image::EntryPlace;
use bale_source::read::{FirstNames, SMALL_BYTES_MAX, SmallReader};
use bale_source::scan::inode::UnchangedChildren;
use bale_source::scan::{
    Batch, DirectoryListing, ListedAgain, Missing, NoteKind, ScanItem, promises_inode_numbers,
};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// What the scan found besides rows.
pub(super) struct Scanned {
    /// Flags to be set in rows that were emitted before the trouble showed.
    pub(super) amendments: Amendments,
    /// Bytes in use of each chunk that reused rows point at: 48 bytes for each chunk.
    pub(super) live: HashMap<ChunkId, u64>,
    pub(super) live_statted: LiveStatted,
    /// Inodes that were read under names that other ones had when they were listed.
    pub(super) read_instead: HashSet<u64>,
}

impl Scanned {
    /// Nothing yet; `directory` is for what does not fit in memory.
    pub(super) fn new(directory: PathBuf, memory: &MemoryPlan) -> Scanned {
        Scanned {
            amendments: Amendments::new(directory),
            live: HashMap::new(),
            live_statted: LiveStatted::within(memory),
            read_instead: HashSet::new(),
        }
    }
}

pub(super) struct Comparer<'a> {
    parent: &'a Parent,
    store: &'a ChunkWriter,
    reader: &'a SmallReader,
    tally: &'a Tally<'a>,
    /// Position in the snapshot's list by position in the scan's.
    filesystems: Vec<u32>,
    /// Positions in the snapshot's list of those whose inode numbers promise nothing.
    ambiguous: HashSet<u32>,
    /// Positions of those whose files may hold bytes though their size is 0: a program makes them.
    dubious_sizes: HashSet<u32>,
    scanned: Scanned,
    /// Record inodes that were stat'ed live.
    records_live_stats: bool,
    last_chunk: Option<(ChunkId, bool)>,
    /// Bytes in use of the chunk that kept rows pointed at last: neighbouring rows mostly share
    /// one.
    unchanged: (ChunkId, u64),
    /// Of files that are read, or reused.
    first_names: FirstNames,
    listed_again: ListedAgain,
    /// Names that went and came.
    moved: Moved<'a>,
    /// Path of a directory that was listed, and of which no row came yet.
    listed: Option<Bytes>,
    /// The parent was made with the same excludes.
    excludes_as_before: bool,
    /// Directories of the batch to come that are not entered, and why.
    not_entered: HashMap<Vec<u8>, NoteKind>,
}

impl<'a> Comparer<'a> {
    pub(super) fn new(
        parent: &'a Parent,
        store: &'a ChunkWriter,
        reader: &'a SmallReader,
        tally: &'a Tally<'a>,
        moved: Moved<'a>,
    ) -> Result<Comparer<'a>> {
        let directory = store.repository().spill_dir()?;
        let memory = store.repository().memory();
        Ok(Comparer {
            parent,
            store,
            reader,
            tally,
            filesystems: Vec::new(),
            ambiguous: HashSet::new(),
            dubious_sizes: HashSet::new(),
            scanned: Scanned::new(directory, &memory),
            records_live_stats: false,
            last_chunk: None,
            unchanged: Default::default(),
            first_names: FirstNames::within(&memory),
            listed_again: ListedAgain::since(tally.began),
            moved,
            listed: None,
            excludes_as_before: false,
            not_entered: HashMap::new(),
        })
    }

    /// With the patterns and marks of this run.
    pub(super) fn excluding(self, excludes: &[String]) -> Comparer<'a> {
        Comparer {
            // Marks that leave out are recorded among them.
            excludes_as_before: !excludes.is_empty() && self.parent.excludes == excludes,
            ..self
        }
    }

    /// Records inodes that were stat'ed live.
    pub(super) fn recording_live_stats(self, records_live_stats: bool) -> Comparer<'a> {
        Comparer {
            records_live_stats,
            ..self
        }
    }

    /// Runs to the end of the scan. Stops early, without an error of its own, when the packing
    /// thread has gone.
    pub(super) fn compare(
        mut self,
        scanner: Box<dyn Iterator<Item = ScanItem> + Send>,
        mut items: ItemSender,
    ) -> Result<Scanned> {
        let done = self.compare_all(scanner, &mut items);
        self.add_unchanged();
        self.reader.close();
        drop(items);
        match done {
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Gone) | Ok(()) => Ok(self.scanned),
        }
    }

    fn compare_all(
        &mut self,
        scanner: Box<dyn Iterator<Item = ScanItem> + Send>,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        let mut cursor = ParentCursor::open(&self.parent.catalog, KeyRange::all());
        for item in scanner {
            if self.tally.interrupted() {
                return Err(Stop::Failed(Error::Interrupted));
            }
            match item {
                ScanItem::Filesystem(found) => self.add_filesystem(found),
                ScanItem::Listed(listing) => self.take_listing(listing, &mut cursor, items)?,
                ScanItem::Missing(missing) => self.take_missing(missing),
                ScanItem::Entries(batch) => self.compare_batch(batch, &mut cursor, items)?,
                ScanItem::Unchanged(unchanged) => {
                    self.compare_unchanged(&unchanged, &mut cursor, items)?
                }
                ScanItem::Amend { key, flags } => self.amend(key, flags)?,
                ScanItem::Problem(problem) => self.tally.problem(&problem),
                ScanItem::Note(note) => {
                    self.tally.scan_note(&note);
                    if note.has_row {
                        self.not_entered.insert(note.path, note.kind);
                    }
                }
            }
        }
        cursor.finish(|row| {
            self.moved.gone(&row);
            items.send(gone(&row)).map_err(Stop::from)
        })?;
        self.name_moved()?;
        self.tally.met_all();
        Ok(items.flush()?)
    }

    /// Passes what the parent has in the directory listed before, and goes on to this one.
    fn take_listing(
        &mut self,
        mut listing: DirectoryListing,
        cursor: &mut ParentCursor,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        listing.filesystem = self.filesystem_of(listing.filesystem);
        let path = listing.path().clone();
        if let Some(empty) = self.listed.replace(path).filter(|path| !path.is_empty()) {
            find_old(cursor, &empty, b"", items, &mut self.moved)?;
        }
        self.moved.listed(listing);
        Ok(())
    }

    fn take_missing(&mut self, mut missing: Missing) {
        missing.listing.filesystem = self.filesystem_of(missing.listing.filesystem);
        self.moved.missing(missing);
    }

    fn compare_batch(
        &mut self,
        batch: Batch,
        cursor: &mut ParentCursor,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        let Batch { places, entries } = batch;
        self.listed = None;
        for (at, mut entry) in entries.into_iter().enumerate() {
            entry.filesystem = self.filesystem_of(entry.filesystem);
            let old = find_old(cursor, &entry.parent, &entry.name, items, &mut self.moved)?;
            self.moved.compare(old, &entry);
            if entry.flags.has(EntryFlags::NOT_CROSSED)
                && let Some(old) = old
            {
                self.report_left_out(&entry, &old.view());
            }
            if let Some(old) = old {
                let view = old.view();
                if self.is_unchanged(&entry, old, &view) {
                    match rule::atime_is_unchanged(&entry, old.atime()) {
                        true => self.reuse(old, &view, items)?,
                        false => self.reuse_with_atime(entry, old, &view, items)?,
                    }
                    continue;
                }
            }
            self.change(places.of(at), entry, old, items)?;
        }
        self.not_entered.clear();
        Ok(())
    }

    /// Children whose inode digest is that of the parent: the parent's row is reused if it has this
    /// path and inode number and is reusable. Otherwise the inode is read alone, as after the
    /// rename of a directory. Each row is looked at here, so names of one inode agree as they do
    /// where entries are compared, whichever of them is reused by digest.
    fn compare_unchanged(
        &mut self,
        unchanged: &UnchangedChildren,
        cursor: &mut ParentCursor,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        let filesystem = self.filesystem_of(unchanged.filesystem());
        for (name, inode) in unchanged.children() {
            let old = find_old(cursor, unchanged.path(), name, items, &mut self.moved)?;
            if let Some(old) = old {
                let view = old.view();
                let is_it = rule::is_of_inode(&view, inode, filesystem);
                if is_it && self.is_reusable(old, &view) {
                    self.reuse(old, &view, items)?;
                    continue;
                }
            }
            match unchanged.stat_from_device(name, inode) {
                Ok(Some((mut entry, place))) => {
                    entry.filesystem = filesystem;
                    self.moved.compare(old, &entry);
                    self.change(place, entry, old, items)?;
                    continue;
                }
                Ok(None) => self
                    .tally
                    .vanished(&bale_format::entry::join(unchanged.path(), name)),
                Err(problem) => {
                    self.tally.problem(&problem);
                    self.amend(Key::of_path(unchanged.path()), EntryFlags::UNREADABLE)?;
                }
            }
            if let Some(old) = old {
                items.send(gone(&old.entry()))?;
            }
        }
        Ok(())
    }

    /// Position in the snapshot's list of file systems.
    fn filesystem_of(&self, position: u32) -> u32 {
        let found = self.filesystems.get(position as usize);
        found.copied().unwrap_or(position)
    }

    fn is_unchanged(&mut self, new: &Entry, old: ParentRow, view: &RowView) -> bool {
        rule::metadata_is_unchanged(new, view) && self.is_reusable(old, view)
    }

    /// No trouble flag, not racy, and its content is in the repository.
    fn is_reusable(&mut self, row: ParentRow, view: &RowView) -> bool {
        let has_no_trouble = match self.parent.is_first_pass {
            true => rule::has_no_trouble_but_racy(view),
            false => rule::has_no_trouble(view),
        };
        has_no_trouble && self.parent.is_not_racy(row, view) && self.content_is_there(view)
    }

    fn reuse(
        &mut self,
        old: ParentRow,
        row: &RowView,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        self.uses(row);
        let is_hard_link = row.is_hard_link();
        let shares = is_hard_link && !self.ambiguous.contains(&row.filesystem);
        if !shares || matches!(row.content, Content::None) {
            self.tally.unchanged(row.kind, row.size, is_hard_link);
            return Ok(());
        }
        // Its other names are further ones: they need not be read.
        self.first_names.is_first(row.filesystem, row.inode);
        Ok(items.send(PackingItem::Reused(Box::new(old.entry())))?)
    }

    /// The parent's row but for the time of last access: nothing is read for it.
    fn reuse_with_atime(
        &mut self,
        new: Entry,
        old: ParentRow,
        row: &RowView,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        self.uses(row);
        let shares = row.is_hard_link() && !self.ambiguous.contains(&row.filesystem);
        if shares {
            self.first_names.is_first(row.filesystem, row.inode);
        }
        let old = Box::new(old.entry());
        let mut entry = old.clone();
        entry.atime = new.atime;
        Ok(items.send(PackingItem::Accessed { entry, old, shares })?)
    }

    /// Counts what is used of the chunk that a row points at.
    fn uses(&mut self, row: &RowView) {
        if let Content::Bundled { chunk, .. } = row.content {
            if self.unchanged.0 != chunk {
                self.add_unchanged();
                self.unchanged.0 = chunk;
            }
            self.unchanged.1 += row.size;
        }
    }

    /// Adds what was kept of one chunk to the others.
    fn add_unchanged(&mut self) {
        let (chunk, bytes) = std::mem::take(&mut self.unchanged);
        if bytes > 0 {
            *self.scanned.live.entry(chunk).or_default() += bytes;
        }
    }

    fn change(
        &mut self,
        place: EntryPlace,
        mut entry: Entry,
        old: Option<ParentRow>,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        if matches!(place, EntryPlace::Directory(_)) {
            if self.records_live_stats {
                self.scanned.live_statted.add(entry.inode);
            }
            if old.is_some_and(|old| rule::is_change_under_way(&entry, &old.view())) {
                entry.flags.set(EntryFlags::RACY);
            }
        }
        let old = old.map(|old| Box::new(old.entry()));
        if self.parent.has_entries() || self.parent.is_first_pass {
            // Few of a directory are changed, and the names of all are in one piece of memory.
            entry = entry.with_own_bytes();
        }
        if entry.kind != Kind::File || entry.size == 0 {
            if let Err(problem) = place.complete(&mut entry)
                && self.is_gone_or_reported(&place, &entry, problem)
            {
                if let Some(old) = old {
                    items.send(gone(&old))?;
                }
                return Ok(());
            }
            self.report_bytes_of_empty(&place, &mut entry);
            let entry = Box::new(entry);
            return Ok(items.send(PackingItem::Row { entry, old })?);
        }
        // The first name of an inode is read like any file, and so are all where equal numbers do
        // not make one inode.
        let is_further = entry.nlink > 1
            && !self.ambiguous.contains(&entry.filesystem)
            && !self.first_names.is_first(entry.filesystem, entry.inode);
        let item = if is_further {
            PackingItem::Linked {
                place,
                entry: Box::new(entry),
                old,
            }
        } else if entry.size > SMALL_BYTES_MAX {
            PackingItem::Large {
                place,
                entry: Box::new(entry),
                old,
            }
        } else {
            match self.reader.read_before(&place) {
                Some(content) => PackingItem::Read {
                    file: Box::new(content.into_file(entry)),
                    place,
                    old,
                },
                None => {
                    if !self.reader.has_room(&entry) {
                        // Room comes from the packing thread, which must have what it can take.
                        items.flush()?;
                    }
                    self.reader.push(&place, entry);
                    PackingItem::Small { place, old }
                }
            }
        };
        Ok(items.send(item)?)
    }

    fn add_filesystem(&mut self, found: Filesystem) {
        let is_ambiguous = !promises_inode_numbers(&found.kind);
        let is_of_program = found.kind.starts_with("fuse") || found.kind == "9p";
        let is_by_inodes = found.scanner == "inode";
        let position = self.tally.filesystem(found, &self.filesystems);
        if is_by_inodes {
            self.moved.is_scanned_by_inodes(position);
        }
        self.filesystems.push(position);
        if is_ambiguous {
            self.ambiguous.insert(position);
        }
        if is_of_program {
            self.dubious_sizes.insert(position);
        }
    }

    fn amend(&mut self, key: Key, flags: EntryFlags) -> std::result::Result<(), Stop> {
        let added = self.scanned.amendments.add(&key, flags);
        added.map_err(Stop::Failed)
    }
}

/// Why comparing ended early: an error, or the packing thread is gone and has one of its own.
enum Stop {
    Failed(Error),
    /// The packing thread has ended and knows why.
    Gone,
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Stop {
        Stop::Gone
    }
}

impl From<CatalogError> for Stop {
    fn from(error: CatalogError) -> Stop {
        Stop::Failed(Error::from(error))
    }
}

/// The parent's row of this path; what is passed on the way is gone.
fn find_old<'c>(
    cursor: &'c mut ParentCursor,
    parent: &Bytes,
    name: &[u8],
    items: &mut ItemSender,
    moved: &mut Moved<'_>,
) -> std::result::Result<Option<ParentRow<'c>>, Stop> {
    cursor.advance_to(parent, name, |row| {
        moved.gone(&row);
        items.send(gone(&row)).map_err(Stop::from)
    })
}

/// What is not here any more.
fn gone(row: &Entry) -> PackingItem {
    PackingItem::Gone(Box::new(row.clone()))
}
