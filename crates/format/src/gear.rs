//! Where large files are cut: a gear hash, its table made from the repository's key. docs/FORMAT.md, section 7.
//!
//! Cut points are format: equal content must give equal chunks for ever, so golden vectors hold this loop in place.

use crate::config::ChunkSizes;

/// Bytes that a 64-bit gear hash remembers.
const GEAR_WINDOW_BYTES: usize = 64;
/// Bytes of the table.
const GEAR_TABLE_BYTES: usize = 256 * 8;

/// One random number for each byte value.
#[derive(Clone)]
pub struct GearTable([u64; 256]);

impl GearTable {
    /// From the repository's gear key.
    pub fn from_key(gear_key: &[u8; 32]) -> GearTable {
        let mut bytes = [0; GEAR_TABLE_BYTES];
        blake3::Hasher::new_keyed(gear_key)
            .update(b"gear")
            .finalize_xof()
            .fill(&mut bytes);
        let mut table = [0; 256];
        for (number, bytes) in table.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().expect("chunks of 8 have 8 bytes"));
        }
        GearTable(table)
    }

    /// Length of the piece that starts where `data` does, or `None` if it does not end within `data`.
    pub fn cut(&self, data: &[u8], sizes: &ChunkSizes) -> Option<usize> {
        Cutter::new(sizes).push(self, data)
    }
}

/// Looks for the end of one piece in data that comes bit by bit.
#[derive(Clone, Debug)]
pub struct Cutter {
    min: usize,
    max: usize,
    /// A cut is where the hash is below this.
    below: u64,
    length: usize,
    hash: u64,
}

impl Cutter {
    /// At the start of a piece.
    pub fn new(sizes: &ChunkSizes) -> Cutter {
        Cutter {
            min: (sizes.min as usize).max(GEAR_WINDOW_BYTES),
            max: sizes.max as usize,
            below: 1 << (64 - sizes.avg.trailing_zeros().clamp(1, 63)),
            length: 0,
            hash: 0,
        }
    }

    /// Bytes of the current piece seen so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The piece was ended for another reason: a hole, or the end of the file.
    pub fn restart(&mut self) {
        self.length = 0;
        self.hash = 0;
    }

    /// Goes on with `data`. `Some(n)`: the piece ends after `n` bytes of it, and the next one starts there: push the rest again.
    pub fn push(&mut self, table: &GearTable, data: &[u8]) -> Option<usize> {
        let mut at = 0;
        // Bytes that no tested hash can remember.
        at += self.pass(data.len(), self.min - GEAR_WINDOW_BYTES);
        let warm_end = at + self.room(data.len() - at, self.min - 1);
        self.hash = roll(table, self.hash, &data[at..warm_end]);
        self.length += warm_end - at;
        at = warm_end;
        let test_end = at + self.room(data.len() - at, self.max);
        if self.length + 1 >= self.min {
            let (found, hash) = find(table, self.hash, self.below, &data[at..test_end]);
            if let Some(count) = found {
                self.restart();
                return Some(at + count);
            }
            self.hash = hash;
        }
        self.length += test_end - at;
        if self.length >= self.max {
            self.restart();
            return Some(test_end);
        }
        None
    }

    fn room(&self, available: usize, until: usize) -> usize {
        until.saturating_sub(self.length).min(available)
    }

    fn pass(&mut self, available: usize, until: usize) -> usize {
        let count = self.room(available, until);
        self.length += count;
        count
    }
}

fn roll(table: &GearTable, mut hash: u64, data: &[u8]) -> u64 {
    for byte in data {
        hash = (hash << 1).wrapping_add(table.0[usize::from(*byte)]);
    }
    hash
}

/// Number of bytes up to and with the first one after which the hash is below `below`.
fn find(table: &GearTable, mut hash: u64, below: u64, data: &[u8]) -> (Option<usize>, u64) {
    let (words, rest) = data.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        // One load for eight bytes: the table's loads are what limits this loop.
        let mut bytes = u64::from_le_bytes(*word);
        for position in 1..=word.len() {
            hash = (hash << 1).wrapping_add(table.0[usize::from(bytes as u8)]);
            bytes >>= 8;
            if hash < below {
                return (Some(number * word.len() + position), hash);
            }
        }
    }
    for (position, byte) in rest.iter().enumerate() {
        hash = (hash << 1).wrapping_add(table.0[usize::from(*byte)]);
        if hash < below {
            return (Some(data.len() - rest.len() + position + 1), hash);
        }
    }
    (None, hash)
}
