//! Bytes of files, in order, from chunks of which the last few are kept.

use super::DumpError;
use crate::ChunkSource;
use crate::losses::{self, Losses};
use crate::progress::{PhaseProgress, report_problem};
use crate::{pieces, row};
use bale_format::{ChunkId, ChunkKind, Content, Entry, EntryFlags, Piece};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::{Monitor, Phase};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::Write;

/// Chunks kept: neighbours in the catalog are mostly neighbours in a chunk, but those of several
/// backups alternate.
const CHUNKS_CACHED_MAX: usize = 8;
/// The same with the least memory.
const CHUNKS_CACHED_MAX_LEAST: usize = 2;

/// How many are kept.
pub const fn chunks_kept(memory: &MemoryPlan) -> usize {
    memory.share_from(CHUNKS_CACHED_MAX_LEAST, CHUNKS_CACHED_MAX)
}

/// Stretches of a file with holes that its map in the archive may have; a file with more is written
/// with its zeros.
pub const RANGES_MAX: usize = 1 << 20;

/// Bytes that a dump writes of one file, 8 PiB. A list of a few bytes can claim more, and its zeros
/// would have no end.
const WRITTEN_MAX: u64 = 1 << 53;

/// Zeros written at a time.
static ZEROS: [u8; 65536] = [0; 65536];

/// Reads contents, counts, and tells what cannot be read.
pub struct Contents<'a> {
    pub chunks: &'a dyn ChunkSource,
    pub monitor: &'a dyn Monitor,
    pub progress: PhaseProgress<'a>,
    pub bytes: u64,
    pub problems: u64,
    /// What the backup did not have.
    pub losses: Losses,
    cached: VecDeque<(ChunkId, Bytes)>,
    chunks_kept: usize,
}

impl<'a> Contents<'a> {
    pub fn new(
        chunks: &'a dyn ChunkSource,
        memory: &MemoryPlan,
        monitor: &'a dyn Monitor,
    ) -> Contents<'a> {
        Contents {
            chunks,
            monitor,
            progress: PhaseProgress::new(monitor, Phase::Restore),
            bytes: 0,
            problems: 0,
            losses: Losses::default(),
            cached: VecDeque::new(),
            chunks_kept: chunks_kept(memory),
        }
    }

    pub fn problem(&mut self, path: &[u8], text: &str) {
        self.problems += 1;
        report_problem(self.monitor, path, "dump", text);
    }

    /// Tells what the backup did not have of a row.
    pub fn report_flags(&mut self, entry: &Entry) {
        if let Some(text) = losses::missing_content(entry) {
            self.problem(&entry.path(), text);
        }
        for (kind, text) in losses::of_flags(entry.flags) {
            self.losses.add(kind, &entry.path(), text);
        }
    }

    fn chunk(&mut self, id: &ChunkId) -> Result<Bytes, String> {
        if let Some(at) = self.cached.iter().position(|(cached, _)| cached == id) {
            let found = self.cached.remove(at).expect("the position was just found");
            self.cached.push_back(found.clone());
            return Ok(found.1);
        }
        let bytes = self
            .chunks
            .read(id, ChunkKind::Data)
            .map_err(|trouble| trouble.to_string())?;
        if self.cached.len() == self.chunks_kept {
            self.cached.pop_front();
        }
        self.cached.push_back((*id, bytes.clone()));
        Ok(bytes)
    }

    /// The bytes of a file inside a chunk, all of them or the reason why not.
    pub fn bundled(&mut self, chunk: &ChunkId, offset: u32, size: u64) -> Result<Bytes, String> {
        let bytes = self.chunk(chunk)?;
        Ok(bytes.slice_ref(row::bundled(&bytes, offset, size)?))
    }

    /// Are these more bytes than a dump writes of one file? Then that is a problem, and none are to
    /// be written.
    pub fn is_endless(&mut self, bytes: u64, path: &[u8]) -> bool {
        if bytes > WRITTEN_MAX {
            let text = format!(
                "left out: it would be {bytes} bytes, more than the {WRITTEN_MAX} of one file in a \
                 dump; restore it instead"
            );
            self.problem(path, &text);
        }
        bytes > WRITTEN_MAX
    }

    /// Writes a whole file.
    pub fn write(
        &mut self,
        entry: &Entry,
        path: &[u8],
        out: &mut dyn Write,
    ) -> Result<(), DumpError> {
        if entry.flags.has(EntryFlags::UNREADABLE) {
            self.problem(path, "its content could not be read by the backup");
            return Ok(());
        }
        match &entry.content {
            _ if entry.size == 0 => Ok(()),
            Content::None | Content::Image => {
                self.problem(path, "damaged row: no content");
                Ok(())
            }
            Content::Bundled { chunk, offset } => match self.bundled(chunk, *offset, entry.size) {
                Ok(bytes) => self.put(&bytes, out),
                Err(text) => {
                    self.problem(path, &text);
                    Ok(())
                }
            },
            Content::Pieces { .. } if self.is_endless(entry.size, path) => Ok(()),
            Content::Pieces { list } => {
                let whole = [(0, entry.size)];
                self.write_ranges(list, entry.size, &whole, path, out)
            }
        }
    }

    /// Stretches of data of a file with holes; `None` if there are too many, or its list is
    /// damaged. They begin and end at whole blocks, for readers differ in whether a stretch that
    /// does not is filled up.
    pub fn ranges(&mut self, list: &ChunkId, size: u64) -> Option<Vec<(u64, u64)>> {
        const BLOCK: u64 = super::tar::BLOCK_BYTES as u64;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        pieces::walk(list, size, self.chunks, &mut |offset, piece| {
            if !matches!(piece, Piece::Data { .. }) {
                return Ok(());
            }
            let from = offset - offset % BLOCK;
            let to = (offset + piece.bytes())
                .checked_next_multiple_of(BLOCK)
                .map_or(size, |to| to.min(size));
            let count = ranges.len();
            match ranges.last_mut() {
                Some((last, len)) if *last + *len >= from => *len = to - *last,
                _ if count == RANGES_MAX => return Err("too many".to_owned()),
                _ => ranges.push((from, to - from)),
            }
            Ok(())
        })
        .ok()?;
        Some(ranges)
    }

    /// Writes exactly these stretches of a file of pieces. What cannot be read is zeros and a
    /// problem.
    pub fn write_ranges(
        &mut self,
        list: &ChunkId,
        size: u64,
        ranges: &[(u64, u64)],
        path: &[u8],
        out: &mut dyn Write,
    ) -> Result<(), DumpError> {
        let mut wanted = ranges.iter().copied().peekable();
        let mut failure = None;
        // How far the output has come in the file.
        let mut at = 0;
        let chunks = self.chunks;
        let walked = pieces::walk_expecting(list, size, chunks, &mut |offset, piece| {
            let end = offset + piece.bytes();
            while let Some((from, len)) = wanted.peek().copied() {
                let (start, stop) = (from.max(offset), (from + len).min(end));
                if start < stop
                    && let Err(error) = self.write_piece(piece, offset, (start, stop), path, out)
                {
                    failure = Some(error);
                    return Err(String::new());
                }
                if from + len > end {
                    break;
                }
                wanted.next();
            }
            at = end;
            Ok(())
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        if let Err(text) = walked {
            self.problem(path, &text);
            let missing = ranges
                .iter()
                .map(|(from, len)| (from + len).saturating_sub(at.max(*from)))
                .sum();
            return self.put_zeros(missing, out);
        }
        Ok(())
    }

    /// Writes a part of a piece.
    fn write_piece(
        &mut self,
        piece: Piece,
        offset: u64,
        (start, stop): (u64, u64),
        path: &[u8],
        out: &mut dyn Write,
    ) -> Result<(), DumpError> {
        let text = match piece {
            Piece::Hole { .. } => return self.put_zeros(stop - start, out),
            Piece::Unreadable { .. } => "could not be read by the backup".to_owned(),
            Piece::Data { chunk, .. } => match self.chunk(&chunk) {
                Ok(bytes) => match piece.range_in(bytes.len()) {
                    Some(range) => {
                        let part = (start - offset) as usize..(stop - offset) as usize;
                        return self.put(&bytes[range][part], out);
                    }
                    None => "damaged piece list: its chunk has another length".to_owned(),
                },
                Err(text) => text,
            },
        };
        self.problem(path, &format!("bytes {start} to {stop}: {text}"));
        self.put_zeros(stop - start, out)
    }

    pub fn put(&mut self, bytes: &[u8], out: &mut dyn Write) -> Result<(), DumpError> {
        self.count(bytes.len() as u64)?;
        out.write_all(bytes).map_err(DumpError::Output)
    }

    /// So many bytes of content are written.
    pub fn count(&mut self, bytes: u64) -> Result<(), DumpError> {
        if self.monitor.interrupted() {
            return Err(DumpError::Stopped);
        }
        self.bytes += bytes;
        self.progress.add(0, bytes);
        Ok(())
    }

    pub fn put_zeros(&mut self, length: u64, out: &mut dyn Write) -> Result<(), DumpError> {
        let mut left = length;
        while left > 0 {
            let now = left.min(ZEROS.len() as u64);
            self.put(&ZEROS[..now as usize], out)?;
            left -= now;
        }
        Ok(())
    }
}
