//! What earlier copies brought: of snapshots that are on both sides, segments stand in the same
//! order, and rows say what a chunk of the source is in the target, and what the hash of a content
//! is there. So what is in the target is neither read again nor sent.
//!
//! Nothing is believed of a row but what both sides say of it, and nothing of the target that its
//! index does not have in a pack that lasts; a list of pieces is followed there to its chunks. What
//! is not so is read from the source, as if there had been no copy.

use super::choose::origin;
use super::positions::{LEVELS, Positions, position_of};
use bale_format::segment::Segment;
use bale_format::{
    ChunkId, ChunkKind, Content, Key, Layer, ObjectId, Piece, PieceList, SegmentRef, Snapshot,
    XattrsColumn,
};
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::{Named, Repository};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Segments of the target that are fetched together where it is far away.
const SEGMENTS_AHEAD: usize = 16;

/// Segments of the source and what they are in the target, as far as listings say.
pub(super) struct EarlierCopies<'a> {
    target: &'a Repository,
    index: Arc<ChunkIndex>,
    parts: HashMap<ChunkId, Vec<SegmentRef>>,
    /// Segments of the snapshots that those to be copied came after.
    bases: Vec<SegmentRef>,
    lists: HashMap<ChunkId, bool>,
    /// Chunks of the target that the copies to be made rely on.
    relied: Positions,
}

/// What a chunk or a content of a row is in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenChunk {
    /// With the hash of the content, where there is one.
    Bundled {
        old: ChunkId,
        new: ChunkId,
        offset: u32,
        bytes: u64,
        hash: Option<[u8; 16]>,
    },
    List {
        old: ChunkId,
        new: ChunkId,
        hash: [u8; 16],
    },
    Set {
        old: ChunkId,
        new: ChunkId,
    },
}

impl<'a> EarlierCopies<'a> {
    /// Of snapshots to be copied; `in_source` and `in_target` are all of theirs.
    pub(super) fn find(
        queue: &[Named],
        in_source: &[Named],
        (target, in_target): (&'a Repository, &[Named]),
    ) -> Result<EarlierCopies<'a>> {
        let index = target.index()?;
        let by_origin: HashMap<ObjectId, &Named> = in_target
            .iter()
            .map(|named| (origin(named), named))
            .collect();
        let copy_of = |named: &Named| {
            let copy = &by_origin.get(&origin(named))?.1;
            let old = &named.1;
            let is_it = old.run == copy.run && old.time == copy.time;
            (is_it && old.layers.len() == copy.layers.len()).then_some(copy)
        };
        let pairs: Vec<(&Named, &Snapshot)> = (in_source.iter())
            .filter_map(|named| Some((named, copy_of(named)?)))
            .collect();
        let bases = queue.iter().filter_map(|named| base_of(named, &pairs));
        let bases: HashMap<ChunkId, SegmentRef> = (bases.flat_map(segments_of))
            .map(|segment| (segment.id, segment.clone()))
            .collect();
        let wanted = queue.iter().flat_map(|(_, snapshot)| segments_of(snapshot));
        let wanted = wanted.map(|segment| segment.id);
        let wanted: HashSet<ChunkId> = wanted.chain(bases.keys().copied()).collect();
        let mut parts = HashMap::new();
        for (named, copy) in &pairs {
            for (old, new) in named.1.layers.iter().zip(&copy.layers) {
                align(old, new, &wanted, &mut parts);
            }
        }
        Ok(EarlierCopies {
            relied: Positions::none(&index),
            index,
            target,
            parts,
            bases: bases.into_values().collect(),
            lists: HashMap::new(),
        })
    }

    /// Segments of the source in which rows may stand that also stand in these, which are not in
    /// the target: what they say of chunks is worth knowing.
    pub(super) fn bases_of<'s>(
        &self,
        new: impl Iterator<Item = &'s SegmentRef>,
    ) -> Vec<SegmentRef> {
        let mut ranges: Vec<(&Key, &Key)> = new.map(|new| (&new.first, &new.last)).collect();
        ranges.sort();
        // Ends ascend, then, where ranges that lap are one.
        let mut apart: Vec<(&Key, &Key)> = Vec::new();
        for (first, last) in ranges {
            match apart.last_mut() {
                Some((_, end)) if first <= *end => *end = last.max(end),
                _ => apart.push((first, last)),
            }
        }
        let laps = |base: &&SegmentRef| {
            let at = apart.partition_point(|(_, last)| **last < base.first);
            apart.get(at).is_some_and(|(first, _)| **first <= base.last)
        };
        let mut bases: Vec<SegmentRef> = self.bases.iter().filter(laps).cloned().collect();
        bases.sort_by(|one, other| one.first.cmp(&other.first));
        bases
    }

    /// From here on a writer looks after all that is relied on.
    pub(super) fn rely_on_all(&self, writer: &ChunkWriter) -> Result<()> {
        let entries = self.index.entries();
        let mut ids = self
            .relied
            .iter()
            .map(|position| &entries[position].chunk.id);
        match ids.all(|id| writer.rely_on(id)) {
            true => Ok(()),
            false => Err(Error::Other(
                "what earlier copies brought was pruned just now: run it again".to_owned(),
            )),
        }
    }

    /// Segments of the target will be read for these of the source, the first of which is next.
    pub(super) fn fetch_ahead(&self, number: usize, segments: &[SegmentRef]) {
        if !number.is_multiple_of(SEGMENTS_AHEAD) {
            return;
        }
        let next = segments[number..].iter().take(SEGMENTS_AHEAD);
        let parts = next.filter_map(|segment| self.parts.get(&segment.id));
        let ids: Vec<ChunkId> = parts.flatten().map(|part| part.id).collect();
        if !ids.is_empty() {
            self.target.fetch_ahead(&ids);
        }
    }

    /// What rows of a segment say of chunks that the target has; and the segments there that this
    /// one is, if all of it is so.
    pub(super) fn of_segment(
        &mut self,
        id: &ChunkId,
        old: &Segment,
    ) -> (Vec<GivenChunk>, Option<Vec<SegmentRef>>) {
        let mut given = Vec::new();
        let parts = self.parts.get(id).cloned();
        let whole = parts.and_then(|parts| {
            let is_whole = self.read_parts(old, &parts, &mut given)?;
            is_whole.then_some(parts)
        });
        let before = given.len();
        given.retain(|chunk| self.rely_on(chunk).is_some());
        let is_there = whole.filter(|_| given.len() == before);
        for part in is_there.iter().flatten() {
            // There is one: it was just read.
            if let Some(position) = position_of(&self.index, &part.id) {
                self.relied.add(position);
            }
        }
        (given, is_there)
    }

    /// Are all rows the same? `None`: the target cannot read it.
    fn read_parts(
        &self,
        old: &Segment,
        parts: &[SegmentRef],
        given: &mut Vec<GivenChunk>,
    ) -> Option<bool> {
        let (mut row, mut is_whole) = (0, true);
        for part in parts {
            is_whole &= self.index.reliable(&part.id).is_some();
            let plain = self
                .target
                .read_chunk_uncached(&part.id, ChunkKind::Segment);
            let new = Segment::decode(&plain.ok()?).ok()?;
            for at in 0..new.rows() {
                is_whole &= add_row((old, row), (&new, at), given).is_some();
                row += 1;
            }
        }
        Some(is_whole && row == old.rows())
    }

    /// `None`: the target does not have all of it in packs that last.
    fn rely_on(&mut self, given: &GivenChunk) -> Option<()> {
        match given {
            GivenChunk::Bundled { new, .. } => self.rely_on_chunk(new, ChunkKind::Data),
            GivenChunk::Set { new, .. } => self.rely_on_chunk(new, ChunkKind::Xattrs),
            GivenChunk::List { new, .. } => {
                let is_whole = match self.lists.get(new) {
                    Some(is_whole) => *is_whole,
                    None => {
                        let is_whole = self.rely_on_list(new, LEVELS - 1).is_some();
                        self.lists.insert(*new, is_whole);
                        is_whole
                    }
                };
                is_whole.then_some(())
            }
        }
    }

    fn rely_on_chunk(&mut self, id: &ChunkId, kind: ChunkKind) -> Option<()> {
        let place = self.index.reliable(id)?;
        self.relied.add(position_of(&self.index, id)?);
        (place.chunk.kind == kind).then_some(())
    }

    fn rely_on_list(&mut self, id: &ChunkId, levels: usize) -> Option<()> {
        self.rely_on_chunk(id, ChunkKind::Pieces)?;
        let plain = self
            .target
            .read_chunk_uncached(id, ChunkKind::Pieces)
            .ok()?;
        match PieceList::decode(&plain).ok()? {
            PieceList::Leaf(pieces) => {
                for piece in pieces {
                    if let Piece::Data { chunk, .. } = piece {
                        self.rely_on_chunk(&chunk, ChunkKind::Data)?;
                    }
                }
            }
            PieceList::Inner { lists, .. } => {
                let below = levels.checked_sub(1)?;
                for list in lists {
                    self.rely_on_list(&list.list, below)?;
                }
            }
        }
        Some(())
    }
}

/// `None`: the two rows differ in more than their keys make differ.
fn add_row(
    (old, row): (&Segment, usize),
    (new, at): (&Segment, usize),
    given: &mut Vec<GivenChunk>,
) -> Option<()> {
    let (old_keys, new_keys) = (old.keys(), new.keys());
    let is_same = row < old.rows()
        && old_keys.parent(row) == new_keys.parent(at)
        && old_keys.name(row) == new_keys.name(at)
        && old.is_removed(row) == new.is_removed(at);
    if !is_same {
        return None;
    }
    let (before, after) = (old.view(row), new.view(at));
    let is_same = (before.kind, before.size, before.flags, before.mtime)
        == (after.kind, after.size, after.flags, after.mtime);
    if !is_same {
        return None;
    }
    match (before.content, after.content) {
        (Content::None, Content::None) | (Content::Image, Content::Image) => {}
        (
            Content::Bundled { chunk, offset },
            Content::Bundled {
                chunk: new_chunk,
                offset: new_offset,
            },
        ) if offset == new_offset => given.push(GivenChunk::Bundled {
            old: chunk,
            new: new_chunk,
            offset,
            bytes: before.size,
            hash: new.entry(at).content_hash,
        }),
        (Content::Pieces { list }, Content::Pieces { list: new_list }) => {
            given.push(GivenChunk::List {
                old: list,
                new: new_list,
                hash: new.entry(at).content_hash?,
            });
        }
        _ => return None,
    }
    let sets = (
        XattrsColumn::chunk_of(before.xattrs),
        XattrsColumn::chunk_of(after.xattrs),
    );
    match sets {
        (None, None) if before.xattrs == after.xattrs => {}
        (Some(old), Some(new)) => given.push(GivenChunk::Set { old, new }),
        _ => return None,
    }
    Some(())
}

/// The snapshot that this one came after, as far as it was copied: its parent, or the newest of the
/// same host and paths.
fn base_of<'p>((_, new): &Named, pairs: &[(&'p Named, &Snapshot)]) -> Option<&'p Snapshot> {
    let parent = pairs.iter().find(|(old, _)| Some(old.0) == new.parent);
    let is_alike = |old: &Snapshot| old.host == new.host && old.paths == new.paths;
    let alike = pairs.iter().filter(|(old, _)| is_alike(&old.1));
    let base = parent.or_else(|| alike.max_by_key(|(old, _)| old.1.time));
    base.map(|(old, _)| &old.1)
}

fn segments_of(snapshot: &Snapshot) -> impl Iterator<Item = &SegmentRef> {
    snapshot.layers.iter().flat_map(|layer| &layer.segments)
}

/// Segments of a layer and those of its copy: one is one, or a few.
fn align(
    old: &Layer,
    new: &Layer,
    wanted: &HashSet<ChunkId>,
    found: &mut HashMap<ChunkId, Vec<SegmentRef>>,
) {
    let mut at = 0;
    for segment in &old.segments {
        while new
            .segments
            .get(at)
            .is_some_and(|part| part.first < segment.first)
        {
            at += 1;
        }
        let (from, mut rows) = (at, 0u64);
        while let Some(part) = new.segments.get(at)
            && part.last <= segment.last
            && rows < u64::from(segment.rows)
        {
            rows += u64::from(part.rows);
            at += 1;
        }
        let parts = &new.segments[from..at];
        let is_whole = rows == u64::from(segment.rows)
            && parts
                .first()
                .is_some_and(|part| part.first == segment.first)
            && parts.last().is_some_and(|part| part.last == segment.last);
        if is_whole && wanted.contains(&segment.id) {
            let whole = parts.iter().map(|part| SegmentRef {
                from: None,
                to: None,
                ..part.clone()
            });
            found.entry(segment.id).or_insert_with(|| whole.collect());
        }
    }
}
