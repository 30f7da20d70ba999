//! Bytes and extended attributes of files: found by a number, read ahead in the order of rows.

use super::{ADVICE, Result, SnapshotTree, node};
use crate::above::DOT_DOT;
use crate::contents::{OpenImage, SeekFor};
use crate::forward_rows::is_left_out;
use crate::limits::{CHUNKS_AHEAD_MAX, PUSHED_BYTES_MAX, ROWS_AHEAD_MAX};
use crate::numbers::MountNode;
use crate::read_listings::SmallFiles;
use crate::recent_places::RecentPlace;
use crate::tree_error::TreeError;
use bale_format::{ChunkId, Content, Xattr};
use bale_repository::catalog::RowNumber;
use bale_restore::image_reader::{CachedChunks, ImageReader};
use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

impl SnapshotTree {
    /// Bytes of a file; fewer only at its end.
    pub fn read(&self, number: u64, range: Range<u64>) -> Result<Bytes> {
        let place = self.place(number)?;
        if let Content::Bundled { chunk, .. } = place.content {
            self.read_ahead_of(number, chunk);
        }
        let open = |chunks: &Arc<CachedChunks>, images| self.open_image(number, chunks, images);
        let read = self
            .contents
            .read((number, &place), range, &open as OpenImage);
        read.map_err(|text| self.unread(number, &text))
    }

    /// A directory was listed to its end: the files in it that whoever listed it reads next, as far
    /// as can be told.
    pub fn read_once_listed(&self, directory: u64, cookie: u64) -> Option<Range<u64>> {
        let snapshot = match node(directory).ok()? {
            MountNode::Row(snapshot, _) | MountNode::SnapshotRoot(snapshot) => snapshot,
            _ => return None,
        };
        let last = RowNumber(cookie.checked_sub(DOT_DOT + 1)?);
        let last = MountNode::Row(snapshot, last).number()?;
        let small_files = |numbers: Range<u64>| {
            let mut small = numbers.filter(|number| {
                let place = self.recent.get(*number);
                place.is_some_and(|place| is_pushed(&place))
            });
            let first = small.next();
            SmallFiles {
                are_some: first.is_some(),
                one_is_left_out: first.into_iter().chain(small).any(is_left_out),
            }
        };
        let numbers = self.listings.ended(directory, last, small_files)?;
        self.forward.pushed(numbers.clone());
        Some(numbers)
    }

    /// The files that whoever reads this one, small and in the order of rows, reads next.
    pub fn read_next(&self, number: u64) -> Option<Range<u64>> {
        let place = self.recent.get(number)?;
        is_pushed(&place).then_some(())?;
        self.listings.read(number);
        (self.forward).next(number, |number| self.recent.get(number).is_some())
    }

    /// Calls `push` with the small files among these that were listed or looked up a moment ago,
    /// and all of their bytes, until it wants no more. What cannot be read is left out: who wants
    /// it will be told why.
    pub fn each_small(&self, numbers: Range<u64>, push: &mut dyn FnMut(u64, &[u8]) -> bool) {
        for number in numbers {
            let Some(place) = self.recent.get(number) else {
                continue;
            };
            let Content::Bundled { chunk, .. } = place.content else {
                continue;
            };
            if !is_pushed(&place) {
                continue;
            }
            self.read_ahead_of(number, chunk);
            let no_image = |_: &Arc<CachedChunks>, _| Err(String::new());
            let bytes = (self.contents).read((number, &place), 0..place.size, &no_image);
            if bytes.is_ok_and(|bytes| !push(number, &bytes)) {
                return;
            }
        }
    }

    /// From where on there is data, or a hole.
    pub fn seek(&self, number: u64, offset: u64, wanted: SeekFor) -> Result<u64> {
        let place = self.place(number)?;
        if offset >= place.size {
            return Err(TreeError::NoData);
        }
        let open = |chunks: &Arc<CachedChunks>, images| self.open_image(number, chunks, images);
        let found = (self.contents).seek((number, &place), offset, wanted, &open as OpenImage);
        let found = found.map_err(|text| self.unread(number, &text))?;
        found.ok_or(TreeError::NoData)
    }

    fn open_image(
        &self,
        number: u64,
        chunks: &Arc<CachedChunks>,
        images: usize,
    ) -> std::result::Result<ImageReader, String> {
        let found = match node(number) {
            Ok(MountNode::Row(snapshot, row)) => self.row(snapshot, row),
            _ => Err(TreeError::Gone),
        };
        let found = found.map_err(|error| error.to_string())?;
        let catalog = found.catalog.images.clone();
        let image = (&found.row.path()[..], found.row.size);
        Ok(ImageReader::new(catalog, (chunks, images), image))
    }

    /// Whoever reads small files in the order of rows needs the chunks of the next rows soon.
    fn read_ahead_of(&self, number: u64, chunk: ChunkId) {
        {
            let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            if ahead.get(&chunk).is_some() {
                return;
            }
            ahead.put(chunk, ());
        }
        let Ok(MountNode::Row(snapshot, row)) = node(number) else {
            return;
        };
        let Some(catalog) = self.catalogs.known(snapshot) else {
            return;
        };
        // Who comes there will be told why it cannot be read.
        let contents = catalog.rows.contents_behind(row, ROWS_AHEAD_MAX);
        let chunks = contents.unwrap_or_default().into_iter();
        let bundles = chunks.filter_map(|content| match content {
            Content::Bundled { chunk: next, .. } if next != chunk => Some(next),
            _ => None,
        });
        let bundles: Vec<ChunkId> = bundles.take(CHUNKS_AHEAD_MAX).collect();
        self.contents.read_ahead(&bundles);
    }

    /// Extended attributes, in the order of their names.
    pub fn xattrs(&self, number: u64) -> Result<Vec<Xattr>> {
        let MountNode::Row(snapshot, row) = node(number)? else {
            return Ok(Vec::new());
        };
        // Most files have none, and are asked all the same.
        if self
            .recent
            .get(number)
            .is_some_and(|place| !place.has_xattrs)
        {
            return Ok(Vec::new());
        }
        let found = self.row(snapshot, row)?;
        let set = bale_restore::xattrs::of_column(&found.row.xattrs, &*self.contents.source);
        set.map_err(|text| self.unread(number, &text))
    }

    fn place(&self, number: u64) -> Result<RecentPlace> {
        let place = match self.recent.get(number) {
            Some(place) => place,
            None => {
                let MountNode::Row(snapshot, row) = node(number)? else {
                    return Err(TreeError::IsDirectory);
                };
                let place = RecentPlace::of(&self.row(snapshot, row)?.row);
                self.recent.put(number, place);
                place
            }
        };
        match place.is_file {
            true => Ok(place),
            false => Err(TreeError::IsDirectory),
        }
    }

    fn unread(&self, number: u64, text: &str) -> TreeError {
        let path = match node(number) {
            Ok(MountNode::Row(snapshot, row)) => {
                let catalog = self.catalogs.known(snapshot);
                let path = catalog.and_then(|catalog| catalog.path(row).ok().flatten());
                self.shown_path(snapshot, &path.unwrap_or_default())
            }
            _ => Vec::new(),
        };
        (self.problems).add(path, "read", format!("{text}; {ADVICE}"));
        TreeError::Unreadable
    }
}

/// Is it one of the small files that may be pushed?
fn is_pushed(place: &RecentPlace) -> bool {
    let is_bundled = matches!(place.content, Content::Bundled { .. });
    is_bundled && (1..=PUSHED_BYTES_MAX).contains(&place.size)
}
