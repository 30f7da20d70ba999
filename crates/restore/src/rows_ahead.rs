//! Rows read ahead of their turn where chunks are far away: their lists and sets are fetched
//! together, and whoever has the chunks learns which will be read.
//!
//! Where chunks are near, rows come as they are read. What is said and not read costs a fetch at
//! most, and nothing is held here but rows: a few hundred.

use crate::pieces::PieceReader;
use crate::{CatalogRows, ChunkSource};
use bale_format::{ChunkId, Content, Entry, Kind, Piece, XattrsColumn};
use std::collections::VecDeque;

/// Rows that are read before their turn.
const ROWS_AHEAD_MAX: usize = 256;
/// Lists and sets that are fetched together.
const LISTS_AHEAD_MAX: usize = 64;
/// Chunks that are said to be expected before one of them is read.
const CHUNKS_AHEAD_MAX: usize = 96;
/// Of these so many of one file; the rest is said while it is read.
const PIECES_AHEAD_MAX: usize = 64;
/// What rows that are ahead take, mean with their names.
pub const MEMORY_BYTES: usize = ROWS_AHEAD_MAX * 512;
/// Chunks that whoever reads keeps, and does not read again.
const RECENT_MAX: usize = 8;

/// What is said of rows that are ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowReads {
    /// Lists of pieces, and sets of attributes.
    Lists,
    /// Contents of large files, too: they are read in the order of the rows.
    LargeFiles,
    /// All contents, in the same order.
    Contents,
}

/// Rows in turn.
pub struct RowsAhead<'a, I: Iterator> {
    rows: I,
    chunks: &'a dyn ChunkSource,
    ahead: RowReads,
    is_far_away: bool,
    waiting: VecDeque<WaitingRow<I::Item>>,
    /// So many of those that wait were said.
    said: usize,
    /// Chunks of those.
    expected: usize,
    recent: VecDeque<ChunkId>,
    is_over: bool,
}

struct WaitingRow<R> {
    row: R,
    expected: usize,
}

/// Rows of a catalog that are read ahead.
pub type CatalogRowsAhead<'a> = RowsAhead<'a, CatalogRows<'a>>;

impl<'a, E, I: Iterator<Item = Result<Entry, E>>> RowsAhead<'a, I> {
    pub fn new(rows: I, chunks: &'a dyn ChunkSource, ahead: RowReads) -> RowsAhead<'a, I> {
        RowsAhead {
            rows,
            chunks,
            ahead,
            is_far_away: chunks.is_far_away(),
            waiting: VecDeque::new(),
            said: 0,
            expected: 0,
            recent: VecDeque::new(),
            is_over: false,
        }
    }

    /// Reads more rows, and fetches what they are read with.
    fn read_more(&mut self) {
        let mut lists = Vec::new();
        while self.waiting.len() < ROWS_AHEAD_MAX && lists.len() < LISTS_AHEAD_MAX && !self.is_over
        {
            let Some(row) = self.rows.next() else {
                self.is_over = true;
                break;
            };
            if let Ok(entry) = &row {
                let set = XattrsColumn::chunk_of(&entry.xattrs);
                for id in [list_of(entry), set].into_iter().flatten() {
                    if !lists.contains(&id) {
                        lists.push(id);
                    }
                }
            }
            self.waiting.push_back(WaitingRow { row, expected: 0 });
        }
        if !lists.is_empty() {
            self.chunks.fetch_ahead(&lists);
        }
    }

    fn say_more(&mut self) {
        while self.ahead != RowReads::Lists
            && self.expected < CHUNKS_AHEAD_MAX
            && let Some(next) = self.waiting.get(self.said)
        {
            let mut ids = match &next.row {
                Ok(entry) => first_chunks(entry, self.ahead, self.chunks),
                Err(_) => Vec::new(),
            };
            ids.retain(|id| !self.is_recent(*id));
            if !ids.is_empty() {
                self.chunks.expect(&ids);
            }
            self.waiting[self.said].expected = ids.len();
            self.expected += ids.len();
            self.said += 1;
        }
    }

    /// Has it just been said? It is remembered.
    fn is_recent(&mut self, id: ChunkId) -> bool {
        if let Some(at) = self.recent.iter().position(|recent| *recent == id) {
            self.recent.remove(at);
            self.recent.push_back(id);
            return true;
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(id);
        false
    }
}

impl<E, I: Iterator<Item = Result<Entry, E>>> Iterator for RowsAhead<'_, I> {
    type Item = Result<Entry, E>;

    fn next(&mut self) -> Option<Result<Entry, E>> {
        if !self.is_far_away {
            return self.rows.next();
        }
        if self.waiting.len() < ROWS_AHEAD_MAX / 2 {
            self.read_more();
        }
        self.say_more();
        let next = self.waiting.pop_front()?;
        self.said = self.said.saturating_sub(1);
        self.expected -= next.expected;
        Some(next.row)
    }
}

fn list_of(entry: &Entry) -> Option<ChunkId> {
    match entry.content {
        Content::Pieces { list } if entry.kind == Kind::File => Some(list),
        _ => None,
    }
}

/// Chunks of a file that are read first. Pieces of one that has several names are read for the
/// first of these only, and nobody knows here which that is.
fn first_chunks(entry: &Entry, ahead: RowReads, chunks: &dyn ChunkSource) -> Vec<ChunkId> {
    if entry.kind != Kind::File || entry.size == 0 {
        return Vec::new();
    }
    match entry.content {
        Content::Bundled { chunk, .. } if ahead == RowReads::Contents => vec![chunk],
        Content::Pieces { list } if !entry.is_hard_link() => {
            let mut pieces = PieceReader::new(&list, entry.size, chunks);
            let mut ids = Vec::new();
            // What is wrong with a list is said by whoever reads it.
            while let Ok(Some((_, piece))) = pieces.next_piece() {
                if let Piece::Data { chunk, .. } = piece {
                    ids.push(chunk);
                }
                if ids.len() == PIECES_AHEAD_MAX {
                    break;
                }
            }
            ids
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChunkTrouble;
    use bale_format::{ChunkKind, ChunkPlace};
    use bytes::Bytes;
    use std::sync::Mutex;

    /// Says that it is far away, and notes what it is told.
    #[derive(Default)]
    struct FarChunks {
        expected: Mutex<Vec<ChunkId>>,
        fetched: Mutex<Vec<ChunkId>>,
    }

    impl ChunkSource for FarChunks {
        fn place(&self, _id: &ChunkId) -> Option<ChunkPlace> {
            None
        }

        fn expect(&self, ids: &[ChunkId]) {
            self.expected.lock().unwrap().extend(ids);
        }

        fn fetch_ahead(&self, ids: &[ChunkId]) {
            self.fetched.lock().unwrap().extend(ids);
        }

        fn is_far_away(&self) -> bool {
            true
        }

        fn read(&self, _id: &ChunkId, _kind: ChunkKind) -> Result<Bytes, ChunkTrouble> {
            Err("nothing is here".into())
        }
    }

    fn id(number: usize) -> ChunkId {
        let mut id = ChunkId::default();
        id.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
        id
    }

    fn file(number: usize, content: Content) -> Result<Entry, ChunkTrouble> {
        let mut entry = Entry::new("d".into(), format!("{number:06}").into(), Kind::File);
        (entry.size, entry.content) = (1, content);
        Ok(entry)
    }

    /// Files that alternate between two chunks, and go on to the next two after a hundred.
    fn alternating(number: usize) -> Result<Entry, ChunkTrouble> {
        let chunk = id(number / 100 * 2 + number % 2);
        file(number, Content::Bundled { chunk, offset: 0 })
    }

    #[test]
    fn rows_come_in_turn_and_each_chunk_is_said_once_and_not_far_ahead() {
        let chunks = FarChunks::default();
        let rows = (0..30_000).map(alternating);
        let mut ahead = RowsAhead::new(rows, &chunks, RowReads::Contents);
        for number in 0..30_000 {
            let row = ahead.next().unwrap().unwrap();
            assert_eq!(row.name, format!("{number:06}").as_bytes());
            let said = chunks.expected.lock().unwrap().len();
            assert!(said > number / 100 * 2, "{said} at row {number}");
            assert!(said <= (number + ROWS_AHEAD_MAX) / 100 * 2 + 2);
        }
        assert!(ahead.next().is_none());
        let said = chunks.expected.into_inner().unwrap();
        assert_eq!(said, (0..600).map(id).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_chunks_are_ahead_than_their_bound() {
        let chunks = FarChunks::default();
        let bundled = |number| Content::Bundled {
            chunk: id(number),
            offset: 0,
        };
        let rows = (0..1000).map(|number| file(number, bundled(number)));
        let mut ahead = RowsAhead::new(rows, &chunks, RowReads::Contents);
        for number in 0..1000 {
            assert!(ahead.next().is_some());
            let said = chunks.expected.lock().unwrap().len();
            assert!((number + 1..=number + CHUNKS_AHEAD_MAX).contains(&said));
        }
    }

    #[test]
    fn lists_are_fetched_many_at_a_time_and_troubles_come_in_their_turn() {
        let chunks = FarChunks::default();
        let rows = (0..300).map(|number| match number {
            200 => Err("a stretch that cannot be read".into()),
            _ => file(number, Content::Pieces { list: id(number) }),
        });
        let mut ahead = RowsAhead::new(rows, &chunks, RowReads::Lists);
        for number in 0..300 {
            assert_eq!(ahead.next().unwrap().is_err(), number == 200);
            let fetched = chunks.fetched.lock().unwrap().len();
            assert!(fetched >= (number + 1).min(299), "{fetched} at {number}");
        }
        assert_eq!(chunks.fetched.into_inner().unwrap().len(), 299);
        assert!(chunks.expected.into_inner().unwrap().is_empty());
    }
}
