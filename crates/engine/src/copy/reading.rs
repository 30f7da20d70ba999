//! Reading chunks of the source, some ahead of their turn, each opened and compared with its id.
//!
//! From a source that is far away neighbours come together, and several reads are on their way.
//!
//! What is lost in the source is told apart from a store that does not answer: the former costs the
//! snapshots that need it, the latter ends the copy.

use crate::limits::copy_ahead;
use crate::whole::{is_loss, with_archive_advice};
use bale_format::{ChunkId, ChunkKind};
use bale_pipeline::error::with_causes;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_pipeline::ordered::in_order_within;
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::{ChunkFlights, Repository};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Chunks that are said to be expected together, before their turn, where they are far away.
const EXPECTED_TOGETHER: usize = 64;

/// Where chunks are read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) source: &'a Arc<Repository>,
    pub(super) index: &'a Arc<ChunkIndex>,
    /// What packs on their way to the target leave.
    pub(super) memory: MemoryPlan,
    /// Of a source that is far away.
    pub(super) flights: Option<&'a ChunkFlights>,
    pub(super) monitor: &'a dyn Monitor,
}

/// What is wrong with a chunk that is lost: names it, and its pack where there is one.
#[derive(Clone, Debug)]
pub(super) struct LostChunk {
    pub(super) text: String,
}

impl LostChunk {
    pub(super) fn new(chunk: ChunkId, error: &dyn std::error::Error) -> LostChunk {
        let text = with_causes(error);
        LostChunk {
            text: match text.contains(&chunk.short()) {
                true => text,
                false => format!("chunk {}: {text}", chunk.short()),
            },
        }
    }
}

impl Reading<'_> {
    /// Reads chunks at some positions of the index; `take` gets each with its position, in the same
    /// order.
    pub(super) fn at(
        &self,
        positions: &[usize],
        take: impl FnMut(usize, std::result::Result<Bytes, LostChunk>) -> Result<()>,
    ) -> Result<()> {
        let chunks = positions.iter().map(|position| {
            let chunk = &self.index.entries()[*position].chunk;
            (*position, chunk.id, chunk.kind)
        });
        self.chunks(chunks, take)
    }

    /// The same for chunks that may be in no pack; each has a number.
    pub(super) fn chunks(
        &self,
        chunks: impl Iterator<Item = NumberedChunk>,
        mut take: impl FnMut(usize, std::result::Result<Bytes, LostChunk>) -> Result<()>,
    ) -> Result<()> {
        let chunks = ExpectedChunks {
            chunks,
            flights: self.flights,
            waiting: VecDeque::new(),
        };
        in_order_within(
            copy_ahead(&self.memory),
            chunks,
            || (),
            |(), (number, id, kind)| (number, id, self.read(&id, kind)),
            |(number, id, read)| {
                if self.monitor.interrupted() {
                    return Err(Error::Interrupted);
                }
                match read {
                    Err(error) if !is_loss(&error) => Err(with_archive_advice(error)),
                    read => take(number, read.map_err(|error| LostChunk::new(id, &error))),
                }
            },
        )
    }

    fn read(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes> {
        match self.flights.and_then(|flights| flights.read(id, kind)) {
            Some(plain) => Ok(plain),
            None => self.source.read_chunk_wherever(id, kind),
        }
    }

    /// Names what is lost.
    pub(super) fn problem(&self, path: Vec<u8>, text: String) {
        self.monitor.problem(&Problem {
            path,
            action: "copy",
            text,
        });
    }

    pub(super) fn progress(&self, phase: Phase, done: u64, total: u64) {
        let progress = Progress {
            done,
            total,
            ..Progress::default()
        };
        self.monitor.progress(phase, progress);
    }
}

/// A chunk to be read, and the number that its reader knows it by.
type NumberedChunk = (usize, ChunkId, ChunkKind);

/// Chunks in turn, of which whoever has them far away learns before.
struct ExpectedChunks<'a, I> {
    chunks: I,
    flights: Option<&'a ChunkFlights>,
    waiting: VecDeque<NumberedChunk>,
}

impl<I: Iterator<Item = NumberedChunk>> Iterator for ExpectedChunks<'_, I> {
    type Item = NumberedChunk;

    fn next(&mut self) -> Option<NumberedChunk> {
        let Some(flights) = self.flights else {
            return self.chunks.next();
        };
        if self.waiting.len() < EXPECTED_TOGETHER {
            let before = self.waiting.len();
            let more = self.chunks.by_ref().take(EXPECTED_TOGETHER);
            self.waiting.extend(more);
            let ids = self.waiting.iter().skip(before).map(|(_, id, _)| *id);
            flights.expect(&ids.collect::<Vec<_>>());
        }
        self.waiting.pop_front()
    }
}
