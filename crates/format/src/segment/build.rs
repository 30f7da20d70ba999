//! Makes segments from entries.
//!
//! Rows are collected by column, about 150 bytes a row, and encoded in one go. The bytes depend on
//! the rows alone.

use super::atimes::{self, AtimeRows};
use super::check::{ParentStep, check_entry};
use super::encode::{Dictionary, Integer, PrefixPage, push_deltas, push_indices, push_strings};
use super::file::{Encoding, File, Physical};
use super::{ROWS_MAX, SEGMENT_BYTES_MAX, SegmentError};
use crate::entry::{Content, Entry, EntryFlags, Key, Kind};
use bytes::Bytes;
use std::hash::Hash;
use std::ops::Range;

/// Rows of a page: a look-up decodes one page of a column, so it is small; smaller ones cost space.
const PAGE_ROWS: usize = 8192;
/// Bytes of a page or dictionary that end it: never reached by [`PAGE_ROWS`] usual rows.
const PAGE_BYTES: usize = 1 << 20;

/// Collects rows in order and encodes them.
#[derive(Default)]
pub struct SegmentBuilder {
    /// Distinct parents, one after the other, and each row's among them.
    parents: Strings,
    parent_of: Vec<u32>,
    names: Strings,
    kind: Vec<i32>,
    mode: Vec<i32>,
    uid: Vec<i32>,
    gid: Vec<i32>,
    size: Vec<i64>,
    mtime_s: Vec<i64>,
    mtime_ns: Vec<i32>,
    ctime_s: Vec<i64>,
    ctime_ns: Vec<i32>,
    atimes: AtimeRows,
    inode: Vec<i64>,
    generation: Vec<i32>,
    nlink: Vec<i32>,
    filesystem: Vec<i32>,
    rdev: Vec<i64>,
    targets: Strings,
    xattrs: Strings,
    inode_flags: Vec<i32>,
    project: Vec<i32>,
    flags: Vec<i32>,
    layout: Vec<i32>,
    chunks: Strings,
    offset: Vec<i64>,
    content_hash: Strings,
}

impl SegmentBuilder {
    /// Without rows.
    pub fn new() -> SegmentBuilder {
        SegmentBuilder::default()
    }

    /// Adds a row after those before. An entry that a reader would refuse is refused here and
    /// changes nothing.
    pub fn push(&mut self, entry: &Entry) -> Result<(), SegmentError> {
        if self.rows() >= ROWS_MAX {
            return Err(SegmentError::TooLarge {
                rows: self.rows() + 1,
                bytes: 0,
            });
        }
        let step = ParentStep::of(self.last(), entry);
        check_entry(step, entry).map_err(|reason| SegmentError::Refused {
            path: entry.path(),
            reason,
        })?;
        self.push_columns(entry, step);
        Ok(())
    }

    fn push_columns(&mut self, entry: &Entry, step: ParentStep) {
        if matches!(step, ParentStep::Other { .. }) {
            self.parents.push(&entry.parent);
        }
        self.atimes.push(self.rows(), entry.atime.get());
        self.parent_of.push(self.parents.len() as u32 - 1);
        self.names.push(&entry.name);
        self.kind.push(entry.kind as i32);
        self.mode.push(entry.mode as i32);
        self.uid.push(entry.uid as i32);
        self.gid.push(entry.gid as i32);
        self.size.push(entry.size as i64);
        self.mtime_s.push(entry.mtime.seconds);
        self.mtime_ns.push(entry.mtime.nanos as i32);
        self.ctime_s.push(entry.ctime.seconds);
        self.ctime_ns.push(entry.ctime.nanos as i32);
        self.inode.push(entry.inode as i64);
        self.generation.push(entry.generation as i32);
        self.nlink.push(entry.nlink as i32);
        self.filesystem.push(entry.filesystem as i32);
        self.rdev.push(entry.rdev as i64);
        self.targets.push(&entry.target);
        self.xattrs.push(&entry.xattrs);
        self.inode_flags.push(entry.inode_flags as i32);
        self.project.push(entry.project as i32);
        self.flags.push(entry.flags.0 as i32);
        self.push_content(entry);
    }

    /// Adds a row that no reader may accept.
    #[cfg(test)]
    pub(super) fn push_unchecked(&mut self, entry: &Entry) {
        self.push_columns(entry, ParentStep::of(self.last(), entry));
    }

    fn push_content(&mut self, entry: &Entry) {
        let (layout, chunk, offset) = match &entry.content {
            Content::None => (0, &[][..], 0),
            Content::Bundled { chunk, offset } => (1, &chunk.0[..], *offset),
            Content::Pieces { list } => (2, &list.0[..], 0),
            Content::Image => (3, &[][..], 0),
        };
        self.layout.push(layout);
        self.chunks.push(chunk);
        self.offset.push(i64::from(offset));
        self.content_hash
            .push(entry.content_hash.as_ref().map_or(&[][..], |hash| hash));
    }

    pub fn rows(&self) -> usize {
        self.kind.len()
    }

    /// Bytes of the regular files of some rows, as a segment reference states them: those of images
    /// are in extents.
    pub fn file_bytes(&self, rows: Range<usize>) -> u64 {
        let is_file = |row: &usize| {
            let has_bytes = self.kind[*row] == Kind::Extent as i32
                || self.kind[*row] == Kind::File as i32 && self.layout[*row] != 3;
            has_bytes && !EntryFlags(self.flags[*row] as u32).has(EntryFlags::REMOVED)
        };
        rows.filter(is_file)
            .fold(0u64, |sum, row| sum.saturating_add(self.size[row] as u64))
    }

    pub fn key(&self, row: usize) -> Key {
        Key {
            parent: Bytes::copy_from_slice(self.parents.get(self.parent_of[row] as usize)),
            name: Bytes::copy_from_slice(self.names.get(row)),
        }
    }

    fn last(&self) -> Option<(&[u8], &[u8])> {
        Some((self.parents.last()?, self.names.last()?))
    }

    /// Encodes all rows and forgets them. There must be one at least.
    pub fn finish(&mut self) -> Result<Vec<u8>, SegmentError> {
        let bytes = self.encode(0..self.rows())?;
        self.clear();
        Ok(bytes)
    }

    /// Forgets all rows, keeping the memory.
    pub fn clear(&mut self) {
        for column in self.columns_32() {
            column.clear();
        }
        for column in [
            &mut self.size,
            &mut self.mtime_s,
            &mut self.ctime_s,
            &mut self.inode,
            &mut self.rdev,
            &mut self.offset,
        ] {
            column.clear();
        }
        self.atimes.clear();
        self.parent_of.clear();
        for column in [
            &mut self.parents,
            &mut self.names,
            &mut self.targets,
            &mut self.xattrs,
            &mut self.chunks,
            &mut self.content_hash,
        ] {
            column.clear();
        }
    }

    fn columns_32(&mut self) -> [&mut Vec<i32>; 13] {
        [
            &mut self.kind,
            &mut self.mode,
            &mut self.uid,
            &mut self.gid,
            &mut self.mtime_ns,
            &mut self.ctime_ns,
            &mut self.generation,
            &mut self.nlink,
            &mut self.filesystem,
            &mut self.inode_flags,
            &mut self.project,
            &mut self.flags,
            &mut self.layout,
        ]
    }

    /// Encodes some of the rows, at least one, as a segment of their own.
    pub fn encode(&self, rows: Range<usize>) -> Result<Vec<u8>, SegmentError> {
        assert!(!rows.is_empty(), "a segment has at least one row");
        let bytes = self.encode_columns(&rows);
        match bytes.len() <= SEGMENT_BYTES_MAX {
            true => Ok(bytes),
            false => Err(SegmentError::TooLarge {
                rows: rows.len(),
                bytes: bytes.len(),
            }),
        }
    }

    fn encode_columns(&self, rows: &Range<usize>) -> Vec<u8> {
        let mut columns = Columns {
            rows: rows.clone(),
            file: File::new(64 * rows.len() + 8192),
            body: Vec::new(),
        };
        columns.parents(&self.parents, &self.parent_of);
        columns.prefixed("name", &self.names);
        columns.few("kind", &self.kind);
        columns.few("mode", &self.mode);
        columns.few("uid", &self.uid);
        columns.few("gid", &self.gid);
        columns.deltas("size", &self.size);
        columns.deltas("mtime_s", &self.mtime_s);
        columns.deltas("mtime_ns", &self.mtime_ns);
        columns.deltas("ctime_s", &self.ctime_s);
        columns.deltas("ctime_ns", &self.ctime_ns);
        columns.deltas("inode", &self.inode);
        columns.deltas("generation", &self.generation);
        columns.few("nlink", &self.nlink);
        columns.few("filesystem", &self.filesystem);
        columns.few("rdev", &self.rdev);
        columns.prefixed("target", &self.targets);
        columns.few_strings("xattrs", &self.xattrs);
        columns.few("inode_flags", &self.inode_flags);
        columns.few("project", &self.project);
        columns.few("flags", &self.flags);
        columns.few("layout", &self.layout);
        columns.prefixed("chunk", &self.chunks);
        columns.deltas("offset", &self.offset);
        columns.strings("content_hash", &self.content_hash);
        if let Some((seconds, nanos)) = self.atimes.of_rows(rows) {
            columns.deltas(atimes::SECONDS, seconds);
            columns.deltas(atimes::NANOS, nanos);
        }
        columns.file.finish(rows.len())
    }
}

/// Writes columns, each in the form that fits what is in it.
struct Columns {
    rows: Range<usize>,
    file: File,
    body: Vec<u8>,
}

impl Columns {
    /// Integers near their neighbours.
    fn deltas<T: Integer>(&mut self, name: &'static str, values: &[T]) {
        self.file.begin_column(name, T::PHYSICAL, Encoding::Deltas);
        for page in values[self.rows.clone()].chunks(PAGE_ROWS) {
            self.body.clear();
            push_deltas(page, &mut self.body);
            self.file.data_page(page.len(), &self.body);
        }
    }

    /// Integers of few different values.
    fn few<T: Integer>(&mut self, name: &'static str, values: &[T]) {
        let of_rows = values[self.rows.clone()].iter().copied();
        let dictionary = Dictionary::of(of_rows);
        if dictionary.values.len() * size_of::<T>() >= PAGE_BYTES {
            return self.deltas(name, values);
        }
        self.body.clear();
        for value in &dictionary.values {
            value.push_plain(&mut self.body);
        }
        self.dictionary(name, T::PHYSICAL, &dictionary);
    }

    /// Byte strings of few different values.
    fn few_strings(&mut self, name: &'static str, values: &Strings) {
        let dictionary = Dictionary::of(self.rows.clone().map(|row| values.get(row)));
        self.body.clear();
        for value in &dictionary.values {
            if self.body.len() + value.len() >= PAGE_BYTES {
                return self.strings(name, values);
            }
            self.body
                .extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.body.extend_from_slice(value);
        }
        self.dictionary(name, Physical::Bytes, &dictionary);
    }

    /// The dictionary's values are in `body`.
    fn dictionary<T: Copy + Eq + Hash>(
        &mut self,
        name: &'static str,
        physical: Physical,
        dictionary: &Dictionary<T>,
    ) {
        self.file.begin_column(name, physical, Encoding::Dictionary);
        self.file
            .dictionary_page(dictionary.values.len(), &self.body);
        let width = u32::BITS - (dictionary.values.len() as u32 - 1).leading_zeros();
        for page in dictionary.indices.chunks(PAGE_ROWS) {
            self.body.clear();
            push_indices(page, width, &mut self.body);
            self.file.data_page(page.len(), &self.body);
        }
    }

    /// Byte strings that have nothing in common.
    fn strings(&mut self, name: &'static str, values: &Strings) {
        self.file
            .begin_column(name, Physical::Bytes, Encoding::DeltaLengthStrings);
        let mut start = self.rows.start;
        let mut bytes = 0;
        for row in self.rows.clone() {
            bytes += values.range(row).len();
            let end = row + 1;
            if end == self.rows.end || end - start >= PAGE_ROWS || bytes >= PAGE_BYTES {
                self.body.clear();
                push_strings((start..end).map(|row| values.get(row)), &mut self.body);
                self.file.data_page(end - start, &self.body);
                (start, bytes) = (end, 0);
            }
        }
    }

    /// Byte strings that begin as their neighbours do.
    fn prefixed(&mut self, name: &'static str, values: &Strings) {
        self.file
            .begin_column(name, Physical::Bytes, Encoding::DeltaStrings);
        let mut page = PrefixPage::default();
        for row in self.rows.clone() {
            let before = match page.rows() {
                0 => &[],
                _ => values.get(row - 1),
            };
            page.push(before, values.get(row));
            self.end_page(&mut page, row + 1);
        }
    }

    /// As [`Columns::prefixed`]; rows of one parent need not be compared.
    fn parents(&mut self, distinct: &Strings, parent_of: &[u32]) {
        self.file
            .begin_column("parent", Physical::Bytes, Encoding::DeltaStrings);
        let mut page = PrefixPage::default();
        for row in self.rows.clone() {
            let number = parent_of[row] as usize;
            let parent = distinct.get(number);
            match page.rows() {
                0 => page.push(&[], parent),
                _ if parent_of[row - 1] as usize == number => page.push_known(parent.len(), parent),
                _ => page.push(distinct.get(parent_of[row - 1] as usize), parent),
            }
            self.end_page(&mut page, row + 1);
        }
    }

    fn end_page(&mut self, page: &mut PrefixPage, next_row: usize) {
        let is_full = page.rows() >= PAGE_ROWS || page.rest_bytes() >= PAGE_BYTES;
        if next_row == self.rows.end || is_full {
            let rows = page.rows();
            self.body.clear();
            page.finish(&mut self.body);
            self.file.data_page(rows, &self.body);
        }
    }
}

/// Byte strings, one after the other in one buffer.
#[derive(Default)]
struct Strings {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.ends.push(self.data.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
    }

    fn range(&self, at: usize) -> Range<usize> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[at]
    }

    fn get(&self, at: usize) -> &[u8] {
        &self.data[self.range(at)]
    }

    fn last(&self) -> Option<&[u8]> {
        Some(self.get(self.len().checked_sub(1)?))
    }
}
