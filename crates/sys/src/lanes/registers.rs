//! The compression function of BLAKE3 for eight blocks at once, in the vector registers of x86.

use std::arch::x86_64::*;

pub(super) const LANES: usize = 8;
pub(super) const BLOCK_BYTES: usize = 64;

const IV: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];
const ROUNDS: usize = 7;
const PERMUTATION: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
/// Which word of a block is used where in each round.
const SCHEDULE: [[usize; 16]; ROUNDS] = {
    let mut rounds = [[0; 16]; ROUNDS];
    let (mut round, mut word) = (0, 0);
    while word < 16 {
        rounds[0][word] = word;
        word += 1;
    }
    while round + 1 < ROUNDS {
        word = 0;
        while word < 16 {
            rounds[round + 1][word] = rounds[round][PERMUTATION[word]];
            word += 1;
        }
        round += 1;
    }
    rounds
};

/// Chaining value: of a chunk as far as it has come, or of a whole subtree.
pub(super) type Chaining = [u32; 8];

/// Which instructions a processor has.
#[derive(Clone, Copy)]
pub(super) enum Registers {
    Avx2,
    /// The same registers, more of them, and they rotate.
    Avx512,
}

impl Registers {
    pub(super) fn of_this_processor() -> Option<Registers> {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            return Some(Registers::Avx512);
        }
        is_x86_feature_detected!("avx2").then_some(Registers::Avx2)
    }

    pub(super) fn compress(self, step: &mut Step) {
        match self {
            // SAFETY: `of_this_processor` found these instructions.
            Registers::Avx2 => unsafe { avx2::compress(step) },
            // SAFETY: as above.
            Registers::Avx512 => unsafe { avx512::compress(step) },
        }
    }
}

/// What one pass through the registers works on, by lane.
pub(super) struct Step {
    /// Word by word: all lanes' first, then all lanes' second.
    pub(super) chaining: [[u32; LANES]; 8],
    pub(super) blocks: [[u8; BLOCK_BYTES]; LANES],
    pub(super) counters: [u32; LANES],
    pub(super) lens: [u32; LANES],
    pub(super) flags: [u32; LANES],
}

impl Step {
    pub(super) fn new() -> Step {
        Step {
            chaining: [[0; LANES]; 8],
            blocks: [[0; BLOCK_BYTES]; LANES],
            counters: [0; LANES],
            lens: [0; LANES],
            flags: [0; LANES],
        }
    }

    pub(super) fn begin(&mut self, lane: usize, chaining: &Chaining) {
        for (words, word) in self.chaining.iter_mut().zip(chaining) {
            words[lane] = *word;
        }
    }

    pub(super) fn end(&self, lane: usize) -> Chaining {
        self.chaining.map(|words| words[lane])
    }
}

/// The compression function in eight lanes, with the rotations of one set of instructions.
macro_rules! compress_with {
    ($module:ident, $features:literal, $rotate:ident) => {
        mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            pub(super) fn compress(step: &mut Step) {
                let words = transposed(&step.blocks);
                let chaining = step.chaining.map(|words| load(&words));
                let mut state = [_mm256_setzero_si256(); 16];
                state[..8].copy_from_slice(&chaining);
                for word in 0..4 {
                    state[8 + word] = _mm256_set1_epi32(IV[word] as i32);
                }
                state[12] = load(&step.counters);
                state[14] = load(&step.lens);
                state[15] = load(&step.flags);
                for schedule in &SCHEDULE {
                    let word = |at: usize| words[schedule[at]];
                    mix(&mut state, [0, 4, 8, 12], word(0), word(1));
                    mix(&mut state, [1, 5, 9, 13], word(2), word(3));
                    mix(&mut state, [2, 6, 10, 14], word(4), word(5));
                    mix(&mut state, [3, 7, 11, 15], word(6), word(7));
                    mix(&mut state, [0, 5, 10, 15], word(8), word(9));
                    mix(&mut state, [1, 6, 11, 12], word(10), word(11));
                    mix(&mut state, [2, 7, 8, 13], word(12), word(13));
                    mix(&mut state, [3, 4, 9, 14], word(14), word(15));
                }
                for word in 0..8 {
                    let mixed = _mm256_xor_si256(state[word], state[word + 8]);
                    store(mixed, &mut step.chaining[word]);
                }
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn mix(state: &mut [__m256i; 16], at: [usize; 4], x: __m256i, y: __m256i) {
                let [a, b, c, d] = at;
                state[a] = _mm256_add_epi32(_mm256_add_epi32(state[a], state[b]), x);
                state[d] = $rotate::<16, 16>(_mm256_xor_si256(state[d], state[a]));
                state[c] = _mm256_add_epi32(state[c], state[d]);
                state[b] = $rotate::<12, 20>(_mm256_xor_si256(state[b], state[c]));
                state[a] = _mm256_add_epi32(_mm256_add_epi32(state[a], state[b]), y);
                state[d] = $rotate::<8, 24>(_mm256_xor_si256(state[d], state[a]));
                state[c] = _mm256_add_epi32(state[c], state[d]);
                state[b] = $rotate::<7, 25>(_mm256_xor_si256(state[b], state[c]));
            }
        }
    };
}

compress_with!(avx2, "avx2", rotate_by_shifts);
compress_with!(avx512, "avx2,avx512f,avx512vl", rotate);

#[target_feature(enable = "avx2,avx512f,avx512vl")]
#[inline]
fn rotate<const RIGHT: i32, const LEFT: i32>(words: __m256i) -> __m256i {
    _mm256_ror_epi32::<RIGHT>(words)
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotate_by_shifts<const RIGHT: i32, const LEFT: i32>(words: __m256i) -> __m256i {
    _mm256_or_si256(
        _mm256_srli_epi32::<RIGHT>(words),
        _mm256_slli_epi32::<LEFT>(words),
    )
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(words: &[u32; LANES]) -> __m256i {
    // SAFETY: eight words are 32 bytes, at any address.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(vector: __m256i, words: &mut [u32; LANES]) {
    // SAFETY: eight words are 32 bytes, at any address.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) }
}

/// The sixteen words of the blocks, each with one lane for each block.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed(blocks: &[[u8; BLOCK_BYTES]; LANES]) -> [__m256i; 16] {
    let half = |block: &[u8; BLOCK_BYTES], half: usize| {
        // SAFETY: 32 bytes from 0 or 32 on are inside of the 64, at any address. Words are
        // little-endian here as there.
        unsafe { _mm256_loadu_si256(block.as_ptr().add(half * 32).cast()) }
    };
    let rows = |at: usize| std::array::from_fn(|lane| half(&blocks[lane], at));
    let (low, high) = (transposed_square(rows(0)), transposed_square(rows(1)));
    let mut words = [_mm256_setzero_si256(); 16];
    words[..8].copy_from_slice(&low);
    words[8..].copy_from_slice(&high);
    words
}

/// Rows to columns: words of two rows, then pairs of words of four, then halves of all eight
/// change places.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed_square(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let words = [
        _mm256_unpacklo_epi32(a, b),
        _mm256_unpackhi_epi32(a, b),
        _mm256_unpacklo_epi32(c, d),
        _mm256_unpackhi_epi32(c, d),
        _mm256_unpacklo_epi32(e, f),
        _mm256_unpackhi_epi32(e, f),
        _mm256_unpacklo_epi32(g, h),
        _mm256_unpackhi_epi32(g, h),
    ];
    let pairs = [
        _mm256_unpacklo_epi64(words[0], words[2]),
        _mm256_unpackhi_epi64(words[0], words[2]),
        _mm256_unpacklo_epi64(words[1], words[3]),
        _mm256_unpackhi_epi64(words[1], words[3]),
        _mm256_unpacklo_epi64(words[4], words[6]),
        _mm256_unpackhi_epi64(words[4], words[6]),
        _mm256_unpacklo_epi64(words[5], words[7]),
        _mm256_unpackhi_epi64(words[5], words[7]),
    ];
    [
        _mm256_permute2x128_si256::<0x20>(pairs[0], pairs[4]),
        _mm256_permute2x128_si256::<0x20>(pairs[1], pairs[5]),
        _mm256_permute2x128_si256::<0x20>(pairs[2], pairs[6]),
        _mm256_permute2x128_si256::<0x20>(pairs[3], pairs[7]),
        _mm256_permute2x128_si256::<0x31>(pairs[0], pairs[4]),
        _mm256_permute2x128_si256::<0x31>(pairs[1], pairs[5]),
        _mm256_permute2x128_si256::<0x31>(pairs[2], pairs[6]),
        _mm256_permute2x128_si256::<0x31>(pairs[3], pairs[7]),
    ]
}
