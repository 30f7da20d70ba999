//! Parts of layers: what is outside of some ranges, and two catalogs put together at a key.

use super::KeyRange;
use bale_format::{Key, Layer, SegmentRef};

/// The parts of segments that are in none of the ranges, which are in order.
pub(super) fn clip(segments: &[SegmentRef], gone: &[KeyRange]) -> Vec<SegmentRef> {
    let mut left = Vec::with_capacity(segments.len());
    for segment in segments {
        let mut rest = Some(segment.clone());
        let first_at = gone
            .partition_point(|range| range.end.as_ref().is_some_and(|end| *end <= segment.first));
        for range in &gone[first_at..] {
            let is_behind = range
                .start
                .as_ref()
                .is_some_and(|start| *start > segment.last);
            let Some(part) = rest.take_if(|_| !is_behind) else {
                break;
            };
            let (before, behind) = split(part, range);
            left.extend(before);
            rest = behind;
        }
        left.extend(rest);
    }
    left
}

/// What of a segment is before and behind a range.
fn split(segment: SegmentRef, range: &KeyRange) -> (Option<SegmentRef>, Option<SegmentRef>) {
    let lower = segment.start().clone();
    let is_before = |end: &Key, key: &Key| end <= key;
    if range.end.as_ref().is_some_and(|end| is_before(end, &lower)) {
        return (None, Some(segment));
    }
    let before = range
        .start
        .as_ref()
        .filter(|start| lower < **start)
        .map(|start| SegmentRef {
            to: Some(
                segment
                    .to
                    .clone()
                    .map_or(start.clone(), |to| to.min(start.clone())),
            ),
            ..segment.clone()
        });
    let behind = range
        .end
        .as_ref()
        .filter(|end| **end <= segment.last && segment.to.as_ref().is_none_or(|to| *end < to));
    let behind = behind.map(|end| SegmentRef {
        from: Some(end.clone()),
        ..segment.clone()
    });
    (before, behind)
}

/// Layers that are the run's before a key and the finished snapshot's from it on. Within either
/// range the order of layers is kept, so merging them is what it was. Their numbers of rows are
/// upper bounds.
pub fn splice(run: &[Layer], finished: &[Layer], until: &Key) -> Vec<Layer> {
    let before = [KeyRange {
        start: None,
        end: Some(until.clone()),
    }];
    let after = [KeyRange {
        start: Some(until.clone()),
        end: None,
    }];
    let count = run.len().max(finished.len());
    let mut layers: Vec<Layer> = (0..count).map(|_| Layer::default()).collect();
    for (layers_from, gone) in [(run, after), (finished, before)] {
        for (layer, from) in layers.iter_mut().zip(layers_from) {
            layer.rows += from.rows;
            layer.segments.extend(clip(&from.segments, &gone));
        }
    }
    layers
}
