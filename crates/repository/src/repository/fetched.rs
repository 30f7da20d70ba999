//! Chunks of a repository that is far away, fetched together before they are read, and those of
//! its metadata that are cached on this machine.
//!
//! Records that lie near each other in a pack travel in one request, packs beside each other. They
//! wait here, sealed as they came, for the one reading that is to follow; what nobody reads goes
//! when others need the room. A record from here, or from the cache, passes the same checks as one
//! from the store. Trouble is left to whoever reads the chunk.

use super::Repository;
use crate::limits::FETCHED_BYTES;
use crate::metadata_cache::CachedName;
use crate::store::ObjectName;
use bale_format::chunk::{ChunkKind, Codec};
use bale_format::pack::PackEntry;
use bale_format::record::RECORD_HEAD_BYTES;
use bale_format::{ChunkId, ChunkPlace, ObjectId, PackNumber};
use bale_pipeline::ordered::{Flights, in_order_weighed};
use bytes::Bytes;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One request reads at most so much.
pub(super) const RANGE_BYTES_MAX: u64 = 8 << 20;
/// Records with no more than this between them travel together.
pub(super) const GAP_BYTES_MAX: u64 = 256 << 10;

/// A file of the cache: the fields of the entry, the salt of the pack's key, the record.
const CACHED_HEAD_BYTES: usize = 24 + 32;

/// Records that were fetched and not read yet, oldest first. A few dozen, so a list is as good as a
/// map.
#[derive(Default)]
pub(super) struct FetchedRecords(Mutex<Fetched>);

#[derive(Default)]
struct Fetched {
    records: VecDeque<FetchedRecord>,
    bytes: usize,
}

struct FetchedRecord {
    pack: ObjectId,
    offset: u64,
    bytes: Bytes,
}

impl FetchedRecords {
    /// The record at a place, if it is here and as long as it should be.
    pub(super) fn take(&self, pack: &ObjectId, offset: u64, len: usize) -> Option<Bytes> {
        let mut fetched = self.lock();
        let is_it = |record: &FetchedRecord| record.offset == offset && record.pack == *pack;
        let at = fetched.records.iter().position(is_it)?;
        let record = fetched.records.remove(at)?;
        fetched.bytes -= record.bytes.len();
        (record.bytes.len() == len).then_some(record.bytes)
    }

    fn has(&self, pack: &ObjectId, offset: u64) -> bool {
        let is_it = |record: &FetchedRecord| record.offset == offset && record.pack == *pack;
        self.lock().records.iter().any(is_it)
    }

    fn put(&self, record: FetchedRecord, bytes_max: usize) {
        let mut fetched = self.lock();
        fetched.bytes += record.bytes.len();
        fetched.records.push_back(record);
        while fetched.bytes > bytes_max {
            let Some(oldest) = fetched.records.pop_front() else {
                break;
            };
            fetched.bytes -= oldest.bytes.len();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Fetched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request: a stretch of a pack and the records in it, or the pack's key.
enum Fetch {
    Key(ObjectId),
    Range(ObjectId, PackRange),
}

/// Records of one pack that travel together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PackRange {
    pub(super) pack: PackNumber,
    pub(super) start: u64,
    pub(super) end: u64,
    /// In order.
    pub(super) records: Vec<PackEntry>,
}

/// Records in the order of packs and offsets, gathered into requests of at most `bytes_max`; one
/// that is longer goes alone.
pub(super) fn gather(mut places: Vec<ChunkPlace>, bytes_max: u64) -> Vec<PackRange> {
    places.sort_unstable_by_key(ChunkPlace::sort_key);
    places.dedup_by_key(|place| place.sort_key());
    let mut ranges: Vec<PackRange> = Vec::new();
    for place in places {
        let range = place.chunk.range();
        match ranges.last_mut() {
            Some(last)
                if last.pack == place.pack
                    && range.start >= last.end
                    && range.start - last.end <= GAP_BYTES_MAX
                    && range.end - last.start <= bytes_max =>
            {
                last.end = range.end;
                last.records.push(place.chunk);
            }
            _ => ranges.push(PackRange {
                pack: place.pack,
                start: range.start,
                end: range.end,
                records: vec![place.chunk],
            }),
        }
    }
    ranges
}

impl Repository {
    /// These chunks will be read next: from a store that is far away they are fetched together, as
    /// many as there is room for.
    pub fn fetch_ahead(&self, ids: &[ChunkId]) {
        self.fetch_ahead_within(ids, self.memory.share(FETCHED_BYTES));
    }

    /// The same, as many as there is this room for: the first so many of them.
    pub(super) fn fetch_ahead_within(&self, ids: &[ChunkId], room: usize) -> usize {
        if !self.store.is_remote() {
            return ids.len();
        }
        let Ok(index) = self.index() else {
            return ids.len();
        };
        let (mut places, mut bytes, mut taken) = (Vec::new(), 0, ids.len());
        for (position, id) in ids.iter().enumerate() {
            let Some(place) = index.any(id) else { continue };
            let pack = &index.pack(place.pack).id;
            let is_here = self.fetched.has(pack, place.chunk.offset)
                || self.is_remembered(id)
                || self.is_cached(id, place.chunk.kind);
            if is_here {
                continue;
            }
            let range = place.chunk.range();
            bytes += range.end - range.start;
            if bytes > room as u64 {
                taken = position;
                break;
            }
            places.push(place);
        }
        let ranges = gather(places, RANGE_BYTES_MAX.min(room as u64 / 2));
        let mut fetches = Vec::new();
        for range in ranges {
            let pack = index.pack(range.pack).id;
            let is_first =
                !matches!(fetches.last(), Some((_, Fetch::Range(last, _))) if *last == pack);
            if is_first && !self.knows_pack_key(&pack) {
                fetches.push((0, Fetch::Key(pack)));
            }
            fetches.push((range.end - range.start, Fetch::Range(pack, range)));
        }
        let flights = Flights {
            weight: room as u64,
            ..self.flights()
        };
        let done = in_order_weighed(
            flights,
            fetches.into_iter(),
            |fetch| self.fetch(fetch),
            |records| {
                records
                    .into_iter()
                    .for_each(|record| self.fetched.put(record, room));
                Ok::<(), Infallible>(())
            },
        );
        match done {
            Ok(()) => taken,
            Err(never) => match never {},
        }
    }

    fn fetch(&self, fetch: Fetch) -> Vec<FetchedRecord> {
        let (pack, range) = match fetch {
            Fetch::Range(pack, range) => (pack, range),
            Fetch::Key(pack) => {
                let _said_by_whoever_needs_it = self.pack_key(pack);
                return Vec::new();
            }
        };
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let name = ObjectName::pack(pack);
        if self.store.read_at(&name, range.start, &mut bytes).is_err() {
            return Vec::new();
        }
        let bytes = Bytes::from(bytes);
        let records = range.records.into_iter().map(|chunk| {
            let part = chunk.range();
            let part = (part.start - range.start) as usize..(part.end - range.start) as usize;
            FetchedRecord {
                pack,
                offset: chunk.offset,
                bytes: bytes.slice(part),
            }
        });
        records.collect()
    }

    pub(super) fn is_cached(&self, id: &ChunkId, kind: ChunkKind) -> bool {
        let cached = self.metadata.as_ref().zip(CachedName::of_chunk(kind, id));
        cached.is_some_and(|(cache, name)| cache.has(&name))
    }

    /// A chunk of metadata from the cache, if it is there and whole.
    pub(super) fn cached_chunk(&self, id: &ChunkId, kind: ChunkKind) -> Option<Bytes> {
        let cache = self.metadata.as_ref()?;
        let name = CachedName::of_chunk(kind, id)?;
        let bytes = cache.load(&name, CACHED_BYTES_MAX)?;
        let (entry, salt, record) = decode_cached(id, kind, &bytes)?;
        if record.len() as u64 != entry.range().end - entry.range().start {
            return None;
        }
        let key = self.keys.pack_key(salt);
        self.open_record(&key, &entry, record).ok()
    }

    /// Keeps the record of a chunk of metadata that opened.
    pub(super) fn cache_record(&self, pack: &ObjectId, chunk: &PackEntry, record: &[u8]) {
        let Some(cache) = &self.metadata else { return };
        let name = CachedName::of_chunk(chunk.kind, &chunk.id);
        let Some((name, salt)) = name.zip(self.pack_salt(pack)) else {
            return;
        };
        cache.save(&name, &encode_cached(chunk, &salt, record));
    }
}

/// A record in the cache is at most so long: a chunk that nothing shrinks, and its padding.
const CACHED_BYTES_MAX: u64 = 2 * bale_format::limits::CHUNK_BYTES_MAX as u64;

fn encode_cached(chunk: &PackEntry, salt: &[u8; 32], record: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CACHED_HEAD_BYTES + record.len());
    bytes.extend_from_slice(&chunk.offset.to_le_bytes());
    bytes.extend_from_slice(&chunk.sealed_bytes.to_le_bytes());
    bytes.extend_from_slice(&chunk.plain_bytes.to_le_bytes());
    bytes.extend_from_slice(&chunk.slot.to_le_bytes());
    bytes.extend_from_slice(&[chunk.codec as u8, 0, 0, 0]);
    bytes.extend_from_slice(salt);
    bytes.extend_from_slice(record);
    bytes
}

/// Untrusted: it is the chunk only if the record opens to it.
fn decode_cached<'b>(
    id: &ChunkId,
    kind: ChunkKind,
    bytes: &'b [u8],
) -> Option<(PackEntry, &'b [u8; 32], &'b [u8])> {
    let (head, record) = bytes.split_first_chunk::<CACHED_HEAD_BYTES>()?;
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let offset = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
    let (sealed_bytes, plain_bytes) = (number(8), number(12));
    // An end that overflows is no range.
    offset.checked_add(RECORD_HEAD_BYTES as u64 + u64::from(sealed_bytes))?;
    let is_possible = plain_bytes as usize <= bale_format::limits::CHUNK_BYTES_MAX;
    let entry = PackEntry {
        id: *id,
        offset,
        sealed_bytes,
        plain_bytes,
        slot: number(16),
        kind,
        codec: Codec::from_number(head[20])?,
    };
    let salt = head[24..].try_into().expect("32 bytes");
    is_possible.then_some((entry, salt, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pack: u32, offset: u64, len: u32) -> ChunkPlace {
        ChunkPlace {
            pack: PackNumber(pack),
            chunk: PackEntry {
                id: ChunkId([offset as u8; 32]),
                offset,
                sealed_bytes: len - RECORD_HEAD_BYTES as u32,
                plain_bytes: len,
                slot: 0,
                kind: ChunkKind::Segment,
                codec: Codec::Stored,
            },
        }
    }

    #[test]
    fn neighbours_travel_together_and_nothing_else_does() {
        let near = [
            place(1, 10_000, 2000),
            place(1, 0, 10_000),
            place(1, 12_000 + GAP_BYTES_MAX, 1000),
        ];
        let far = [
            place(1, 13_001 + 2 * GAP_BYTES_MAX, 1000),
            place(2, 14_001 + 2 * GAP_BYTES_MAX, 1000),
        ];
        let ranges = gather([&near[..], &far, &near].concat(), 1 << 20);
        let ends: Vec<_> = ranges
            .iter()
            .map(|range| (range.pack.0, range.start, range.end, range.records.len()))
            .collect();
        let gap = GAP_BYTES_MAX;
        let expected = [
            (1, 0, 13_000 + gap, 3),
            (1, 13_001 + 2 * gap, 14_001 + 2 * gap, 1),
            (2, 14_001 + 2 * gap, 15_001 + 2 * gap, 1),
        ];
        assert_eq!(ends, expected);
        let apart = gather(near.to_vec(), 5000);
        assert_eq!(
            apart.len(),
            3,
            "a record that is longer than a range goes alone"
        );
    }

    #[test]
    fn a_cached_record_comes_back_and_a_short_one_does_not() {
        let chunk = place(3, 77_000, 4096).chunk;
        let bytes = encode_cached(&chunk, &[7; 32], b"sealed");
        let (entry, salt, record) = decode_cached(&chunk.id, chunk.kind, &bytes).unwrap();
        assert_eq!((entry, salt, record), (chunk, &[7; 32], &b"sealed"[..]));
        for len in 0..CACHED_HEAD_BYTES {
            assert!(decode_cached(&chunk.id, chunk.kind, &bytes[..len]).is_none());
        }
        let mut far = bytes.clone();
        far[..8].fill(255);
        assert!(decode_cached(&chunk.id, chunk.kind, &far).is_none());
    }
}
