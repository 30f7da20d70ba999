//! The bytes of an image on their way into a file or a device, or compared with one.
//!
//! Extents are taken in the order of packs, so that each chunk is fetched once, by several threads;
//! what holds none of them comes first, in the order of the image. Of a target that was there only
//! blocks that differ are written, so the same restore again costs reading, and a hole of the image
//! becomes one in the target, or zeros.

use crate::extents::{Stretch, Stretches};
use crate::image_writer::ImageWriter;
use crate::kernel::outcome::EntryFailure;
use crate::kernel::worker::RestoreRun;
use crate::plan::PlannedImage;
use crate::scratch::{ScratchSpace, SortedPairs};
use crate::seams::text_of;
use crate::{CatalogSource, RestoreError, row};
use bale_format::{ChunkId, ChunkKind, ImageExtent};
use bale_pipeline::ordered::{ReadAhead, in_order_within};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::iter::Peekable;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Unit in which a target is compared, and zeros are left out of a new one: what file systems
/// allocate.
const BLOCK_BYTES: usize = 4096;
/// Bytes looked at together where an image holds nothing.
const WINDOW_BYTES: usize = 1 << 20;
/// Memory of the sorter.
const SORTER_BYTES: usize = 16 << 20;
/// Extents of one chunk that one thread takes: it has them in memory.
const EXTENTS_OF_A_JOB_MAX: usize = 4096;

/// What becomes of the target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ImagePurpose {
    /// It holds nothing but zeros.
    Fill,
    /// It holds something; what differs is written.
    Update,
    /// Nothing is written.
    Compare,
}

/// What was done.
#[derive(Clone, Copy, Default)]
pub struct ImageDone {
    /// Written, or compared.
    pub bytes: u64,
    /// Bytes that could not be had.
    pub missing: u64,
    pub differs: bool,
}

impl ImageDone {
    fn add(&mut self, other: ImageDone) {
        self.bytes += other.bytes;
        self.missing += other.missing;
        self.differs |= other.differs;
    }
}

/// One image and its target.
pub struct ImageBlocks<'r> {
    pub run: &'r RestoreRun<'r>,
    pub image: &'r PlannedImage,
    pub file: &'r File,
    pub purpose: ImagePurpose,
}

/// What each thread has.
struct ThreadState<'f> {
    /// What is there, to be compared with.
    window: Vec<u8>,
    writer: ImageWriter<&'f File>,
}

/// Extents that lie in one chunk.
struct ChunkJob {
    chunk: ChunkId,
    extents: Vec<ImageExtent>,
}

impl ImageBlocks<'_> {
    /// Goes through the whole image. An `Err` ends the restore; a failure ends this image.
    pub fn apply(
        &self,
        catalog: &dyn CatalogSource,
        scratch: &ScratchSpace,
    ) -> Result<Result<ImageDone, EntryFailure>, RestoreError> {
        let mut done = ImageDone::default();
        let sorted = match self.sort(catalog, scratch, &mut done)? {
            Ok(sorted) => sorted,
            Err(failure) => return Ok(Err(failure)),
        };
        let threads = self.run.threads.max(1);
        let ahead = ReadAhead {
            threads,
            results: 2 * threads,
        };
        let mut failure = None;
        let jobs = self.jobs(sorted);
        let state = || ThreadState {
            window: vec![0; WINDOW_BYTES],
            writer: match self.purpose {
                ImagePurpose::Fill => ImageWriter::new(self.file),
                _ => ImageWriter::through_cache(self.file),
            },
        };
        let worked = in_order_within(
            ahead,
            jobs,
            state,
            |state, job| self.work(job, state),
            |result| {
                match result {
                    Ok(part) => done.add(part),
                    Err(failed) => {
                        failure = Some(failed);
                        return Err(());
                    }
                }
                self.run.progress.add(0, 0);
                match self.run.has_ended() {
                    true => Err(()),
                    false => Ok(()),
                }
            },
        );
        match (worked, failure) {
            (_, Some(failure)) => Ok(Err(failure)),
            (Ok(()), None) => Ok(Ok(done)),
            (Err(()), None) => {
                self.run.outcome()?;
                Err(RestoreError::Stopped)
            }
        }
    }

    /// Extents by the place of their chunks; what holds none is dealt with.
    fn sort(
        &self,
        catalog: &dyn CatalogSource,
        scratch: &ScratchSpace,
        done: &mut ImageDone,
    ) -> Result<Result<SortedPairs, EntryFailure>, RestoreError> {
        let (path, size) = (&self.image.path, self.image.entry.size);
        let mut sorter = scratch.sorter(SORTER_BYTES);
        let mut buffer = vec![0; WINDOW_BYTES];
        for stretch in Stretches::of(catalog, path, size).map_err(RestoreError::Catalog)? {
            if self.run.has_ended() {
                self.run.outcome()?;
                return Err(RestoreError::Stopped);
            }
            match stretch {
                Stretch::Zeros(range) => match self.zeros(range, &mut buffer) {
                    Ok(part) => done.add(part),
                    Err(failure) => return Ok(Err(failure)),
                },
                Stretch::Unknown(range, text) => {
                    done.missing += range.end - range.start;
                    self.damage(&range, &text);
                }
                Stretch::Data(extent) => match self.run.chunks.place(&extent.chunk) {
                    Some(place) => {
                        let mut key = place.sort_key().to_vec();
                        key.extend_from_slice(&extent.start.to_be_bytes());
                        let pushed = sorter.push(&key, &encode(&extent));
                        pushed.map_err(RestoreError::Scratch)?;
                    }
                    None => {
                        let text = format!("chunk {} is in no index", extent.chunk.short());
                        self.lost(&extent, &text, done);
                    }
                },
            }
        }
        Ok(Ok(sorter.finish().map_err(RestoreError::Scratch)?))
    }

    /// Jobs in the order of packs. Trouble with the sorter ends the run.
    fn jobs(&self, sorted: SortedPairs) -> impl Iterator<Item = ChunkJob> {
        let mut extents = sorted
            .map_while(|pair| match pair.map(|(_, value)| decode(&value)) {
                Ok(Some(extent)) => Some(extent),
                Ok(None) => {
                    let error = std::io::ErrorKind::InvalidData.into();
                    self.run.end(RestoreError::Scratch(error));
                    None
                }
                Err(error) => {
                    self.run.end(RestoreError::Scratch(error));
                    None
                }
            })
            .peekable();
        std::iter::from_fn(move || {
            let job = next_job(&mut extents)?;
            if self.run.chunks.is_far_away() {
                self.run.chunks.expect(&[job.chunk]);
            }
            Some(job)
        })
    }

    fn work(&self, job: ChunkJob, state: &mut ThreadState) -> Result<ImageDone, EntryFailure> {
        let ThreadState { window, writer } = state;
        let mut done = ImageDone::default();
        if self.run.has_ended() {
            return Ok(done);
        }
        let read = self.run.chunks.read(&job.chunk, ChunkKind::Data);
        for extent in &job.extents {
            let bytes = match &read {
                Ok(chunk) => row::bundled(chunk, extent.offset, extent.bytes),
                Err(trouble) => Err(text_of(trouble)),
            };
            match bytes {
                Err(text) => self.lost(extent, &text, &mut done),
                Ok(bytes) => done.add(match self.purpose {
                    ImagePurpose::Fill => self.fill(extent.start, bytes, writer)?,
                    ImagePurpose::Update => self.update(extent.start, bytes, (window, writer))?,
                    ImagePurpose::Compare => self.compare(extent.start, bytes, window)?,
                }),
            }
            self.run.progress.add(0, extent.bytes);
        }
        Ok(done)
    }

    /// What of it could not be had is as it was: zeros in a new file.
    fn lost(&self, extent: &ImageExtent, text: &str, done: &mut ImageDone) {
        done.missing += extent.bytes;
        self.damage(&(extent.start..extent.end()), text);
    }

    fn damage(&self, range: &Range<u64>, text: &str) {
        let stays = match self.purpose {
            ImagePurpose::Fill => "; they are zeros",
            ImagePurpose::Update => "; they stay as they were in the target",
            ImagePurpose::Compare => "",
        };
        let text = format!("bytes {} to {}: {text}{stays}", range.start, range.end);
        self.run.damage(&self.image.entry.path(), "read", &text);
    }

    /// Writes all but blocks of zeros.
    fn fill(
        &self,
        start: u64,
        bytes: &[u8],
        writer: &mut ImageWriter<&File>,
    ) -> Result<ImageDone, EntryFailure> {
        self.write_blocks(start, bytes, writer, |_, block| !is_zero(block))
    }

    fn update(
        &self,
        start: u64,
        bytes: &[u8],
        (window, writer): (&mut [u8], &mut ImageWriter<&File>),
    ) -> Result<ImageDone, EntryFailure> {
        let there = self.read(start, &mut window[..bytes.len()])?;
        self.write_blocks(start, bytes, writer, |at, block| {
            there[at..at + block.len()] != *block
        })
    }

    fn compare(
        &self,
        start: u64,
        bytes: &[u8],
        buffer: &mut [u8],
    ) -> Result<ImageDone, EntryFailure> {
        let there = self.read(start, &mut buffer[..bytes.len()])?;
        let first = there.iter().zip(bytes).position(|(a, b)| a != b);
        if let Some(first) = first {
            let text = format!("content differs after byte {}", start + first as u64);
            self.run.problem(&self.image.entry.path(), "verify", &text);
        }
        Ok(ImageDone {
            bytes: bytes.len() as u64,
            differs: first.is_some(),
            ..ImageDone::default()
        })
    }

    /// Writes runs of the blocks that are wanted. Blocks are those of the target.
    fn write_blocks(
        &self,
        start: u64,
        bytes: &[u8],
        writer: &mut ImageWriter<&File>,
        is_wanted: impl Fn(usize, &[u8]) -> bool,
    ) -> Result<ImageDone, EntryFailure> {
        let mut done = ImageDone::default();
        let (mut at, mut run) = (0, 0..0);
        while at < bytes.len() {
            let within = ((start + at as u64) % BLOCK_BYTES as u64) as usize;
            let end = (at + BLOCK_BYTES - within).min(bytes.len());
            if is_wanted(at, &bytes[at..end]) {
                run = match run.is_empty() {
                    true => at..end,
                    false => run.start..end,
                };
            }
            let is_over = run.end != end || end == bytes.len();
            if is_over && !run.is_empty() {
                let written = writer.write(start + run.start as u64, &bytes[run.clone()]);
                written.map_err(|error| failed("write", &error))?;
                done.bytes += run.len() as u64;
                run = 0..0;
            }
            at = end;
        }
        Ok(done)
    }

    fn read<'b>(&self, start: u64, buffer: &'b mut [u8]) -> Result<&'b [u8], EntryFailure> {
        let read = self.file.read_exact_at(buffer, start);
        read.map_err(|error| failed("read back", &error))?;
        Ok(buffer)
    }

    /// A stretch of the image that holds nothing.
    fn zeros(&self, range: Range<u64>, buffer: &mut [u8]) -> Result<ImageDone, EntryFailure> {
        let mut done = ImageDone::default();
        if self.purpose == ImagePurpose::Fill {
            return Ok(done);
        }
        let mut at = range.start;
        while let Some(data) = next_data(self.file, at..range.end) {
            if self.run.has_ended() {
                return Ok(done);
            }
            let end = data.end.min(data.start + buffer.len() as u64);
            let there = self.read(data.start, &mut buffer[..(end - data.start) as usize])?;
            if !is_zero(there) {
                match self.purpose {
                    ImagePurpose::Compare => {
                        let text = format!("content differs after byte {}", data.start);
                        self.run.problem(&self.image.entry.path(), "verify", &text);
                        done.differs = true;
                        return Ok(done);
                    }
                    _ => self.clear(data.start..end)?,
                }
                done.bytes += end - data.start;
            }
            at = end;
        }
        Ok(done)
    }

    /// Gives the range back to whoever holds it, or writes zeros.
    fn clear(&self, range: Range<u64>) -> Result<(), EntryFailure> {
        let bytes = range.end - range.start;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(self.file, flags, range.start, bytes) {
            Ok(()) => Ok(()),
            Err(_) => {
                let zeros = vec![0; bytes as usize];
                let written = self.file.write_all_at(&zeros, range.start);
                written.map_err(|error| failed("write", &error))
            }
        }
    }
}

fn next_job(extents: &mut Peekable<impl Iterator<Item = ImageExtent>>) -> Option<ChunkJob> {
    let first = extents.next()?;
    let mut job = ChunkJob {
        chunk: first.chunk,
        extents: vec![first],
    };
    while job.extents.len() < EXTENTS_OF_A_JOB_MAX
        && let Some(next) = extents.next_if(|next| next.chunk == job.chunk)
    {
        job.extents.push(next);
    }
    Some(job)
}

/// The next range in which there may be data: of a device, or where nobody knows, all.
fn next_data(file: &File, range: Range<u64>) -> Option<Range<u64>> {
    if range.is_empty() {
        return None;
    }
    match rustix::fs::seek(file, SeekFrom::Data(range.start)) {
        Ok(start) if start >= range.end => None,
        Err(Errno::NXIO) => None,
        Err(_) => Some(range),
        Ok(start) => {
            let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(range.end);
            Some(start..end.min(range.end).max(start + 1))
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn failed(action: &'static str, error: &std::io::Error) -> EntryFailure {
    match Errno::from_io_error(error) {
        Some(errno) => EntryFailure::os(action)(errno),
        None => EntryFailure::text(action, error.to_string()),
    }
}

/// An extent in the sorter; only this process reads it.
fn encode(extent: &ImageExtent) -> [u8; 53] {
    let mut bytes = [0; 53];
    bytes[..8].copy_from_slice(&extent.start.to_le_bytes());
    bytes[8..16].copy_from_slice(&extent.bytes.to_le_bytes());
    bytes[16..48].copy_from_slice(&extent.chunk.0);
    bytes[48..52].copy_from_slice(&extent.offset.to_le_bytes());
    bytes[52] = u8::from(extent.is_incomplete);
    bytes
}

fn decode(bytes: &[u8]) -> Option<ImageExtent> {
    let (start, rest) = bytes.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let (chunk, rest) = rest.split_first_chunk::<32>()?;
    let (offset, rest) = rest.split_first_chunk::<4>()?;
    Some(ImageExtent {
        start: u64::from_le_bytes(*start),
        bytes: u64::from_le_bytes(*len),
        chunk: ChunkId(*chunk),
        offset: u32::from_le_bytes(*offset),
        is_incomplete: *rest.first()? == 1,
        block_hash: None,
    })
}
