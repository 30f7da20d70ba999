//! Where in the repository each block of an image is, as far as the pass over its blocks knows.
//!
//! In unnamed files: a byte of state for each block, and behind these a place for each that is
//! stored; and a list of the parts of blocks that are in several extents. A block of which nothing
//! was said is [`BlockContent::Unknown`], never zeros: what is read out of it must come from the
//! image.

use super::prepare::PARENT_EXTENTS_MAX;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::{ChunkId, ImageExtent};
use bale_pipeline::spill::unnamed_file;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a place: start in the block, chunk, offset in it, length, and one that says whether all
/// could be read.
const PLACE_BYTES: usize = 4 + 32 + 4 + 4 + 1;
/// States written at once.
const STATES_AT_ONCE: usize = 64 << 10;

const UNKNOWN: u8 = 0;
const ZEROS: u8 = 1;
const STORED: u8 = 2;
/// Its place says where in the list its parts begin, and how many they are.
const IN_PARTS: u8 = 3;

/// What is at a byte of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockContent {
    /// It was not read, and nobody said what it is.
    Unknown,
    Zeros,
    Stored(StoredPart),
}

/// A block in a chunk, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredPart {
    /// Of its first byte in the image.
    pub(super) start: u64,
    pub(super) bytes: u32,
    pub(super) chunk: ChunkId,
    /// Of its first byte in the chunk.
    pub(super) offset: u32,
    /// Some of it could not be read, and is zeros.
    pub(super) is_incomplete: bool,
}

/// Of one image.
pub(super) struct BlockMap {
    file: File,
    len_bytes: u64,
    /// Parts of blocks, those of each together.
    parts: File,
    parts_len: u64,
    /// The block whose parts are the last of the list: the first, how many, and where they end.
    open: Option<OpenBlock>,
    /// Of those that live close together one is asked for after the other.
    last: Option<(u64, KnownBlock)>,
}

struct OpenBlock {
    block: u64,
    first: u64,
    count: u64,
    end: u64,
}

enum KnownBlock {
    Unknown,
    Zeros,
    /// In order, with zeros between them.
    Parts(Vec<StoredPart>),
}

impl BlockMap {
    /// All unknown.
    pub(super) fn new(directory: &Path, len_bytes: u64) -> io::Result<BlockMap> {
        let file = unnamed_file(directory)?;
        file.set_len(len_bytes.div_ceil(IMAGE_BLOCK_BYTES))?;
        Ok(BlockMap {
            file,
            len_bytes,
            parts: unnamed_file(directory)?,
            parts_len: 0,
            open: None,
            last: None,
        })
    }

    /// Whole blocks, but at the end of the image. Parts of one that are put behind this are what
    /// of it is no zeros.
    pub(super) fn put_zeros(&mut self, range: &Range<u64>) -> io::Result<()> {
        self.open = None;
        self.put_states(range, ZEROS)
    }

    /// An extent. One that is no whole block says something of its block only if that was zeros, or
    /// the extents in front of it were put right before it.
    pub(super) fn put(&mut self, extent: &ImageExtent) -> io::Result<()> {
        let block = extent.start / IMAGE_BLOCK_BYTES;
        let start = block * IMAGE_BLOCK_BYTES;
        let end = start.saturating_add(IMAGE_BLOCK_BYTES).min(self.len_bytes);
        if extent.start >= self.len_bytes {
            return Ok(());
        }
        if extent.start == start && extent.end() == end {
            self.open = None;
            write_place(&self.file, self.place_of(block), start, extent)?;
            return self.put_states(&(start..end), STORED);
        }
        if extent.end() <= end && self.put_part(block, extent)? {
            return Ok(());
        }
        self.open = None;
        self.put_states(&(start..end), UNKNOWN)
    }

    /// False: it is not known what else is in the block.
    fn put_part(&mut self, block: u64, extent: &ImageExtent) -> io::Result<bool> {
        let open = match self.open.take() {
            Some(open) if open.block == block => OpenBlock {
                count: open.count + 1,
                ..open
            },
            _ if self.state(block)? == ZEROS => OpenBlock {
                block,
                first: self.parts_len,
                count: 1,
                end: extent.start,
            },
            _ => return Ok(false),
        };
        if extent.start < open.end || open.count > PARENT_EXTENTS_MAX as u64 {
            return Ok(false);
        }
        let at = self.parts_len * PLACE_BYTES as u64;
        write_place(&self.parts, at, block * IMAGE_BLOCK_BYTES, extent)?;
        self.parts_len += 1;
        let mut place = [0; PLACE_BYTES];
        place[..8].copy_from_slice(&open.first.to_le_bytes());
        place[8..16].copy_from_slice(&open.count.to_le_bytes());
        self.file.write_all_at(&place, self.place_of(block))?;
        self.put_states(&(extent.start..extent.end()), IN_PARTS)?;
        self.open = Some(OpenBlock {
            end: extent.end(),
            ..open
        });
        Ok(true)
    }

    /// What is at a byte of the image, and where that ends.
    pub(super) fn get(&mut self, byte: u64) -> io::Result<(BlockContent, u64)> {
        let block = byte / IMAGE_BLOCK_BYTES;
        let end = (block.saturating_add(1)).saturating_mul(IMAGE_BLOCK_BYTES);
        if byte >= self.len_bytes {
            return Ok((BlockContent::Unknown, end));
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != block) {
            self.last = Some((block, self.known(block)?));
        }
        let end = end.min(self.len_bytes);
        Ok(match self.last.as_ref().map(|(_, known)| known) {
            None | Some(KnownBlock::Unknown) => (BlockContent::Unknown, end),
            Some(KnownBlock::Zeros) => (BlockContent::Zeros, end),
            Some(KnownBlock::Parts(parts)) => {
                let next = parts.partition_point(|part| part.end() <= byte);
                match parts.get(next) {
                    None => (BlockContent::Zeros, end),
                    Some(part) if part.start > byte => (BlockContent::Zeros, part.start),
                    Some(part) => (BlockContent::Stored(*part), part.end()),
                }
            }
        })
    }

    fn known(&self, block: u64) -> io::Result<KnownBlock> {
        let mut place = [0; PLACE_BYTES];
        let state = self.state(block)?;
        if matches!(state, STORED | IN_PARTS) {
            self.file.read_exact_at(&mut place, self.place_of(block))?;
        }
        let start = block * IMAGE_BLOCK_BYTES;
        Ok(match state {
            ZEROS => KnownBlock::Zeros,
            STORED => KnownBlock::Parts(vec![part(start, &place)]),
            IN_PARTS => {
                let (first, count) = (number(&place[..8]), number(&place[8..16]));
                let mut parts = vec![0; count as usize * PLACE_BYTES];
                self.parts
                    .read_exact_at(&mut parts, first * PLACE_BYTES as u64)?;
                let parts = parts.chunks_exact(PLACE_BYTES);
                KnownBlock::Parts(parts.map(|place| part(start, place)).collect())
            }
            _ => KnownBlock::Unknown,
        })
    }

    fn state(&self, block: u64) -> io::Result<u8> {
        let mut state = [0];
        self.file.read_exact_at(&mut state, block)?;
        Ok(state[0])
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

impl StoredPart {
    fn end(&self) -> u64 {
        self.start + u64::from(self.bytes)
    }
}

fn write_place(file: &File, at: u64, block: u64, extent: &ImageExtent) -> io::Result<()> {
    let mut place = [0; PLACE_BYTES];
    place[..4].copy_from_slice(&((extent.start - block) as u32).to_le_bytes());
    place[4..36].copy_from_slice(&extent.chunk.0);
    place[36..40].copy_from_slice(&extent.offset.to_le_bytes());
    place[40..44].copy_from_slice(&(extent.bytes as u32).to_le_bytes());
    place[44] = u8::from(extent.is_incomplete);
    file.write_all_at(&place, at)
}

fn part(block: u64, place: &[u8]) -> StoredPart {
    let mut chunk = [0; 32];
    chunk.copy_from_slice(&place[4..36]);
    StoredPart {
        start: block + number(&place[..4]),
        chunk: ChunkId(chunk),
        offset: number(&place[36..40]) as u32,
        bytes: number(&place[40..44]) as u32,
        is_incomplete: place[44] != 0,
    }
}

/// Of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
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
            block_hash: None,
        }
    }

    fn stored(extent: &ImageExtent) -> BlockContent {
        BlockContent::Stored(StoredPart {
            start: extent.start,
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
        let at = |map: &mut BlockMap, byte| map.get(byte).unwrap().0;
        assert_eq!(at(&mut map, 0), BlockContent::Unknown);
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
            assert_eq!(at(&mut map, byte), content, "{byte}");
        }
        map.put_zeros(&(3 * BLOCK..4 * BLOCK)).unwrap();
        assert_eq!(at(&mut map, 3 * BLOCK), BlockContent::Zeros);
    }

    #[test]
    fn parts_of_a_block_are_between_zeros_and_in_one_that_is_not_known_they_say_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut map = BlockMap::new(directory.path(), 6 * BLOCK).unwrap();
        let parts = |block: u64| {
            [
                extent(block * BLOCK + 4096, 8192, 1),
                extent(block * BLOCK + 12288, 4096, 7),
                extent(block * BLOCK + 65536, BLOCK - 65536, 3),
            ]
        };
        map.put_zeros(&(0..4 * BLOCK)).unwrap();
        for block in [2, 1, 4] {
            for part in parts(block) {
                map.put(&part).unwrap();
            }
        }
        for block in [1, 2] {
            let (start, [one, two, three]) = (block * BLOCK, parts(block));
            for (byte, content, end) in [
                (0, BlockContent::Zeros, 4096),
                (4095, BlockContent::Zeros, 4096),
                (4096, stored(&one), 12288),
                (12287, stored(&one), 12288),
                (12288, stored(&two), 16384),
                (16384, BlockContent::Zeros, 65536),
                (65536, stored(&three), BLOCK),
                (BLOCK - 1, stored(&three), BLOCK),
            ] {
                let expected = (content, start + end);
                assert_eq!(map.get(start + byte).unwrap(), expected, "{block} {byte}");
            }
        }
        let zeros = (BlockContent::Zeros, 4 * BLOCK);
        assert_eq!(map.get(3 * BLOCK).unwrap(), zeros);
        // Nobody said what else is in it.
        let unknown = (BlockContent::Unknown, 5 * BLOCK);
        assert_eq!(map.get(4 * BLOCK + 4096).unwrap(), unknown);
    }

    #[test]
    fn parts_out_of_order_or_on_a_stored_block_leave_it_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let mut map = BlockMap::new(directory.path(), 4 * BLOCK).unwrap();
        map.put_zeros(&(0..4 * BLOCK)).unwrap();
        let odd = [
            [extent(8192, 4096, 1), extent(4096, 4096, 2)],
            [extent(BLOCK, BLOCK, 1), extent(BLOCK + 4096, 4096, 2)],
            // Others came between.
            [extent(2 * BLOCK, 4096, 1), extent(3 * BLOCK, BLOCK, 2)],
        ];
        for extent in odd.iter().flatten() {
            map.put(extent).unwrap();
        }
        map.put(&extent(2 * BLOCK + 8192, 4096, 3)).unwrap();
        for block in [0, 1, 2] {
            let content = map.get(block * BLOCK + 4096).unwrap().0;
            assert_eq!(content, BlockContent::Unknown, "{block}");
        }
        assert_eq!(
            map.get(3 * BLOCK).unwrap().0,
            stored(&extent(3 * BLOCK, BLOCK, 2))
        );
    }
}
