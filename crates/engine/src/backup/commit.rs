//! The end of a backup: everything it relies on is made sure of, then the snapshot is written.

use super::amendments::Amendments;
use super::compare::Scanned;
use super::index_seen::{self, MadeFor};
use super::parent::{Parent, mark_damaged};
use super::run::{BackupOptions, BackupRun, Noted, Outcome};
use super::stored_segments::StoredSegments;
use super::tally::Tally;
use crate::limits::{ALIVE_SECONDS, THIN_CHUNKS_MAX};
use crate::relied::{LOOK_BELIEVED, store_lost_again, take_back};
use crate::two_clocks::TwoClocks;
use crate::used::UsedChunks;
use bale_format::{ChunkId, ChunkKind, Entry, Layer, ObjectId, Snapshot};
use bale_pipeline::monitor::{Kept, Phase};
use bale_repository::catalog::{CatalogReader, CatalogWriter, KeyRange};
use bale_repository::error::{Error, Result};
use bale_repository::pack::{ChunkWriter, LookBegun};
use bale_repository::repository::Repository;
use bale_repository::snapshots::{SourceKey, is_in_future, remembered};
use bale_repository::store::{Area, ObjectName};
use std::sync::Arc;
use std::time::Duration;

/// A chunk of which the snapshot uses less than one part in so many is thin.
const THIN_SHARE: u64 = 4;

/// What the stages have left behind.
pub(super) struct StoredPass {
    pub(super) scanned: Scanned,
    pub(super) layers: Vec<Layer>,
    /// Rows put or removed.
    pub(super) changes: u64,
}

impl StoredPass {
    /// Everything is as in the parent. No row is looked at, and none need be: none is read either,
    /// so names of one inode agree as they did.
    pub(super) fn nothing_but(parent: &Parent, repository: &Repository) -> Result<StoredPass> {
        Ok(StoredPass {
            scanned: Scanned::new(repository.spill_dir()?, &repository.memory()),
            layers: parent.catalog.layers().to_vec(),
            changes: 0,
        })
    }
}

pub(super) fn commit(
    run: &BackupRun,
    parent: &Parent,
    written: StoredPass,
    store: &Arc<ChunkWriter>,
    tally: &Tally<'_>,
    options: &BackupOptions,
) -> Result<Outcome> {
    tally.phase(Phase::Commit);
    let repository = &run.repository;
    let begun = store.flush_before_look()?;
    let ReliedOn {
        scanned,
        layers,
        is_as_the_parent,
        looked,
        mut unlooked,
    } = make_sure(run, parent, written, (store, begun), tally, options)?;
    let snapshot = Snapshot {
        parent: parent.id,
        thin: thin_chunks(repository, &scanned)?,
        layers,
        ..counted(run, store, tally)
    };
    let noted = tally.noted();
    // A parent of other sources is no snapshot of these, an older one is not what `latest` brings
    // back, and one that was forgotten meanwhile brings back nothing.
    let nothing_new = options.skip_if_unchanged
        && is_as_the_parent
        && parent.is_newest
        && snapshot_is_there(repository, parent)?;
    if let Some(id) = parent.id.filter(|_| nothing_new && !options.dry_run) {
        note_unless_seen(tally, run, id, parent, None);
    }
    if options.dry_run || nothing_new {
        return Ok(outcome(None, snapshot, noted, store));
    }
    // Slept since (a closed lid): a store that only takes what is new would keep the snapshot.
    let is_young = looked.is_some_and(|looked| looked.is_within(LOOK_BELIEVED, repository));
    if !is_young && !has_looked_just_now(repository, parent, store) {
        let begun = std::mem::take(&mut unlooked);
        mend(repository, parent, &snapshot.layers, store, begun)?;
    }
    let id = write_and_look_again(run, parent, &snapshot, (store, unlooked), tally)?;
    Ok(outcome(Some(id), snapshot, noted, store))
}

/// What the snapshot will rely on, made sure of.
struct ReliedOn {
    scanned: Scanned,
    layers: Vec<Layer>,
    is_as_the_parent: bool,
    /// When it was looked at, unless that was at the beginning of the run.
    looked: Option<TwoClocks>,
    /// What was named since, then: the look behind the snapshot is at that, too.
    unlooked: LookBegun,
}

fn make_sure(
    run: &BackupRun,
    parent: &Parent,
    written: StoredPass,
    (store, begun): (&Arc<ChunkWriter>, LookBegun),
    tally: &Tally<'_>,
    options: &BackupOptions,
) -> Result<ReliedOn> {
    let StoredPass {
        mut scanned,
        layers,
        changes,
    } = written;
    let repository = &run.repository;
    let amendments = std::mem::replace(
        &mut scanned.amendments,
        Amendments::new(repository.spill_dir()?),
    );
    // Rows that an unfinished run stored are as in its record, and yet in no snapshot.
    let is_as_the_parent = changes == 0 && amendments.is_empty() && parent.run.is_none();
    let layers = amend(repository, layers, amendments, store, options)?;
    let (mut looked, mut unlooked) = (None, LookBegun::default());
    if !options.dry_run {
        rely_on_segments(repository, &layers, store)?;
        let found_damaged = store.packs_found_damaged();
        let begun = begun.before_marks(&found_damaged);
        mark_damaged(repository, found_damaged.iter().copied(), |text| {
            tally.note(text)
        });
        match found_damaged.is_empty() && has_looked_just_now(repository, parent, store) {
            true => unlooked = begun.afresh(),
            false => {
                mend(repository, parent, &layers, store, begun)?;
                looked = Some(TwoClocks::now(repository));
            }
        }
    }
    Ok(ReliedOn {
        scanned,
        layers,
        is_as_the_parent,
        looked,
        unlooked,
    })
}

fn outcome(id: Option<ObjectId>, snapshot: Snapshot, noted: Noted, store: &ChunkWriter) -> Outcome {
    Outcome {
        id,
        snapshot,
        noted,
        uploads: store.uploads(),
    }
}

/// The step that makes the backup visible, and what comes after it.
fn write_and_look_again(
    run: &BackupRun,
    parent: &Parent,
    snapshot: &Snapshot,
    (store, unlooked): (&Arc<ChunkWriter>, LookBegun),
    tally: &Tally<'_>,
) -> Result<ObjectId> {
    let repository = &run.repository;
    // Whether it was written may stay unknown.
    tally.monitor().kept(Kept::All);
    let id = repository.write_snapshot(snapshot)?;
    // A prune that looked before the snapshot was there may have deleted since the last look,
    // however long ago that was (a closed lid). One that looks from now on sees the snapshot.
    let chunks_before = store.written().chunks_new;
    let (listed, mended) = repository.at_once(
        || ListedAtTheEnd::if_remote(repository),
        || mend(repository, parent, &snapshot.layers, store, unlooked),
    );
    if let Err(error) = mended {
        return Err(take_back(repository, &[id], error));
    }
    remembered::made(repository, id, snapshot);
    // What was mended is in index objects that were listed too early.
    let listed = listed.filter(|_| store.written().chunks_new == chunks_before);
    note_unless_seen(tally, run, id, parent, listed.as_ref());
    if listed.is_none_or(|listed| listed.has_runs)
        && let Err(error) = remove_replaced_runs(repository, run, snapshot)
    {
        // The snapshot is there, and the next one removes them.
        tally.note(&format!("records of unfinished runs stay for now: {error}"));
    }
    Ok(id)
}

/// The draft with what the backup counted.
fn counted(run: &BackupRun, store: &ChunkWriter, tally: &Tally<'_>) -> Snapshot {
    let (withheld, withheld_more) = tally.withheld().recorded();
    Snapshot {
        withheld,
        withheld_more,
        time: run.time.unwrap_or(run.draft.time),
        finished: run.repository.clock().time(),
        filesystems: tally.filesystems_in_use(),
        totals: tally.totals(),
        counts: tally.counts(store.written()),
        transfers: store.transfers(),
        problems: tally.problems_listed(),
        ..run.draft.clone()
    }
}

/// What the end of a backup wants to know besides whether its chunks are there.
struct ListedAtTheEnd {
    index_objects: Arc<[ObjectId]>,
    has_runs: bool,
}

impl ListedAtTheEnd {
    /// From a store that is near it is had when it is wanted. So it is if something fails here.
    fn if_remote(repository: &Repository) -> Option<ListedAtTheEnd> {
        if !repository.store().is_remote() {
            return None;
        }
        let (runs, index_objects) = repository.at_once(
            || repository.list(Area::Runs),
            || index_seen::now(repository),
        );
        Some(ListedAtTheEnd {
            index_objects: index_objects.ok()?,
            has_runs: !runs.ok()?.is_empty(),
        })
    }
}

/// Did this run begin a moment ago, with packs that were listed then? Then that look is the one
/// before the snapshot, and what was stored since was there when it was; the look behind the
/// snapshot is made in any case. The index was compared with what was listed where there is a
/// parent; without one this holds only for who relies on nothing that others stored.
fn has_looked_just_now(repository: &Repository, parent: &Parent, store: &ChunkWriter) -> bool {
    let is_compared = parent.id.is_some() || !store.relies_on_others();
    is_compared && parent.run.is_none() && repository.has_listed_packs_just_now()
}

/// The index objects of today are known to the next backup.
fn note_unless_seen(
    tally: &Tally<'_>,
    run: &BackupRun,
    id: ObjectId,
    parent: &Parent,
    listed: Option<&ListedAtTheEnd>,
) {
    let (made, before) = (MadeFor::Snapshot(id), &parent.index_objects);
    let remembered = match listed {
        Some(listed) => index_seen::remember_these(run, made, before, &listed.index_objects),
        None => index_seen::remember(run, made, before),
    };
    if let Err(error) = remembered {
        tally.note(&format!(
            "the next backup will be slower, without its list of known chunks: {error}"
        ));
    }
}

/// Sets flags in rows that were written before the trouble showed.
fn amend(
    repository: &Arc<Repository>,
    layers: Vec<Layer>,
    amendments: Amendments,
    store: &Arc<ChunkWriter>,
    options: &BackupOptions,
) -> Result<Vec<Layer>> {
    if amendments.is_empty() || options.dry_run {
        return Ok(layers);
    }
    repository.reload_index_as_far_as_possible()?;
    let catalog = CatalogReader::open(repository.segment_source(), layers)?;
    let mut writer = CatalogWriter::new(catalog.clone(), StoredSegments(store.clone()));
    // In the order of the catalog, so that each segment is read once, however many there are.
    let mut rows = catalog.rows(KeyRange::all());
    let mut row: Option<Entry> = None;
    for amendment in amendments.sorted()? {
        let (key, flags) = amendment?;
        if row.as_ref().is_none_or(|row| row.key() < key) {
            rows.seek(&key);
            row = rows.next().transpose()?;
        }
        let Some(mut entry) = row.take_if(|row| row.key() == key) else {
            continue;
        };
        let before = entry.flags;
        entry.flags.set(flags);
        if entry.flags != before {
            writer.put(&entry)?;
        }
    }
    let layers = writer.finish()?.layers;
    store.flush()?;
    Ok(layers)
}

/// Segments of the parent that stay are part of the new snapshot: one that stands only where no
/// writer relies on it is stored again.
fn rely_on_segments(
    repository: &Arc<Repository>,
    layers: &[Layer],
    store: &Arc<ChunkWriter>,
) -> Result<()> {
    let segments = layers.iter().flat_map(|layer| &layer.segments);
    for id in segments.map(|segment| segment.id) {
        if !store.rely_on(&id) {
            let bytes = repository.read_chunk_uncached(&id, ChunkKind::Segment)?;
            store.store_as(ChunkKind::Segment, id, Vec::from(bytes))?;
        }
    }
    store.flush()?;
    Ok(())
}

/// A prune may have condemned, or even deleted, what this run relies on; it may be marked as
/// damaged by now. Such chunks are stored again while they can still be read; if they cannot,
/// nothing is committed.
fn mend(
    repository: &Arc<Repository>,
    parent: &Parent,
    layers: &[Layer],
    store: &Arc<ChunkWriter>,
    begun: LookBegun,
) -> Result<()> {
    let (stored_again, is_there) = repository.at_once(
        || store_lost_again(repository, store, begun, "backup"),
        || is_parent_there(repository, parent),
    );
    stored_again?;
    match is_there? {
        true => Ok(()),
        false => look_everything_up(repository, layers),
    }
}

/// Pieces of unchanged large files are relied on through their list, and segments of unchanged
/// stretches through the parent. As long as the parent exists it protects them, and so does the
/// record of an unfinished run; if either has gone meanwhile, every chunk of the new catalog is
/// looked up.
fn is_parent_there(repository: &Repository, parent: &Parent) -> Result<bool> {
    let snapshot_is_there = snapshot_is_there(repository, parent)?;
    let mut run_is_there = parent.run.is_none();
    if !run_is_there {
        repository.store().list(Area::Runs, &mut |info| {
            run_is_there |= info.name.id() == parent.run;
        })?;
    }
    Ok(snapshot_is_there && run_is_there)
}

/// The parent protects nothing any more.
fn look_everything_up(repository: &Arc<Repository>, layers: &[Layer]) -> Result<()> {
    let index = repository.reload_index_as_far_as_possible()?;
    let pruned = |why: String| {
        Error::Other(format!(
            "what this backup compared with was forgotten and pruned meanwhile ({why}): run the \
             backup again"
        ))
    };
    let used = UsedChunks::find_in_layers(repository, index.clone(), layers)
        .map_err(|error| pruned(error.to_string()))?;
    let reliable = repository.reliable_packs()?;
    for copies in used.chunks() {
        let mut packs = index.entries()[copies]
            .iter()
            .map(|place| index.pack(place.pack).id);
        let pack = packs.next().expect("a chunk in use has a copy");
        if !reliable.contains(&pack) && !packs.any(|other| reliable.contains(&other)) {
            return Err(pruned(format!("pack {}", pack.short())));
        }
    }
    Ok(())
}

/// Did nobody forget the snapshot that was compared with, if there was one?
fn snapshot_is_there(repository: &Repository, parent: &Parent) -> Result<bool> {
    Ok(match parent.id {
        Some(id) => {
            let name = ObjectName::snapshot(id);
            repository.store().stat(&name)?.is_some()
        }
        None => true,
    })
}

/// Bundles that kept rows use little of: their files are stored afresh by the next backup, so that
/// old chunks die.
fn thin_chunks(repository: &Repository, scanned: &Scanned) -> Result<Vec<ChunkId>> {
    let index = repository.index()?;
    let is_thin = |id: &ChunkId, live: u64| {
        index.any(id).is_some_and(|place| {
            live.saturating_mul(THIN_SHARE) < u64::from(place.chunk.plain_bytes)
        })
    };
    let mut thin: Vec<ChunkId> = scanned
        .live
        .iter()
        .filter(|(id, live)| is_thin(id, **live))
        .map(|(id, _)| *id)
        .collect();
    thin.sort();
    thin.truncate(THIN_CHUNKS_MAX);
    Ok(thin)
}

/// Unfinished runs of the same host and sources have served, but for those that another process
/// goes on with: their signs of life hold prunes off, and their records are what they would go on
/// from.
fn remove_replaced_runs(
    repository: &Repository,
    run: &BackupRun,
    snapshot: &Snapshot,
) -> Result<()> {
    let mut alive = repository.runs_alive(Duration::from_secs(ALIVE_SECONDS))?;
    alive.remove(&run.id);
    let (runs, _) = repository.runs_readable()?;
    let (key, now) = (SourceKey::of(snapshot), repository.clock().time());
    let replaced: Vec<ObjectId> = runs
        .iter()
        .filter(|(_, run)| {
            // One that is dated in the future would stay for ever, and all that it names.
            let is_past = run.time <= snapshot.time || is_in_future(run, now);
            is_past && key.may_be(&SourceKey::of(run))
        })
        .map(|(id, _)| *id)
        .collect();
    for info in repository.list(Area::Runs)? {
        let is_alive = info.name.run_id().is_some_and(|id| alive.contains(&id));
        let is_replaced = info.name.id().is_some_and(|id| replaced.contains(&id));
        if is_replaced && !is_alive {
            repository.store().delete(&info.name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::memory_repository::repository;
    use bale_format::{EntryFlags, Key, Kind};

    /// More than were once kept in memory (issue 13, 10).
    const DIRECTORIES: usize = 70_000;

    #[test]
    fn every_directory_that_could_not_be_listed_says_so_in_the_catalog_however_many() {
        let cache = tempfile::tempdir().unwrap();
        let repository = repository(cache.path());
        let store =
            Arc::new(ChunkWriter::start(repository.clone(), Default::default(), false).unwrap());
        let none = CatalogReader::open(repository.segment_source(), Vec::new()).unwrap();
        let mut writer = CatalogWriter::new(none, StoredSegments(store.clone()));
        let mut amendments = Amendments::new(cache.path().to_owned());
        let mut sounds = Vec::new();
        for number in 0..DIRECTORIES {
            let name = format!("directory {number:05}");
            let entry = Entry::new("unlisted".into(), name.into(), Kind::Directory);
            writer.put(&entry).unwrap();
            let key = Key::of_path(&entry.path());
            amendments.add(&key, EntryFlags::UNREADABLE).unwrap();
            let missing = Key::of_path(&[&entry.path()[..], b" that vanished"].concat());
            amendments.add(&missing, EntryFlags::UNREADABLE).unwrap();
            let sound = Entry::new(
                "unlisted".into(),
                format!("listed {number}").into(),
                Kind::File,
            );
            sounds.push(sound);
        }
        sounds.sort_by_key(Entry::key);
        sounds.iter().for_each(|sound| writer.put(sound).unwrap());
        let layers = writer.finish().unwrap().layers;
        store.flush().unwrap();
        let options = BackupOptions::default();
        let layers = amend(&repository, layers, amendments, &store, &options).unwrap();
        repository.reload_index().unwrap();
        let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
        let rows = catalog
            .subtree(b"unlisted")
            .unwrap()
            .map(|row| row.unwrap());
        let (flagged, others): (Vec<_>, Vec<_>) =
            rows.partition(|row| row.flags.has(EntryFlags::UNREADABLE));
        assert_eq!((flagged.len(), others.len()), (DIRECTORIES, DIRECTORIES));
        assert!(flagged.iter().all(|row| row.kind == Kind::Directory));
    }
}
