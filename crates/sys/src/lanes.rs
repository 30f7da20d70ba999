//! BLAKE3 of many small contents at once: eight blocks of different contents go through one set of vector registers.
//!
//! The algorithm has eight or sixteen lanes for the kibibytes of one long input; a content of one or two kibibytes
//! leaves all but one of them empty, and takes several times as long a byte. Here each lane has a kibibyte of whatever content is
//! next, and takes another when it is done. Results are those of `blake3::keyed_hash`, which is used where a processor has
//! no such registers, and for contents that fill them alone.

/// The keyed BLAKE3 hash of each of `contents`, in their order. `hashes` is replaced.
pub fn keyed_hashes(key: &[u8; 32], contents: &[&[u8]], hashes: &mut Vec<[u8; 32]>) {
    hashes.clear();
    #[cfg(target_arch = "x86_64")]
    if let Some(registers) = x86::Registers::of_this_processor() {
        return x86::keyed_hashes(registers, key, contents, hashes);
    }
    hashes.extend(contents.iter().map(|content| alone(key, content)));
}

fn alone(key: &[u8; 32], content: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key, content).as_bytes()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::alone;
    use std::arch::x86_64::*;

    /// Longer contents fill the lanes by themselves.
    const TOGETHER_BYTES_MAX: usize = 4 << 10;
    const LANES: usize = 8;
    const BLOCK_BYTES: usize = 64;
    const CHUNK_BYTES: usize = 1024;

    // Flags of the paper's section 2.2.
    const CHUNK_START: u32 = 1 << 0;
    const CHUNK_END: u32 = 1 << 1;
    const PARENT: u32 = 1 << 2;
    const ROOT: u32 = 1 << 3;
    const KEYED_HASH: u32 = 1 << 4;

    const IV: [u32; 8] = [
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
        0x5be0cd19,
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
    type Chaining = [u32; 8];

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

        fn compress(self, step: &mut Step) {
            match self {
                // SAFETY: `of_this_processor` found these instructions.
                Registers::Avx2 => unsafe { avx2::compress(step) },
                // SAFETY: as above.
                Registers::Avx512 => unsafe { avx512::compress(step) },
            }
        }
    }

    /// What one pass through the registers works on, by lane.
    struct Step {
        /// Word by word: all lanes' first, then all lanes' second.
        chaining: [[u32; LANES]; 8],
        blocks: [[u8; BLOCK_BYTES]; LANES],
        counters: [u32; LANES],
        lens: [u32; LANES],
        flags: [u32; LANES],
    }

    impl Step {
        fn new() -> Step {
            Step {
                chaining: [[0; LANES]; 8],
                blocks: [[0; BLOCK_BYTES]; LANES],
                counters: [0; LANES],
                lens: [0; LANES],
                flags: [0; LANES],
            }
        }

        fn begin(&mut self, lane: usize, chaining: &Chaining) {
            for (words, word) in self.chaining.iter_mut().zip(chaining) {
                words[lane] = *word;
            }
        }

        fn end(&self, lane: usize) -> Chaining {
            self.chaining.map(|words| words[lane])
        }
    }

    /// A chunk of a content on its way through a lane.
    #[derive(Clone, Copy)]
    struct Chunk<'a> {
        rest: &'a [u8],
        number: u32,
        is_first_block: bool,
        is_root: bool,
        /// Where its chaining value goes.
        slot: usize,
    }

    impl Chunk<'_> {
        fn next_block(&mut self, lane: usize, step: &mut Step) {
            let mut flags = KEYED_HASH;
            if std::mem::take(&mut self.is_first_block) {
                flags |= CHUNK_START;
            }
            match self.rest.split_first_chunk() {
                Some((block, rest)) => {
                    step.blocks[lane] = *block;
                    step.lens[lane] = BLOCK_BYTES as u32;
                    self.rest = rest;
                }
                None => {
                    let (bytes, behind) = step.blocks[lane].split_at_mut(self.rest.len());
                    bytes.copy_from_slice(self.rest);
                    behind.fill(0);
                    step.lens[lane] = self.rest.len() as u32;
                    self.rest = &[];
                }
            }
            if self.rest.is_empty() {
                flags |= CHUNK_END | if self.is_root { ROOT } else { 0 };
            }
            step.flags[lane] = flags;
            step.counters[lane] = self.number;
        }
    }

    /// Chunks of all contents that are hashed together, in order.
    struct Chunks<'a> {
        contents: std::slice::Iter<'a, &'a [u8]>,
        rest: &'a [u8],
        number: u32,
        slot: usize,
        is_within: bool,
    }

    impl<'a> Iterator for Chunks<'a> {
        type Item = Chunk<'a>;

        fn next(&mut self) -> Option<Chunk<'a>> {
            if !self.is_within {
                self.rest = self.contents.find(|content| is_together(content))?;
                self.number = 0;
            }
            let (chunk, rest) = self.rest.split_at(self.rest.len().min(CHUNK_BYTES));
            let next = Chunk {
                rest: chunk,
                number: self.number,
                is_first_block: true,
                is_root: self.number == 0 && rest.is_empty(),
                slot: self.slot,
            };
            self.rest = rest;
            self.number += 1;
            self.slot += 1;
            self.is_within = !rest.is_empty();
            Some(next)
        }
    }

    fn is_together(content: &[u8]) -> bool {
        content.len() <= TOGETHER_BYTES_MAX
    }

    fn chunks_of(content: &[u8]) -> usize {
        content.len().div_ceil(CHUNK_BYTES).max(1)
    }

    pub(super) fn keyed_hashes(
        registers: Registers,
        key: &[u8; 32],
        contents: &[&[u8]],
        hashes: &mut Vec<[u8; 32]>,
    ) {
        let words = words_of(key);
        let together = contents.iter().filter(|content| is_together(content));
        let mut nodes = vec![[0; 8]; together.map(|content| chunks_of(content)).sum()];
        hash_chunks(registers, &words, contents, &mut nodes);
        hash_parents(registers, &words, contents, &mut nodes);
        let mut slot = 0;
        for content in contents {
            if !is_together(content) {
                hashes.push(alone(key, content));
                continue;
            }
            hashes.push(bytes_of(&nodes[slot]));
            slot += chunks_of(content);
        }
    }

    /// The chaining value of each chunk, into its slot of `nodes`.
    fn hash_chunks(
        registers: Registers,
        key: &Chaining,
        contents: &[&[u8]],
        nodes: &mut [Chaining],
    ) {
        let mut chunks = Chunks {
            contents: contents.iter(),
            rest: &[],
            number: 0,
            slot: 0,
            is_within: false,
        };
        let mut lanes: [Option<Chunk<'_>>; LANES] = [None; LANES];
        let mut step = Step::new();
        loop {
            let mut is_busy = false;
            for (lane, place) in lanes.iter_mut().enumerate() {
                if place.is_none() {
                    *place = chunks.next();
                    step.begin(lane, key);
                }
                if let Some(chunk) = place {
                    is_busy = true;
                    chunk.next_block(lane, &mut step);
                }
            }
            if !is_busy {
                return;
            }
            registers.compress(&mut step);
            for (lane, place) in lanes.iter_mut().enumerate() {
                if let Some(chunk) = place
                    && chunk.rest.is_empty()
                {
                    nodes[chunk.slot] = step.end(lane);
                    *place = None;
                }
            }
        }
    }

    /// Joins neighbours level by level, until the first slot of each content holds its root. An odd one waits for the next
    /// level: so the left side of every node is a full tree, as the paper has it.
    fn hash_parents(
        registers: Registers,
        key: &Chaining,
        contents: &[&[u8]],
        nodes: &mut [Chaining],
    ) {
        let mut distance = 1;
        let mut pairs = Vec::new();
        loop {
            pairs.clear();
            let mut slot = 0;
            for content in contents.iter().filter(|content| is_together(content)) {
                let count = chunks_of(content);
                let flags = KEYED_HASH | PARENT | if distance * 2 >= count { ROOT } else { 0 };
                let lefts = (0..count.saturating_sub(distance)).step_by(2 * distance);
                pairs.extend(lefts.map(|left| (slot + left, flags)));
                slot += count;
            }
            if pairs.is_empty() {
                return;
            }
            for some in pairs.chunks(LANES) {
                let mut step = Step::new();
                for (lane, (left, flags)) in some.iter().enumerate() {
                    step.begin(lane, key);
                    let (one, other) = step.blocks[lane].split_at_mut(BLOCK_BYTES / 2);
                    one.copy_from_slice(&bytes_of(&nodes[*left]));
                    other.copy_from_slice(&bytes_of(&nodes[left + distance]));
                    step.lens[lane] = BLOCK_BYTES as u32;
                    step.flags[lane] = *flags;
                }
                registers.compress(&mut step);
                for (lane, (left, _)) in some.iter().enumerate() {
                    nodes[*left] = step.end(lane);
                }
            }
            distance *= 2;
        }
    }

    fn words_of(bytes: &[u8; 32]) -> Chaining {
        let (words, _) = bytes.as_chunks::<4>();
        std::array::from_fn(|word| u32::from_le_bytes(words[word]))
    }

    fn bytes_of(chaining: &Chaining) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(chaining) {
            *bytes = word.to_le_bytes();
        }
        bytes
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
            // SAFETY: 32 bytes from 0 or 32 on are inside of the 64, at any address. Words are little-endian here as there.
            unsafe { _mm256_loadu_si256(block.as_ptr().add(half * 32).cast()) }
        };
        let rows = |at: usize| std::array::from_fn(|lane| half(&blocks[lane], at));
        let (low, high) = (transposed_square(rows(0)), transposed_square(rows(1)));
        let mut words = [_mm256_setzero_si256(); 16];
        words[..8].copy_from_slice(&low);
        words[8..].copy_from_slice(&high);
        words
    }

    /// Rows to columns: words of two rows, then pairs of words of four, then halves of all eight change places.
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

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn each_set_of_registers_there_is_says_what_blake3_says() {
            let bytes: Vec<u8> = (0..20_000u32).map(|n| (n * n / 7) as u8).collect();
            let lens = [
                0, 1, 63, 64, 65, 1023, 1024, 1025, 1500, 2048, 2049, 3072, 3073,
            ]
            .into_iter()
            .chain((0..400).map(|n| n * 37 % 2100))
            .chain([4096, 5000, 6145, 7168, 7169, 8191, 8192, 8193, 20_000, 3]);
            let contents: Vec<&[u8]> = lens.map(|len| &bytes[20_000 - len..]).collect();
            let key = std::array::from_fn(|at| at as u8 * 3);
            let has_avx512 = matches!(Registers::of_this_processor(), Some(Registers::Avx512));
            let all = [
                (Registers::Avx2, is_x86_feature_detected!("avx2")),
                (Registers::Avx512, has_avx512),
            ];
            for (registers, _) in all.into_iter().filter(|(_, is_there)| *is_there) {
                // Any number of contents, also fewer than there are lanes.
                for count in (0..20).chain([contents.len()]) {
                    let some = &contents[..count];
                    let mut hashes = Vec::new();
                    keyed_hashes(registers, &key, some, &mut hashes);
                    let expected: Vec<[u8; 32]> =
                        some.iter().map(|content| alone(&key, content)).collect();
                    assert_eq!(hashes, expected);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_come_in_the_order_of_the_contents() {
        let key = [7; 32];
        let long = vec![1; 10_000];
        let contents: [&[u8]; 4] = [b"first", &long, b"", b"last"];
        let mut hashes = vec![[9; 32]];
        keyed_hashes(&key, &contents, &mut hashes);
        assert_eq!(hashes, contents.map(|content| alone(&key, content)));
    }
}
