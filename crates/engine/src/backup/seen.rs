//! Content seen before: where identical small files, and further names of one inode, are stored already.
//!
//! Both tables have a fixed size. An entry that had to make room is read or stored once more, nothing worse: the tables are
//! a saving and never the truth.

use bale_format::{ChunkId, Content};

/// Slots of the content table: 32 bytes each with their tags, 16 MiB.
const CONTENT_SLOTS: usize = 1 << 19;
/// Slots of the link table: 64 bytes each, 8 MiB.
const LINK_SLOTS: usize = 1 << 17;
/// Slots that a key may stand in.
const WAYS: usize = 4;

/// Number of a chunk in `Chunks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkNumber(u32);

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
        self.ids[number.0 as usize]
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
    /// A part of each slot's hash, 0 for a free slot. Most files are new, and are known to be so by this alone, which is
    /// small enough to stay in the processor's cache.
    tags: Vec<[u32; WAYS]>,
    slots: Vec<ContentSlot>,
    turn: usize,
}

#[derive(Clone, Copy, Default)]
struct ContentSlot {
    hash: [u8; 16],
    size: u32,
    chunk: ChunkNumber,
    offset: u32,
}

impl ContentTable {
    /// An empty table.
    pub fn new() -> ContentTable {
        ContentTable {
            tags: vec![[0; WAYS]; CONTENT_SLOTS / WAYS],
            slots: vec![ContentSlot::default(); CONTENT_SLOTS],
            turn: 0,
        }
    }

    fn position(&self, hash: &[u8; 16], size: u32) -> Option<usize> {
        let start = set_of(hash, CONTENT_SLOTS);
        let tags = self.tags[start / WAYS];
        (0..WAYS)
            .filter(|way| tags[*way] == tag_of(hash))
            .map(|way| start + way)
            .find(|at| self.slots[*at].hash == *hash && self.slots[*at].size == size)
    }

    /// Where a file of this content is.
    pub fn find(&self, hash: &[u8; 16], size: u32) -> Option<Spot> {
        let found = &self.slots[self.position(hash, size)?];
        Some(Spot::Bundled {
            chunk: found.chunk,
            offset: found.offset,
        })
    }

    /// Remembers a bundled file.
    pub fn remember(&mut self, hash: &[u8; 16], size: u32, chunk: ChunkNumber, offset: u32) {
        let start = set_of(hash, CONTENT_SLOTS);
        let free = || self.tags[start / WAYS].iter().position(|tag| *tag == 0);
        let way = match self.position(hash, size) {
            Some(at) => at - start,
            None => free().unwrap_or_else(|| {
                self.turn = (self.turn + 1) % WAYS;
                self.turn
            }),
        };
        self.tags[start / WAYS][way] = tag_of(hash);
        self.slots[start + way] = ContentSlot {
            hash: *hash,
            size,
            chunk,
            offset,
        };
    }
}

/// An inode with several names: what must be equal for a second name to share what was read for the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkKey {
    /// File system.
    pub filesystem: u32,
    /// Inode number.
    pub inode: u64,
    /// Last change of the inode: a reused number or a later change is another key.
    pub ctime: (i64, u32),
    /// Bytes.
    pub size: u64,
}

/// Content of inodes with several names.
pub struct LinkTable {
    slots: Vec<Option<(LinkKey, Spot, [u8; 16])>>,
    turn: usize,
}

impl LinkTable {
    /// An empty table.
    pub fn new() -> LinkTable {
        LinkTable {
            slots: vec![None; LINK_SLOTS],
            turn: 0,
        }
    }

    /// Content and hash of an inode that was read under another name.
    pub fn find(&self, key: &LinkKey) -> Option<(Spot, [u8; 16])> {
        let start = set_of(&key.hash(), LINK_SLOTS);
        let found = self.slots[start..start + WAYS]
            .iter()
            .flatten()
            .find(|(other, _, _)| other == key)?;
        Some((found.1, found.2))
    }

    /// Remembers what was read.
    pub fn remember(&mut self, key: LinkKey, spot: Spot, hash: [u8; 16]) {
        let start = set_of(&key.hash(), LINK_SLOTS);
        let set = &mut self.slots[start..start + WAYS];
        let free = set.iter().position(Option::is_none);
        let way = free.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            self.turn
        });
        set[way] = Some((key, spot, hash));
    }
}

impl LinkKey {
    fn hash(&self) -> [u8; 16] {
        let mixed = (self.inode ^ u64::from(self.filesystem).rotate_left(48))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
        hash
    }
}

/// Of other bytes than the set; never 0.
fn tag_of(hash: &[u8; 16]) -> u32 {
    u32::from_le_bytes(hash[8..12].try_into().expect("4 of 16 bytes")) | 1
}

fn set_of(hash: &[u8; 16], slots: usize) -> usize {
    let number = u64::from_le_bytes(hash[..8].try_into().expect("8 of 16 bytes"));
    (number as usize % (slots / WAYS)) * WAYS
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

    #[test]
    fn an_inode_that_changed_is_another_key() {
        let (mut table, mut chunks) = (LinkTable::new(), Chunks::default());
        let chunk = chunks.open();
        let key = LinkKey {
            filesystem: 0,
            inode: 12,
            ctime: (5, 6),
            size: 100,
        };
        table.remember(key, Spot::Pieces { chunk }, [1; 16]);
        assert!(table.find(&key).is_some());
        assert!(
            table
                .find(&LinkKey {
                    ctime: (5, 7),
                    ..key
                })
                .is_none()
        );
    }
}
