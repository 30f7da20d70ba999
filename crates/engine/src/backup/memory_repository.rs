//! A repository in memory, for unit tests.

use bale_pipeline::clock::SystemClock;
use bale_pipeline::random::OsRandom;
use bale_repository::repository::{Environment, NewSlot, Repository, Secret};
use bale_repository::store::MemoryStore;
use std::path::Path;
use std::sync::Arc;

/// A new one, open.
pub(super) fn repository(cache: &Path) -> Arc<Repository> {
    let environment = || Environment {
        clock: Arc::new(SystemClock),
        random: Arc::new(OsRandom),
        cache_dir: cache.to_owned(),
    };
    let store = Arc::new(MemoryStore::new());
    let secret = Secret::KeyFile(b"the key file of a test, long enough".to_vec());
    let slot = NewSlot {
        secret: secret.clone(),
        label: "test".to_owned(),
    };
    let made = Repository::init(store.clone(), vec![slot], environment());
    made.expect("memory takes a repository");
    let opened = Repository::open(store, &secret, environment());
    Arc::new(opened.expect("it was made with this secret"))
}
