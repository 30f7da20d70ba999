//! Storing chunks in the target, and which ids they have there.
//!
//! In memory: 32 bytes for each entry of the source's index, and some 40 for each piece list.

use super::needs::Needs;
use super::positions::{LEVELS, Positions, place_of, position_of};
use super::reading::Reading;
use super::rows_by_place::{KnownChunks, RowPlace, spilling};
use crate::limits::{COPY_FLUSH_BYTES, COPY_FLUSH_EVERY, SEGMENT_PATIENCE};
use bale_format::{ChunkId, ChunkKind, Content, Entry, Piece, PieceList, XattrsColumn};
use bale_pipeline::monitor::{Phase, Progress};
use bale_pipeline::spill::{Sorted, Sorter};
use bale_repository::error::Result;
use bale_repository::index::ChunkIndex;
use bale_repository::pack::{ChunkWriter, IfClosed};
use bytes::Bytes;
use std::collections::HashMap;
use std::time::Instant;

/// What is stored so far.
pub(super) struct Storing<'a> {
    pub(super) writer: &'a ChunkWriter,
    index: &'a ChunkIndex,
    ids: Vec<ChunkId>,
    is_stored: Positions,
    list_hashes: HashMap<usize, [u8; 16]>,
    pub(super) chunks_read: u64,
    pub(super) bytes_read: u64,
    pub(super) chunks_lost: u64,
    bytes_sealed: u64,
    bytes_flushed: u64,
    flushed: Instant,
}

impl<'a> Storing<'a> {
    /// What is known from earlier copies counts as stored.
    pub(super) fn new(
        reading: Reading<'a>,
        known: KnownChunks,
        writer: &'a ChunkWriter,
    ) -> Storing<'a> {
        Storing {
            writer,
            index: reading.index,
            ids: known.ids,
            is_stored: known.is_known,
            list_hashes: known.list_hashes,
            chunks_read: 0,
            bytes_read: 0,
            chunks_lost: 0,
            bytes_sealed: 0,
            bytes_flushed: 0,
            flushed: Instant::now(),
        }
    }

    /// What a chunk of the source is in the target; `None`: it is lost.
    pub(super) fn new_id(&self, id: &ChunkId) -> Option<ChunkId> {
        let position = position_of(self.index, id)?;
        self.is_stored.has(position).then(|| self.ids[position])
    }

    /// The same of a piece list, with the content hash of a file of which it is the root.
    pub(super) fn new_list(&self, id: &ChunkId) -> Option<(ChunkId, [u8; 16])> {
        let hash = self.list_hashes.get(&position_of(self.index, id)?)?;
        Some((self.new_id(id)?, *hash))
    }

    /// Is content or are attributes of a row of the source lost?
    pub(super) fn is_lost(&self, row: &Entry) -> bool {
        let set = XattrsColumn::chunk_of(&row.xattrs);
        let content = match row.content {
            Content::None | Content::Image => true,
            Content::Bundled { chunk, offset } => self.holds(&chunk, u64::from(offset), row.size),
            Content::Pieces { list } => self.new_list(&list).is_some(),
        };
        !content || set.is_some_and(|set| self.new_id(&set).is_none())
    }

    fn holds(&self, chunk: &ChunkId, offset: u64, bytes: u64) -> bool {
        let position = position_of(self.index, chunk).filter(|at| self.is_stored.has(*at));
        position.is_some_and(|position| {
            let there = u64::from(self.index.entries()[position].chunk.plain_bytes);
            offset.saturating_add(bytes) <= there
        })
    }

    /// Copies chunks of data and of extended attributes, each read once, in the order of the
    /// source's packs; hashes the content of `rows` on the way, for `segments::rewrite`.
    pub(super) fn copy_content(
        &mut self,
        reading: Reading<'_>,
        needs: &Needs,
        (rows, hashes): (Sorted, Sorter),
    ) -> Result<Sorted> {
        let mut hashing = Hashing { rows, hashes };
        hashing.rows.next_record().map_err(spilling)?;
        let total = needs.sum(reading.index);
        let order = needs.content.by_place(reading.index);
        reading.at(&order, |position, read| {
            match read {
                Err(lost) => {
                    self.chunks_lost += 1;
                    reading.problem(Vec::new(), lost.text);
                }
                Ok(plain) => {
                    let place = place_of(reading.index, position);
                    hashing.hash_rows(place, &plain, self.writer)?;
                    self.count_read(position, &plain);
                    let kind = reading.index.entries()[position].chunk.kind;
                    self.store(position, kind, plain.into())?;
                }
            }
            self.progress(reading, total);
            self.flush_when_due()
        })?;
        hashing.hashes.finish().map_err(spilling)
    }

    /// Writes piece lists anew, from the leaves up.
    pub(super) fn copy_lists(&mut self, reading: Reading<'_>, needs: &Needs) -> Result<()> {
        let total = needs.sum(reading.index);
        for level in 0..LEVELS {
            let order = needs.lists[level].by_place(reading.index);
            reading.at(&order, |position, read| {
                // What is lost of it was named when it was followed, or with its chunks.
                let plain = match read {
                    Err(_) => None,
                    Ok(plain) => {
                        self.count_read(position, &plain);
                        self.rewritten(&plain)
                    }
                };
                if let Some(plain) = plain {
                    let hash = self.writer.keys().content_hash(&plain);
                    self.list_hashes.insert(position, hash);
                    self.store(position, ChunkKind::Pieces, plain)?;
                }
                self.progress(reading, total);
                self.flush_when_due()
            })?;
        }
        Ok(())
    }

    /// `None`: something that it names is lost.
    fn rewritten(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut list = PieceList::decode(plain).ok()?;
        match &mut list {
            PieceList::Leaf(pieces) => {
                for piece in pieces {
                    if let Piece::Data { chunk, .. } = piece {
                        *chunk = self.new_id(chunk)?;
                    }
                }
            }
            PieceList::Inner { lists, .. } => {
                for below in lists {
                    below.list = self.new_id(&below.list)?;
                }
            }
        }
        Some(list.encode())
    }

    fn store(&mut self, position: usize, kind: ChunkKind, plain: Vec<u8>) -> Result<()> {
        self.ids[position] = self.writer.store(kind, plain)?;
        self.is_stored.add(position);
        Ok(())
    }

    fn count_read(&mut self, position: usize, plain: &Bytes) {
        self.chunks_read += 1;
        self.bytes_read += plain.len() as u64;
        self.bytes_sealed += u64::from(self.index.entries()[position].chunk.sealed_bytes);
    }

    fn progress(&self, reading: Reading<'_>, (chunks, bytes): (u64, u64)) {
        let progress = Progress {
            done: self.chunks_read,
            total: chunks,
            bytes_done: self.bytes_sealed,
            bytes_total: bytes,
        };
        reading.monitor.progress(Phase::Copy, progress);
    }

    /// What the index names is found by the copy that goes on from here after a crash.
    fn flush_when_due(&mut self) -> Result<()> {
        let new = self.writer.written().bytes_stored - self.bytes_flushed;
        let lasted = self.flushed.elapsed();
        if new < COPY_FLUSH_BYTES && (lasted < COPY_FLUSH_EVERY || new == 0) {
            return Ok(());
        }
        // Segments that are full are named without that.
        let closes_one = self.writer.if_closed(0) != IfClosed::Nothing;
        if closes_one && lasted < COPY_FLUSH_EVERY * SEGMENT_PATIENCE {
            return Ok(());
        }
        self.bytes_flushed = self.writer.flush()?.bytes_stored;
        self.flushed = Instant::now();
        Ok(())
    }
}

/// Hashes the content of bundled rows as their chunks come.
struct Hashing {
    /// At the first row that was not met.
    rows: Sorted,
    hashes: Sorter,
}

impl Hashing {
    /// Rows of chunks that were lost, and so never come here, get no hash; nor do those that claim
    /// bytes beyond the end of their chunk.
    fn hash_rows(&mut self, chunk: (u32, u64), plain: &[u8], writer: &ChunkWriter) -> Result<()> {
        let mut last: Option<(RowPlace, Option<[u8; 16]>)> = None;
        while let Some((key, at)) = self.rows.current() {
            let place = RowPlace::decode(key);
            if place.chunk > chunk {
                break;
            }
            if place.chunk == chunk {
                let hash = match last.filter(|(before, _)| *before == place) {
                    Some((_, hash)) => hash,
                    None => content_hash(&place, plain, writer),
                };
                last = Some((place, hash));
                if let Some(hash) = hash {
                    self.hashes.push(at, &hash).map_err(spilling)?;
                }
            }
            self.rows.next_record().map_err(spilling)?;
        }
        Ok(())
    }
}

fn content_hash(place: &RowPlace, plain: &[u8], writer: &ChunkWriter) -> Option<[u8; 16]> {
    let from = place.offset as usize;
    let bytes = plain.get(from..from + place.bytes as usize)?;
    Some(writer.keys().content_hash(bytes))
}
