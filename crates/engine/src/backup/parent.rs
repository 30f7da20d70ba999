//! What a backup compares with: the newest snapshot of the same host and sources, and whatever an
//! unfinished run of the same sources has finished since.

use super::choose::{Choice, choose};
use super::left_out_paths::Withheld;
use super::run::{BackupOptions, BackupRun};
use super::{index_seen, rule};
use bale_format::snapshot::{Filesystem, ImageRecord, Totals};
use bale_format::{
    ChunkId, ChunkKind, ChunkPlace, Key, Layer, ObjectId, PackNumber, RowView, Time,
};
use bale_pipeline::amount::counted;
use bale_pipeline::monitor::Monitor;
use bale_repository::catalog::{CatalogError, CatalogReader, ParentRow, splice};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use std::collections::HashSet;
use std::sync::Arc;

/// After so many unreadable segments there is no more looking for a catalog to compare with.
const UNREADABLE_MAX: usize = 3;

/// The snapshot to compare with.
pub(super) struct Parent {
    /// Recorded in the new snapshot.
    pub(super) id: Option<ObjectId>,
    /// Record of the unfinished run that is gone on from.
    pub(super) run: Option<ObjectId>,
    /// It is a snapshot of the same host and sources, and there is no newer one.
    pub(super) is_newest: bool,
    pub(super) totals: Totals,
    pub(super) filesystems: Vec<Filesystem>,
    /// Of the finished snapshot.
    pub(super) images: Vec<ImageRecord>,
    /// Its rows say when entries were last accessed.
    pub(super) atimes: bool,
    /// Chunks whose files are to be stored afresh.
    pub(super) thin: HashSet<ChunkId>,
    /// Piece lists are followed to their chunks: the index and the packs do not agree, so chunks
    /// may be missing.
    pub(super) thorough: bool,
    /// Of the finished snapshot.
    pub(super) withheld: Withheld,
    /// Excludes that the finished snapshot was made with, as given.
    pub(super) excludes: Vec<String>,
    pub(super) catalog: CatalogReader,
    /// Index objects that were there when the run began, sorted.
    pub(super) index_objects: Arc<[ObjectId]>,
    /// Barrier of each file system, of the finished parent.
    barriers: Vec<Option<Time>>,
    /// Rows before this key are of an unfinished run, with barriers of their own.
    resumed: Option<(Key, Vec<Option<Time>>)>,
    /// Inodes that changed during the first pass, sorted: their rows are never reused, whatever
    /// their times say. A defragmenter moves a file without changing a time, and what was read from
    /// its old place may be another file's.
    changed_during_scan: Arc<Vec<u64>>,
    /// It is what this very run stored before.
    pub(super) is_first_pass: bool,
}

impl Parent {
    pub(super) fn find(
        repository: &Arc<Repository>,
        run: &BackupRun,
        options: &BackupOptions,
        unreadable: &HashSet<ChunkId>,
        monitor: &dyn Monitor,
    ) -> Result<Parent> {
        // Before the index is looked at: one that goes meanwhile is missed the next time.
        let index_objects = index_seen::at_first(repository)?;
        let Gaps {
            thorough,
            missing,
            suspect,
            gone,
        } = find_gaps(repository, unreadable)?;
        // A later look has nothing new to tell.
        if gone > 0 && unreadable.is_empty() {
            note_gone(gone, monitor);
        }
        if !options.dry_run {
            mark_damaged(repository, suspect, |text| monitor.note(text));
        }
        if options.force || unreadable.len() >= UNREADABLE_MAX {
            return Ok(Parent {
                thorough,
                index_objects,
                ..Parent::none()
            });
        }
        let is_readable = |named: &Named| !needs(&named.1.layers, unreadable);
        let Choice {
            finished,
            is_newest,
            unfinished,
        } = choose(repository, run, options, &is_readable, &|text| {
            // A later look has nothing new to tell.
            if unreadable.is_empty() {
                monitor.note(text);
            }
        })?;
        if let Some((_, snapshot)) = &unfinished {
            monitor.note(&format!(
                "going on from an unfinished run, which has stored {}",
                counted(snapshot.totals.files, "file")
            ));
        }
        let (mut parent, layers) = Parent::combine(finished, unfinished);
        parent.is_newest = is_newest;
        parent.index_objects = index_objects.clone();
        let thorough = thorough || index_seen::may_have_lost_some(run, &parent);
        parent.thorough = thorough;
        if thorough && !catalog_can_be_read(repository, &layers, &missing)? {
            monitor.note(
                "the catalog to compare with is damaged: everything is read again (bale check \
                 tells what is lost; if it is the index, bale repair index brings it back)",
            );
            return Ok(Parent {
                thorough,
                index_objects,
                ..Parent::none()
            });
        }
        let open = CatalogReader::open(repository.segment_source(), layers);
        parent.catalog =
            open.map_err(|error| Error::Other(format!("open the parent's catalog: {error}")))?;
        Ok(parent)
    }

    /// When a file system was read for it, by its number in rows: what was born later is in none.
    pub(super) fn barrier(&self, filesystem: u32) -> Option<Time> {
        let of = |barriers: &[Option<Time>]| barriers.get(filesystem as usize).copied().flatten();
        let resumed = self.resumed.as_ref();
        of(&self.barriers).or_else(|| of(&resumed?.1))
    }

    pub(super) fn none() -> Parent {
        Parent {
            id: None,
            run: None,
            is_newest: false,
            totals: Totals::default(),
            filesystems: Vec::new(),
            images: Vec::new(),
            atimes: false,
            thin: HashSet::new(),
            thorough: false,
            withheld: Withheld::default(),
            excludes: Vec::new(),
            catalog: CatalogReader::empty(),
            index_objects: Arc::default(),
            barriers: Vec::new(),
            resumed: None,
            changed_during_scan: Arc::default(),
            is_first_pass: false,
        }
    }

    fn combine(finished: Option<Named>, unfinished: Option<Named>) -> (Parent, Vec<Layer>) {
        let mut parent = Parent::none();
        let mut layers = Vec::new();
        if let Some((id, snapshot)) = finished {
            parent.id = Some(id);
            parent.totals = snapshot.totals;
            parent.withheld = Withheld::of(&snapshot);
            parent.thin = snapshot.thin.into_iter().collect();
            parent.barriers = barriers(&snapshot.filesystems);
            parent.images = snapshot.images;
            parent.excludes = snapshot.excludes;
            parent.atimes = snapshot.atimes;
            parent.filesystems = snapshot.filesystems;
            layers = snapshot.layers;
        }
        if let Some((id, run)) = unfinished {
            parent.run = Some(id);
            let until = run
                .until
                .expect("only runs that say how far they came are gone on from");
            layers = splice(&run.layers, &layers, &until);
            parent.resumed = Some((until, barriers(&run.filesystems)));
            parent.totals.files = parent.totals.files.max(run.totals.files);
            parent.filesystems = run.filesystems;
        }
        (parent, layers)
    }

    /// False for a first backup.
    pub(super) fn has_entries(&self) -> bool {
        self.id.is_some() || self.run.is_some()
    }

    /// Rows of it, about.
    pub(super) fn entries(&self) -> u64 {
        let Totals {
            files,
            dirs,
            others,
            ..
        } = self.totals;
        files.saturating_add(dirs).saturating_add(others)
    }

    /// True if every row may be reused without looking: finished, index and packs agree, nothing is
    /// thin.
    pub(super) fn is_reusable_whole(&self) -> bool {
        self.run.is_none() && !self.thorough && self.thin.is_empty()
    }

    /// What the first pass of a run stored, for a second pass to compare with. Rows are trusted but
    /// for those of the inodes that `changed` while they were read (sorted); none is if that is not
    /// known.
    pub(super) fn after(
        &self,
        repository: &Arc<Repository>,
        filesystems: Vec<Filesystem>,
        layers: Vec<Layer>,
        changed: Option<&Arc<Vec<u64>>>,
    ) -> Result<Parent> {
        let mut barriers = barriers(&filesystems);
        if changed.is_none() {
            barriers.fill(None);
        }
        Ok(Parent {
            id: self.id,
            run: self.run,
            is_newest: self.is_newest,
            totals: self.totals,
            filesystems,
            images: self.images.clone(),
            atimes: self.atimes,
            thin: self.thin.clone(),
            thorough: self.thorough,
            withheld: self.withheld.clone(),
            excludes: self.excludes.clone(),
            catalog: CatalogReader::open(repository.segment_source(), layers)?,
            index_objects: self.index_objects.clone(),
            barriers,
            resumed: None,
            changed_during_scan: changed.cloned().unwrap_or_default(),
            is_first_pass: true,
        })
    }

    /// Is this error about a segment of the parent's catalog? Then it joins the others.
    pub(super) fn is_unreadable(
        &self,
        error: &CatalogError,
        unreadable: &mut HashSet<ChunkId>,
    ) -> bool {
        let id = error.unreadable_segment();
        id.is_some_and(|id| {
            needs(self.catalog.layers(), &HashSet::from([id])) && unreadable.insert(id)
        })
    }

    /// Not racy: no change after its row was made can have left these times.
    pub(super) fn is_not_racy(&self, row: ParentRow, old: &RowView) -> bool {
        let barriers = match &self.resumed {
            Some((until, barriers)) if row.key() < *until => barriers,
            _ => &self.barriers,
        };
        let barrier = barriers.get(old.filesystem as usize).copied().flatten();
        rule::is_not_racy(old.ctime, barrier)
            && self.changed_during_scan.binary_search(&old.inode).is_err()
    }
}

/// Are some of these segments part of the catalog?
fn needs(layers: &[Layer], segments: &HashSet<ChunkId>) -> bool {
    let mut all = layers.iter().flat_map(|layer| &layer.segments);
    !segments.is_empty() && all.any(|segment| segments.contains(&segment.id))
}

fn barriers(filesystems: &[Filesystem]) -> Vec<Option<Time>> {
    filesystems
        .iter()
        .map(|filesystem| filesystem.barrier)
        .collect()
}

/// How far the index and the packs in the store agree.
struct Gaps {
    /// They do not: condemned or damaged packs, packs that no index names, missing ones, or index
    /// objects that cannot be read.
    thorough: bool,
    /// Packs that the index names and the store does not have whole, or not undamaged.
    missing: HashSet<ObjectId>,
    /// Those of them that are there: a segment in them cannot be read.
    suspect: HashSet<ObjectId>,
    /// How many are not there at all, and were to stay.
    gone: u64,
}

/// This backup stores again what it needs of them; older snapshots may need more.
fn note_gone(gone: u64, monitor: &dyn Monitor) {
    monitor.note(&format!(
        "{} that the index names {} not in the repository: this backup does without; what older \
         snapshots have nowhere else is lost (`bale check` says what)",
        counted(gone, "pack"),
        if gone == 1 { "is" } else { "are" },
    ));
}

/// Compares the index with the packs. If they agree, a chunk that a row points at is there together
/// with all that were stored before it. Missing packs are not relied on: what they held is stored
/// again. Nor are packs with an unreadable segment: what a pack holds is suspect once one chunk of
/// it is damaged.
fn find_gaps(repository: &Repository, unreadable: &HashSet<ChunkId>) -> Result<Gaps> {
    let index = repository.index()?;
    let (mut whole, mut listed) = (HashSet::new(), HashSet::new());
    let mut unlisted = 0;
    repository.list_packs_first(&mut |info| {
        let number = info.name.id().and_then(|id| index.pack_number(&id));
        listed.extend(number);
        match number.map(|number| index.pack(number)) {
            Some(pack) if pack.len == info.len => {
                unlisted += u64::from(!pack.is_reliable());
                whole.insert(pack.id);
            }
            _ => unlisted += 1,
        }
    })?;
    let named = index.packs().iter().map(|pack| pack.id);
    let mut missing: HashSet<ObjectId> = named.filter(|id| !whole.contains(id)).collect();
    // A prune takes away what was condemned.
    let numbered = (0..).map(PackNumber).zip(index.packs());
    let gone = numbered
        .filter(|(number, pack)| !pack.condemned && !listed.contains(number))
        .count() as u64;
    let suspect = unreadable.iter().flat_map(|id| index.copies(id));
    let suspect: HashSet<ObjectId> = suspect
        .map(|place| index.pack(place.pack).id)
        .filter(|id| whole.contains(id))
        .collect();
    missing.extend(&suspect);
    if !missing.is_empty() {
        repository.do_without(&missing)?;
    }
    Ok(Gaps {
        thorough: unlisted > 0 || !missing.is_empty() || !index.is_all(),
        missing,
        suspect,
        gone,
    })
}

/// Is every segment in a pack that lasts, or can it be read where else it is? The end of the backup
/// stores the latter again.
fn catalog_can_be_read(
    repository: &Repository,
    layers: &[Layer],
    missing: &HashSet<ObjectId>,
) -> Result<bool> {
    let index = repository.index()?;
    let opens = |place: &ChunkPlace| {
        !missing.contains(&index.pack(place.pack).id)
            && repository
                .read_place(&index, ChunkKind::Segment, place)
                .is_ok()
    };
    let mut segments = layers.iter().flat_map(|layer| &layer.segments);
    Ok(segments.all(|segment| {
        let is_believed = !index.marks_unreadable() && index.reliable(&segment.id).is_some();
        is_believed || index.best_first(&segment.id).any(|place| opens(&place))
    }))
}

/// What a pack holds is suspect once one chunk of it is damaged, for every other writer too.
pub(super) fn mark_damaged(
    repository: &Repository,
    packs: impl IntoIterator<Item = ObjectId, IntoIter: ExactSizeIterator>,
    note: impl Fn(&str),
) {
    let packs = packs.into_iter();
    if packs.len() == 0 {
        return;
    }
    match repository.mark_damaged(packs) {
        Ok(0) => {}
        Ok(count) => note(&format!(
            "{count} damaged packs are marked, and not relied on from now on: what of them is \
             needed here is stored again; bale repair packs saves the rest"
        )),
        Err(error) => note(&format!("damaged packs cannot be marked: {error}")),
    }
}
