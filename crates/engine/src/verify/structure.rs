//! The structure: every index object, pack, snapshot and catalog segment can be read and points at
//! what is there.

use super::copies::is_short_in_cold_alone;
use super::damage::Findings;
use super::data::trouble_with_length;
use super::vanished::{LISTED_AND_NOT_FOUND, Names, is_gone, still_listed};
use bale_format::chunk::ChunkKind;
use bale_format::pieces::Promised;
use bale_format::segment::Segment;
use bale_format::snapshot::SegmentRef;
use bale_format::xattrs::decode_xattrs;
use bale_format::{
    ChunkId, Content, Entry, FormatError, ObjectId, PackNumber, Piece, PieceStep, PieceWalk,
    XattrsColumn,
};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result, is_inconclusive, is_missing};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::{
    CONFIG_BYTES_MAX, Named, Repository, SlotState, condemned_advice,
};
use bale_repository::snapshots::remembered;
use bale_repository::store::{Area, ObjectName};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is wrong with a chunk.
const IN_NO_PACK: &str = "in no pack that the index names";

/// Reads every index object; one that is damaged is named, and the others make the index that the
/// check goes on with.
pub(super) fn check_index(
    repository: &Repository,
    listed: &Names,
    findings: &mut Findings,
) -> Result<Arc<ChunkIndex>> {
    let mut unread = None;
    for info in repository.list(Area::Index)? {
        if let Err(error) = repository.read_index_object(&info.name) {
            if is_inconclusive(&error) {
                unread.get_or_insert(error);
                continue;
            }
            let text = match is_missing(&error) {
                // Replaced by a prune since it was listed.
                true if is_gone(&**repository.store(), &info.name)? => continue,
                true => LISTED_AND_NOT_FOUND.to_owned(),
                false => error.to_string(),
            };
            findings.damage(info.name.to_string(), text);
            findings.report.index_objects_damaged += 1;
        }
    }
    if let Some(error) = unread {
        return Err(unread_index(&error));
    }
    let marks = repository.damage_marks()?;
    let read = marks.marks.iter().map(|mark| &mark.name);
    let names = read.chain(marks.unreadable.iter().map(|(name, _)| name));
    check_unfound(repository, listed, (Area::Damaged, names), findings)?;
    for (name, error) in marks.unreadable {
        findings.trouble(&name, &error, error.to_string());
    }
    let (lists, unreadable) = repository.condemned_readable()?;
    let read = lists.iter().map(|list| &list.name);
    let names = read.chain(unreadable.iter().map(|(name, _)| name));
    check_unfound(repository, listed, (Area::Condemned, names), findings)?;
    for (name, error) in unreadable {
        let text = condemned_advice(&name, &error);
        findings.trouble(&name, &error, text);
    }
    let index = repository.reload_index_readable()?;
    findings.report.packs = index.packs().len() as u64;
    findings.report.chunks = index.entries().len() as u64;
    Ok(index)
}

/// What it names is not known, and would be called lost.
fn unread_index(error: &Error) -> Error {
    Error::Other(format!(
        "{error}: an index object that could not be read, so nobody knows which packs and chunks \
         there are, and nothing is said of them. See to what the store says (rights, the way to \
         it), and check again"
    ))
}

/// Names what was listed, is not among what was `found`, and is listed once more.
fn check_unfound<'n>(
    repository: &Repository,
    listed: &Names,
    (area, found): (Area, impl Iterator<Item = &'n ObjectName>),
    findings: &mut Findings,
) -> Result<()> {
    let unfound = listed.unfound(area, found.filter_map(ObjectName::id));
    for name in still_listed(&**repository.store(), &unfound)? {
        findings.damage(name.to_string(), LISTED_AND_NOT_FOUND);
    }
    Ok(())
}

/// Reads every key slot: one that is damaged may open nothing, and its owner learns it before it is
/// needed.
pub(super) fn check_keys(
    repository: &Repository,
    listed: &Names,
    findings: &mut Findings,
) -> Result<()> {
    let slots = repository.list_keys()?;
    let names: Vec<ObjectName> = slots.iter().map(|slot| ObjectName::key(slot.id)).collect();
    check_unfound(repository, listed, (Area::Keys, names.iter()), findings)?;
    for slot in slots {
        let name = ObjectName::key(slot.id).to_string();
        if let SlotState::Unread(text) = &slot.state {
            findings.report.unread.name_with(name, text);
        } else if let SlotState::Damaged(text) = slot.state {
            let text = format!(
                "{text}: this key may open nothing (add it anew with bale key add, then bale key \
                 remove {})",
                slot.id.short()
            );
            findings.damage(name, text);
        }
    }
    Ok(())
}

/// Reads `config` and its copy: while one of them is sound nothing is lost, and somebody must learn
/// of the other.
pub(super) fn check_configs(repository: &Repository, findings: &mut Findings) {
    let text = |fault: &str, sound: ObjectName| {
        format!(
            "{fault}: {sound} is sound, and nothing is lost (bale repair config writes this one \
             again)"
        )
    };
    match repository.judge_configs() {
        Ok(judged) => {
            // Of two stores each is looked at by itself.
            let is_one = repository.store().tiers().is_none();
            if let Some(trouble) = judged.trouble.filter(|_| is_one) {
                let read = repository.store().get(&trouble.name, CONFIG_BYTES_MAX);
                if let Err(error) = read
                    && error.is_inconclusive()
                {
                    let name = trouble.name.to_string();
                    return findings.report.unread.name(name, &error.into());
                }
                let text = text(trouble.fault.text(), trouble.sound());
                findings.damage(trouble.name.to_string(), text);
            }
        }
        Err(error) => findings.trouble(&ObjectName::config(), &error, error.to_string()),
    }
}

/// Reads the records of segments, and their tables.
pub(super) fn check_segments_of_packs(
    repository: &Repository,
    index: &ChunkIndex,
    findings: &mut Findings,
) -> Result<()> {
    let Some(stretched) = repository.stretched() else {
        return Ok(());
    };
    let is_needed = |pack: &ObjectId| {
        let number = index.pack_number(pack);
        number.is_some_and(|number| !index.pack(number).condemned)
    };
    for (name, text) in stretched.check(is_needed)? {
        let text = match name.area {
            Area::Stretched => format!("{text} (bale repair index writes it again)"),
            _ => text,
        };
        findings.damage(name.to_string(), text);
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
            Some(len) if is_short_in_cold_alone(repository, pack, len, findings) => {}
            Some(len) => {
                findings.damaged_pack(number, trouble_with_length(repository, index, pack, len));
            }
            None if pack.condemned => findings.missing_pack(number, None),
            None => findings.missing_pack(number, Some("missing")),
        }
    }
    findings.report.packs_unindexed = there.len() as u64;
    Ok(())
}

/// Snapshots and unfinished runs.
pub(super) struct ReadableRecords {
    pub(super) readable: Vec<Named>,
    pub(super) all_readable: bool,
}

/// Reads every snapshot and run; those that can be read are returned. One that was `listed` and is
/// not there was forgotten meanwhile, or, if it is listed once more, is damage.
pub(super) fn check_records(
    repository: &Repository,
    listed: &Names,
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<ReadableRecords> {
    let (mut records, mut damaged) =
        remembered::list(repository, &|missed| monitor.note(&missed.text))?;
    let (mut runs, damaged_runs) = repository.runs_readable()?;
    for (area, found, unreadable) in [
        (Area::Snapshots, &mut records, &damaged),
        (Area::Runs, &mut runs, &damaged_runs),
    ] {
        let ids = found.iter().map(|(id, _)| *id);
        let ids = ids.chain(unreadable.iter().filter_map(|(name, _)| name.id()));
        let unfound = listed.unfound(area, ids);
        let late = read_once_more(repository, &unfound, findings, monitor)?;
        found.extend(late);
    }
    damaged.extend(damaged_runs);
    runs.retain(|(_, run)| !run.is_sign_of_life());
    records.extend(runs);
    findings.report.records_unreadable += damaged.len() as u64;
    for (name, error) in damaged {
        findings.trouble(&name, &error, error.to_string());
    }
    findings.report.snapshots = records.len() as u64;
    Ok(ReadableRecords {
        readable: records,
        all_readable: findings.report.records_unreadable == 0,
    })
}

/// Reads records that were listed and of which nothing was found: they came after the first look,
/// went since, or are lost.
fn read_once_more(
    repository: &Repository,
    unfound: &[ObjectName],
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<Vec<Named>> {
    let mut found = Vec::new();
    let mut lost = Vec::new();
    for name in unfound {
        match repository.read_record(name) {
            Ok(record) => found.extend(name.id().map(|id| (id, record))),
            Err(error) => lost.push((*name, error)),
        }
    }
    let names: Vec<ObjectName> = lost.iter().map(|(name, _)| *name).collect();
    let listed = still_listed(&**repository.store(), &names)?;
    for (name, error) in lost {
        match (is_missing(&error), listed.contains(&name)) {
            (true, false) if name.area == Area::Runs => {}
            (true, false) => monitor.note(&format!(
                "{name} was removed since it was listed: somebody has forgotten it meanwhile"
            )),
            (is_missing, _) => {
                let text = match is_missing {
                    true => LISTED_AND_NOT_FOUND.to_owned(),
                    false => error.to_string(),
                };
                findings.trouble(&name, &error, text);
                findings.report.records_unreadable += 1;
            }
        }
    }
    Ok(found)
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
        lists: HashSet::new(),
        sets: HashSet::new(),
        sound_set: Bytes::new(),
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
        monitor.place(&[b"/", &segment.first.parent[..]].concat());
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
    /// Piece lists that are what they should be: some 56 bytes for each large file.
    lists: HashSet<(ChunkId, Option<Promised>)>,
    /// Large sets of extended attributes: 32 bytes for each.
    sets: HashSet<ChunkId>,
    /// The last set inside a row that was sound.
    sound_set: Bytes,
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
        if is_inconclusive(error) {
            return self.findings.unread_chunk(self.index, &id, error);
        }
        let text = match error {
            Error::MissingChunk(_) => IN_NO_PACK.to_owned(),
            error => error.to_string(),
        };
        (self.findings).unreadable_chunk(self.index, id, &text);
    }

    fn check_entry(&mut self, entry: &Entry) {
        self.check_xattrs(entry);
        match entry.content {
            Content::None | Content::Image => {}
            Content::Bundled { chunk, offset } => {
                if let Some(len) = self.plain_len(&chunk)
                    && u64::from(offset).saturating_add(entry.size) > len
                {
                    self.findings.bad_chunk(chunk, "shorter than a file in it");
                }
            }
            Content::Pieces { list } => self.check_pieces(list, entry.size),
        }
    }

    /// The set can be read and decoded.
    fn check_xattrs(&mut self, entry: &Entry) {
        let set = match XattrsColumn::decode(&entry.xattrs) {
            Ok(XattrsColumn::None) => return,
            Ok(XattrsColumn::Inline(set)) => set,
            Ok(XattrsColumn::Chunk(id)) => return self.check_xattrs_chunk(id),
            Err(error) => return self.bad_row(entry, &error),
        };
        // Neighbours often have the same.
        if set == self.sound_set {
            return;
        }
        match decode_xattrs(&set) {
            Ok(_) => self.sound_set = Bytes::copy_from_slice(&set),
            Err(error) => self.bad_row(entry, &error),
        }
    }

    fn bad_row(&mut self, entry: &Entry, error: &FormatError) {
        let path = String::from_utf8_lossy(&entry.path()).into_owned();
        self.findings
            .damage(format!("row of /{path}"), error.to_string());
    }

    fn check_xattrs_chunk(&mut self, id: ChunkId) {
        if !self.sets.insert(id) || self.plain_len(&id).is_none() {
            return;
        }
        match self.repository.read_chunk_uncached(&id, ChunkKind::Xattrs) {
            Err(error) => self.unreadable(id, &error),
            Ok(set) => {
                if let Err(error) = decode_xattrs(&set) {
                    self.findings.bad_chunk(id, error.to_string());
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

    /// Every list can be read and is what the one above it, or the row, says; every piece is its
    /// chunk or lies in it.
    fn check_pieces(&mut self, root: ChunkId, size: u64) {
        let mut walk = PieceWalk::new(root, size);
        loop {
            match walk.step() {
                PieceStep::End => return,
                PieceStep::Piece { piece, .. } => {
                    if let Piece::Data { chunk, .. } = piece
                        && (self.plain_len(&chunk))
                            .is_some_and(|len| piece.range_in(len as usize).is_none())
                    {
                        let list = walk.current().unwrap_or(root);
                        (self.findings).bad_chunk(list, "names a chunk of another length");
                    }
                }
                PieceStep::Fetch(list) => self.check_list(list, &mut walk),
            }
        }
    }

    fn check_list(&mut self, list: ChunkId, walk: &mut PieceWalk) {
        let promised = walk.promised();
        if self.lists.contains(&(list, promised)) || self.plain_len(&list).is_none() {
            return walk.skip();
        }
        match self
            .repository
            .read_chunk_uncached(&list, ChunkKind::Pieces)
        {
            Err(error) => {
                self.unreadable(list, &error);
                walk.skip();
            }
            Ok(bytes) => match walk.supply(&bytes) {
                Ok(()) => drop(self.lists.insert((list, promised))),
                Err(error) => self.findings.bad_chunk(list, error.to_string()),
            },
        }
    }
}
