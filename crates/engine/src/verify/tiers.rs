//! A repository with two stores, as each of the two has it. Read together, an intact key slot or
//! `config` in one store hides a damaged one in the other, until that is all there is; and what the
//! cold store has lost is not listed, although the hot one has it still.

use super::damage::{Findings, MendedBy};
use super::scrub::OTHER_BYTES;
use crate::limits::ALIVE_SECONDS;
use crate::two_stores::{Found, compare, names, packs_with_metadata};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::Result;
use bale_repository::index::ChunkIndex;
use bale_repository::repository::{CONFIG_BYTES_MAX, Repository};
use bale_repository::store::{Area, ObjectName, Store, StoreError};
use std::time::Duration;

/// No key slot is longer by far.
const SLOT_BYTES_MAX: u64 = 64 << 10;

/// Of one that is read whole at once; `is_it` says whether these are its bytes.
fn found(
    read: std::result::Result<Vec<u8>, StoreError>,
    is_it: impl FnOnce(&[u8]) -> bool,
) -> Found {
    match read {
        Ok(bytes) if is_it(&bytes) => Found::Intact,
        Ok(_) => Found::Damaged(OTHER_BYTES.to_owned()),
        Err(error) if error.is_not_found() => Found::Missing,
        Err(error) if error.is_inconclusive() => Found::Unreadable(error.source.to_string()),
        Err(error) => Found::Damaged(error.source.to_string()),
    }
}

/// Names what is damaged in one store and not in the other; what is in both is named by whoever
/// reads them together.
pub(super) fn check_tiers(repository: &Repository, findings: &mut Findings) -> Result<()> {
    let Some([hot, cold]) = repository.store().tiers() else {
        return Ok(());
    };
    let mut keys = names(hot, Area::Keys)?;
    keys.extend(names(cold, Area::Keys)?);
    for name in keys {
        check_key(&name, [hot, cold], findings);
    }
    let Ok(judged) = repository.judge_configs() else {
        return Ok(());
    };
    for name in ObjectName::configs() {
        for (store, which, mended_by) in [
            (hot, "hot", MendedBy::RepairHot),
            (cold, "cold", MendedBy::RepairCold { read_data: false }),
        ] {
            let what = format!("{name} in the {which} store {}", store.place());
            let is_it = |bytes: &[u8]| bytes == judged.intact_bytes();
            let text = match found(store.get(&name, CONFIG_BYTES_MAX), is_it) {
                Found::Intact | Found::Archived => continue,
                Found::Unreadable(text) => {
                    findings.report.unread.name_with(what, &text);
                    continue;
                }
                Found::Missing => "missing".to_owned(),
                Found::Damaged(text) if text == OTHER_BYTES => "it has other bytes".to_owned(),
                Found::Damaged(text) => text,
            };
            let text = format!("{text}: nothing is lost ({})", mended_by.words());
            findings.damage_in_one(what, text, mended_by);
        }
    }
    Ok(())
}

/// Areas of which the cold store has everything that the hot one has; of keys more is said.
const LISTED: [Area; 6] = [
    Area::Packs,
    Area::Index,
    Area::Condemned,
    Area::Damaged,
    Area::Runs,
    Area::Snapshots,
];

/// Names what the cold store has lost, and says which areas of the hot one lack what they should
/// have, unless a backup is writing. That is no damage: it is read from the cold one.
pub(super) fn check_listings(
    repository: &Repository,
    index: &ChunkIndex,
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<()> {
    let Some([hot, cold]) = repository.store().tiers() else {
        return Ok(());
    };
    let alive = Duration::from_secs(ALIVE_SECONDS);
    let is_written = !repository.runs_alive(alive)?.is_empty();
    let metadata = packs_with_metadata(index);
    for area in LISTED {
        let beside = compare([hot, cold], area, |name| match (area, name.id()) {
            (Area::Packs, Some(id)) => metadata.contains(&id),
            _ => true,
        })?;
        for name in &beside.lost_by_cold {
            let text = match area {
                Area::Snapshots | Area::Runs => {
                    "missing: the hot store has it (bale repair cold --snapshots brings it back)"
                }
                _ => "missing: the hot store has it (bale repair cold brings it back)",
            };
            let mended_by = MendedBy::RepairCold { read_data: false };
            let what = format!("{name} in the cold store {}", cold.place());
            findings.damage_in_one(what, text, mended_by);
        }
        if let Some(text) = beside.lacks_of_hot(area, hot).filter(|_| !is_written) {
            monitor.note(&text);
        }
    }
    Ok(())
}

fn check_key(name: &ObjectName, [hot, cold]: [&dyn Store; 2], findings: &mut Findings) {
    let read = |store: &dyn Store| {
        let is_it = |bytes: &[u8]| {
            name.id()
                .is_some_and(|id| id.0 == *blake3::hash(bytes).as_bytes())
        };
        found(store.get(name, SLOT_BYTES_MAX), is_it)
    };
    // One that is removed goes from the hot one first: read last, it is not found lost on its way.
    let of_cold = read(cold);
    let of_hot = read(hot);
    let in_hot = || format!("{name} in the hot store {}", hot.place());
    let in_cold = || format!("{name} in the cold store {}", cold.place());
    if let Found::Unreadable(text) = &of_hot {
        findings.report.unread.name_with(in_hot(), text);
    }
    if let Found::Unreadable(text) = &of_cold {
        findings.report.unread.name_with(in_cold(), text);
    }
    match (&of_hot, &of_cold) {
        (Found::Damaged(text), Found::Intact) => {
            let mended_by = MendedBy::RepairHot;
            let words = mended_by.words();
            let text = format!("{text}: that of the cold store is intact ({words})");
            findings.damage_in_one(in_hot(), text, mended_by);
        }
        (Found::Intact, Found::Missing | Found::Damaged(_)) => {
            let (what, word) = match &of_cold {
                Found::Damaged(text) => (text.as_str(), ""),
                _ => ("missing", " --keys"),
            };
            let text = format!(
                "{what}: with this key the cold store alone does not open, nor is a hot one made \
                 again from it (while the hot one is there, bale repair cold{word} brings it back)"
            );
            let mended_by = MendedBy::RepairCold { read_data: false };
            findings.damage_in_one(in_cold(), text, mended_by);
        }
        _ => {}
    }
}
