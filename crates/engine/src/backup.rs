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
mod empty_sources;
mod expected_totals;
mod heartbeat;
mod index_seen;
mod left_out_paths;
mod linked_inodes;
mod parent;
mod pass;
mod queue;
mod recount;
mod rows;
mod rule;
mod run;
mod second_pass;
mod tally;

pub use run::{BackupOptions, Noted, Outcome};

use crate::limits::CHECKPOINT_SECONDS;
use bale_format::Access;
use bale_pipeline::error::with_causes;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::pack::{ChunkWriter, WriterOptions};
use bale_repository::repository::Repository;
use bale_source::scan::inode::TablesState;
use bale_source::scan::{self, ImageStamp, ScanOptions, Sources};
use commit::StoredPass;
use digest_cache::DigestCache;
use heartbeat::Heartbeat;
use parent::Parent;
use pass::Pass;
use run::BackupRun;
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
    repository.check_access(Access::Write)?;
    if !options.dry_run {
        // Now, and not at the commit: a list that cannot be read would have it refused.
        repository.condemned_to_do_without()?;
    }
    let run = BackupRun::begin(repository, sources, scan.mode, options)?;
    let emptied = empty_sources::problems(&run, sources)?;
    let every = options.sign_of_life_every;
    let every = every.unwrap_or(Duration::from_secs(CHECKPOINT_SECONDS));
    let signs = (!options.dry_run).then(|| Heartbeat::start(&run, every));
    let _signs_until_the_end = signs.transpose()?;
    let mut unreadable = HashSet::new();
    let options = &BackupOptions {
        not_found: [&options.not_found[..], &emptied].concat(),
        ..options.clone()
    };
    loop {
        let parent = Parent::find(repository, &run, options, &unreadable, monitor)?;
        let done = scan_and_store(&run, &parent, sources, scan.clone(), options, monitor);
        match done {
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

fn scan_and_store(
    run: &BackupRun,
    parent: &Parent,
    sources: &Sources,
    scan: ScanOptions,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let known = DigestCache::of(run, &scan)?;
    let scan = recalling(&known, parent, scan, options);
    let mut scan = scan::choose(sources, scan, monitor)?;
    let expected = scan.expected;
    let expected = expected.unwrap_or_else(|| expected_totals::totals(parent, sources));
    let tally = Tally::new(monitor, parent, expected);
    report_not_found(options, &tally);
    let store = start_writer(run, parent, options)?;
    let (guard, mounted) = (scan.guard(), scan.mounted());
    if let Some(filesystem) = scan.tables_unchanged {
        tally.all_unchanged(filesystem, parent);
        check_image_unmodified(guard.as_ref(), &tally);
        let written = StoredPass::nothing_but(parent, &run.repository)?;
        let outcome = commit::commit(run, parent, written, &store, &tally, options)?;
        remember_state(&known, &outcome, scan.state.as_ref(), &tally);
        note_unless_remembered(&tally, known.pass_inodes_on(parent, &outcome));
        return Ok(outcome);
    }
    let pass = Pass {
        run,
        parent,
        store: &store,
        tally: &tally,
        remembers: scan.digests.is_some() && !options.dry_run,
        guard: guard.as_ref(),
        // What was read of a mounted device is not certain before it was looked at again: nothing
        // to go on from.
        original: None,
        checkpoint_every: (mounted.is_none() && !options.dry_run)
            .then_some(options.checkpoint_every),
    };
    // With nothing to compare with, everything will be read.
    let arranged = scan.arranged().filter(|_| !parent.has_entries());
    let mounted = mounted.filter(|_| !options.dry_run);
    if mounted.is_some() {
        tally.hold_reading_problems();
    }
    let first = pass.run(scan.items, arranged);
    let mut written = first.inspect_err(|_| tally.report_held())?;
    check_image_unmodified(guard.as_ref(), &tally);
    let (mut state, digests) = (scan.state, scan.digests);
    let mut changed = Some(Arc::default());
    if let Some(mounted) = mounted {
        let looked = second_pass::look_again(&pass, written, mounted, sources)?;
        changed = looked.changed;
        let was_still = changed.as_ref().is_some_and(|changed| changed.is_empty());
        state = state.filter(|_| was_still);
        written = looked.written;
    }
    let live_statted = std::mem::take(&mut written.scanned.live_statted);
    let outcome = commit::commit(run, parent, written, &store, &tally, options)?;
    remember_state(&known, &outcome, state.as_ref(), &tally);
    // A row that the kernel told may be of another moment than the digest.
    let others = changed.and_then(|changed| live_statted.and(&changed));
    if let (Some(digests), Some(others)) = (digests, others) {
        let remembered = known.remember_inodes(&outcome, &digests, &others);
        note_unless_remembered(&tally, remembered);
    }
    Ok(outcome)
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
    };
    let store = ChunkWriter::start_with(run.repository.clone(), writer)?;
    Ok(Arc::new(store))
}

/// The digest of the inode tables, for the next backup to find them unchanged.
fn remember_state(
    cache: &DigestCache,
    outcome: &Outcome,
    state: Option<&TablesState>,
    tally: &Tally<'_>,
) {
    if let Some(state) = state {
        note_unless_remembered(tally, cache.remember(outcome, state));
    }
}

/// If the image was written to during the backup: report a problem, and mark every row racy so that
/// the next backup reads everything again.
fn check_image_unmodified(guard: Option<&ImageStamp>, tally: &Tally) {
    if let Some(problem) = guard.and_then(|guard| guard.check()) {
        tally.problem(&problem);
        tally.mark_all_racy();
    }
}

/// Caches only save time: failing to write one is a note, the snapshot is complete.
fn note_unless_remembered(tally: &Tally, remembered: Result<()>) {
    if let Err(error) = remembered {
        tally.note(&format!(
            "the next backup will take longer than it could: {error}"
        ));
    }
}
