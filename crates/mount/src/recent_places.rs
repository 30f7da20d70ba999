//! Where the bytes of files are that were listed or looked up a moment ago: they are what is read
//! next, and its segment need not be decoded again for it.

use bale_format::{Content, Entry, EntryFlags, Kind};
use bale_pipeline::memory::MemoryPlan;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Files that are remembered, with the usual ceiling of memory; the oldest are forgotten.
const PLACES_MAX: usize = 32 << 10;
/// The same with the least memory.
const PLACES_MAX_LEAST: usize = 8 << 10;
/// What one takes: in the table, which is half empty at times, and in the queue.
const PLACE_BYTES: usize = 2 * (size_of::<(u64, RecentPlace)>() + 1) + 2 * size_of::<u64>();

/// What reading a file needs of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentPlace {
    pub content: Content,
    pub size: u64,
    /// The backup could not read it.
    pub is_unreadable: bool,
    pub has_xattrs: bool,
    /// What else it is has no bytes to be read.
    pub is_file: bool,
}

impl RecentPlace {
    pub fn of(row: &Entry) -> RecentPlace {
        RecentPlace {
            content: row.content,
            size: row.size,
            is_unreadable: row.flags.has(EntryFlags::UNREADABLE),
            has_xattrs: !row.xattrs.is_empty(),
            is_file: row.kind == Kind::File,
        }
    }
}

/// What they take.
pub const fn memory_bytes(memory: &MemoryPlan) -> usize {
    places_max(memory) * PLACE_BYTES
}

const fn places_max(memory: &MemoryPlan) -> usize {
    memory.share_from(PLACES_MAX_LEAST, PLACES_MAX)
}

/// By the number of the file.
pub struct RecentPlaces {
    max: usize,
    places: Mutex<(HashMap<u64, RecentPlace>, VecDeque<u64>)>,
}

impl RecentPlaces {
    pub fn new(memory: &MemoryPlan) -> RecentPlaces {
        RecentPlaces {
            max: places_max(memory),
            places: Mutex::default(),
        }
    }

    pub fn get(&self, number: u64) -> Option<RecentPlace> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.0.get(&number).copied()
    }

    pub fn put(&self, number: u64, place: RecentPlace) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let (table, queue) = &mut *places;
        if table.insert(number, place).is_some() {
            return;
        }
        queue.push_back(number);
        if queue.len() > self.max
            && let Some(oldest) = queue.pop_front()
        {
            table.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let places = RecentPlaces::new(&MemoryPlan::USUAL);
        let place = RecentPlace {
            content: Content::None,
            size: 7,
            is_unreadable: false,
            has_xattrs: false,
            is_file: true,
        };
        for number in 0..=PLACES_MAX as u64 {
            places.put(number, place);
            places.put(number, place);
        }
        assert_eq!(places.get(0), None);
        assert_eq!(places.get(1), Some(place));
        assert_eq!(places.get(PLACES_MAX as u64), Some(place));
    }
}
