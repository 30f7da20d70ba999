//! The packing thread: content goes into bundles and pieces, and rows into the catalog once they
//! know where it is.
//!
//! Items come in the order of keys and leave in it. A row whose bundle is still open waits; when
//! too many wait, all bundles are closed.

mod renamed;
mod reused;

use super::bundle::Bundles;
use super::checkpoint::Resumable;
use super::cut_large::LargeStore;
use super::dedup;
use super::dedup_cache::{ChunkNumbers, ContentRef, ContentTable};
use super::linked_inodes::{LinkKey, LinkTable, LinkedContent, SHARED_FLAGS};
use super::projects::{Moment, Projects};
use super::queue::{ItemQueue, PackingItem, READ_AHEAD};
use super::recount::{Class, Recount};
use super::refused_rows;
use super::source_paths::SourcePaths;
use super::stored_segments::StoredSegments;
use super::tally::Tally;
use crate::limits::ROWS_WAITING_MAX;
use bale_format::limits::XATTRS_INLINE_BYTES_MAX;
use bale_format::xattrs::XattrsColumn;
use bale_format::{ChunkKind, Content, Entry, EntryFlags, Key, Kind, Layer};
use bale_repository::catalog::{CatalogReader, CatalogWriter, Partial, file_bytes};
use bale_repository::error::Result;
use bale_repository::pack::ChunkWriter;
use bale_source::image::EntryPlace;
use bale_source::read::{SMALL_BYTES_MAX, SmallFile, SmallReader, SmallState, read_small};
use bale_source::scan::ListedAgain;
use renamed::RenamedFiles;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Flags of a row whose content is not what the file holds: no other name has it.
const NOT_SHARED: u32 = EntryFlags::CHANGED.0 | EntryFlags::INCOMPLETE.0;

/// A row on its way into the catalog.
enum PendingRow {
    Put {
        entry: Box<Entry>,
        content_ref: Option<ContentRef>,
        old: Option<Box<Entry>>,
    },
    Gone(Box<Entry>),
}

/// What came of all rows.
pub(super) struct StoredRows {
    pub(super) layers: Vec<Layer>,
    /// Rows that were put or removed.
    pub(super) changes: u64,
    /// See `Scanned`.
    pub(super) read_instead: HashSet<u64>,
}

pub(super) struct RowWriter<'a> {
    store: &'a Arc<ChunkWriter>,
    reader: &'a SmallReader,
    tally: &'a Tally<'a>,
    large: LargeStore<'a>,
    catalog: CatalogWriter<StoredSegments>,
    bundles: Bundles,
    chunks: ChunkNumbers,
    contents: ContentTable,
    links: LinkTable,
    waiting: VecDeque<PendingRow>,
    last_key: Option<Key>,
    /// Where packs lie in segments.
    projects: Option<Projects>,
    sources: SourcePaths,
    changes: u64,
    listed_again: ListedAgain,
    renamed: RenamedFiles,
    read_instead: HashSet<u64>,
    /// Of a second pass.
    recount: Option<Recount<'a>>,
}

impl<'a> RowWriter<'a> {
    pub(super) fn new(
        store: &'a Arc<ChunkWriter>,
        catalog: CatalogWriter<StoredSegments>,
        reader: &'a SmallReader,
        tally: &'a Tally<'a>,
        sources: Vec<Vec<u8>>,
    ) -> RowWriter<'a> {
        RowWriter {
            store,
            reader,
            tally,
            large: LargeStore::new(store, tally),
            catalog,
            bundles: Bundles::new(),
            chunks: ChunkNumbers::default(),
            contents: ContentTable::new(
                store.repository().spill_dir().ok(),
                &store.repository().memory(),
            ),
            links: LinkTable::new(
                store.repository().spill_dir().ok(),
                &store.repository().memory(),
            ),
            waiting: VecDeque::new(),
            last_key: None,
            projects: Projects::of(store, &sources),
            sources: SourcePaths::new(sources),
            changes: 0,
            listed_again: ListedAgain::since(tally.began),
            renamed: RenamedFiles::default(),
            read_instead: HashSet::new(),
            recount: None,
        }
    }

    /// The same with so many reads of a large file in flight.
    pub(super) fn reading_ahead(self, blocks: usize) -> RowWriter<'a> {
        RowWriter {
            large: self.large.reading_ahead(blocks),
            ..self
        }
    }

    /// The same where what is stored of a large file is named so often, if not as usual.
    pub(super) fn naming_every(self, every: Option<Duration>) -> RowWriter<'a> {
        RowWriter {
            large: self.large.naming_every(every),
            ..self
        }
    }

    /// The same, of a second pass: counts against the catalog that the first one compared with.
    pub(super) fn recounting(self, original: Option<&'a CatalogReader>) -> RowWriter<'a> {
        RowWriter {
            recount: original.map(Recount::new),
            ..self
        }
    }

    /// Takes items until there are no more. `at` may make a checkpoint.
    pub(super) fn write_all(
        &mut self,
        items: ItemQueue,
        mut at: impl FnMut(&mut Self, Moment) -> Result<()>,
    ) -> Result<()> {
        let waiting_max = self.store.repository().memory().share(ROWS_WAITING_MAX);
        for item in items.into_iter().flatten() {
            let item = match &mut self.projects {
                Some(projects) => {
                    let item = item.with_entry(self.reader);
                    if projects.begins_with(&item) {
                        at(self, Moment::BetweenProjects)?;
                    }
                    item
                }
                None => item,
            };
            self.take(item)?;
            self.drain()?;
            if self.waiting.len() >= waiting_max {
                self.close_bundles()?;
            }
            at(self, Moment::AfterItem)?;
        }
        Ok(())
    }

    /// Ends the catalog. Only now are all changes known: rows waited for their bundles.
    pub(super) fn finish(mut self) -> Result<StoredRows> {
        self.close_bundles()?;
        self.renamed.report(self.tally);
        Ok(StoredRows {
            layers: self.catalog.finish()?.layers,
            changes: self.changes,
            read_instead: self.read_instead,
        })
    }

    fn take(&mut self, item: PackingItem) -> Result<()> {
        match item {
            PackingItem::Reused(old) => self.take_reused(old)?,
            PackingItem::Accessed { entry, old, shares } => {
                self.take_accessed(entry, old, shares)?
            }
            PackingItem::Gone(old) => self.waiting.push_back(PendingRow::Gone(old)),
            PackingItem::Row { entry, old } => self.wait(entry, None, old)?,
            PackingItem::Small { place, old } => {
                let file = self.reader.pop().expect(READ_AHEAD);
                self.take_small(&place, file, old)?;
            }
            PackingItem::Read { place, file, old } => self.take_small(&place, *file, old)?,
            PackingItem::Large { place, entry, old } => self.take_large(&place, *entry, old)?,
            PackingItem::Linked { place, entry, old } => self.take_linked(&place, entry, old)?,
        }
        Ok(())
    }

    /// For other names of the same inode.
    fn remember_linked(&mut self, entry: &Entry, content_ref: ContentRef) {
        // Another name must not have the content without the doubt about it.
        if entry.flags.0 & NOT_SHARED == 0
            && let Some(content_hash) = entry.content_hash
        {
            let content = LinkedContent {
                content_ref,
                content_hash,
                flags: EntryFlags(entry.flags.0 & SHARED_FLAGS),
                generation: entry.generation,
            };
            self.links.remember(LinkKey::of(entry), content);
        }
    }

    /// A further name of an inode takes over what was read or reused for an earlier one.
    fn take_linked(
        &mut self,
        place: &EntryPlace,
        mut entry: Box<Entry>,
        old: Option<Box<Entry>>,
    ) -> Result<()> {
        let key = LinkKey::of(&entry);
        if let Some(content) = self.links.find(&key)
            && place.complete(&mut entry).is_ok()
        {
            take_over(&mut entry, &content);
            return self.wait(entry, Some(content.content_ref), old);
        }
        if entry.size > SMALL_BYTES_MAX {
            return self.take_large(place, *entry, old);
        }
        let file = read_small(place, *entry);
        self.take_small(place, file, old)
    }

    fn take_small(
        &mut self,
        place: &EntryPlace,
        file: SmallFile,
        old: Option<Box<Entry>>,
    ) -> Result<()> {
        let flags = file.entry.flags;
        file.problems
            .iter()
            .for_each(|problem| self.tally.reading_problem(problem, flags));
        self.check_replaced(place, file.listed_inode, &file.entry);
        let mut entry = Box::new(file.entry);
        match file.state {
            SmallState::Vanished => return self.vanished(place, entry, old),
            SmallState::Grown => return self.take_large(place, *entry, old),
            SmallState::Unreadable => {
                entry.flags.set(EntryFlags::UNREADABLE);
                return self.wait(entry, None, old);
            }
            SmallState::Read => {}
        }
        self.tally.read(entry.size);
        if file.bytes.is_empty() {
            return self.wait(entry, None, old);
        }
        if !file.holes.is_empty() || !file.bad.is_empty() {
            let list = self
                .large
                .store_read(&mut entry, &file.bytes, &file.holes, &file.bad)?;
            let content = Content::Pieces { list };
            return self.placed(entry, ContentRef::Stored(content), old);
        }
        let hash = file
            .hash
            .unwrap_or_else(|| self.store.keys().content_hash(&file.bytes));
        entry.content_hash = Some(hash);
        let content_ref =
            match dedup::stored_at(self.store, &mut self.contents, &entry, old.as_deref()) {
                Some(content_ref) => {
                    if let Some(Content::Bundled { chunk, .. }) = self.chunks.content(content_ref) {
                        self.store.count_known(&chunk, entry.size);
                    }
                    content_ref
                }
                None => self.bundle(&file.bytes, &hash)?,
            };
        self.placed(entry, content_ref, old)
    }

    fn bundle(&mut self, bytes: &[u8], hash: &[u8; 16]) -> Result<ContentRef> {
        let (bundle, offset) = self
            .bundles
            .push(bytes, hash, &mut self.chunks, self.store)?;
        let size = u32::try_from(bytes.len()).expect("small files are small");
        self.contents.remember(hash, size, bundle, offset);
        Ok(ContentRef::Bundled { bundle, offset })
    }

    fn take_large(
        &mut self,
        place: &EntryPlace,
        entry: Entry,
        old: Option<Box<Entry>>,
    ) -> Result<()> {
        let path_entry = entry.clone();
        match self.large.store_file(place, entry)? {
            Some(stored) => {
                let listed = (path_entry.nlink < 2).then_some(path_entry.inode);
                self.check_replaced(place, listed, &stored.entry);
                let entry = Box::new(stored.entry);
                match stored.list {
                    Some(list) => {
                        let content = Content::Pieces { list };
                        self.placed(entry, ContentRef::Stored(content), old)
                    }
                    None => self.wait(entry, None, old),
                }
            }
            None => self.vanished(place, Box::new(path_entry), old),
        }
    }

    /// What cannot be found any more has no row if it is gone; if it may be there, its row says
    /// that it could not be read.
    fn vanished(
        &mut self,
        place: &EntryPlace,
        mut entry: Box<Entry>,
        old: Option<Box<Entry>>,
    ) -> Result<()> {
        if let Err(problem) = self.listed_again.check_gone(place, &entry) {
            let Some(problem) = self.renamed.keep((entry.filesystem, entry.inode), problem) else {
                self.waiting.extend(old.map(PendingRow::Gone));
                return Ok(());
            };
            entry.flags.set(EntryFlags::UNREADABLE);
            self.tally.reading_problem(&problem, entry.flags);
            return self.wait(entry, None, old);
        }
        self.tally.vanished(&entry.path());
        if let Some(old) = old {
            self.waiting.push_back(PendingRow::Gone(old));
        }
        Ok(())
    }

    /// A row with content.
    fn placed(
        &mut self,
        entry: Box<Entry>,
        content_ref: ContentRef,
        old: Option<Box<Entry>>,
    ) -> Result<()> {
        if entry.flags.has(EntryFlags::CHANGED) {
            let text = "it changed while it was read; what was read is stored".to_owned();
            let path = entry.path();
            self.tally
                .report_reading_problem(&path, "read", text, entry.flags);
        }
        if entry.is_hard_link() {
            self.remember_linked(&entry, content_ref);
        }
        self.wait(entry, Some(content_ref), old)
    }

    fn wait(
        &mut self,
        mut entry: Box<Entry>,
        content_ref: Option<ContentRef>,
        old: Option<Box<Entry>>,
    ) -> Result<()> {
        if let Some((1, set)) = entry.xattrs.split_first().map(|(kind, set)| (*kind, set))
            && set.len() > XATTRS_INLINE_BYTES_MAX
        {
            let id = self.store.store(ChunkKind::Xattrs, set.to_vec())?;
            entry.xattrs = XattrsColumn::chunk(id);
        }
        self.waiting.push_back(PendingRow::Put {
            entry,
            content_ref,
            old,
        });
        Ok(())
    }

    /// No row waits then.
    pub(super) fn close_bundles(&mut self) -> Result<()> {
        self.bundles.close(&mut self.chunks, self.store)?;
        self.drain()
    }

    /// Writes the rows at the front that wait for nothing.
    fn drain(&mut self) -> Result<()> {
        while let Some(content) = self.front_content() {
            match self.waiting.pop_front() {
                Some(PendingRow::Put { mut entry, old, .. }) => {
                    entry.content = content;
                    self.put(*entry, old.as_deref())?;
                }
                Some(PendingRow::Gone(old)) => self.remove(&old)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Content of the row at the front, if there is a row and it waits for nothing.
    fn front_content(&self) -> Option<Content> {
        match self.waiting.front()? {
            PendingRow::Put {
                content_ref: Some(content_ref),
                ..
            } => self.chunks.content(*content_ref),
            PendingRow::Put {
                content_ref: None, ..
            }
            | PendingRow::Gone(..) => Some(Content::None),
        }
    }

    /// The directories that lead to a source are in the catalog, too; their changes are nobody's
    /// concern.
    fn is_in_source(&mut self, entry: &Entry) -> bool {
        self.sources.have(entry)
    }

    fn remove(&mut self, old: &Entry) -> Result<()> {
        match &mut self.recount {
            Some(recount) => recount.count(Some(old), None, self.tally)?,
            None => {
                if self.is_in_source(old) {
                    self.tally.report_removed(old);
                }
            }
        }
        let key = old.key();
        self.catalog.remove(&key, file_bytes(old))?;
        self.changes += 1;
        self.last_key = Some(key);
        Ok(())
    }

    fn put(&mut self, mut entry: Entry, old: Option<&Entry>) -> Result<()> {
        self.renamed.met(&entry);
        let last_parent = self.last_key.as_ref().map(|last| &last.parent);
        if !refused_rows::make_storable(&mut entry, last_parent, self.tally) {
            return Ok(());
        }
        let is_same = old.is_some_and(|old| *old == entry);
        match &mut self.recount {
            Some(recount) => recount.count(old, Some(&entry), self.tally)?,
            None => {
                let class = Class::of(&entry, old);
                self.tally.stored(&entry, class);
                if is_reported(entry.kind, class) && self.is_in_source(&entry) {
                    self.tally.report_difference(&entry, old);
                }
            }
        }
        if !is_same {
            self.catalog.put(&entry)?;
            self.changes += u64::from(self.is_in_source(&entry));
        }
        self.last_key = Some(Key {
            parent: entry.parent,
            name: entry.name,
        });
        Ok(())
    }
}

impl Resumable for RowWriter<'_> {
    fn checkpoint(&mut self, holds_all: bool) -> Result<Option<Partial>> {
        self.close_bundles()?;
        let last = self.last_key.as_ref();
        let partial = last.map(|last| self.catalog.checkpoint(last, holds_all));
        Ok(partial.transpose()?)
    }

    fn bytes_in_bundles(&self) -> u64 {
        self.bundles.bytes() as u64
    }
}

/// Every directory in which something came or went has changed: that is told of what came or went.
fn is_reported(kind: Kind, class: Class) -> bool {
    match class {
        Class::New => true,
        Class::Changed => kind != Kind::Directory,
        Class::Unmodified => false,
    }
}

/// What another name of the inode has. The generation, too: names that differ in it are restored as
/// two files.
fn take_over(entry: &mut Entry, content: &LinkedContent) {
    entry.content_hash = Some(content.content_hash);
    entry.generation = content.generation;
    entry.flags.set(content.flags);
}
