//! What is damaged, and which paths that takes away.

use super::{CheckReport, LOST_PATHS_LISTED_MAX};
use crate::error::{Error, Result};
use crate::monitor::Monitor;
use crate::repository::{Named, Repository};
use crate::used::xattrs_chunk;
use bale_format::chunk::ChunkKind;
use bale_format::pieces::{Piece, PieceList};
use bale_format::segment::Segment;
use bale_format::{ChunkId, Content, Entry, ObjectId};
use std::collections::HashSet;

/// One damaged or missing thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Object or chunk.
    pub what: String,
    /// What is wrong with it.
    pub text: String,
}

/// A path that cannot be restored whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPath {
    /// Snapshot.
    pub snapshot: ObjectId,
    /// Path without leading slash; of a lost catalog segment, the first of the range.
    pub path: Vec<u8>,
    /// Why.
    pub text: String,
}

/// What has been found so far.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) report: CheckReport,
    /// Chunks of which no good copy is left, as far as known.
    pub(super) bad_chunks: HashSet<ChunkId>,
}

impl Findings {
    pub(super) fn damage(&mut self, what: impl Into<String>, text: impl Into<String>) {
        self.report.damage.push(Damage {
            what: what.into(),
            text: text.into(),
        });
    }

    pub(super) fn bad_chunk(&mut self, id: ChunkId, text: impl Into<String>) {
        if self.bad_chunks.insert(id) {
            self.damage(format!("chunk {id}"), text);
        }
    }

    fn lost(&mut self, snapshot: ObjectId, path: Vec<u8>, text: &str) {
        self.report.lost_count += 1;
        if self.report.lost.len() < LOST_PATHS_LISTED_MAX {
            self.report.lost.push(LostPath {
                snapshot,
                path,
                text: text.to_owned(),
            });
        }
    }
}

/// Names every path of every snapshot that needs a bad chunk. Only done when there is one.
pub(super) fn name_lost_paths(
    repository: &Repository,
    records: &[Named],
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<()> {
    if findings.bad_chunks.is_empty() {
        return Ok(());
    }
    for (id, snapshot) in records {
        for segment in snapshot.layers.iter().flat_map(|layer| &layer.segments) {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            if findings.bad_chunks.contains(&segment.id) {
                let text = format!(
                    "{} rows of the catalog from here on cannot be read",
                    segment.rows
                );
                let first = bale_format::entry::join(&segment.first.parent, &segment.first.name);
                findings.lost(*id, first, &text);
                continue;
            }
            name_lost_in_segment(repository, *id, &segment.id, findings);
        }
    }
    Ok(())
}

fn name_lost_in_segment(
    repository: &Repository,
    snapshot: ObjectId,
    segment: &ChunkId,
    findings: &mut Findings,
) {
    let Ok(bytes) = repository.read_chunk_uncached(segment, ChunkKind::Segment) else {
        return;
    };
    let Ok(segment) = Segment::decode(&bytes) else {
        return;
    };
    for entry in segment.entries(0..segment.rows()) {
        if needs_bad_chunk(repository, &entry, &findings.bad_chunks) {
            findings.lost(snapshot, entry.path(), "its content is damaged or missing");
        } else if xattrs_chunk(&entry.xattrs).is_some_and(|id| findings.bad_chunks.contains(&id)) {
            findings.lost(
                snapshot,
                entry.path(),
                "its extended attributes are damaged or missing",
            );
        }
    }
}

fn needs_bad_chunk(repository: &Repository, entry: &Entry, bad: &HashSet<ChunkId>) -> bool {
    match entry.content {
        Content::None => false,
        Content::Bundled { chunk, .. } => bad.contains(&chunk),
        Content::Pieces { list } => list_needs_bad_chunk(repository, list, bad, 0),
    }
}

fn list_needs_bad_chunk(
    repository: &Repository,
    list: ChunkId,
    bad: &HashSet<ChunkId>,
    depth: usize,
) -> bool {
    if bad.contains(&list) || depth > 4 {
        return true;
    }
    let Ok(bytes) = repository.read_chunk(&list, ChunkKind::Pieces) else {
        return true;
    };
    let Ok(decoded) = PieceList::decode(&bytes) else {
        return true;
    };
    match decoded {
        PieceList::Leaf(pieces) => pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Data { chunk, .. } if bad.contains(chunk))),
        PieceList::Inner { lists, .. } => lists
            .iter()
            .any(|below| list_needs_bad_chunk(repository, below.list, bad, depth + 1)),
    }
}
