//! Sequential output: blocks handed out in ascending order, gathered into large writes.

use super::error::{MkError, Result};
use super::extents::TreeBlocks;
use super::geometry::{FlexLayout, Geometry};
use super::sink::BlockSink;

/// Bytes gathered for one write of file data or metadata blocks.
pub const STREAM_BUFFER_BYTES: usize = 2 << 20;
/// Bytes gathered for one write of inode tables, bitmaps or descriptors.
const RUN_BUFFER_BYTES: usize = 1 << 20;
/// Sinks that write past caches like offsets that are multiples of this.
const RUN_ALIGN_BYTES: u64 = 4096;

/// The sink, with errors that say what was attempted.
pub(super) struct Output<S> {
    sink: S,
    bytes_written: u64,
}

impl<S: BlockSink> Output<S> {
    pub fn new(sink: S) -> Output<S> {
        Output {
            sink,
            bytes_written: 0,
        }
    }

    pub fn write(&mut self, offset_bytes: u64, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let len_bytes = buffer.len() as u64;
        self.bytes_written += len_bytes;
        self.sink
            .write_at(offset_bytes, buffer)
            .map_err(|source| MkError::Write {
                offset_bytes,
                len_bytes,
                source,
            })
    }

    pub fn flush(&mut self) -> Result<()> {
        self.sink.flush().map_err(MkError::Flush)
    }

    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    pub fn into_sink(self) -> S {
        self.sink
    }
}

/// Writes that mostly follow each other, joined while they do.
#[derive(Default)]
pub(super) struct JoinedWrites {
    start: u64,
    buffer: Vec<u8>,
}

impl JoinedWrites {
    pub fn put<S: BlockSink>(
        &mut self,
        offset_bytes: u64,
        bytes: &[u8],
        out: &mut Output<S>,
    ) -> Result<()> {
        self.make_room(offset_bytes, bytes.len(), out)?;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The zeros that will be written there, to be filled by the caller.
    pub fn put_zeros<S: BlockSink>(
        &mut self,
        offset_bytes: u64,
        len_bytes: usize,
        out: &mut Output<S>,
    ) -> Result<&mut [u8]> {
        self.make_room(offset_bytes, len_bytes, out)?;
        let start = self.buffer.len();
        self.buffer.resize(start + len_bytes, 0);
        Ok(&mut self.buffer[start..])
    }

    fn make_room<S: BlockSink>(
        &mut self,
        offset_bytes: u64,
        len_bytes: usize,
        out: &mut Output<S>,
    ) -> Result<()> {
        let follows = self.start + self.buffer.len() as u64 == offset_bytes;
        // The first write of a run ends such that the others begin at a whole page.
        let limit = RUN_BUFFER_BYTES - (self.start % RUN_ALIGN_BYTES) as usize;
        if !follows || self.buffer.len() + len_bytes > limit {
            self.flush(1, out)?;
            self.start = offset_bytes;
        }
        Ok(())
    }

    /// Writes what is gathered, padded with zeros to whole `align_bytes`.
    pub fn flush<S: BlockSink>(&mut self, align_bytes: usize, out: &mut Output<S>) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.buffer
            .resize(self.buffer.len().next_multiple_of(align_bytes), 0);
        self.buffer = out.write(self.start, std::mem::take(&mut self.buffer))?;
        self.buffer.clear();
        Ok(())
    }
}

/// Blocks in ascending order, around the fixed structures.
pub(super) struct BlockStream {
    next: u64,
    run_end: u64,
    limit: u64,
    layout: Option<FlexLayout>,
    block_size: usize,
    /// Always `STREAM_BUFFER_BYTES` long once used; the first `filled` bytes wait to be written.
    buffer: Vec<u8>,
    buffer_start: u64,
    filled: usize,
}

impl BlockStream {
    /// Hands out blocks from `start`, none at or beyond `limit`.
    pub fn new(start: u64, limit: u64, block_size: u32) -> BlockStream {
        BlockStream {
            next: start,
            run_end: start,
            limit,
            layout: None,
            block_size: block_size as usize,
            buffer: Vec::new(),
            buffer_start: start,
            filled: 0,
        }
    }

    /// All blocks before this one and not fixed have been handed out.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Up to `want` neighbouring blocks, and the bytes that will be written there (of arbitrary
    /// content now). `None` at the limit.
    pub fn take<S: BlockSink>(
        &mut self,
        want: u64,
        geometry: &Geometry,
        out: &mut Output<S>,
    ) -> Result<Option<(u64, &mut [u8])>> {
        if self.next == self.run_end {
            let Some(run) = self.next_run(geometry) else {
                return Ok(None);
            };
            self.write_out(out)?;
            (self.next, self.run_end, self.buffer_start) = (run.start, run.end, run.start);
        }
        if self.filled == STREAM_BUFFER_BYTES {
            self.write_out(out)?;
        }
        self.buffer.resize(STREAM_BUFFER_BYTES, 0);
        let room = ((STREAM_BUFFER_BYTES - self.filled) / self.block_size) as u64;
        let count = want.min(room).min(self.run_end - self.next);
        let place = self.next;
        let bytes = &mut self.buffer[self.filled..][..count as usize * self.block_size];
        self.next += count;
        self.filled += bytes.len();
        Ok(Some((place, bytes)))
    }

    /// Skips blocks without writing them: up to `want` neighbours. Only before anything was taken.
    pub fn skip(&mut self, want: u64, geometry: &Geometry) -> Option<(u64, u64)> {
        if self.next == self.run_end {
            let run = self.next_run(geometry)?;
            (self.next, self.run_end) = (run.start, run.end);
        }
        let count = want.min(self.run_end - self.next);
        let place = self.next;
        self.next += count;
        self.buffer_start = self.next;
        Some((place, count))
    }

    /// Replaces a block handed out before.
    pub fn rewrite<S: BlockSink>(
        &mut self,
        place: u64,
        bytes: &[u8],
        out: &mut Output<S>,
    ) -> Result<()> {
        let block_size = self.block_size as u64;
        let waiting = self.buffer_start..self.buffer_start + self.filled as u64 / block_size;
        if waiting.contains(&place) {
            let start = (place - self.buffer_start) as usize * self.block_size;
            self.buffer[start..start + self.block_size].copy_from_slice(bytes);
        } else {
            out.write(place * block_size, bytes.to_vec())?;
        }
        Ok(())
    }

    /// Writes what is gathered.
    pub fn write_out<S: BlockSink>(&mut self, out: &mut Output<S>) -> Result<()> {
        if self.filled > 0 {
            self.buffer.truncate(self.filled);
            let offset = self.buffer_start * self.block_size as u64;
            self.buffer = out.write(offset, std::mem::take(&mut self.buffer))?;
        }
        self.buffer_start = self.next;
        self.filled = 0;
        Ok(())
    }

    fn next_run(&mut self, geometry: &Geometry) -> Option<std::ops::Range<u64>> {
        let run = geometry.free_run(self.next, &mut self.layout)?;
        let end = run.end.min(self.limit);
        (run.start < end).then_some(run.start..end)
    }
}

/// Every block that belongs to a file: metadata blocks in their zone, then file data.
///
/// A scan needs the zone and the inode tables, and nothing else of the device.
pub(super) struct Blocks<S> {
    pub geometry: Geometry,
    pub out: Output<S>,
    pub meta: BlockStream,
    pub data: BlockStream,
}

impl<S: BlockSink> Blocks<S> {
    /// Writes a metadata block and says where. When the zone is full, among the data.
    pub fn write_meta(&mut self, block: &[u8]) -> Result<u64> {
        let place = self.reserve_meta()?;
        // Just taken, so it waits in a buffer.
        self.rewrite_meta(place, block)?;
        Ok(place)
    }

    /// A metadata block to be written with [`Blocks::rewrite_meta`].
    pub fn reserve_meta(&mut self) -> Result<u64> {
        if let Some((place, _)) = self.meta.take(1, &self.geometry, &mut self.out)? {
            return Ok(place);
        }
        match self.data.take(1, &self.geometry, &mut self.out)? {
            Some((place, _)) => Ok(place),
            None => Err(self.full()),
        }
    }

    /// Replaces a metadata block.
    pub fn rewrite_meta(&mut self, place: u64, block: &[u8]) -> Result<()> {
        let stream = if place < self.meta.limit {
            &mut self.meta
        } else {
            &mut self.data
        };
        stream.rewrite(place, block, &mut self.out)
    }

    /// Where the zone of file data begins.
    pub fn data_start(&self) -> u64 {
        self.meta.limit
    }

    /// What to say when no block is left.
    pub fn full(&self) -> MkError {
        MkError::PlanExceeded {
            what: "blocks",
            planned: self.geometry.blocks,
        }
    }
}

impl<S: BlockSink> TreeBlocks for Blocks<S> {
    type Error = MkError;

    fn write(&mut self, block: &[u8]) -> Result<u64> {
        self.write_meta(block)
    }
}
