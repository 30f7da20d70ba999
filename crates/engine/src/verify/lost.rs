//! Which paths damage takes away: the rows of a snapshot that are visible and point at a chunk that
//! is lost.
//!
//! A row that a newer layer hides takes nothing away. Only the stretches of a catalog where some
//! segment points at what was found are merged, so a little damage costs a little.

use super::damage::Findings;
use bale_format::chunk::ChunkKind;
use bale_format::segment::Segment;
use bale_format::{
    ChunkId, Content, Entry, Key, Layer, ObjectId, Piece, PieceStep, PieceWalk, SegmentRef,
    XattrsColumn,
};
use bale_pipeline::amount::counted;
use bale_pipeline::monitor::Monitor;
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Names every path of every snapshot that needs a bad chunk; tells which suspect chunks are needed
/// at all. Only works when there is one.
pub(super) fn name_lost_paths(
    repository: &Arc<Repository>,
    records: &[Named],
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<HashSet<ChunkId>> {
    let mut walk = Walk {
        repository,
        findings,
        needed: HashSet::new(),
        lists: HashMap::new(),
        touched: HashMap::new(),
        last: Vec::new(),
    };
    if !walk.findings.has_suspects() {
        return Ok(walk.needed);
    }
    for (id, snapshot) in records {
        walk.snapshot(*id, &snapshot.layers, monitor)?;
    }
    Ok(walk.needed)
}

struct Walk<'a> {
    repository: &'a Arc<Repository>,
    findings: &'a mut Findings,
    needed: HashSet<ChunkId>,
    /// Suspect chunks of piece lists, by their roots: about 60 bytes for each large file.
    lists: HashMap<ChunkId, Arc<[ChunkId]>>,
    /// Does some row of the segment point at a suspect chunk? 33 bytes for each distinct one.
    touched: HashMap<ChunkId, bool>,
    /// The path that was named last.
    last: Vec<u8>,
}

impl Walk<'_> {
    fn snapshot(&mut self, id: ObjectId, layers: &[Layer], monitor: &dyn Monitor) -> Result<()> {
        self.last.clear();
        let mut ranges = Vec::new();
        let mut readable = Vec::new();
        for layer in layers {
            let mut left = Layer {
                rows: layer.rows,
                segments: Vec::new(),
            };
            for segment in &layer.segments {
                if monitor.interrupted() {
                    return Err(Error::Interrupted);
                }
                if self.findings.is_suspect(&segment.id) {
                    self.needed.insert(segment.id);
                }
                // Named as a pack that could not be read.
                if self.findings.is_unread(&segment.id) {
                    continue;
                }
                if self.findings.bad_chunks.contains_key(&segment.id) {
                    self.lost_segment(id, segment);
                    continue;
                }
                if self.is_touched(&segment.id) {
                    ranges.push(range_of(segment));
                }
                left.segments.push(segment.clone());
            }
            readable.push(left);
        }
        if ranges.is_empty() {
            return Ok(());
        }
        let catalog = CatalogReader::open(self.repository.segment_source_remembering(), readable)?;
        for range in merged(ranges) {
            for row in catalog.all_rows(range) {
                if monitor.interrupted() {
                    return Err(Error::Interrupted);
                }
                self.visible(id, &row?);
            }
        }
        Ok(())
    }

    fn lost_segment(&mut self, snapshot: ObjectId, segment: &SegmentRef) {
        let text = format!(
            "{} from here on: their part of the catalog cannot be read",
            counted(u64::from(segment.rows), "path")
        );
        self.findings.report.segments_lost += 1;
        let first = bale_format::entry::join(&segment.first.parent, &segment.first.name);
        let paths = u64::from(segment.rows);
        self.findings.lost(snapshot, first, paths, &text);
    }

    fn is_touched(&mut self, id: &ChunkId) -> bool {
        if let Some(touched) = self.touched.get(id) {
            return *touched;
        }
        let read = self.repository.read_chunk(id, ChunkKind::Segment);
        let touched = match read.map(|bytes| Segment::decode(&bytes)) {
            Ok(Ok(segment)) => (segment.entries(0..segment.rows())).any(|entry| {
                !self.suspects_of_content(&entry).is_empty()
                    || self.suspect_xattrs(&entry).is_some()
            }),
            // What does not decode was found before.
            _ => false,
        };
        self.touched.insert(*id, touched);
        touched
    }

    fn visible(&mut self, snapshot: ObjectId, entry: &Entry) {
        let content = self.suspects_of_content(entry);
        let xattrs = self.suspect_xattrs(entry);
        self.needed.extend(content.iter().copied().chain(xattrs));
        let is_bad = |id: &ChunkId| self.findings.bad_chunks.contains_key(id);
        let text = if content.iter().any(is_bad) {
            "its content is damaged or missing"
        } else if xattrs.as_ref().is_some_and(is_bad) {
            "its extended attributes are damaged or missing"
        } else {
            return;
        };
        // Extents of one image follow each other.
        let path = entry.path_to_name();
        if self.last != path {
            self.findings.lost(snapshot, path.clone(), 1, text);
            self.last = path;
        }
    }

    fn suspect_xattrs(&self, entry: &Entry) -> Option<ChunkId> {
        XattrsColumn::chunk_of(&entry.xattrs).filter(|id| self.findings.is_suspect(id))
    }

    fn suspects_of_content(&mut self, entry: &Entry) -> Arc<[ChunkId]> {
        match entry.content {
            Content::None | Content::Image => Arc::default(),
            Content::Bundled { chunk, .. } => match self.findings.is_suspect(&chunk) {
                true => Arc::from([chunk]),
                false => Arc::default(),
            },
            Content::Pieces { list } => self.suspects_of_list(list),
        }
    }

    fn suspects_of_list(&mut self, root: ChunkId) -> Arc<[ChunkId]> {
        if let Some(known) = self.lists.get(&root) {
            return known.clone();
        }
        let mut found = Vec::new();
        let mut walk = PieceWalk::of_any_size(root);
        loop {
            match walk.step() {
                PieceStep::End => break,
                PieceStep::Piece { piece, .. } => {
                    if let Piece::Data { chunk, .. } = piece {
                        found.extend(self.findings.is_suspect(&chunk).then_some(chunk));
                    }
                }
                PieceStep::Fetch(list) => {
                    found.extend(self.findings.is_suspect(&list).then_some(list));
                    match self.repository.read_chunk(&list, ChunkKind::Pieces) {
                        // What is no list, or not the one it should be, was found before.
                        Ok(bytes) => drop(walk.supply(&bytes)),
                        Err(_) => walk.skip(),
                    }
                }
            }
        }
        found.sort();
        found.dedup();
        let found: Arc<[ChunkId]> = found.into();
        self.lists.insert(root, found.clone());
        found
    }
}

/// The keys of a segment that count.
fn range_of(segment: &SegmentRef) -> KeyRange {
    let mut last = segment.last.clone();
    last.name = [last.name.as_ref(), b"\0"].concat().into();
    KeyRange {
        start: Some(segment.start().clone()),
        end: Some(match &segment.to {
            Some(to) => to.clone().min(last),
            None => last,
        }),
    }
}

/// The same keys, each in one range.
fn merged(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    let start = |range: &KeyRange| -> Option<Key> { range.start.clone() };
    ranges.sort_by_key(start);
    let mut merged: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(before) if before.end >= range.start => {
                before.end = before.end.take().max(range.end);
            }
            _ => merged.push(range),
        }
    }
    merged
}
