//! One bit for each block, read and set by many threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BITS: u64 = 64;

pub struct BlockBits {
    words: Vec<AtomicU64>,
    blocks: u64,
}

impl BlockBits {
    /// Little-endian bytes, eight at least for each word; those behind the last block do not count.
    pub fn from_bytes(bytes: &[u8], blocks: u64) -> BlockBits {
        let words = bytes.as_chunks::<8>().0.iter();
        let words = words.map(|word| AtomicU64::new(u64::from_le_bytes(*word)));
        BlockBits {
            words: words.collect(),
            blocks,
        }
    }

    fn word(&self, number: u64) -> u64 {
        self.words[number as usize].load(Ordering::Acquire)
    }

    pub fn has(&self, block: u64) -> bool {
        self.word(block / WORD_BITS) >> (block % WORD_BITS) & 1 == 1
    }

    pub fn set(&self, blocks: Range<u64>) {
        let mut at = blocks.start;
        while at < blocks.end {
            let (word, bit) = (at / WORD_BITS, at % WORD_BITS);
            let count = (WORD_BITS - bit).min(blocks.end - at);
            let mask = (u64::MAX >> (WORD_BITS - count)) << bit;
            self.words[word as usize].fetch_or(mask, Ordering::Release);
            at += count;
        }
    }

    /// The block behind those from this one on that are set as it is, and whether it is.
    pub fn alike(&self, block: u64) -> (u64, bool) {
        let is_set = self.has(block);
        let mut at = block;
        while at < self.blocks {
            let bit = at % WORD_BITS;
            let word = self.word(at / WORD_BITS) ^ if is_set { u64::MAX } else { 0 };
            // Of those from here on, the first that is other.
            let other = u64::from((word >> bit).trailing_zeros());
            if other < WORD_BITS - bit {
                return ((at + other).min(self.blocks), is_set);
            }
            at += WORD_BITS - bit;
        }
        (self.blocks, is_set)
    }

    /// Bytes of the map that belong to one page of so many.
    pub fn page(&self, page: u64, page_bytes: usize) -> Vec<u8> {
        let words = page_bytes / 8;
        let from = page as usize * words;
        let words = &self.words[from..from + words];
        let bytes = words.iter().map(|word| word.load(Ordering::Acquire));
        bytes.flat_map(u64::to_le_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_and_set_across_words_and_end_with_the_last_block() {
        for blocks in [1, 63, 64, 65, 1000] {
            let bits = BlockBits::from_bytes(&[0; 4096], blocks);
            assert_eq!(bits.alike(0), (blocks, false));
            let (from, to) = (blocks / 3, (blocks / 3 + 130).min(blocks));
            bits.set(from..to);
            for block in 0..blocks {
                let is_set = (from..to).contains(&block);
                assert_eq!(bits.has(block), is_set);
                let end = match block {
                    block if block < from => from,
                    block if block < to => to,
                    _ => blocks,
                };
                assert_eq!(bits.alike(block), (end, is_set), "{block} of {blocks}");
            }
            let read = BlockBits::from_bytes(&bits.page(0, 4096), blocks);
            assert_eq!(read.alike(from), (to, true));
        }
    }
}
