//! Bytes of files at any place: small ones from bundles, large ones from pieces, images from
//! extents.
//!
//! Decoded chunks are kept by `bale_restore::image_reader`, shared by all files, and read ahead of
//! whoever reads a large file forward. What cannot be read fails the reads that need it.

use crate::latest_used::LatestUsed;
use crate::limits::IMAGES_OPEN_MAX;
use crate::piece_windows::PieceWindows;
use crate::recent_places::RecentPlace;
use bale_format::{ChunkId, Content, Piece};
use bale_restore::ChunkSource;
use bale_restore::image_reader::{CachedChunks, ImageReader};
use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Where data or a hole begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    Data,
    Hole,
}

/// Opens the reader of an image.
pub type OpenImage<'a> = &'a dyn Fn(&Arc<CachedChunks>, usize) -> Result<ImageReader, String>;

/// Used by many threads at once.
pub struct TreeContents {
    pub source: Arc<dyn ChunkSource + Send>,
    chunks: Arc<CachedChunks>,
    lists: PieceWindows,
    /// By the number of the file.
    images: Mutex<LatestUsed<u64, Arc<ImageReader>>>,
}

impl TreeContents {
    pub fn new(source: Arc<dyn ChunkSource + Send>, chunks: CachedChunks) -> TreeContents {
        TreeContents {
            lists: PieceWindows::new(source.clone()),
            source,
            chunks: Arc::new(chunks),
            images: Mutex::new(LatestUsed::new(IMAGES_OPEN_MAX)),
        }
    }

    /// These will be read next, in this order.
    pub fn read_ahead(&self, chunks: &[ChunkId]) {
        self.chunks.read_ahead(chunks);
    }

    /// The bytes of a file in a range, cut at its end.
    pub fn read(
        &self,
        (number, place): (u64, &RecentPlace),
        range: Range<u64>,
        open_image: OpenImage<'_>,
    ) -> Result<Bytes, String> {
        let range = range.start..range.end.min(place.size);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if place.is_unreadable {
            return Err("its content could not be read by the backup".to_owned());
        }
        match place.content {
            Content::None => Err("damaged row: no content".to_owned()),
            Content::Bundled { chunk, offset } => {
                let bytes = self.chunks.read(&chunk)?;
                let start = u64::from(offset);
                let whole = start + place.size <= bytes.len() as u64;
                let part = (start + range.start) as usize..(start + range.end) as usize;
                match whole {
                    true => Ok(bytes.slice(part)),
                    false => Err("damaged row: it is longer than its chunk".to_owned()),
                }
            }
            Content::Pieces { list } => self.read_pieces(&list, place.size, range),
            Content::Image => {
                let image = self.image(number, open_image)?;
                let mut bytes = vec![0; (range.end - range.start) as usize];
                let read = image.read_at(range.start, &mut bytes);
                read.map_err(|unreadable| unreadable.to_string())?;
                Ok(Bytes::from(bytes))
            }
        }
    }

    fn read_pieces(&self, list: &ChunkId, size: u64, range: Range<u64>) -> Result<Bytes, String> {
        let window = self.lists.at(list, size, range.start)?;
        self.chunks.read_ahead(&window.ahead_of(&range));
        // Most reads are of one piece, and that is not copied.
        if let Some((start, piece)) = window.pieces_from(range.start).first()
            && start + piece.bytes() >= range.end
        {
            return self.part_of(piece, range.start - start..range.end - start);
        }
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        let mut window = window;
        while at < range.end {
            window = self.lists.at(list, size, at).unwrap_or(window);
            let (start, piece) = (window.pieces_from(at).first())
                .ok_or("damaged piece list: it is shorter than its file")?;
            let end = (start + piece.bytes()).min(range.end);
            if end <= at {
                return Err("a part of its piece list cannot be read".to_owned());
            }
            bytes.extend_from_slice(&self.part_of(piece, at - start..end - start)?);
            at = end;
        }
        Ok(Bytes::from(bytes))
    }

    fn part_of(&self, piece: &Piece, part: Range<u64>) -> Result<Bytes, String> {
        let chunk = match piece {
            Piece::Hole { .. } => {
                return Ok(Bytes::from(vec![0; (part.end - part.start) as usize]));
            }
            Piece::Unreadable { .. } => return Err("could not be read by the backup".to_owned()),
            Piece::Data { chunk, .. } => chunk,
        };
        let bytes = self.chunks.read(chunk)?;
        let at = (piece.range_in(bytes.len()))
            .ok_or("damaged piece list: its chunk has another length")?;
        let part = at.start + part.start as usize..at.start + part.end as usize;
        Ok(bytes.slice(part))
    }

    fn image(&self, number: u64, open: OpenImage<'_>) -> Result<Arc<ImageReader>, String> {
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(image) = images.get(&number) {
            return Ok(image);
        }
        // Opening one reads nothing.
        let image = Arc::new(open(&self.chunks, IMAGES_OPEN_MAX)?);
        images.put(number, image.clone());
        Ok(image)
    }

    /// From where on there is data, or a hole; `None`: there is no more data.
    pub fn seek(
        &self,
        (number, place): (u64, &RecentPlace),
        offset: u64,
        wanted: SeekFor,
        open_image: OpenImage<'_>,
    ) -> Result<Option<u64>, String> {
        let mut at = offset;
        while at < place.size {
            let (length, is_hole) = match place.content {
                Content::Pieces { list } => {
                    let window = self.lists.at(&list, place.size, at)?;
                    let (start, piece) = (window.pieces_from(at).first())
                        .ok_or("damaged piece list: it is shorter than its file")?;
                    let is_hole = matches!(piece, Piece::Hole { .. });
                    ((start + piece.bytes()).saturating_sub(at), is_hole)
                }
                Content::Image => self.image(number, open_image)?.run_at(at),
                Content::Bundled { .. } | Content::None => (place.size - at, false),
            };
            if is_hole == (wanted == SeekFor::Hole) {
                return Ok(Some(at));
            }
            at += length.max(1);
        }
        Ok(match wanted {
            SeekFor::Data => None,
            // Behind the end of every file there is one.
            SeekFor::Hole => Some(place.size),
        })
    }

    /// Bytes of a file with holes that are stored.
    pub fn data_bytes(&self, place: &RecentPlace) -> u64 {
        match place.content {
            Content::Pieces { list } => {
                bale_restore::pieces::data_bytes(&list, place.size, &*self.source)
            }
            _ => place.size,
        }
    }
}
