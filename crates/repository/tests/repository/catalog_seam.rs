//! A place for segments in memory, which counts, and short ways to make entries.

#![allow(dead_code, reason = "every test file uses a part")]

use bale_format::{ChunkId, Entry, Key, Kind, Layer};
use bale_repository::catalog::{BoxError, CatalogReader, CatalogWriter, CutRule, SegmentSource};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Segments are small, so that a few thousand rows make a catalog of many.
pub const SMALL: CutRule = CutRule {
    weight_min: 32,
    weight_max: 128,
    one_in: 32,
};

#[derive(Default)]
pub struct Memory {
    segments: Mutex<HashMap<ChunkId, Bytes>>,
    pub reads: AtomicU64,
    /// Rows of all segments stored, those stored already included.
    pub rows_written: AtomicU64,
}

impl Memory {
    pub fn store(&self, segment: Vec<u8>) -> Result<ChunkId, BoxError> {
        let id = ChunkId(*blake3::hash(&segment).as_bytes());
        let rows = bale_format::SegmentKeys::decode(&segment)?.rows();
        self.rows_written.fetch_add(rows as u64, Ordering::Relaxed);
        self.segments.lock().unwrap().insert(id, segment.into());
        Ok(id)
    }

    /// Counts from here on.
    pub fn forget(&self) {
        self.reads();
        self.rows_written();
    }

    pub fn reads(&self) -> u64 {
        self.reads.swap(0, Ordering::Relaxed)
    }

    pub fn rows_written(&self) -> u64 {
        self.rows_written.swap(0, Ordering::Relaxed)
    }
}

impl SegmentSource for Memory {
    fn segment(&self, id: &ChunkId) -> Result<Bytes, BoxError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let segments = self.segments.lock().unwrap();
        Ok(segments.get(id).ok_or("no such segment")?.clone())
    }
}

pub fn key(parent: &[u8], name: &[u8]) -> Key {
    Key {
        parent: Bytes::copy_from_slice(parent),
        name: Bytes::copy_from_slice(name),
    }
}

pub fn file(key: &Key, size: u64) -> Entry {
    let mut entry = Entry::new(key.parent.clone(), key.name.clone(), Kind::File);
    entry.size = size;
    entry
}

pub fn open(memory: &Arc<Memory>, layers: &[Layer]) -> CatalogReader {
    CatalogReader::open(memory.clone(), layers.to_vec()).unwrap()
}

/// One generation: `None` removes.
pub fn change(
    memory: &Arc<Memory>,
    layers: &[Layer],
    rule: CutRule,
    changes: &BTreeMap<Key, Option<Entry>>,
) -> Vec<Layer> {
    let sink = |segment| memory.store(segment);
    let mut writer = CatalogWriter::with_rule(open(memory, layers), sink, rule);
    for (key, entry) in changes {
        match entry {
            Some(entry) => writer.put(entry).unwrap(),
            None => writer.remove(key, 0).unwrap(),
        }
    }
    writer.finish().unwrap().layers
}

pub fn all(memory: &Arc<Memory>, layers: &[Layer]) -> Vec<Entry> {
    let rows = open(memory, layers).rows(Default::default());
    rows.map(|row| row.unwrap()).collect()
}

pub fn put(entries: impl IntoIterator<Item = Entry>) -> BTreeMap<Key, Option<Entry>> {
    entries
        .into_iter()
        .map(|entry| (entry.key(), Some(entry)))
        .collect()
}
