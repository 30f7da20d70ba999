//! Looking at the records of stretches, and at the tables of those that have none.
//!
//! Records are listed before stretches: a stretch that comes in between is read by its table, and
//! a record whose stretch is not listed is that of one that has just been deleted. Whatever is said
//! of a stretch that is not there counts as absent. A record that cannot be read keeps nobody from
//! the packs that it names: no record is known of their stretch then, and its table is read.

use super::StretchedStore;
use super::known::Known;
use crate::store::{Area, ObjectInfo, ObjectName, Result, StoreError};
use bale_format::sealed::{OBJECT_BYTES_MAX, ObjectType};
use bale_format::stretch::{
    STRETCH_RECORD_BYTES_MAX, STRETCH_TRAILER_BYTES, StretchName, StretchRecord, StretchTable,
    parse_trailer,
};
use bale_format::{FormatError, ObjectId};
use bale_pipeline::ordered::{self, ReadAhead};
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;

/// Looks in a row, while others replace records.
const LOOKS_MAX: usize = 8;

/// Records that are read at a time, of 3 MiB at most and some 30 KiB usually.
const RECORDS_AHEAD_NEAR: ReadAhead = ReadAhead {
    threads: 1,
    results: 1,
};

/// The same from another machine, where each costs the way to it and back.
const RECORDS_AHEAD_FAR: ReadAhead = ReadAhead {
    threads: 4,
    results: 4,
};

impl StretchedStore {
    /// Looks, unless that was done before.
    pub(super) fn look_once(&self) -> Result<()> {
        let was_looked_at = self.known().was_looked_at;
        match was_looked_at {
            true => Ok(()),
            false => self.refresh(),
        }
    }

    /// Looks at what is there now. Records that were read before are not read again.
    pub fn refresh(&self) -> Result<()> {
        for _ in 1..LOOKS_MAX {
            if self.look()?.is_empty() {
                return Ok(());
            }
        }
        let gone = self.look()?;
        let text = "it is listed, and not found when it is read";
        let gone = (gone.into_iter()).map(|id| (ObjectName::stretched(id), text.to_owned()));
        self.known().unreadable.extend(gone);
        Ok(())
    }

    /// Records and tables that cannot be read, and what is wrong with them, as of the last look.
    pub fn unreadable(&self) -> Vec<(ObjectName, String)> {
        let known = self.known();
        let unreadable = known.unreadable.iter();
        unreadable
            .map(|(name, text)| (*name, text.clone()))
            .collect()
    }

    /// One look; tells which records that were listed are gone: those in their place are in no
    /// listing of this look.
    fn look(&self) -> Result<Vec<ObjectId>> {
        // Who writes meanwhile waits: what he adds is not lost.
        let mut known = self.known();
        let mut records: HashSet<ObjectId> = HashSet::new();
        self.list_or_nothing(Area::Stretched, &mut |info| {
            records.extend(info.name.id());
        })?;
        let mut stretches: BTreeMap<StretchName, ObjectInfo> = BTreeMap::new();
        self.list_or_nothing(Area::Stretches, &mut |info| {
            if let Some(name) = info.name.stretch_name() {
                stretches.insert(name, info);
            }
        })?;
        if is_unchanged(&known, &records, &stretches) {
            return Ok(Vec::new());
        }
        let mut new = Known::default();
        for (name, info) in &stretches {
            new.add_stretch(*name, info);
        }
        new.keep(&known, &records);
        records.retain(|record| !new.records.contains_key(record));
        let gone = self.add_records(&mut new, records);
        let unsaid: Vec<u32> = (0..)
            .zip(new.stretches())
            .filter(|(_, stretch)| stretch.records.is_empty())
            .map(|(number, _)| number)
            .collect();
        for number in unsaid {
            self.add_table(&mut new, number)?;
        }
        new.sort();
        new.was_looked_at = true;
        *known = new;
        Ok(gone)
    }

    /// Where no repository is yet, servers say so.
    fn list_or_nothing(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        match self.base.list(area, found) {
            Err(error) if error.is_not_found() => Ok(()),
            listed => listed,
        }
    }

    /// Tells which of them are gone.
    fn add_records(&self, known: &mut Known, ids: HashSet<ObjectId>) -> Vec<ObjectId> {
        let ahead = match self.base.is_remote() {
            true => RECORDS_AHEAD_FAR,
            false => RECORDS_AHEAD_NEAR,
        };
        let read = |_: &mut (), id| (id, self.read_record(&ObjectName::stretched(id)));
        let mut gone = Vec::new();
        let taken = ordered::in_order_within(
            ahead,
            ids.into_iter(),
            || (),
            read,
            |(id, record)| {
                match record {
                    Ok(record) => {
                        if let Some(number) = known.number(&record.stretch) {
                            known.add_packs(number, Some(id), record.table.entries());
                        }
                    }
                    Err(Unread::Gone) => gone.push(id),
                    Err(Unread::Damaged(text) | Unread::Withheld(text)) => {
                        known.unreadable.insert(ObjectName::stretched(id), text);
                    }
                }
                Ok::<(), Infallible>(())
            },
        );
        let Ok(()) = taken;
        gone
    }

    fn add_table(&self, known: &mut Known, number: u32) -> Result<()> {
        let stretch = known.stretch(number);
        let (name, len) = (stretch.name, stretch.len);
        match self.read_table(name, len) {
            Ok(table) => known.add_packs(number, None, table.entries()),
            Err(Unread::Gone) => {}
            Err(Unread::Damaged(text) | Unread::Withheld(text)) => {
                known.unreadable.insert(ObjectName::stretch(name), text);
            }
        }
        Ok(())
    }

    /// What a record says.
    pub(super) fn read_record(
        &self,
        name: &ObjectName,
    ) -> std::result::Result<StretchRecord, Unread> {
        let bytes = self.base.get(name, OBJECT_BYTES_MAX as u64)?;
        if name.id() != Some(ObjectId(*blake3::hash(&bytes).as_bytes())) {
            return Err(Unread::Damaged(
                "its bytes are not what its name says".to_owned(),
            ));
        }
        let plain =
            (self.keys).open_object(ObjectType::Stretched, &bytes, STRETCH_RECORD_BYTES_MAX);
        let record = plain.and_then(|plain| StretchRecord::decode(&plain));
        record.map_err(damaged)
    }

    /// What the table at the end of a stretch says, which is `len` bytes long.
    pub(super) fn read_table(
        &self,
        stretch: StretchName,
        len: u64,
    ) -> std::result::Result<StretchTable, Unread> {
        let name = ObjectName::stretch(stretch);
        let mut trailer = [0; STRETCH_TRAILER_BYTES];
        let Some(at) = len.checked_sub(STRETCH_TRAILER_BYTES as u64) else {
            return Err(Unread::Damaged("it is shorter than its end".to_owned()));
        };
        self.base.read_at(&name, at, &mut trailer)?;
        let range = parse_trailer(&trailer, len).map_err(damaged)?;
        // Bounded by `parse_trailer`.
        let table_len = usize::try_from(range.end - range.start).unwrap_or_default();
        let mut sealed = vec![0; table_len];
        self.base.read_at(&name, range.start, &mut sealed)?;
        let table = self.keys.open_stretch_table(&sealed, range.start);
        table.map_err(damaged)
    }
}

fn damaged(error: FormatError) -> Unread {
    Unread::Damaged(error.to_string())
}

/// Why a record or a table says nothing.
pub(super) enum Unread {
    Gone,
    /// Its bytes are wrong.
    Damaged(String),
    /// The store did not hand it out.
    Withheld(String),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Unread {
        match error.is_not_found() {
            true => Unread::Gone,
            false => Unread::Withheld(error.source.to_string()),
        }
    }
}

/// Would another look read nothing new?
fn is_unchanged(
    known: &Known,
    records: &HashSet<ObjectId>,
    stretches: &BTreeMap<StretchName, ObjectInfo>,
) -> bool {
    let are_records_known = records
        .iter()
        .all(|record| known.records.contains_key(record));
    known.was_looked_at
        && known.unreadable.is_empty()
        && known.records.len() == records.len()
        && are_records_known
        && known.stretches().len() == stretches.len()
        && known.stretches().iter().all(|stretch| {
            let there = stretches.get(&stretch.name);
            there.is_some_and(|info| info.len == stretch.len)
        })
}
