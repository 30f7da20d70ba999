//! Packs that cannot be read at once (tape, cold classes): somebody makes them readable, and no
//! other one is read.

use crate::pack_reads::{PackReads, ReadsTotals};
use crate::report::RestoreError;
use crate::seams::{ChunkSource, ChunkTrouble};
use bale_format::{ChunkId, ChunkKind, ChunkPlace, PackNumber};
use bale_pipeline::monitor::Monitor;
use bytes::Bytes;
use std::io;

/// What comes of the packs that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// This one can be read from now on.
    Readable(PackNumber),
    /// Something is wrong.
    Problem(String),
    /// No more will come.
    End,
}

/// Makes packs readable, in whatever order.
pub trait Warmer: Send + Sync {
    /// Takes one of the packs that will be read; they come in the order of the restore.
    fn want(&self, reads: &PackReads) -> io::Result<()>;

    /// Those were all.
    fn begin(&self, totals: &ReadsTotals) -> io::Result<()>;

    /// Waits for the next news; days, perhaps. Ends early only when the monitor asks for it.
    fn next(&self, monitor: &dyn Monitor) -> Result<Arrival, RestoreError>;

    /// Has it come?
    fn is_readable(&self, pack: PackNumber) -> bool;

    /// The pack's name, for messages.
    fn name(&self, pack: PackNumber) -> String;
}

/// Data of packs that have become readable, and all metadata.
pub struct ReadableChunks<'a> {
    chunks: &'a dyn ChunkSource,
    warmer: &'a dyn Warmer,
}

impl<'a> ReadableChunks<'a> {
    /// Of all chunks those that the warmer lets be read.
    pub fn new(chunks: &'a dyn ChunkSource, warmer: &'a dyn Warmer) -> ReadableChunks<'a> {
        ReadableChunks { chunks, warmer }
    }
}

impl ChunkSource for ReadableChunks<'_> {
    fn place(&self, id: &ChunkId) -> Option<ChunkPlace> {
        self.chunks.place(id)
    }

    fn expect(&self, ids: &[ChunkId]) {
        let is_readable = |id: &ChunkId| {
            let place = self.place(id);
            place.is_some_and(|place| self.warmer.is_readable(place.pack))
        };
        let readable: Vec<ChunkId> = ids.iter().copied().filter(is_readable).collect();
        self.chunks.expect(&readable);
    }

    fn fetch_ahead(&self, ids: &[ChunkId]) {
        self.chunks.fetch_ahead(ids);
    }

    fn is_far_away(&self) -> bool {
        self.chunks.is_far_away()
    }

    fn read(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes, ChunkTrouble> {
        if kind == ChunkKind::Data
            && let Some(place) = self.place(id)
            && !self.warmer.is_readable(place.pack)
        {
            let name = self.warmer.name(place.pack);
            return Err(format!("{name} was not made readable").into());
        }
        self.chunks.read(id, kind)
    }
}
