//! Content that says of every block where it belongs.

/// Blocks that are stamped: no file system or device of the tests has larger ones.
pub const BLOCK_BYTES: usize = 4096;
/// A stamp: three numbers of eight digits, each with a space. The shortest tail of a file has one.
pub(super) const STAMP_BYTES: usize = 27;

/// Of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) file: u32,
    pub(super) version: u32,
    pub(super) block: u32,
}

/// Content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    len: u64,
    blocks: Blocks,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Blocks {
    /// All of one version.
    Whole { file: u32, version: u32 },
    /// `None`: zeroes.
    Mixed(Vec<Option<Stamp>>),
}

impl FileContent {
    /// One version of a file, from its first block to its last.
    pub fn whole(file: u32, version: u32, len_bytes: u64) -> FileContent {
        FileContent {
            len: len_bytes,
            blocks: Blocks::Whole { file, version },
        }
    }

    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Blocks, the last of which may be cut off.
    pub fn blocks(&self) -> usize {
        self.len.div_ceil(BLOCK_BYTES as u64) as usize
    }

    /// All bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.blocks() * BLOCK_BYTES];
        for (at, block) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            fill(self.stamp(at), block);
        }
        bytes.truncate(self.len as usize);
        bytes
    }

    /// Whether these are its bytes.
    pub fn is(&self, bytes: &[u8]) -> bool {
        let mut block = [0; BLOCK_BYTES];
        bytes.len() as u64 == self.len
            && bytes.chunks(BLOCK_BYTES).enumerate().all(|(at, part)| {
                fill(self.stamp(at), &mut block);
                part == &block[..part.len()]
            })
    }

    pub(super) fn stamp(&self, at: usize) -> Option<Stamp> {
        match &self.blocks {
            Blocks::Whole { file, version } => Some(Stamp {
                file: *file,
                version: *version,
                block: at as u32,
            }),
            Blocks::Mixed(stamps) => stamps.get(at).copied().flatten(),
        }
    }

    /// The same with other blocks.
    pub(super) fn with(
        &self,
        len: u64,
        change: impl FnOnce(&mut Vec<Option<Stamp>>),
    ) -> FileContent {
        let mut stamps: Vec<_> = (0..self.blocks()).map(|at| self.stamp(at)).collect();
        change(&mut stamps);
        FileContent {
            len,
            blocks: Blocks::Mixed(stamps),
        }
    }
}

/// Fills a block, or the beginning of one.
pub(super) fn fill(stamp: Option<Stamp>, block: &mut [u8]) {
    let Some(stamp) = stamp else {
        block.fill(0);
        return;
    };
    // Never zero, and another one in the next version.
    block.fill(stamp.version as u8 | 0x80);
    let text = format!("{:08} {:08} {:08} ", stamp.file, stamp.version, stamp.block);
    let len = block.len().min(STAMP_BYTES);
    block[..len].copy_from_slice(&text.as_bytes()[..len]);
}

/// What a block says it is: `Some(None)` is zeroes, `None` is no block of ours, or parts of two.
pub(super) fn recognize(block: &[u8]) -> Option<Option<Stamp>> {
    if block.iter().all(|byte| *byte == 0) {
        return Some(None);
    }
    let text = std::str::from_utf8(block.get(..STAMP_BYTES)?).ok()?;
    let mut numbers = text
        .split_ascii_whitespace()
        .map(|number| number.parse().ok());
    let mut number = || numbers.next().flatten();
    let stamp = Some(Stamp {
        file: number()?,
        version: number()?,
        block: number()?,
    });
    let mut expected = [0; BLOCK_BYTES];
    fill(stamp, &mut expected);
    (block == &expected[..block.len()]).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_recognized_and_halves_of_two_are_not() {
        let content = FileContent::whole(7, 3, 2 * BLOCK_BYTES as u64 + 100);
        let bytes = content.bytes();
        assert!(content.is(&bytes) && bytes.len() == 2 * BLOCK_BYTES + 100);
        for (at, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            assert_eq!(recognize(block), Some(content.stamp(at)));
        }
        assert!(!FileContent::whole(7, 4, content.len_bytes()).is(&bytes));
        let mut torn = bytes[..BLOCK_BYTES].to_vec();
        torn[2048..].fill(0);
        assert_eq!(recognize(&torn), None);
        assert_eq!(recognize(&[0; BLOCK_BYTES]), Some(None));
        assert_eq!(recognize(b"something else"), None);
    }

    #[test]
    fn changed_blocks_are_part_of_the_content() {
        let content = FileContent::whole(1, 1, 3 * BLOCK_BYTES as u64);
        let punched = content.with(content.len_bytes(), |stamps| stamps[1] = None);
        assert!(
            punched.bytes()[BLOCK_BYTES..2 * BLOCK_BYTES]
                .iter()
                .all(|byte| *byte == 0)
        );
        assert!(punched.is(&punched.bytes()) && !punched.is(&content.bytes()));
    }
}
