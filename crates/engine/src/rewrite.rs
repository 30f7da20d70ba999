//! `rewrite`: snapshots without what should not be in them.
//!
//! Rows that match are taken out of every layer, so that nothing points at their content any more.
//! Small files share chunks with others: bundles that hold something that was excluded are stored
//! again with zeros in its place, under another id and at the same offsets, and rows that stay
//! point at those. What is then used by nothing is for a prune. Each changed snapshot gets a
//! successor; the old one goes on request, once the new one is written and everything that was
//! stored for it was read back.
//!
//! ```text
//! segments of all snapshots ──▶ rows that match ──▶ bundles that hold them
//!                                                        │ who else points at these?
//! new snapshots ◀── new segments ◀── new bundles ◀───────┘
//! ```
//!
//! In memory: 48 bytes for each distinct segment, 64 for each bundle that holds something that was
//! excluded, 48 for each excluded content, of the first million; what stays of the bundles is
//! sorted on disk.

mod bundles;
mod catalogs;
mod excluded;
mod look;
mod other_names;

use crate::heartbeat::Heartbeat;
use crate::relied::{store_lost_again, take_back};
use crate::replace::{remove_replaced, write_beside};
use bale_format::snapshot::Totals;
use bale_format::{Access, ChunkKind, ObjectId, Snapshot};
use bale_pipeline::filter::Filter;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::pack::{ChunkWriter, LookBegun, WriterOptions};
use bale_repository::repository::{Named, Repository};
use bundles::NewBundles;
use catalogs::NewCatalogs;
use excluded::Excluded;
use look::Look;
pub use other_names::{OTHER_NAMES_MAX, OtherNames};
use std::collections::HashMap;
use std::sync::Arc;

/// How to rewrite.
pub struct RewriteOptions {
    /// What goes: its patterns alone count.
    pub filter: Filter,
    /// The same as the record of a snapshot has it.
    pub patterns: Vec<String>,
    /// Remove the old snapshots.
    pub forget: bool,
    /// Change nothing.
    pub dry_run: bool,
    /// Recorded host name of who rewrites, while it does.
    pub host: String,
    /// Recorded program and version of the same.
    pub program: String,
}

/// What became of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotFate {
    /// The id of its successor.
    Rewritten(ObjectId),
    /// A dry run would rewrite it.
    WouldRewrite,
    /// Nothing in it matches, and it shares no bundle with what does.
    Unchanged,
    /// It matches in what an image holds, whose blocks stay: nothing was changed.
    HoldsImages,
}

/// One of the snapshots that were chosen.
#[derive(Clone, Debug)]
pub struct RewrittenSnapshot {
    /// Its id before.
    pub old: ObjectId,
    pub fate: SnapshotFate,
    /// What was, or would be, taken out of it.
    pub excluded: Totals,
}

/// What a rewrite has done.
#[derive(Clone, Debug, Default)]
pub struct Rewritten {
    /// In the order in which they were given.
    pub snapshots: Vec<RewrittenSnapshot>,
    /// Bundles that were, or would be, stored again without what was excluded.
    pub bundles: u64,
    /// Bundles that cannot be read: they stay as they are, and what points at them does.
    pub bundles_unreadable: u64,
    pub bytes_stored: u64,
    /// The old snapshots are gone. They stay, whatever was asked for, while a bundle cannot be
    /// read: they are what it can be found by.
    pub is_old_removed: bool,
    /// Snapshots and unfinished runs that hold some of it still, and were not chosen or hold
    /// images.
    pub held_by: Vec<ObjectId>,
    /// Names, of all these snapshots, that do not match and have some of it still.
    pub other_names: OtherNames,
}

/// Rewrites snapshots; `others` are all other snapshots and unfinished runs, which may hold the
/// same.
pub fn rewrite(
    repository: &Arc<Repository>,
    chosen: &[Named],
    others: &[Named],
    options: &RewriteOptions,
    monitor: &dyn Monitor,
) -> Result<Rewritten> {
    repository.check_access(Access::Read)?;
    if !options.dry_run {
        repository.check_access(Access::Write)?;
    }
    if options.forget {
        repository.check_access(Access::Delete)?;
    }
    let excluded = Excluded::new(&options.filter);
    excluded.refuse_sources(chosen)?;
    let look = Look::at(repository, (chosen, others), excluded.clone(), monitor)?;
    let mut rewritten = Rewritten {
        snapshots: Vec::new(),
        bundles: look.tainted() as u64,
        held_by: look.held_by(chosen, others),
        other_names: look.other_names(),
        ..Rewritten::default()
    };
    for (id, snapshot) in chosen {
        rewritten.snapshots.push(RewrittenSnapshot {
            old: *id,
            fate: match (look.is_concerned(snapshot), snapshot.images.is_empty()) {
                (false, _) => SnapshotFate::Unchanged,
                (true, true) => SnapshotFate::WouldRewrite,
                (true, false) => SnapshotFate::HoldsImages,
            },
            excluded: look.excluded_of(repository, snapshot, excluded.clone())?,
        });
    }
    let is_wanted = |one: &&RewrittenSnapshot| one.fate == SnapshotFate::WouldRewrite;
    if !options.dry_run && rewritten.snapshots.iter().any(|one| is_wanted(&one)) {
        store(
            repository,
            chosen,
            (&look, excluded),
            options,
            &mut rewritten,
            monitor,
        )?;
    }
    Ok(rewritten)
}

/// Stores what is new, reads it back, and writes the successors.
fn store(
    repository: &Arc<Repository>,
    chosen: &[Named],
    (look, excluded): (&Look, Excluded<'_>),
    options: &RewriteOptions,
    rewritten: &mut Rewritten,
    monitor: &dyn Monitor,
) -> Result<()> {
    let _signs_until_the_end =
        Heartbeat::of_operation(repository, &options.host, &options.program)?;
    let writer = ChunkWriter::start_with(repository.clone(), WriterOptions::default())?;
    let writer = Arc::new(writer);
    let wanted: Vec<&Named> = (chosen.iter().zip(&rewritten.snapshots))
        .filter(|(_, one)| one.fate == SnapshotFate::WouldRewrite)
        .map(|(named, _)| named)
        .collect();
    let (done, wanted): (Vec<_>, Vec<_>) = wanted
        .into_iter()
        .map(|named| (named, successor_of(&named.0, chosen, look)))
        .partition(|(_, successor)| successor.is_some());
    let wanted: Vec<&Named> = wanted.into_iter().map(|(named, _)| named).collect();
    let bundles = NewBundles::store(look, &wanted, excluded.clone(), &writer, monitor)?;
    rewritten.bundles = bundles.stored();
    rewritten.bundles_unreadable = bundles.unreadable();
    let catalogs = NewCatalogs::store(
        look,
        &wanted,
        (excluded.clone(), &bundles),
        &writer,
        monitor,
    )?;
    writer.flush()?;
    repository.reload_index_as_far_as_possible()?;
    for (kind, id) in bundles.made().chain(catalogs.made()) {
        read_back(repository, kind, &id)?;
    }
    let mut successors = commit(
        repository,
        &wanted,
        (&catalogs, &bundles),
        (excluded, options),
        rewritten,
    )?;
    // A prune that looked before the snapshots were there may have deleted since the last look.
    if let Err(error) = store_lost_again(repository, &writer, LookBegun::default(), "rewrite") {
        let ids: Vec<ObjectId> = successors.values().copied().collect();
        return Err(take_back(repository, &ids, error));
    }
    let done = done
        .into_iter()
        .filter_map(|(named, successor)| Some((named.0, successor?)));
    successors.extend(done);
    for one in &mut rewritten.snapshots {
        if let Some(id) = successors.get(&one.old) {
            one.fate = SnapshotFate::Rewritten(*id);
        }
    }
    rewritten.bytes_stored = writer.written().bytes_stored;
    rewritten.is_old_removed = options.forget && bundles.unreadable() == 0;
    if rewritten.is_old_removed {
        for (old, new) in &successors {
            remove_replaced(repository, *old, *new)?;
        }
    }
    Ok(())
}

/// What a run that was killed, or did not forget, has put in the place of a snapshot already.
fn successor_of(id: &ObjectId, chosen: &[Named], look: &Look) -> Option<ObjectId> {
    let is_it =
        |(_, other): &&Named| other.replaces.last() == Some(id) && !look.is_concerned(other);
    chosen.iter().find(is_it).map(|(id, _)| *id)
}

fn read_back(repository: &Repository, kind: ChunkKind, id: &bale_format::ChunkId) -> Result<()> {
    repository.read_chunk_uncached(id, kind).map(drop).map_err(|error| {
        Error::Other(format!(
            "what was stored for the rewritten snapshots does not read back, and none was written: \
             {error}"
        ))
    })
}

/// The successors, the oldest first, so that each is compared with the successor of its parent.
fn commit(
    repository: &Arc<Repository>,
    wanted: &[&Named],
    (catalogs, bundles): (&NewCatalogs, &NewBundles),
    (excluded, options): (Excluded<'_>, &RewriteOptions),
    rewritten: &Rewritten,
) -> Result<HashMap<ObjectId, ObjectId>> {
    let mut in_order: Vec<&&Named> = wanted.iter().collect();
    in_order.sort_by_key(|(id, snapshot)| (snapshot.time, *id));
    let mut successors = HashMap::new();
    for named in in_order {
        let (id, old) = named;
        let taken = rewritten.snapshots.iter().find(|one| one.old == *id);
        let new = Snapshot {
            parent: (old.parent).map(|parent| *successors.get(&parent).unwrap_or(&parent)),
            excludes: with_patterns(&old.excludes, &options.patterns),
            totals: taken.map_or(old.totals, |one| less(&old.totals, &one.excluded)),
            thin: (old.thin.iter().copied())
                .filter(|chunk| !bundles.replaces(chunk))
                .collect(),
            problems: (old.problems.iter())
                .filter(|problem| !excluded.clone().excludes_path(&problem.path.0))
                .cloned()
                .collect(),
            withheld: (old.withheld.iter())
                .filter(|path| !excluded.clone().excludes_path(&path.0))
                .cloned()
                .collect(),
            layers: catalogs.layers_of(repository, old, excluded.clone())?,
            ..old.clone()
        };
        successors.insert(*id, write_beside(repository, named, new)?);
    }
    Ok(successors)
}

/// A restore that deletes leaves what the patterns match, as if a backup had left it out.
fn with_patterns(before: &[String], patterns: &[String]) -> Vec<String> {
    let is_new = |pattern: &&String| !before.contains(pattern);
    before
        .iter()
        .chain(patterns.iter().filter(is_new))
        .cloned()
        .collect()
}

fn less(all: &Totals, gone: &Totals) -> Totals {
    Totals {
        files: all.files.saturating_sub(gone.files),
        dirs: all.dirs.saturating_sub(gone.dirs),
        others: all.others.saturating_sub(gone.others),
        bytes: all.bytes.saturating_sub(gone.bytes),
        hard_links: all.hard_links.saturating_sub(gone.hard_links),
    }
}
