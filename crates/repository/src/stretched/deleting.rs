//! A pack that is deleted goes out of the record of its stretch, which is written anew; its bytes
//! go when nothing of the stretch is left, or when what is left is copied (`reclaim`).
//!
//! The new record is there before the old one goes, so a crash in between takes no pack away: both
//! count, and the next deletion makes one of them. A stretch that has no record gets one.

use super::reading::Unread;
use super::{Emptied, StretchedStore};
use crate::store::{Area, ObjectName, Result, StoreError};
use bale_format::ObjectId;
use bale_format::stretch::{StretchEntry, StretchName, StretchRecord, StretchTable};
use std::io;
use std::sync::{MutexGuard, PoisonError};

/// Tries, while others replace the same records.
const TRIES_MAX: usize = 8;

/// What is in a stretch, as the records say that are there.
struct Said {
    entries: Vec<StretchEntry>,
    len: u64,
    hash: [u8; 32],
    records: Vec<ObjectId>,
}

impl StretchedStore {
    /// What was deleted with its last pack, since the last time.
    pub fn take_emptied(&self) -> Emptied {
        std::mem::take(&mut self.emptied())
    }

    fn emptied(&self) -> MutexGuard<'_, Emptied> {
        let emptied = self.emptied.lock();
        emptied.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a pack out of every stretch that has it.
    pub(super) fn delete_pack(&self, pack: &ObjectId) -> Result<()> {
        self.look_once()?;
        let _no_other_changes_it = self.writing();
        for _ in 0..TRIES_MAX {
            let Some(place) = self.known().places_of(pack).next() else {
                return Ok(());
            };
            if !self.delete_from(pack, place.stretch)? {
                self.refresh()?;
            }
        }
        Err(self.busy(pack))
    }

    /// False: others replaced its records, and a new look is needed.
    fn delete_from(&self, pack: &ObjectId, number: u32) -> Result<bool> {
        let name = self.known().stretch(number).name;
        let Some(mut said) = self.said_of(number)? else {
            return Ok(false);
        };
        said.entries.retain(|entry| entry.pack != *pack);
        if said.entries.is_empty() {
            let is_deleted = self.delete_stretch(number, name)?;
            if is_deleted {
                let mut emptied = self.emptied();
                emptied.stretches += 1;
                emptied.bytes += said.len;
            }
            return Ok(is_deleted);
        }
        let stretch = ObjectName::stretch(name);
        let table = StretchTable::new(said.entries);
        let record = StretchRecord {
            stretch: name,
            len: said.len,
            hash: said.hash,
            table: table.map_err(|error| self.not_sealed(&stretch, &error))?,
        };
        let new = self.put_record(&record)?;
        for old in said.records.iter().filter(|old| **old != new) {
            self.base.delete(&ObjectName::stretched(*old))?;
        }
        let mut known = self.known();
        known.replace_records(number, Some(new));
        known.remove_pack(pack, number);
        Ok(true)
    }

    /// What all records of a stretch say; `None` if one of them is gone.
    fn said_of(&self, number: u32) -> Result<Option<Said>> {
        let stretch = self.known().stretch(number).clone();
        let mut said = Said {
            entries: Vec::new(),
            len: stretch.len,
            hash: [0; 32],
            records: stretch.records,
        };
        if said.records.is_empty() {
            said.entries = self.known().entries_of(number);
        }
        for id in &said.records {
            let name = ObjectName::stretched(*id);
            let record = match self.read_record(&name) {
                Ok(record) => record,
                Err(Unread::Gone) => return Ok(None),
                Err(Unread::Damaged(text) | Unread::Withheld(text)) => {
                    let source = io::Error::new(io::ErrorKind::InvalidData, text);
                    return Err(self.failed("rewrite", name.to_string(), source));
                }
            };
            said.len = record.len;
            said.hash = record.known_hash().unwrap_or(said.hash);
            said.entries.extend_from_slice(record.table.entries());
        }
        said.entries.sort_by_key(|entry| entry.offset);
        said.entries.dedup_by_key(|entry| entry.offset);
        Ok(Some(said))
    }

    /// Deletes a stretch of which nothing is left. Its records go after it, so that nobody takes it
    /// for one that has lost them. False if others have written a record of it meanwhile.
    pub(super) fn delete_stretch(&self, number: u32, name: StretchName) -> Result<bool> {
        let records = self.known().stretch(number).records.clone();
        let mut others = false;
        let mut read = Ok(());
        self.base.list(Area::Stretched, &mut |info| {
            let Some(id) = info.name.id() else { return };
            let is_new = !records.contains(&id) && !self.known().records.contains_key(&id);
            if is_new && read.is_ok() {
                match self.read_record(&info.name) {
                    Ok(record) => others |= record.stretch == name,
                    // It may be of this one: then the next look reads its table.
                    Err(Unread::Gone) => {}
                    Err(Unread::Damaged(text) | Unread::Withheld(text)) => {
                        let known = self.known().unreadable.contains_key(&info.name);
                        if !known {
                            let source = io::Error::new(io::ErrorKind::InvalidData, text);
                            read = Err(self.failed("read", info.name.to_string(), source));
                        }
                    }
                }
            }
        })?;
        read?;
        if others {
            return Ok(false);
        }
        self.base.delete(&ObjectName::stretch(name))?;
        for record in &records {
            self.base.delete(&ObjectName::stretched(*record))?;
        }
        let mut known = self.known();
        known.remove_stretch(number);
        Ok(true)
    }

    fn busy(&self, pack: &ObjectId) -> StoreError {
        let source = io::Error::new(
            io::ErrorKind::ResourceBusy,
            "others keep rewriting the records of its segment: run it again",
        );
        self.failed("delete", ObjectName::pack(*pack).to_string(), source)
    }
}
