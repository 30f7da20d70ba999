//! Segments are written anew without the rows that go, each once, however many snapshots have it.

use super::bundles::NewBundles;
use super::excluded::Excluded;
use super::look::{Look, damaged};
use bale_format::{ChunkId, ChunkKind, Content, Key, Layer, Segment, SegmentKeys, SegmentRef};
use bale_format::{EntryFlags, Snapshot};
use bale_pipeline::monitor::Monitor;
use bale_repository::catalog::{BoxError, CatalogReader, SegmentWriter};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::{Named, Repository};
use std::collections::HashMap;
use std::sync::Arc;

/// What a segment is now.
struct NewSegment {
    parts: Vec<SegmentRef>,
    /// Rows that went.
    gone: u64,
}

pub(super) struct NewCatalogs {
    new: HashMap<ChunkId, NewSegment>,
}

impl NewCatalogs {
    pub(super) fn store(
        look: &Look,
        wanted: &[&Named],
        (mut excluded, bundles): (Excluded<'_>, &NewBundles),
        writer: &Arc<ChunkWriter>,
        monitor: &dyn Monitor,
    ) -> Result<NewCatalogs> {
        let mut catalogs = NewCatalogs {
            new: HashMap::new(),
        };
        let layers = wanted.iter().flat_map(|(_, snapshot)| &snapshot.layers);
        for reference in layers.flat_map(|layer| &layer.segments) {
            let is_done = catalogs.new.contains_key(&reference.id);
            if is_done || !look.is_to_change(&reference.id) {
                continue;
            }
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let segment = segment(reference, (&mut excluded, bundles), writer)?;
            catalogs.new.insert(reference.id, segment);
        }
        Ok(catalogs)
    }

    /// The catalog of a snapshot without what went.
    pub(super) fn layers_of(
        &self,
        repository: &Arc<Repository>,
        snapshot: &Snapshot,
        mut excluded: Excluded<'_>,
    ) -> Result<Vec<Layer>> {
        let layers = snapshot.layers.iter();
        let layers = layers.map(|old| self.layer(repository, old, &mut excluded));
        let layers: Vec<Layer> = layers.collect::<Result<_>>()?;
        // Checks their order, and reads nothing.
        CatalogReader::open(repository.segment_source(), layers.clone())?;
        Ok(layers)
    }

    fn layer(
        &self,
        repository: &Repository,
        old: &Layer,
        excluded: &mut Excluded<'_>,
    ) -> Result<Layer> {
        let mut layer = Layer {
            rows: old.rows,
            segments: Vec::with_capacity(old.segments.len()),
        };
        for reference in &old.segments {
            let Some(new) = self.new.get(&reference.id) else {
                layer.segments.push(reference.clone());
                continue;
            };
            let counts_all = reference.from.is_none() && reference.to.is_none();
            let gone = match counts_all || new.gone == 0 {
                true => new.gone,
                false => gone_of_part(repository, reference, excluded)?,
            };
            layer.rows = layer.rows.saturating_sub(gone);
            let parts = new.parts.iter();
            layer
                .segments
                .extend(parts.filter_map(|part| clipped(reference, part)));
        }
        Ok(layer)
    }

    /// What is new.
    pub(super) fn made(&self) -> impl Iterator<Item = (ChunkKind, ChunkId)> {
        let parts = self.new.values().flat_map(|new| &new.parts);
        parts.map(|part| (ChunkKind::Segment, part.id))
    }
}

/// Rows that go of what counts of a segment.
fn gone_of_part(
    repository: &Repository,
    reference: &SegmentRef,
    excluded: &mut Excluded<'_>,
) -> Result<u64> {
    let bytes = repository.read_chunk(&reference.id, ChunkKind::Segment)?;
    let keys = SegmentKeys::decode(&bytes).map_err(|error| damaged(reference, &error))?;
    let bound = |key: &Option<Key>, none| key.as_ref().map_or(none, |key| keys.lower_bound(key));
    let counted = bound(&reference.from, 0)..bound(&reference.to, keys.rows());
    Ok(excluded.rows(&keys, counted).count() as u64)
}

/// A part of what a segment became, with what counted of the segment; `None`: nothing of it does.
fn clipped(old: &SegmentRef, part: &SegmentRef) -> Option<SegmentRef> {
    let ends_before = old.from.as_ref().is_some_and(|from| part.last < *from);
    let begins_after = old.to.as_ref().is_some_and(|to| *to <= part.first);
    let bound = |key: &Option<Key>, is_inside: &dyn Fn(&Key) -> bool| {
        key.clone().filter(|key| is_inside(key))
    };
    (!ends_before && !begins_after).then(|| SegmentRef {
        from: bound(&old.from, &|from| part.first < *from),
        to: bound(&old.to, &|to| *to <= part.last),
        ..part.clone()
    })
}

fn segment(
    reference: &SegmentRef,
    (excluded, bundles): (&mut Excluded<'_>, &NewBundles),
    writer: &Arc<ChunkWriter>,
) -> Result<NewSegment> {
    let repository = writer.repository();
    let bytes = repository.read_chunk(&reference.id, ChunkKind::Segment)?;
    let segment = Segment::decode(&bytes).map_err(|error| damaged(reference, &error))?;
    let mut sink = |bytes: Vec<u8>| -> std::result::Result<ChunkId, BoxError> {
        Ok(writer.store(ChunkKind::Segment, bytes)?)
    };
    let mut rows = SegmentWriter::new();
    let mut gone = 0;
    let keys: &SegmentKeys = segment.keys();
    for row in 0..segment.rows() {
        if excluded.excludes(keys.parent(row), keys.name(row)) {
            gone += 1;
            continue;
        }
        let mut entry = segment.entry(row);
        if let Content::Bundled { chunk, offset } = entry.content
            && let Some(chunk) = bundles.in_place_of(&chunk)
            && !entry.flags.has(EntryFlags::REMOVED)
        {
            entry.content = Content::Bundled { chunk, offset };
        }
        rows.push(&entry, &mut sink)?;
    }
    rows.close(&mut sink)?;
    Ok(NewSegment {
        parts: rows.take_finished(),
        gone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(first: &[u8], last: &[u8], from: Option<&[u8]>, to: Option<&[u8]>) -> SegmentRef {
        SegmentRef {
            id: ChunkId([1; 32]),
            rows: 2,
            bytes: 0,
            first: Key::of_path(first),
            last: Key::of_path(last),
            from: from.map(Key::of_path),
            to: to.map(Key::of_path),
        }
    }

    #[test]
    fn parts_of_a_segment_count_where_it_did() {
        let part = reference(b"d", b"h", None, None);
        let kept = |from, to| clipped(&reference(b"a", b"z", from, to), &part);
        assert_eq!(kept(None, None), Some(part.clone()));
        assert_eq!(kept(Some(b"i"), None), None);
        assert_eq!(kept(None, Some(b"d")), None);
        let inside = kept(Some(b"e"), Some(b"g")).unwrap();
        assert_eq!(inside.from, Some(Key::of_path(b"e")));
        assert_eq!(inside.to, Some(Key::of_path(b"g")));
        let around = kept(Some(b"c"), Some(b"i")).unwrap();
        assert_eq!((around.from, around.to), (None, None));
    }
}
