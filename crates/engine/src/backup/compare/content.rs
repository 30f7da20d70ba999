//! Whether what rows of the parent point at is in the repository.

use super::Comparer;
use bale_format::pieces::{Piece, PieceStep, PieceWalk};
use bale_format::{ChunkId, ChunkKind, Content, RowView, XattrsColumn};

impl Comparer<'_> {
    /// Is what the row points at in the repository, and not to be stored afresh?
    pub(super) fn content_is_there(&mut self, row: &RowView) -> bool {
        if let Some(id) = XattrsColumn::chunk_of(row.xattrs)
            && !self.store.rely_on(&id)
        {
            return false;
        }
        match row.content {
            Content::None => true,
            // No scan finds an image: this is another thing of that name.
            Content::Image => false,
            Content::Bundled { chunk, .. } => self.chunk_is_there(chunk),
            Content::Pieces { list } => {
                self.store.rely_on(&list)
                    && (!self.parent.thorough || self.pieces_are_there(list, row.size))
            }
        }
    }

    /// Neighbouring rows mostly share a chunk: one look-up for all of them.
    fn chunk_is_there(&mut self, chunk: ChunkId) -> bool {
        if let Some((last, there)) = self.last_chunk
            && last == chunk
        {
            return there;
        }
        let there = !self.parent.thin.contains(&chunk) && self.store.rely_on(&chunk);
        self.last_chunk = Some((chunk, there));
        there
    }

    fn pieces_are_there(&self, list: ChunkId, size: u64) -> bool {
        let mut walk = PieceWalk::new(list, size);
        loop {
            match walk.step() {
                PieceStep::End => return true,
                PieceStep::Fetch(id) => {
                    let list = self.store.repository().read_chunk(&id, ChunkKind::Pieces);
                    if !self.store.rely_on(&id)
                        || !list.is_ok_and(|plain| walk.supply(&plain).is_ok())
                    {
                        return false;
                    }
                }
                PieceStep::Piece {
                    piece: Piece::Data { chunk, .. },
                    ..
                } if !self.store.rely_on(&chunk) => return false,
                PieceStep::Piece { .. } => {}
            }
        }
    }
}
