//! Reads a catalog: all of it, a range, a directory, one path.

use super::cursor::{LayerCursor, LayerMerge};
use super::numbered::RowPlace;
use super::{CatalogError, KeyRange, Result, SegmentSource};
use bale_format::extent::extent_name;
use bale_format::{Entry, Key, Kind, Layer, SegmentRef};
use bytes::Bytes;
use std::sync::Arc;

/// Layers that a snapshot may have; writers stay below.
const LAYERS_READ_MAX: usize = 16;

/// The catalog of one snapshot. Cloning shares it.
#[derive(Clone)]
pub struct CatalogReader {
    source: Arc<dyn SegmentSource>,
    layers: Arc<[Layer]>,
    segments: Vec<Arc<[SegmentRef]>>,
}

impl CatalogReader {
    /// Opens the layers of a snapshot, oldest first. Reads no segment.
    pub fn open(source: Arc<dyn SegmentSource>, layers: Vec<Layer>) -> Result<CatalogReader> {
        if layers.len() > LAYERS_READ_MAX {
            return Err(CatalogError::Layers {
                what: "too many layers",
            });
        }
        for layer in &layers {
            check_layer(layer)?;
        }
        Ok(CatalogReader {
            source,
            segments: layers
                .iter()
                .map(|layer| layer.segments.as_slice().into())
                .collect(),
            layers: layers.into(),
        })
    }

    /// A catalog without rows: the parent of a first backup.
    pub fn empty() -> CatalogReader {
        struct Nothing;
        impl SegmentSource for Nothing {
            fn segment(
                &self,
                _: &bale_format::ChunkId,
            ) -> std::result::Result<bytes::Bytes, super::BoxError> {
                Err("an empty catalog has no segments".into())
            }
        }
        CatalogReader {
            source: Arc::new(Nothing),
            layers: Arc::new([]),
            segments: Vec::new(),
        }
    }

    /// The layers, oldest first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Rows of a range, in order, without extents: those are no paths, and the segments that hold
    /// nothing else are not read.
    pub fn rows(&self, range: KeyRange) -> Rows {
        Rows {
            hides_extents: true,
            ..self.all_rows(range)
        }
    }

    /// The same with extents.
    pub fn all_rows(&self, range: KeyRange) -> Rows {
        let layers = (0..self.layers.len()).map(|layer| self.cursor(layer, range.clone()));
        Rows {
            merge: LayerMerge::new(layers.collect()),
            first: None,
            hides_extents: false,
            failed: false,
        }
    }

    /// The rows that are the bytes of an image, in the order of the device.
    pub fn extents(&self, image: &[u8]) -> Rows {
        self.all_rows(KeyRange::children(image))
    }

    /// The same without those that begin before a byte.
    pub fn extents_from(&self, image: &[u8], start: u64) -> Rows {
        let mut range = KeyRange::children(image);
        range.start = Some(Key {
            parent: Bytes::copy_from_slice(image),
            name: extent_name(start),
        });
        self.all_rows(range)
    }

    /// The children of a directory, in order of their names.
    pub fn list(&self, directory: &[u8]) -> Rows {
        self.rows(KeyRange::children(directory))
    }

    /// A directory's own row and then every row below it, in order of keys; for anything else just
    /// its row.
    pub fn subtree(&self, path: &[u8]) -> Result<Rows> {
        let ranges = [KeyRange::one(&Key::of_path(path)), KeyRange::below(path)];
        self.fetch_ahead(&ranges);
        let first = self.lookup(path)?;
        let is_leaf = first
            .as_ref()
            .is_some_and(|entry| entry.kind != Kind::Directory);
        if is_leaf && !path.is_empty() {
            return Ok(Rows {
                merge: LayerMerge::default(),
                first,
                hides_extents: true,
                failed: false,
            });
        }
        let mut rows = self.rows(KeyRange::below(path));
        rows.first = first;
        Ok(rows)
    }

    /// The row of one path, without leading slash; `/` itself is empty.
    pub fn lookup(&self, path: &[u8]) -> Result<Option<Entry>> {
        self.rows(KeyRange::one(&Key::of_path(path)))
            .next()
            .transpose()
    }

    /// Has a source that is far away fetch together what the first rows of some ranges need.
    fn fetch_ahead(&self, ranges: &[KeyRange]) {
        if self.source.ahead_max() == 0 {
            return;
        }
        let mut ids = Vec::new();
        for range in ranges {
            for layer in 0..self.layers.len() {
                let first = self.cursor(layer, range.clone()).first_wanted();
                ids.extend(first.filter(|id| !ids.contains(id)));
            }
        }
        self.source.fetch_ahead(&ids);
    }

    /// Where segments are read.
    pub(super) fn source(&self) -> &dyn SegmentSource {
        &*self.source
    }

    /// A cursor over one layer.
    pub(super) fn cursor(&self, layer: usize, range: KeyRange) -> LayerCursor {
        self.cursor_of(self.segments[layer].clone(), range)
    }

    /// A cursor over some segments of one layer.
    pub(super) fn cursor_of(&self, segments: Arc<[SegmentRef]>, range: KeyRange) -> LayerCursor {
        LayerCursor::new(self.source.clone(), segments, range)
    }
}

/// Segments of a layer must be in order and apart, or a binary search would miss rows.
fn check_layer(layer: &Layer) -> Result<()> {
    for segment in &layer.segments {
        if segment.first > segment.last || segment.rows == 0 {
            return Err(CatalogError::Layers {
                what: "a segment without rows",
            });
        }
        if segment.from.is_some() && segment.to.is_some() && segment.from >= segment.to {
            return Err(CatalogError::Layers {
                what: "a segment of which nothing counts",
            });
        }
    }
    for pair in layer.segments.windows(2) {
        let start = pair[1].start();
        let apart = pair[0].last < *start || pair[0].to.as_ref().is_some_and(|to| to <= start);
        if !apart {
            return Err(CatalogError::Layers {
                what: "segments overlap",
            });
        }
    }
    Ok(())
}

/// Rows in order, newest layer first, removed ones hidden. Ends after an error.
pub struct Rows {
    merge: LayerMerge,
    first: Option<Entry>,
    hides_extents: bool,
    failed: bool,
}

impl Rows {
    /// The places, with removed rows.
    pub(super) fn into_merge(self) -> LayerMerge {
        self.merge
    }

    /// Goes on to the first row at or after `key`, without reading the segments in between; never
    /// back.
    pub fn seek(&mut self, key: &Key) {
        self.first = self.first.take().filter(|first| first.key() >= *key);
        self.merge.seek(key);
    }

    /// The next row and where it is stored, but for the first one of a subtree.
    pub(super) fn next_placed(&mut self) -> Option<Result<(RowPlace, Entry)>> {
        if self.failed {
            return None;
        }
        let row = self.step();
        self.failed = row.is_err();
        row.transpose()
    }

    fn step(&mut self) -> Result<Option<(RowPlace, Entry)>> {
        while self.merge.head()?.is_some() {
            let entry = (!self.merge.is_removed()).then(|| self.merge.entry());
            if let Some(extent) = entry
                .as_ref()
                .filter(|entry| self.hides_extents && entry.kind == Kind::Extent)
                && let Some(behind) = KeyRange::children(&extent.parent).end
            {
                self.merge.seek(&behind);
                continue;
            }
            let place = self.merge.place();
            self.merge.advance();
            if let Some(entry) = entry {
                return Ok(Some((place, entry)));
            }
        }
        Ok(None)
    }
}

impl Iterator for Rows {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        Some(self.next_placed()?.map(|(_, entry)| entry))
    }
}

/// Rows that count in all layers, hidden and removed ones included. Reads everything: a check of
/// `Layer::rows`.
pub fn counted_rows(reader: &CatalogReader) -> Result<u64> {
    let mut merge = reader.all_rows(KeyRange::all()).into_merge();
    while merge.head()?.is_some() {
        merge.advance();
    }
    Ok(merge.passed().sum())
}
