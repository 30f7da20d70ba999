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

mod amendments;
mod bundle;
mod checkpoint;
mod choose;
mod commit;
mod compare;
mod content;
mod emptied;
mod expect;
mod heartbeat;
mod index_seen;
mod known;
mod large;
mod links;
mod parent;
mod pass;
mod queue;
mod recount;
mod rows;
mod rule;
mod run;
mod second;
mod seen;
mod tally;
mod withheld;

pub use run::{BackupOptions, Noted, Outcome};

use crate::error::{Error, Result, with_causes};
use crate::limits::CHECKPOINT_SECONDS;
use crate::monitor::Monitor;
use crate::pack::{ChunkWriter, WriterOptions};
use crate::repository::Repository;
use crate::scan::{self, Guard, ScanOptions, Sources};
use bale_format::Access;
use commit::Written;
use heartbeat::Heartbeat;
use known::KnownState;
use parent::Parent;
use pass::Pass;
use run::Run;
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
    let run = Run::begin(repository, sources, scan.mode, options)?;
    let emptied = emptied::problems(&run, sources)?;
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
                // The damage is told, and costs time instead of the backup: another parent, or none.
                monitor.note(&format!(
                    "the catalog to compare with is damaged ({}): beginning again without it (bale check tells what is lost)",
                    with_causes(&error)
                ));
                repository.reload_index_as_far_as_possible()?;
            }
            done => return done,
        }
    }
}

fn scan_and_store(
    run: &Run,
    parent: &Parent,
    sources: &Sources,
    scan: ScanOptions,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let known = KnownState::of(run, &scan)?;
    let scan = ScanOptions {
        known: known.recall(parent).filter(|_| !options.force),
        known_inodes: known.recall_inodes(parent).filter(|_| !options.force),
        entries_before: parent.entries(),
        inode_key: known.inode_key(),
        ..scan
    };
    let mut scan = scan::choose(sources, scan, monitor)?;
    let expected = scan.expected;
    let expected = expected.unwrap_or_else(|| expect::totals(parent, sources));
    let tally = Tally::new(monitor, parent, expected);
    for problem in &options.not_found {
        let path = problem.path.strip_prefix(b"/").unwrap_or(&problem.path);
        tally.tell_problem(path, problem.action, problem.text.clone());
    }
    let writer = WriterOptions {
        thin: parent.thin.clone(),
        dry_run: options.dry_run,
        verify: options.force,
    };
    let store = Arc::new(ChunkWriter::start_with(run.repository.clone(), writer)?);
    let (guard, mounted) = (scan.guard(), scan.mounted());
    if let Some(filesystem) = scan.as_known {
        tally.all_kept(filesystem, parent);
        look_after(guard.as_ref(), &tally);
        let written = Written::nothing_but(parent, &run.repository)?;
        let outcome = commit::commit(run, parent, written, &store, &tally, options)?;
        if let Some(state) = scan.state {
            note_unless_kept(&tally, known.remember(&outcome, &state));
        }
        note_unless_kept(&tally, known.pass_inodes_on(parent, &outcome));
        return Ok(outcome);
    }
    let pass = Pass {
        run,
        parent,
        store: &store,
        tally: &tally,
        remembers: scan.digests.is_some() && !options.dry_run,
        guard: guard.as_ref(),
        // What was read of a mounted device is not certain before it was looked at again: nothing to go on from.
        original: None,
        checkpoint_every: (mounted.is_none() && !options.dry_run)
            .then_some(options.checkpoint_every),
    };
    // With nothing to compare with, everything will be read.
    let arranged = scan.arranged().filter(|_| !parent.knows_anything());
    let mounted = mounted.filter(|_| !options.dry_run);
    if mounted.is_some() {
        tally.hold_reading_problems();
    }
    let first = pass.run(scan.items, arranged);
    if first.is_err() {
        tally.tell_held();
    }
    let mut written = first?;
    look_after(guard.as_ref(), &tally);
    let (mut state, digests) = (scan.state, scan.digests);
    let mut changed = Some(Arc::default());
    if let Some(mounted) = mounted {
        let looked = second::look_again(&pass, written, mounted, sources)?;
        changed = looked.changed;
        let was_still = changed.as_ref().is_some_and(|changed| changed.is_empty());
        state = state.filter(|_| was_still);
        written = looked.written;
    }
    let asked = std::mem::take(&mut written.scanned.asked);
    let outcome = commit::commit(run, parent, written, &store, &tally, options)?;
    if let Some(state) = state {
        note_unless_kept(&tally, known.remember(&outcome, &state));
    }
    // A row that the kernel told may be of another moment than the digest.
    let others = changed.and_then(|changed| asked.and(&changed));
    if let (Some(digests), Some(others)) = (digests, others) {
        let kept = known.remember_inodes(&outcome, &digests, &others);
        note_unless_kept(&tally, kept);
    }
    Ok(outcome)
}

/// An image that was written to while it was read: it is told, and nothing that was read of it is settled.
fn look_after(guard: Option<&Guard>, tally: &Tally) {
    if let Some(problem) = guard.and_then(|guard| guard.check()) {
        tally.problem(&problem);
        tally.doubt_all();
    }
}

/// What is kept for the next backup saves time, and no more than that; this one is complete.
fn note_unless_kept(tally: &Tally, kept: Result<()>) {
    if let Err(error) = kept {
        tally.note(&format!(
            "the next backup will take longer than it could: {error}"
        ));
    }
}
