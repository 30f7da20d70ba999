//! What is stored of one large file or stream is named now and then, before there is a row of it
//! for a record: whoever comes after a run that died does not store it again.

use super::checkpoint::{end_what_stands_still, has_patience, name_so_far, pause_after};
use crate::limits::{CHECKPOINT_BYTES, CHECKPOINT_SECONDS};
use bale_repository::error::Result;
use bale_repository::pack::ChunkWriter;
use std::time::{Duration, Instant};

/// When what is stored was named last.
pub(super) struct Named {
    at: Instant,
    /// Stored by then.
    bytes: u64,
    times: u32,
    /// At the longest.
    every: Duration,
}

impl Named {
    /// `every`: how long there may be between two, if not as usual.
    pub(super) fn begin(store: &ChunkWriter, every: Option<Duration>) -> Named {
        Named {
            every: every.unwrap_or(Duration::from_secs(CHECKPOINT_SECONDS)),
            at: Instant::now(),
            bytes: store.written().bytes_stored,
            times: 0,
        }
    }

    pub(super) fn when_due(&mut self, store: &ChunkWriter) -> Result<()> {
        let every = self.every;
        if store.is_dry_run() {
            return Ok(());
        }
        let has_closed = end_what_stands_still(store.repository())?;
        let is_much = store.written().bytes_stored - self.bytes >= CHECKPOINT_BYTES;
        let is_due = is_much || self.at.elapsed() >= pause_after(self.times, every);
        if has_closed || (is_due && !has_patience(store, 0, self.at, every)) {
            name_so_far(store)?;
            store.flush()?;
            self.at = Instant::now();
            self.bytes = store.written().bytes_stored;
            self.times = self.times.saturating_add(1);
        }
        Ok(())
    }
}
