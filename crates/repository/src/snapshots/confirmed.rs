//! Snapshots of which somebody said, on this machine, that a sudden change of their source is
//! meant. Losing that costs being asked again.

use super::id_list::IdList;
use crate::error::Result;
use crate::repository::{Repository, SealedFile};
use bale_format::ObjectId;
use std::collections::HashSet;

const LIST: IdList = IdList {
    file: SealedFile {
        magic: b"BALECNF1",
        body_bytes_max: 1 << 20,
    },
    name: "confirmed-changes",
};

/// Those that were confirmed; none without a cache.
pub fn ids(repository: &Repository) -> HashSet<ObjectId> {
    LIST.ids(repository)
}

/// Confirms one.
pub fn add(repository: &Repository, id: ObjectId) -> Result<()> {
    LIST.add(repository, id)
}
