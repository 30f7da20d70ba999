//! What is known of stretches: which packs are where, by records and tables that were read.
//!
//! In memory: 56 bytes for each pack, and little for each stretch and record. It grows with stored
//! bytes, as the index does.

use crate::store::{ObjectInfo, ObjectName};
use bale_format::ObjectId;
use bale_format::stretch::{StretchEntry, StretchName};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::SystemTime;

/// Packs in one piece of a listing.
const LISTED_AT_ONCE: usize = 1024;

/// A pack in a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) pack: ObjectId,
    /// Position in the list of stretches.
    pub(super) stretch: u32,
    pub(super) offset: u64,
    /// 0: deleted.
    pub(super) len: u64,
}

impl Place {
    /// How much of it is there in a stretch of this length.
    pub(super) fn len_within(&self, stretch_len: u64) -> u64 {
        self.len.min(stretch_len.saturating_sub(self.offset))
    }
}

/// A stretch that is in the store.
#[derive(Clone, Debug)]
pub(super) struct KnownStretch {
    pub(super) name: StretchName,
    /// Length of the object.
    pub(super) len: u64,
    pub(super) modified: Option<SystemTime>,
    /// Records that name packs in it; none: its table was read.
    pub(super) records: Vec<ObjectId>,
}

/// What one look at the store found, and what this process has changed since.
#[derive(Default)]
pub(super) struct Known {
    pub(super) was_looked_at: bool,
    /// Records that were read, and the stretch that each is of.
    pub(super) records: BTreeMap<ObjectId, StretchName>,
    /// Records and tables that cannot be read, and why.
    pub(super) unreadable: BTreeMap<ObjectName, String>,
    stretches: Vec<KnownStretch>,
    numbers: HashMap<StretchName, u32>,
    /// By pack, then by stretch.
    places: Vec<Place>,
    is_sorted: bool,
}

impl Known {
    pub(super) fn stretch(&self, number: u32) -> &KnownStretch {
        &self.stretches[number as usize]
    }

    /// In the order of their numbers; those that were deleted since the last look, too.
    pub(super) fn stretches(&self) -> &[KnownStretch] {
        &self.stretches
    }

    pub(super) fn number(&self, name: &StretchName) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Lists a stretch, or changes what is known of it.
    pub(super) fn add_stretch(&mut self, name: StretchName, info: &ObjectInfo) -> u32 {
        let next = u32::try_from(self.stretches.len());
        let next = next.expect("2^32 stretches of at least one pack exceed any store");
        let number = *self.numbers.entry(name).or_insert(next);
        if number == next {
            self.stretches.push(KnownStretch {
                name,
                len: info.len,
                modified: info.modified,
                records: Vec::new(),
            });
        }
        let stretch = &mut self.stretches[number as usize];
        (stretch.len, stretch.modified) = (info.len, info.modified);
        number
    }

    /// What a record, or the table of a stretch, says. Call [`Known::sort`] after the last one.
    pub(super) fn add_packs(
        &mut self,
        stretch: u32,
        record: Option<ObjectId>,
        entries: &[StretchEntry],
    ) {
        if let Some(record) = record {
            let name = self.stretches[stretch as usize].name;
            self.records.insert(record, name);
            self.stretches[stretch as usize].records.push(record);
        }
        self.places.extend(entries.iter().map(|entry| Place {
            pack: entry.pack,
            stretch,
            offset: entry.offset,
            len: entry.len,
        }));
        self.is_sorted = false;
    }

    /// Takes over what an earlier look read of stretches all of whose records are still there.
    pub(super) fn keep(&mut self, before: &Known, records: &HashSet<ObjectId>) {
        let mut numbers = vec![None; before.stretches.len()];
        for (old, stretch) in before.stretches.iter().enumerate() {
            let is_as_it_was = stretch
                .records
                .iter()
                .all(|record| records.contains(record));
            if stretch.records.is_empty() || !is_as_it_was {
                continue;
            }
            let Some(number) = self.number(&stretch.name) else {
                continue;
            };
            numbers[old] = Some(number);
            for record in &stretch.records {
                self.add_packs(number, Some(*record), &[]);
            }
        }
        let kept = before.places.iter().filter_map(|place| {
            let stretch = numbers[place.stretch as usize]?;
            Some(Place { stretch, ..*place })
        });
        self.places.extend(kept);
        self.is_sorted = false;
    }

    /// Makes everything that was added findable; what two records say is there once.
    pub(super) fn sort(&mut self) {
        if self.is_sorted {
            return;
        }
        self.places.retain(|place| place.len > 0);
        let key = |place: &Place| (place.pack, place.stretch, place.offset, place.len);
        self.places.sort_unstable_by_key(key);
        self.places.dedup();
        self.is_sorted = true;
    }

    /// Where a pack is; in two places while a prune copies it.
    pub(super) fn places_of(&self, pack: &ObjectId) -> impl Iterator<Item = Place> + '_ {
        let start = self.places.partition_point(|place| place.pack < *pack);
        let pack = *pack;
        let places = self.places[start..].iter();
        let places = places.take_while(move |place| place.pack == pack);
        places.filter(|place| place.len > 0).copied()
    }

    pub(super) fn find(&self, pack: &ObjectId) -> Option<(Place, StretchName)> {
        let place = self.places_of(pack).next()?;
        Some((place, self.stretch(place.stretch).name))
    }

    /// The next packs in the order of their names, each once; empty after the last one.
    pub(super) fn packs_after(&self, last: Option<ObjectId>) -> Vec<ObjectInfo> {
        let start = last.map_or(0, |last| {
            self.places.partition_point(|place| place.pack <= last)
        });
        let mut infos: Vec<ObjectInfo> = Vec::with_capacity(LISTED_AT_ONCE);
        for place in self.places[start..].iter().filter(|place| place.len > 0) {
            let name = ObjectName::pack(place.pack);
            if infos.last().is_some_and(|last| last.name == name) {
                continue;
            }
            if infos.len() == LISTED_AT_ONCE {
                break;
            }
            let stretch = self.stretch(place.stretch);
            infos.push(ObjectInfo {
                name,
                len: place.len_within(stretch.len),
                modified: stretch.modified,
            });
        }
        infos
    }

    /// Packs in a stretch, in the order in which they lie.
    pub(super) fn entries_of(&self, stretch: u32) -> Vec<StretchEntry> {
        let places = self.places.iter();
        let places = places.filter(|place| place.stretch == stretch && place.len > 0);
        let mut entries: Vec<StretchEntry> = places
            .map(|place| StretchEntry {
                pack: place.pack,
                offset: place.offset,
                len: place.len,
            })
            .collect();
        entries.sort_by_key(|entry| entry.offset);
        entries
    }

    /// Bytes of packs in each stretch, by number.
    pub(super) fn bytes_by_stretch(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.stretches.len()];
        for place in &self.places {
            bytes[place.stretch as usize] += place.len;
        }
        bytes
    }

    /// A pack is in a stretch no more.
    pub(super) fn remove_pack(&mut self, pack: &ObjectId, stretch: u32) {
        let start = self.places.partition_point(|place| place.pack < *pack);
        let places = self.places[start..].iter_mut();
        for place in places.take_while(|place| place.pack == *pack) {
            if place.stretch == stretch {
                place.len = 0;
            }
        }
    }

    /// A stretch is deleted, and with it what it held. Its number stays, for nothing.
    pub(super) fn remove_stretch(&mut self, number: u32) {
        let name = self.stretches[number as usize].name;
        for place in &mut self.places {
            if place.stretch == number {
                place.len = 0;
            }
        }
        self.replace_records(number, None);
        self.numbers.remove(&name);
    }

    /// This record takes the place of all others of a stretch.
    pub(super) fn replace_records(&mut self, stretch: u32, record: Option<ObjectId>) {
        let known = &mut self.stretches[stretch as usize];
        for old in std::mem::take(&mut known.records) {
            self.records.remove(&old);
        }
        known.records.extend(record);
        let name = known.name;
        self.records.extend(record.map(|record| (record, name)));
    }
}
