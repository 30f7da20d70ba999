//! A list of snapshots in the cache, sealed with a key of the repository's: what was said of them
//! on this machine. Nothing relies on it, and losing it costs being asked or warned again.

use crate::error::Result;
use crate::repository::{Repository, SealedFile};
use bale_format::ObjectId;
use std::collections::HashSet;
use std::path::PathBuf;

/// Ids that are kept, the latest.
const IDS_MAX: usize = 10_000;

/// Which list: ids in JSON, the last one the latest.
pub(super) struct IdList {
    pub(super) file: SealedFile,
    pub(super) name: &'static str,
}

impl IdList {
    /// Those in it; none without a cache.
    pub(super) fn ids(&self, repository: &Repository) -> HashSet<ObjectId> {
        self.load(repository)
            .unwrap_or_default()
            .into_iter()
            .collect()
    }

    /// Adds one.
    pub(super) fn add(&self, repository: &Repository, id: ObjectId) -> Result<()> {
        let path = repository.cache_dir()?.join(self.name);
        let mut all = self.load(repository).unwrap_or_default();
        if all.contains(&id) {
            return Ok(());
        }
        all.push(id);
        let latest = &all[all.len().saturating_sub(IDS_MAX)..];
        let json = serde_json::to_vec(latest).expect("ids have a JSON form");
        self.file.save(repository, &path, &json)
    }

    fn load(&self, repository: &Repository) -> Option<Vec<ObjectId>> {
        let path: PathBuf = repository.cache_dir().ok()?.join(self.name);
        let json = self.file.load(repository, &path)?;
        serde_json::from_slice(&json).ok()
    }
}
