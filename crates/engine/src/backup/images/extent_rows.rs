//! Rows of images on their way to the catalog, some of which wait for the chunk that they share.
//!
//! New bytes of less than a block are bundled: those of many blocks become one chunk, whose id is
//! known when it is closed. A catalog takes rows in their order, so whatever comes behind the first
//! row that waits does wait, too.

use super::super::stored_segments::StoredSegments;
use super::changed_granules::BLOCK_EXTENTS_MAX;
use super::prepare::PARENT_EXTENTS_MAX;
use crate::limits::IMAGE_ROWS_WAITING_MAX;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::{ChunkId, ChunkKind, Content, Entry, Key, Layer};
use bale_repository::catalog::{CatalogReader, CatalogWriter, Partial, file_bytes};
use bale_repository::error::Result;
use bale_repository::pack::ChunkWriter;
use std::sync::Arc;

/// A chunk of parts of blocks is as long as one of a block.
const PARTS_CHUNK_BYTES: usize = IMAGE_BLOCK_BYTES as usize;
/// Rows that come and go with the parts of one block.
const ROWS_OF_BLOCK_MAX: usize = PARENT_EXTENTS_MAX + BLOCK_EXTENTS_MAX;

/// Rows of a new catalog.
pub(super) struct ExtentRows {
    store: Arc<ChunkWriter>,
    catalog: CatalogWriter<StoredSegments>,
    /// Rows put or removed.
    changes: u64,
    /// Bytes of the chunk that is open.
    bundle: Vec<u8>,
    waiting: Vec<Waiting>,
    /// Parts of blocks whose chunk is known since somebody asked last.
    settled: Vec<Entry>,
}

enum Waiting {
    Put(Entry),
    /// A part of a block.
    Part(Entry),
    /// The same, in the chunk that is open.
    NewPart(Entry),
    /// The same, which is in the catalog as it is.
    OldPart(Entry),
    Remove(Key, u64),
}

impl ExtentRows {
    /// A catalog that equals the parent's until something changes.
    pub(super) fn new(parent: &CatalogReader, store: &Arc<ChunkWriter>) -> ExtentRows {
        let segments = StoredSegments(store.clone());
        ExtentRows {
            store: store.clone(),
            catalog: CatalogWriter::new(parent.clone(), segments),
            changes: 0,
            bundle: Vec::new(),
            waiting: Vec::new(),
            settled: Vec::new(),
        }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Of the chunk that is open.
    pub(super) fn bytes_in_bundle(&self) -> u64 {
        self.bundle.len() as u64
    }

    pub(super) fn put(&mut self, row: &Entry) -> Result<()> {
        self.changes += 1;
        match self.waiting.is_empty() {
            true => Ok(self.catalog.put(row)?),
            false => self.wait(Waiting::Put(row.clone())),
        }
    }

    pub(super) fn remove(&mut self, row: &Entry) -> Result<()> {
        self.changes += 1;
        match self.waiting.is_empty() {
            true => Ok(self.catalog.remove(&row.key(), file_bytes(row))?),
            false => self.wait(Waiting::Remove(row.key(), file_bytes(row))),
        }
    }

    /// To be called in front of the parts of each block, of which so many bytes are new: parts of a
    /// block are settled together.
    pub(super) fn begin_parts(&mut self, new_bytes: usize) -> Result<()> {
        let is_full = self.bundle.len() + new_bytes > PARTS_CHUNK_BYTES;
        match is_full || self.waiting.len() + ROWS_OF_BLOCK_MAX > IMAGE_ROWS_WAITING_MAX {
            true => self.settle(),
            false => Ok(()),
        }
    }

    /// A part of a block whose chunk is known. `is_new`: the parent does not have it as it is.
    pub(super) fn put_part(&mut self, row: Entry, is_new: bool) -> Result<()> {
        self.changes += u64::from(is_new);
        self.wait(match is_new {
            true => Waiting::Part(row),
            false => Waiting::OldPart(row),
        })
    }

    /// A part of a block that is in no chunk yet.
    pub(super) fn put_new_part(&mut self, mut row: Entry, bytes: &[u8]) -> Result<()> {
        if self.bundle.is_empty() {
            self.bundle = self.store.buffer(PARTS_CHUNK_BYTES);
        }
        let offset = u32::try_from(self.bundle.len()).expect("bundles end at PARTS_CHUNK_BYTES");
        row.content = Content::Bundled {
            chunk: ChunkId([0; 32]),
            offset,
        };
        self.bundle.extend_from_slice(bytes);
        self.changes += 1;
        self.wait(Waiting::NewPart(row))
    }

    fn wait(&mut self, row: Waiting) -> Result<()> {
        self.waiting.push(row);
        match self.waiting.len() >= IMAGE_ROWS_WAITING_MAX {
            true => self.settle(),
            false => Ok(()),
        }
    }

    /// Closes the chunk; no row waits after it.
    pub(super) fn settle(&mut self) -> Result<()> {
        let chunk = match self.bundle.is_empty() {
            true => None,
            false => {
                let bytes = std::mem::take(&mut self.bundle);
                Some(self.store.store(ChunkKind::Data, bytes)?)
            }
        };
        for row in std::mem::take(&mut self.waiting) {
            match row {
                Waiting::Put(row) => self.catalog.put(&row)?,
                Waiting::Remove(key, bytes) => self.catalog.remove(&key, bytes)?,
                Waiting::Part(row) => {
                    self.catalog.put(&row)?;
                    self.settled.push(row);
                }
                Waiting::OldPart(row) => self.settled.push(row),
                Waiting::NewPart(mut row) => {
                    if let Content::Bundled { chunk: id, .. } = &mut row.content {
                        *id = chunk.expect("what waits for it has bytes in it");
                    }
                    self.catalog.put(&row)?;
                    self.settled.push(row);
                }
            }
        }
        Ok(())
    }

    /// Parts of blocks that are in the catalog since this was asked last, in their order.
    pub(super) fn take_settled(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.settled)
    }

    /// What could be gone on from, given that all up to `last` is made and no row waits.
    pub(super) fn checkpoint(
        &mut self,
        last: Option<&Key>,
        holds_all: bool,
    ) -> Result<Option<Partial>> {
        self.settle()?;
        let partial = last.map(|last| self.catalog.checkpoint(last, holds_all));
        Ok(partial.transpose()?)
    }

    /// Layers of the catalog, and how many rows changed.
    pub(super) fn finish(mut self) -> Result<(Vec<Layer>, u64)> {
        self.settle()?;
        Ok((self.catalog.finish()?.layers, self.changes))
    }
}
