//! Reading piece lists: the pieces of a file in order, with one list of each level in memory.

use super::{Piece, PieceList, WHAT};
use crate::error::{Fault, FormatError};
use crate::id::ChunkId;
use crate::limits::PIECES_DEPTH_MAX;

/// What a [`PieceWalk`] wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceStep {
    /// Here is a piece of the file, starting at `offset`.
    Piece {
        /// Of its first byte in the file.
        offset: u64,
        piece: Piece,
    },
    /// Fetch this list and give it to [`PieceWalk::supply`].
    Fetch(ChunkId),
    /// All pieces were handed out, and their lengths add up.
    End,
}

/// Reads the pieces of a file in order, asking for lists as it needs them: one list of each level
/// is in memory.
#[derive(Debug)]
pub struct PieceWalk {
    /// From the root down; each with its depth, its unread entries, and the offset of the next one.
    stack: Vec<Cursor>,
    wanted: Option<Wanted>,
    /// Pieces that end at or before this are not wanted.
    from: u64,
}

#[derive(Debug)]
struct Cursor {
    id: ChunkId,
    list: PieceList,
    position: usize,
    offset: u64,
}

#[derive(Debug)]
struct Wanted {
    list: ChunkId,
    promised: Promised,
    offset: u64,
}

/// What is known of a list before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promised {
    /// Levels below it, which the list above tells; unknown of the root.
    pub depth: Option<u8>,
    /// Sum of its lengths, from the list above or, of the root, from the row; unknown if no row is
    /// at hand.
    pub bytes: Option<u64>,
}

impl Promised {
    /// Is the list what it should be?
    fn check(self, list: &PieceList) -> Result<(), FormatError> {
        if self.depth.is_some_and(|depth| depth != list.depth()) {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Value {
                    field: "depth",
                    found: u64::from(list.depth()),
                },
            ));
        }
        let found = list.bytes()?;
        match self.bytes {
            Some(expected) if expected != found => Err(FormatError::damaged(
                WHAT,
                Fault::Length { expected, found },
            )),
            _ => Ok(()),
        }
    }
}

impl PieceWalk {
    /// Of a file of `size` bytes whose row points at `root`.
    pub fn new(root: ChunkId, size: u64) -> PieceWalk {
        PieceWalk::starting_at(root, size, 0)
    }

    /// Without the pieces that end at or before `from`, and without fetching lists of only such
    /// pieces.
    pub fn starting_at(root: ChunkId, size: u64, from: u64) -> PieceWalk {
        PieceWalk::of(root, Some(size), from)
    }

    /// Of a file whose row is not at hand, so that its size is not known.
    pub fn of_any_size(root: ChunkId) -> PieceWalk {
        PieceWalk::of(root, None, 0)
    }

    fn of(root: ChunkId, bytes: Option<u64>, from: u64) -> PieceWalk {
        PieceWalk {
            stack: Vec::with_capacity(usize::from(PIECES_DEPTH_MAX) + 1),
            wanted: Some(Wanted {
                list: root,
                promised: Promised { depth: None, bytes },
                offset: 0,
            }),
            from,
        }
    }

    /// The list that the last piece came from.
    pub fn current(&self) -> Option<ChunkId> {
        self.stack.last().map(|cursor| cursor.id)
    }

    /// What the list that is asked for must be; `None` if none is.
    pub fn promised(&self) -> Option<Promised> {
        self.wanted.as_ref().map(|wanted| wanted.promised)
    }

    /// Goes on behind the list that is asked for, without it.
    pub fn skip(&mut self) {
        self.wanted = None;
    }

    /// Goes on. Returns the same `Fetch` until it was supplied.
    pub fn step(&mut self) -> PieceStep {
        loop {
            if let Some(wanted) = &self.wanted {
                return PieceStep::Fetch(wanted.list);
            }
            let Some(cursor) = self.stack.last_mut() else {
                return PieceStep::End;
            };
            let offset = cursor.offset;
            let (bytes, step, wanted) = match &cursor.list {
                PieceList::Leaf(pieces) => match pieces.get(cursor.position) {
                    Some(piece) => (
                        piece.bytes(),
                        Some(PieceStep::Piece {
                            offset,
                            piece: *piece,
                        }),
                        None,
                    ),
                    None => (0, None, None),
                },
                PieceList::Inner { depth, lists } => match lists.get(cursor.position) {
                    Some(below) => (
                        below.bytes,
                        None,
                        Some(Wanted {
                            list: below.list,
                            promised: Promised {
                                depth: Some(depth - 1),
                                bytes: Some(below.bytes),
                            },
                            offset,
                        }),
                    ),
                    None => (0, None, None),
                },
            };
            if bytes == 0 {
                self.stack.pop();
                continue;
            }
            cursor.position += 1;
            // Sums were checked when the list was supplied.
            cursor.offset = offset.saturating_add(bytes);
            if cursor.offset <= self.from {
                continue;
            }
            self.wanted = wanted;
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Gives the list last asked for. Its depth and length must be what the list above promised; if
    /// they are not, the walk goes on behind it.
    pub fn supply(&mut self, plain: &[u8]) -> Result<(), FormatError> {
        let Some(wanted) = self.wanted.take() else {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Mismatch {
                    field: "list that was not asked for",
                },
            ));
        };
        let list = PieceList::decode(plain)?;
        wanted.promised.check(&list)?;
        self.stack.push(Cursor {
            id: wanted.list,
            list,
            position: 0,
            offset: wanted.offset,
        });
        Ok(())
    }
}
