//! Where in the repository each block of an image is, as far as the pass over its blocks knows.
//!
//! In an unnamed file: a byte of state for each block, and behind these a place for each that is
//! stored. A block of which nothing was said is [`BlockContent::Unknown`], never zeros: what is
//! read out of it must come from the image.

use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::{ChunkId, ImageExtent};
use bale_pipeline::spill::unnamed_file;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a place: chunk, offset in it, length, and one that says whether all could be read.
const PLACE_BYTES: usize = 32 + 4 + 4 + 1;
/// States written at once.
const STATES_AT_ONCE: usize = 64 << 10;

const UNKNOWN: u8 = 0;
const ZEROS: u8 = 1;
const STORED: u8 = 2;

/// What a block of an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockContent {
    /// It was not read, and nobody said what it is.
    Unknown,
    Zeros,
    Stored(StoredBlock),
}

/// A block in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredBlock {
    pub(super) chunk: ChunkId,
    /// Of its first byte in the chunk.
    pub(super) offset: u32,
    pub(super) bytes: u32,
    /// Some of it could not be read, and is zeros.
    pub(super) is_incomplete: bool,
}

/// Of one image.
pub(super) struct BlockMap {
    file: File,
    len_bytes: u64,
    /// Of those that live close together one is asked for after the other.
    last: Option<(u64, BlockContent)>,
}

impl BlockMap {
    /// All unknown.
    pub(super) fn new(directory: &Path, len_bytes: u64) -> io::Result<BlockMap> {
        let file = unnamed_file(directory)?;
        file.set_len(len_bytes.div_ceil(IMAGE_BLOCK_BYTES))?;
        Ok(BlockMap {
            file,
            len_bytes,
            last: None,
        })
    }

    /// Whole blocks, but at the end of the image.
    pub(super) fn put_zeros(&mut self, range: &Range<u64>) -> io::Result<()> {
        self.put_states(range, ZEROS)
    }

    /// An extent. One that is no whole block says nothing of the block that it is in.
    pub(super) fn put(&mut self, extent: &ImageExtent) -> io::Result<()> {
        let block_end = extent.start.saturating_add(IMAGE_BLOCK_BYTES);
        let is_whole = extent.start.is_multiple_of(IMAGE_BLOCK_BYTES)
            && extent.start + extent.bytes == block_end.min(self.len_bytes);
        let range = extent.start..(extent.start + extent.bytes).min(self.len_bytes);
        if !is_whole {
            return self.put_states(&range, UNKNOWN);
        }
        let mut place = [0; PLACE_BYTES];
        place[..32].copy_from_slice(&extent.chunk.0);
        place[32..36].copy_from_slice(&extent.offset.to_le_bytes());
        place[36..40].copy_from_slice(&(extent.bytes as u32).to_le_bytes());
        place[40] = u8::from(extent.is_incomplete);
        let at = self.place_of(extent.start / IMAGE_BLOCK_BYTES);
        self.file.write_all_at(&place, at)?;
        self.put_states(&range, STORED)
    }

    /// The block that a byte of the image is in.
    pub(super) fn get(&mut self, byte: u64) -> io::Result<BlockContent> {
        let block = byte / IMAGE_BLOCK_BYTES;
        if byte >= self.len_bytes {
            return Ok(BlockContent::Unknown);
        }
        if let Some((_, content)) = self.last.filter(|(last, _)| *last == block) {
            return Ok(content);
        }
        let mut state = [0];
        self.file.read_exact_at(&mut state, block)?;
        let content = match state[0] {
            ZEROS => BlockContent::Zeros,
            STORED => BlockContent::Stored(self.stored(block)?),
            _ => BlockContent::Unknown,
        };
        self.last = Some((block, content));
        Ok(content)
    }

    fn stored(&self, block: u64) -> io::Result<StoredBlock> {
        let mut place = [0; PLACE_BYTES];
        self.file.read_exact_at(&mut place, self.place_of(block))?;
        let number = |at: usize| {
            let bytes = [place[at], place[at + 1], place[at + 2], place[at + 3]];
            u32::from_le_bytes(bytes)
        };
        let mut chunk = [0; 32];
        chunk.copy_from_slice(&place[..32]);
        Ok(StoredBlock {
            chunk: ChunkId(chunk),
            offset: number(32),
            bytes: number(36),
            is_incomplete: place[40] != 0,
        })
    }

    fn place_of(&self, block: u64) -> u64 {
        self.len_bytes.div_ceil(IMAGE_BLOCK_BYTES) + block * PLACE_BYTES as u64
    }

    fn put_states(&mut self, range: &Range<u64>, state: u8) -> io::Result<()> {
        self.last = None;
        let mut at = range.start / IMAGE_BLOCK_BYTES;
        let end = range.end.min(self.len_bytes).div_ceil(IMAGE_BLOCK_BYTES);
        let states = [state; STATES_AT_ONCE];
        while at < end {
            let count = (end - at).min(STATES_AT_ONCE as u64);
            self.file.write_all_at(&states[..count as usize], at)?;
            at += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = IMAGE_BLOCK_BYTES;

    fn extent(start: u64, bytes: u64, number: u8) -> ImageExtent {
        ImageExtent {
            start,
            bytes,
            chunk: ChunkId([number; 32]),
            offset: u32::from(number) * 3,
            is_incomplete: number == 7,
        }
    }

    fn stored(extent: &ImageExtent) -> BlockContent {
        BlockContent::Stored(StoredBlock {
            chunk: extent.chunk,
            offset: extent.offset,
            bytes: extent.bytes as u32,
            is_incomplete: extent.is_incomplete,
        })
    }

    #[test]
    fn a_block_is_what_was_said_of_it_last_and_unknown_where_nothing_was() {
        let directory = tempfile::tempdir().unwrap();
        let len = 300_000 * BLOCK + 5;
        let mut map = BlockMap::new(directory.path(), len).unwrap();
        assert_eq!(map.get(0).unwrap(), BlockContent::Unknown);
        map.put_zeros(&(BLOCK..200_000 * BLOCK)).unwrap();
        let (one, last) = (extent(3 * BLOCK, BLOCK, 7), extent(300_000 * BLOCK, 5, 9));
        map.put(&one).unwrap();
        map.put(&last).unwrap();
        for (byte, content) in [
            (0, BlockContent::Unknown),
            (BLOCK, BlockContent::Zeros),
            (3 * BLOCK - 1, BlockContent::Zeros),
            (3 * BLOCK, stored(&one)),
            (4 * BLOCK - 1, stored(&one)),
            (4 * BLOCK, BlockContent::Zeros),
            (200_000 * BLOCK - 1, BlockContent::Zeros),
            (200_000 * BLOCK, BlockContent::Unknown),
            (len - 1, stored(&last)),
            (len, BlockContent::Unknown),
            (u64::MAX, BlockContent::Unknown),
        ] {
            assert_eq!(map.get(byte).unwrap(), content, "{byte}");
        }
        map.put_zeros(&(3 * BLOCK..4 * BLOCK)).unwrap();
        assert_eq!(map.get(3 * BLOCK).unwrap(), BlockContent::Zeros);
    }

    #[test]
    fn an_extent_that_is_no_whole_block_leaves_its_block_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let mut map = BlockMap::new(directory.path(), 4 * BLOCK).unwrap();
        map.put_zeros(&(0..4 * BLOCK)).unwrap();
        for odd in [extent(0, BLOCK / 2, 1), extent(BLOCK + 512, BLOCK - 512, 2)] {
            map.put(&odd).unwrap();
            assert_eq!(map.get(odd.start).unwrap(), BlockContent::Unknown);
        }
        assert_eq!(map.get(2 * BLOCK).unwrap(), BlockContent::Zeros);
    }
}
