//! A backup: scan, compare, read, pack, store, commit.
//!
//! ```text
//! scan ──▶ compare ─────▶ read ──────▶ pack ─────────▶ store
//! walk     merge with     small files  bundles and     encode, seal,
//!          the parent     in order     pieces; rows    publish
//! ```
//!
//! Scanning and comparing run in one thread, packing in another; between them is one bounded queue of items, and the
//! readers' window. Encoding runs in threads of its own. The last write is the snapshot: before it, this run is invisible.

mod bundle;
mod checkpoint;
mod commit;
mod compare;
mod content;
mod expect;
mod large;
mod links;
mod parent;
mod rows;
mod run;
mod seen;
mod tally;

pub use run::{BackupOptions, Outcome};

use crate::catalog::CatalogWriter;
use crate::error::{Error, Result};
use crate::limits::ITEMS_QUEUED_MAX;
use crate::monitor::Monitor;
use crate::pack::ChunkWriter;
use crate::read::SmallReader;
use crate::repository::Repository;
use crate::scan::{self, ScanOptions, Sources};
use bale_format::Access;
use checkpoint::Checkpoints;
use compare::Comparer;
use crossbeam_channel::bounded;
use parent::Parent;
use rows::{RowWriter, Segments};
use run::Run;
use std::collections::HashSet;
use std::sync::Arc;
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
    let run = Run::begin(repository, sources, options)?;
    let mut unreadable = HashSet::new();
    loop {
        let parent = Parent::find(repository, &run, options, &unreadable, monitor)?;
        let done = compare_and_store(&run, &parent, sources, scan.clone(), options, monitor);
        match done {
            Err(Error::Catalog(error)) if parent.is_unreadable(&error, &mut unreadable) => {
                // The damage is told, and costs time instead of the backup: another parent, or none.
                monitor.note(&format!(
                    "the catalog to compare with is damaged ({error}): beginning again without it (bale check tells what is lost)"
                ));
                repository.reload_index_as_far_as_possible()?;
            }
            done => return done,
        }
    }
}

fn compare_and_store(
    run: &Run,
    parent: &Parent,
    sources: &Sources,
    scan: ScanOptions,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let repository = &run.repository;
    let mut scan = scan::choose(sources, scan, monitor)?;
    let expected = scan
        .expected
        .unwrap_or_else(|| expect::totals(parent, sources));
    let tally = Tally::new(monitor, parent, expected);
    for problem in &options.not_found {
        let path = problem.path.strip_prefix(b"/").unwrap_or(&problem.path);
        tally.tell_problem(path, problem.action, problem.text.clone());
    }
    let store = Arc::new(ChunkWriter::start(
        repository.clone(),
        parent.thin.clone(),
        options.dry_run,
    )?);
    let guard = scan.guard();
    // With nothing to compare with, everything will be read.
    let arranged = scan.arranged().filter(|_| !parent.knows_anything());
    let reader = SmallReader::start(None).with_arranged(arranged);
    let (items, queue) = bounded(ITEMS_QUEUED_MAX);
    let comparer = Comparer::new(parent, &store, &reader, &tally);
    let catalog = CatalogWriter::new(parent.catalog.clone(), Segments(store.clone()));
    let mut rows = RowWriter::new(&store, catalog, &reader, &tally, run.sources());
    let mut checkpoints = Checkpoints::new(run, &store, &tally, options.checkpoint_every);

    let (compared, written) = std::thread::scope(|scope| {
        let comparing = scope.spawn(|| comparer.compare(scan.items, items));
        let written = rows.write_all(queue, |rows| match options.dry_run {
            true => Ok(()),
            false => checkpoints.when_due(rows),
        });
        reader.stop();
        let compared = comparing
            .join()
            .map_err(|_| Error::Other("comparing ended by a defect".to_owned()));
        (compared.and_then(|compared| compared), written)
    });
    if matches!(written, Err(Error::Interrupted)) || matches!(compared, Err(Error::Interrupted)) {
        // What is finished is kept, so that the next run need not begin anew.
        checkpoints.write_last(&mut rows)?;
        return Err(Error::Interrupted);
    }
    written?;
    let scanned = compared?;
    if let Some(problem) = guard.and_then(|guard| guard.check()) {
        tally.problem(&problem);
    }
    let changes = rows.changes();
    let layers = rows.finish()?;
    let written = commit::Written {
        scanned,
        layers,
        changes,
    };
    commit::commit(run, parent, written, &store, &tally, options)
}
