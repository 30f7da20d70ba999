//! Large files, and those with holes or unreadable ranges: cut by content into pieces, each a chunk
//! of its own.

use super::naming::Named;
use super::tally::Tally;
use bale_format::gear::Cutter;
use bale_format::keys::ChunkHasher;
use bale_format::pieces::{Piece, PieceListBuilder};
use bale_format::{ChunkId, ChunkKind, ChunkSizes, Entry, EntryFlags};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_source::image::EntryPlace;
use bale_source::read::{BLOCKS_AHEAD_MAX, LargeReader, READ_RETRIES_MAX, ReadPiece as Read};
use std::ops::Range;
use std::time::Duration;

/// Files over this size are not read a second time because they changed: the next backup will.
const RETRY_BYTES_MAX: u64 = 1 << 30;

/// A large file that was stored.
pub(super) struct StoredFile {
    pub(super) entry: Entry,
    /// Its piece list; `None` if there were no bytes, or none could be read.
    pub(super) list: Option<ChunkId>,
}

pub(super) struct LargeStore<'a> {
    store: &'a ChunkWriter,
    tally: &'a Tally<'a>,
    /// Started with the first large file.
    reader: Option<LargeReader>,
    /// Reads in flight.
    blocks_ahead: usize,
    /// What is stored of a file is named so often, if not as usual.
    naming_every: Option<Duration>,
}

impl<'a> LargeStore<'a> {
    pub(super) fn new(store: &'a ChunkWriter, tally: &'a Tally<'a>) -> LargeStore<'a> {
        LargeStore {
            store,
            tally,
            reader: None,
            blocks_ahead: BLOCKS_AHEAD_MAX,
            naming_every: None,
        }
    }

    pub(super) fn reading_ahead(self, blocks_ahead: usize) -> LargeStore<'a> {
        LargeStore {
            blocks_ahead,
            ..self
        }
    }

    pub(super) fn naming_every(self, every: Option<Duration>) -> LargeStore<'a> {
        LargeStore {
            naming_every: every,
            ..self
        }
    }

    /// Reads and stores a file; `None` if it vanished.
    pub(super) fn store_file(
        &mut self,
        place: &EntryPlace,
        entry: Entry,
    ) -> Result<Option<StoredFile>> {
        let start = || LargeReader::within(self.blocks_ahead);
        let reader = self.reader.get_or_insert_with(start);
        let mut attempt = 0;
        // What the attempt before gave of a file whose stamps prove nothing.
        let mut given_before = None;
        loop {
            let mut file = match reader.open(place, entry.clone()) {
                Ok(file) => file,
                Err(problem) if problem.error.kind() == std::io::ErrorKind::NotFound => {
                    return Ok(None);
                }
                Err(problem) => {
                    let mut entry = entry;
                    entry.flags.set(EntryFlags::UNREADABLE);
                    self.tally.reading_problem(&problem, entry.flags);
                    return Ok(Some(StoredFile { entry, list: None }));
                }
            };
            let mut pieces = FileCutter::new(self.store);
            let mut named = Named::begin(self.store, self.naming_every);
            while let Some(piece) = file.next_piece() {
                if self.tally.interrupted() {
                    return Err(Error::Interrupted);
                }
                match piece {
                    Read::Data(block) => {
                        self.tally.read(block.len() as u64);
                        pieces.data(&block)?;
                        named.when_due(self.store)?;
                    }
                    Read::Hole(bytes) => pieces.gap(Piece::Hole { bytes })?,
                    Read::Bad(bytes) => pieces.gap(Piece::Unreadable { bytes })?,
                }
            }
            let finished = file.finish();
            attempt += 1;
            let may_try_again = attempt <= READ_RETRIES_MAX && entry.size <= RETRY_BYTES_MAX;
            if finished.changed && may_try_again {
                given_before = None;
                continue;
            }
            let mut stored = finished.entry;
            let list = pieces.finish(&mut stored)?;
            if finished.unproven && !finished.changed && given_before != Some(list) {
                if may_try_again {
                    given_before = Some(list);
                    continue;
                }
                stored.flags.set(EntryFlags::CHANGED);
            }
            let entry = stored;
            let problems = finished.problems.iter();
            problems.for_each(|problem| self.tally.reading_problem(problem, entry.flags));
            return Ok(Some(StoredFile { entry, list }));
        }
    }

    /// Stores a small file that has been read and has holes or unreadable ranges.
    pub(super) fn store_read(
        &mut self,
        entry: &mut Entry,
        bytes: &[u8],
        holes: &[Range<u64>],
        bad: &[Range<u64>],
    ) -> Result<ChunkId> {
        let mut gaps: Vec<(Range<u64>, bool)> =
            holes.iter().map(|range| (range.clone(), false)).collect();
        gaps.extend(bad.iter().map(|range| (range.clone(), true)));
        gaps.sort_by_key(|(range, _)| range.start);
        let mut pieces = FileCutter::new(self.store);
        let mut at = 0;
        for (range, is_bad) in gaps {
            pieces.data(slice(bytes, at..range.start))?;
            let bytes = range.end - range.start;
            pieces.gap(if is_bad {
                Piece::Unreadable { bytes }
            } else {
                Piece::Hole { bytes }
            })?;
            at = range.end;
        }
        pieces.data(slice(bytes, at..bytes.len() as u64))?;
        let list = pieces.finish(entry)?;
        list.ok_or_else(|| Error::Other("a file with holes has a length".to_owned()))
    }
}

fn slice(bytes: &[u8], range: Range<u64>) -> &[u8] {
    bytes
        .get(range.start as usize..range.end as usize)
        .unwrap_or_default()
}

/// Bytes that are cut, copied and hashed together while they are in the processor's cache.
const PORTION_BYTES: usize = 128 << 10;

/// Bytes and gaps of one file on their way to chunks and a piece list.
pub(super) struct FileCutter<'a> {
    store: &'a ChunkWriter,
    sizes: ChunkSizes,
    cutter: Cutter,
    /// The piece so far, and its id in the making.
    buffer: Vec<u8>,
    hasher: ChunkHasher,
    list: PieceListBuilder,
    any: bool,
}

impl<'a> FileCutter<'a> {
    pub(super) fn new(store: &'a ChunkWriter) -> FileCutter<'a> {
        let sizes = store.repository().config().chunk_sizes;
        let (cutter, list) = (Cutter::new(&sizes), PieceListBuilder::new());
        FileCutter {
            store,
            sizes,
            cutter,
            buffer: Vec::new(),
            hasher: store.keys().chunk_hasher(ChunkKind::Data),
            list,
            any: false,
        }
    }

    pub(super) fn data(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.buffer.capacity() == 0 {
                self.buffer = self.store.buffer(self.sizes.max as usize);
            }
            let portion = &bytes[..bytes.len().min(PORTION_BYTES)];
            let cut = self.cutter.push(self.store.keys().gear_table(), portion);
            let (piece, rest) = bytes.split_at(cut.unwrap_or(portion.len()));
            self.buffer.extend_from_slice(piece);
            self.hasher.update(piece);
            if cut.is_some() {
                self.end_piece()?;
            }
            bytes = rest;
        }
        Ok(())
    }

    fn gap(&mut self, piece: Piece) -> Result<()> {
        if piece.bytes() == 0 {
            return Ok(());
        }
        self.end_piece()?;
        self.cutter.restart();
        self.push(piece)
    }

    fn end_piece(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = self.buffer.len() as u64;
        let piece = std::mem::take(&mut self.buffer);
        let chunk = self
            .store
            .store_as(ChunkKind::Data, self.hasher.finish(), piece)?;
        self.push(Piece::whole(bytes, chunk))
    }

    fn push(&mut self, piece: Piece) -> Result<()> {
        self.any = true;
        let store = self.store;
        self.list
            .push(piece, &mut |plain: &[u8]| -> Result<ChunkId> {
                store.store(ChunkKind::Pieces, plain.to_vec())
            })
    }

    /// The root list's chunk; sets the entry's size and hash.
    pub(super) fn finish(mut self, entry: &mut Entry) -> Result<Option<ChunkId>> {
        self.end_piece()?;
        if !self.any {
            entry.size = 0;
            return Ok(None);
        }
        let store = self.store;
        let root = self.list.finish(&mut |plain: &[u8]| -> Result<ChunkId> {
            store.store(ChunkKind::Pieces, plain.to_vec())
        })?;
        entry.size = root.bytes;
        entry.content_hash = Some(store.keys().content_hash(&root.plain));
        Ok(Some(root.list))
    }
}
