//! One object by its id: a snapshot, the record of an unfinished run, or whatever is damaged and in
//! the way of a prune.
//!
//! What cannot be read is removed for nothing but its own id, and only if its bytes are damaged:
//! not because the store fails, nor because a later program wrote it. A damaged index object goes
//! once no pack needs it for a name; a pack goes if no index names it and nothing in it opens, and
//! only by its whole id.

use crate::repair::nothing_opens;
use bale_format::sealed::ObjectType;
use bale_format::{Access, ObjectId};
use bale_pipeline::amount::counted;
use bale_repository::error::is_missing;
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Repository, is_damage};
use bale_repository::store::{Area, ObjectName};

/// Areas of objects that can be removed by id.
const AREAS: [Area; 5] = [
    Area::Snapshots,
    Area::Runs,
    Area::Index,
    Area::Condemned,
    Area::Damaged,
];

/// An object that answers to the beginning of an id.
#[derive(Debug)]
pub struct FoundObject {
    pub name: ObjectName,
    /// Why it cannot be read; `None` for a snapshot or run that can.
    pub damage: Option<Error>,
    /// It is not to be removed until that is taken back.
    pub is_pinned: bool,
}

impl FoundObject {
    /// What its removal costs, for people.
    pub fn cost(&self) -> &'static str {
        match (self.name.area, &self.damage) {
            (Area::Snapshots, None) => "requested by id",
            (Area::Snapshots, Some(_)) => {
                "a snapshot that cannot be read: the next prune gives up what only it used"
            }
            (Area::Runs, _) => "an unfinished run: the next backup of its source begins again",
            (Area::Index, _) => "index object that cannot be read; every pack is named by another",
            (Area::Condemned, _) => {
                "a list of condemned packs that cannot be read: a prune condemns them again"
            }
            (Area::Packs, _) => {
                "a pack that no index names, and in which neither the trailer nor a record opens: \
                 nobody can read it"
            }
            _ => {
                "a mark of damaged packs that cannot be read: bale check --read-data finds them \
                 again"
            }
        }
    }
}

/// Finds the one object whose id begins so. Index objects, lists and marks are found only if they
/// are damaged.
pub fn find(repository: &Repository, digits: &str) -> Result<FoundObject> {
    let digits = digits.to_ascii_lowercase();
    let none = || Error::NoSnapshot(digits.clone());
    let mut found = None;
    for area in AREAS {
        for info in repository.list(area)? {
            let matches = |id: ObjectId| !digits.is_empty() && id.to_string().starts_with(&digits);
            if !info.name.id().is_some_and(matches) {
                continue;
            }
            let Some(other) = look_at(repository, info.name)? else {
                continue;
            };
            if found.replace(other).is_some() {
                return Err(Error::AmbiguousSnapshot(digits));
            }
        }
    }
    match found {
        Some(found) => Ok(found),
        None => unreadable_pack(repository, &digits)?.ok_or_else(none),
    }
}

/// The pack of this whole id, if all of the index can be read and does not name it, and nothing in
/// it opens.
fn unreadable_pack(repository: &Repository, digits: &str) -> Result<Option<FoundObject>> {
    let Ok(id) = ObjectId::from_hex(digits) else {
        return Ok(None);
    };
    let name = ObjectName::pack(id);
    let Some(info) = repository.store().stat(&name)? else {
        return Ok(None);
    };
    if repository.reload_index()?.pack_number(&id).is_some() {
        return Ok(None);
    }
    let why = nothing_opens(repository, &info, id);
    Ok(why.map(|text| FoundObject {
        name,
        damage: Some(Error::Other(format!("{name}: {text}"))),
        is_pinned: false,
    }))
}

/// `None`: it is gone, or nothing that anybody may remove.
fn look_at(repository: &Repository, name: ObjectName) -> Result<Option<FoundObject>> {
    let mut is_pinned = false;
    let read = match name.area {
        Area::Snapshots | Area::Runs => (repository.read_record(&name))
            .map(|record| is_pinned = name.area == Area::Snapshots && record.pinned),
        Area::Index => repository.read_index_object(&name).map(drop),
        Area::Condemned => repository
            .read_sealed(&name, ObjectType::Condemned)
            .map(drop),
        _ => repository.read_sealed(&name, ObjectType::Damaged).map(drop),
    };
    match read {
        Ok(()) if matches!(name.area, Area::Snapshots | Area::Runs) => Ok(Some(FoundObject {
            name,
            damage: None,
            is_pinned,
        })),
        Ok(()) => Ok(None),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) if is_damage(&error) => Ok(Some(FoundObject {
            name,
            damage: Some(error),
            is_pinned: false,
        })),
        Err(error) => Err(error),
    }
}

pub fn remove(repository: &Repository, found: &FoundObject) -> Result<()> {
    repository.check_access(Access::Delete)?;
    if found.name.area == Area::Index {
        refuse_while_packs_need_a_name(repository)?;
    }
    match (found.name.area, found.name.id()) {
        (Area::Snapshots, Some(id)) => repository.forget_snapshot(id),
        _ => Ok(repository.store().delete(&found.name)?),
    }
}

/// All that a damaged index object told is in the packs themselves: it is worth nothing once others
/// name them all.
fn refuse_while_packs_need_a_name(repository: &Repository) -> Result<()> {
    let mut packs = Vec::new();
    repository
        .store()
        .list(Area::Packs, &mut |info| packs.extend(info.name.id()))?;
    let index = repository.reload_index_readable()?;
    packs.retain(|pack| index.pack_number(pack).is_none());
    match packs.first() {
        None => Ok(()),
        Some(pack) => Err(Error::Other(format!(
            "no index object that can be read names {} (pack {} first): run bale repair index \
             before",
            counted(packs.len() as u64, "pack"),
            pack.short()
        ))),
    }
}
