//! The bytes of an image, front to back: what is stored, what is zeros, and what nobody knows.
//!
//! Rows are checked against the size of the image and against each other; after one that cannot be
//! read or believed, what no other says is unknown, and nobody may take it for zeros.

use crate::seams::text_of;
use crate::{CatalogRows, CatalogSource, ChunkTrouble};
use bale_format::ImageExtent;
use std::ops::Range;

/// A run of an image's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    Data(ImageExtent),
    Zeros(Range<u64>),
    /// What the catalog says of it cannot be had, and why. Empty: nothing is missing for it.
    Unknown(Range<u64>, String),
}

impl Stretch {
    /// The byte behind.
    pub fn end(&self) -> u64 {
        match self {
            Stretch::Data(extent) => extent.end(),
            Stretch::Zeros(range) | Stretch::Unknown(range, _) => range.end,
        }
    }
}

/// Runs in order, without gaps, up to the size of the image.
pub struct Stretches<'a> {
    rows: CatalogRows<'a>,
    size: u64,
    /// The end of what was handed out.
    at: u64,
    /// Follows the gap that was handed out.
    next: Option<ImageExtent>,
    lost: Option<String>,
}

impl<'a> Stretches<'a> {
    /// Of the image at this path of a catalog, of so many bytes.
    pub fn of(
        catalog: &'a dyn CatalogSource,
        path: &[u8],
        size: u64,
    ) -> Result<Stretches<'a>, ChunkTrouble> {
        Stretches::from(catalog, path, size, 0)
    }

    /// The same from a byte on, which is the first of a block, so that no extent reaches over it.
    pub fn from(
        catalog: &'a dyn CatalogSource,
        path: &[u8],
        size: u64,
        start: u64,
    ) -> Result<Stretches<'a>, ChunkTrouble> {
        Ok(Stretches {
            rows: catalog.extents_from(path, start)?,
            size,
            at: start,
            next: None,
            lost: None,
        })
    }

    fn gap(&mut self, end: u64) -> Stretch {
        let range = self.at..end;
        self.at = end;
        match self.lost.take() {
            Some(text) => Stretch::Unknown(range, text),
            None => Stretch::Zeros(range),
        }
    }

    fn data(&mut self, extent: ImageExtent) -> Stretch {
        self.at = extent.end();
        Stretch::Data(extent)
    }
}

impl Iterator for Stretches<'_> {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        if let Some(extent) = self.next.take() {
            return Some(self.data(extent));
        }
        loop {
            let row = match self.rows.next() {
                Some(Ok(row)) => row,
                Some(Err(trouble)) => {
                    let text = format!("read the catalog: {}", text_of(&trouble));
                    self.lost.get_or_insert(text);
                    continue;
                }
                None if self.at < self.size || self.lost.is_some() => {
                    return Some(self.gap(self.size));
                }
                None => return None,
            };
            let extent = ImageExtent::of(&row);
            let extent =
                extent.filter(|extent| extent.start >= self.at && extent.end() <= self.size);
            let Some(extent) = extent else {
                let text = "damaged row: no extent of this image belongs there";
                self.lost.get_or_insert(text.to_owned());
                continue;
            };
            if extent.start == self.at && self.lost.is_none() {
                return Some(self.data(extent));
            }
            self.next = Some(extent);
            return Some(self.gap(extent.start));
        }
    }
}

/// Bytes that are stored of an image, as far as its rows can be read.
pub fn stored_bytes(catalog: &dyn CatalogSource, path: &[u8], size: u64) -> u64 {
    let Ok(stretches) = Stretches::of(catalog, path, size) else {
        return 0;
    };
    stretches
        .map(|stretch| match stretch {
            Stretch::Data(extent) => extent.bytes,
            Stretch::Zeros(_) | Stretch::Unknown(..) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::{ChunkId, Entry};
    use bytes::Bytes;

    struct Rows(Vec<Result<Entry, &'static str>>);

    impl CatalogSource for Rows {
        fn rows(&self, _path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
            Ok(Box::new(std::iter::empty()))
        }

        fn extents(&self, _path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
            let rows = self.0.iter().cloned();
            Ok(Box::new(rows.map(|row| row.map_err(ChunkTrouble::from))))
        }

        fn lookup(&self, _path: &[u8]) -> Result<Option<Entry>, ChunkTrouble> {
            Ok(None)
        }
    }

    fn extent(start: u64, bytes: u64) -> ImageExtent {
        ImageExtent {
            start,
            bytes,
            chunk: ChunkId([7; 32]),
            offset: 0,
            is_incomplete: false,
            block_hash: None,
        }
    }

    fn row(start: u64, bytes: u64) -> Result<Entry, &'static str> {
        Ok(extent(start, bytes).row(&Bytes::from_static(b"disk.raw")))
    }

    fn stretches(rows: Vec<Result<Entry, &'static str>>, size: u64) -> Vec<Stretch> {
        Stretches::of(&Rows(rows), b"disk.raw", size)
            .unwrap()
            .collect()
    }

    #[test]
    fn every_byte_is_handed_out_once_and_in_order() {
        assert_eq!(stretches(vec![], 0), []);
        assert_eq!(stretches(vec![], 9), [Stretch::Zeros(0..9)]);
        let found = stretches(vec![row(0, 4), row(4, 4), row(10, 2)], 20);
        let expected = [
            Stretch::Data(extent(0, 4)),
            Stretch::Data(extent(4, 4)),
            Stretch::Zeros(8..10),
            Stretch::Data(extent(10, 2)),
            Stretch::Zeros(12..20),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_a_row_that_is_lost_may_have_said_is_not_taken_for_zeros() {
        for lost in [Err("cannot be read"), row(3, 2), row(19, 2)] {
            let found = stretches(vec![row(0, 4), lost, row(10, 2)], 20);
            let unknown: Vec<_> = (found.iter())
                .filter_map(|stretch| match stretch {
                    Stretch::Unknown(range, _) => Some(range.clone()),
                    _ => None,
                })
                .collect();
            assert_eq!(unknown, std::slice::from_ref(&(4..10)));
            assert_eq!(found.last(), Some(&Stretch::Zeros(12..20)));
        }
        // Where nothing is missing for it, it is named all the same.
        let found = stretches(vec![row(0, 4), Err("cannot be read")], 4);
        assert!(matches!(&found[1], Stretch::Unknown(range, _) if range.is_empty()));
    }
}
