//! Compares the scan with the parent's catalog: what is unchanged costs a comparison, the rest
//! becomes items.
//!
//! Unchanged means: everything `stat` reports is equal, the row is not racy (its ctime is before
//! the barrier of the run that made it), it has no trouble flag, and its content is still in the
//! repository (`rule`).

use super::amendments::Amendments;
use super::live_statted::LiveStatted;
use super::parent::Parent;
use super::queue::{Gone, ItemSender, PackingItem};
use super::rule;
use super::tally::Tally;
use bale_format::pieces::{Piece, PieceStep, PieceWalk};
use bale_format::snapshot::Filesystem;
use bale_format::{
    ChunkId, ChunkKind, Content, Entry, EntryFlags, Key, Kind, RowView, XattrsColumn,
};
use bale_pipeline::memory::MemoryPlan;
use bale_repository::catalog::{CatalogError, KeyRange, ParentCursor, ParentRow};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_source::image::EntryPlace;
use bale_source::read::{FirstNames, SMALL_BYTES_MAX, SmallReader};
use bale_source::scan::inode::UnchangedChildren;
use bale_source::scan::{Batch, ListedAgain, ScanItem, ScanProblem};
use bytes::Bytes;
use std::collections::HashMap;
use std::path::PathBuf;

/// What the scan found besides rows.
pub(super) struct Scanned {
    /// Flags to be set in rows that were emitted before the trouble showed.
    pub(super) amendments: Amendments,
    /// Bytes in use of each chunk that reused rows point at: 48 bytes for each chunk.
    pub(super) live: HashMap<ChunkId, u64>,
    pub(super) live_statted: LiveStatted,
}

impl Scanned {
    /// Nothing yet; `directory` is for what does not fit in memory.
    pub(super) fn new(directory: PathBuf, memory: &MemoryPlan) -> Scanned {
        Scanned {
            amendments: Amendments::new(directory),
            live: HashMap::new(),
            live_statted: LiveStatted::within(memory),
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
}

impl<'a> Comparer<'a> {
    pub(super) fn new(
        parent: &'a Parent,
        store: &'a ChunkWriter,
        reader: &'a SmallReader,
        tally: &'a Tally<'a>,
    ) -> Result<Comparer<'a>> {
        let directory = store.repository().spill_dir()?;
        let memory = store.repository().memory();
        Ok(Comparer {
            parent,
            store,
            reader,
            tally,
            filesystems: Vec::new(),
            scanned: Scanned::new(directory, &memory),
            records_live_stats: false,
            last_chunk: None,
            unchanged: Default::default(),
            first_names: FirstNames::within(&memory),
            listed_again: ListedAgain::default(),
        })
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
                ScanItem::Entries(batch) => self.compare_batch(batch, &mut cursor, items)?,
                ScanItem::Unchanged(unchanged) => {
                    self.compare_unchanged(&unchanged, &mut cursor, items)?
                }
                ScanItem::Amend { key, flags } => self.amend(key, flags)?,
                ScanItem::Problem(problem) => self.tally.problem(&problem),
                ScanItem::Note(note) => self.tally.scan_note(&note),
            }
        }
        cursor.finish(|row| items.send(gone(&row)).map_err(Stop::from))?;
        Ok(items.flush()?)
    }

    fn compare_batch(
        &mut self,
        batch: Batch,
        cursor: &mut ParentCursor,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        let Batch { places, entries } = batch;
        for (at, mut entry) in entries.into_iter().enumerate() {
            entry.filesystem = self.filesystem_of(entry.filesystem);
            let old = find_old(cursor, &entry.parent, &entry.name, items)?;
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
            let old = find_old(cursor, unchanged.path(), name, items)?;
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

    /// Is what the row points at in the repository, and not to be stored afresh?
    fn content_is_there(&mut self, row: &RowView) -> bool {
        if let Some(id) = XattrsColumn::chunk_of(row.xattrs)
            && !self.store.rely_on(&id)
        {
            return false;
        }
        match row.content {
            Content::None => true,
            // No scan finds an image: this is another thing of that name.
            Content::Image => false,
            Content::Bundled { chunk, .. } => self.chunk_is_there(chunk),
            Content::Pieces { list } => {
                self.store.rely_on(&list)
                    && (!self.parent.thorough || self.pieces_are_there(list, row.size))
            }
        }
    }

    /// Neighbouring rows mostly share a chunk: one look-up for all of them.
    fn chunk_is_there(&mut self, chunk: ChunkId) -> bool {
        if let Some((last, there)) = self.last_chunk
            && last == chunk
        {
            return there;
        }
        let there = !self.parent.thin.contains(&chunk) && self.store.rely_on(&chunk);
        self.last_chunk = Some((chunk, there));
        there
    }

    fn pieces_are_there(&self, list: ChunkId, size: u64) -> bool {
        let mut walk = PieceWalk::new(list, size);
        loop {
            match walk.step() {
                PieceStep::End => return true,
                PieceStep::Fetch(id) => {
                    let list = self.store.repository().read_chunk(&id, ChunkKind::Pieces);
                    if !self.store.rely_on(&id)
                        || !list.is_ok_and(|plain| walk.supply(&plain).is_ok())
                    {
                        return false;
                    }
                }
                PieceStep::Piece {
                    piece: Piece::Data { chunk, .. },
                    ..
                } if !self.store.rely_on(&chunk) => return false,
                PieceStep::Piece { .. } => {}
            }
        }
    }

    fn reuse(
        &mut self,
        old: ParentRow,
        row: &RowView,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        self.uses(row);
        let is_hard_link = row.is_hard_link();
        if !is_hard_link || matches!(row.content, Content::None) {
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
        if row.is_hard_link() {
            self.first_names.is_first(row.filesystem, row.inode);
        }
        let old = Box::new(old.entry());
        let mut entry = old.clone();
        entry.atime = new.atime;
        Ok(items.send(PackingItem::Accessed { entry, old })?)
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
        if entry.kind != Kind::File || entry.size == 0 {
            if let Err(problem) = place.complete(&mut entry)
                && self.is_gone_or_reported(&place, &entry, problem)
            {
                if let Some(old) = old {
                    items.send(gone(&old))?;
                }
                return Ok(());
            }
            let entry = Box::new(entry);
            return Ok(items.send(PackingItem::Row { entry, old })?);
        }
        // The first name of an inode is read like any file.
        let is_further =
            entry.nlink > 1 && !self.first_names.is_first(entry.filesystem, entry.inode);
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
        let position = self.tally.filesystem(found, &self.filesystems);
        self.filesystems.push(position);
    }

    fn amend(&mut self, key: Key, flags: EntryFlags) -> std::result::Result<(), Stop> {
        let added = self.scanned.amendments.add(&key, flags);
        added.map_err(Stop::Failed)
    }

    /// Tells of an entry that could not be completed. True: it is gone, and has no row. A directory
    /// keeps its row: what was in it may come later.
    fn is_gone_or_reported(
        &mut self,
        place: &EntryPlace,
        entry: &Entry,
        problem: ScanProblem,
    ) -> bool {
        let told = match problem.error.kind() {
            std::io::ErrorKind::NotFound => self.listed_again.check_gone(place, entry),
            _ => Err(problem),
        };
        match told {
            Ok(()) => {
                self.tally.vanished(&entry.path());
                entry.kind != Kind::Directory
            }
            Err(problem) => {
                self.tally.problem(&problem);
                false
            }
        }
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
) -> std::result::Result<Option<ParentRow<'c>>, Stop> {
    cursor.advance_to(parent, name, |row| {
        items.send(gone(&row)).map_err(Stop::from)
    })
}

/// What is not here any more.
fn gone(row: &Entry) -> PackingItem {
    PackingItem::Gone(Box::new(row.clone()))
}
