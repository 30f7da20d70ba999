//! What each of two stores has under the names that both should have. Read together, an object that
//! is whole in one hides a damaged one in the other, until that is all there is.

use super::damage::{Findings, MendedBy};
use crate::two_stores::{Found, lengths, packs_with_metadata};
use bale_format::{ObjectId, PackNumber};
use bale_pipeline::monitor::Monitor;
use bale_pipeline::ordered::in_order_weighed;
use bale_repository::error::{Error, Result};
use bale_repository::index::{ChunkIndex, PackInfo};
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectInfo, ObjectName, Store};
use std::collections::{BTreeMap, HashSet};

/// Areas of which each object is read in both; of keys and configs more is said.
const READ: [Area; 5] = [
    Area::Index,
    Area::Condemned,
    Area::Damaged,
    Area::Runs,
    Area::Snapshots,
];

/// Names what is damaged in one store and whole in the other. What is damaged in both is named by
/// whoever reads them together; what is in one alone, where listings are compared.
pub(super) fn check_copies(
    repository: &Repository,
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<()> {
    let Some([hot, cold]) = repository.store().tiers() else {
        return Ok(());
    };
    for area in READ {
        let of_hot = lengths(hot, area)?;
        let mut listed = Vec::new();
        cold.list(area, &mut |info| listed.push(info))?;
        let jobs = listed.into_iter().filter_map(|info| {
            let of_hot = *of_hot.get(&info.name)?;
            Some((info.len.saturating_add(of_hot), (info, of_hot)))
        });
        let look = |(of_cold, len): (ObjectInfo, u64)| {
            let of_hot = ObjectInfo {
                len,
                ..of_cold.clone()
            };
            let both = [(hot, of_hot), (cold, of_cold.clone())]
                .map(|(store, info)| Found::of_listed(store, &info));
            (of_cold.name, both)
        };
        in_order_weighed(repository.flights(), jobs, look, |(name, found)| {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            name_the_worse(&name, [hot, cold], found, findings);
            Ok(())
        })?;
    }
    Ok(())
}

/// Names packs of metadata that have another length in the hot store than the index says, and not
/// in the cold one: those that have are damaged packs by now.
pub(super) fn check_lengths_in_hot(
    repository: &Repository,
    index: &ChunkIndex,
    findings: &mut Findings,
) -> Result<()> {
    let Some([hot, _]) = repository.store().tiers() else {
        return Ok(());
    };
    for (name, len) in lengths(hot, Area::Packs)? {
        let number = name.id().and_then(|id| index.pack_number(&id));
        let Some(number) = number.filter(|number| !findings.is_damaged(*number)) else {
            continue;
        };
        let (should_be, mended_by) = (index.pack(number).len, MendedBy::RepairHot);
        if len != should_be {
            let what = format!("{name} in the hot store {}", hot.place());
            let text = format!("{len} bytes, should be {should_be} ({})", mended_by.words());
            findings.damage_in_one(what, text, mended_by);
        }
    }
    Ok(())
}

fn name_the_worse(
    name: &ObjectName,
    [hot, cold]: [&dyn Store; 2],
    found: [Found; 2],
    findings: &mut Findings,
) {
    let in_hot = || format!("{name} in the hot store {}", hot.place());
    let in_cold = || format!("{name} in the cold store {}", cold.place());
    match found {
        [Found::Damaged(text), Found::Intact] => {
            let mended_by = MendedBy::RepairHot;
            let words = mended_by.words();
            let text = format!("{text}: that of the cold store is intact ({words})");
            findings.damage_in_one(in_hot(), text, mended_by);
        }
        [Found::Intact, Found::Damaged(text)] => {
            let mended_by = MendedBy::RepairCold { read_data: false };
            let words = mended_by.words();
            let text = format!("{text}: that of the hot store is intact ({words})");
            findings.damage_in_one(in_cold(), text, mended_by);
        }
        [found, Found::Unreadable(text)] if found != Found::Missing => {
            findings.report.unread.name_with(in_cold(), &text);
        }
        [Found::Unreadable(text), found] if found != Found::Missing => {
            findings.report.unread.name_with(in_hot(), &text);
        }
        [Found::Intact, Found::Archived] => findings.report.objects_archived += 1,
        _ => {}
    }
}

/// Packs of metadata, of which both stores have one, among those that are `chosen`. Of the cold one
/// all is read, for no reader takes them from there; the hot one was read before, if it could be.
#[derive(Default)]
pub(super) struct PacksOfBoth {
    damaged_in_cold: BTreeMap<ObjectId, String>,
    unread_in_cold: BTreeMap<ObjectId, String>,
    unread_in_hot: BTreeMap<ObjectId, String>,
    pub(super) archived: u64,
}

impl PacksOfBoth {
    pub(super) fn read(
        repository: &Repository,
        index: &ChunkIndex,
        chosen: &HashSet<PackNumber>,
        monitor: &dyn Monitor,
    ) -> Result<PacksOfBoth> {
        let mut packs = PacksOfBoth::default();
        let Some([hot, cold]) = repository.store().tiers() else {
            return Ok(packs);
        };
        let of_hot = lengths(hot, Area::Packs)?;
        let metadata = packs_with_metadata(index);
        let chosen = chosen.iter().map(|number| index.pack(*number));
        for pack in chosen.filter(|pack| metadata.contains(&pack.id)) {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let name = ObjectName::pack(pack.id);
            // Of another length: named by whoever compares lengths.
            let is_as_long = |len: u64| len == pack.len;
            let len = cold.stat(&name)?.map(|info| info.len);
            if !of_hot.contains_key(&name) || !len.is_some_and(is_as_long) {
                continue;
            }
            // What is not handed out there was read from the cold one.
            if let Err(error) = hot.read_at(&name, 0, &mut [0])
                && error.is_inconclusive()
            {
                let text = error.source.to_string();
                packs.unread_in_hot.insert(pack.id, text);
            }
            match Found::of_listed(cold, &info(pack)) {
                Found::Damaged(text) => drop(packs.damaged_in_cold.insert(pack.id, text)),
                Found::Unreadable(text) => drop(packs.unread_in_cold.insert(pack.id, text)),
                Found::Archived => packs.archived += 1,
                Found::Intact | Found::Missing => {}
            }
        }
        Ok(packs)
    }

    /// Was each of them read?
    pub(super) fn is_all_known(&self) -> bool {
        self.archived == 0 && self.unread_in_cold.is_empty() && self.unread_in_hot.is_empty()
    }

    /// Those of packs that are whole in the hot store; others are named as damaged.
    pub(super) fn report(
        &self,
        index: &ChunkIndex,
        [hot, cold]: [&dyn Store; 2],
        findings: &mut Findings,
    ) {
        let (hot, cold) = (hot.place(), cold.place());
        for (unread, which) in [
            (&self.unread_in_hot, format!("hot store {hot}")),
            (&self.unread_in_cold, format!("cold store {cold}")),
        ] {
            for (id, text) in unread {
                let what = format!("{} in the {which}", ObjectName::pack(*id));
                findings.report.unread.name_with(what, text);
            }
        }
        for (id, text) in &self.damaged_in_cold {
            let number = index.pack_number(id);
            if number.is_some_and(|number| !findings.is_damaged(number)) {
                let mended_by = MendedBy::RepairCold { read_data: true };
                let words = mended_by.words();
                let text = format!("{text}: that of the hot store is whole ({words})");
                let what = format!("{} in the cold store {cold}", ObjectName::pack(*id));
                findings.damage_in_one(what, text, mended_by);
            }
        }
    }
}

/// Of a pack that the cold store has with another length: whether the hot one has all of it, which
/// is then named.
pub(super) fn is_short_in_cold_alone(
    repository: &Repository,
    pack: &PackInfo,
    len: u64,
    findings: &mut Findings,
) -> bool {
    let Some([hot, cold]) = repository.store().tiers() else {
        return false;
    };
    let name = ObjectName::pack(pack.id);
    let mended_by = MendedBy::RepairCold { read_data: false };
    let is_whole = matches!(hot.stat(&name), Ok(Some(info)) if info.len == pack.len)
        && Found::of_listed(hot, &info(pack)) == Found::Intact;
    if is_whole {
        let text = format!(
            "{len} bytes, should be {}: that of the hot store is whole ({})",
            pack.len,
            mended_by.words()
        );
        let what = format!("{name} in the cold store {}", cold.place());
        findings.damage_in_one(what, text, mended_by);
    }
    is_whole
}

fn info(pack: &PackInfo) -> ObjectInfo {
    ObjectInfo {
        name: ObjectName::pack(pack.id),
        len: pack.len,
        modified: None,
    }
}
