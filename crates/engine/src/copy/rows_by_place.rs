//! Bundled rows sorted on disk by the place of their bytes, so that chunks are read once; and what
//! is known of chunks before any is read.
//!
//! A content of which the hash is known from an earlier copy need not be read: its hash comes first
//! of what stands at its place.

use super::positions::Positions;
use super::reading::Reading;
use crate::limits::COPY_SORT_BYTES;
use bale_format::ChunkId;
use bale_pipeline::error::with_causes;
use bale_pipeline::spill::{Sorted, Sorter, SpillError};
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use std::collections::HashMap;

/// Where the bytes of a bundled row are: sorts as the source's packs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPlace {
    /// Number of the pack and offset in it.
    pub(super) chunk: (u32, u64),
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

impl RowPlace {
    pub(super) const BYTES: usize = 20;

    pub(super) fn encode(&self) -> [u8; RowPlace::BYTES] {
        let mut key = [0; RowPlace::BYTES];
        key[..4].copy_from_slice(&self.chunk.0.to_be_bytes());
        key[4..12].copy_from_slice(&self.chunk.1.to_be_bytes());
        key[12..16].copy_from_slice(&self.offset.to_be_bytes());
        key[16..].copy_from_slice(&self.bytes.to_be_bytes());
        key
    }

    pub(super) fn decode(key: &[u8]) -> RowPlace {
        let number = |at: usize| {
            let bytes = key[at..at + 4].try_into();
            u32::from_be_bytes(bytes.expect("four bytes"))
        };
        RowPlace {
            chunk: (number(0), u64::from(number(4)) << 32 | u64::from(number(8))),
            offset: number(12),
            bytes: number(16),
        }
    }
}

/// What is known of chunks of the source: 32 bytes for each entry of its index, and some 40 for
/// each piece list.
pub(super) struct KnownChunks {
    /// Ids in the target, by position.
    pub(super) ids: Vec<ChunkId>,
    pub(super) is_known: Positions,
    pub(super) list_hashes: HashMap<usize, [u8; 16]>,
}

impl KnownChunks {
    pub(super) fn none(index: &ChunkIndex) -> KnownChunks {
        KnownChunks {
            ids: vec![ChunkId::default(); index.entries().len()],
            is_known: Positions::none(index),
            list_hashes: HashMap::new(),
        }
    }
}

/// What stands at a place: a hash that is known, or a row that needs one.
const HASH: u8 = 0;
const ROW: u8 = 1;

/// Takes rows in any order, until they are resolved.
pub(super) struct RowsByPlace {
    rows: Sorter,
    /// Of rows, by number of segment and row.
    hashes: Sorter,
}

impl RowsByPlace {
    pub(super) fn new(reading: Reading<'_>) -> Result<RowsByPlace> {
        Ok(RowsByPlace {
            rows: sorter(reading)?,
            hashes: sorter(reading)?,
        })
    }

    /// A row, the number of its segment and its own, and the position of its chunk.
    pub(super) fn add(&mut self, place: &RowPlace, row: [u8; 8], position: usize) -> Result<()> {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&row);
        value[8..].copy_from_slice(&(position as u64).to_le_bytes());
        self.push(place, ROW, &value)
    }

    /// The hash of what is at a place.
    pub(super) fn add_hash(&mut self, place: &RowPlace, hash: &[u8; 16]) -> Result<()> {
        self.push(place, HASH, hash)
    }

    fn push(&mut self, place: &RowPlace, what: u8, value: &[u8; 16]) -> Result<()> {
        let mut key = [0; RowPlace::BYTES + 1];
        key[..RowPlace::BYTES].copy_from_slice(&place.encode());
        key[RowPlace::BYTES] = what;
        self.rows.push(&key, value).map_err(spilling)
    }

    /// Finds the rows whose content must be read, and adds its chunks to `content`.
    pub(super) fn resolve(
        &mut self,
        reading: Reading<'_>,
        known: &KnownChunks,
        content: &mut Positions,
    ) -> Result<()> {
        let all = std::mem::replace(&mut self.rows, sorter(reading)?);
        let mut all = all.finish().map_err(spilling)?;
        let mut given: Option<([u8; RowPlace::BYTES], [u8; 16])> = None;
        while let Some((key, value)) = all.next_record().map_err(spilling)? {
            let (place, what) = key.split_at(RowPlace::BYTES);
            let place: [u8; RowPlace::BYTES] = place.try_into().expect("the length of a place");
            if what == [HASH] {
                given = Some((place, value.try_into().expect("16 bytes")));
                continue;
            }
            let (row, position) = value.split_at(8);
            let position = u64::from_le_bytes(position.try_into().expect("8 bytes")) as usize;
            match given {
                Some((at, hash)) if at == place && known.is_known.has(position) => {
                    self.hashes.push(row, &hash).map_err(spilling)?;
                }
                _ => {
                    content.add(position);
                    self.rows.push(&place, row).map_err(spilling)?;
                }
            }
        }
        Ok(())
    }

    /// Rows whose content must be read, by its place, and hashes of the others.
    pub(super) fn take(&mut self) -> Result<(Sorted, Sorter)> {
        let none = || Sorter::new(std::path::Path::new(""), 0);
        let rows = std::mem::replace(&mut self.rows, none());
        let hashes = std::mem::replace(&mut self.hashes, none());
        Ok((rows.finish().map_err(spilling)?, hashes))
    }
}

fn sorter(reading: Reading<'_>) -> Result<Sorter> {
    let memory = reading.memory.share(COPY_SORT_BYTES);
    Ok(Sorter::new(&reading.source.spill_dir()?, memory))
}

/// Number of a segment and of a row in it: sorts as catalogs are read.
pub(super) fn row_key(segment: u32, row: u32) -> [u8; 8] {
    (u64::from(segment) << 32 | u64::from(row)).to_be_bytes()
}

pub(super) fn spilling(error: SpillError) -> Error {
    Error::Other(with_causes(&error))
}
