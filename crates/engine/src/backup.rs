//! A backup: scan, compare, read, pack, store, commit.
//!
//! ```text
//! scan ──▶ compare ─────▶ read ──────▶ pack ─────────▶ store
//! walk     merge with     small files  bundles and     encode, seal,
//!          the parent     in order     pieces; rows    publish
//! ```
//!
//! Scanning and comparing run in one thread, packing in another; between them is one bounded queue
//! of items, and the readers' window. Encoding runs in threads of its own. The last write is the
//! snapshot: before it, this run is invisible.

mod amendments;
mod bundle;
mod checkpoint;
mod choose;
mod commit;
mod compare;
mod cut_large;
mod dedup;
mod dedup_cache;
mod digest_cache;
mod early;
mod empty_sources;
mod expected_totals;
mod images;
mod index_seen;
mod left_out_paths;
mod linked_inodes;
mod live_statted;
#[cfg(test)]
mod memory_repository;
mod moved;
mod naming;
mod parent;
mod pass;
mod projects;
mod queue;
mod recount;
mod refused_rows;
mod replaced_sources;
mod rows;
mod rule;
mod run;
mod second_pass;
mod source_paths;
mod stored_segments;
mod stream;
mod tally;
mod unread_index;
mod why;

pub(crate) use choose::text_of as time_text;
pub use early::EarlyScan;
pub use images::{ImageSource, backup_images};
pub use run::{BackupOptions, Noted, Outcome};
pub use stream::{Stream, backup_stream};

use crate::heartbeat::Heartbeat;
use crate::limits::CHECKPOINT_SECONDS;
use bale_pipeline::error::with_causes;
use bale_pipeline::monitor::{Kept, Monitor};
use bale_repository::error::{Error, Result};
use bale_repository::pack::{ChunkWriter, WriterOptions};
use bale_repository::repository::Repository;
use bale_source::read::Arranged;
use bale_source::scan::{
    self, ImageStamp, InodeScan, LookAgain, MountedScan, ScanItems, ScanOptions, Sources,
    StartedScan, UnchangedTables,
};
use commit::StoredPass;
use digest_cache::{DigestCache, NewDigests};
use parent::Parent;
use pass::Pass;
use replaced_sources::SourceDirectories;
use run::BackupRun;
use second_pass::LookedAt;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tally::Tally;

/// Backs up the sources and commits a snapshot.
pub fn backup(
    repository: &Arc<Repository>,
    sources: &Sources,
    scan: ScanOptions,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    backup_begun(repository, (sources, None), scan, options, monitor)
}

/// The same where the scan of these sources, asked for in the same way, may have begun.
pub fn backup_begun(
    repository: &Arc<Repository>,
    (sources, mut early): (&Sources, Option<EarlyScan>),
    scan: ScanOptions,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let directories = SourceDirectories::of(sources);
    let run = BackupRun::begin(repository, sources, scan.mode, options)?;
    let scan = ScanOptions {
        with_atime: options.with_atime,
        ..scan
    };
    let emptied = empty_sources::problems(&run, sources)?;
    let options = &BackupOptions {
        not_found: [&options.not_found[..], &emptied].concat(),
        ..options.clone()
    };
    begin(&run, options, monitor, |parent| {
        let from = (sources, &directories, early.take());
        scan_and_store(&run, parent, from, scan.clone(), options, monitor)
    })
}

/// Finds the parent and has `store` do the rest, again where the parent turns out to be damaged.
fn begin(
    run: &BackupRun,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    mut store: impl FnMut(&Parent) -> Result<Outcome>,
) -> Result<Outcome> {
    let repository = &run.repository;
    let every = options.sign_of_life_every;
    let every = every.unwrap_or(Duration::from_secs(CHECKPOINT_SECONDS));
    let signs = (!options.dry_run).then(|| signs_of_life(run, every));
    let _signs_until_the_end = signs.transpose()?;
    let mut unreadable = HashSet::new();
    loop {
        let parent = Parent::find(repository, run, options, &unreadable, monitor)?;
        if parent.run.is_some() {
            monitor.kept(Kept::Record);
        }
        match store(&parent) {
            Err(Error::Catalog(error)) if parent.is_unreadable(&error, &mut unreadable) => {
                // The damage is told, and costs time instead of the backup: another parent, or
                // none.
                monitor.note(&format!(
                    "the catalog to compare with is damaged ({}): beginning again without it (bale \
                     check tells what is lost)",
                    with_causes(&error)
                ));
                repository.reload_index_as_far_as_possible()?;
            }
            done => return done,
        }
    }
}

fn signs_of_life(run: &BackupRun, every: Duration) -> Result<Heartbeat> {
    Heartbeat::start(run.repository.clone(), run.id, run.draft.clone(), every)
}

fn scan_and_store(
    run: &BackupRun,
    parent: &Parent,
    (sources, directories, early): (&Sources, &SourceDirectories, Option<EarlyScan>),
    scan: ScanOptions,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let stays = scan.one_file_system;
    let cache = DigestCache::of(run, sources, &scan, parent)?;
    let early = early.filter(|early| early.suits(parent, &scan.memory));
    let (cache, started) = match early {
        Some(early) => (cache.with_key(early.key()), early.finish(monitor)?),
        None => {
            let scan = recalling(&cache, parent, scan, options);
            (cache, scan::choose(sources, scan, monitor)?)
        }
    };
    let expected = started.expected();
    let expected = expected.unwrap_or_else(|| expected_totals::totals(parent, sources, stays));
    let tally = Tally::new(monitor, parent, expected);
    report_not_found(options, &tally);
    unread_index::report(&run.repository, &tally)?;
    let store = start_writer(run, parent, options)?;
    let from = (sources, directories, started);
    let done = store_and_commit(run, parent, from, &store, &tally, options);
    let (outcome, digests) = done.map_err(|error| after_failure(&store, error, monitor))?;
    // Only now: of what is not committed nothing is remembered.
    cache.remember(digests, parent, &outcome, &tally);
    Ok(outcome)
}

fn store_and_commit(
    run: &BackupRun,
    parent: &Parent,
    (sources, directories, started): (&Sources, &SourceDirectories, StartedScan),
    store: &Arc<ChunkWriter>,
    tally: &Tally<'_>,
    options: &BackupOptions,
) -> Result<(Outcome, NewDigests)> {
    let pass = Pass::first(run, parent, store, tally, options);
    let (stored, digests) = match started {
        StartedScan::Walk(items) => (pass.run(items, None)?, NewDigests::None),
        StartedScan::TablesUnchanged(tables) => store_unchanged(pass, *tables)?,
        StartedScan::Inodes(scan) => store_inodes(pass, *scan, sources)?,
    };
    directories.report_replaced(tally);
    let outcome = commit::commit(run, parent, stored, store, tally, options)?;
    Ok((outcome, digests))
}

/// If the store failed, its error, whatever was said of it on the way here. What is stored by then
/// is named, as far as the store still takes that: the next run does not store it again, and goes
/// on from the last record of this one, if there is one.
fn after_failure(store: &ChunkWriter, error: Error, monitor: &dyn Monitor) -> Error {
    let trouble = match (&error, store.store_trouble()) {
        (Error::Interrupted, _) | (_, None) => None,
        (_, trouble) => trouble,
    };
    let is_of_store = trouble.is_some() || matches!(error, Error::Store(_));
    if is_of_store || store.flush().is_err() {
        let _is_stored_again_by_the_next = store.name_durable();
    }
    if store.has_named() {
        monitor.kept(Kept::Content);
    }
    trouble.map_or(error, Error::Store)
}

/// A scan that knows what the last one saw; by `--force` it knows nothing.
fn recalling(
    cache: &DigestCache,
    parent: &Parent,
    scan: ScanOptions,
    options: &BackupOptions,
) -> ScanOptions {
    ScanOptions {
        known: cache.recall(parent).filter(|_| !options.force),
        parent_digests: cache.recall_inodes(parent).filter(|_| !options.force),
        entries_before: parent.entries(),
        inode_key: cache.inode_key(),
        ..scan
    }
}

/// Sources that were named and are not there.
fn report_not_found(options: &BackupOptions, tally: &Tally<'_>) {
    for problem in &options.not_found {
        let path = problem.path.strip_prefix(b"/").unwrap_or(&problem.path);
        tally.report_problem(path, problem.action, problem.text.clone());
    }
}

fn start_writer(
    run: &BackupRun,
    parent: &Parent,
    options: &BackupOptions,
) -> Result<Arc<ChunkWriter>> {
    let writer = WriterOptions {
        thin: parent.thin.clone(),
        dry_run: options.dry_run,
        verify: options.force,
        run_age: run.age(),
    };
    let store = ChunkWriter::start_with(run.repository.clone(), writer)?;
    Ok(Arc::new(store))
}

/// Every row is the parent's.
fn store_unchanged(pass: Pass<'_>, tables: UnchangedTables) -> Result<(StoredPass, NewDigests)> {
    pass.tally.all_unchanged(tables.filesystem, pass.parent);
    if let Some(stamp) = &tables.stamp {
        check_image_unmodified(stamp, pass.tally);
    }
    let stored = StoredPass::nothing_but(pass.parent, &pass.run.repository)?;
    Ok((stored, NewDigests::OfParent(Some(tables.state))))
}

/// What was read from a device is looked at again before anything relies on it.
fn store_inodes(
    pass: Pass<'_>,
    scan: InodeScan,
    sources: &Sources,
) -> Result<(StoredPass, NewDigests)> {
    let pass = Pass {
        records_live_stats: !pass.store.is_dry_run(),
        is_by_inodes: true,
        ..pass
    };
    // With nothing to compare with, everything will be read.
    let arranged = scan.arranged.filter(|_| !pass.parent.has_entries());
    let looked_at = match scan.look_again {
        LookAgain::Image(stamp) => store_image(pass, scan.items, arranged, &stamp)?,
        LookAgain::Mounted(mounted) => {
            store_mounted(pass, scan.items, arranged, *mounted, sources)?
        }
    };
    Ok(looked_at.with_digests(scan.state, scan.digests))
}

fn store_image(
    pass: Pass<'_>,
    items: ScanItems,
    arranged: Option<Arranged>,
    stamp: &ImageStamp,
) -> Result<LookedAt> {
    let pass = Pass {
        guard: Some(stamp),
        ..pass
    };
    let stored = pass.run(items, arranged)?;
    check_image_unmodified(stamp, pass.tally);
    Ok(LookedAt::still(stored))
}

fn store_mounted(
    pass: Pass<'_>,
    items: ScanItems,
    arranged: Option<Arranged>,
    mounted: MountedScan,
    sources: &Sources,
) -> Result<LookedAt> {
    // What was read of a mounted device is not certain before it was looked at again: nothing to go
    // on from.
    let pass = Pass {
        checkpoint_every: None,
        ..pass
    };
    if pass.store.is_dry_run() {
        drop(mounted);
        return Ok(LookedAt::still(pass.run(items, arranged)?));
    }
    pass.tally.hold_reading_problems();
    let first = pass.run(items, arranged);
    let first = first.inspect_err(|_| pass.tally.report_held())?;
    second_pass::look_again(&pass, first, mounted, sources)
}

/// If the image was written to during the backup: report a problem, and mark every row racy so that
/// the next backup reads everything again.
fn check_image_unmodified(stamp: &ImageStamp, tally: &Tally<'_>) {
    if let Some(problem) = stamp.check() {
        tally.problem(&problem);
        tally.mark_all_racy();
    }
}
