//! Inodes with several names: what was read under one name is there for the others, so that each is read once.
//!
//! The names of one inode may lie a whole tree apart, and a link farm has tens of millions of inodes. What came last is in
//! memory; what had to make room is in a hash table in a file without a name, 205 bytes for each inode. The file grows a
//! bucket at a time (linear hashing), so no insertion waits for all others to move. Memory is the same however many there
//! are. All of it is a saving and never the truth: what cannot be written, or does not read back as it was written, is read
//! from the source again.

use super::seen::{ChunkNumber, Spot};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Links in memory: 72 bytes each, 4.5 MiB.
const RECENT_SLOTS: usize = 1 << 16;
/// Slots that a key may stand in.
const WAYS: usize = 4;
/// A link in the file.
const RECORD_BYTES: usize = 64;
/// Links that a bucket holds.
const BUCKET_SLOTS: usize = 64;
/// A bucket: a page of the kernel's cache.
const BUCKET_BYTES: usize = RECORD_BYTES * BUCKET_SLOTS;
/// A third of the slots: at the end of a round, buckets that are not split yet hold twice the mean. About one link in a
/// hundred thousand finds no place even then.
const BUCKET_LINKS_MEAN: u64 = 20;
/// Buckets to begin with: 1 MiB.
const BUCKETS_FIRST: u64 = 256;
/// Bits that tell whether a key may be in the file: 4 MiB. At ten million links one miss in five looks in vain.
const FILTER_BITS: u64 = 1 << 25;

/// What must be equal for a second name to share what was read for the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkKey {
    /// File system.
    pub(super) filesystem: u32,
    /// Inode number.
    pub(super) inode: u64,
    /// Last change of the inode: a reused number or a later change is another key.
    pub(super) ctime: (i64, u32),
    /// Bytes.
    pub(super) size: u64,
}

impl LinkKey {
    fn hash(&self) -> u64 {
        let mut mixed = self.inode ^ u64::from(self.filesystem).rotate_left(48);
        for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
            mixed = (mixed ^ mixed >> 31).wrapping_mul(factor);
        }
        mixed ^ mixed >> 29
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    key: LinkKey,
    spot: Spot,
    content_hash: [u8; 16],
}

/// Content of inodes with several names.
pub(super) struct LinkTable {
    recent: Vec<Option<Link>>,
    turn: usize,
    older: Older,
}

/// Where links go that had to make room.
enum Older {
    /// None had to yet.
    Unused(PathBuf),
    File(LinkFile),
    /// Nowhere: the file cannot be made or written.
    Nowhere,
}

impl LinkTable {
    /// An empty table; `directory` is for the file.
    pub(super) fn new(directory: Option<PathBuf>) -> LinkTable {
        LinkTable {
            recent: vec![None; RECENT_SLOTS],
            turn: 0,
            older: directory.map_or(Older::Nowhere, Older::Unused),
        }
    }

    /// Content and hash of an inode that was read under another name.
    pub(super) fn find(&self, key: &LinkKey) -> Option<(Spot, [u8; 16])> {
        let start = set_of(key);
        let recent = self.recent[start..start + WAYS].iter().flatten();
        let found = recent.copied().find(|link| link.key == *key);
        let found = found.or_else(|| match &self.older {
            Older::File(file) => file.find(key),
            _ => None,
        })?;
        Some((found.spot, found.content_hash))
    }

    /// Remembers what was read.
    pub(super) fn remember(&mut self, key: LinkKey, spot: Spot, content_hash: [u8; 16]) {
        let start = set_of(&key);
        let set = &mut self.recent[start..start + WAYS];
        let is_free = |slot: &Option<Link>| slot.is_none_or(|link| link.key == key);
        let way = set.iter().position(is_free).unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            self.turn
        });
        let link = Link {
            key,
            spot,
            content_hash,
        };
        let before = set[way].replace(link);
        if let Some(older) = before.filter(|older| older.key != key) {
            self.put_away(&older);
        }
    }

    fn put_away(&mut self, link: &Link) {
        if let Older::Unused(directory) = &self.older {
            self.older = match crate::spill::unnamed_file(directory) {
                Ok(file) => Older::File(LinkFile::new(file)),
                Err(_) => Older::Nowhere,
            };
        }
        if let Older::File(file) = &mut self.older
            && file.put(link).is_err()
        {
            self.older = Older::Nowhere;
        }
    }
}

fn set_of(key: &LinkKey) -> usize {
    ((key.hash() >> 32) as usize % (RECENT_SLOTS / WAYS)) * WAYS
}

/// A hash table in a file. Buckets `0..split` and the ones made of their other halves are addressed by one more bit of the
/// hash than the rest.
struct LinkFile {
    file: File,
    /// Buckets when this round of splitting began; a power of two.
    round: u64,
    /// The next bucket to split.
    split: u64,
    links: u64,
    filter: Vec<u64>,
}

type Bucket = [u8; BUCKET_BYTES];

impl LinkFile {
    fn new(file: File) -> LinkFile {
        LinkFile {
            file,
            round: BUCKETS_FIRST,
            split: 0,
            links: 0,
            filter: vec![0; (FILTER_BITS / 64) as usize],
        }
    }

    fn find(&self, key: &LinkKey) -> Option<Link> {
        let hash = key.hash();
        let may_be_there = filter_bits(hash)
            .iter()
            .all(|bit| self.filter[(bit / 64) as usize] >> (bit % 64) & 1 == 1);
        if !may_be_there {
            return None;
        }
        let bucket = self.read(self.bucket_of(hash)).ok()?;
        let mut links = bucket.chunks_exact(RECORD_BYTES).filter_map(decode);
        links.find(|link| link.key == *key)
    }

    fn put(&mut self, link: &Link) -> io::Result<()> {
        let hash = link.key.hash();
        for bit in filter_bits(hash) {
            self.filter[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        let number = self.bucket_of(hash);
        let bucket = self.read(number)?;
        let mut records = bucket.chunks_exact(RECORD_BYTES);
        let free = records.position(|record| match decode(record) {
            Some(other) => other.key == link.key,
            None => true,
        });
        // A full bucket: one of its links is forgotten.
        let slot = free.unwrap_or((hash >> 58) as usize % BUCKET_SLOTS);
        let at = number * BUCKET_BYTES as u64 + (slot * RECORD_BYTES) as u64;
        self.file.write_all_at(&encode(link), at)?;
        self.links += 1;
        if self.links > (self.round + self.split) * BUCKET_LINKS_MEAN {
            self.split_one()?;
        }
        Ok(())
    }

    fn bucket_of(&self, hash: u64) -> u64 {
        let bucket = hash & (self.round - 1);
        match bucket < self.split {
            true => hash & (2 * self.round - 1),
            false => bucket,
        }
    }

    /// Moves what one more bit of the hash says from a bucket to a new one. The new one is written first.
    fn split_one(&mut self) -> io::Result<()> {
        let (low, high) = (self.split, self.round + self.split);
        let bucket = self.read(low)?;
        let mut halves = [[0; BUCKET_BYTES]; 2];
        let mut filled = [0; 2];
        for record in bucket.chunks_exact(RECORD_BYTES) {
            let Some(link) = decode(record) else { continue };
            let half = usize::from(link.key.hash() & self.round != 0);
            halves[half][filled[half]..][..RECORD_BYTES].copy_from_slice(record);
            filled[half] += RECORD_BYTES;
        }
        for (half, number) in [(1, high), (0, low)] {
            self.file
                .write_all_at(&halves[half], number * BUCKET_BYTES as u64)?;
        }
        self.split += 1;
        if self.split == self.round {
            (self.round, self.split) = (2 * self.round, 0);
        }
        Ok(())
    }

    /// What was never written is zero.
    fn read(&self, number: u64) -> io::Result<Bucket> {
        let mut bucket = [0; BUCKET_BYTES];
        let mut filled = 0;
        while filled < BUCKET_BYTES {
            let at = number * BUCKET_BYTES as u64 + filled as u64;
            match self.file.read_at(&mut bucket[filled..], at)? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(bucket)
    }
}

fn filter_bits(hash: u64) -> [u64; 2] {
    [
        hash >> 16 & (FILTER_BITS - 1),
        hash >> 39 & (FILTER_BITS - 1),
    ]
}

/// Tag (1: bundled, 2: pieces), file system, inode, ctime, chunk, size, offset, content hash, and four bytes of a hash of all
/// this: a disk that returns something else must not give a file another's content.
fn encode(link: &Link) -> [u8; RECORD_BYTES] {
    let (tag, chunk, offset) = match link.spot {
        Spot::Bundled { chunk, offset } => (1_u32, chunk, offset),
        Spot::Pieces { chunk } => (2, chunk, 0),
    };
    let key = &link.key;
    let mut record = [0; RECORD_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        record[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&tag.to_le_bytes());
    put(&key.filesystem.to_le_bytes());
    put(&key.inode.to_le_bytes());
    put(&key.ctime.0.to_le_bytes());
    put(&key.ctime.1.to_le_bytes());
    put(&chunk.number().to_le_bytes());
    put(&key.size.to_le_bytes());
    put(&offset.to_le_bytes());
    put(&link.content_hash);
    let check = check_of(&record);
    record[RECORD_BYTES - 4..].copy_from_slice(&check);
    record
}

/// `None`: nothing was written there, or not this.
fn decode(record: &[u8]) -> Option<Link> {
    let number = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
    let long = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    let chunk = ChunkNumber::from_number(number(28));
    let spot = match number(0) {
        1 => Spot::Bundled {
            chunk,
            offset: number(40),
        },
        2 => Spot::Pieces { chunk },
        _ => return None,
    };
    if record[RECORD_BYTES - 4..] != check_of(record) {
        return None;
    }
    Some(Link {
        key: LinkKey {
            filesystem: number(4),
            inode: long(8),
            ctime: (long(16) as i64, number(24)),
            size: long(32),
        },
        spot,
        content_hash: record[44..60].try_into().expect("16 bytes"),
    })
}

fn check_of(record: &[u8]) -> [u8; 4] {
    let hash = blake3::hash(&record[..RECORD_BYTES - 4]);
    hash.as_bytes()[..4].try_into().expect("4 of 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three times what is in memory, and the file goes through several rounds of splitting.
    const LINKS: u64 = 200_000;

    fn key(inode: u64) -> LinkKey {
        LinkKey {
            filesystem: (inode % 3) as u32,
            inode,
            ctime: (-5 - inode as i64, 6),
            size: inode % 4096,
        }
    }

    fn what(inode: u64) -> (Spot, [u8; 16]) {
        let chunk = ChunkNumber::from_number(inode as u32 / 100);
        let spot = match inode % 2 {
            0 => Spot::Pieces { chunk },
            _ => Spot::Bundled {
                chunk,
                offset: inode as u32 % 7_000,
            },
        };
        (spot, [inode as u8; 16])
    }

    #[test]
    fn far_more_links_than_fit_in_memory_are_all_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let mut table = LinkTable::new(Some(directory.path().to_owned()));
        for inode in 0..LINKS {
            let (spot, hash) = what(inode);
            assert_eq!(table.find(&key(inode)), None);
            table.remember(key(inode), spot, hash);
        }
        let mut forgotten = 0;
        for inode in 0..LINKS {
            match table.find(&key(inode)) {
                Some(found) => assert_eq!(found, what(inode)),
                None => forgotten += 1,
            }
        }
        assert!(forgotten <= LINKS / 10_000, "{forgotten}");
        assert_eq!(table.find(&key(LINKS)), None);
        let changed = LinkKey {
            ctime: (0, 0),
            ..key(1)
        };
        assert_eq!(table.find(&changed), None, "a later change is another key");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_a_file_old_links_are_forgotten_and_none_is_wrong() {
        let mut table = LinkTable::new(None);
        for inode in 0..LINKS {
            let (spot, hash) = what(inode);
            table.remember(key(inode), spot, hash);
        }
        let found = (0..LINKS).filter(|inode| {
            let found = table.find(&key(*inode));
            assert!(found.is_none_or(|found| found == what(*inode)));
            found.is_some()
        });
        let found = found.count();
        assert!(
            (RECENT_SLOTS / 2..=RECENT_SLOTS).contains(&found),
            "{found}"
        );
    }

    #[test]
    fn what_the_disk_made_of_a_record_is_not_believed() {
        let (spot, content_hash) = what(77);
        let link = Link {
            key: key(77),
            spot,
            content_hash,
        };
        let record = encode(&link);
        assert_eq!(decode(&record), Some(link));
        for bit in 0..8 * RECORD_BYTES {
            let mut flipped = record;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), None, "bit {bit}");
        }
    }
}
