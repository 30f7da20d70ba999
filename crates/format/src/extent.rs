//! Extents: the rows that are the bytes of an image. docs/FORMAT.md, section 7.
//!
//! An extent's parent is the path of its image, and its name the offset of its first byte in
//! sixteen digits, so that the order of a catalog is that of the device.

use crate::entry::{Content, Entry, Kind};
use crate::id::ChunkId;
use bytes::Bytes;

/// No extent goes from one block of an image, so long and aligned, into the next: each block of two
/// snapshots can be compared without its neighbours.
pub const IMAGE_BLOCK_BYTES: u64 = 1 << 20;

/// Digits of a name.
const NAME_BYTES: usize = 16;

/// A stretch of an image that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageExtent {
    /// Of its first byte in the image.
    pub start: u64,
    pub bytes: u64,
    /// Data chunk in which it lies.
    pub chunk: ChunkId,
    /// Of its first byte in the chunk.
    pub offset: u32,
    /// Some of it could not be read by the backup, and is zeros.
    pub is_incomplete: bool,
    /// Of the first extent of a block, where they are not one that is all of it: what
    /// [`block_hash`] says of the block.
    pub block_hash: Option<[u8; 16]>,
}

impl ImageExtent {
    /// From a row, if that is one.
    pub fn of(row: &Entry) -> Option<ImageExtent> {
        match (row.kind, row.content) {
            (Kind::Extent, Content::Bundled { chunk, offset }) => Some(ImageExtent {
                start: extent_offset(&row.name)?,
                bytes: row.size,
                chunk,
                offset,
                is_incomplete: row.flags.has(crate::EntryFlags::INCOMPLETE),
                block_hash: row.content_hash,
            }),
            _ => None,
        }
    }

    /// The row of the catalog; `image` is the path of the image.
    pub fn row(&self, image: &Bytes) -> Entry {
        let mut row = Entry::new(image.clone(), extent_name(self.start), Kind::Extent);
        row.size = self.bytes;
        row.content = Content::Bundled {
            chunk: self.chunk,
            offset: self.offset,
        };
        if self.is_incomplete {
            row.flags.set(crate::EntryFlags::INCOMPLETE);
        }
        row.content_hash = self.block_hash;
        row
    }

    /// The byte behind.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }
}

/// What tells a block of an image from others, given the id that it would have as a chunk: the
/// first half of that.
pub fn block_hash(of_whole_block: &ChunkId) -> [u8; 16] {
    std::array::from_fn(|at| of_whole_block.0[at])
}

/// The name of an extent that begins there.
pub fn extent_name(start: u64) -> Bytes {
    format!("{start:016x}").into()
}

/// Where an extent of this name begins: sixteen lower-case digits.
pub fn extent_offset(name: &[u8]) -> Option<u64> {
    if name.len() != NAME_BYTES {
        return None;
    }
    name.iter().try_fold(0u64, |sum, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u64::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_extents_are_in_the_order_of_the_device_and_lead_back_to_it() {
        let starts = [0, 1, 0xf, 0x10, 1 << 20, 1 << 40, i64::MAX as u64];
        let names = starts.map(extent_name);
        assert!(names.is_sorted());
        assert_eq!(names.map(|name| extent_offset(&name)), starts.map(Some));
        for other in [
            "",
            "0",
            "000000000000000G",
            "000000000000000A",
            "00000000000000000",
        ] {
            assert_eq!(extent_offset(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_row_of_an_extent_leads_back_to_it_and_other_rows_to_none() {
        let extent = ImageExtent {
            start: 5 << 20,
            bytes: 4096,
            chunk: ChunkId([3; 32]),
            offset: 8192,
            is_incomplete: true,
            block_hash: Some([9; 16]),
        };
        let mut row = extent.row(&Bytes::from_static(b"disk.raw"));
        assert_eq!(ImageExtent::of(&row), Some(extent));
        row.kind = Kind::File;
        assert_eq!(ImageExtent::of(&row), None);
    }
}
