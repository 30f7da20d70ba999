//! Rows in order, with their chunks fetched ahead.
//!
//! One thread reads the catalog and names the chunks that will be needed, in order; some fetch,
//! open and check them; the caller gets rows and the pieces of large files one by one and waits
//! only for what is not there yet. Chunks that were needed lately are kept, for neighbours in a
//! catalog are neighbours in a chunk, and those of several backups alternate. All chunks together
//! stay below a bound; the oldest that nobody needs now make way.

use super::linked_rows::{LinkedRow, Links};
use super::prefetch::PrefetchedFiles;
use super::rows::WantedRows;
use super::work::Work;
use crate::pieces::PiecesAhead;
use crate::rows_ahead::RowReads;
use crate::seams::text_of;
use crate::{ChunkSource, RestoreError};
use bale_format::limits::{BUNDLE_BYTES_MAX, BUNDLE_BYTES_MIN};
use bale_format::{ChunkId, ChunkKind, Content, Entry, Kind, Piece};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, OnceLock};

/// A chunk counts as this much at least: their number is bounded too.
const CHUNK_BYTES_LEAST: u64 = 256 << 10;
/// What a chunk of one small file that was set apart takes beside its bytes.
const SLOT_BYTES: u64 = 256;
/// Rows and pieces handed over at a time.
pub const BATCH_ITEMS_MAX: usize = 256;
/// Batches that wait for the caller, and as many empty ones.
pub const BATCHES_AHEAD_MAX: usize = 64;

/// A row, or a piece of the row before it.
#[allow(clippy::large_enum_variant, reason = "almost all are rows")]
pub enum ImageItem {
    Row(ImageRow),
    Piece(PieceItem),
}

/// A row and where its bytes come from.
pub struct ImageRow {
    pub entry: Entry,
    /// For rows of linked inodes.
    pub name: Option<LinkedRow>,
    pub bytes: RowBytes,
}

/// Where the bytes of a row come from.
pub enum RowBytes {
    None,
    /// From this offset of a chunk.
    Bundled(Arc<AwaitedChunk>, u32),
    /// Pieces follow.
    Pieces(ChunkId),
    /// An earlier name brought them. Nothing was fetched.
    Earlier,
}

/// A stretch of a large file; holes are left out.
pub struct PieceItem {
    pub offset: u64,
    pub length: u64,
    pub bytes: PieceBytes,
}

/// What is in the stretch.
pub enum PieceBytes {
    /// Of a chunk, what the piece says.
    Chunk(Arc<AwaitedChunk>, Piece),
    /// The backup could not read it.
    Unreadable,
    /// The list of pieces cannot be used from here on.
    Damaged(String),
}

/// A chunk that is being fetched; readers wait for it.
pub struct AwaitedChunk {
    id: ChunkId,
    bytes: OnceLock<Result<Bytes, String>>,
    weight: u64,
    budget: Arc<Budget>,
}

impl AwaitedChunk {
    /// The chunk, when it is there, or why it cannot be had.
    pub fn wait(&self) -> Result<&Bytes, &str> {
        self.bytes.wait().as_ref().map_err(String::as_str)
    }

    fn fetch(&self, chunks: &dyn ChunkSource) {
        let read = match self.budget.is_closed() {
            true => Err("it is no longer needed".to_owned()),
            false => chunks
                .read(&self.id, ChunkKind::Data)
                .map_err(|trouble| text_of(&trouble)),
        };
        let _only_one_thread_fetches_it = self.bytes.set(read);
    }
}

impl Drop for AwaitedChunk {
    fn drop(&mut self) {
        self.budget.give_back(self.weight);
    }
}

/// Bytes that chunks may still take.
struct Budget {
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Budget {
    fn new(bytes: u64) -> Arc<Budget> {
        Arc::new(Budget {
            state: Mutex::new((bytes, false)),
            changed: Condvar::new(),
        })
    }

    fn try_take(&self, weight: u64) -> bool {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        let fits = state.0 >= weight;
        if fits {
            state.0 -= weight;
        }
        fits
    }

    /// `false`: it is no longer needed.
    fn take(&self, weight: u64) -> bool {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        while state.0 < weight && !state.1 {
            state = self
                .changed
                .wait(state)
                .expect("no holder of this lock panics");
        }
        if !state.1 {
            state.0 -= weight;
        }
        !state.1
    }

    fn give_back(&self, weight: u64) {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        state.0 += weight;
        self.changed.notify_all();
    }

    fn close(&self) {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        state.1 = true;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        let state = self.state.lock().expect("no holder of this lock panics");
        state.1
    }
}

enum FeedMessage {
    Batch(VecDeque<ImageItem>),
    Failed(RestoreError),
    End,
}

/// What the caller takes from.
pub struct Items {
    messages: Receiver<FeedMessage>,
    batch: VecDeque<ImageItem>,
    /// Takes empty batches back: fresh memory for each would cost more than reading its rows.
    spare: Sender<VecDeque<ImageItem>>,
    has_ended: bool,
    budget: Arc<Budget>,
}

impl Items {
    /// The next row; pieces of the last one that nobody asked for are passed.
    pub fn next_row(&mut self) -> Result<Option<ImageRow>, RestoreError> {
        while self.fill()? {
            if let Some(ImageItem::Row(row)) = self.batch.pop_front() {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// The next piece of the last row.
    pub fn next_piece(&mut self) -> Result<Option<PieceItem>, RestoreError> {
        if !self.fill()? || matches!(self.batch.front(), Some(ImageItem::Row(_))) {
            return Ok(None);
        }
        match self.batch.pop_front() {
            Some(ImageItem::Piece(piece)) => Ok(Some(piece)),
            _ => Ok(None),
        }
    }

    /// Is there one more item?
    fn fill(&mut self) -> Result<bool, RestoreError> {
        while self.batch.is_empty() && !self.has_ended {
            match self.messages.recv() {
                Ok(FeedMessage::Batch(batch)) => {
                    let empty = std::mem::replace(&mut self.batch, batch);
                    let _more_than_needed_are_freed = self.spare.try_send(empty);
                }
                Ok(FeedMessage::End) => self.has_ended = true,
                Ok(FeedMessage::Failed(error)) => return Err(error),
                Err(_) => return Err(RestoreError::Catalog("its reader ended".into())),
            }
        }
        Ok(!self.batch.is_empty())
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        self.budget.close();
    }
}

/// Calls `consume` with the rows; `rows` makes the reading, in its own thread.
pub fn with_items<'w, T>(
    work: &'w Work<'w>,
    rows: impl FnOnce() -> Result<WantedRows<'w>, RestoreError> + Send,
    (links, prefetched): (Links, PrefetchedFiles),
    consume: impl FnOnce(&mut Items) -> Result<T, RestoreError>,
) -> Result<T, RestoreError> {
    let memory = work.options.memory;
    let ahead_bytes = work.ahead_bytes() as u64;
    let budget = Budget::new(ahead_bytes);
    let (jobs, waiting) = unbounded::<Arc<AwaitedChunk>>();
    let batches = memory.share(BATCHES_AHEAD_MAX);
    let (out, messages) = bounded(batches);
    let (spare, spares) = bounded(batches);
    std::thread::scope(|scope| {
        for _ in 0..work.fetchers().min(memory.workers()) {
            let waiting = waiting.clone();
            scope.spawn(move || waiting.iter().for_each(|slot| slot.fetch(work.chunks)));
        }
        drop(waiting);
        let mut items = Items {
            messages,
            batch: VecDeque::new(),
            spare,
            has_ended: false,
            budget: budget.clone(),
        };
        scope.spawn(move || {
            let mut feeder = ChunkFeeder {
                work,
                budget,
                jobs,
                out,
                links,
                prefetched,
                cached: VecDeque::new(),
                ahead_bytes,
                is_far_away: work.chunks.is_far_away(),
                batch: VecDeque::new(),
                spares,
            };
            let last = match rows()
                .map_err(Halt::Failed)
                .and_then(|rows| feeder.feed(rows))
            {
                Ok(()) => FeedMessage::End,
                Err(Halt::Failed(error)) => FeedMessage::Failed(error),
                Err(Halt::Unwanted) => return,
            };
            let _whoever_left_needs_no_end = feeder.out.send(last);
        });
        consume(&mut items)
    })
}

/// Why feeding ends early.
enum Halt {
    Failed(RestoreError),
    /// The caller has left.
    Unwanted,
}

struct ChunkFeeder<'w> {
    work: &'w Work<'w>,
    budget: Arc<Budget>,
    jobs: Sender<Arc<AwaitedChunk>>,
    out: Sender<FeedMessage>,
    links: Links,
    prefetched: PrefetchedFiles,
    /// The chunk used last is the last.
    cached: VecDeque<(ChunkId, Arc<AwaitedChunk>)>,
    ahead_bytes: u64,
    /// Then whoever has the chunks learns which will be read.
    is_far_away: bool,
    batch: VecDeque<ImageItem>,
    spares: Receiver<VecDeque<ImageItem>>,
}

impl ChunkFeeder<'_> {
    fn feed(&mut self, rows: WantedRows) -> Result<(), Halt> {
        // Chunks that content was taken out of early are not read again.
        let ahead = match self.prefetched.is_nothing() {
            true => RowReads::Contents,
            false => RowReads::LargeFiles,
        };
        for (position, entry) in (0..).zip(rows.ahead(ahead)) {
            let entry = entry.map_err(Halt::Failed)?;
            let name = match entry.is_hard_link() {
                true => Some(self.links.at(position, &entry).map_err(Halt::Failed)?),
                false => None,
            };
            let is_further = name.is_some_and(|name| !name.is_first);
            let bytes = match &entry.content {
                _ if entry.kind != Kind::File || entry.size == 0 => RowBytes::None,
                _ if is_further => RowBytes::Earlier,
                Content::None | Content::Image => RowBytes::None,
                Content::Bundled { chunk, offset } => self.bundled(position, chunk, *offset)?,
                Content::Pieces { list } => RowBytes::Pieces(*list),
            };
            let pieces = match bytes {
                RowBytes::Pieces(list) => Some((list, entry.size)),
                _ => None,
            };
            self.put(ImageItem::Row(ImageRow { entry, name, bytes }))?;
            if let Some((list, size)) = pieces {
                self.feed_pieces(&list, size)?;
            }
        }
        self.flush()
    }

    /// Content that was set apart, or its chunk.
    fn bundled(&mut self, position: u64, chunk: &ChunkId, offset: u32) -> Result<RowBytes, Halt> {
        let prefetched = self.prefetched.at(position, (chunk, offset));
        let Some(fetched) = prefetched.map_err(Halt::Failed)? else {
            let slot = self.slot(chunk, BUNDLE_BYTES_MAX as u64)?;
            return Ok(RowBytes::Bundled(slot, offset));
        };
        let weight = SLOT_BYTES + fetched.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.make_room(weight)?;
        let slot = AwaitedChunk {
            id: *chunk,
            bytes: OnceLock::from(fetched),
            weight,
            budget: self.budget.clone(),
        };
        Ok(RowBytes::Bundled(Arc::new(slot), 0))
    }

    fn feed_pieces(&mut self, list: &ChunkId, size: u64) -> Result<(), Halt> {
        let mut end = 0;
        let mut pieces = PiecesAhead::new(list, size, self.work.chunks);
        loop {
            let (offset, piece) = match pieces.next_piece() {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(()),
                Err(text) => return self.put_damaged(end..size, text),
            };
            let length = piece.bytes();
            end = offset + length;
            let bytes = match piece {
                Piece::Hole { .. } => continue,
                Piece::Unreadable { .. } => PieceBytes::Unreadable,
                Piece::Data { chunk, start, .. } => {
                    // How long the chunk of a part is, the list does not say.
                    let chunk_bytes = match start {
                        None => length,
                        Some(_) => length.max(BUNDLE_BYTES_MAX as u64),
                    };
                    PieceBytes::Chunk(self.slot(&chunk, chunk_bytes)?, piece)
                }
            };
            self.put(ImageItem::Piece(PieceItem {
                offset,
                length,
                bytes,
            }))?;
        }
    }

    fn put_damaged(&mut self, range: std::ops::Range<u64>, text: String) -> Result<(), Halt> {
        self.put(ImageItem::Piece(PieceItem {
            offset: range.start,
            length: range.end - range.start,
            bytes: PieceBytes::Damaged(text),
        }))
    }

    /// The chunk, kept or on its way.
    fn slot(&mut self, id: &ChunkId, bytes: u64) -> Result<Arc<AwaitedChunk>, Halt> {
        if let Some((last, slot)) = self.cached.back()
            && last == id
        {
            return Ok(slot.clone());
        }
        if let Some(at) = self.cached.iter().rposition(|(cached, _)| cached == id) {
            let found = self.cached.remove(at).expect("the position was just found");
            self.cached.push_back(found.clone());
            return Ok(found.1);
        }
        // A list of pieces may claim any length; the chunk will be told from it when it is there.
        let weight = match bytes > BUNDLE_BYTES_MIN as u64 {
            // Its buffer is one for the largest chunks.
            true => bytes.max(BUNDLE_BYTES_MAX as u64),
            false => bytes.max(CHUNK_BYTES_LEAST),
        };
        let weight = weight.min(self.ahead_bytes / 4);
        self.make_room(weight)?;
        let slot = Arc::new(AwaitedChunk {
            id: *id,
            bytes: OnceLock::new(),
            weight,
            budget: self.budget.clone(),
        });
        self.cached.push_back((*id, slot.clone()));
        if self.is_far_away {
            self.work.chunks.expect(&[*id]);
        }
        self.jobs.send(slot.clone()).map_err(|_| Halt::Unwanted)?;
        Ok(slot)
    }

    /// Takes from the budget; what was needed longest ago makes way.
    fn make_room(&mut self, weight: u64) -> Result<(), Halt> {
        while !self.budget.try_take(weight) {
            // Nobody but this thread holds it.
            let is_idle = |(_, slot): &(ChunkId, Arc<AwaitedChunk>)| Arc::strong_count(slot) == 1;
            if let Some(at) = self.cached.iter().position(is_idle) {
                self.cached.remove(at);
                continue;
            }
            // All are on their way to the caller, who gives them back if they are not kept here.
            let mut coming = 0;
            while coming < weight
                && let Some((_, slot)) = self.cached.pop_front()
            {
                coming += slot.weight;
            }
            self.flush()?;
            return match self.budget.take(weight) {
                true => Ok(()),
                false => Err(Halt::Unwanted),
            };
        }
        Ok(())
    }

    fn put(&mut self, item: ImageItem) -> Result<(), Halt> {
        self.batch.push_back(item);
        if self.batch.len() >= BATCH_ITEMS_MAX {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Halt> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let spare = self.spares.try_recv();
        let empty = spare.unwrap_or_else(|_| VecDeque::with_capacity(BATCH_ITEMS_MAX));
        let batch = std::mem::replace(&mut self.batch, empty);
        self.out
            .send(FeedMessage::Batch(batch))
            .map_err(|_| Halt::Unwanted)
    }
}
