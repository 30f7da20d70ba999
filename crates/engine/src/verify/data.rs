//! Reading stored bytes: every record of the chosen packs is opened, decompressed and compared with
//! its id.

use super::copies::PacksOfBoth;
use super::damage::{Findings, MendedBy};
use super::scrub::{OTHER_BYTES, hash_object};
use bale_format::{ChunkId, ChunkPlace, ObjectId, PackNumber};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result, is_inconclusive};
use bale_repository::index::{ChunkIndex, PackInfo};
use bale_repository::repository::Repository;
use bale_repository::store::{ObjectInfo, ObjectName};
use std::collections::{BTreeMap, HashSet};

/// Which packs are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Subset {
    All,
    /// Part `part` (from 1) of `of`, by the packs' names: after all parts everything was read.
    Part {
        part: u64,
        /// Of how many.
        of: u64,
    },
    /// So many per cent of the packs, at random.
    Percent(f64),
    /// So many bytes of packs, at random.
    Bytes(u64),
}

/// What reading showed, in words that no later index changes.
#[derive(Default)]
pub(super) struct Read {
    packs: u64,
    bytes: u64,
    all: bool,
    /// Packs that must be brought back from a cold class before they are read: not read.
    archived: u64,
    /// Packs that the store did not hand out, and why.
    unread: BTreeMap<ObjectId, String>,
    whole: HashSet<ObjectId>,
    damaged: BTreeMap<ObjectId, String>,
    /// In the hot one of two stores; whole in the cold one.
    damaged_in_hot: BTreeMap<ObjectId, String>,
    bad: HashSet<ChunkId>,
    /// Packs of metadata as each of two stores has them.
    of_both: PacksOfBoth,
}

impl Read {
    /// Adds it to what was found by this index; tells which packs are whole. A pack that is gone
    /// meanwhile, and a chunk that another copy still has, are no damage.
    pub(super) fn report(
        &self,
        repository: &Repository,
        index: &ChunkIndex,
        findings: &mut Findings,
    ) -> Result<HashSet<PackNumber>> {
        findings.report.packs_read = self.packs;
        findings.report.bytes_read = self.bytes;
        findings.report.packs_archived = self.archived;
        findings.report.read_all = self.all && self.archived == 0 && self.unread.is_empty();
        for (id, text) in &self.unread {
            if let Some(number) = index.pack_number(id) {
                findings.unread_pack(index, number, text);
            }
        }
        for (id, text) in &self.damaged {
            if let Some(number) = index.pack_number(id) {
                findings.damaged_pack(number, text);
            }
        }
        for (id, text) in &self.damaged_in_hot {
            let words = MendedBy::RepairHot.words();
            let text = format!("{text}: that of the cold store is intact ({words})");
            let what = format!("pack {} in the hot store", id.short());
            findings.damage_in_one(what, text, MendedBy::RepairHot);
        }
        if let Some(stores) = repository.store().tiers() {
            self.of_both.report(index, stores, findings);
            findings.report.packs_archived += self.of_both.archived;
            findings.report.read_all &= self.of_both.is_all_known();
        }
        for id in &self.bad {
            let mut copies = index.copies(id).peekable();
            let is_known = copies.peek().is_some();
            // Of one that is archived, or cannot be had now, nothing is known.
            let may_open =
                |place: ChunkPlace| match repository.read_place(index, place.chunk.kind, &place) {
                    Err(error) => is_inconclusive(&error),
                    Ok(_) => true,
                };
            if is_known && !copies.any(may_open) {
                findings.bad_chunk(*id, "no copy of it can be read");
            }
        }
        let whole = self.whole.iter().filter_map(|id| index.pack_number(id));
        Ok(whole
            .filter(|number| !findings.is_damaged(*number))
            .collect())
    }
}

/// Reads the packs that are chosen.
pub(super) fn check_data(
    repository: &Repository,
    index: &ChunkIndex,
    subset: Subset,
    monitor: &dyn Monitor,
) -> Result<Read> {
    let chosen = choose(repository, index, subset)?;
    let mut by_pack: Vec<ChunkPlace> = index
        .entries()
        .iter()
        .filter(|place| chosen.contains(&place.pack))
        .copied()
        .collect();
    by_pack.sort_unstable_by_key(|place| (place.pack, place.chunk.offset));
    let total: u64 = chosen.iter().map(|number| index.pack(*number).len).sum();
    let mut read = Read {
        all: subset == Subset::All,
        ..Read::default()
    };
    for places in by_pack.chunk_by(|a, b| a.pack == b.pack) {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        let pack = index.pack(places[0].pack);
        match check_pack(repository, index, places, &mut read.bad) {
            Checked::Archived(_) => {
                read.archived += 1;
                continue;
            }
            Checked::Unread(text) => {
                read.unread.insert(pack.id, text);
                continue;
            }
            Checked::Damaged(text) => drop(read.damaged.insert(pack.id, text)),
            Checked::DamagedInHot(text) => {
                read.whole.insert(pack.id);
                read.damaged_in_hot.insert(pack.id, text);
            }
            Checked::Whole => drop(read.whole.insert(pack.id)),
        }
        read.packs += 1;
        read.bytes += pack.len;
        monitor.progress(
            Phase::ReadData,
            Progress {
                bytes_done: read.bytes,
                bytes_total: total,
                ..Progress::default()
            },
        );
    }
    read.of_both = PacksOfBoth::read(repository, index, &chosen, monitor)?;
    Ok(read)
}

/// What reading a pack showed.
enum Checked {
    Whole,
    /// What is wrong with it.
    Damaged(String),
    /// What is wrong with what the hot store has of it: that of the cold one is whole.
    DamagedInHot(String),
    /// It must be brought back before it is read, and nothing is known of it.
    Archived(String),
    /// The store did not hand it out, and why: nothing is known of it.
    Unread(String),
}

/// What is wrong with a pack; its chunks that do not open join the others.
fn check_pack(
    repository: &Repository,
    index: &ChunkIndex,
    places: &[ChunkPlace],
    bad: &mut HashSet<ChunkId>,
) -> Checked {
    let pack = index.pack(places[0].pack);
    let info = ObjectInfo {
        name: ObjectName::pack(pack.id),
        len: pack.len,
        modified: None,
    };
    let mut trouble = match hash_object(&**repository.store(), &info) {
        Ok(hash) if hash == pack.id.0 => None,
        Ok(hash) => Some(holds_another(index, hash).unwrap_or_else(|| OTHER_BYTES.to_owned())),
        Err(Error::Store(error)) if error.is_archived() => {
            return Checked::Archived(error.to_string());
        }
        Err(error) if is_inconclusive(&error) => return Checked::Unread(error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    if let (Some(text), Some([hot, cold])) = (&trouble, repository.store().tiers())
        && matches!(hot.stat(&info.name), Ok(Some(_)))
        && hash_object(cold, &info).is_ok_and(|hash| hash == pack.id.0)
    {
        return Checked::DamagedInHot(text.clone());
    }
    let (mut opens, mut unread) = (true, None);
    for place in places {
        match repository.read_place(index, place.chunk.kind, place) {
            Ok(_) => {}
            Err(error) if is_inconclusive(&error) => unread = Some(error.to_string()),
            Err(error) => {
                opens = false;
                bad.insert(place.chunk.id);
                trouble.get_or_insert_with(|| error.to_string());
            }
        }
    }
    if let (Some(text), None) = (unread, &trouble) {
        return Checked::Unread(text);
    }
    let trouble = match opens && trouble.is_some() {
        true => repository.trouble_with_head(pack.id).or(trouble),
        false => trouble,
    };
    trouble.map_or(Checked::Whole, Checked::Damaged)
}

/// Which pack's bytes these are, by their hash.
fn holds_another(index: &ChunkIndex, hash: [u8; 32]) -> Option<String> {
    let other = ObjectId(hash);
    index
        .pack_number(&other)
        .map(|_| format!("it holds the bytes of pack {other}"))
}

/// Of a pack that has `len` bytes and should have others: those of another pack that has as many,
/// perhaps.
pub(super) fn trouble_with_length(
    repository: &Repository,
    index: &ChunkIndex,
    pack: &PackInfo,
    len: u64,
) -> String {
    let is_others = index.packs().iter().any(|other| other.len == len);
    let info = ObjectInfo {
        name: ObjectName::pack(pack.id),
        len,
        modified: None,
    };
    let hash = || hash_object(&**repository.store(), &info).ok();
    let another = is_others
        .then(hash)
        .flatten()
        .and_then(|hash| holds_another(index, hash));
    another.unwrap_or_else(|| format!("{len} bytes, should be {}", pack.len))
}

/// What is known of a pack.
pub(crate) enum PackState {
    Whole,
    /// What is wrong with it.
    Damaged(String),
    /// It must be brought back from a cold class before it is read: nothing is known of it.
    Archived(String),
    /// The store does not hand it out, and why: nothing is known of it.
    Unread(String),
}

/// Reads every record of a pack, and its bytes as a whole.
pub(crate) fn state_of(
    repository: &Repository,
    index: &ChunkIndex,
    number: PackNumber,
) -> PackState {
    let of_pack = |place: &&ChunkPlace| place.pack == number;
    let places: Vec<ChunkPlace> = index.entries().iter().filter(of_pack).copied().collect();
    let pack = index.pack(number);
    let trouble = match repository.store().stat(&ObjectName::pack(pack.id)) {
        Ok(Some(info)) if info.len == pack.len => None,
        Ok(Some(info)) => Some(trouble_with_length(repository, index, pack, info.len)),
        Ok(None) => Some("missing".to_owned()),
        Err(error) if error.is_inconclusive() => return PackState::Unread(error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(text) = trouble {
        return PackState::Damaged(text);
    }
    if places.is_empty() {
        return PackState::Whole;
    }
    match check_pack(repository, index, &places, &mut HashSet::new()) {
        Checked::Whole | Checked::DamagedInHot(_) => PackState::Whole,
        Checked::Damaged(text) => PackState::Damaged(text),
        Checked::Archived(text) => PackState::Archived(text),
        Checked::Unread(text) => PackState::Unread(text),
    }
}

fn choose(
    repository: &Repository,
    index: &ChunkIndex,
    subset: Subset,
) -> Result<HashSet<PackNumber>> {
    let numbers = (0..index.packs().len() as u32).map(PackNumber);
    let chosen = match subset {
        Subset::All => numbers.collect(),
        Subset::Part { part, of } => numbers
            .filter(|number| {
                let start: [u8; 8] = index.pack(*number).id.0[..8]
                    .try_into()
                    .expect("8 of 32 bytes");
                u64::from_be_bytes(start) % of.max(1) + 1 == part
            })
            .collect(),
        Subset::Percent(percent) => {
            let shuffled = shuffled(repository, numbers.collect())?;
            let count = (shuffled.len() as f64 * percent / 100.0).ceil() as usize;
            shuffled.into_iter().take(count).collect()
        }
        Subset::Bytes(bytes) => {
            let mut left = bytes;
            let shuffled = shuffled(repository, numbers.collect())?;
            let fits = |number: &PackNumber| {
                let go_on = left > 0;
                left = left.saturating_sub(index.pack(*number).len);
                go_on
            };
            shuffled.into_iter().take_while(fits).collect()
        }
    };
    Ok(chosen)
}

fn shuffled(repository: &Repository, mut numbers: Vec<PackNumber>) -> Result<Vec<PackNumber>> {
    let seed = repository.salt()?;
    numbers.sort_by_cached_key(|number| {
        *blake3::keyed_hash(&seed, &number.0.to_le_bytes()).as_bytes()
    });
    Ok(numbers)
}
