//! What stands in one of two stores under the name of an object, as far as it can be said there.

use crate::verify::hash_object;
use bale_repository::error::Error;
use bale_repository::store::{ObjectInfo, Store};

/// Bytes that are not those of a name.
pub(crate) const OTHER_BYTES: &str = "its content does not match its hash";

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
