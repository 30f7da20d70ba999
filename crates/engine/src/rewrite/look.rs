//! What is known of segments before anything is stored: how many rows of each go, which bundles
//! hold their content, and who points at those.

use super::excluded::Excluded;
use super::other_names::{ExcludedContents, OtherNames};
use bale_format::segment::{self, Pointer};
use bale_format::snapshot::Totals;
use bale_format::{ChunkId, ChunkKind, Content, EntryFlags, Kind};
use bale_format::{ObjectId, Segment, SegmentKeys, SegmentRef, Snapshot};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bundles that may hold something that is excluded: a terabyte of small files, and some 60 MB of
/// memory.
const TAINTED_BUNDLES_MAX: usize = 1 << 20;

/// Of one distinct segment.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Rows that go.
    excluded: u32,
    /// It points at a bundle that holds something that goes.
    is_tainted: bool,
}

pub(super) struct Look {
    segments: HashMap<ChunkId, Seen>,
    /// Bundles that hold something that goes.
    tainted: HashSet<ChunkId>,
    contents: ExcludedContents,
}

impl Look {
    /// Looks at every distinct segment once, and once more if something with content goes.
    pub(super) fn at(
        repository: &Repository,
        (chosen, others): (&[Named], &[Named]),
        mut excluded: Excluded<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Look> {
        let mut look = Look {
            segments: HashMap::new(),
            tainted: HashSet::new(),
            contents: ExcludedContents::default(),
        };
        let is_to_change = |(_, snapshot): &&Named| snapshot.images.is_empty();
        let all = chosen
            .iter()
            .filter(is_to_change)
            .map(|named| (named, true));
        let all = all.chain(chosen.iter().map(|named| (named, false)));
        let all = all.chain(others.iter().map(|named| (named, false)));
        for ((id, snapshot), taints) in all {
            for reference in snapshot.layers.iter().flat_map(|layer| &layer.segments) {
                if !look.segments.contains_key(&reference.id) {
                    look.progress(monitor)?;
                    let seen = look.rows_of(repository, reference, &mut excluded, taints);
                    let seen = seen.map_err(|error| unreadable(id, &error))?;
                    look.segments.insert(reference.id, seen);
                }
            }
        }
        look.find_others(repository, &mut excluded, monitor)?;
        Ok(look)
    }

    fn progress(&self, monitor: &dyn Monitor) -> Result<()> {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        let progress = Progress {
            done: self.segments.len() as u64,
            ..Progress::default()
        };
        monitor.progress(Phase::FindUsed, progress);
        Ok(())
    }

    /// `taints`: bundles are noted that hold what goes.
    fn rows_of(
        &mut self,
        repository: &Repository,
        reference: &SegmentRef,
        excluded: &mut Excluded<'_>,
        taints: bool,
    ) -> Result<Seen> {
        if !excluded.may_be_in(reference) {
            return Ok(Seen::default());
        }
        let bytes = repository.read_chunk(&reference.id, ChunkKind::Segment)?;
        let keys = SegmentKeys::decode(&bytes).map_err(|error| damaged(reference, &error))?;
        let rows: Vec<usize> = excluded.rows(&keys, 0..keys.rows()).collect();
        let seen = Seen {
            excluded: rows.len() as u32,
            is_tainted: false,
        };
        if rows.is_empty() || !taints {
            return Ok(seen);
        }
        let segment = Segment::decode(&bytes).map_err(|error| damaged(reference, &error))?;
        for row in rows {
            self.contents.exclude(&segment, row);
            let view = segment.view(row);
            if let Content::Bundled { chunk, .. } = view.content
                && view.kind == Kind::File
                && !view.flags.has(EntryFlags::REMOVED)
            {
                self.tainted.insert(chunk);
            }
        }
        if self.tainted.len() > TAINTED_BUNDLES_MAX {
            return Err(Error::Other(format!(
                "what the patterns match is in more than {TAINTED_BUNDLES_MAX} bundles: exclude a \
                 part of it at a time"
            )));
        }
        Ok(seen)
    }

    /// What points at bundles that hold something that goes, and what stays of the same content.
    fn find_others(
        &mut self,
        repository: &Repository,
        excluded: &mut Excluded<'_>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        if self.tainted.is_empty() && self.contents.is_empty() {
            return Ok(());
        }
        for (id, seen) in &mut self.segments {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let bytes = repository.read_chunk(id, ChunkKind::Segment)?;
            let failed = |error| Error::Other(format!("segment {}: {error}", id.short()));
            let pointers = segment::pointers(&bytes).map_err(failed)?;
            let is_tainted = |pointer: &Pointer| match pointer {
                Pointer::Bundle(chunk) => self.tainted.contains(chunk),
                _ => false,
            };
            seen.is_tainted = pointers.iter().any(is_tainted);
            let segment = Segment::decode(&bytes).map_err(failed)?;
            self.contents.look_at(&segment, excluded);
        }
        Ok(())
    }

    /// What stays and has content that is excluded.
    pub(super) fn other_names(&self) -> OtherNames {
        self.contents.found()
    }

    /// How many bundles hold something that goes.
    pub(super) fn tainted(&self) -> usize {
        self.tainted.len()
    }

    pub(super) fn is_bundle_tainted(&self, chunk: &ChunkId) -> bool {
        self.tainted.contains(chunk)
    }

    /// Rows of a segment that go.
    fn excluded_rows(&self, id: &ChunkId) -> u32 {
        self.segments.get(id).map_or(0, |seen| seen.excluded)
    }

    pub(super) fn points_at_tainted(&self, id: &ChunkId) -> bool {
        self.segments.get(id).is_some_and(|seen| seen.is_tainted)
    }

    /// Does a segment have to be written anew?
    pub(super) fn is_to_change(&self, id: &ChunkId) -> bool {
        self.excluded_rows(id) > 0 || self.points_at_tainted(id)
    }

    /// Does something of a snapshot go, or share a bundle with what does?
    pub(super) fn is_concerned(&self, snapshot: &Snapshot) -> bool {
        let mut segments = snapshot.layers.iter().flat_map(|layer| &layer.segments);
        segments.any(|segment| self.is_to_change(&segment.id))
    }

    /// Those that hold some of it and are not rewritten.
    pub(super) fn held_by(&self, chosen: &[Named], others: &[Named]) -> Vec<ObjectId> {
        let with_images = chosen.iter().filter(|(_, one)| !one.images.is_empty());
        let holding = with_images
            .chain(others)
            .filter(|(_, one)| self.is_concerned(one));
        holding.map(|(id, _)| *id).collect()
    }

    /// What goes of a snapshot, counted where layers hide nothing of it.
    pub(super) fn excluded_of(
        &self,
        repository: &Arc<Repository>,
        snapshot: &Snapshot,
        mut excluded: Excluded<'_>,
    ) -> Result<Totals> {
        let references = snapshot.layers.iter().flat_map(|layer| &layer.segments);
        let with_excluded = references.filter(|one| self.excluded_rows(&one.id) > 0);
        let ranges: Vec<KeyRange> = with_excluded
            .map(|one| KeyRange {
                start: Some(one.start().clone()),
                end: KeyRange::one(&one.last).end,
            })
            .collect();
        let mut totals = Totals::default();
        if ranges.is_empty() {
            return Ok(totals);
        }
        let catalog = CatalogReader::open(repository.segment_source(), snapshot.layers.clone())?;
        // The complement of the complement: in order, and each key once.
        for range in KeyRange::all_but(KeyRange::all_but(ranges)) {
            for row in catalog.rows(range) {
                let row = row?;
                if !excluded.excludes(&row.parent, &row.name) {
                    continue;
                }
                match row.kind {
                    Kind::File => {
                        totals.files += 1;
                        totals.bytes += row.size;
                    }
                    Kind::Directory => totals.dirs += 1,
                    _ => totals.others += 1,
                }
                totals.hard_links += u64::from(row.nlink > 1 && row.kind != Kind::Directory);
            }
        }
        Ok(totals)
    }
}

pub(super) fn damaged(reference: &SegmentRef, error: &dyn std::fmt::Display) -> Error {
    Error::Other(format!("segment {}: {error}", reference.id.short()))
}

/// While nobody knows what is in a snapshot, nobody can say that something is in none.
fn unreadable(id: &ObjectId, error: &Error) -> Error {
    match error {
        Error::Interrupted => Error::Interrupted,
        error => Error::Other(format!(
            "nothing is changed, as the catalog of snapshot {} cannot be read: {error}. bale check \
             says what is damaged, and bale forget {} gives the snapshot up",
            id.short(),
            id.short()
        )),
    }
}
