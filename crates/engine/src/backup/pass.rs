//! One pass over the stream of a scan: compare, read, pack.

use super::checkpoint::Checkpoints;
use super::commit::StoredPass;
use super::compare::Comparer;
use super::moved::Moved;
use super::parent::Parent;
use super::projects::{self, Moment};
use super::queue::ItemSender;
use super::rows::{RowWriter, StoredRows};
use super::run::{BackupOptions, BackupRun};
use super::stored_segments::StoredSegments;
use super::tally::Tally;
use crate::limits::{self, ReadLimits};
use bale_repository::catalog::{CatalogReader, CatalogWriter};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::Repository;
use bale_source::read::{Arranged, GroupHasher, SmallReader};
use bale_source::scan::handle::FileHandles;
use bale_source::scan::{ImageStamp, ScanItems};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// What a pass works with.
pub(super) struct Pass<'a> {
    pub(super) run: &'a BackupRun,
    pub(super) parent: &'a Parent,
    pub(super) store: &'a Arc<ChunkWriter>,
    pub(super) tally: &'a Tally<'a>,
    /// Inodes that are stat'ed live are recorded: their digests are of another moment.
    pub(super) records_live_stats: bool,
    /// The scan is one by inodes, or takes the place of one.
    pub(super) is_by_inodes: bool,
    /// Notices when what is read is written to.
    pub(super) guard: Option<&'a ImageStamp>,
    /// Of a second pass: the catalog that is compared with, as the first one had it.
    pub(super) original: Option<&'a CatalogReader>,
    /// Of a second pass over a mounted file system: says what is still there of what the first had,
    /// and which inodes the first one read under other names than it listed.
    pub(super) handles: Option<(&'a FileHandles, &'a HashSet<u64>)>,
    /// Between two records of the unfinished run; `None`: no records.
    pub(super) checkpoint_every: Option<Option<Duration>>,
}

impl<'a> Pass<'a> {
    /// The first pass, as a walk needs it.
    pub(super) fn first(
        run: &'a BackupRun,
        parent: &'a Parent,
        store: &'a Arc<ChunkWriter>,
        tally: &'a Tally<'a>,
        options: &BackupOptions,
    ) -> Pass<'a> {
        Pass {
            run,
            parent,
            store,
            tally,
            records_live_stats: false,
            is_by_inodes: false,
            guard: None,
            original: None,
            handles: None,
            checkpoint_every: (!options.dry_run).then_some(options.checkpoint_every),
        }
    }

    /// Runs to the end of the stream.
    pub(super) fn run(&self, items: ScanItems, arranged: Option<Arranged>) -> Result<StoredPass> {
        let Pass {
            run,
            parent,
            store,
            tally,
            ..
        } = self;
        let repository = &run.repository;
        let memory = repository.memory();
        let reading = match (&arranged, self.is_by_inodes) {
            (Some(_), _) => ReadLimits::beside_arranged(&memory),
            (None, true) => ReadLimits::of_inodes(&memory),
            (None, false) => ReadLimits::of_walk(&memory),
        };
        let reader = small_reader(repository, &reading, arranged);
        let (sender, queue) = ItemSender::pair(limits::item_batches(&memory));
        let comparer = Comparer::new(parent, store, &reader, tally, self.moved())?
            .recording_live_stats(self.records_live_stats)
            .excluding(&run.draft.excludes);
        let segments = StoredSegments((*store).clone());
        let catalog = CatalogWriter::new(parent.catalog.clone(), segments);
        let mut rows = RowWriter::new(store, catalog, &reader, tally, run.sources())
            .reading_ahead(reading.blocks_ahead)
            .naming_every(self.checkpoint_every.flatten())
            .recounting(self.original);
        let every = self.checkpoint_every;
        let mut checkpoints = every.map(|every| {
            Checkpoints::new(run, store, tally, self.guard, &parent.index_objects, every)
        });

        let (compared, written) = std::thread::scope(|scope| {
            let comparing = scope.spawn(|| comparer.compare(items, sender));
            let written = rows.write_all(queue, |rows, at| match (at, &mut checkpoints) {
                (Moment::AfterItem, None) => Ok(()),
                (Moment::AfterItem, Some(checkpoints)) => checkpoints.when_due(rows),
                (Moment::BetweenProjects, checkpoints) => {
                    projects::end_segment(store, rows, checkpoints.as_mut())
                }
            });
            reader.stop();
            let compared = comparing.join().map_err(|_| {
                Error::Other("the comparing thread panicked, by a defect of Bale".to_owned())
            });
            (compared.and_then(|compared| compared), written)
        });
        let interrupted = matches!(written, Err(Error::Interrupted))
            || matches!(compared, Err(Error::Interrupted));
        if interrupted {
            if let Some(checkpoints) = &mut checkpoints {
                // What is finished is kept, so that the next run need not begin anew.
                checkpoints.write_last(&mut rows)?;
            }
            return Err(Error::Interrupted);
        }
        written?;
        let mut scanned = compared?;
        let StoredRows {
            layers,
            changes,
            read_instead,
        } = rows.finish()?;
        scanned.read_instead = read_instead;
        Ok(StoredPass {
            scanned,
            layers,
            changes,
        })
    }

    /// Knows, or asks, what became of names that are not met.
    fn moved(&self) -> Moved<'a> {
        match self.handles {
            Some(handles) => Moved::verified(handles, self.tally.began),
            None => Moved::walked(self.parent, self.tally.began),
        }
    }
}

/// The reader of small files; what is read arranged is hashed in groups.
fn small_reader(
    repository: &Arc<Repository>,
    reading: &ReadLimits,
    arranged: Option<Arranged>,
) -> SmallReader {
    let keys = repository.clone();
    let hasher: GroupHasher = Arc::new(move |contents, hashes| {
        bale_sys::lanes::keyed_hashes(keys.keys().content_key(), contents, hashes);
    });
    let arranged = arranged.map(|arranged| arranged.hashing(hasher));
    let memory = repository.memory();
    SmallReader::within(&memory, reading.small_threads, reading.window_bytes)
        .with_arranged(arranged)
}
