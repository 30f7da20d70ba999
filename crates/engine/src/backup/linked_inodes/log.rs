//! Links one behind the other, in the order in which they came: the last ones in memory, the others
//! in a file without a name.
//!
//! Further names mostly come in the order of the first ones, so a block that was read for one is
//! there for the next.

use super::{Link, LinkKey, LinkedContent, SHARED_FLAGS, Spill};
use crate::backup::dedup_cache::{ChunkNumber, ContentRef};
use bale_format::{ChunkId, Content, EntryFlags};
use bale_pipeline::memory::MemoryPlan;

const CHUNK_ID_BYTES: usize = 32;
/// A link in the file.
const RECORD_BYTES: usize = 104;
/// Links that are in memory at the end: 5 MiB with the usual ceiling of memory.
const RECENT_LINKS: usize = 3 << 14;
/// Links that are written, and read again, together.
const BLOCK_LINKS: u32 = 1 << 8;
const BLOCK_BYTES: usize = BLOCK_LINKS as usize * RECORD_BYTES;
/// Blocks that were read and are kept: 1 MiB with the usual ceiling. A block has one place there.
const BLOCKS_KEPT: usize = 40;

/// Half of them are written, which is whole blocks.
const fn recent_links(memory: &MemoryPlan) -> usize {
    let pair = 2 * BLOCK_LINKS as usize;
    memory.share(RECENT_LINKS) / pair * pair
}

/// Flags stand in the record above the tag.
const FLAGS_SHIFT: u32 = 8;
const _: () = assert!(SHARED_FLAGS << FLAGS_SHIFT >> FLAGS_SHIFT == SHARED_FLAGS);

/// All links of a run.
pub(super) struct Log {
    /// Those since the last multiple of a block that had to be written.
    recent: Vec<u8>,
    recent_max: usize,
    /// Links before these: in the file.
    written: u32,
    kept: Vec<Option<(u32, Box<[u8]>)>>,
    spill: Spill,
}

impl Log {
    pub(super) fn new(spill: Spill, memory: &MemoryPlan) -> Log {
        Log {
            recent: Vec::new(),
            recent_max: recent_links(memory) * RECORD_BYTES,
            written: 0,
            kept: (0..memory.share(BLOCKS_KEPT)).map(|_| None).collect(),
            spill,
        }
    }

    /// Adds a link; tells its number, from 1 on. `None`: there are more than have numbers.
    pub(super) fn add(&mut self, link: &Link) -> Option<u32> {
        let count = self.written + (self.recent.len() / RECORD_BYTES) as u32;
        let number = count.checked_add(1)?;
        if self.recent.len() >= self.recent_max {
            self.write_older_half();
        }
        self.recent.extend_from_slice(&encode(link));
        Some(number)
    }

    fn write_older_half(&mut self) {
        let half = self.recent.len() / 2;
        let at = u64::from(self.written) * RECORD_BYTES as u64;
        self.spill.write(&self.recent[..half], at);
        self.recent.drain(..half);
        self.written += (half / RECORD_BYTES) as u32;
    }

    /// The link of a number, if it reads back as it was written.
    pub(super) fn get(&mut self, number: u32, key: &LinkKey) -> Option<Link> {
        let place = number.checked_sub(1)?;
        let record = match place.checked_sub(self.written) {
            Some(place) => self.recent.get(place as usize * RECORD_BYTES..)?,
            None => {
                let at = (place % BLOCK_LINKS) as usize * RECORD_BYTES;
                &self.block(place / BLOCK_LINKS)[at..]
            }
        };
        decode(record.first_chunk()?, key)
    }

    /// A block that was written.
    fn block(&mut self, number: u32) -> &[u8] {
        let at = number as usize % self.kept.len();
        let place = &mut self.kept[at];
        let block = match place.take() {
            Some((kept, block)) if kept == number => block,
            before => {
                let mut block = match before {
                    Some((_, block)) => block,
                    None => vec![0; BLOCK_BYTES].into_boxed_slice(),
                };
                let at = u64::from(number) * BLOCK_BYTES as u64;
                self.spill.read(&mut block, at);
                block
            }
        };
        &place.insert((number, block)).1
    }
}

/// In a bundle of this run, which has a number; in one that is stored; in pieces.
const TAGS: [u32; 3] = [1, 2, 3];

/// Tag and flags, file system, inode, ctime, chunk (its id, or the number of a bundle), size,
/// offset, content hash, hash of the stat, generation, and four bytes of a hash of all this: a disk
/// that returns something else must not give a file another's content.
fn encode(link: &Link) -> [u8; RECORD_BYTES] {
    let content = &link.content;
    let mut chunk = [0; CHUNK_ID_BYTES];
    let (tag, offset) = match content.content_ref {
        ContentRef::Bundled { bundle, offset } => {
            chunk[..4].copy_from_slice(&bundle.number().to_le_bytes());
            (TAGS[0], offset)
        }
        ContentRef::Stored(Content::Bundled { chunk: id, offset }) => {
            chunk = id.0;
            (TAGS[1], offset)
        }
        ContentRef::Stored(Content::Pieces { list }) => {
            chunk = list.0;
            (TAGS[2], 0)
        }
        // Nothing that links share, and not read back.
        ContentRef::Stored(Content::None | Content::Image) => (0, 0),
    };
    let key = &link.key;
    let mut record = [0; RECORD_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        record[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&(tag | content.flags.0 << FLAGS_SHIFT).to_le_bytes());
    put(&key.filesystem.to_le_bytes());
    put(&key.inode.to_le_bytes());
    put(&key.ctime.0.to_le_bytes());
    put(&key.ctime.1.to_le_bytes());
    put(&key.size.to_le_bytes());
    put(&key.stat.to_le_bytes());
    put(&chunk);
    put(&offset.to_le_bytes());
    put(&content.content_hash);
    put(&content.generation.to_le_bytes());
    let check = check_of(&record);
    record[RECORD_BYTES - 4..].copy_from_slice(&check);
    record
}

/// `None`: it is of another key, nothing was written there, or not this.
fn decode(record: &[u8; RECORD_BYTES], key: &LinkKey) -> Option<Link> {
    let number = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
    let long = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    let chunk = ChunkId(record[44..76].try_into().expect("32 bytes"));
    let offset = number(76);
    let tag = number(0) & ((1 << FLAGS_SHIFT) - 1);
    let content_ref = match TAGS.iter().position(|one| *one == tag)? {
        0 => ContentRef::Bundled {
            bundle: ChunkNumber::from_number(number(44)),
            offset,
        },
        1 => ContentRef::Stored(Content::Bundled { chunk, offset }),
        _ => ContentRef::Stored(Content::Pieces { list: chunk }),
    };
    let found = LinkKey {
        filesystem: number(4),
        inode: long(8),
        ctime: (long(16) as i64, number(24)),
        size: long(28),
        stat: long(36),
    };
    if found != *key || record[RECORD_BYTES - 4..] != check_of(record) {
        return None;
    }
    Some(Link {
        key: found,
        content: LinkedContent {
            content_ref,
            content_hash: record[80..96].try_into().expect("16 bytes"),
            flags: EntryFlags(number(0) >> FLAGS_SHIFT),
            generation: number(96),
        },
    })
}

fn check_of(record: &[u8; RECORD_BYTES]) -> [u8; 4] {
    let hash = blake3::hash(&record[..RECORD_BYTES - 4]);
    hash.as_bytes()[..4].try_into().expect("4 of 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_made_of_a_record_is_not_believed() {
        let key = LinkKey {
            filesystem: 3,
            inode: 77,
            ctime: (-5, 6),
            size: 4096,
            stat: 1 << 63,
        };
        let (bundle, chunk) = (ChunkNumber::from_number(9), ChunkId([6; 32]));
        for content_ref in [
            ContentRef::Bundled { bundle, offset: 5 },
            ContentRef::Stored(Content::Bundled { chunk, offset: 5 }),
            ContentRef::Stored(Content::Pieces { list: chunk }),
        ] {
            let content = LinkedContent {
                content_ref,
                content_hash: [4; 16],
                flags: EntryFlags(SHARED_FLAGS),
                generation: 8,
            };
            let link = Link { key, content };
            let record = encode(&link);
            assert_eq!(decode(&record, &key), Some(link));
            assert_eq!(decode(&record, &LinkKey { inode: 78, ..key }), None);
            for bit in 0..8 * RECORD_BYTES {
                let mut flipped = record;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&flipped, &key), None, "bit {bit}");
            }
        }
    }
}
