//! Index objects: which pack holds a chunk. Sorted, so a decoded one is searched in place.
//! docs/FORMAT.md, section 6.

use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::{ChunkId, ObjectId};
use crate::limits::{INDEX_CHUNKS_MAX, INDEX_PACKS_MAX, PACK_BYTES_MAX};
use crate::pack::PackEntry;
use bytes::Bytes;

const WHAT: &str = "index";
const COUNTS_BYTES: usize = 8;
/// One pack in an index.
pub(crate) const INDEX_PACK_BYTES: usize = 40;
/// One chunk in an index.
pub(crate) const INDEX_ENTRY_BYTES: usize = 60;

/// A pack that an index names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexPack {
    pub id: ObjectId,
    pub bytes: u64,
}

/// A chunk in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexEntry {
    /// Position in the index's list of packs.
    pub pack: u32,
    pub chunk: PackEntry,
}

/// Position of a pack in the list of all that a repository's index objects name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackNumber(pub u32);

/// Where a chunk is, by all index objects of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPlace {
    pub pack: PackNumber,
    /// The chunk, and where in the pack it is.
    pub chunk: PackEntry,
}

impl ChunkPlace {
    /// Pack and offset, as bytes that sort.
    pub fn sort_key(&self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&self.pack.0.to_be_bytes());
        key[4..].copy_from_slice(&self.chunk.offset.to_be_bytes());
        key
    }
}

/// Sorts `entries` and writes the plaintext of an index object.
pub fn encode_index(
    packs: &[IndexPack],
    entries: &mut [IndexEntry],
) -> Result<Vec<u8>, FormatError> {
    too_large("packs in an index", packs.len(), INDEX_PACKS_MAX)?;
    too_large("chunks in an index", entries.len(), INDEX_CHUNKS_MAX)?;
    entries.sort_unstable_by_key(|entry| (entry.chunk.id, entry.pack, entry.chunk.offset));
    let mut bytes = Vec::with_capacity(
        COUNTS_BYTES + packs.len() * INDEX_PACK_BYTES + entries.len() * INDEX_ENTRY_BYTES,
    );
    bytes.extend_from_slice(&(packs.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for pack in packs {
        bytes.extend_from_slice(&pack.id.0);
        bytes.extend_from_slice(&pack.bytes.to_le_bytes());
    }
    for entry in entries {
        bytes.extend_from_slice(&entry.chunk.id.0);
        bytes.extend_from_slice(&entry.pack.to_le_bytes());
        entry.chunk.encode_tail(&mut bytes);
    }
    Ok(bytes)
}

fn too_large(what: &'static str, found: usize, max: usize) -> Result<(), FormatError> {
    if found > max {
        return Err(FormatError::TooLarge {
            what,
            found: found as u64,
            max: max as u64,
        });
    }
    Ok(())
}

/// A checked index object, searched where it lies: 60 bytes a chunk and nothing more.
#[derive(Clone, Debug)]
pub struct Index {
    bytes: Bytes,
    packs: u32,
    chunks: u32,
}

impl Index {
    /// Checks every entry, so that nothing after this can fail.
    pub fn decode(plain: impl Into<Bytes>) -> Result<Index, FormatError> {
        let bytes: Bytes = plain.into();
        let mut fields = Fields::new(WHAT, &bytes);
        let packs = fields.u32()?;
        let chunks = fields.u32()?;
        for (field, found, max) in [
            ("number of packs", packs, INDEX_PACKS_MAX),
            ("number of chunks", chunks, INDEX_CHUNKS_MAX),
        ] {
            if found as usize > max {
                return Err(FormatError::over(WHAT, field, found as usize, max));
            }
        }
        let expected = packs as usize * INDEX_PACK_BYTES + chunks as usize * INDEX_ENTRY_BYTES;
        if fields.left() != expected {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Length {
                    expected: expected as u64,
                    found: fields.left() as u64,
                },
            ));
        }
        let index = Index {
            packs,
            chunks,
            bytes: bytes.clone(),
        };
        index.check()?;
        Ok(index)
    }

    fn check(&self) -> Result<(), FormatError> {
        for pack in self.packs() {
            if pack.bytes > PACK_BYTES_MAX {
                return Err(FormatError::damaged(
                    WHAT,
                    Fault::Over {
                        field: "length of a pack",
                        found: pack.bytes,
                        max: PACK_BYTES_MAX,
                    },
                ));
            }
        }
        let mut last = None;
        for position in 0..self.chunks {
            let entry = self.parse(position)?;
            if last.is_some_and(|last| last > entry.chunk.id) {
                return Err(FormatError::damaged(WHAT, Fault::Order { field: "chunks" }));
            }
            last = Some(entry.chunk.id);
        }
        Ok(())
    }

    /// Number of chunks.
    pub fn len(&self) -> usize {
        self.chunks as usize
    }

    /// Does it name no chunk?
    pub fn is_empty(&self) -> bool {
        self.chunks == 0
    }

    /// The pack at a position, which every entry's `pack` is.
    pub fn pack(&self, position: u32) -> Option<IndexPack> {
        let start = COUNTS_BYTES + position as usize * INDEX_PACK_BYTES;
        if position >= self.packs {
            return None;
        }
        let (id, bytes) = self.bytes[start..start + INDEX_PACK_BYTES].split_at(32);
        Some(IndexPack {
            id: ObjectId(id.try_into().expect("split at 32 bytes")),
            bytes: u64::from_le_bytes(bytes.try_into().expect("40 less 32 is 8")),
        })
    }

    /// All packs, by position.
    pub fn packs(&self) -> impl Iterator<Item = IndexPack> + '_ {
        (0..self.packs).filter_map(|position| self.pack(position))
    }

    /// All entries, sorted by chunk id.
    pub fn iter(&self) -> impl Iterator<Item = IndexEntry> + '_ {
        (0..self.chunks).map(|position| self.entry(position))
    }

    /// Every copy of a chunk.
    pub fn find(&self, id: ChunkId) -> impl Iterator<Item = IndexEntry> + '_ {
        let (mut low, mut high) = (0, self.chunks);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.id_at(middle) < &id.0[..] {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low..self.chunks)
            .take_while(move |position| self.id_at(*position) == &id.0[..])
            .map(|position| self.entry(position))
    }

    fn id_at(&self, position: u32) -> &[u8] {
        &self.entry_bytes(position)[..32]
    }

    fn entry_bytes(&self, position: u32) -> &[u8] {
        let start = COUNTS_BYTES
            + self.packs as usize * INDEX_PACK_BYTES
            + position as usize * INDEX_ENTRY_BYTES;
        &self.bytes[start..start + INDEX_ENTRY_BYTES]
    }

    fn parse(&self, position: u32) -> Result<IndexEntry, FormatError> {
        let mut fields = Fields::new(WHAT, self.entry_bytes(position));
        let id = ChunkId(fields.array()?);
        let number = fields.u32()?;
        let pack = self
            .pack(number)
            .ok_or_else(|| fields.value("number of a pack", u64::from(number)))?;
        Ok(IndexEntry {
            pack: number,
            chunk: PackEntry::decode_tail(id, pack.bytes, &mut fields)?,
        })
    }

    fn entry(&self, position: u32) -> IndexEntry {
        self.parse(position)
            .expect("every entry was checked when the index was decoded")
    }
}
