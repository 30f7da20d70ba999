//! Which pieces are at a place of a large file: windows of its list, the last few of them kept.

use crate::latest_used::LatestUsed;
use crate::limits::AHEAD_BYTES;
use bale_format::{ChunkId, ChunkKind, Piece, PieceStep, PieceWalk};
use bale_restore::ChunkSource;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Pieces in a window: two gigabytes of a file that was written once.
const WINDOW_PIECES_MAX: usize = 512;
/// Windows that are kept.
const WINDOWS_MAX: usize = 32;
/// A reader with several requests on their way makes them in no order.
const SLACK_BYTES: u64 = 2 << 20;

/// What all windows take.
pub const MEMORY_BYTES: usize = WINDOWS_MAX * WINDOW_PIECES_MAX * size_of::<(u64, Piece)>();

/// Pieces in order, without gaps, and how far somebody has read them.
pub struct PieceWindow {
    range: Range<u64>,
    pieces: Vec<(u64, Piece)>,
    reader: Mutex<ForwardReader>,
}

#[derive(Clone, Copy, Default)]
struct ForwardReader {
    reached: u64,
    /// Up to here chunks were wanted ahead.
    ahead: u64,
}

impl PieceWindow {
    /// The pieces from the one at `offset` on, as far as the window knows.
    pub fn pieces_from(&self, offset: u64) -> &[(u64, Piece)] {
        let behind = self.pieces.partition_point(|(start, _)| *start <= offset);
        &self.pieces[behind.saturating_sub(1)..]
    }

    /// Notes a read; the chunks that are to be read ahead then, if it is one of a row.
    pub fn ahead_of(&self, read: &Range<u64>) -> Vec<ChunkId> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let near = reader.reached.saturating_sub(SLACK_BYTES)..=reader.reached + SLACK_BYTES;
        if !near.contains(&read.start) {
            reader.ahead = read.end;
        }
        let is_forward = near.contains(&read.start);
        reader.reached = match is_forward {
            true => reader.reached.max(read.end),
            false => read.end,
        };
        let (from, to) = (reader.ahead.max(read.end), read.end + AHEAD_BYTES);
        if !is_forward || from + AHEAD_BYTES / 2 > to {
            return Vec::new();
        }
        reader.ahead = to;
        let wanted = self.pieces_from(from).iter();
        let wanted = wanted.take_while(|(start, _)| *start < to);
        let mut chunks: Vec<ChunkId> = Vec::new();
        for (_, piece) in wanted {
            if let Piece::Data { chunk, .. } = piece
                && chunks.last() != Some(chunk)
            {
                chunks.push(*chunk);
            }
        }
        chunks
    }
}

/// By the list of the file: two files of one list are the same.
pub struct PieceWindows {
    source: Arc<dyn ChunkSource + Send>,
    windows: Mutex<LatestUsed<ChunkId, Arc<PieceWindow>>>,
}

impl PieceWindows {
    pub fn new(source: Arc<dyn ChunkSource + Send>) -> PieceWindows {
        PieceWindows {
            source,
            windows: Mutex::new(LatestUsed::new(WINDOWS_MAX)),
        }
    }

    /// A window with what is at `offset` of a file of `size` bytes, which is behind it.
    pub fn at(&self, list: &ChunkId, size: u64, offset: u64) -> Result<Arc<PieceWindow>, String> {
        let known = {
            let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
            windows.get(list)
        };
        let reader = match known {
            Some(window) if window.range.contains(&offset) => return Ok(window),
            Some(window) => *window.reader.lock().unwrap_or_else(PoisonError::into_inner),
            None => ForwardReader::default(),
        };
        let window = Arc::new(self.load(list, size, offset, reader)?);
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.put(*list, window.clone());
        Ok(window)
    }

    fn load(
        &self,
        list: &ChunkId,
        size: u64,
        offset: u64,
        reader: ForwardReader,
    ) -> Result<PieceWindow, String> {
        let mut walk = PieceWalk::starting_at(*list, size, offset);
        let mut pieces: Vec<(u64, Piece)> = Vec::new();
        while pieces.len() < WINDOW_PIECES_MAX {
            match walk.step() {
                PieceStep::Piece { offset, piece } => pieces.push((offset, piece)),
                PieceStep::End => break,
                PieceStep::Fetch(list) => {
                    let plain = self.source.read(&list, ChunkKind::Pieces);
                    let supplied = match plain {
                        Ok(plain) => walk.supply(&plain).map_err(|error| error.to_string()),
                        Err(trouble) => Err(bale_pipeline::error::with_causes(&*trouble)),
                    };
                    match supplied {
                        Ok(()) => {}
                        // What is in front of it can be read; who wants more comes again.
                        Err(_) if !pieces.is_empty() => break,
                        Err(text) => return Err(text),
                    }
                }
            }
        }
        let start = pieces.first().map(|(start, _)| *start);
        let end = pieces.last().map(|(start, piece)| start + piece.bytes());
        match start.zip(end).map(|(start, end)| start..end) {
            Some(range) if range.contains(&offset) => Ok(PieceWindow {
                range,
                pieces,
                reader: Mutex::new(reader),
            }),
            _ => Err("damaged piece list: it is shorter than its file".to_owned()),
        }
    }
}
