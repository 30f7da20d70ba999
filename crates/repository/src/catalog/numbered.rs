//! Rows by number: each stored row of a snapshot's catalog has one, which says where it is and is
//! the same as long as there is the snapshot.
//!
//! So whoever has to name a row to somebody else, who comes back with that name at any time,
//! remembers nothing. Numbers are in no order that means something: rows of one directory are in
//! several layers.

use super::load::{LoadedSegment, load};
use super::reader::Rows;
use super::{CatalogReader, KeyRange, Result};
use bale_format::{Content, Entry, Key};
use bytes::Bytes;

/// Counts the rows of all segments of all layers, whether they count or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowNumber(pub u64);

/// Where a row is stored: its layer, its segment in it, and its row in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPlace {
    pub(super) layer: usize,
    pub(super) segment: usize,
    pub(super) row: usize,
}

/// A catalog whose rows have numbers.
pub struct NumberedCatalog {
    reader: CatalogReader,
    /// Of each segment of each layer, the number of its first row.
    firsts: Vec<Vec<u64>>,
    rows: u64,
}

impl NumberedCatalog {
    /// Reads nothing.
    pub fn new(reader: CatalogReader) -> NumberedCatalog {
        let mut rows = 0;
        let firsts = reader.layers().iter().map(|layer| {
            let first = layer.segments.iter().map(|segment| {
                let first = rows;
                rows += u64::from(segment.rows);
                first
            });
            first.collect()
        });
        NumberedCatalog {
            firsts: firsts.collect(),
            rows,
            reader,
        }
    }

    fn number(&self, place: RowPlace) -> RowNumber {
        RowNumber(self.firsts[place.layer][place.segment] + place.row as u64)
    }

    /// `None`: there are not so many rows.
    fn place(&self, number: RowNumber) -> Option<RowPlace> {
        if number.0 >= self.rows {
            return None;
        }
        // A layer without segments begins nowhere.
        let begins = |firsts: &Vec<u64>| firsts.first().is_some_and(|first| *first <= number.0);
        let layer = self.firsts.iter().rposition(begins)?;
        let firsts = &self.firsts[layer];
        let segment = firsts.partition_point(|first| *first <= number.0) - 1;
        Some(RowPlace {
            layer,
            segment,
            row: (number.0 - firsts[segment]) as usize,
        })
    }

    /// The row of a number that was given; `None`: it was not.
    pub fn row(&self, number: RowNumber) -> Result<Option<Entry>> {
        let Some(place) = self.place(number) else {
            return Ok(None);
        };
        let loaded = self.load(place)?;
        let is_there = loaded.rows.contains(&place.row) && !loaded.segment.is_removed(place.row);
        Ok(is_there.then(|| loaded.segment.entry(place.row)))
    }

    /// Where the bytes of the files are whose rows are stored behind this one, in the same segment
    /// and at most so many: what is read next, by who reads in the order of rows.
    pub fn contents_behind(&self, number: RowNumber, rows_max: usize) -> Result<Vec<Content>> {
        let Some(place) = self.place(number) else {
            return Ok(Vec::new());
        };
        let loaded = self.load(place)?;
        let mut contents: Vec<Content> = Vec::new();
        for row in loaded.rows.filter(|row| *row > place.row).take(rows_max) {
            let content = loaded.segment.view(row).content;
            let is_known = match (contents.last(), content) {
                (_, Content::None | Content::Image) => true,
                (Some(Content::Bundled { chunk, .. }), Content::Bundled { chunk: next, .. }) => {
                    *chunk == next
                }
                _ => false,
            };
            if !is_known {
                contents.push(content);
            }
        }
        Ok(contents)
    }

    fn load(&self, place: RowPlace) -> Result<LoadedSegment> {
        let reference = &self.reader.layers()[place.layer].segments[place.segment];
        load(self.reader.source(), reference, &KeyRange::all())
    }

    /// The row of one path, without leading slash.
    pub fn lookup(&self, path: &[u8]) -> Result<Option<(RowNumber, Entry)>> {
        self.rows(KeyRange::one(&Key::of_path(path)))
            .next()
            .transpose()
    }

    /// The children of a directory behind a name; of all of them without one.
    pub fn list_behind(&self, directory: &[u8], name: Option<&[u8]>) -> NumberedRows<'_> {
        let mut range = KeyRange::children(directory);
        if let Some(name) = name {
            range.start = Some(Key {
                parent: Bytes::copy_from_slice(directory),
                // The least name behind it.
                name: [name, b"\0"].concat().into(),
            });
        }
        self.rows(range)
    }

    fn rows(&self, range: KeyRange) -> NumberedRows<'_> {
        NumberedRows {
            rows: self.reader.rows(range),
            catalog: self,
        }
    }
}

/// Rows in order, with their numbers. Ends after an error.
pub struct NumberedRows<'a> {
    rows: Rows,
    catalog: &'a NumberedCatalog,
}

impl Iterator for NumberedRows<'_> {
    type Item = Result<(RowNumber, Entry)>;

    fn next(&mut self) -> Option<Result<(RowNumber, Entry)>> {
        let row = self.rows.next_placed()?;
        Some(row.map(|(place, entry)| (self.catalog.number(place), entry)))
    }
}
