//! How long ago something was, by both clocks: the monotonic one stands still while a machine
//! sleeps, the other one can be set.

use bale_repository::repository::Repository;
use std::time::{Duration, Instant, SystemTime};

/// A moment on both.
#[derive(Clone, Copy)]
pub(crate) struct TwoClocks(Instant, SystemTime);

impl TwoClocks {
    pub(crate) fn now(repository: &Repository) -> TwoClocks {
        TwoClocks(Instant::now(), repository.clock().now())
    }

    /// Was it no longer ago than this? A clock that was set back says nothing.
    pub(crate) fn is_within(&self, most: Duration, repository: &Repository) -> bool {
        let passed = repository.clock().now().duration_since(self.1);
        self.0.elapsed() <= most && passed.map_or(true, |passed| passed <= most)
    }
}
