//! Contents of files beside each other: where two begin to differ, and all of a small one.
//!
//! What both have in the same place of the same chunk is not read.

use crate::ChunkSource;
use crate::pieces::PiecesAhead;
use bale_format::{ChunkId, ChunkKind, Content, Entry, EntryFlags, Piece};
use bytes::Bytes;

/// The first byte in which two regular files differ; `None`: they are the same. `stopped`: the end
/// of it, as an `Err`, before it is known.
pub fn first_difference(
    chunks: &dyn ChunkSource,
    old: &Entry,
    new: &Entry,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<u64>, String> {
    let mut sides = [Parts::of(old, chunks)?, Parts::of(new, chunks)?];
    let common = old.size.min(new.size);
    let mut at = 0;
    while at < common {
        if stopped() {
            return Err("stopped".to_owned());
        }
        let [a, b] = &mut sides;
        let bytes = a.left()?.min(b.left()?);
        if let Some(same) = difference(a, b, bytes)? {
            return Ok(Some(at + same));
        }
        a.advance(bytes);
        b.advance(bytes);
        at += bytes;
    }
    Ok((old.size != new.size).then_some(common))
}

/// All bytes of a regular file; `None`: it has more than `bytes_max`.
pub fn whole(
    chunks: &dyn ChunkSource,
    entry: &Entry,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, String> {
    if entry.size > bytes_max {
        return Ok(None);
    }
    let mut parts = Parts::of(entry, chunks)?;
    let mut all = Vec::new();
    while (all.len() as u64) < entry.size {
        let bytes = parts.left()?;
        match parts.part {
            Part::Zeros { .. } => all.resize(all.len() + bytes as usize, 0),
            Part::Data { .. } => all.extend_from_slice(&parts.bytes(bytes)?),
        }
        parts.advance(bytes);
    }
    Ok(Some(all))
}

/// Within the next so many bytes of both, none of which is the end of either.
fn difference(a: &mut Parts, b: &mut Parts, bytes: u64) -> Result<Option<u64>, String> {
    let differs = |a: &[u8], b: &[u8]| a.iter().zip(b).position(|(a, b)| a != b);
    let not_zero = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0);
    let found = match (a.part, b.part) {
        (Part::Zeros { .. }, Part::Zeros { .. }) => None,
        (
            Part::Data { chunk, from, .. },
            Part::Data {
                chunk: other,
                from: other_from,
                ..
            },
        ) if chunk == other && from == other_from => None,
        (Part::Zeros { .. }, Part::Data { .. }) => not_zero(&b.bytes(bytes)?),
        (Part::Data { .. }, Part::Zeros { .. }) => not_zero(&a.bytes(bytes)?),
        (Part::Data { .. }, Part::Data { .. }) => differs(&a.bytes(bytes)?, &b.bytes(bytes)?),
    };
    Ok(found.map(|at| at as u64))
}

/// What comes next of a file.
#[derive(Clone, Copy)]
enum Part {
    Zeros {
        bytes: u64,
    },
    /// `from` on in a chunk.
    Data {
        chunk: ChunkId,
        from: u64,
        bytes: u64,
    },
}

/// A file, part by part.
struct Parts<'a> {
    chunks: &'a dyn ChunkSource,
    /// Of a large file.
    pieces: Option<PiecesAhead<'a>>,
    part: Part,
    /// The chunk that was read last.
    last: Option<(ChunkId, Bytes)>,
}

impl<'a> Parts<'a> {
    fn of(entry: &Entry, chunks: &'a dyn ChunkSource) -> Result<Parts<'a>, String> {
        let nothing = Part::Zeros { bytes: 0 };
        let (pieces, part) = match &entry.content {
            _ if entry.size == 0 => (None, nothing),
            _ if entry.flags.has_any(UNREAD) => {
                return Err("its content could not be read by the backup".to_owned());
            }
            Content::None => return Err("damaged row: no content".to_owned()),
            Content::Image => return Err("an image is compared by its blocks".to_owned()),
            Content::Bundled { chunk, offset } => {
                let part = Part::Data {
                    chunk: *chunk,
                    from: u64::from(*offset),
                    bytes: entry.size,
                };
                (None, part)
            }
            Content::Pieces { list } => (Some(PiecesAhead::new(list, entry.size, chunks)), nothing),
        };
        Ok(Parts {
            chunks,
            pieces,
            part,
            last: None,
        })
    }

    /// Bytes of the part that comes next: at least one, as the file has not ended.
    fn left(&mut self) -> Result<u64, String> {
        loop {
            if let Part::Zeros { bytes } | Part::Data { bytes, .. } = self.part
                && bytes > 0
            {
                return Ok(bytes);
            }
            let pieces = self.pieces.as_mut();
            let next = pieces.map(PiecesAhead::next_piece).transpose()?.flatten();
            let (_, piece) = next.ok_or("damaged row: its content ends too soon")?;
            self.part = self.part_of(piece)?;
        }
    }

    fn part_of(&mut self, piece: Piece) -> Result<Part, String> {
        Ok(match piece {
            Piece::Hole { bytes } => Part::Zeros { bytes },
            Piece::Unreadable { .. } => return Err("could not be read by the backup".to_owned()),
            Piece::Data {
                bytes,
                chunk,
                start,
            } => Part::Data {
                chunk,
                // All of a chunk begins at its beginning.
                from: start.map_or(0, u64::from),
                bytes,
            },
        })
    }

    /// The next so many bytes of the part of data that comes next.
    fn bytes(&mut self, bytes: u64) -> Result<Bytes, String> {
        let Part::Data { chunk, from, .. } = self.part else {
            return Err("zeros are in no chunk".to_owned());
        };
        let whole = match &self.last {
            Some((last, whole)) if *last == chunk => whole.clone(),
            _ => {
                let read = self.chunks.read(&chunk, ChunkKind::Data);
                let whole = read.map_err(|trouble| crate::seams::text_of(&trouble))?;
                self.last = Some((chunk, whole.clone()));
                whole
            }
        };
        let end = from.checked_add(bytes);
        match end.filter(|end| *end <= whole.len() as u64) {
            Some(end) => Ok(whole.slice(from as usize..end as usize)),
            None => Err("damaged row: its chunk is shorter".to_owned()),
        }
    }

    fn advance(&mut self, taken: u64) {
        match &mut self.part {
            Part::Zeros { bytes } => *bytes -= taken,
            Part::Data { from, bytes, .. } => {
                *bytes -= taken;
                *from += taken;
            }
        }
    }
}

/// Not all of it is stored.
const UNREAD: EntryFlags = EntryFlags(EntryFlags::UNREADABLE.0 | EntryFlags::INCOMPLETE.0);
