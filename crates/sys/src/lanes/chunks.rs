//! Contents cut into the chunks of BLAKE3, each of which goes through whatever lane is free, and
//! joined again.

use super::alone;
use super::registers::{BLOCK_BYTES, Chaining, LANES, Registers, Step};

/// Longer contents fill the library's lanes by themselves: four kibibytes of one content take
/// four of them, and are a fifth quicker there.
const TOGETHER_BYTES_MAX: usize = (4 << 10) - 1;
const CHUNK_BYTES: usize = 1024;

// Flags of the paper's section 2.2.
const CHUNK_START: u32 = 1 << 0;
const CHUNK_END: u32 = 1 << 1;
const PARENT: u32 = 1 << 2;
const ROOT: u32 = 1 << 3;
const KEYED_HASH: u32 = 1 << 4;

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
fn hash_chunks(registers: Registers, key: &Chaining, contents: &[&[u8]], nodes: &mut [Chaining]) {
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

/// Joins neighbours level by level, until the first slot of each content holds its root. An odd
/// one waits for the next level: so the left side of every node is a full tree, as the paper
/// has it.
fn hash_parents(registers: Registers, key: &Chaining, contents: &[&[u8]], nodes: &mut [Chaining]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Those that this processor has.
    fn all_registers() -> Vec<Registers> {
        let has_avx512 = matches!(Registers::of_this_processor(), Some(Registers::Avx512));
        let avx2 = is_x86_feature_detected!("avx2").then_some(Registers::Avx2);
        let avx512 = has_avx512.then_some(Registers::Avx512);
        avx2.into_iter().chain(avx512).collect()
    }

    proptest! {
        #[test]
        fn any_contents_hash_as_one_by_one(
            key: [u8; 32],
            bytes in prop::collection::vec(any::<u8>(), 6000),
            cuts in prop::collection::vec((0..6000usize, 0..6000usize), 0..30),
        ) {
            let content = |(start, len): &(usize, usize)| {
                &bytes[*start..(start + len).min(bytes.len())]
            };
            let contents: Vec<&[u8]> = cuts.iter().map(content).collect();
            let expected: Vec<[u8; 32]> =
                contents.iter().map(|content| alone(&key, content)).collect();
            for registers in all_registers() {
                let mut hashes = Vec::new();
                keyed_hashes(registers, &key, &contents, &mut hashes);
                prop_assert_eq!(&hashes, &expected);
            }
        }
    }

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
        for registers in all_registers() {
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
