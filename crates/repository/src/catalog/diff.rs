//! Compares two catalogs without reading what they share.
//!
//! A row can differ only where a segment is in one of them and not, clipped alike and in the same
//! layer, in the other. So the keys in such segments are gone through, and each is looked up in
//! both catalogs.

use super::cursor::LayerMerge;
use super::{CatalogReader, KeyRange, Result};
use bale_format::{Entry, Key, SegmentRef};
use std::cmp::Ordering;
use std::collections::HashSet;

/// A difference between an old and a new catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lives for one step of an iterator"
)]
pub enum Difference {
    /// Only in the new one.
    Added(Entry),
    /// Only in the old one.
    Removed(Entry),
    /// In both, but not equal.
    Changed {
        /// Old row.
        old: Entry,
        /// New row.
        new: Entry,
    },
}

impl Difference {
    /// The row that tells where it is.
    pub fn entry(&self) -> &Entry {
        match self {
            Difference::Added(entry) | Difference::Removed(entry) => entry,
            Difference::Changed { new, .. } => new,
        }
    }
}

/// Differences in order of keys. Reads only segments that are not shared, and those that hold the
/// same keys.
pub fn diff(old: &CatalogReader, new: &CatalogReader) -> Differences {
    let cursors = |reader: &CatalogReader, other: &CatalogReader| {
        let layers = (0..reader.layers().len()).map(|layer| {
            let segments = unshared(reader, other, layer);
            reader.cursor_of(segments.into(), KeyRange::all())
        });
        layers.collect::<Vec<_>>()
    };
    let mut keys = cursors(old, new);
    keys.extend(cursors(new, old));
    Differences {
        keys: LayerMerge::new(keys),
        old: old.all_rows(KeyRange::all()).into_merge(),
        new: new.all_rows(KeyRange::all()).into_merge(),
        failed: false,
    }
}

/// Iterates over differences. Ends after an error.
pub struct Differences {
    /// Whatever may differ.
    keys: LayerMerge,
    old: LayerMerge,
    new: LayerMerge,
    failed: bool,
}

impl Differences {
    fn step(&mut self) -> Result<Option<Difference>> {
        while self.keys.head()?.is_some() {
            let key = self.keys.key();
            self.keys.advance();
            let difference = match (row(&mut self.old, &key)?, row(&mut self.new, &key)?) {
                (Some(old), Some(new)) if old != new => Difference::Changed { old, new },
                (Some(old), None) => Difference::Removed(old),
                (None, Some(new)) => Difference::Added(new),
                _ => continue,
            };
            return Ok(Some(difference));
        }
        Ok(None)
    }
}

impl Iterator for Differences {
    type Item = Result<Difference>;

    fn next(&mut self) -> Option<Result<Difference>> {
        if self.failed {
            return None;
        }
        let step = self.step();
        self.failed = step.is_err();
        step.transpose()
    }
}

/// The row of a key that is not before any asked for earlier.
fn row(merge: &mut LayerMerge, key: &Key) -> Result<Option<Entry>> {
    merge.seek(key);
    let is_here = merge.head()?.is_some() && merge.compare(key) == Ordering::Equal;
    Ok((is_here && !merge.is_removed()).then(|| merge.entry()))
}

/// What identifies a stored stretch: the segment and how it is clipped.
type ClippedSegment<'a> = (&'a [u8; 32], &'a Option<Key>, &'a Option<Key>);

fn identity(segment: &SegmentRef) -> ClippedSegment<'_> {
    (&segment.id.0, &segment.from, &segment.to)
}

/// Segments of a layer that the same layer of the other catalog does not have.
fn unshared(reader: &CatalogReader, other: &CatalogReader, layer: usize) -> Vec<SegmentRef> {
    let theirs = other
        .layers()
        .get(layer)
        .map_or(&[][..], |layer| &layer.segments);
    let theirs: HashSet<_> = theirs.iter().map(identity).collect();
    let ours = reader.layers()[layer].segments.iter();
    let ours = ours.filter(|segment| !theirs.contains(&identity(segment)));
    ours.cloned().collect()
}
