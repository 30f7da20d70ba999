//! Marks of damage: packs in which something that does not open was found.
//!
//! A mark takes nothing away. Writers do without the packs it names, so that the next backup stores
//! again what the source still has; deleters count no copy in them as one that stays; readers try
//! them last. A mark that is wrong, old or another's costs space and nothing else. One that cannot
//! be read is told apart from none: whoever relies on packs must then look.

use super::Repository;
use crate::error::{Error, Result, is_missing, object_error};
use crate::store::{Area, ObjectInfo, ObjectName};
use bale_format::sealed::ObjectType;
use bale_format::{Access, DamagedPacks, ObjectId};
use std::collections::HashSet;

/// One object that marks packs.
#[derive(Clone, Debug)]
pub struct DamageMark {
    pub name: ObjectName,
    /// What it says.
    pub record: DamagedPacks,
}

/// All marks of a repository.
#[derive(Debug, Default)]
pub struct DamageMarks {
    /// Those that can be read.
    pub marks: Vec<DamageMark>,
    /// The others, and what is wrong with them: what they named is not known.
    pub unreadable: Vec<(ObjectName, Error)>,
}

impl DamageMarks {
    /// Packs that are marked, some perhaps twice.
    pub fn packs(&self) -> impl Iterator<Item = &ObjectId> {
        self.marks.iter().flat_map(|mark| &mark.record.packs)
    }
}

impl Repository {
    /// All marks of damaged packs. One that cannot be read is no error here.
    pub fn damage_marks(&self) -> Result<DamageMarks> {
        Ok(self.read_marks(self.list(Area::Damaged)?))
    }

    pub(super) fn read_marks(&self, infos: Vec<ObjectInfo>) -> DamageMarks {
        let mut found = DamageMarks::default();
        let read = |name: &ObjectName| self.read_mark(name);
        self.read_each(infos, read, |info, record| match record {
            Ok(record) => found.marks.push(DamageMark {
                name: info.name,
                record,
            }),
            // Removed since it was listed.
            Err(error) if is_missing(&error) => {}
            Err(error) => found.unreadable.push((info.name, error)),
        });
        found
    }

    fn read_mark(&self, name: &ObjectName) -> Result<DamagedPacks> {
        let json = self.read_sealed(name, ObjectType::Damaged)?;
        DamagedPacks::from_json(&json).map_err(object_error(name.to_string()))
    }

    /// Marks packs as damaged; tells how many were not marked yet.
    pub fn mark_damaged(&self, packs: impl IntoIterator<Item = ObjectId>) -> Result<usize> {
        self.check_access(Access::Write)?;
        let marks = self.damage_marks()?;
        let known: HashSet<ObjectId> = marks.packs().copied().collect();
        let mut packs: Vec<ObjectId> = packs
            .into_iter()
            .filter(|pack| !known.contains(pack))
            .collect();
        packs.sort();
        packs.dedup();
        if !packs.is_empty() {
            let record = DamagedPacks::new(self.clock().time(), packs.clone());
            self.write_mark(&record)?;
        }
        Ok(packs.len())
    }

    /// Takes marks back: of packs that are gone, or that were read and found whole. Tells how many
    /// packs were marked.
    pub fn unmark_damaged(&self, packs: &HashSet<ObjectId>) -> Result<usize> {
        let mut unmarked = HashSet::new();
        for mark in self.damage_marks()?.marks {
            let (taken, rest): (Vec<_>, Vec<_>) = mark
                .record
                .packs
                .iter()
                .partition(|pack| packs.contains(pack));
            if taken.is_empty() && !rest.is_empty() {
                continue;
            }
            self.check_access(Access::Delete)?;
            // The rest first: a crash in between leaves both.
            if !rest.is_empty() {
                self.write_mark(&DamagedPacks::new(mark.record.time, rest))?;
            }
            self.store().delete(&mark.name)?;
            unmarked.extend(taken);
        }
        Ok(unmarked.len())
    }

    fn write_mark(&self, record: &DamagedPacks) -> Result<ObjectId> {
        self.write_sealed(ObjectType::Damaged, &record.to_json()?, ObjectName::damaged)
    }
}
