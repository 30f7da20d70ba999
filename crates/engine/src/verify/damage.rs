//! What was found damaged: chunks and packs are gathered while the check goes on, and weighed at
//! its end. What no snapshot needs, or what stands undamaged elsewhere, is no loss.

use super::{CheckReport, LOST_PATHS_LISTED_MAX};
use bale_format::{ChunkId, ObjectId, PackNumber};
use bale_pipeline::amount::counted;
use bale_pipeline::error::without_name;
use bale_repository::error::{Error, is_inconclusive};
use bale_repository::index::ChunkIndex;
use bale_repository::store::ObjectName;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// One damaged or missing thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// Object or chunk.
    pub what: String,
    /// What is wrong with it.
    pub text: String,
    /// One of two stores has it whole: what makes the other as whole.
    pub mended_by: Option<MendedBy>,
}

/// A repair of one of two stores from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MendedBy {
    RepairHot,
    RepairCold {
        /// It reads packs only where it is told to.
        read_data: bool,
    },
}

/// A path that cannot be restored whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPath {
    pub snapshot: ObjectId,
    /// Path without leading slash; of a lost catalog segment, the first of the range.
    pub path: Vec<u8>,
    /// How many paths: of a lost catalog segment, those from there on.
    pub paths: u64,
    pub text: String,
}

/// A pack that is not as the index says.
pub(super) struct PackTrouble {
    /// What is wrong with it; `None`: a prune deleted it, as it said it would.
    text: Option<String>,
    is_there: bool,
}

/// What has been found so far.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) report: CheckReport,
    /// Chunks of which no good copy is left as far as known, and why.
    pub(super) bad_chunks: BTreeMap<ChunkId, String>,
    /// Chunks that open, and stand in damaged packs only.
    pub(super) in_danger: HashSet<ChunkId>,
    /// Missing and damaged packs.
    packs: BTreeMap<PackNumber, PackTrouble>,
    /// Packs of which something could not be read, and nothing is known.
    unread_packs: BTreeSet<PackNumber>,
    /// Parts of catalogs of which nothing is known.
    unread_chunks: HashSet<ChunkId>,
}

impl MendedBy {
    /// What it does, and its name.
    pub(super) fn words(self) -> &'static str {
        match self {
            MendedBy::RepairHot => "bale repair hot writes it again",
            MendedBy::RepairCold { read_data: false } => "bale repair cold writes it again",
            MendedBy::RepairCold { read_data: true } => {
                "bale repair cold --read-data writes it again"
            }
        }
    }
}

impl Findings {
    pub(super) fn damage(&mut self, what: impl Into<String>, text: impl Into<String>) {
        let (what, text) = (what.into(), text.into());
        let text = without_name(&what, &text).to_owned();
        self.report.damage.push(CheckFinding {
            what,
            text,
            mended_by: None,
        });
    }

    /// Of an object that is whole in one of two stores.
    pub(super) fn damage_in_one(
        &mut self,
        what: impl Into<String>,
        text: impl Into<String>,
        mended_by: MendedBy,
    ) {
        self.damage(what, text);
        if let Some(finding) = self.report.damage.last_mut() {
            finding.mended_by = Some(mended_by);
        }
    }

    /// An object that could not be read: damaged, if the error says so.
    pub(super) fn trouble(&mut self, name: &ObjectName, error: &Error, text: String) {
        match is_inconclusive(error) {
            true => self.report.unread.name(name.to_string(), error),
            false => self.damage(name.to_string(), text),
        }
    }

    pub(super) fn bad_chunk(&mut self, id: ChunkId, text: impl Into<String>) {
        self.bad_chunks.entry(id).or_insert_with(|| text.into());
    }

    /// A chunk that does not open in any pack that the index names for it.
    pub(super) fn unreadable_chunk(&mut self, index: &ChunkIndex, id: ChunkId, text: &str) {
        let chunk = format!("chunk {}", id.short());
        for place in index.copies(&id) {
            let pack = ObjectName::pack(index.pack(place.pack).id);
            let named = format!("{chunk} in {pack}: ");
            let why = text.strip_prefix(&named).unwrap_or(text);
            self.damaged_pack(place.pack, format!("{chunk} in it: {why}"));
        }
        let text = text.strip_prefix(&format!("{chunk} ")).unwrap_or(text);
        self.bad_chunk(id, text);
    }

    /// Is a chunk that could not be read damaged or gone? If not, no path is called lost with it.
    pub(super) fn is_known(&mut self, id: &ChunkId, error: &Error) -> bool {
        let is_known = !is_inconclusive(error);
        if !is_known {
            self.unread_chunks.insert(*id);
        }
        is_known
    }

    /// A chunk of a catalog of which nothing is known: the store did not hand it out.
    pub(super) fn unread_chunk(&mut self, index: &ChunkIndex, id: &ChunkId, error: &Error) {
        self.unread_chunks.insert(*id);
        for place in index.copies(id) {
            self.unread_pack(index, place.pack, &error.to_string());
        }
    }

    pub(super) fn unread_pack(&mut self, index: &ChunkIndex, pack: PackNumber, text: &str) {
        if self.unread_packs.insert(pack) {
            let name = format!("pack {}", index.pack(pack).id);
            self.report.unread.name_with(name, text);
        }
    }

    pub(super) fn is_unread(&self, id: &ChunkId) -> bool {
        self.unread_chunks.contains(id)
    }

    pub(super) fn has_unread_catalogs(&self) -> bool {
        !self.unread_chunks.is_empty()
    }

    pub(super) fn missing_pack(&mut self, pack: PackNumber, text: Option<&str>) {
        let trouble = PackTrouble {
            text: text.map(str::to_owned),
            is_there: false,
        };
        self.packs.insert(pack, trouble);
    }

    pub(super) fn damaged_pack(&mut self, pack: PackNumber, text: impl Into<String>) {
        if let Entry::Vacant(entry) = self.packs.entry(pack) {
            entry.insert(PackTrouble {
                text: Some(text.into()),
                is_there: true,
            });
        }
    }

    pub(super) fn is_damaged(&self, pack: PackNumber) -> bool {
        self.packs.contains_key(&pack)
    }

    pub(super) fn has_damaged_packs(&self) -> bool {
        !self.packs.is_empty()
    }

    /// Does the store have it, damaged as it is?
    pub(super) fn is_there(&self, pack: PackNumber) -> bool {
        self.packs.get(&pack).is_none_or(|pack| pack.is_there)
    }

    /// Is this chunk lost, or about to be?
    pub(super) fn is_suspect(&self, id: &ChunkId) -> bool {
        self.bad_chunks.contains_key(id) || self.in_danger.contains(id)
    }

    pub(super) fn has_suspects(&self) -> bool {
        !self.bad_chunks.is_empty() || !self.in_danger.is_empty()
    }

    /// `path`, or with more than one all from there on.
    pub(super) fn lost(&mut self, snapshot: ObjectId, path: Vec<u8>, paths: u64, text: &str) {
        self.report.lost_count += paths;
        if self.report.lost.len() < LOST_PATHS_LISTED_MAX {
            self.report.lost.push(LostPath {
                snapshot,
                path,
                paths,
                text: text.to_owned(),
            });
        }
    }

    /// The end: of what is wrong, what is needed is damage. `needed` is `None` if some snapshot
    /// cannot be read, so that nobody knows what it needs.
    pub(super) fn weigh(&mut self, index: &ChunkIndex, needed: Option<&HashSet<ChunkId>>) {
        let is_needed = |id: &ChunkId| needed.is_none_or(|needed| needed.contains(id));
        let mut needed_of: BTreeMap<PackNumber, Needed> = BTreeMap::new();
        for (id, is_bad) in (self.bad_chunks.keys().map(|id| (id, true)))
            .chain(self.in_danger.iter().map(|id| (id, false)))
            .filter(|(id, _)| is_needed(id))
        {
            for place in index.copies(id) {
                let needed = needed_of.entry(place.pack).or_default();
                needed.bad += u64::from(is_bad);
                needed.good += u64::from(!is_bad);
            }
        }
        let in_danger = self.in_danger.iter().filter(|id| is_needed(id));
        self.report.chunks_in_danger = in_danger.count() as u64;
        let packs = std::mem::take(&mut self.packs);
        for (number, trouble) in packs {
            let id = index.pack(number).id;
            if trouble.is_there {
                self.report.packs_damaged.push(id);
            }
            let Some(text) = trouble.text else { continue };
            match needed_of.get(&number) {
                Some(needed) => {
                    let text = format!("{text}; {}", needed.text());
                    self.damage(format!("pack {id}"), text);
                }
                None => self.report.packs_not_needed += 1,
            }
        }
        for (id, text) in std::mem::take(&mut self.bad_chunks) {
            if is_needed(&id) {
                self.damage(format!("chunk {id}"), text);
            }
        }
    }
}

/// Chunks of a pack that snapshots need and no undamaged pack has.
#[derive(Default)]
struct Needed {
    bad: u64,
    good: u64,
}

impl Needed {
    fn text(&self) -> String {
        format!(
            "of what is needed, and in no undamaged pack, {} {} lost and {} can be read",
            counted(self.bad, "chunk"),
            if self.bad == 1 { "is" } else { "are" },
            self.good
        )
    }
}
