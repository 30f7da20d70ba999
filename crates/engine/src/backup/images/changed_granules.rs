//! What of a block is other than it was in the parent, and the extents that a block then has.
//!
//! A block of which a little changed keeps what the parent has of it: an extent in front of what is
//! new, the new bytes, one behind. Bytes are compared with those of the parent, which are read from
//! the repository and checked by their id, so that no tracker is believed in what it says of less
//! than a block. Where all of this would not spare much, a block is stored whole.

use bale_format::ImageExtent;
use std::ops::Range;

/// What changed is so long and aligned: blocks of most file systems.
const GRANULE_BYTES: usize = 4096;
/// Extents of a block, at most: with more a block is stored whole, so that rows stay few and what
/// is left of old chunks does not grow.
pub(super) const BLOCK_EXTENTS_MAX: usize = 32;

/// An extent that a block will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of one of the parent's, or a piece of it.
    Kept(ImageExtent),
    /// These bytes of the block.
    New(Range<usize>),
}

/// Runs of granules that differ, in order; both are as long.
pub(super) fn changed_runs(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    debug_assert_eq!(old.len(), new.len());
    let mut runs: Vec<Range<usize>> = Vec::new();
    let granules = old.chunks(GRANULE_BYTES).zip(new.chunks(GRANULE_BYTES));
    for (number, (old, new)) in granules.enumerate() {
        if old != new {
            let start = number * GRANULE_BYTES;
            push(&mut runs, start..start + new.len());
        }
    }
    runs
}

/// The extents of a block that begins at `start`, given those of the parent, what changed, and its
/// bytes. `None`: it is to be stored whole.
pub(super) fn parts_of(
    start: u64,
    old: &[ImageExtent],
    changed: &[Range<usize>],
    bytes: &[u8],
) -> Option<Vec<Part>> {
    let new = without_zeros(changed, bytes);
    let new_bytes: usize = new.iter().map(Range::len).sum();
    if new_bytes > bytes.len() / 2 || old.iter().any(|extent| extent.is_incomplete) {
        return None;
    }
    let mut parts: Vec<(u64, Part)> = Vec::new();
    for extent in old {
        kept_of(extent, start, changed, &mut parts);
    }
    parts.extend(
        new.into_iter()
            .map(|run| (start + run.start as u64, Part::New(run))),
    );
    if parts.len() > BLOCK_EXTENTS_MAX {
        return None;
    }
    parts.sort_unstable_by_key(|(start, _)| *start);
    Some(parts.into_iter().map(|(_, part)| part).collect())
}

/// Do these extents, with zeros around them, say what is in the block, given that one hash says so
/// of the block as it was? An extent that was lost since would leave bytes out.
pub(super) fn cover(start: u64, extents: &[ImageExtent], bytes: &[u8]) -> bool {
    let is_zero = |range: Range<usize>| bytes[range].iter().all(|byte| *byte == 0);
    let mut at = 0;
    for extent in extents {
        let from = (extent.start - start) as usize;
        if extent.is_incomplete || from < at || !is_zero(at..from) {
            return false;
        }
        at = (extent.end() - start) as usize;
    }
    is_zero(at..bytes.len())
}

/// What is left of an extent beside what changed.
fn kept_of(
    extent: &ImageExtent,
    block: u64,
    changed: &[Range<usize>],
    parts: &mut Vec<(u64, Part)>,
) {
    let mut at = extent.start;
    let behind = extent.end()..extent.end();
    let changed = changed.iter();
    let changed = changed.map(|run| block + run.start as u64..block + run.end as u64);
    for run in changed.chain([behind]) {
        let until = run.start.clamp(at, extent.end());
        if until > at {
            let piece = ImageExtent {
                start: at,
                bytes: until - at,
                offset: extent.offset + (at - extent.start) as u32,
                block_hash: None,
                ..*extent
            };
            parts.push((at, Part::Kept(piece)));
        }
        at = run.end.clamp(at, extent.end());
    }
}

/// Zeros are in no extent.
fn without_zeros(changed: &[Range<usize>], bytes: &[u8]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    for run in changed {
        for start in run.clone().step_by(GRANULE_BYTES) {
            let granule = start..(start + GRANULE_BYTES).min(run.end);
            if bytes[granule.clone()].iter().any(|byte| *byte != 0) {
                push(&mut runs, granule);
            }
        }
    }
    runs
}

/// Adds a run behind all others.
fn push(runs: &mut Vec<Range<usize>>, run: Range<usize>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::ChunkId;
    use bale_format::extent::IMAGE_BLOCK_BYTES;
    use proptest::prelude::*;

    const BLOCK: usize = IMAGE_BLOCK_BYTES as usize;
    const START: u64 = 7 * IMAGE_BLOCK_BYTES;

    fn whole(bytes: usize) -> ImageExtent {
        ImageExtent {
            start: START,
            bytes: bytes as u64,
            chunk: ChunkId([1; 32]),
            offset: 0,
            is_incomplete: false,
            block_hash: None,
        }
    }

    #[test]
    fn one_granule_that_changed_leaves_what_is_in_front_and_behind() {
        let old = vec![1; BLOCK];
        let mut new = old.clone();
        new[5 * GRANULE_BYTES + 9] = 2;
        let changed = changed_runs(&old, &new);
        let expected = 5 * GRANULE_BYTES..6 * GRANULE_BYTES;
        assert_eq!(changed, std::slice::from_ref(&expected));
        let parts = parts_of(START, &[whole(BLOCK)], &changed, &new).unwrap();
        let kept = |from: usize, to: usize| {
            Part::Kept(ImageExtent {
                start: START + from as u64,
                bytes: (to - from) as u64,
                offset: from as u32,
                ..whole(BLOCK)
            })
        };
        let middle = Part::New(changed[0].clone());
        let expected = [
            kept(0, 5 * GRANULE_BYTES),
            middle,
            kept(6 * GRANULE_BYTES, BLOCK),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_block_of_which_much_changed_or_some_was_not_read_is_stored_whole() {
        let old = vec![1; BLOCK];
        let mut new = old.clone();
        new[..BLOCK / 2 + 1].fill(2);
        let changed = changed_runs(&old, &new);
        assert_eq!(parts_of(START, &[whole(BLOCK)], &changed, &new), None);
        let mut scattered = old.clone();
        for granule in 0..BLOCK_EXTENTS_MAX {
            scattered[granule * 2 * GRANULE_BYTES] = 3;
        }
        let changed = changed_runs(&old, &scattered);
        assert_eq!(parts_of(START, &[whole(BLOCK)], &changed, &scattered), None);
        let incomplete = ImageExtent {
            is_incomplete: true,
            ..whole(BLOCK)
        };
        let mut little = old.clone();
        little[0] = 3;
        let changed = changed_runs(&old, &little);
        assert_eq!(parts_of(START, &[incomplete], &changed, &little), None);
        assert!(parts_of(START, &[whole(BLOCK)], &changed, &little).is_some());
    }

    #[test]
    fn extents_cover_a_block_if_all_that_is_beside_them_is_zeros() {
        let mut bytes = vec![0; 4 * GRANULE_BYTES];
        bytes[GRANULE_BYTES..2 * GRANULE_BYTES].fill(5);
        let part = |from: usize, to: usize| ImageExtent {
            start: START + from as u64,
            ..whole(to - from)
        };
        let second = part(GRANULE_BYTES, 2 * GRANULE_BYTES);
        assert!(cover(START, &[second], &bytes));
        assert!(cover(START, &[part(0, 4 * GRANULE_BYTES)], &bytes));
        assert!(!cover(START, &[], &bytes));
        assert!(!cover(START, &[part(0, GRANULE_BYTES)], &bytes));
        assert!(!cover(START, &[part(0, GRANULE_BYTES + 1)], &bytes));
        let incomplete = ImageExtent {
            is_incomplete: true,
            ..second
        };
        assert!(!cover(START, &[incomplete], &bytes));
    }

    /// Granules of few values, many of them zeros.
    fn block() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0u8..4, 1..40).prop_flat_map(|granules| {
            let bytes = granules.len() * GRANULE_BYTES;
            (Just(granules), bytes - GRANULE_BYTES + 1..=bytes).prop_map(|(granules, len)| {
                let mut bytes: Vec<u8> = (granules.iter())
                    .flat_map(|value| [*value; GRANULE_BYTES])
                    .collect();
                bytes.truncate(len);
                bytes
            })
        })
    }

    proptest! {
        /// A block that changes often: what its extents say is always what it holds.
        #[test]
        fn whatever_changes_the_extents_say_what_the_block_holds(
            mut content in block(),
            changes in prop::collection::vec(prop::collection::vec((0usize..40, 0u8..4), 0..9), 1..9),
        ) {
            let mut chunks = vec![content.clone()];
            let chunk = |number: usize| ChunkId([number as u8; 32]);
            let mut extents = vec![ImageExtent { chunk: chunk(0), ..whole(content.len()) }];
            for change in changes {
                let old = content.clone();
                for (granule, value) in change {
                    let start = (granule * GRANULE_BYTES).min(content.len());
                    let end = (start + GRANULE_BYTES).min(content.len());
                    content[start..end].fill(value);
                }
                let changed = changed_runs(&old, &content);
                let Some(parts) = parts_of(START, &extents, &changed, &content) else {
                    chunks.push(content.clone());
                    let whole = whole(content.len());
                    extents = vec![ImageExtent { chunk: chunk(chunks.len() - 1), ..whole }];
                    continue;
                };
                prop_assert!(parts.len() <= BLOCK_EXTENTS_MAX);
                let mut bundle = Vec::new();
                extents.clear();
                for part in parts {
                    extents.push(match part {
                        Part::Kept(extent) => extent,
                        Part::New(run) => {
                            let offset = bundle.len() as u32;
                            bundle.extend_from_slice(&content[run.clone()]);
                            ImageExtent {
                                start: START + run.start as u64,
                                chunk: chunk(chunks.len()),
                                offset,
                                ..whole(run.len())
                            }
                        }
                    });
                }
                chunks.push(bundle);
                let mut read = vec![0; content.len()];
                let mut at = START;
                for extent in &extents {
                    prop_assert!(extent.start >= at && extent.bytes > 0);
                    at = extent.end();
                    let from = (extent.start - START) as usize;
                    let chunk = &chunks[usize::from(extent.chunk.0[0])];
                    let stored = &chunk[extent.offset as usize..][..extent.bytes as usize];
                    read[from..from + stored.len()].copy_from_slice(stored);
                }
                prop_assert_eq!(&read, &content);
                prop_assert!(cover(START, &extents, &content));
            }
        }
    }
}
