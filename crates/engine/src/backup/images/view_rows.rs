//! The rows of one view: what a scan of its file system finds, with content, compared with the rows
//! that the parent has.

use super::super::amendments::Amendments;
use super::super::refused_rows;
use super::super::rule;
use super::super::tally::Tally;
use super::bundled_rows::BundledRows;
use super::few_rows::{FewRow, FewRows};
use super::file_content::{FileContents, Given};
use super::ready_rows::{Looked, ReadyItem, ReadyRows, ready};
use bale_format::limits::XATTRS_INLINE_BYTES_MAX;
use bale_format::snapshot::{DenseDirectory, Totals};
use bale_format::xattrs::XattrsColumn;
use bale_format::{ChunkKind, Entry, EntryFlags, Key, Kind, Layer};
use bale_repository::catalog::{CatalogReader, DensestDirectories, KeyRange, ParentCursor};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_source::image::{ContentMap, EntryPlace};
use bale_source::scan::inode::{FewChanged, UnchangedChildren};
use bale_source::scan::{ScanItem, ScanItems, ScanProblem};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// What a view came to.
#[derive(Default)]
pub(super) struct WrittenView {
    pub(super) layers: Vec<Layer>,
    /// Rows put or removed.
    pub(super) changes: u64,
    pub(super) totals: Totals,
    pub(super) densest: Vec<DenseDirectory>,
    pub(super) problems: u64,
    /// Position of its file system in the list of the snapshot.
    pub(super) filesystem: Option<u32>,
}

/// Counts a row of a view.
pub(super) fn count(totals: &mut Totals, kind: Kind, size: u64, is_hard_link: bool) {
    match kind {
        Kind::File => {
            totals.files += 1;
            totals.bytes = totals.bytes.saturating_add(size);
        }
        Kind::Directory => totals.dirs += 1,
        _ => totals.others += 1,
    }
    totals.hard_links += u64::from(is_hard_link);
}

/// Writes the rows of the view of one name, and removes those that are not there any more.
pub(super) struct ViewRows<'a> {
    store: &'a Arc<ChunkWriter>,
    tally: &'a Tally<'a>,
    amendments: &'a mut Amendments,
    rows: BundledRows<'a>,
    cursor: ParentCursor,
    /// The parent's row of the view itself.
    old_top: Option<Entry>,
    /// Path of the directory of the row before.
    last_parent: Option<Bytes>,
    densest: DensestDirectories,
    written: WrittenView,
}

impl<'a> ViewRows<'a> {
    pub(super) fn of(
        name: &[u8],
        before: &CatalogReader,
        store: &'a Arc<ChunkWriter>,
        tally: &'a Tally<'a>,
        amendments: &'a mut Amendments,
    ) -> Result<ViewRows<'a>> {
        let mut rows = ViewRows::of_few(before, store, tally, amendments);
        rows.cursor = ParentCursor::open(before, KeyRange::below(name));
        rows.old_top = before.lookup(name)?;
        Ok(rows)
    }

    /// Of a view whose rows stay but for few: none is gone through.
    pub(super) fn of_few(
        before: &CatalogReader,
        store: &'a Arc<ChunkWriter>,
        tally: &'a Tally<'a>,
        amendments: &'a mut Amendments,
    ) -> ViewRows<'a> {
        ViewRows {
            store,
            tally,
            amendments,
            rows: BundledRows::over(before, store),
            cursor: ParentCursor::open_ranges(before, Vec::new()),
            old_top: None,
            last_parent: None,
            densest: DensestDirectories::default(),
            written: WrittenView::default(),
        }
    }

    /// Writes few rows, which are `found`, as they are now; the others stay.
    pub(super) fn write_few(
        mut self,
        few: &FewChanged,
        (found, filesystem): (FewRows, u32),
        contents: &mut FileContents<'_>,
    ) -> Result<WrittenView> {
        self.densest = found.densest;
        self.written.totals = found.totals;
        self.written.filesystem = Some(filesystem);
        for row in found.rows {
            if self.tally.interrupted() {
                return Err(Error::Interrupted);
            }
            let (position, parent, name, old) = match row {
                FewRow::Gone(old) => {
                    self.rows.remove(old)?;
                    continue;
                }
                FewRow::Made {
                    position,
                    parent,
                    name,
                    old,
                } => (position, parent, name, old),
            };
            let found = few.entry(position, &parent, &name).map(Some);
            match (self.made(found, &parent, contents)?, old) {
                (Some((mut entry, in_inode)), old) => {
                    self.write_row(&mut entry, in_inode, old)?;
                }
                (None, Some(old)) => self.rows.remove(old)?,
                (None, None) => {}
            }
        }
        self.finish()
    }

    /// Takes what a scan finds; `taken` are positions of file systems that others have.
    pub(super) fn write(
        &mut self,
        items: ScanItems,
        contents: &mut FileContents<'_>,
        taken: &[u32],
    ) -> Result<()> {
        for item in ready(items) {
            if self.tally.interrupted() {
                return Err(Error::Interrupted);
            }
            let item = match item {
                ReadyItem::Rows(rows) => {
                    self.take_rows(rows, contents)?;
                    continue;
                }
                ReadyItem::Other(item) => item,
            };
            match item {
                ScanItem::Filesystem(found) => {
                    self.written.filesystem = Some(self.tally.filesystem(found, taken));
                }
                ScanItem::Amend { key, flags } => self.amendments.add(&key, flags)?,
                ScanItem::Problem(problem) => {
                    self.written.problems += 1;
                    self.tally.problem(&problem);
                }
                ScanItem::Note(note) => self.tally.scan_note(&note),
                ScanItem::Unchanged(unchanged) => self.take_unchanged(&unchanged, contents)?,
                // Nothing is walked here.
                ScanItem::Listed(_) | ScanItem::Missing(_) => {}
                ScanItem::Entries(_) => {
                    return Err(Error::Other("entries that were not made ready".to_owned()));
                }
            }
        }
        Ok(())
    }

    fn take_rows(&mut self, rows: ReadyRows, contents: &mut FileContents<'_>) -> Result<()> {
        let ReadyRows {
            mut entries,
            places,
            looked,
        } = rows;
        let rows = entries.iter_mut().zip(&places).zip(looked);
        for ((entry, place), looked) in rows {
            let in_inode = self.complete(entry, (place, looked), contents)?;
            self.put(entry, in_inode)?;
        }
        Ok(())
    }

    /// Children whose rows stay, if the parent has them under these names: neither their inodes nor
    /// the blocks of their content changed. Others are made of their inodes, as after the rename of
    /// a directory.
    fn take_unchanged(
        &mut self,
        unchanged: &UnchangedChildren,
        contents: &mut FileContents<'_>,
    ) -> Result<()> {
        let filesystem = self.written.filesystem.unwrap_or_default();
        for (name, inode) in unchanged.children() {
            let (cursor, rows) = (&mut self.cursor, &mut self.rows);
            let old = cursor.advance_to(unchanged.path(), name, |row| rows.remove(row))?;
            let view = old.map(|old| old.view()).filter(|view| {
                rule::is_of_inode(view, inode, filesystem) && rule::has_no_trouble(view)
            });
            if let Some(view) = view {
                let totals = &mut self.written.totals;
                count(totals, view.kind, view.size, view.is_hard_link());
                self.densest.add_child(unchanged.path());
                continue;
            }
            let old = old.map(|old| old.entry());
            self.take_alone((unchanged, name, inode), old, contents)?;
        }
        self.last_parent = Some(unchanged.path().clone());
        Ok(())
    }

    /// A child that is made of its inode, over this row of the parent.
    fn take_alone(
        &mut self,
        (unchanged, name, inode): (&UnchangedChildren, &[u8], u64),
        old: Option<Entry>,
        contents: &mut FileContents<'_>,
    ) -> Result<()> {
        let found = unchanged.stat_from_device(name, inode);
        let made = self.made(found, unchanged.path(), contents)?;
        match (made, old) {
            (Some((mut entry, in_inode)), old) => self.put_over(&mut entry, in_inode, old),
            (None, Some(old)) => self.rows.remove(old),
            (None, None) => Ok(()),
        }
    }

    /// The row of what was found in a directory, as a snapshot can hold it, and content that is in
    /// the inode. `None`: there is none, or it was told why.
    fn made(
        &mut self,
        found: std::result::Result<Option<(Entry, EntryPlace)>, ScanProblem>,
        directory: &Bytes,
        contents: &mut FileContents<'_>,
    ) -> Result<Option<(Entry, Option<Vec<u8>>)>> {
        let (mut entry, place) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(problem) => {
                self.written.problems += 1;
                self.tally.problem(&problem);
                let key = Key::of_path(directory);
                self.amendments.add(&key, EntryFlags::UNREADABLE)?;
                return Ok(None);
            }
        };
        let looked = Looked::at(&place, &mut entry);
        let in_inode = self.complete(&mut entry, (&place, looked), contents)?;
        Ok(self.make_storable(&mut entry)?.then_some((entry, in_inode)))
    }

    /// What only a look at its inode, and at where its content is, tells of a row. Returns content
    /// that is in the inode.
    fn complete(
        &mut self,
        entry: &mut Entry,
        (place, looked): (&EntryPlace, Looked),
        contents: &mut FileContents<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let Looked { problem, content } = looked;
        entry.filesystem = self.written.filesystem.unwrap_or_default();
        if let Some(problem) = problem {
            self.written.problems += 1;
            self.tally.problem(&problem);
        }
        if entry.kind == Kind::File && entry.size > 0 {
            return self.give_content(place, content, entry, contents);
        }
        Ok(None)
    }

    fn give_content(
        &mut self,
        place: &EntryPlace,
        content: Option<io::Result<ContentMap>>,
        entry: &mut Entry,
        contents: &mut FileContents<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let trouble = match (place, content) {
            (EntryPlace::Image(inode), Some(content)) => {
                match contents.give(inode, content, entry)? {
                    Given::Set(trouble) => trouble,
                    Given::InInode(bytes) => return Ok(Some(bytes)),
                }
            }
            _ => {
                entry.flags.set(EntryFlags::UNREADABLE);
                Some("it is not found in the image".to_owned())
            }
        };
        if let Some(text) = trouble {
            self.written.problems += 1;
            self.tally.report_problem(&entry.path(), "read", text);
        }
        Ok(None)
    }

    fn put(&mut self, entry: &mut Entry, in_inode: Option<Vec<u8>>) -> Result<()> {
        if !self.make_storable(entry)? {
            return Ok(());
        }
        let old = match entry.parent.is_empty() {
            true => self.old_top.take(),
            false => self.advance(&entry.parent, &entry.name)?,
        };
        self.put_over(entry, in_inode, old)
    }

    /// As a snapshot can hold it; false: it was told why it cannot.
    fn make_storable(&mut self, entry: &mut Entry) -> Result<bool> {
        if let Some((1, set)) = entry.xattrs.split_first().map(|(kind, set)| (*kind, set))
            && set.len() > XATTRS_INLINE_BYTES_MAX
        {
            let id = self.store.store(ChunkKind::Xattrs, set.to_vec())?;
            entry.xattrs = XattrsColumn::chunk(id);
        }
        let had_flags = entry.flags;
        let has_row = refused_rows::make_storable(entry, self.last_parent.as_ref(), self.tally);
        let has_trouble = !has_row || entry.flags != had_flags;
        self.written.problems += u64::from(has_trouble);
        Ok(has_row)
    }

    fn put_over(
        &mut self,
        entry: &mut Entry,
        in_inode: Option<Vec<u8>>,
        old: Option<Entry>,
    ) -> Result<()> {
        self.densest.add_child(&entry.parent);
        if self.last_parent.as_ref() != Some(&entry.parent) {
            self.last_parent = Some(entry.parent.clone());
        }
        self.write_row(entry, in_inode, old)
    }

    fn write_row(
        &mut self,
        entry: &mut Entry,
        in_inode: Option<Vec<u8>>,
        old: Option<Entry>,
    ) -> Result<()> {
        let totals = &mut self.written.totals;
        count(totals, entry.kind, entry.size, entry.is_hard_link());
        // What was flagged as not to be had has no content.
        let in_inode = in_inode.filter(|_| !entry.flags.has(EntryFlags::UNREADABLE));
        self.rows.put(entry, in_inode.as_deref(), old)
    }

    /// The parent's row of this key. Those before it are gone.
    fn advance(&mut self, parent: &Bytes, name: &[u8]) -> Result<Option<Entry>> {
        let (cursor, rows) = (&mut self.cursor, &mut self.rows);
        let old = cursor.advance_to(parent, name, |row| rows.remove(row))?;
        Ok(old.map(|old| old.entry()))
    }

    /// What the scan did not find is gone.
    pub(super) fn finish(self) -> Result<WrittenView> {
        let ViewRows {
            mut rows,
            cursor,
            old_top,
            densest,
            mut written,
            ..
        } = self;
        written.densest = densest.finish();
        if let Some(old) = old_top {
            rows.remove(old)?;
        }
        cursor.finish(|row| rows.remove(row))?;
        (written.layers, written.changes) = rows.finish()?;
        Ok(written)
    }
}
