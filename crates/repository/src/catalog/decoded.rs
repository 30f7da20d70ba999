//! Decoded segments that are kept, for whoever comes back to the same rows in no order: a mount.
//!
//! Each is decoded by one thread, whoever else waits for it. The ones that were not used for
//! longest are dropped when all together are more than a bound.

use super::{BoxError, Result, SegmentSource};
use bale_format::{ChunkId, Segment};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by the catalogs of all snapshots, which share segments.
pub struct DecodedSegments {
    bytes_max: usize,
    state: Mutex<Decoded>,
}

#[derive(Default)]
struct Decoded {
    slots: HashMap<ChunkId, Slot>,
    by_use: BTreeMap<u64, ChunkId>,
    uses: u64,
    bytes: usize,
}

struct Slot {
    used: u64,
    bytes: usize,
    /// Locked while it is being decoded.
    segment: Arc<Mutex<Option<Arc<Segment>>>>,
}

impl DecodedSegments {
    /// Keeps so many bytes; the last one whatever it takes.
    pub fn new(bytes_max: usize) -> DecodedSegments {
        DecodedSegments {
            bytes_max,
            state: Mutex::default(),
        }
    }

    /// The kept one, or what `decode` makes.
    pub(super) fn get(
        &self,
        id: &ChunkId,
        decode: impl FnOnce() -> Result<Segment>,
    ) -> Result<Arc<Segment>> {
        let slot = self.lock().slot(id);
        let mut kept = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = &*kept {
            return Ok(segment.clone());
        }
        let decoded = decode().map(Arc::new);
        let mut state = self.lock();
        match decoded {
            Ok(segment) => {
                *kept = Some(segment.clone());
                state.keep(id, segment.memory_bytes(), self.bytes_max);
                Ok(segment)
            }
            Err(error) => {
                state.drop_empty(id);
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Decoded> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Decoded {
    fn slot(&mut self, id: &ChunkId) -> Arc<Mutex<Option<Arc<Segment>>>> {
        self.uses += 1;
        let used = self.uses;
        let slot = self.slots.entry(*id).or_insert_with(|| Slot {
            used,
            bytes: 0,
            segment: Arc::default(),
        });
        self.by_use.remove(&slot.used);
        slot.used = used;
        self.by_use.insert(used, *id);
        slot.segment.clone()
    }

    fn keep(&mut self, id: &ChunkId, bytes: usize, bytes_max: usize) {
        // Dropped meanwhile, as others came: then it is not kept.
        if let Some(slot) = self.slots.get_mut(id) {
            self.bytes = self.bytes - slot.bytes + bytes;
            slot.bytes = bytes;
        }
        while self.bytes > bytes_max
            && self.slots.len() > 1
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            if let Some(slot) = self.slots.remove(&oldest) {
                self.bytes -= slot.bytes;
            }
        }
    }

    fn drop_empty(&mut self, id: &ChunkId) {
        if self.slots.get(id).is_some_and(|slot| slot.bytes == 0)
            && let Some(slot) = self.slots.remove(id)
        {
            self.by_use.remove(&slot.used);
        }
    }
}

/// A source whose segments are kept decoded.
pub struct KeptSegments {
    source: Arc<dyn SegmentSource>,
    kept: Arc<DecodedSegments>,
}

impl KeptSegments {
    pub fn new(source: Arc<dyn SegmentSource>, kept: &Arc<DecodedSegments>) -> KeptSegments {
        KeptSegments {
            source,
            kept: kept.clone(),
        }
    }
}

impl SegmentSource for KeptSegments {
    fn segment(&self, id: &ChunkId) -> std::result::Result<Bytes, BoxError> {
        self.source.segment(id)
    }

    fn ahead_max(&self) -> usize {
        self.source.ahead_max()
    }

    fn fetch_ahead(&self, ids: &[ChunkId]) -> usize {
        self.source.fetch_ahead(ids)
    }

    fn kept_decoded(&self) -> Option<&DecodedSegments> {
        Some(&self.kept)
    }
}
