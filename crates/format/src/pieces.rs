//! Piece lists: which chunks make up a large file. docs/FORMAT.md, section 7.
//!
//! A list holds at most 16,384 entries; larger files get lists of lists, at most three levels above the leaves. Writing
//! and reading hold one list of each level: 2.7 MB for a file of any size.

use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::ChunkId;
use crate::limits::{CHUNK_BYTES_MAX, PIECES_DEPTH_MAX, PIECES_ENTRIES_MAX};

const WHAT: &str = "piece list";
const HEADER_BYTES: usize = 8;
/// Tag, length, chunk id.
pub(crate) const LEAF_ENTRY_BYTES_MAX: usize = 41;
const TAG_DATA: u8 = 0;
const TAG_HOLE: u8 = 1;
const TAG_UNREADABLE: u8 = 2;

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The whole of a data chunk.
    Data {
        /// Its length.
        bytes: u64,
        /// Its name.
        chunk: ChunkId,
    },
    /// Zeroes that the file system does not store.
    Hole {
        /// Its length.
        bytes: u64,
    },
    /// Could not be read; restored as a hole and named.
    Unreadable {
        /// Its length.
        bytes: u64,
    },
}

impl Piece {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        match *self {
            Piece::Data { bytes, .. } | Piece::Hole { bytes } | Piece::Unreadable { bytes } => {
                bytes
            }
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let tag = match self {
            Piece::Data { .. } => TAG_DATA,
            Piece::Hole { .. } => TAG_HOLE,
            Piece::Unreadable { .. } => TAG_UNREADABLE,
        };
        out.push(tag);
        out.extend_from_slice(&self.bytes().to_le_bytes());
        if let Piece::Data { chunk, .. } = self {
            out.extend_from_slice(&chunk.0);
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Piece, FormatError> {
        let tag = fields.u8()?;
        let bytes = fields.u64()?;
        let piece = match tag {
            TAG_DATA => Piece::Data {
                bytes,
                chunk: ChunkId(fields.array()?),
            },
            TAG_HOLE => Piece::Hole { bytes },
            TAG_UNREADABLE => Piece::Unreadable { bytes },
            _ => return Err(fields.value("tag", u64::from(tag))),
        };
        piece.check_length()?;
        Ok(piece)
    }

    fn check_length(&self) -> Result<(), FormatError> {
        let max = match self {
            Piece::Data { .. } => CHUNK_BYTES_MAX as u64,
            _ => u64::MAX,
        };
        if self.bytes() == 0 || self.bytes() > max {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Value {
                    field: "length of a piece",
                    found: self.bytes(),
                },
            ));
        }
        Ok(())
    }
}

/// A list below a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubList {
    /// Sum of the lengths in it.
    pub bytes: u64,
    /// Chunk of kind pieces.
    pub list: ChunkId,
}

/// One decoded piece list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceList {
    /// Depth 0.
    Leaf(Vec<Piece>),
    /// Depth 1 to 3.
    Inner {
        /// Levels below.
        depth: u8,
        /// Lists of the depth below.
        lists: Vec<SubList>,
    },
}

impl PieceList {
    /// From a chunk of kind pieces.
    pub fn decode(plain: &[u8]) -> Result<PieceList, FormatError> {
        let mut fields = Fields::new(WHAT, plain);
        let depth = fields.u8()?;
        if depth > PIECES_DEPTH_MAX {
            return Err(fields.value("depth", u64::from(depth)));
        }
        fields.zero(3)?;
        let count = fields.u32()? as usize;
        if count == 0 || count > PIECES_ENTRIES_MAX {
            return Err(fields.value("number of entries", count as u64));
        }
        let list = if depth == 0 {
            let pieces: Result<_, _> = (0..count).map(|_| Piece::decode(&mut fields)).collect();
            PieceList::Leaf(pieces?)
        } else {
            let lists: Result<Vec<_>, FormatError> = (0..count)
                .map(|_| {
                    let bytes = fields.u64()?;
                    let list = ChunkId(fields.array()?);
                    if bytes == 0 {
                        return Err(fields.value("length of a list", bytes));
                    }
                    Ok(SubList { bytes, list })
                })
                .collect();
            PieceList::Inner {
                depth,
                lists: lists?,
            }
        };
        fields.end()?;
        list.bytes()?;
        Ok(list)
    }

    /// Levels below this one.
    pub fn depth(&self) -> u8 {
        match self {
            PieceList::Leaf(_) => 0,
            PieceList::Inner { depth, .. } => *depth,
        }
    }

    /// Sum of the lengths.
    pub fn bytes(&self) -> Result<u64, FormatError> {
        let mut sum: u64 = 0;
        let mut add = |bytes: u64| {
            sum = sum.checked_add(bytes)?;
            Some(())
        };
        let added = match self {
            PieceList::Leaf(pieces) => pieces.iter().try_for_each(|piece| add(piece.bytes())),
            PieceList::Inner { lists, .. } => lists.iter().try_for_each(|list| add(list.bytes)),
        };
        added.map(|()| sum).ok_or_else(|| {
            FormatError::damaged(
                WHAT,
                Fault::Value {
                    field: "sum of lengths",
                    found: u64::MAX,
                },
            )
        })
    }
}

/// One list under construction.
#[derive(Debug, Default)]
struct Level {
    body: Vec<u8>,
    entries: usize,
    bytes: u64,
}

impl Level {
    fn take(&mut self, depth: usize) -> (Vec<u8>, u64) {
        let mut plain = Vec::with_capacity(HEADER_BYTES + self.body.len());
        plain.push(depth as u8);
        plain.extend_from_slice(&[0; 3]);
        plain.extend_from_slice(&(self.entries as u32).to_le_bytes());
        plain.append(&mut self.body);
        self.entries = 0;
        (plain, std::mem::take(&mut self.bytes))
    }
}

/// A finished file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceRoot {
    /// Chunk that the row points at.
    pub list: ChunkId,
    /// Its plaintext: what the content hash is made of.
    pub plain: Vec<u8>,
    /// Sum of all lengths.
    pub bytes: u64,
}

/// Turns a stream of pieces into lists, handing each finished list to `store`.
#[derive(Debug, Default)]
pub struct PieceListBuilder {
    levels: Vec<Level>,
    /// Neighbouring holes are one hole.
    pending: Option<Piece>,
}

impl PieceListBuilder {
    /// With no pieces yet.
    pub fn new() -> PieceListBuilder {
        PieceListBuilder::default()
    }

    /// Adds the next stretch of the file. `store` keeps a chunk of kind pieces and returns its id.
    pub fn push<E: From<FormatError>>(
        &mut self,
        piece: Piece,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<(), E> {
        piece.check_length()?;
        let merged = match (self.pending, piece) {
            (Some(Piece::Hole { bytes: a }), Piece::Hole { bytes: b }) => {
                a.checked_add(b).map(|bytes| Piece::Hole { bytes })
            }
            (Some(Piece::Unreadable { bytes: a }), Piece::Unreadable { bytes: b }) => {
                a.checked_add(b).map(|bytes| Piece::Unreadable { bytes })
            }
            _ => None,
        };
        if merged.is_some() {
            self.pending = merged;
            return Ok(());
        }
        match self.pending.replace(piece) {
            Some(before) => self.push_piece(before, store),
            None => Ok(()),
        }
    }

    /// Writes what is left. Fails if there was no piece: a file of zero bytes has no list.
    pub fn finish<E: From<FormatError>>(
        mut self,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<PieceRoot, E> {
        let Some(last) = self.pending.take() else {
            return Err(E::from(FormatError::Unfit {
                what: WHAT,
                fault: Fault::Value {
                    field: "number of entries",
                    found: 0,
                },
            }));
        };
        self.push_piece(last, store)?;
        let mut depth = 0;
        while depth + 1 < self.levels.len() {
            self.flush(depth, store)?;
            depth += 1;
        }
        let (plain, bytes) = self.levels[depth].take(depth);
        Ok(PieceRoot {
            list: store(&plain)?,
            plain,
            bytes,
        })
    }

    fn push_piece<E: From<FormatError>>(
        &mut self,
        piece: Piece,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<(), E> {
        let mut entry = Vec::with_capacity(LEAF_ENTRY_BYTES_MAX);
        piece.encode(&mut entry);
        self.add(0, &entry, piece.bytes(), store)
    }

    fn add<E: From<FormatError>>(
        &mut self,
        depth: usize,
        entry: &[u8],
        bytes: u64,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<(), E> {
        if depth > usize::from(PIECES_DEPTH_MAX) {
            return Err(E::from(FormatError::TooLarge {
                what: WHAT,
                found: depth as u64,
                max: u64::from(PIECES_DEPTH_MAX),
            }));
        }
        if self.levels.len() == depth {
            self.levels.push(Level::default());
        }
        if self.levels[depth].entries == PIECES_ENTRIES_MAX {
            self.flush(depth, store)?;
        }
        let level = &mut self.levels[depth];
        level.bytes = level.bytes.checked_add(bytes).ok_or({
            FormatError::TooLarge {
                what: "file",
                found: u64::MAX,
                max: u64::MAX,
            }
        })?;
        level.body.extend_from_slice(entry);
        level.entries += 1;
        Ok(())
    }

    /// At most as many calls deep as there are levels.
    fn flush<E: From<FormatError>>(
        &mut self,
        depth: usize,
        store: &mut impl FnMut(&[u8]) -> Result<ChunkId, E>,
    ) -> Result<(), E> {
        let (plain, bytes) = self.levels[depth].take(depth);
        let list = store(&plain)?;
        let mut entry = [0; 40];
        entry[..8].copy_from_slice(&bytes.to_le_bytes());
        entry[8..].copy_from_slice(&list.0);
        self.add(depth + 1, &entry, bytes, store)
    }
}

/// What a [`PieceWalk`] wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceStep {
    /// Here is a piece of the file, starting at `offset`.
    Piece {
        /// Of its first byte in the file.
        offset: u64,
        /// The piece.
        piece: Piece,
    },
    /// Fetch this list and give it to [`PieceWalk::supply`].
    Fetch(ChunkId),
    /// All pieces were handed out, and their lengths add up.
    End,
}

/// Reads the pieces of a file in order, asking for lists as it needs them: one list of each level is in memory.
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
    /// Sum of its lengths, from the list above or, of the root, from the row; unknown if no row is at hand.
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

    /// Without the pieces that end at or before `from`, and without fetching lists of only such pieces.
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

    /// Gives the list last asked for. Its depth and length must be what the list above promised; if they are not, the walk
    /// goes on behind it.
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
