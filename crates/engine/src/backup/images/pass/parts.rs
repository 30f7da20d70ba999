//! Blocks that did not change, where not all that the parent has of them may be there.
//!
//! What the repository may lose of the parent, or has lost, is stored once more: read from the
//! device, or from the parent if nothing but what changed may be read of that.

use super::ImageWriter;
use super::block::last_name;
use crate::backup::images::parent_images::ParentImage;
use crate::backup::images::stored::is_there;
use bale_format::extent::extent_name;
use bale_format::{ChunkKind, Entry, ImageExtent, Key};
use bale_repository::error::{Error, Result};
use bale_source::raw::{RawImage, UnreadPart};
use std::io;
use std::ops::Range;

/// Rows of the parent that stay are looked at by so much of an image: 1024 rows, if its blocks are
/// in one extent each.
const UNCHANGED_AT_ONCE_BYTES: u64 = 1 << 30;
/// Extents in so much of an image that are stored again, at most: as many as writers make.
const DOUBTFUL_MAX: usize = 32 << 10;

impl ImageWriter<'_> {
    /// Rows of the parent that stay, each of them looked at. What cannot be had again is named.
    pub(super) fn pass_if_there(
        &mut self,
        image: &RawImage,
        parent: Option<&ParentImage>,
        range: Range<u64>,
    ) -> Result<u64> {
        self.at_image().knows_zeros(&range)?;
        for start in range.clone().step_by(UNCHANGED_AT_ONCE_BYTES as usize) {
            let part = start..(start + UNCHANGED_AT_ONCE_BYTES).min(range.end);
            for extent in self.look_at(image, &part)? {
                self.store_again(image, parent, &extent)?;
            }
            self.last_key = Some(Key {
                parent: image.name().clone(),
                name: last_name(&part),
            });
        }
        Ok(range.end - range.start)
    }

    /// Extents of a part of the image that point at what is not there, or may go.
    fn look_at(&mut self, image: &RawImage, part: &Range<u64>) -> Result<Vec<ImageExtent>> {
        let (name, store) = (image.name(), self.store.clone());
        let first = self.advance(name, &extent_name(part.start), false)?;
        let mut doubtful = Vec::new();
        let mut known = Ok(());
        let mut passed = self.passed.last_mut();
        let mut look = |row: &Entry| {
            let extent = ImageExtent::of(row);
            match extent.filter(|extent| !is_there(&store, &extent.chunk)) {
                Some(extent) => doubtful.push(extent),
                None => {
                    if let (Ok(()), Some(image)) = (&known, &mut passed) {
                        known = image.knows(row);
                    }
                }
            }
            if doubtful.len() > DOUBTFUL_MAX {
                let text = "its catalog has more parts of a block than there are: bale check";
                known = Err(Error::Other(text.to_owned()));
                doubtful.clear();
            }
        };
        first.iter().for_each(&mut look);
        self.cursor.advance_to(name, &last_name(part), |row| {
            look(&row);
            Ok::<(), Error>(())
        })?;
        known?;
        Ok(doubtful)
    }

    fn store_again(
        &mut self,
        image: &RawImage,
        parent: Option<&ParentImage>,
        extent: &ImageExtent,
    ) -> Result<()> {
        let (bytes, lost) = match parent {
            Some(parent) => parent.extent(extent),
            None => from_device(image, extent),
        };
        if parent.is_none() {
            self.tally.read(bytes.len() as u64);
        }
        let chunk = self.store.keys().chunk_id(ChunkKind::Data, &bytes);
        let len = bytes.len() as u64;
        self.store_block(chunk, || bytes.into())?;
        let row = ImageExtent {
            chunk,
            offset: 0,
            bytes: len,
            is_incomplete: !lost.is_empty(),
            ..*extent
        };
        let (is_other, row) = (row != *extent, row.row(image.name()));
        if is_other {
            self.rows.put(&row)?;
            let range = extent.start..extent.end();
            self.at_image().changed.push(&range);
        }
        self.at_image().knows(&row)?;
        for UnreadPart { range, text } in &lost {
            self.problem(
                image,
                format!("bytes {} to {}: {text}", range.start, range.end),
            );
        }
        self.amend_if(!lost.is_empty(), image)
    }
}

/// All bytes of an extent, as many as there are, and what of them cannot be read.
fn from_device(image: &RawImage, extent: &ImageExtent) -> (Vec<u8>, Vec<UnreadPart>) {
    let mut bytes = vec![0; extent.bytes as usize];
    let unread = |range: Range<u64>, error: Option<&io::Error>| UnreadPart {
        range,
        text: error.map_or_else(|| "it ends there".to_owned(), io::Error::to_string),
    };
    let mut lost = Vec::new();
    let mut end = extent.start;
    match image.read(extent.start..extent.end()) {
        Err(error) => lost.push(unread(extent.start..extent.end(), Some(&error))),
        Ok(block) => {
            bytes[..block.bytes().len()].copy_from_slice(block.bytes());
            for bad in &block.bad {
                let range = extent.start + bad.start as u64..extent.start + bad.end as u64;
                lost.push(unread(range, block.error.as_ref()));
            }
            end += block.bytes().len() as u64;
        }
    }
    if lost.is_empty() && end < extent.end() {
        lost.push(unread(end..extent.end(), None));
    }
    (bytes, lost)
}
