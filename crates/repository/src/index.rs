//! The chunk index: which pack holds a chunk, and where in it.
//!
//! Loaded from all `index/` objects when a repository is opened. It grows with bytes stored, not
//! with files: 64 bytes for each chunk of 1-4 MiB, so about 30 MB for a terabyte. Chunks in
//! condemned packs, and in packs marked as damaged, count as absent for writers and are still found
//! by readers, who try them last.

use bale_format::{ChunkId, ChunkPlace, ObjectId, PackNumber};
use std::collections::HashMap;
use std::ops::Range;

/// A pack as the index knows it.
#[derive(Clone, Debug)]
pub struct PackInfo {
    pub id: ObjectId,
    /// Length in bytes.
    pub len: u64,
    /// Named by a `condemned/` object: writers do without it.
    pub condemned: bool,
    /// Named by a `damaged/` object: writers do without it, and deleters count no copy in it as one
    /// that stays.
    pub damaged: bool,
}

impl PackInfo {
    /// Neither condemned nor marked as damaged: writers may point at its chunks, and a prune counts
    /// its copies as staying.
    pub fn is_reliable(&self) -> bool {
        !self.condemned && !self.damaged
    }

    /// Readers try copies of a lower rank first.
    fn rank(&self) -> u8 {
        match self {
            PackInfo { damaged: true, .. } => 2,
            PackInfo {
                condemned: true, ..
            } => 1,
            _ => 0,
        }
    }
}

/// Ranks of copies: in lasting packs, in condemned ones, in damaged ones.
const RANKS: u8 = 3;

/// All chunks that the repository's index objects name.
#[derive(Clone, Default)]
pub struct ChunkIndex {
    packs: Vec<PackInfo>,
    pack_numbers: HashMap<ObjectId, PackNumber>,
    entries: Vec<ChunkPlace>,
    sorted: bool,
    marks_unreadable: bool,
    /// What is wrong with each index object that could not be read, with its name.
    unread_objects: Vec<String>,
}

impl ChunkIndex {
    /// Number of a pack, listing it if it is new.
    pub fn add_pack(&mut self, id: ObjectId, len: u64) -> PackNumber {
        if let Some(number) = self.pack_numbers.get(&id) {
            return *number;
        }
        let number = PackNumber(
            u32::try_from(self.packs.len())
                .expect("2^32 packs of at least one chunk exceed any store"),
        );
        self.packs.push(PackInfo {
            id,
            len,
            condemned: false,
            damaged: false,
        });
        self.pack_numbers.insert(id, number);
        number
    }

    /// Adds a chunk; call `sort` before looking anything up.
    pub fn add(&mut self, place: ChunkPlace) {
        self.entries.push(place);
        self.sorted = false;
    }

    /// Numbers packs in the order of this key from now on: what is read pack by pack is read in the
    /// order of the medium. Those of one key stay as they were to each other.
    pub(crate) fn order_packs<K: Ord>(&mut self, key: impl Fn(&ObjectId) -> K) {
        let mut order: Vec<usize> = (0..self.packs.len()).collect();
        order.sort_by_cached_key(|pack| key(&self.packs[*pack].id));
        let mut numbers = vec![PackNumber(0); order.len()];
        for (number, pack) in (0..).map(PackNumber).zip(&order) {
            numbers[*pack] = number;
        }
        let packs = order.iter().map(|pack| self.packs[*pack].clone());
        self.packs = packs.collect();
        for number in self.pack_numbers.values_mut() {
            *number = numbers[number.0 as usize];
        }
        for place in &mut self.entries {
            place.pack = numbers[place.pack.0 as usize];
        }
        self.sorted = false;
    }

    /// Makes everything that was added findable, and drops repetitions.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.entries
                .sort_unstable_by_key(|place| (place.chunk.id, place.pack, place.chunk.offset));
            self.entries.dedup();
            self.entries.shrink_to_fit();
            self.sorted = true;
        }
    }

    /// Marks a pack as condemned.
    pub fn condemn(&mut self, id: &ObjectId) {
        if let Some(number) = self.pack_numbers.get(id) {
            self.packs[number.0 as usize].condemned = true;
        }
    }

    /// Marks a pack as damaged.
    pub fn mark_damaged(&mut self, id: &ObjectId) {
        if let Some(number) = self.pack_numbers.get(id) {
            self.packs[number.0 as usize].damaged = true;
        }
    }

    /// Some mark of damaged packs could not be read.
    pub(crate) fn miss_marks(&mut self) {
        self.marks_unreadable = true;
    }

    /// Some index object could not be read: its name, and why.
    pub(crate) fn miss_object(&mut self, trouble: String) {
        self.unread_objects.push(trouble);
    }

    /// What is wrong with index objects that could not be read, each with its name: what they alone
    /// name counts as absent.
    pub fn unread_objects(&self) -> &[String] {
        &self.unread_objects
    }

    /// Could all index objects and all marks of damaged packs be read?
    pub fn is_all(&self) -> bool {
        self.unread_objects.is_empty() && !self.marks_unreadable
    }

    /// Could some mark of damaged packs not be read? Then any pack may be damaged and known to be,
    /// and a copy is relied on only after it was read and verified.
    pub fn marks_unreadable(&self) -> bool {
        self.marks_unreadable
    }

    /// A copy of the chunk that a writer may rely on.
    pub fn reliable(&self, id: &ChunkId) -> Option<ChunkPlace> {
        self.copies(id)
            .find(|place| self.pack(place.pack).is_reliable())
    }

    /// Position in `entries` of a copy that a writer may rely on.
    pub(crate) fn reliable_position(&self, id: &ChunkId) -> Option<usize> {
        let start = self.start_of(id);
        let mut copies = self.entries[start..]
            .iter()
            .take_while(|place| place.chunk.id == *id);
        let found = copies.position(|place| self.pack(place.pack).is_reliable())?;
        Some(start + found)
    }

    /// Positions in `entries` of all copies.
    pub fn positions(&self, id: &ChunkId) -> Range<usize> {
        let start = self.start_of(id);
        start..start + self.copies(id).count()
    }

    /// A copy of the chunk, the best that is known.
    pub fn any(&self, id: &ChunkId) -> Option<ChunkPlace> {
        self.best_first(id).next()
    }

    /// Every copy of the chunk: those in lasting packs, in condemned ones, in damaged ones.
    pub fn best_first(&self, id: &ChunkId) -> impl Iterator<Item = ChunkPlace> + '_ {
        let copies = &self.entries[self.positions(id)];
        (0..RANKS).flat_map(move |rank| {
            let of_rank = move |place: &&ChunkPlace| self.pack(place.pack).rank() == rank;
            copies.iter().filter(of_rank).copied()
        })
    }

    /// Every copy of the chunk.
    pub fn copies(&self, id: &ChunkId) -> impl Iterator<Item = ChunkPlace> + '_ {
        let start = self.start_of(id);
        let id = *id;
        self.entries[start..]
            .iter()
            .take_while(move |place| place.chunk.id == id)
            .copied()
    }

    fn start_of(&self, id: &ChunkId) -> usize {
        debug_assert!(
            self.sorted || self.entries.is_empty(),
            "sort before looking up"
        );
        self.entries.partition_point(|place| place.chunk.id < *id)
    }

    /// The pack of that number.
    pub fn pack(&self, number: PackNumber) -> &PackInfo {
        &self.packs[number.0 as usize]
    }

    /// Number of a pack by its name.
    pub fn pack_number(&self, id: &ObjectId) -> Option<PackNumber> {
        self.pack_numbers.get(id).copied()
    }

    /// All packs, in the order of their numbers.
    pub fn packs(&self) -> &[PackInfo] {
        &self.packs
    }

    /// All chunks in id order, copies next to each other.
    pub fn entries(&self) -> &[ChunkPlace] {
        &self.entries
    }
}
