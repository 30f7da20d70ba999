//! One block that was read: the rows that it has, and those of the parent that go.

use super::{BEHIND_EXTENTS, ImageWriter, Stop};
use crate::backup::images::changed_granules::{Part, parts_of};
use crate::backup::images::prepare::{Before, PARENT_EXTENTS_MAX};
use crate::backup::images::stored::is_there;
use bale_format::extent::{block_hash, extent_name};
use bale_format::{ChunkId, ChunkKind, Entry, EntryFlags, ImageExtent, Key};
use bale_repository::error::Result;
use bale_repository::pack::ChunkBytes;
use bale_source::raw::{RawBlock, RawImage};
use bytes::Bytes;
use std::ops::Range;

/// What the parent has of a block.
struct OldRows {
    /// The first that there are.
    rows: Vec<Entry>,
    /// All of them.
    are_all: bool,
}

impl ImageWriter<'_> {
    pub(super) fn take_block(
        &mut self,
        image: &RawImage,
        (range, mut block, id): (Range<u64>, RawBlock, Option<ChunkId>),
        before: Before,
    ) -> std::result::Result<u64, Stop> {
        let old = self.rows_of_block(image.name(), &range)?;
        let bytes = block.len_bytes() as u64;
        self.tally.read(bytes);
        match (id, before) {
            (None, _) => {
                self.remove_all(&old.rows)?;
                if range.start + bytes == range.end {
                    self.at_image().knows_zeros(&range)?;
                }
            }
            (Some(_), Before::Same(extents)) if self.stays(&old, &extents) => {
                self.at_image().knows_zeros(&range)?;
                let mut rows = old.rows.iter();
                rows.try_for_each(|row| self.at_image().knows(row))?;
            }
            (Some(id), Before::Changed(extents, changed)) if self.stays(&old, &extents) => {
                match parts_of(range.start, &extents, &changed, block.bytes()) {
                    None => self.put_whole(image, &range, (&mut block, id), &old)?,
                    Some(parts) => {
                        self.put_parts(image, &range, (block.bytes(), id), &parts, &old)?;
                    }
                }
            }
            (Some(id), _) => self.put_whole(image, &range, (&mut block, id), &old)?,
        }
        self.last_key = Some(Key {
            parent: image.name().clone(),
            name: last_name(&range),
        });
        self.report_bad(image, range.start, &block)?;
        if range.start + bytes < range.end {
            let text = format!(
                "it was cut short while it was read: it had {} bytes, and ends at {} now",
                image.len_bytes(),
                range.start + bytes
            );
            self.end(image, EntryFlags::CHANGED, text)?;
        }
        Ok(bytes)
    }

    /// The parent's rows of a block. Of more than are looked at all but the first go.
    fn rows_of_block(&mut self, image: &Bytes, range: &Range<u64>) -> Result<OldRows> {
        let first = self.advance(image, &extent_name(range.start), false)?;
        let mut old = OldRows {
            rows: first.into_iter().collect(),
            are_all: true,
        };
        let rows = &mut self.rows;
        self.cursor.advance_to(image, &last_name(range), |row| {
            let mut gone = Vec::new();
            if old.are_all && old.rows.len() == PARENT_EXTENTS_MAX {
                old.are_all = false;
                gone = old.rows.split_off(1);
            }
            match old.are_all {
                true => old.rows.push(row),
                false => gone.push(row),
            }
            gone.iter().try_for_each(|row| rows.remove(row))
        })?;
        Ok(old)
    }

    /// Are these all that the parent has of a block, and is all that they point at there?
    fn stays(&self, old: &OldRows, extents: &[ImageExtent]) -> bool {
        let rows = old.rows.iter().map(ImageExtent::of);
        let are_same = old.are_all && rows.eq(extents.iter().copied().map(Some));
        let is_there = |extent: &ImageExtent| is_there(self.store, &extent.chunk);
        are_same && extents.iter().all(is_there)
    }

    fn put_whole(
        &mut self,
        image: &RawImage,
        range: &Range<u64>,
        (block, chunk): (&mut RawBlock, ChunkId),
        old: &OldRows,
    ) -> Result<()> {
        let extent = ImageExtent {
            start: range.start,
            bytes: block.len_bytes() as u64,
            chunk,
            offset: 0,
            is_incomplete: !block.bad.is_empty(),
            block_hash: None,
        };
        self.store_block(chunk, || {
            let taken = block.take_bytes();
            ChunkBytes::lent(taken.buffer, taken.start, taken.owner)
        })?;
        let row = extent.row(image.name());
        // The one of the same key is replaced, and the others go.
        let (same, others) = match old.rows.split_first() {
            Some((first, others)) if first.name == row.name => (Some(first), others),
            _ => (None, &old.rows[..]),
        };
        if same != Some(&row) {
            self.rows.put(&row)?;
        }
        if same != Some(&row) || !others.is_empty() || !old.are_all {
            self.at_image().changed.push(range);
        }
        others.iter().try_for_each(|row| self.rows.remove(row))?;
        self.at_image().knows(&row)
    }

    fn put_parts(
        &mut self,
        image: &RawImage,
        range: &Range<u64>,
        (bytes, id): (&[u8], ChunkId),
        parts: &[Part],
        old: &OldRows,
    ) -> Result<()> {
        self.at_image().knows_zeros(range)?;
        self.at_image().changed.push(range);
        let new_bytes = parts.iter().map(|part| match part {
            Part::New(run) => run.len(),
            Part::Kept(_) => 0,
        });
        self.rows.begin_parts(new_bytes.sum())?;
        let mut old = old.rows.iter().peekable();
        let mut hash = Some(block_hash(&id));
        for part in parts {
            let (extent, new) = match part {
                Part::Kept(extent) => (*extent, None),
                Part::New(run) => (new_extent(range.start, run), Some(&bytes[run.clone()])),
            };
            let row = ImageExtent {
                block_hash: hash.take(),
                ..extent
            };
            let row = row.row(image.name());
            while let Some(gone) = old.next_if(|old| old.name < row.name) {
                self.rows.remove(gone)?;
            }
            let same = old.next_if(|old| old.name == row.name);
            match new {
                None => {
                    let is_new = same != Some(&row);
                    self.rows.put_part(row, is_new)?;
                }
                Some(bytes) => self.rows.put_new_part(row, bytes)?,
            }
        }
        old.try_for_each(|gone| self.rows.remove(gone))
    }

    fn remove_all(&mut self, rows: &[Entry]) -> Result<()> {
        for row in rows {
            self.at_image().loses(row)?;
            self.rows.remove(row)?;
        }
        Ok(())
    }

    pub(super) fn store_block(
        &mut self,
        id: ChunkId,
        bytes: impl FnOnce() -> ChunkBytes,
    ) -> Result<()> {
        if !is_there(self.store, &id) {
            self.store.store_as(ChunkKind::Data, id, bytes())?;
        }
        Ok(())
    }
}

/// In a chunk that is not known yet.
fn new_extent(block: u64, run: &Range<usize>) -> ImageExtent {
    ImageExtent {
        start: block + run.start as u64,
        bytes: run.len() as u64,
        chunk: ChunkId([0; 32]),
        offset: 0,
        is_incomplete: false,
        block_hash: None,
    }
}

/// Behind the names of all extents of a part of the image, and in front of what follows.
pub(super) fn last_name(range: &Range<u64>) -> Bytes {
    [&extent_name(range.end - 1)[..], BEHIND_EXTENTS]
        .concat()
        .into()
}
