//! Objects that disappeared between the listing and their check, and those that did not: listed,
//! and not there when they are read.

use bale_format::ObjectId;
use bale_repository::error::Result;
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectName, Store};
use std::collections::HashSet;

/// What is wrong with what is listed and is not there.
pub(super) const LISTED_AND_NOT_FOUND: &str = "listed, and not found when it is read: it is lost, \
    or was removed a moment ago and this store's listings come behind (then a later check does not \
    name it)";

/// Where something is taken away: by forgetting and pruning, of keys by whoever has another, of
/// marks by a check.
const AREAS: [Area; 7] = [
    Area::Packs,
    Area::Index,
    Area::Snapshots,
    Area::Runs,
    Area::Condemned,
    Area::Damaged,
    Area::Keys,
];

/// Names that were listed: about 60 bytes for each object.
pub(super) struct Names(HashSet<ObjectName>);

impl Names {
    pub(super) fn list(repository: &Repository) -> Result<Names> {
        let mut names = HashSet::new();
        for area in AREAS {
            repository.store().list(area, &mut |info| {
                names.insert(info.name);
            })?;
        }
        Ok(Names(names))
    }

    /// Names of an area that were listed and of which nothing is `found`.
    pub(super) fn unfound(
        &self,
        area: Area,
        found: impl Iterator<Item = ObjectId>,
    ) -> Vec<ObjectName> {
        let found: HashSet<ObjectId> = found.collect();
        let is_unfound = |name: &&ObjectName| {
            name.area == area && name.id().is_some_and(|id| !found.contains(&id))
        };
        let mut names: Vec<ObjectName> = self.0.iter().filter(is_unfound).copied().collect();
        names.sort();
        names
    }

    /// Lists again. A name that is still listed, and under which nothing is found, has not gone:
    /// that is damage.
    pub(super) fn has_one_gone(mut self, repository: &Repository) -> Result<bool> {
        for area in AREAS {
            repository.store().list(area, &mut |info| {
                self.0.remove(&info.name);
            })?;
        }
        Ok(!self.0.is_empty())
    }
}

/// Of names of one area, those that are listed once more.
pub(super) fn still_listed(store: &dyn Store, names: &[ObjectName]) -> Result<HashSet<ObjectName>> {
    let mut listed = HashSet::new();
    if let Some(first) = names.first() {
        store.list(first.area, &mut |info| {
            if names.contains(&info.name) {
                listed.insert(info.name);
            }
        })?;
    }
    Ok(listed)
}

/// Is it listed no more?
pub(super) fn is_gone(store: &dyn Store, name: &ObjectName) -> Result<bool> {
    let mut is_listed = false;
    store.list(name.area, &mut |info| is_listed |= info.name == *name)?;
    Ok(!is_listed)
}
