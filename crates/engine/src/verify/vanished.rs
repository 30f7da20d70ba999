//! Objects that disappeared between the listing and their check.

use bale_repository::error::Result;
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectName, Store};
use std::collections::HashSet;

/// Where forgetting and pruning take something away.
const AREAS: [Area; 5] = [
    Area::Packs,
    Area::Index,
    Area::Snapshots,
    Area::Runs,
    Area::Condemned,
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

/// Is it listed no more?
pub(super) fn is_gone(store: &dyn Store, name: &ObjectName) -> Result<bool> {
    let mut is_listed = false;
    store.list(name.area, &mut |info| is_listed |= info.name == *name)?;
    Ok(!is_listed)
}
