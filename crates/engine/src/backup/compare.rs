//! Compares the scan with the parent's catalog: what is unchanged costs a comparison, the rest becomes items.
//!
//! Unchanged means: everything that `stat` tells is equal, the row's ctime is older than the barrier of the run that made
//! it, nothing went wrong with it then, and its content is still in the repository.

use super::amendments::Amendments;
use super::parent::Parent;
use super::queue::{Gone, ItemSender};
use super::rule;
use super::tally::Tally;
use crate::catalog::{KeyRange, ParentCursor, ParentRow};
use crate::error::{Error, Result};
use crate::image::Place;
use crate::limits::ASKED_MAX;
use crate::pack::ChunkWriter;
use crate::read::{SMALL_BYTES_MAX, SmallFile, SmallReader};
use crate::scan::inode::SameChildren;
use crate::scan::{Batch, ListedAgain, Problem, ScanItem};
use bale_format::pieces::{Piece, PieceStep, PieceWalk};
use bale_format::snapshot::Filesystem;
use bale_format::{
    ChunkId, ChunkKind, Content, Entry, EntryFlags, Glance, Key, Kind, XattrsColumn,
};
use bytes::Bytes;
use std::collections::HashMap;
use std::path::PathBuf;

/// Something for the packing thread, in the order of keys.
pub(super) enum Item {
    /// The reader's next file.
    Small {
        place: Place,
        old: Option<Box<Entry>>,
    },
    /// A small file that was read already.
    Read {
        place: Place,
        file: Box<SmallFile>,
        old: Option<Box<Entry>>,
    },
    /// To be read in pieces.
    Large {
        place: Place,
        entry: Box<Entry>,
        old: Option<Box<Entry>>,
    },
    /// One of several names of an inode; read before, if it is still remembered.
    Linked {
        place: Place,
        entry: Box<Entry>,
        old: Option<Box<Entry>>,
    },
    /// Nothing to read.
    Row {
        entry: Box<Entry>,
        old: Option<Box<Entry>>,
    },
    /// In the parent, and not here any more.
    Gone(Box<Entry>),
}

/// What the scan found besides rows.
pub(super) struct Scanned {
    /// Flags to be set in rows that were emitted before the trouble showed.
    pub(super) amendments: Amendments,
    /// Bytes in use of each chunk that kept rows point at: 48 bytes for each chunk.
    pub(super) live: HashMap<ChunkId, u64>,
    pub(super) asked: Asked,
}

impl Scanned {
    /// Nothing yet; `directory` is for what does not fit in memory.
    pub(super) fn new(directory: PathBuf) -> Scanned {
        Scanned {
            amendments: Amendments::new(directory),
            live: HashMap::new(),
            asked: Asked::default(),
        }
    }
}

/// Inodes whose rows were made of what the kernel said, at whatever moment it was asked.
#[derive(Default)]
pub(super) struct Asked {
    inodes: Vec<u64>,
    too_many: bool,
}

impl Asked {
    fn add(&mut self, inode: u64) {
        if self.inodes.len() >= ASKED_MAX {
            self.too_many = true;
            self.inodes = Vec::new();
        }
        if !self.too_many {
            self.inodes.push(inode);
        }
    }

    pub(super) fn add_all(&mut self, others: Asked) {
        self.too_many |= others.too_many;
        others.inodes.into_iter().for_each(|inode| self.add(inode));
    }

    /// Together with others, sorted; `None`: there were too many.
    pub(super) fn and(mut self, others: &[u64]) -> Option<Vec<u64>> {
        self.inodes.extend_from_slice(others);
        self.inodes.sort_unstable();
        self.inodes.dedup();
        (!self.too_many).then_some(self.inodes)
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
    /// Inodes that the kernel was asked for are told.
    tells_asked: bool,
    last_chunk: Option<(ChunkId, bool)>,
    /// Bytes in use of the chunk that kept rows pointed at last: neighbouring rows mostly share one.
    kept: (ChunkId, u64),
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
        Ok(Comparer {
            parent,
            store,
            reader,
            tally,
            filesystems: Vec::new(),
            scanned: Scanned::new(directory),
            tells_asked: false,
            last_chunk: None,
            kept: Default::default(),
            listed_again: ListedAgain::default(),
        })
    }

    /// The same, telling which inodes the kernel was asked for.
    pub(super) fn telling_asked(self, tells_asked: bool) -> Comparer<'a> {
        Comparer {
            tells_asked,
            ..self
        }
    }

    /// Runs to the end of the scan. Stops early, without an error of its own, when the packing thread has gone.
    pub(super) fn compare(
        mut self,
        scanner: Box<dyn Iterator<Item = ScanItem> + Send>,
        mut items: ItemSender,
    ) -> Result<Scanned> {
        let done = self.compare_all(scanner, &mut items);
        self.add_kept();
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
                ScanItem::Same(same) => self.compare_same(&same, &mut cursor, items)?,
                ScanItem::Amend { key, flags } => self.amend(key, flags)?,
                ScanItem::Problem(problem) => self.tally.problem(&problem),
                ScanItem::Note(note) => self.tally.scan_note(&note),
            }
        }
        let mut result = Ok(());
        cursor
            .finish(|row| {
                if result.is_ok() {
                    result = items.send(gone(&row));
                }
                Ok(())
            })
            .map_err(catalog_error)?;
        result?;
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
                let glance = old.glance();
                if self.is_unchanged(&entry, old, &glance) {
                    self.keep(&glance);
                    continue;
                }
            }
            self.change(places.of(at), entry, old, items)?;
        }
        Ok(())
    }

    /// Rows of inodes that are what they were stay, if they are there and nothing is wrong with them. Of the others the inode
    /// is looked at: those of a directory that was renamed, say.
    fn compare_same(
        &mut self,
        same: &SameChildren,
        cursor: &mut ParentCursor,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        let filesystem = self.filesystem_of(same.filesystem());
        for (name, inode) in same.children() {
            let old = find_old(cursor, same.path(), name, items)?;
            if let Some(old) = old {
                let glance = old.glance();
                let is_it = (glance.inode, glance.filesystem) == (inode, filesystem)
                    && glance.kind != Kind::Directory;
                if is_it && self.still_stands(old, &glance) {
                    self.keep(&glance);
                    continue;
                }
            }
            match same.look(name, inode) {
                Ok(Some((mut entry, place))) => {
                    entry.filesystem = filesystem;
                    self.change(place, entry, old, items)?;
                    continue;
                }
                Ok(None) => self
                    .tally
                    .vanished(&bale_format::entry::join(same.path(), name)),
                Err(problem) => {
                    self.tally.problem(&problem);
                    self.amend(Key::of_path(same.path()), EntryFlags::UNREADABLE)?;
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

    fn is_unchanged(&mut self, new: &Entry, old: ParentRow, glance: &Glance) -> bool {
        rule::is_what_it_was(new, glance) && self.still_stands(old, glance)
    }

    /// Nothing went wrong when the row was made, it was made of what was settled, and what it points at is there.
    fn still_stands(&mut self, row: ParentRow, glance: &Glance) -> bool {
        let is_sound = match self.parent.is_first_pass {
            true => rule::is_sound_within_run(glance),
            false => rule::is_sound(glance),
        };
        is_sound && self.parent.is_settled(row, glance) && self.content_is_there(glance)
    }

    /// Is what the row points at in the repository, and not to be stored afresh?
    fn content_is_there(&mut self, row: &Glance) -> bool {
        if let Some(id) = XattrsColumn::chunk_of(row.xattrs)
            && !self.store.rely_on(&id)
        {
            return false;
        }
        match row.content {
            Content::None => true,
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

    fn keep(&mut self, row: &Glance) {
        self.tally.kept(row);
        if let Content::Bundled { chunk, .. } = row.content {
            if self.kept.0 != chunk {
                self.add_kept();
                self.kept.0 = chunk;
            }
            self.kept.1 += row.size;
        }
    }

    /// Adds what was kept of one chunk to the others.
    fn add_kept(&mut self) {
        let (chunk, bytes) = std::mem::take(&mut self.kept);
        if bytes > 0 {
            *self.scanned.live.entry(chunk).or_default() += bytes;
        }
    }

    fn change(
        &mut self,
        place: Place,
        mut entry: Entry,
        old: Option<ParentRow>,
        items: &mut ItemSender,
    ) -> std::result::Result<(), Stop> {
        if matches!(place, Place::Directory(_)) {
            if self.tells_asked {
                self.scanned.asked.add(entry.inode);
            }
            if old.is_some_and(|old| rule::is_half_changed(&entry, &old.glance())) {
                entry.flags.set(EntryFlags::RACY);
            }
        }
        let old = old.map(|old| Box::new(old.entry()));
        if entry.kind != Kind::File || entry.size == 0 {
            if let Err(problem) = place.complete(&mut entry)
                && self.is_gone_or_told(&place, &entry, problem)
            {
                if let Some(old) = old {
                    items.send(gone(&old))?;
                }
                return Ok(());
            }
            let entry = Box::new(entry);
            return Ok(items.send(Item::Row { entry, old })?);
        }
        let item = if entry.nlink > 1 {
            Item::Linked {
                place,
                entry: Box::new(entry),
                old,
            }
        } else if entry.size > SMALL_BYTES_MAX {
            Item::Large {
                place,
                entry: Box::new(entry),
                old,
            }
        } else {
            match self.reader.read_before(&place) {
                Some(content) => Item::Read {
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
                    Item::Small { place, old }
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

    /// Tells of an entry that could not be completed. True: it is gone, and has no row. A directory keeps its row: what was
    /// in it may come later.
    fn is_gone_or_told(&mut self, place: &Place, entry: &Entry, problem: Problem) -> bool {
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

/// Why comparing stops.
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

/// The parent's row of this path; what is passed on the way is gone.
fn find_old<'c>(
    cursor: &'c mut ParentCursor,
    parent: &Bytes,
    name: &[u8],
    items: &mut ItemSender,
) -> std::result::Result<Option<ParentRow<'c>>, Stop> {
    let mut sent = Ok(());
    let old = cursor.advance_to(parent, name, |row| {
        if sent.is_ok() {
            sent = items.send(gone(&row));
        }
        Ok(())
    });
    let old = old.map_err(catalog_error)?;
    sent?;
    Ok(old)
}

/// What is not here any more.
fn gone(row: &Entry) -> Item {
    Item::Gone(Box::new(row.clone()))
}

fn catalog_error(error: crate::catalog::CatalogError) -> Stop {
    Stop::Failed(Error::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(inodes: impl IntoIterator<Item = u64>) -> Asked {
        let mut asked = Asked::default();
        inodes.into_iter().for_each(|inode| asked.add(inode));
        asked
    }

    #[test]
    fn of_more_inodes_than_are_remembered_none_is_vouched_for() {
        let mut few = asked([5, 3]);
        few.add_all(asked([9, 3]));
        assert_eq!(few.and(&[1, 5]), Some(vec![1, 3, 5, 9]));
        let max = ASKED_MAX as u64;
        assert_eq!(asked(0..max).and(&[]).map(|all| all.len()), Some(ASKED_MAX));
        assert_eq!(asked(0..max + 9).and(&[]), None);
        let mut halves = asked(0..max);
        halves.add_all(asked([max]));
        assert_eq!(halves.and(&[]), None);
    }
}
