//! Content seen before: where identical small files are stored already.
//!
//! The table has a fixed size. A file that had to make room is stored once more, nothing worse: the table is a saving and
//! never the truth. Further names of one inode: see `links`.

use bale_format::{ChunkId, Content};

/// Slots of the content table: 32 bytes each, 16 MiB.
const CONTENT_SLOTS: usize = 1 << 19;
/// Slots that a key may stand in.
const WAYS: usize = 4;

/// Number of a chunk in `Chunks`.
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

/// Where content is, with a chunk that may still be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// In a bundle.
    Bundled {
        /// Which chunk.
        chunk: ChunkNumber,
        /// First byte.
        offset: u32,
    },
    /// In pieces.
    Pieces {
        /// The list's chunk.
        chunk: ChunkNumber,
    },
}

/// Chunks by number: 33 bytes for each chunk, not for each file. A bundle has a number before it has an id.
#[derive(Default)]
pub struct Chunks {
    ids: Vec<Option<ChunkId>>,
}

impl Chunks {
    /// A number for a chunk whose id is not known yet.
    pub fn open(&mut self) -> ChunkNumber {
        self.ids.push(None);
        ChunkNumber(u32::try_from(self.ids.len() - 1).expect("2^32 chunks exceed any store"))
    }

    /// The id has become known.
    pub fn close(&mut self, number: ChunkNumber, id: ChunkId) {
        self.ids[number.0 as usize] = Some(id);
    }

    /// A number for a known chunk; the one used last is found again.
    pub fn known(&mut self, id: ChunkId) -> ChunkNumber {
        match self.ids.last() {
            Some(Some(last)) if *last == id => {}
            _ => self.ids.push(Some(id)),
        }
        ChunkNumber(u32::try_from(self.ids.len() - 1).expect("2^32 chunks exceed any store"))
    }

    /// The id, once it is known.
    pub fn id(&self, number: ChunkNumber) -> Option<ChunkId> {
        self.ids.get(number.0 as usize).copied().flatten()
    }

    /// The content of a row, once the chunk's id is known.
    pub fn content(&self, spot: Spot) -> Option<Content> {
        Some(match spot {
            Spot::Bundled { chunk, offset } => Content::Bundled {
                chunk: self.id(chunk)?,
                offset,
            },
            Spot::Pieces { chunk } => Content::Pieces {
                list: self.id(chunk)?,
            },
        })
    }
}

/// Small files by content hash and size.
pub struct ContentTable {
    sets: Vec<ContentSet>,
    turn: usize,
}

/// Aligned, so that a look-up waits for memory once.
#[derive(Clone, Copy, Default)]
#[repr(align(128))]
struct ContentSet([ContentSlot; WAYS]);

#[derive(Clone, Copy, Default)]
struct ContentSlot {
    hash: [u8; 16],
    size: u32,
    chunk: ChunkNumber,
    offset: u32,
    used: bool,
}

impl ContentTable {
    /// An empty table.
    pub fn new() -> ContentTable {
        ContentTable {
            sets: vec![ContentSet::default(); CONTENT_SLOTS / WAYS],
            turn: 0,
        }
    }

    /// Where a file of this content is.
    pub fn find(&self, hash: &[u8; 16], size: u32) -> Option<Spot> {
        let set = &self.sets[set_of(hash, self.sets.len())].0;
        let found = set
            .iter()
            .find(|slot| slot.used && slot.hash == *hash && slot.size == size)?;
        Some(Spot::Bundled {
            chunk: found.chunk,
            offset: found.offset,
        })
    }

    /// Remembers a bundled file.
    pub fn remember(&mut self, hash: &[u8; 16], size: u32, chunk: ChunkNumber, offset: u32) {
        let set = set_of(hash, self.sets.len());
        let set = &mut self.sets[set].0;
        let free = set
            .iter()
            .position(|slot| !slot.used || (slot.hash == *hash && slot.size == size));
        let way = free.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            self.turn
        });
        set[way] = ContentSlot {
            hash: *hash,
            size,
            chunk,
            offset,
            used: true,
        };
    }
}

fn set_of(hash: &[u8; 16], sets: usize) -> usize {
    let number = u64::from_le_bytes(hash[..8].try_into().expect("8 of 16 bytes"));
    number as usize % sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_remembered_last_is_found_and_other_sizes_are_not() {
        let (mut table, mut chunks) = (ContentTable::new(), Chunks::default());
        let chunk = chunks.open();
        table.remember(&[7; 16], 10, chunk, 3);
        assert_eq!(
            table.find(&[7; 16], 10),
            Some(Spot::Bundled { chunk, offset: 3 })
        );
        assert_eq!(table.find(&[7; 16], 11), None);
        for n in 0..WAYS as u8 {
            let mut hash = [7; 16];
            hash[15] = n;
            table.remember(&hash, 10, chunk, u32::from(n));
        }
        assert_eq!(
            table.find(
                &{
                    let mut h = [7; 16];
                    h[15] = 3;
                    h
                },
                10
            ),
            Some(Spot::Bundled { chunk, offset: 3 })
        );
    }
}
