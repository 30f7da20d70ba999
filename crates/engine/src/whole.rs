//! Does a snapshot have everything that it needs? Followed through its segments and lists of pieces
//! to chunks in packs that are there; what is in a pack is not read.
//!
//! In memory: some 40 bytes for each distinct segment and list of pieces.

use crate::used::read_pointers;
use bale_format::segment::Pointer;
use bale_format::{ChunkId, ChunkKind, Layer, Piece, PieceStep, PieceWalk};
use bale_repository::error::{Error, Result, is_missing};
use bale_repository::index::{ChunkIndex, PackInfo};
use bale_repository::repository::{Repository, is_damage};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;

/// Looks into snapshots of one repository; what they share is read once.
pub(crate) struct Wholeness<'a, F> {
    repository: &'a Repository,
    index: Arc<ChunkIndex>,
    has_pack: F,
    segments: HashMap<ChunkId, bool>,
    lists: HashMap<ChunkId, bool>,
}

impl<'a, F: Fn(&PackInfo) -> bool> Wholeness<'a, F> {
    /// `has_pack`: of the packs that the index names.
    pub(crate) fn new(
        repository: &'a Repository,
        index: Arc<ChunkIndex>,
        has_pack: F,
    ) -> Wholeness<'a, F> {
        Wholeness {
            repository,
            index,
            has_pack,
            segments: HashMap::new(),
            lists: HashMap::new(),
        }
    }

    /// Has the snapshot with this catalog everything? A store that does not answer says nothing of
    /// that, and is an error.
    pub(crate) fn is_whole(&mut self, layers: &[Layer]) -> Result<bool> {
        for segment in layers.iter().flat_map(|layer| &layer.segments) {
            let is_whole = match self.segments.get(&segment.id) {
                Some(known) => *known,
                None => {
                    let is_whole = self.has_segment(&segment.id)?;
                    self.segments.insert(segment.id, is_whole);
                    is_whole
                }
            };
            if !is_whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_chunk(&self, id: &ChunkId) -> bool {
        let mut copies = self.index.copies(id);
        copies.any(|place| (self.has_pack)(self.index.pack(place.pack)))
    }

    fn has_segment(&mut self, id: &ChunkId) -> Result<bool> {
        if !self.has_chunk(id) {
            return Ok(false);
        }
        let pointers = match read_pointers(self.repository, id) {
            Err(error) => return lost_or(error),
            Ok(pointers) => pointers,
        };
        for pointer in pointers {
            let is_there = match pointer {
                Pointer::Bundle(chunk) | Pointer::Xattrs(chunk) => self.has_chunk(&chunk),
                Pointer::Pieces(list) => self.has_pieces(list)?,
            };
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_pieces(&mut self, root: ChunkId) -> Result<bool> {
        if let Some(known) = self.lists.get(&root) {
            return Ok(*known);
        }
        let mut walk = PieceWalk::of_any_size(root);
        let is_whole = loop {
            match walk.step() {
                PieceStep::End => break true,
                PieceStep::Piece { piece, .. } => {
                    if let Piece::Data { chunk, .. } = piece
                        && !self.has_chunk(&chunk)
                    {
                        break false;
                    }
                }
                PieceStep::Fetch(list) => {
                    if !self.has_chunk(&list) {
                        break false;
                    }
                    let read = self
                        .repository
                        .read_chunk_uncached(&list, ChunkKind::Pieces);
                    match read {
                        Err(error) => break lost_or(error)?,
                        Ok(bytes) if walk.supply(&bytes).is_err() => break false,
                        Ok(_) => {}
                    }
                }
            }
        };
        self.lists.insert(root, is_whole);
        Ok(is_whole)
    }
}

/// Not there or damaged; anything else is an error.
fn lost_or(error: Error) -> Result<bool> {
    match is_loss(&error) {
        true => Ok(false),
        false => Err(error),
    }
}

/// Is the object or chunk itself gone, damaged or too short, or does its store not answer?
pub(crate) fn is_loss(error: &Error) -> bool {
    match error {
        Error::Interrupted => false,
        Error::Store(store) => {
            is_missing(error) || is_damage(error) || store.kind() == ErrorKind::UnexpectedEof
        }
        _ => true,
    }
}

/// What reads everything it sends needs packs that are brought back first.
pub(crate) fn with_archive_advice(error: Error) -> Error {
    match error {
        Error::Store(error) if error.is_archived() => Error::Other(format!(
            "{error}. Nothing is lost, and what was sent stays: have the packs brought back \
             (bale restore SNAPSHOT --plan names those of a snapshot), and run this again"
        )),
        other => other,
    }
}
