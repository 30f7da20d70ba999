//! The structure: every index object, pack, snapshot and catalog segment can be read and points at what is there.

use super::damage::Findings;
use crate::error::{Error, Result};
use crate::index::{ChunkIndex, PackNumber};
use crate::monitor::{Monitor, Phase, Progress};
use crate::repository::{Named, Repository, SlotState, condemned_advice};
use crate::snapshots::remembered;
use crate::store::{Area, ObjectName};
use crate::used::xattrs_chunk;
use bale_format::chunk::ChunkKind;
use bale_format::pieces::{Piece, PieceList, SubList};
use bale_format::segment::Segment;
use bale_format::snapshot::SegmentRef;
use bale_format::{ChunkId, Content, Entry, ObjectId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is wrong with a chunk.
const IN_NO_PACK: &str = "in no pack that the index names";
/// Piece lists nest this deep at most.
const PIECES_DEPTH_MAX: usize = 4;

/// Reads every index object; one that is damaged is named, and the others make the index that the check goes on with.
pub(super) fn check_index(
    repository: &Repository,
    findings: &mut Findings,
) -> Result<Arc<ChunkIndex>> {
    for info in repository.list(Area::Index)? {
        if let Err(error) = repository.read_index_object(&info.name) {
            findings.damage(info.name.to_string(), error.to_string());
            findings.report.index_objects_damaged += 1;
        }
    }
    for (name, error) in repository.damage_marks()?.unreadable {
        findings.damage(name.to_string(), error.to_string());
    }
    for (name, error) in repository.condemned_readable()?.1 {
        let text = condemned_advice(&name, &error);
        findings.damage(name.to_string(), text);
    }
    let index = repository.reload_index_readable()?;
    findings.report.packs = index.packs().len() as u64;
    findings.report.chunks = index.entries().len() as u64;
    Ok(index)
}

/// Reads every key slot: one that is damaged may open nothing, and its owner learns it before it is needed.
pub(super) fn check_keys(repository: &Repository, findings: &mut Findings) -> Result<()> {
    for slot in repository.list_keys()? {
        if let SlotState::Damaged(text) = slot.state {
            let text = format!(
                "{text}: this key may open nothing (add it anew with bale key add, then bale key remove {})",
                slot.id.short()
            );
            findings.damage(ObjectName::key(slot.id).to_string(), text);
        }
    }
    Ok(())
}

/// Compares the packs that the index names with those that are there.
pub(super) fn check_packs(
    repository: &Repository,
    index: &ChunkIndex,
    findings: &mut Findings,
) -> Result<()> {
    let mut there: HashMap<ObjectId, u64> = HashMap::new();
    repository.store().list(Area::Packs, &mut |info| {
        if let Some(id) = info.name.id() {
            there.insert(id, info.len);
        }
    })?;
    for (number, pack) in (0..).map(PackNumber).zip(index.packs()) {
        match there.remove(&pack.id) {
            Some(len) if len == pack.len => continue,
            Some(len) => {
                findings.damaged_pack(number, format!("{len} bytes, should be {}", pack.len));
            }
            None if pack.condemned => findings.missing_pack(number, None),
            None => findings.missing_pack(number, Some("missing")),
        }
    }
    findings.report.packs_unindexed = there.len() as u64;
    Ok(())
}

/// Snapshots and unfinished runs.
pub(super) struct Records {
    pub(super) readable: Vec<Named>,
    pub(super) all_readable: bool,
}

/// Reads every snapshot and run; those that can be read are returned.
pub(super) fn check_records(
    repository: &Repository,
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<Records> {
    let (mut records, damaged) =
        remembered::list(repository, &|missed| monitor.note(&missed.text))?;
    let (mut runs, damaged_runs) = repository.runs_readable()?;
    runs.retain(|(_, run)| !run.is_sign_of_life());
    records.extend(runs);
    findings.report.records_unreadable = (damaged.len() + damaged_runs.len()) as u64;
    let all_readable = damaged.is_empty() && damaged_runs.is_empty();
    for (name, error) in damaged.into_iter().chain(damaged_runs) {
        findings.damage(name.to_string(), error.to_string());
    }
    findings.report.snapshots = records.len() as u64;
    Ok(Records {
        readable: records,
        all_readable,
    })
}

/// Reads every distinct segment, and follows every row to its chunks.
pub(super) fn check_catalogs(
    repository: &Repository,
    index: &ChunkIndex,
    records: &[Named],
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<()> {
    let mut checker = Checker {
        repository,
        index,
        seen: HashSet::new(),
        lists: HashMap::new(),
        findings,
    };
    let total: u64 = records
        .iter()
        .flat_map(|(_, snapshot)| &snapshot.layers)
        .map(|layer| layer.rows)
        .sum();
    let mut done = 0;
    for segment in records
        .iter()
        .flat_map(|(_, snapshot)| &snapshot.layers)
        .flat_map(|layer| &layer.segments)
    {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        if checker.seen.insert(segment.id) {
            checker.check_segment(segment);
        }
        done += u64::from(segment.rows);
        monitor.progress(
            Phase::Structure,
            Progress {
                done,
                total: total.max(done),
                ..Progress::default()
            },
        );
    }
    Ok(())
}

struct Checker<'a> {
    repository: &'a Repository,
    index: &'a ChunkIndex,
    /// Segments: 32 bytes for each distinct one.
    seen: HashSet<ChunkId>,
    /// Piece lists and the bytes they describe: 40 bytes for each large file.
    lists: HashMap<ChunkId, u64>,
    findings: &'a mut Findings,
}

impl Checker<'_> {
    fn check_segment(&mut self, reference: &SegmentRef) {
        self.findings.report.segments += 1;
        let read = (self.repository).read_chunk_uncached(&reference.id, ChunkKind::Segment);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return self.unreadable(reference.id, &error),
        };
        let segment = match Segment::decode(&bytes) {
            Ok(segment) => segment,
            Err(error) => return self.findings.bad_chunk(reference.id, error.to_string()),
        };
        if segment.rows() != reference.rows as usize {
            let text = format!(
                "{} rows, the snapshot says {}",
                segment.rows(),
                reference.rows
            );
            return self.findings.bad_chunk(reference.id, text);
        }
        for entry in segment.entries(0..segment.rows()) {
            self.check_entry(&entry);
        }
    }

    fn unreadable(&mut self, id: ChunkId, error: &Error) {
        let text = match error {
            Error::MissingChunk(_) => IN_NO_PACK.to_owned(),
            error => error.to_string(),
        };
        (self.findings).unreadable_chunk(self.index, id, &text);
    }

    fn check_entry(&mut self, entry: &Entry) {
        if let Some(set) = xattrs_chunk(&entry.xattrs) {
            self.plain_len(&set);
        }
        match entry.content {
            Content::None => {}
            Content::Bundled { chunk, offset } => {
                if let Some(len) = self.plain_len(&chunk)
                    && u64::from(offset).saturating_add(entry.size) > len
                {
                    self.findings.bad_chunk(chunk, "shorter than a file in it");
                }
            }
            Content::Pieces { list } => {
                if self
                    .list_bytes(list, 0)
                    .is_some_and(|bytes| bytes != entry.size)
                {
                    self.findings
                        .bad_chunk(list, "describes another length than its file has");
                }
            }
        }
    }

    fn plain_len(&mut self, id: &ChunkId) -> Option<u64> {
        let place = self.index.any(id);
        if place.is_none() {
            self.findings.bad_chunk(*id, IN_NO_PACK);
        }
        place.map(|place| u64::from(place.chunk.plain_bytes))
    }

    /// Bytes that a piece list describes; `None` if it is damaged, which has been told.
    fn list_bytes(&mut self, id: ChunkId, depth: usize) -> Option<u64> {
        if let Some(bytes) = self.lists.get(&id) {
            return Some(*bytes);
        }
        if depth >= PIECES_DEPTH_MAX {
            self.findings.bad_chunk(id, "piece lists nested too deep");
            return None;
        }
        self.plain_len(&id)?;
        let bytes = match self.repository.read_chunk_uncached(&id, ChunkKind::Pieces) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.unreadable(id, &error);
                return None;
            }
        };
        let list = match PieceList::decode(&bytes) {
            Ok(list) => list,
            Err(error) => {
                self.findings.bad_chunk(id, error.to_string());
                return None;
            }
        };
        let mut total = 0u64;
        match list {
            PieceList::Leaf(pieces) => {
                for piece in &pieces {
                    total = total.saturating_add(self.piece_bytes(id, piece)?);
                }
            }
            PieceList::Inner { lists, .. } => {
                for below in &lists {
                    total = total.saturating_add(self.below_bytes(id, below, depth)?);
                }
            }
        }
        self.lists.insert(id, total);
        Some(total)
    }

    fn piece_bytes(&mut self, list: ChunkId, piece: &Piece) -> Option<u64> {
        if let Piece::Data { bytes, chunk } = piece
            && self.plain_len(chunk)? != *bytes
        {
            self.findings
                .bad_chunk(list, "names a chunk of another length");
        }
        Some(piece.bytes())
    }

    fn below_bytes(&mut self, list: ChunkId, below: &SubList, depth: usize) -> Option<u64> {
        if self.list_bytes(below.list, depth + 1)? != below.bytes {
            self.findings
                .bad_chunk(list, "names a list of another length");
        }
        Some(below.bytes)
    }
}
