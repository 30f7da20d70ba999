//! What stands in one of two stores under the name of an object, as far as it can be said there.

use crate::verify::{OTHER_BYTES, hash_object};
use bale_repository::error::{Error, Result};
use bale_repository::store::{Area, ForeignKind, ObjectInfo, ObjectName, Store};
use std::collections::BTreeMap;

/// An object in one of the two stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Missing,
    Intact,
    /// Why.
    Damaged(String),
    /// It must be brought back from a cold class before it is read.
    Archived,
    /// Why; it may be intact.
    Unreadable(String),
}

impl Found {
    /// Reads all of an object that was listed, and compares it with its name. One whose name is no
    /// hash counts as intact.
    pub(crate) fn of_listed(store: &dyn Store, listed: &ObjectInfo) -> Found {
        match hash_object(store, listed) {
            Ok(hash) if listed.name.id().is_none_or(|id| id.0 == hash) => Found::Intact,
            Ok(_) => Found::Damaged(OTHER_BYTES.to_owned()),
            Err(Error::Store(error)) if error.is_not_found() => Found::Missing,
            Err(Error::Store(error)) if error.is_archived() => Found::Archived,
            Err(Error::Store(error)) if !error.is_inconclusive() => {
                Found::Damaged(error.source.to_string())
            }
            Err(error) => Found::Unreadable(error.to_string()),
        }
    }
}

/// What stands in a store in the places of objects, by its path: not followed, and not removed.
pub(crate) struct InTheWay(BTreeMap<String, ForeignKind>);

impl InTheWay {
    pub(crate) fn of(store: &dyn Store, area: Area) -> Result<InTheWay> {
        let mut in_the_way = BTreeMap::new();
        let listed = store.list_foreign(area, &mut |entry| {
            if entry.kind.is_in_the_way() {
                in_the_way.insert(entry.path, entry.kind);
            }
        });
        match listed {
            // A new place has no directories yet.
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(InTheWay(in_the_way)),
        }
    }

    /// What stands in the place of an object, or of the directory that it belongs into.
    pub(crate) fn at(&self, name: &ObjectName) -> Option<&'static str> {
        let path = name.path();
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let kind = above.chain([&*path]).find_map(|at| self.0.get(at));
        kind.map(|kind| kind.meaning())
    }
}
