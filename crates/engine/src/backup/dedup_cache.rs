//! The dedup cache of small files: where identical content is stored already.
//!
//! What came last is in a table in memory. When that is half full, what is new in it goes to sorted
//! files without names (`older`), up to a limit; the memory is the same however many files there
//! are. All of it is a saving and never the truth: a file that is not found is stored once more,
//! nothing worse. Further names of one inode: see `links`.

mod on_disk;

use bale_format::{ChunkId, Content};
use bale_pipeline::memory::MemoryPlan;
use on_disk::OlderContents;
use std::path::PathBuf;

/// Contents in memory with the usual ceiling: 32 bytes each, 4 MiB.
const RECENT_SLOTS: usize = 1 << 17;
/// Slots that a key may stand in.
const WAYS: usize = 4;
/// New contents that found no slot before the batch was full.
const DISPLACED_MAX: usize = 1024;
/// Bits that tell whether a content may be among these.
const DISPLACED_BITS: usize = 1 << 14;

/// Number of a bundle in `ChunkNumbers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkNumber(u32);

impl ChunkNumber {
    /// For keeping it outside memory, during this run.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Of a number that was kept.
    pub fn from_number(number: u32) -> ChunkNumber {
        ChunkNumber(number)
    }
}

/// The place of content, in a chunk that may still be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRef {
    /// In a bundle of this run.
    Bundled {
        bundle: ChunkNumber,
        /// First byte.
        offset: u32,
    },
    /// In a chunk that is stored.
    Stored(Content),
}

impl ContentRef {
    /// The place of stored content; `None` if there is none.
    pub fn stored(content: Content) -> Option<ContentRef> {
        match content {
            Content::None | Content::Image => None,
            Content::Bundled { .. } | Content::Pieces { .. } => Some(ContentRef::Stored(content)),
        }
    }
}

/// Bundles of this run by number: 33 bytes for each, not for each file. A bundle has a number
/// before it has an id.
#[derive(Default)]
pub struct ChunkNumbers {
    ids: Vec<Option<ChunkId>>,
}

impl ChunkNumbers {
    /// A number for a bundle whose id is not known yet.
    pub fn open(&mut self) -> ChunkNumber {
        self.ids.push(None);
        ChunkNumber(u32::try_from(self.ids.len() - 1).expect("2^32 chunks exceed any store"))
    }

    /// The id has become known.
    pub fn close(&mut self, number: ChunkNumber, id: ChunkId) {
        self.ids[number.0 as usize] = Some(id);
    }

    /// The content of a row, once the chunk's id is known.
    pub fn content(&self, content_ref: ContentRef) -> Option<Content> {
        match content_ref {
            ContentRef::Bundled { bundle, offset } => {
                let chunk = self.ids.get(bundle.0 as usize).copied().flatten()?;
                Some(Content::Bundled { chunk, offset })
            }
            ContentRef::Stored(content) => Some(content),
        }
    }
}

/// Small files by content hash and size.
pub struct ContentTable {
    sets: Vec<ContentSet>,
    memory: MemoryPlan,
    turn: usize,
    /// Contents in memory that are not in the files.
    new: usize,
    /// New contents that had to leave their slots.
    displaced: Vec<StoredContent>,
    displaced_filter: Vec<u64>,
    older: OverflowFile,
}

/// Where contents go that have to leave memory.
enum OverflowFile {
    /// None had to yet.
    Unused(PathBuf),
    Files(Box<OlderContents>),
    /// Nowhere: files cannot be made or written.
    Nowhere,
}

/// A content, and where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StoredContent {
    hash: [u8; 16],
    size: u32,
    chunk: ChunkNumber,
    offset: u32,
}

impl StoredContent {
    fn content_ref(self) -> ContentRef {
        ContentRef::Bundled {
            bundle: self.chunk,
            offset: self.offset,
        }
    }
}

/// Aligned, so that a look-up waits for memory once.
#[derive(Clone, Copy, Default)]
#[repr(align(128))]
struct ContentSet([ContentSlot; WAYS]);

#[derive(Clone, Copy, Default)]
struct ContentSlot {
    stored: StoredContent,
    state: SetEntry,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum SetEntry {
    #[default]
    Free,
    /// Not in the files.
    New,
    /// May be forgotten: in the files, or nowhere else to go.
    Copy,
}

impl ContentTable {
    /// An empty table; `directory` is for the files.
    pub fn new(directory: Option<PathBuf>, memory: &MemoryPlan) -> ContentTable {
        ContentTable {
            sets: vec![ContentSet::default(); memory.share(RECENT_SLOTS) / WAYS],
            memory: *memory,
            turn: 0,
            new: 0,
            displaced: Vec::new(),
            displaced_filter: vec![0; DISPLACED_BITS / 64],
            older: directory.map_or(OverflowFile::Nowhere, OverflowFile::Unused),
        }
    }

    /// Where a file of this content is.
    pub fn find(&mut self, hash: &[u8; 16], size: u32) -> Option<ContentRef> {
        let is_it = |stored: &StoredContent| stored.hash == *hash && stored.size == size;
        let number = set_of(hash, self.sets.len());
        let mut slots = self.sets[number].0.iter();
        let recent = slots.find(|slot| slot.state != SetEntry::Free && is_it(&slot.stored));
        if let Some(slot) = recent {
            return Some(slot.stored.content_ref());
        }
        let (word, bit) = displaced_bit(hash);
        if self.displaced_filter[word] & bit != 0
            && let Some(stored) = self.displaced.iter().find(|stored| is_it(stored))
        {
            return Some(stored.content_ref());
        }
        let OverflowFile::Files(older) = &self.older else {
            return None;
        };
        let found = older.find(hash, size)?;
        if let Some(way) = self.way_without_new(number) {
            self.sets[number].0[way] = ContentSlot {
                stored: found,
                state: SetEntry::Copy,
            };
        }
        Some(found.content_ref())
    }

    /// Remembers a bundled file.
    pub fn remember(&mut self, hash: &[u8; 16], size: u32, chunk: ChunkNumber, offset: u32) {
        let stored = StoredContent {
            hash: *hash,
            size,
            chunk,
            offset,
        };
        let number = set_of(hash, self.sets.len());
        let slots = &self.sets[number].0;
        let same = slots.iter().position(|slot| {
            slot.state == SetEntry::New && slot.stored.hash == *hash && slot.stored.size == size
        });
        let way = same.or_else(|| self.way_without_new(number));
        let way = way.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            self.turn
        });
        let state = SetEntry::New;
        let slot = ContentSlot { stored, state };
        let before = std::mem::replace(&mut self.sets[number].0[way], slot);
        self.new += usize::from(same.is_none());
        if before.state == SetEntry::New && same.is_none() {
            let (word, bit) = displaced_bit(&before.stored.hash);
            self.displaced_filter[word] |= bit;
            self.displaced.push(before.stored);
        }
        let half_full = self.sets.len() * WAYS / 2;
        if self.new >= half_full || self.displaced.len() >= DISPLACED_MAX {
            self.put_away();
        }
    }

    /// A slot of the set that is free, or whose content may be forgotten.
    fn way_without_new(&mut self, set: usize) -> Option<usize> {
        let slots = &self.sets[set].0;
        let free = slots.iter().position(|slot| slot.state == SetEntry::Free);
        free.or_else(|| {
            let mut ways = (1..=WAYS).map(|step| (self.turn + step) % WAYS);
            let way = ways.find(|way| slots[*way].state == SetEntry::Copy)?;
            self.turn = way;
            Some(way)
        })
    }

    /// Gives what is new to the files. In memory it stays until its slot is wanted.
    fn put_away(&mut self) {
        let mut batch = std::mem::take(&mut self.displaced);
        self.displaced_filter.fill(0);
        let keeps = match &self.older {
            OverflowFile::Files(older) => !older.is_full(),
            OverflowFile::Unused(_) => true,
            OverflowFile::Nowhere => false,
        };
        for slot in self.sets.iter_mut().flat_map(|set| &mut set.0) {
            if slot.state == SetEntry::New {
                slot.state = SetEntry::Copy;
                if keeps {
                    batch.push(slot.stored);
                }
            }
        }
        self.new = 0;
        if !keeps {
            return;
        }
        if let OverflowFile::Unused(directory) = &self.older {
            self.older = OverflowFile::Files(Box::new(OlderContents::new(directory, &self.memory)));
        }
        if let OverflowFile::Files(older) = &mut self.older
            && older.take(batch).is_err()
        {
            self.older = OverflowFile::Nowhere;
        }
    }
}

fn displaced_bit(hash: &[u8; 16]) -> (usize, u64) {
    let number = u64::from_le_bytes(hash[8..].try_into().expect("8 of 16 bytes"));
    let bit = number as usize % DISPLACED_BITS;
    (bit / 64, 1 << (bit % 64))
}

fn set_of(hash: &[u8; 16], sets: usize) -> usize {
    let number = u64::from_le_bytes(hash[..8].try_into().expect("8 of 16 bytes"));
    number as usize % sets
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several times what is in memory, so that runs are merged.
    const MANY: u32 = 600_000;

    fn content(number: u32) -> ([u8; 16], u32, ChunkNumber, u32) {
        let hash = blake3::hash(&number.to_le_bytes());
        let hash = *hash.as_bytes().first_chunk().unwrap();
        (hash, number % 5000, ChunkNumber(number / 900), number % 900)
    }

    fn remember(table: &mut ContentTable, number: u32) {
        let (hash, size, chunk, offset) = content(number);
        table.remember(&hash, size, chunk, offset);
    }

    /// Is it known? Where it is must be right.
    fn knows(table: &mut ContentTable, number: u32) -> bool {
        let (hash, size, chunk, offset) = content(number);
        let found = table.find(&hash, size);
        assert!(found.is_none_or(|content_ref| content_ref
            == ContentRef::Bundled {
                bundle: chunk,
                offset
            }));
        found.is_some()
    }

    #[test]
    fn contents_far_beyond_memory_are_all_stored_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut table = ContentTable::new(Some(directory.path().to_owned()), &MemoryPlan::USUAL);
        for number in 0..MANY {
            assert!(!knows(&mut table, number), "{number} before it came");
            remember(&mut table, number);
        }
        for number in (0..MANY).rev() {
            assert!(knows(&mut table, number), "{number} was forgotten");
        }
        let (hash, size, ..) = content(7);
        assert_eq!(table.find(&hash, size + 1), None, "another size");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_files_what_came_last_is_known_and_nothing_is_wrong() {
        for directory in [None, Some(PathBuf::from("/no such directory"))] {
            let mut table = ContentTable::new(directory, &MemoryPlan::USUAL);
            let many = 4 * RECENT_SLOTS as u32;
            (0..many).for_each(|number| remember(&mut table, number));
            let known = (0..many).filter(|number| knows(&mut table, *number));
            let known = known.count();
            assert!(
                (RECENT_SLOTS / 2..=RECENT_SLOTS).contains(&known),
                "{known}"
            );
            let last = (many - 1000..many).filter(|number| knows(&mut table, *number));
            assert!(last.count() > 900);
        }
    }

    #[test]
    fn contents_of_one_set_displace_each_other_and_are_known_still() {
        let directory = tempfile::tempdir().unwrap();
        let mut table = ContentTable::new(Some(directory.path().to_owned()), &MemoryPlan::USUAL);
        let content = |number: u32| {
            let mut hash = [7; 16];
            hash[12..].copy_from_slice(&number.to_le_bytes());
            hash
        };
        for number in 0..3 * DISPLACED_MAX as u32 {
            table.remember(&content(number), 10, ChunkNumber(1), number);
        }
        for number in 0..3 * DISPLACED_MAX as u32 {
            let content_ref = ContentRef::Bundled {
                bundle: ChunkNumber(1),
                offset: number,
            };
            assert_eq!(table.find(&content(number), 10), Some(content_ref));
        }
    }
}
