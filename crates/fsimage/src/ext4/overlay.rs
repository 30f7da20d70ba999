//! A device as it would look after its journal was replayed, without writing to it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::ByteSource;

/// First bytes of a journalled block whose own first bytes look like a journal header: zeroed in
/// the journal.
const ESCAPED_MAGIC: [u8; 4] = 0xC03B_3998_u32.to_be_bytes();

/// One block of the file system whose current content lies in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    pub(super) block: u64,
    pub(super) device_offset: u64,
    pub(super) escaped: bool,
}

/// A byte source with journal blocks in place of the blocks they are meant for.
pub struct Replayed {
    base: Arc<dyn ByteSource>,
    block_bytes: u64,
    /// Sorted by block, no block twice; 24 bytes each, `JOURNAL_ENTRIES_MAX` at most.
    patches: Vec<Patch>,
}

impl Replayed {
    pub(super) fn new(
        base: Arc<dyn ByteSource>,
        block_bytes: u32,
        patches: Vec<Patch>,
    ) -> Replayed {
        Replayed {
            base,
            block_bytes: block_bytes.into(),
            patches,
        }
    }

    /// Blocks that differ from the device: (device offset of the block, its length). Whoever reads
    /// the device past this source must not read these from it.
    pub fn replaced(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.patches
            .iter()
            .map(|patch| (patch.block * self.block_bytes, self.block_bytes))
    }

    /// Does a block that differs from the device have bytes of this range?
    pub(super) fn touches(&self, range: &Range<u64>) -> bool {
        let first = self.first_patch_behind(range.start);
        (self.patches.get(first)).is_some_and(|patch| patch.block * self.block_bytes < range.end)
    }

    /// Number of the first patch that ends behind this offset.
    fn first_patch_behind(&self, offset: u64) -> usize {
        self.patches
            .partition_point(|patch| (patch.block + 1) * self.block_bytes <= offset)
    }

    /// Copies the part of one patch that falls into `buf`, which begins at `offset`.
    fn apply(&self, patch: &Patch, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = patch.block * self.block_bytes;
        let from = start.max(offset);
        let to = (start + self.block_bytes).min(offset + buf.len() as u64);
        let into = &mut buf[(from - offset) as usize..(to - offset) as usize];
        self.base
            .read_exact_at(patch.device_offset + (from - start), into)?;
        if patch.escaped {
            for (at, byte) in (from..).zip(into.iter_mut()).take(ESCAPED_MAGIC.len()) {
                if let Some(original) = ESCAPED_MAGIC.get((at - start) as usize) {
                    *byte = *original;
                }
            }
        }
        Ok(())
    }
}

impl ByteSource for Replayed {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.base.read_exact_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        let first = self.first_patch_behind(offset);
        let touching = self.patches[first..]
            .iter()
            .take_while(|patch| patch.block * self.block_bytes < end);
        for patch in touching {
            self.apply(patch, offset, buf)?;
        }
        Ok(())
    }

    fn len_bytes(&self) -> u64 {
        self.base.len_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of 4 bytes: 0..4 are the file system, 4.. the journal.
    fn replayed() -> Replayed {
        let base: Vec<u8> = (0..32).collect();
        let patches = vec![
            Patch {
                block: 1,
                device_offset: 16,
                escaped: false,
            },
            Patch {
                block: 2,
                device_offset: 24,
                escaped: true,
            },
        ];
        Replayed::new(Arc::new(base), 4, patches)
    }

    #[test]
    fn reads_of_any_alignment_see_the_patched_blocks() {
        let mut whole = vec![0; 16];
        replayed().read_exact_at(0, &mut whole).unwrap();
        assert_eq!(
            whole,
            [
                0, 1, 2, 3, 16, 17, 18, 19, 0xC0, 0x3B, 0x39, 0x98, 12, 13, 14, 15
            ]
        );
        for from in 0..16 {
            for to in from..=16 {
                let mut part = vec![0; to - from];
                replayed().read_exact_at(from as u64, &mut part).unwrap();
                assert_eq!(part, whole[from..to], "{from}..{to}");
            }
        }
    }

    #[test]
    fn replaced_names_exactly_the_patched_blocks() {
        assert_eq!(replayed().replaced().collect::<Vec<_>>(), [(4, 4), (8, 4)]);
        for from in 0..16 {
            for to in from + 1..=16 {
                let touches = replayed().touches(&(from..to));
                assert_eq!(touches, from < 12 && to > 4, "{from}..{to}");
            }
        }
    }
}
