//! Snapshots that were removed on purpose from this machine. A mirror on the same machine may have
//! them still: whoever looks at it sees them, and they must not be missed in the original then.

use super::id_list::IdList;
use crate::repository::{Repository, SealedFile};
use bale_format::ObjectId;
use std::collections::HashSet;

const LIST: IdList = IdList {
    file: SealedFile {
        magic: b"BALEGON1",
        body_bytes_max: 1 << 20,
    },
    name: "let-go-snapshots",
};

/// Those that were let go; none without a cache.
pub(super) fn ids(repository: &Repository) -> HashSet<ObjectId> {
    LIST.ids(repository)
}

/// One was.
pub(super) fn add(repository: &Repository, id: ObjectId) {
    let _costs_a_warning_too_many = LIST.add(repository, id);
}
