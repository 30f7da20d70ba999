//! Records of an unfinished run: what is stored so far can be listed, restored, and gone on from.

use super::index_seen::{self, MadeFor};
use super::run::BackupRun;
use super::tally::Tally;
use crate::limits::{CHECKPOINT_BYTES, CHECKPOINT_SECONDS, SEGMENT_PATIENCE};
use bale_format::{ObjectId, Snapshot};
use bale_pipeline::monitor::Kept;
use bale_repository::catalog::Partial;
use bale_repository::error::Result;
use bale_repository::pack::{ChunkWriter, IfClosed};
use bale_repository::repository::Repository;
use bale_repository::store::ObjectName;
use bale_source::scan::ImageStamp;
use std::time::{Duration, Instant};

/// A segment on a server to which nothing came for so long is closed: servers of FTP end transfers
/// that stand still for five minutes, and what was in them is lost.
const SEGMENT_IDLE_MAX: Duration = Duration::from_secs(120);

/// To the first record of a run, which is of use most where lines are slow and break; to the second
/// it is twice as long, and so on.
const FIRST_AFTER: Duration = Duration::from_secs(30);

/// Between two looks at the clock there are so many items,
const CLOCK_EVERY: u32 = 64;
/// or so many bytes were read: a few large files take minutes.
const CLOCK_EVERY_BYTES: u64 = 1 << 20;
/// The same of looks at what was stored.
const BYTES_EVERY: u32 = 1024;

/// Where records are made all the time, one holds all rows if so much was read since one did.
const READ_AGAIN_BYTES_OFTEN: u64 = 16 << 10;

/// Makes a catalog, and says what of it an unfinished run can be gone on from.
pub(super) trait Resumable {
    /// After it, no row waits for its content. One that holds all rows stores those besides that
    /// are in no segment of the catalog yet.
    fn checkpoint(&mut self, holds_all: bool) -> Result<Option<Partial>>;

    /// In bundles that are open.
    fn bytes_in_bundles(&self) -> u64;
}

/// Decides when a record is due, and replaces the last one.
pub(super) struct Checkpoints<'a> {
    run: &'a BackupRun,
    store: &'a ChunkWriter,
    tally: &'a Tally<'a>,
    /// What was written to while it was read is nothing to go on from.
    guard: Option<&'a ImageStamp>,
    /// That were there when the run began.
    index_objects: &'a [ObjectId],
    every: Duration,
    last_time: Instant,
    last_bytes: u64,
    written: Option<ObjectId>,
    /// So many records were written.
    records: u32,
    looked: u32,
    /// Bytes that were read when the clock was looked at.
    bytes_at_clock: u64,
    /// Bytes that were read when a record held all rows.
    bytes_held: u64,
}

/// From one record to the next, after so many.
pub(super) fn pause_after(records: u32, every: Duration) -> Duration {
    let doubled = 1u32.checked_shl(records).unwrap_or(u32::MAX);
    FIRST_AFTER.saturating_mul(doubled).min(every)
}

/// Whoever names what is stored closes the open segment, wherever in a project that is; at the end
/// of one it costs nothing. Is it to wait?
pub(super) fn has_patience(
    store: &ChunkWriter,
    in_bundles: u64,
    last: Instant,
    every: Duration,
) -> bool {
    let closes_one = store.if_closed(in_bundles) != IfClosed::Nothing;
    closes_one && last.elapsed() < every * SEGMENT_PATIENCE
}

/// What was sent is named before the rest is waited for: on a slow line that takes a while.
pub(super) fn name_so_far(store: &ChunkWriter) -> Result<()> {
    match store.repository().store().is_remote() {
        true => store.name_so_far(),
        false => Ok(()),
    }
}

/// Closes a segment to which nothing comes: a server would end its transfer. Was there one?
pub(super) fn end_what_stands_still(repository: &Repository) -> Result<bool> {
    match repository.stretched() {
        Some(stretched) if stretched.stands_still(SEGMENT_IDLE_MAX) => {
            stretched.settle()?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

impl<'a> Checkpoints<'a> {
    pub(super) fn new(
        run: &'a BackupRun,
        store: &'a ChunkWriter,
        tally: &'a Tally<'a>,
        guard: Option<&'a ImageStamp>,
        index_objects: &'a [ObjectId],
        every: Option<Duration>,
    ) -> Checkpoints<'a> {
        let every = every.unwrap_or(Duration::from_secs(CHECKPOINT_SECONDS));
        Checkpoints {
            run,
            store,
            tally,
            guard,
            index_objects,
            every,
            last_time: Instant::now(),
            last_bytes: 0,
            written: None,
            records: 0,
            looked: 0,
            bytes_at_clock: 0,
            bytes_held: 0,
        }
    }

    pub(super) fn when_due(&mut self, rows: &mut impl Resumable) -> Result<()> {
        self.looked = self.looked.wrapping_add(1);
        let often = self.is_often();
        let bytes_read = self.tally.bytes_read();
        let is_much = bytes_read - self.bytes_at_clock >= CLOCK_EVERY_BYTES;
        if !often && !is_much && !self.looked.is_multiple_of(CLOCK_EVERY) {
            return Ok(());
        }
        self.bytes_at_clock = bytes_read;
        let is_time = self.last_time.elapsed() >= pause_after(self.records, self.every);
        if !often && !is_time && !self.looked.is_multiple_of(BYTES_EVERY) {
            return Ok(());
        }
        end_what_stands_still(&self.run.repository)?;
        let bytes = self.store.written().bytes_stored;
        if !is_time && bytes - self.last_bytes < CHECKPOINT_BYTES {
            return Ok(());
        }
        match has_patience(
            self.store,
            rows.bytes_in_bundles(),
            self.last_time,
            self.every,
        ) {
            true => Ok(()),
            false => self.write(rows, false),
        }
    }

    /// Writes a record because it costs little here.
    pub(super) fn write_now(&mut self, rows: &mut impl Resumable) -> Result<()> {
        self.write(rows, false)
    }

    /// Writes a record as the last act of an interrupted run.
    pub(super) fn write_last(&mut self, rows: &mut impl Resumable) -> Result<()> {
        self.write(rows, true)
    }

    fn is_often(&self) -> bool {
        self.every < Duration::from_secs(CHECKPOINT_SECONDS)
    }

    fn write(&mut self, rows: &mut impl Resumable, is_last: bool) -> Result<()> {
        let is_disturbed = self.guard.is_some_and(|guard| guard.check().is_some());
        if self.store.is_dry_run() || is_disturbed {
            return Ok(());
        }
        let bytes_read = self.tally.bytes_read();
        let is_much = bytes_read - self.bytes_held >= READ_AGAIN_BYTES_OFTEN;
        let holds_all = is_last || is_much || !self.is_often();
        name_so_far(self.store)?;
        let Some(partial) = rows.checkpoint(holds_all)? else {
            return Ok(());
        };
        if holds_all {
            self.bytes_held = bytes_read;
        }
        self.store.flush()?;
        let written = self.store.written();
        let snapshot = Snapshot {
            partial: true,
            until: Some(partial.until),
            finished: self.run.repository.clock().time(),
            filesystems: self.tally.filesystems(),
            totals: self.tally.totals(),
            counts: self.tally.counts(written),
            transfers: self.store.transfers(),
            problems: self.tally.problems_listed(),
            layers: partial.layers,
            ..self.run.draft.clone()
        };
        let id = self.run.repository.write_run(self.run.id, &snapshot)?;
        // Who goes on from it looks everything up if this is not kept.
        let _costs_time_only =
            index_seen::remember(self.run, MadeFor::UnfinishedRun(id), self.index_objects);
        self.tally.monitor().kept(Kept::Record);
        if let Some(before) = self.written.replace(id).filter(|before| *before != id) {
            self.run
                .repository
                .store()
                .delete(&ObjectName::run(self.run.id, before))?;
        }
        self.records = self.records.saturating_add(1);
        self.last_time = Instant::now();
        self.last_bytes = written.bytes_stored;
        Ok(())
    }
}
