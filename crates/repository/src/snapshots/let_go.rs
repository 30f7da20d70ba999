//! Snapshots that were removed on purpose from this machine. A mirror on the same machine may have
//! them still: whoever looks at it sees them, and they must not be missed in the original then.
//!
//! A file in the cache, sealed with a key of the repository's. Losing it costs a warning too many.

use crate::repository::{Repository, SealedFile};
use bale_format::ObjectId;
use std::collections::HashSet;
use std::path::PathBuf;

/// A list of ids in JSON, the last one the latest.
const FILE: SealedFile = SealedFile {
    magic: b"BALEGON1",
    body_bytes_max: 1 << 20,
};
/// That are kept, the latest.
const LET_GO_MAX: usize = 10_000;

/// Those that were let go; none without a cache.
pub(super) fn ids(repository: &Repository) -> HashSet<ObjectId> {
    load(repository).unwrap_or_default().into_iter().collect()
}

/// One was.
pub(super) fn add(repository: &Repository, id: ObjectId) {
    let Some(path) = path(repository) else {
        return;
    };
    let mut all = load(repository).unwrap_or_default();
    if all.contains(&id) {
        return;
    }
    all.push(id);
    let latest = &all[all.len().saturating_sub(LET_GO_MAX)..];
    if let Ok(json) = serde_json::to_vec(latest) {
        let _costs_a_warning_too_many = FILE.save(repository, &path, &json);
    }
}

fn load(repository: &Repository) -> Option<Vec<ObjectId>> {
    let json = FILE.load(repository, &path(repository)?)?;
    serde_json::from_slice(&json).ok()
}

fn path(repository: &Repository) -> Option<PathBuf> {
    Some(repository.cache_dir().ok()?.join("let-go-snapshots"))
}
