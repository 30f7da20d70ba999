//! Bundles are stored again with zeros in the place of what nothing points at that stays.
//!
//! Offsets are as before, so a row that stays has another chunk and no other place in it. A bundle
//! of which nothing stays is not stored again.

use super::excluded::Excluded;
use super::look::{Look, damaged};
use bale_format::{ChunkId, ChunkKind, Content, EntryFlags, Segment};
use bale_pipeline::error::with_causes;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_pipeline::spill::{Sorted, Sorter, SpillError};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::Named;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Sorting what stays of them.
const SORT_BYTES: usize = 8 << 20;

/// The new bundles by the old ones.
pub(super) struct NewBundles {
    new: HashMap<ChunkId, ChunkId>,
    unreadable: u64,
}

impl NewBundles {
    /// Of all that the segments of these snapshots keep.
    pub(super) fn store(
        look: &Look,
        wanted: &[&Named],
        excluded: Excluded<'_>,
        writer: &ChunkWriter,
        monitor: &dyn Monitor,
    ) -> Result<NewBundles> {
        let mut kept = kept_ranges(look, wanted, excluded, writer, monitor)?;
        let mut bundles = NewBundles {
            new: HashMap::new(),
            unreadable: 0,
        };
        let mut of_bundle: Option<(ChunkId, Vec<Range<usize>>)> = None;
        while let Some((key, value)) = kept.next_record().map_err(spilling)? {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let (id, range) = decode(key, value);
            match &mut of_bundle {
                Some((current, ranges)) if *current == id => join(ranges, range),
                _ => {
                    bundles.store_one(of_bundle.replace((id, vec![range])), writer, monitor)?;
                }
            }
        }
        bundles.store_one(of_bundle, writer, monitor)?;
        Ok(bundles)
    }

    fn store_one(
        &mut self,
        bundle: Option<(ChunkId, Vec<Range<usize>>)>,
        writer: &ChunkWriter,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let Some((id, kept)) = bundle else {
            return Ok(());
        };
        let read = writer
            .repository()
            .read_chunk_uncached(&id, ChunkKind::Data);
        let blanked = read.and_then(|bytes| blanked(&id, &bytes, &kept));
        match blanked {
            Ok(bytes) => {
                let new = writer.store(ChunkKind::Data, bytes)?;
                self.new.insert(id, new);
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                self.unreadable += 1;
                monitor.problem(&Problem {
                    path: Vec::new(),
                    action: "read",
                    text: format!(
                        "bundle {} holds something that is excluded and files that stay: {error}. \
                         They go on pointing at it",
                        id.short()
                    ),
                });
            }
        }
        Ok(())
    }

    /// Where rows point that pointed at `chunk`.
    pub(super) fn in_place_of(&self, chunk: &ChunkId) -> Option<ChunkId> {
        self.new.get(chunk).copied()
    }

    pub(super) fn replaces(&self, chunk: &ChunkId) -> bool {
        self.new.contains_key(chunk)
    }

    pub(super) fn stored(&self) -> u64 {
        self.new.len() as u64
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// What is new.
    pub(super) fn made(&self) -> impl Iterator<Item = (ChunkKind, ChunkId)> {
        self.new.values().map(|id| (ChunkKind::Data, *id))
    }
}

/// Where in bundles that hold something that goes the content is of what stays, in the order of
/// bundles and offsets.
fn kept_ranges(
    look: &Look,
    wanted: &[&Named],
    mut excluded: Excluded<'_>,
    writer: &ChunkWriter,
    monitor: &dyn Monitor,
) -> Result<Sorted> {
    let repository = writer.repository();
    let memory = repository.memory().share(SORT_BYTES);
    let mut sorter = Sorter::new(&repository.spill_dir()?, memory);
    let mut visited = HashSet::new();
    let layers = wanted.iter().flat_map(|(_, snapshot)| &snapshot.layers);
    for reference in layers.flat_map(|layer| &layer.segments) {
        if !look.points_at_tainted(&reference.id) || !visited.insert(reference.id) {
            continue;
        }
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        let bytes = repository.read_chunk(&reference.id, ChunkKind::Segment)?;
        let segment = Segment::decode(&bytes).map_err(|error| damaged(reference, &error))?;
        for row in 0..segment.rows() {
            let view = segment.view(row);
            let Content::Bundled { chunk, offset } = view.content else {
                continue;
            };
            let keys = segment.keys();
            let stays = look.is_bundle_tainted(&chunk)
                && !view.flags.has(EntryFlags::REMOVED)
                && !excluded.excludes(keys.parent(row), keys.name(row));
            if stays {
                let (key, value) = encode(&chunk, offset, view.size);
                sorter.push(&key, &value).map_err(spilling)?;
            }
        }
    }
    sorter.finish().map_err(spilling)
}

fn encode(chunk: &ChunkId, offset: u32, size: u64) -> ([u8; 36], [u8; 8]) {
    let mut key = [0; 36];
    key[..32].copy_from_slice(&chunk.0);
    key[32..].copy_from_slice(&offset.to_be_bytes());
    (key, size.to_le_bytes())
}

fn decode(key: &[u8], value: &[u8]) -> (ChunkId, Range<usize>) {
    let id = ChunkId(key[..32].try_into().expect("36 bytes"));
    let offset = u32::from_be_bytes(key[32..].try_into().expect("36 bytes")) as usize;
    let size = u64::from_le_bytes(value.try_into().expect("8 bytes")) as usize;
    (id, offset..offset.saturating_add(size))
}

/// Ranges come in the order of their beginnings.
fn join(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}

/// A bundle with zeros outside of some ranges.
fn blanked(id: &ChunkId, bytes: &[u8], kept: &[Range<usize>]) -> Result<Vec<u8>> {
    let mut blanked = vec![0; bytes.len()];
    for range in kept {
        let from = bytes.get(range.clone());
        let from = from.ok_or_else(|| {
            Error::Other(format!("bundle {} is shorter than a row says", id.short()))
        })?;
        blanked[range.clone()].copy_from_slice(from);
    }
    Ok(blanked)
}

fn spilling(error: SpillError) -> Error {
    Error::Other(with_causes(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_points_at_becomes_zeros() {
        let mut kept = Vec::new();
        for range in [1..2, 1..3, 3..4, 6..7] {
            join(&mut kept, range);
        }
        assert_eq!(kept, [1..4, 6..7]);
        let id = ChunkId([1; 32]);
        assert_eq!(blanked(&id, b"abcdefgh", &kept).unwrap(), b"\0bcd\0\0g\0");
        assert!(blanked(&id, b"abcdef", &kept).is_err());
    }

    #[test]
    fn places_sort_by_bundle_and_offset() {
        let (key, value) = encode(&ChunkId([7; 32]), 300, 5);
        assert_eq!(decode(&key, &value), (ChunkId([7; 32]), 300..305));
        assert!(encode(&ChunkId([7; 32]), 255, 0).0 < key);
    }
}
