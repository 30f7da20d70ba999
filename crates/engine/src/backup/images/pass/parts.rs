//! Blocks that did not change, of an image of which nothing else can be read.

use super::ImageWriter;
use super::block::last_name;
use crate::backup::images::parent_images::ParentImage;
use crate::backup::images::stored::is_there;
use bale_format::extent::extent_name;
use bale_format::{ChunkKind, Entry, ImageExtent, Key};
use bale_repository::error::Result;
use bale_source::raw::{RawImage, UnreadPart};
use std::ops::Range;

/// Rows of the parent that stay are looked at by so much of an image: 1024 rows.
const UNCHANGED_AT_ONCE_BYTES: u64 = 1 << 30;

impl ImageWriter<'_> {
    /// Rows of the parent that stay, where nobody can read the device again: what the repository
    /// may lose of the parent is stored once more, and what it has lost is named.
    pub(super) fn pass_if_there(
        &mut self,
        image: &RawImage,
        parent: &ParentImage,
        range: Range<u64>,
    ) -> Result<u64> {
        let name = image.name();
        for start in range.clone().step_by(UNCHANGED_AT_ONCE_BYTES as usize) {
            let end = (start + UNCHANGED_AT_ONCE_BYTES).min(range.end);
            let store = self.store.clone();
            let mut doubtful = Vec::new();
            let mut look = |row: &Entry| {
                let extent = ImageExtent::of(row);
                doubtful.extend(extent.filter(|extent| !is_there(&store, &extent.chunk)));
            };
            let first = self.advance(name, &extent_name(start), false)?;
            first.iter().for_each(&mut look);
            let last = last_name(&(start..end));
            self.cursor.advance_to(name, &last, |row| {
                look(&row);
                Ok(())
            })?;
            for extent in doubtful {
                self.store_again(image, parent, &extent)?;
            }
            self.last_key = Some(Key {
                parent: name.clone(),
                name: last,
            });
        }
        Ok(range.end - range.start)
    }

    fn store_again(
        &mut self,
        image: &RawImage,
        parent: &ParentImage,
        extent: &ImageExtent,
    ) -> Result<()> {
        let (bytes, lost) = parent.extent(extent);
        let chunk = self.store.keys().chunk_id(ChunkKind::Data, &bytes);
        self.store_block(chunk, &bytes)?;
        let row = ImageExtent {
            chunk,
            offset: 0,
            bytes: bytes.len() as u64,
            is_incomplete: !lost.is_empty(),
            ..*extent
        };
        if row != *extent {
            self.rows.put(&row.row(image.name()))?;
        }
        for UnreadPart { range, text } in &lost {
            self.problem(
                image,
                format!("bytes {} to {}: {text}", range.start, range.end),
            );
        }
        self.amend_if(!lost.is_empty(), image)
    }
}
