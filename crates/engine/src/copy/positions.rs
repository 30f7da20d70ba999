//! Sets of chunks as positions in an index: a bit for each of its entries. Of a chunk with several
//! copies the first position stands for all.

use bale_format::ChunkId;
use bale_repository::index::ChunkIndex;

/// Levels of piece lists: the leaves and three above them.
pub(super) const LEVELS: usize = 4;

/// A set of positions.
#[derive(Clone)]
pub(super) struct Positions(Vec<u64>);

impl Positions {
    pub(super) fn none(index: &ChunkIndex) -> Positions {
        Positions(vec![0; index.entries().len().div_ceil(64)])
    }

    /// Was it not there before?
    pub(super) fn insert(&mut self, position: usize) -> bool {
        let is_new = !self.has(position);
        self.add(position);
        is_new
    }

    pub(super) fn add(&mut self, position: usize) {
        self.0[position / 64] |= 1 << (position % 64);
    }

    /// Leaves those that are not in the other.
    pub(super) fn remove_all(&mut self, other: &Positions) {
        for (word, gone) in self.0.iter_mut().zip(&other.0) {
            *word &= !gone;
        }
    }

    pub(super) fn has(&self, position: usize) -> bool {
        self.0[position / 64] >> (position % 64) & 1 == 1
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.0.iter().enumerate();
        words.flat_map(|(at, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| at * 64 + bit)
        })
    }

    /// In the order in which their best copies lie in packs, 8 bytes for each.
    pub(super) fn by_place(&self, index: &ChunkIndex) -> Vec<usize> {
        let mut positions: Vec<usize> = self.iter().collect();
        positions.sort_by_cached_key(|position| place_of(index, *position));
        positions
    }
}

/// Position that stands for a chunk; `None`: no pack is named for it.
pub(super) fn position_of(index: &ChunkIndex, id: &ChunkId) -> Option<usize> {
    let all = index.positions(id);
    (!all.is_empty()).then_some(all.start)
}

/// Where the copy is that is read first: number of its pack, and offset.
pub(super) fn place_of(index: &ChunkIndex, position: usize) -> (u32, u64) {
    let id = &index.entries()[position].chunk.id;
    let best = index.any(id).expect("a position is of a chunk");
    (best.pack.0, best.chunk.offset)
}
