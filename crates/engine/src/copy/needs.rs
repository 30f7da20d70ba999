//! What the snapshots to be copied need: their segments, each once, and the chunks that these point
//! at.
//!
//! What earlier copies brought is not needed (`earlier.rs`).
//!
//! In memory: eight bits and 32 bytes for each entry of the source's index and some 80 bytes for
//! each distinct segment. What is needed of each row is sorted on disk, by the place of its chunk.

use super::earlier::{EarlierCopies, GivenChunk};
use super::positions::{LEVELS, Positions, place_of, position_of};
use super::reading::{LostChunk, Reading};
use super::rows_by_place::{KnownChunks, RowPlace, RowsByPlace, row_key};
use super::segments::read_segments;
use bale_format::segment::Segment;
use bale_format::{
    ChunkId, ChunkKind, Content, Kind, ObjectId, Piece, PieceList, SegmentRef, XattrsColumn,
};
use bale_pipeline::monitor::Phase;
use bale_pipeline::spill::{Sorted, Sorter};
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::Named;
use std::collections::{HashMap, HashSet};

/// What is needed.
pub(super) struct Needs {
    /// Segments by number.
    pub(super) segments: Vec<SegmentRef>,
    pub(super) numbers: HashMap<ChunkId, u32>,
    /// Chunks of data and of extended attributes.
    pub(super) content: Positions,
    /// Piece lists, by their level.
    pub(super) lists: [Positions; LEVELS],
    /// Segments that are in the target, by number.
    pub(super) there: HashMap<u32, Vec<SegmentRef>>,
    /// What is known of the target.
    pub(super) known: KnownChunks,
    /// Bundled rows by their [`RowPlace`]: those of which the hash is known before the others.
    rows: RowsByPlace,
    /// Snapshots whose catalogs cannot be read, and why.
    pub(super) unreadable: HashMap<ObjectId, String>,
    /// Piece lists that are damaged, and chunks that are in no pack.
    pub(super) lost: u64,
    roots: Positions,
    /// Chunks that are in no pack: 32 bytes for each.
    nowhere: HashSet<ChunkId>,
    /// Segments that cannot be read.
    damaged: HashMap<ChunkId, String>,
    last: Option<(ChunkId, ChunkKind, usize)>,
}

/// Finds what snapshots need. A snapshot whose catalog cannot be read is left out, and nothing is
/// needed for it.
pub(super) fn find(
    reading: Reading<'_>,
    snapshots: &[Named],
    earlier: &mut EarlierCopies<'_>,
) -> Result<Needs> {
    let mut unreadable = HashMap::new();
    loop {
        let mut needs = Needs::none(reading)?;
        let left: Vec<&Named> = (snapshots.iter())
            .filter(|(id, _)| !unreadable.contains_key(id))
            .collect();
        needs.read_segments(reading, &left, earlier)?;
        needs.read_bases(reading, earlier)?;
        let found = needs.unreadable_of(&left);
        if found.is_empty() {
            needs.follow_lists(reading)?;
            needs
                .rows
                .resolve(reading, &needs.known, &mut needs.content)?;
            needs.unreadable = unreadable;
            return Ok(needs);
        }
        unreadable.extend(found);
    }
}

impl Needs {
    fn none(reading: Reading<'_>) -> Result<Needs> {
        let none = || Positions::none(reading.index);
        Ok(Needs {
            segments: Vec::new(),
            numbers: HashMap::new(),
            content: none(),
            lists: [none(), none(), none(), none()],
            there: HashMap::new(),
            known: KnownChunks::none(reading.index),
            rows: RowsByPlace::new(reading)?,
            unreadable: HashMap::new(),
            lost: 0,
            roots: none(),
            nowhere: HashSet::new(),
            damaged: HashMap::new(),
            last: None,
        })
    }

    fn read_segments(
        &mut self,
        reading: Reading<'_>,
        snapshots: &[&Named],
        earlier: &mut EarlierCopies<'_>,
    ) -> Result<()> {
        for (_, snapshot) in snapshots {
            for reference in snapshot.layers.iter().flat_map(|layer| &layer.segments) {
                if !self.numbers.contains_key(&reference.id) {
                    let number = u32::try_from(self.segments.len()).map_err(|_| too_many())?;
                    self.numbers.insert(reference.id, number);
                    self.segments.push(reference.clone());
                }
            }
        }
        let segments = self.segments.clone();
        let all: Vec<u32> = (0..segments.len() as u32).collect();
        read_segments(
            reading,
            &segments,
            &all,
            Phase::FindUsed,
            |number, segment| {
                earlier.fetch_ahead(number as usize, &segments);
                match segment {
                    Ok(segment) => {
                        let id = &segments[number as usize].id;
                        let (given, there) = earlier.of_segment(id, &segment);
                        self.take_known(reading, &given)?;
                        match there {
                            None => self.take_segment(reading, number, &segment)?,
                            Some(parts) => drop(self.there.insert(number, parts)),
                        }
                    }
                    Err(text) => {
                        self.damaged.insert(segments[number as usize].id, text);
                    }
                }
                Ok(())
            },
        )
    }

    /// Rows that are written anew may be as they were in the snapshot before.
    fn read_bases(&mut self, reading: Reading<'_>, earlier: &mut EarlierCopies<'_>) -> Result<()> {
        let all = (0..).zip(&self.segments);
        let new = all.filter(|(number, _)| !self.there.contains_key(number));
        let mut bases = earlier.bases_of(new.map(|(_, segment)| segment));
        bases.retain(|base| !self.numbers.contains_key(&base.id));
        let all: Vec<u32> = (0..bases.len() as u32).collect();
        read_segments(reading, &bases, &all, Phase::FindUsed, |number, segment| {
            earlier.fetch_ahead(number as usize, &bases);
            // One that cannot be read is none of those that are copied.
            if let Ok(segment) = segment {
                let id = &bases[number as usize].id;
                let (given, _) = earlier.of_segment(id, &segment);
                self.take_known(reading, &given)?;
            }
            Ok(())
        })
    }

    /// Notes what the rows of a segment point at.
    fn take_segment(&mut self, reading: Reading<'_>, number: u32, segment: &Segment) -> Result<()> {
        for row in 0..segment.rows() {
            let view = segment.view(row);
            match view.content {
                Content::None | Content::Image => {}
                // An extent has no hash: its bytes are as good as its chunk.
                Content::Bundled { chunk, .. } if view.kind == Kind::Extent => {
                    if let Some(position) = self.needed(reading, &chunk, ChunkKind::Data) {
                        self.content.add(position);
                    }
                }
                Content::Bundled { chunk, offset } => {
                    if let Some(position) = self.needed(reading, &chunk, ChunkKind::Data) {
                        let place = RowPlace {
                            chunk: place_of(reading.index, position),
                            offset,
                            // A decoded bundled row ends within a chunk.
                            bytes: view.size as u32,
                        };
                        self.rows
                            .add(&place, row_key(number, row as u32), position)?;
                    }
                }
                Content::Pieces { list } => {
                    if let Some(position) = self.needed(reading, &list, ChunkKind::Pieces) {
                        self.roots.add(position);
                    }
                }
            }
            if let Some(set) = XattrsColumn::chunk_of(view.xattrs)
                && let Some(position) = self.needed(reading, &set, ChunkKind::Xattrs)
            {
                self.content.add(position);
            }
        }
        Ok(())
    }

    /// Notes what rows of a segment that is in the target say of chunks.
    fn take_known(&mut self, reading: Reading<'_>, given: &[GivenChunk]) -> Result<()> {
        for given in given {
            let (GivenChunk::Bundled { old, new, .. }
            | GivenChunk::List { old, new, .. }
            | GivenChunk::Set { old, new }) = given;
            // Lost here, and still there.
            let Some(position) = position_of(reading.index, old) else {
                continue;
            };
            self.known.ids[position] = *new;
            self.known.is_known.add(position);
            match *given {
                GivenChunk::Bundled {
                    offset,
                    bytes,
                    hash: Some(hash),
                    ..
                } => {
                    let place = RowPlace {
                        chunk: place_of(reading.index, position),
                        offset,
                        bytes: bytes as u32,
                    };
                    self.rows.add_hash(&place, &hash)?;
                }
                GivenChunk::List { hash, .. } => {
                    self.known.list_hashes.insert(position, hash);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Position of a chunk that something points at as one of this kind; one that is nowhere is
    /// named. Most rows point where the one before does.
    fn needed(&mut self, reading: Reading<'_>, id: &ChunkId, kind: ChunkKind) -> Option<usize> {
        if let Some((_, _, position)) = self.last.filter(|(a, b, _)| (a, b) == (id, &kind)) {
            return Some(position);
        }
        match needed(reading.index, id, kind) {
            Ok(position) => {
                self.last = Some((*id, kind, position));
                Some(position)
            }
            Err(text) => {
                if self.nowhere.insert(*id) {
                    self.lose(reading, LostChunk { text });
                }
                None
            }
        }
    }

    /// Snapshots that need a segment which cannot be read.
    fn unreadable_of(&self, snapshots: &[&Named]) -> HashMap<ObjectId, String> {
        let why = |named: &&&Named| {
            let mut segments = named.1.layers.iter().flat_map(|layer| &layer.segments);
            let text = segments.find_map(|segment| self.damaged.get(&segment.id))?;
            Some((named.0, text.clone()))
        };
        snapshots.iter().filter_map(|named| why(&named)).collect()
    }

    /// Level by level from the roots down, so that lists are read in the order of packs.
    fn follow_lists(&mut self, reading: Reading<'_>) -> Result<()> {
        self.roots.remove_all(&self.known.is_known);
        let mut visited = self.roots.clone();
        let mut open = self.roots.by_place(reading.index);
        while !open.is_empty() {
            let mut below = Positions::none(reading.index);
            reading.at(&open, |position, plain| {
                let decoded = plain.and_then(|plain| {
                    let decoded = PieceList::decode(&plain);
                    let id = reading.index.entries()[position].chunk.id;
                    decoded.map_err(|error| LostChunk::new(id, &error))
                });
                match decoded {
                    Ok(list) => self.take_list(reading, position, &list, &mut below),
                    Err(lost) => self.lose(reading, lost),
                }
                Ok(())
            })?;
            below.remove_all(&self.known.is_known);
            open = below.by_place(reading.index);
            open.retain(|position| visited.insert(*position));
        }
        self.content.remove_all(&self.known.is_known);
        Ok(())
    }

    /// What of it is nowhere will be missed when the list is written anew.
    fn take_list(
        &mut self,
        reading: Reading<'_>,
        position: usize,
        list: &PieceList,
        below: &mut Positions,
    ) {
        self.lists[usize::from(list.depth())].add(position);
        match list {
            PieceList::Leaf(pieces) => {
                for piece in pieces {
                    if let Piece::Data { chunk, .. } = piece
                        && let Some(position) = self.needed(reading, chunk, ChunkKind::Data)
                    {
                        self.content.add(position);
                    }
                }
            }
            PieceList::Inner { lists, .. } => {
                for list in lists {
                    if let Some(position) = self.needed(reading, &list.list, ChunkKind::Pieces) {
                        below.add(position);
                    }
                }
            }
        }
    }

    fn lose(&mut self, reading: Reading<'_>, lost: LostChunk) {
        self.lost += 1;
        reading.problem(Vec::new(), lost.text);
    }

    /// What is known of the target, once.
    pub(super) fn take_known_chunks(&mut self, reading: Reading<'_>) -> KnownChunks {
        let none = KnownChunks {
            ids: Vec::new(),
            is_known: Positions::none(reading.index),
            list_hashes: HashMap::new(),
        };
        std::mem::replace(&mut self.known, none)
    }

    /// Bundled rows by the place of their chunk, without those of which the hash is known, and the
    /// hashes of those; once.
    pub(super) fn take_rows(&mut self) -> Result<(Sorted, Sorter)> {
        self.rows.take()
    }

    /// Chunks to be read for the content of files, without catalogs, and their bytes as they are
    /// stored in the source.
    pub(super) fn sum(&self, index: &ChunkIndex) -> (u64, u64) {
        let sets = std::iter::once(&self.content).chain(&self.lists);
        sets.fold((0, 0), |(chunks, bytes), set| {
            let sealed = |position: usize| u64::from(index.entries()[position].chunk.sealed_bytes);
            (
                chunks + set.count(),
                bytes + set.iter().map(sealed).sum::<u64>(),
            )
        })
    }
}

fn needed(index: &ChunkIndex, id: &ChunkId, kind: ChunkKind) -> std::result::Result<usize, String> {
    let position = position_of(index, id).ok_or_else(|| Error::MissingChunk(*id).to_string())?;
    match index.entries()[position].chunk.kind == kind {
        true => Ok(position),
        false => Err(format!(
            "chunk {} is of another kind than {kind:?}",
            id.short()
        )),
    }
}

fn too_many() -> Error {
    Error::Other("these snapshots have more than four billion segments: copy fewer".to_owned())
}
