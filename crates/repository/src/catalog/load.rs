//! Loads one segment of a layer: reads, decodes and checks it, as far as it is wanted.

use super::{CatalogError, KeyRange, Result, SegmentSource};
use bale_format::{Key, Segment, SegmentRef};
use std::ops::Range;
use std::sync::Arc;

/// A segment, and the rows of it that are wanted.
pub(super) struct LoadedSegment {
    pub(super) segment: Arc<Segment>,
    pub(super) rows: Range<usize>,
}

/// Reads and checks the segment that a reference describes; of the rows outside the range only the
/// keys, unless the source keeps whole segments.
pub(super) fn load(
    source: &dyn SegmentSource,
    reference: &SegmentRef,
    range: &KeyRange,
) -> Result<LoadedSegment> {
    let Some(kept) = source.kept_decoded() else {
        let segment = Arc::new(decode(source, reference, range)?);
        let rows = segment.decoded();
        return Ok(LoadedSegment { segment, rows });
    };
    let segment = kept.get(&reference.id, || {
        decode(source, reference, &KeyRange::all())
    })?;
    let keys = segment.keys();
    let row = |key: &Key| keys.lower_bound(key);
    let start = range.start.as_ref().map_or(0, row);
    let end = range.end.as_ref().map_or(keys.rows(), row);
    Ok(LoadedSegment {
        rows: start.min(end)..end,
        segment,
    })
}

fn decode(source: &dyn SegmentSource, reference: &SegmentRef, range: &KeyRange) -> Result<Segment> {
    let id = reference.id;
    let bytes = source
        .segment(&id)
        .map_err(|source| CatalogError::Read { id, source })?;
    let segment = Segment::decode_rows(&bytes, |keys| {
        let row = |key: &Key| keys.lower_bound(key);
        range.start.as_ref().map_or(0, row)..range.end.as_ref().map_or(keys.rows(), row)
    })
    .map_err(|source| CatalogError::Decode { id, source })?;
    let keys = segment.keys();
    let what = if keys.rows() != reference.rows as usize {
        "rows"
    } else if keys.key(0) != reference.first {
        "first key"
    } else if keys.key(keys.rows() - 1) != reference.last {
        "last key"
    } else {
        return Ok(segment);
    };
    Err(CatalogError::Mismatch { id, what })
}

/// The keys of a reference that count.
pub(super) fn counted(reference: &SegmentRef) -> KeyRange {
    KeyRange {
        start: reference.from.clone(),
        end: reference.to.clone(),
    }
}
