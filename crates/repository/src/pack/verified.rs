//! Which copies were read and opened before a writer relied on them.
//!
//! Two bits for each entry of the index, so that each copy is read once a run. A copy that does not
//! open is never relied on, and its pack is remembered: the caller marks it as damaged.

use crate::error::is_inconclusive;
use crate::index::ChunkIndex;
use crate::repository::Repository;
use bale_format::{ChunkId, ObjectId};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Verified {
    opened: Bits,
    /// Or not to be had now.
    damaged: Bits,
    packs: Mutex<HashSet<ObjectId>>,
}

impl Verified {
    pub(super) fn new(entries: usize) -> Verified {
        Verified {
            opened: Bits::new(entries),
            damaged: Bits::new(entries),
            packs: Mutex::default(),
        }
    }

    /// Position of a copy in a lasting pack that opens.
    pub(super) fn position(
        &self,
        repository: &Repository,
        index: &ChunkIndex,
        id: &ChunkId,
    ) -> Option<usize> {
        index
            .positions(id)
            .filter(|position| index.pack(index.entries()[*position].pack).is_reliable())
            .find(|position| self.opens(repository, index, *position))
    }

    /// Two threads may read a copy at the same time, and come to the same.
    fn opens(&self, repository: &Repository, index: &ChunkIndex, position: usize) -> bool {
        if self.opened.get(position) || self.damaged.get(position) {
            return self.opened.get(position);
        }
        let place = &index.entries()[position];
        let read = repository.read_place(index, place.chunk.kind, place);
        match &read {
            Ok(_) => self.opened.set(position),
            Err(error) => {
                self.damaged.set(position);
                // Not relied on; whether it is damaged is not known.
                if is_inconclusive(error) {
                    return false;
                }
                let mut packs = self.packs.lock().expect("holders do not panic");
                packs.insert(index.pack(place.pack).id);
            }
        }
        read.is_ok()
    }

    pub(super) fn packs_found_damaged(&self) -> Vec<ObjectId> {
        let packs = self.packs.lock().expect("holders do not panic");
        packs.iter().copied().collect()
    }
}

struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new(count: usize) -> Bits {
        Bits((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn get(&self, position: usize) -> bool {
        self.0[position / 64].load(Ordering::Relaxed) >> (position % 64) & 1 == 1
    }

    fn set(&self, position: usize) {
        self.0[position / 64].fetch_or(1 << (position % 64), Ordering::Relaxed);
    }
}
