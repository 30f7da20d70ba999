//! What a store holds, by area, listed so that what refers comes before what it refers to.
//!
//! A writer makes packs durable, then index objects, then snapshots. Listed the other way round,
//! whatever a snapshot of the listing needs is in it, or has been replaced by a prune meanwhile. In
//! memory: some 120 bytes for each object, of which a terabyte has some twenty thousand.

use bale_repository::error::Result;
use bale_repository::store::{Area, ObjectInfo, ObjectName, Store};
use std::collections::BTreeMap;

/// What refers first.
const ORDER: [Area; 7] = [
    Area::Snapshots,
    Area::Runs,
    Area::Index,
    Area::Packs,
    Area::Condemned,
    Area::Damaged,
    Area::Keys,
];

/// Objects with hashes for names, with their lengths.
#[derive(Default)]
pub(super) struct Listing(BTreeMap<ObjectName, ObjectInfo>);

impl Listing {
    pub(super) fn of(store: &dyn Store) -> Result<Listing> {
        let mut objects = BTreeMap::new();
        for area in ORDER {
            store.list(area, &mut |info| {
                objects.insert(info.name, info);
            })?;
        }
        Ok(Listing(objects))
    }

    pub(super) fn get(&self, name: &ObjectName) -> Option<&ObjectInfo> {
        self.0.get(name)
    }

    pub(super) fn add(&mut self, info: ObjectInfo) {
        self.0.insert(info.name, info);
    }

    pub(super) fn in_area(&self, area: Area) -> impl Iterator<Item = &ObjectInfo> {
        self.0.values().filter(move |info| info.name.area == area)
    }

    pub(super) fn is_empty_of(&self, area: Area) -> bool {
        self.in_area(area).next().is_none()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.values().map(|info| info.len).sum()
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }
}
