//! Bytes of large files: what the writer of the file system asks for, from pieces that were fetched
//! ahead.

use super::chunks_ahead::{Items, PieceBytes, PieceItem};
use super::work::Work;
use crate::pieces::PieceReader;
use crate::{ChunkSource, RestoreError};
use bale_format::{ChunkId, Entry, EntryFlags, Piece};
use bale_fsimage::mkext4::FileData;
use std::io;
use std::ops::Range;

/// Neighbouring pieces are one stretch up to this length, so that the list is not read too far
/// ahead.
const STRETCH_BYTES_MAX: u64 = 1 << 30;

/// Where the data of a file with holes lies.
pub struct SparseData<'a> {
    pieces: Option<PieceReader<'a>>,
    stretch: Range<u64>,
    /// A piece that was read to see whether it follows the stretch.
    next: Option<Range<u64>>,
    bytes: u64,
}

impl<'a> SparseData<'a> {
    /// A list that cannot be read has no data; whoever reads the pieces tells why.
    pub fn new(list: &ChunkId, size: u64, chunks: &'a dyn ChunkSource) -> SparseData<'a> {
        SparseData {
            pieces: Some(PieceReader::new(list, size, chunks)),
            stretch: 0..0,
            next: None,
            bytes: 0,
        }
    }

    /// Bytes of data so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The stretch of data at or after `offset`; offsets ascend.
    pub fn stretch_from(&mut self, offset: u64) -> Option<Range<u64>> {
        while self.stretch.end <= offset {
            self.stretch = self.next.take().or_else(|| self.next_data_piece())?;
            while self.stretch.end - self.stretch.start < STRETCH_BYTES_MAX {
                self.next = self.next_data_piece();
                match &self.next {
                    Some(next) if next.start == self.stretch.end => self.stretch.end = next.end,
                    _ => break,
                }
                self.next = None;
            }
        }
        Some(self.stretch.clone())
    }

    fn next_data_piece(&mut self) -> Option<Range<u64>> {
        loop {
            match self.pieces.as_mut()?.next_piece() {
                Ok(Some((offset, Piece::Data { bytes, .. }))) => {
                    self.bytes = self.bytes.saturating_add(bytes);
                    return Some(offset..offset + bytes);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => self.pieces = None,
            }
        }
    }
}

impl FileData for SparseData<'_> {
    fn next_data(&mut self, offset_bytes: u64, _size_bytes: u64) -> Option<Range<u64>> {
        self.stretch_from(offset_bytes)
    }

    fn read_at(&mut self, _offset_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }
}

/// Bytes of a large file.
#[derive(Clone, Copy, Default)]
pub struct Got {
    pub bytes: u64,
    /// Zeros stand for them.
    pub missing: u64,
    /// The repository is the reason.
    pub has_damage: bool,
}

/// The content of one large file. What cannot be had is zeros and a problem.
pub struct PieceData<'a> {
    work: &'a Work<'a>,
    items: &'a mut Items,
    entry: &'a Entry,
    sparse: Option<SparseData<'a>>,
    piece: Option<PieceItem>,
    /// Bytes that could be had, and those that could not.
    got: Got,
    /// What ended the reading of pieces; the file is zeros from there on.
    pub failed: Option<RestoreError>,
}

impl<'a> PieceData<'a> {
    pub fn new(
        work: &'a Work<'a>,
        items: &'a mut Items,
        entry: &'a Entry,
        list: &ChunkId,
    ) -> PieceData<'a> {
        let sparse = entry.flags.has(EntryFlags::SPARSE);
        PieceData {
            work,
            items,
            entry,
            sparse: sparse.then(|| SparseData::new(list, entry.size, work.chunks)),
            piece: None,
            got: Got::default(),
            failed: None,
        }
    }

    /// Where data is, at or after `offset`.
    pub fn stretch_from(&mut self, offset: u64) -> Option<Range<u64>> {
        match &mut self.sparse {
            Some(sparse) => sparse.stretch_from(offset),
            None => (offset < self.entry.size).then_some(offset..self.entry.size),
        }
    }

    /// Fills `buf` from `offset`; offsets ascend. Holes are zeros.
    pub fn fill(&mut self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        let mut done = offset;
        while done < end {
            self.advance_to(done);
            let Some(piece) = &self.piece else {
                buf[(done - offset) as usize..].fill(0);
                return;
            };
            let stop = (piece.offset + piece.length).min(end);
            let start = piece.offset.clamp(done, end);
            buf[(done - offset) as usize..(start - offset) as usize].fill(0);
            if start < stop {
                let part = &mut buf[(start - offset) as usize..(stop - offset) as usize];
                copy(piece, start, part);
            }
            done = stop.max(start);
        }
    }

    /// Passes all pieces that end at or before `offset`; tells of those that cannot be had.
    fn advance_to(&mut self, offset: u64) {
        while self
            .piece
            .as_ref()
            .is_none_or(|piece| piece.offset + piece.length <= offset)
        {
            self.piece = match self.items.next_piece() {
                Ok(piece) => piece,
                Err(error) => {
                    self.failed.get_or_insert(error);
                    None
                }
            };
            let Some(piece) = &self.piece else { return };
            let Some(text) = trouble_of(piece) else {
                self.got.bytes += piece.length;
                continue;
            };
            self.got.missing += piece.length;
            let (start, stop) = (piece.offset, piece.offset + piece.length);
            let text = format!("bytes {start} to {stop}: {text}");
            match piece.bytes {
                PieceBytes::Unreadable => self.work.problem(&self.entry.path(), "read", &text),
                _ => {
                    self.got.has_damage = true;
                    self.work.damage(&self.entry.path(), "read", &text);
                }
            }
        }
    }

    /// Passes what is left, so that troubles beyond the last byte asked for are told.
    pub fn finish(mut self) -> Result<Got, RestoreError> {
        self.advance_to(u64::MAX);
        self.failed.map_or(Ok(self.got), Err)
    }
}

impl FileData for PieceData<'_> {
    fn next_data(&mut self, offset_bytes: u64, _size_bytes: u64) -> Option<Range<u64>> {
        self.stretch_from(offset_bytes)
    }

    fn read_at(&mut self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
        self.fill(offset_bytes, buf);
        Ok(())
    }
}

/// Why the bytes of a piece cannot be had.
fn trouble_of(piece: &PieceItem) -> Option<String> {
    match &piece.bytes {
        PieceBytes::Unreadable => Some("could not be read by the backup".to_owned()),
        PieceBytes::Damaged(text) => Some(text.clone()),
        PieceBytes::Chunk(slot, part) => match slot.wait() {
            Ok(bytes) if part.range_in(bytes.len()).is_some() => None,
            Ok(_) => Some("damaged piece list: its chunk has another length".to_owned()),
            Err(text) => Some(text.to_owned()),
        },
    }
}

/// The bytes of a piece from `start`, or zeros.
fn copy(piece: &PieceItem, start: u64, part: &mut [u8]) {
    if let PieceBytes::Chunk(slot, of_chunk) = &piece.bytes
        && let Ok(bytes) = slot.wait()
        && let Some(range) = of_chunk.range_in(bytes.len())
    {
        let from = range.start + (start - piece.offset) as usize;
        part.copy_from_slice(&bytes[from..from + part.len()]);
    } else {
        part.fill(0);
    }
}
