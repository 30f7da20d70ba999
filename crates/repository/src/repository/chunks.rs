//! The index of a repository, and reading chunks through it.

use super::Repository;
use crate::catalog::{BoxError, SegmentSource};
use crate::error::{
    Error, Result, is_missing, less_conclusive, listed_and_not_found, object_error,
};
use crate::index::ChunkIndex;
use crate::limits::{CHUNK_CACHE_BYTES, FETCHED_BYTES};
use crate::store::{Area, ObjectInfo, ObjectName};
use bale_format::chunk::{ChunkKind, Decompressor};
use bale_format::error::FormatError;
use bale_format::index::{Index, IndexEntry, IndexPack, encode_index};
use bale_format::limits::BUNDLE_BYTES_MAX;
use bale_format::pack::PackEntry;
use bale_format::record::PackKey;
use bale_format::sealed::ObjectType;
use bale_format::{ChunkId, ChunkPlace, ObjectId};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

impl Repository {
    /// The index, read on first use. A damaged index object does not take the others with it: what
    /// only it names counts as absent. Who deletes reads the index with
    /// [`Repository::reload_index`], which wants all of it.
    pub fn index(&self) -> Result<Arc<ChunkIndex>> {
        if let Some(index) = &*self.index.read().expect("holders do not panic") {
            return Ok(index.clone());
        }
        match self.store.is_remote() {
            true => self
                .load_index(&FIRST)
                .or_else(|_| self.reload_index_as_far_as_possible()),
            false => self.reload_index_as_far_as_possible(),
        }
    }

    /// Reads the index afresh, without the index objects that are damaged, or that the store does
    /// not hand out, if there are some.
    pub fn reload_index_as_far_as_possible(&self) -> Result<Arc<ChunkIndex>> {
        self.reload_index().or_else(|error| match error {
            Error::Object { .. } | Error::Store(_) => self.reload_index_readable(),
            other => Err(other),
        })
    }

    /// From now on these packs are not relied on: the index names them, and the store does not have
    /// them.
    pub fn do_without(&self, missing: &HashSet<ObjectId>) -> Result<()> {
        let mut index = ChunkIndex::clone(&*self.index()?);
        missing.iter().for_each(|pack| index.condemn(pack));
        self.keep_index(index);
        Ok(())
    }

    /// Reads the index afresh: other writers may have added to it, a prune may have condemned
    /// packs.
    pub fn reload_index(&self) -> Result<Arc<ChunkIndex>> {
        self.load_index(&AFRESH)
    }

    /// An index that is read for the first time relies on what was listed a moment ago.
    fn load_index(&self, list: &Listing) -> Result<Arc<ChunkIndex>> {
        let mut index = self.named_chunks(list, &mut |_, error| Err(error))?;
        let (lists, unreadable) = self.read_condemned_lists(list(self, Area::Condemned)?);
        if let Some((_, error)) = unreadable.into_iter().next() {
            return Err(error);
        }
        for list in lists {
            list.record
                .packs
                .iter()
                .for_each(|pack| index.condemn(pack));
        }
        self.mark_damaged_packs(&mut index, list);
        Ok(self.keep_index(index))
    }

    /// The index of what can be read, leaving damaged index objects out: for check and repair.
    pub fn reload_index_readable(&self) -> Result<Arc<ChunkIndex>> {
        self.reload_index_reporting(&mut |_, _| {})
    }

    /// The same; `unreadable` learns which are left out, and why.
    pub fn reload_index_reporting(
        &self,
        unreadable: &mut dyn FnMut(&ObjectName, Error),
    ) -> Result<Arc<ChunkIndex>> {
        let mut index = self.named_chunks(&AFRESH, &mut |name, error| {
            unreadable(name, error);
            Ok(())
        })?;
        let (lists, _) = self.condemned_readable()?;
        for list in lists {
            list.record
                .packs
                .iter()
                .for_each(|pack| index.condemn(pack));
        }
        self.mark_damaged_packs(&mut index, &AFRESH);
        Ok(self.keep_index(index))
    }

    /// What all index objects name; `unreadable` decides about those that cannot be read. One that
    /// was listed and is gone was replaced by a prune, by one that may not be in that listing: then
    /// they are listed again. One that is listed each time and never found cannot be read, either:
    /// nobody knows what it names.
    fn named_chunks(
        &self,
        list: &Listing,
        unreadable: &mut dyn FnMut(&ObjectName, Error) -> Result<()>,
    ) -> Result<ChunkIndex> {
        let mut index = ChunkIndex::default();
        let mut seen: HashSet<ObjectName> = HashSet::new();
        let mut listing = list(self, Area::Index)?;
        for number in 1.. {
            let (mut gone, mut failed) = (Vec::new(), Ok(()));
            listing.retain(|info| !seen.contains(&info.name));
            let read = |name: &ObjectName| self.read_index_object(name);
            self.read_each(listing, read, |info, object| {
                match object {
                    Ok(object) => add_all(&mut index, &object),
                    Err(error) if is_missing(&error) && self.has_deleted(&info.name) => {}
                    Err(Error::Store(error)) if error.is_not_found() => {
                        gone.push((info.name, error));
                        return;
                    }
                    Err(error) if failed.is_ok() => {
                        index.miss_object(error.to_string());
                        failed = unreadable(&info.name, error);
                    }
                    Err(_) => {}
                }
                seen.insert(info.name);
            });
            failed?;
            if gone.is_empty() || number == LISTINGS_MAX {
                for (name, error) in gone {
                    let error = listed_and_not_found(error, LISTINGS_MAX);
                    index.miss_object(error.to_string());
                    unreadable(&name, error)?;
                }
                break;
            }
            listing = self.list(Area::Index)?;
        }
        self.order_packs(&mut index);
        Ok(index)
    }

    /// In segments packs lie in an order, and a tape is read in that.
    fn order_packs(&self, index: &mut ChunkIndex) {
        let Some(stretched) = &self.stretched else {
            return;
        };
        // Whoever reads them says what is the matter, if there is something.
        let _is_an_order_of_time_only = stretched.refresh();
        index.order_packs(|pack| {
            let place = stretched.place_of(pack);
            (
                place.is_some(),
                place.map(|place| (place.stretch, place.offset)),
            )
        });
    }

    /// Marks that cannot be read stop nobody; the index says that there are some.
    fn mark_damaged_packs(&self, index: &mut ChunkIndex, list: &Listing) {
        match list(self, Area::Damaged).map(|infos| self.read_marks(infos)) {
            Ok(marks) => {
                marks.packs().for_each(|pack| index.mark_damaged(pack));
                if !marks.unreadable.is_empty() {
                    index.miss_marks();
                }
            }
            Err(_) => index.miss_marks(),
        }
    }

    /// From now on chunks are looked up in this index.
    pub fn keep_index(&self, mut index: ChunkIndex) -> Arc<ChunkIndex> {
        index.sort();
        let index = Arc::new(index);
        *self.index.write().expect("holders do not panic") = Some(index.clone());
        index
    }

    /// Reads one index object.
    pub fn read_index_object(&self, name: &ObjectName) -> Result<Index> {
        let bytes = self.read_sealed(name, ObjectType::Index)?;
        Index::decode(bytes).map_err(object_error(name.to_string()))
    }

    /// Seals and stores an index object; tells its name. Nothing is written for no chunks.
    pub fn write_index_object(
        &self,
        packs: &[IndexPack],
        entries: Vec<IndexEntry>,
    ) -> Result<Option<ObjectName>> {
        let written = self.put_index(packs, entries)?;
        Ok(written.map(|(id, _)| ObjectName::index(id)))
    }

    /// Tells the name, and the length before sealing.
    pub(super) fn put_index(
        &self,
        packs: &[IndexPack],
        mut entries: Vec<IndexEntry>,
    ) -> Result<Option<(ObjectId, u64)>> {
        if entries.is_empty() {
            return Ok(None);
        }
        let plain = encode_index(packs, &mut entries).map_err(object_error("new index"))?;
        let id = self.write_sealed(ObjectType::Index, &plain, ObjectName::index)?;
        Ok(Some((id, plain.len() as u64)))
    }

    /// Reads and checks a chunk, trying every copy that the index names.
    pub fn read_chunk(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes> {
        self.remembering(id, || self.read_chunk_uncached(id, kind))
    }

    /// What `read` brings, unless it is remembered.
    pub(super) fn remembering(
        &self,
        id: &ChunkId,
        read: impl FnOnce() -> Result<Bytes>,
    ) -> Result<Bytes> {
        if let Some(bytes) = self.cache.lock().expect("holders do not panic").get(id) {
            return Ok(bytes);
        }
        let bytes = read()?;
        self.cache.lock().expect("holders do not panic").put(
            *id,
            bytes.clone(),
            self.memory.share(CHUNK_CACHE_BYTES),
        );
        Ok(bytes)
    }

    pub(super) fn is_remembered(&self, id: &ChunkId) -> bool {
        let cache = self.cache.lock().expect("holders do not panic");
        cache.has(id)
    }

    /// The same without remembering it: for callers that use each chunk once.
    pub fn read_chunk_uncached(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes> {
        let index = self.index()?;
        let read = self.read_by(&index, id, kind);
        read.map_err(|unread| *unread.error)
    }

    /// The same by an index that is at hand.
    pub(super) fn read_by(
        &self,
        index: &ChunkIndex,
        id: &ChunkId,
        kind: ChunkKind,
    ) -> std::result::Result<Bytes, Unread> {
        let (mut trouble, mut is_gone) = (None, false);
        // Only of what the index names: a chunk that is in no pack is gone, wherever it is cached.
        if index.any(id).is_some()
            && let Some(bytes) = self.cached_chunk(id, kind)
        {
            return Ok(bytes);
        }
        for place in index.best_first(id) {
            match self.read_place(index, kind, &place) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => {
                    is_gone |= is_missing(&error);
                    trouble = Some(less_conclusive(trouble.take(), error));
                }
            }
        }
        Err(Unread {
            is_gone: is_gone || trouble.is_none(),
            error: Box::new(trouble.unwrap_or(Error::MissingChunk(*id))),
        })
    }

    /// Reads and checks one copy of a chunk.
    pub fn read_place(
        &self,
        index: &ChunkIndex,
        kind: ChunkKind,
        place: &ChunkPlace,
    ) -> Result<Bytes> {
        let pack = index.pack(place.pack).id;
        let name = ObjectName::pack(pack);
        let what = || format!("chunk {} in {name}", place.chunk.id.short());
        if place.chunk.kind != kind {
            return Err(Error::Other(format!(
                "{}: of kind {:?}, not {kind:?}",
                what(),
                place.chunk.kind
            )));
        }
        let range = place.chunk.range();
        let len = (range.end - range.start) as usize;
        if let Some(record) = self.fetched.take(&pack, range.start, len) {
            let key = self.pack_key(pack)?;
            let plain = self.open_record(&key, &place.chunk, &record);
            let plain = plain.or_else(|error| self.open_from_cold(&name, &key, place, error));
            let plain = plain.map_err(object_error(what()))?;
            self.cache_record(&pack, &place.chunk, &record);
            return Ok(plain);
        }
        // Taken out meanwhile: a store may come back here, on this thread, before it has read.
        let mut buffer = READING.with_borrow_mut(|reading| std::mem::take(&mut reading.record));
        let record = room_for(&mut buffer, len);
        let key = match self.store.is_remote() && !self.knows_pack_key(&pack) {
            false => self.pack_key(pack).and_then(|key| {
                self.store.read_at(&name, range.start, record)?;
                Ok(key)
            }),
            true => {
                let read = || self.store.read_at(&name, range.start, record);
                let (key, read) = self.at_once(|| self.pack_key(pack), read);
                key.and_then(|key| Ok(read.map(|()| key)?))
            }
        };
        let key = key.map_err(|error| match error {
            Error::Store(error) => self.with_cold_advice(error).into(),
            other => other,
        })?;
        let plain = self.open_record(&key, &place.chunk, &buffer[..len]);
        if plain.is_ok() {
            self.cache_record(&pack, &place.chunk, &buffer[..len]);
        }
        READING.with_borrow_mut(|reading| reading.record = buffer);
        let plain = plain.or_else(|error| self.open_from_cold(&name, &key, place, error));
        plain.map_err(object_error(what()))
    }

    /// Opens and checks the record of a chunk.
    pub(super) fn open_record(
        &self,
        key: &PackKey,
        chunk: &PackEntry,
        record: &[u8],
    ) -> std::result::Result<Bytes, FormatError> {
        let mut plain = READING.with_borrow_mut(|Reading { contexts, .. }| {
            contexts.supply(self.buffers.take(chunk.plain_bytes as usize));
            key.open_chunk(&self.keys, chunk, record, contexts)
        })?;
        if plain.capacity() != BUNDLE_BYTES_MAX && plain.capacity() / 2 > plain.len() {
            // In the buffer of a larger one, as the one before was.
            plain.shrink_to_fit();
        }
        Ok(self.buffers.lend(plain))
    }
}

/// Why a chunk cannot be read.
pub(super) struct Unread {
    pub(super) error: Box<Error>,
    /// No pack is named for it, or one that is not there: another index may know another place.
    pub(super) is_gone: bool,
}

/// Hands catalog segments to readers, read in one of the ways that there are.
struct Segments {
    repository: Arc<Repository>,
    read: ReadChunk,
    /// Of those that are fetched together.
    fetched_bytes: usize,
}

/// Segments of one layer that are fetched together from a store that is far away: no more than
/// there is room for.
const SEGMENTS_AHEAD_MAX: usize = 64;
/// The least that one takes of that room.
const SEGMENT_AHEAD_BYTES: usize = 256 << 10;

/// Reads and checks a chunk.
type ReadChunk = fn(&Repository, &ChunkId, ChunkKind) -> Result<Bytes>;

impl SegmentSource for Segments {
    fn segment(&self, id: &ChunkId) -> std::result::Result<Bytes, BoxError> {
        Ok((self.read)(&self.repository, id, ChunkKind::Segment)?)
    }

    fn ahead_max(&self) -> usize {
        match self.repository.store.is_remote() {
            true => SEGMENTS_AHEAD_MAX.min(self.fetched_bytes / SEGMENT_AHEAD_BYTES),
            false => 0,
        }
    }

    fn fetch_ahead(&self, ids: &[ChunkId]) -> usize {
        self.repository.fetch_ahead_within(ids, self.fetched_bytes)
    }
}

impl Repository {
    /// Where catalogs read their segments.
    pub fn segment_source(self: &Arc<Self>) -> Arc<dyn SegmentSource> {
        self.segments(Repository::read_chunk_uncached)
    }

    /// The same for callers that come back to the same segments.
    pub fn segment_source_remembering(self: &Arc<Self>) -> Arc<dyn SegmentSource> {
        self.segments(Repository::read_chunk)
    }

    pub(super) fn segments(self: &Arc<Self>, read: ReadChunk) -> Arc<dyn SegmentSource> {
        self.segments_within(read, self.memory.share(FETCHED_BYTES))
    }

    pub(super) fn segments_within(
        self: &Arc<Self>,
        read: ReadChunk,
        fetched_bytes: usize,
    ) -> Arc<dyn SegmentSource> {
        Arc::new(Segments {
            repository: self.clone(),
            read,
            fetched_bytes,
        })
    }
}

/// How an area is listed: as it was when the repository was opened, or as it is now.
type Listing = dyn Fn(&Repository, Area) -> Result<Vec<ObjectInfo>> + Sync;

const FIRST: fn(&Repository, Area) -> Result<Vec<ObjectInfo>> = Repository::share_first;
const AFRESH: fn(&Repository, Area) -> Result<Vec<ObjectInfo>> = Repository::list;

/// Index objects are listed so often while prunes replace them.
const LISTINGS_MAX: usize = 16;

/// What each thread that reads chunks makes once.
struct Reading {
    contexts: Decompressor,
    /// As it was stored. Never shrinks, so that it is not filled with zeros again and again.
    record: Vec<u8>,
}

thread_local! {
    static READING: RefCell<Reading> = RefCell::new(Reading {
        contexts: Decompressor::new(),
        record: Vec::new(),
    });
}

/// The first `len` bytes of a buffer, which grows if need be.
fn room_for(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

fn add_all(index: &mut ChunkIndex, object: &Index) {
    let numbers: Vec<_> = object
        .packs()
        .map(|pack| index.add_pack(pack.id, pack.bytes))
        .collect();
    for entry in object.iter() {
        index.add(ChunkPlace {
            pack: numbers[entry.pack as usize],
            chunk: entry.chunk,
        });
    }
}
