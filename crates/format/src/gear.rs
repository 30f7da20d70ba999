//! Where large files are cut: a gear hash, its table made from the repository's key.
//! docs/FORMAT.md, section 7.
//!
//! Cut points are format: equal content must give equal chunks for ever, so golden vectors hold
//! this loop in place.

use crate::config::ChunkSizes;

/// Bytes that a 64-bit gear hash remembers.
const GEAR_WINDOW_BYTES: usize = 64;
/// Bytes that are looked at as a whole.
const STRETCH_BYTES: usize = 4096;
const GEAR_TABLE_BYTES: usize = 256 * 8;

/// One random number for each byte value.
#[derive(Clone)]
pub struct GearTable([u64; 256]);

impl GearTable {
    /// From the repository's gear key.
    pub(crate) fn from_key(gear_key: &[u8; 32]) -> GearTable {
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

    /// Length of the piece that starts where `data` does, or `None` if it does not end within
    /// `data`.
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

    /// Goes on with `data`. `Some(n)`: the piece ends after `n` bytes of it, and the next one
    /// starts there: push the rest again.
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
///
/// Most bytes have no such hash after them, so two stretches at a time are only asked whether they
/// have one: a hash waits for the one before it, but the two do not wait for each other. 1.3 times
/// as fast as one stretch.
fn find(table: &GearTable, mut hash: u64, below: u64, data: &[u8]) -> (Option<usize>, u64) {
    let (pairs, _) = data.as_chunks::<{ 2 * STRETCH_BYTES }>();
    let mut passed = 0;
    for pair in pairs {
        match pass_pair(table, hash, below, pair) {
            Some(at_end) => hash = at_end,
            None => break,
        }
        passed += pair.len();
    }
    for (position, byte) in data[passed..].iter().enumerate() {
        hash = (hash << 1).wrapping_add(table.0[usize::from(*byte)]);
        if hash < below {
            return (Some(passed + position + 1), hash);
        }
    }
    (None, hash)
}

/// The hash at the end, if it is below `below` nowhere.
fn pass_pair(
    table: &GearTable,
    hash: u64,
    below: u64,
    pair: &[u8; 2 * STRETCH_BYTES],
) -> Option<u64> {
    let (first, second) = pair.split_at(STRETCH_BYTES);
    // A hash remembers the last 64 bytes and nothing else.
    let mut hashes = [
        hash,
        roll(table, 0, &first[STRETCH_BYTES - GEAR_WINDOW_BYTES..]),
    ];
    for (first, second) in first
        .as_chunks::<16>()
        .0
        .iter()
        .zip(second.as_chunks::<16>().0)
    {
        for bytes in first.iter().zip(second) {
            hashes[0] = (hashes[0] << 1).wrapping_add(table.0[usize::from(*bytes.0)]);
            hashes[1] = (hashes[1] << 1).wrapping_add(table.0[usize::from(*bytes.1)]);
            if hashes[0] < below || hashes[1] < below {
                return None;
            }
        }
    }
    Some(hashes[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule as the page states it: byte by byte.
    fn cut_simply(table: &GearTable, data: &[u8], sizes: &ChunkSizes) -> usize {
        let below = 1 << (64 - sizes.avg.trailing_zeros());
        let mut hash = 0u64;
        for (at, byte) in data.iter().enumerate() {
            hash = (hash << 1).wrapping_add(table.0[usize::from(*byte)]);
            let length = at + 1;
            if length >= sizes.max as usize || length >= sizes.min as usize && hash < below {
                return length;
            }
        }
        data.len()
    }

    #[test]
    fn cuts_are_where_the_rule_has_them_however_the_data_comes() {
        let table = GearTable::from_key(&[3; 32]);
        let mut data = vec![0; 3 << 20];
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"data").finalize_xof().fill(&mut data);
        data[1 << 20..][..200_000].fill(7);
        for (min, avg, max) in [
            (64, 4096, 9000),
            (1000, 65536, 1 << 20),
            (4096, 1 << 20, 1 << 21),
        ] {
            let sizes = ChunkSizes { min, avg, max };
            for portion in [1 << 20, 70_001, 333] {
                let mut cutter = Cutter::new(&sizes);
                let (mut start, mut at) = (0, 0);
                while at < data.len() {
                    let end = (at + portion).min(data.len());
                    match cutter.push(&table, &data[at..end]) {
                        Some(count) => {
                            at += count;
                            assert_eq!(at - start, cut_simply(&table, &data[start..], &sizes));
                            start = at;
                        }
                        None => at = end,
                    }
                }
                assert_eq!(
                    data.len() - start,
                    cut_simply(&table, &data[start..], &sizes)
                );
            }
        }
    }
}
