//! The hash that orders the names of an indexed directory: "half MD4", over unsigned characters.

/// The two halves by which names are ordered; the index holds the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameHash {
    pub major: u32,
    pub minor: u32,
}

/// Values of the field that tells readers which hash was used.
pub(super) const HASH_VERSION_HALF_MD4: u8 = 1;
/// The value kept for the end of a directory.
const MAJOR_END: u32 = 0xffff_fffe;
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// Bytes of a name per round of the hash.
const ROUND_BYTES: usize = 32;

/// Hashes names with the seed of one file system.
#[derive(Clone, Debug)]
pub(super) struct NameHasher {
    start: [u32; 4],
}

impl NameHasher {
    /// A seed of zeros means the hash's own start values.
    pub fn new(seed: &[u8; 16]) -> NameHasher {
        let mut words = [0u32; 4];
        for (word, bytes) in words.iter_mut().zip(seed.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        NameHasher {
            start: if words == [0; 4] { START } else { words },
        }
    }

    pub fn hash(&self, name: &[u8]) -> NameHash {
        let mut state = self.start;
        for (round, part) in name.chunks(ROUND_BYTES).enumerate() {
            let left = name.len() - round * ROUND_BYTES;
            half_md4(&mut state, &round_words(part, left));
        }
        let major = state[1] & !1;
        NameHash {
            major: if major == MAJOR_END {
                MAJOR_END - 2
            } else {
                major
            },
            minor: state[2],
        }
    }
}

/// Packs up to 32 bytes big-endian into eight words; what is missing is filled with the length.
fn round_words(part: &[u8], bytes_left: usize) -> [u32; 8] {
    let length = (bytes_left as u32 & 0xff) | (bytes_left as u32 & 0xff) << 8;
    let pad = length | length << 16;
    let mut words = [pad; 8];
    for (word, bytes) in words.iter_mut().zip(part.chunks(4)) {
        for byte in bytes {
            *word = u32::from(*byte).wrapping_add(*word << 8);
        }
    }
    words
}

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    fn f(x: u32, y: u32, z: u32) -> u32 {
        z ^ (x & (y ^ z))
    }
    fn g(x: u32, y: u32, z: u32) -> u32 {
        (x & y).wrapping_add((x ^ y) & z)
    }
    fn h(x: u32, y: u32, z: u32) -> u32 {
        x ^ y ^ z
    }
    type Mix = fn(u32, u32, u32) -> u32;
    const ROUNDS: [(Mix, u32, [u32; 4], [usize; 8]); 3] = [
        (f, 0, [3, 7, 11, 19], [0, 1, 2, 3, 4, 5, 6, 7]),
        (g, 0x5a82_7999, [3, 5, 9, 13], [1, 3, 5, 7, 0, 2, 4, 6]),
        (h, 0x6ed9_eba1, [3, 9, 11, 15], [3, 7, 2, 6, 1, 5, 0, 4]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, shifts, order) in ROUNDS {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a
                .wrapping_add(mix(b, c, d))
                .wrapping_add(input[word])
                .wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, value) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(value);
    }
}
