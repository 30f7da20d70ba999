//! Comparing stretches with their records and tables, and writing records that are lost.

use super::StretchedStore;
use super::reading::Unread;
use crate::store::{Area, ObjectName, Result};
use bale_format::ObjectId;
use bale_format::stretch::StretchRecord;
use std::collections::{HashMap, HashSet};

/// What is wrong with a stretch or a record, and of which object.
pub type StretchTrouble = (ObjectName, String);

/// What a repair of records did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordsRepair {
    /// Records written from the tables of their stretches.
    pub written: u64,
    /// Records that could not be read, removed after that.
    pub removed: u64,
}

impl StretchedStore {
    /// Reads every record and every table afresh. `is_needed` of packs that are to be there.
    pub fn check(&self, is_needed: impl Fn(&ObjectId) -> bool) -> Result<Vec<StretchTrouble>> {
        self.refresh()?;
        let mut troubles = self.unreadable();
        let mut records = Vec::new();
        self.base
            .list(Area::Stretched, &mut |info| records.push(info.name))?;
        for name in records {
            // The others are among those that cannot be read, or replaced meanwhile.
            if let Ok(record) = self.read_record(&name) {
                troubles.extend(self.trouble_with(&record, &is_needed)?);
            }
        }
        Ok(troubles)
    }

    fn trouble_with(
        &self,
        record: &StretchRecord,
        is_needed: &impl Fn(&ObjectId) -> bool,
    ) -> Result<Option<StretchTrouble>> {
        let name = ObjectName::stretch(record.stretch);
        let trouble = |text: String| Ok(Some((name, text)));
        let Some(info) = self.base.stat(&name)? else {
            // A deletion that was stopped leaves the record of what is gone.
            let mut entries = record.table.entries().iter();
            let is_lost = |pack: &ObjectId| is_needed(pack) && self.known().find(pack).is_none();
            return match entries.any(|entry| is_lost(&entry.pack)) {
                true => trouble("missing".to_owned()),
                false => Ok(None),
            };
        };
        if info.len != record.len {
            let text = format!("it has {} bytes instead of {}", info.len, record.len);
            return trouble(text);
        }
        let table = match self.read_table(record.stretch, record.len) {
            Ok(table) => table,
            Err(Unread::Gone) => return Ok(None),
            Err(Unread::Damaged(text) | Unread::Withheld(text)) => return trouble(text),
        };
        let said: HashMap<ObjectId, (u64, u64)> = (table.entries().iter())
            .map(|entry| (entry.pack, (entry.offset, entry.len)))
            .collect();
        let mut entries = record.table.entries().iter();
        let differs = entries.find(|entry| {
            said.get(&entry.pack)
                .is_none_or(|said| *said != (entry.offset, entry.len))
        });
        match differs {
            Some(entry) => trouble(format!(
                "its table does not say where its record has pack {}",
                entry.pack.short()
            )),
            None => Ok(None),
        }
    }

    /// Writes a record for every stretch that has none, from its table; then removes records that
    /// cannot be read, if that leaves no stretch without one.
    pub fn repair_records(&self, dry_run: bool) -> Result<RecordsRepair> {
        self.refresh()?;
        let mut repair = RecordsRepair::default();
        let unsaid: Vec<_> = {
            let known = self.known();
            let stretches = known.stretches().iter();
            let unsaid = stretches.filter(|stretch| stretch.records.is_empty());
            unsaid.map(|stretch| (stretch.name, stretch.len)).collect()
        };
        let mut are_all_said = true;
        for (stretch, len) in unsaid {
            let table = match self.read_table(stretch, len) {
                Ok(table) => table,
                Err(Unread::Gone) => continue,
                Err(Unread::Damaged(_) | Unread::Withheld(_)) => {
                    are_all_said = false;
                    continue;
                }
            };
            repair.written += 1;
            if !dry_run {
                // Its bytes were not read.
                let hash = [0; 32];
                self.put_record(&StretchRecord {
                    stretch,
                    len,
                    hash,
                    table,
                })?;
            }
        }
        if are_all_said {
            repair.removed = self.remove_unreadable(dry_run)?;
        }
        self.refresh()?;
        Ok(repair)
    }

    /// Of records that are damaged for certain, and still are.
    fn remove_unreadable(&self, dry_run: bool) -> Result<u64> {
        let names: HashSet<ObjectName> = (self.unreadable().into_iter())
            .map(|(name, _)| name)
            .filter(|name| name.area == Area::Stretched)
            .collect();
        let mut removed = 0;
        for name in names {
            if let Err(Unread::Damaged(_)) = self.read_record(&name) {
                removed += 1;
                if !dry_run {
                    self.base.delete(&name)?;
                }
            }
        }
        Ok(removed)
    }

    /// Removes records of stretches that are gone, none of whose packs is needed: what a deletion
    /// leaves that was stopped.
    pub fn remove_records_of_nothing(&self, is_needed: impl Fn(&ObjectId) -> bool) -> Result<u64> {
        let _no_other_changes_it = self.writing();
        self.refresh()?;
        let mut records = Vec::new();
        self.base
            .list(Area::Stretched, &mut |info| records.push(info.name))?;
        let mut removed = 0;
        for name in records {
            let is_known = name
                .id()
                .is_some_and(|id| self.known().records.contains_key(&id));
            if is_known {
                continue;
            }
            let Ok(record) = self.read_record(&name) else {
                continue;
            };
            let is_there = self
                .base
                .stat(&ObjectName::stretch(record.stretch))?
                .is_some();
            let mut entries = record.table.entries().iter();
            if !is_there && !entries.any(|entry| is_needed(&entry.pack)) {
                self.base.delete(&name)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}
