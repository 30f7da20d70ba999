//! The three rules.
//!
//! R1: what restored before still restores, bit for bit, unless a forget removed it or the damage
//! of this very step took it. R2: a backup that says complete restores whole at that moment, and a
//! check tells the truth. R3: nothing else is ever removed or changed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bale_engine::verify::CheckReport;
use bale_format::ObjectId;
use bale_repository::store::{Area, ObjectName};

use super::probe::States;
use super::shelf::Objects;
use super::steps::{Rule, Step, Target};
use super::tree::{is_within, text};
use super::world::{Held, Kept, World};

/// Clocks of machines may differ by so much.
const SKEW_SECONDS: i64 = bale_repository::snapshots::CLOCK_SKEW_SECONDS_MAX;

/// Where a step may change files; the objects of the repository are looked at one by one.
pub fn may_touch(world: &World, step: &Step) -> Vec<PathBuf> {
    let mut places = vec![
        world.cache(0),
        world.cache(1),
        world.path("scratch"),
        world.path("image.ext4"),
    ];
    places.extend(world.shelf.root().map(PathBuf::from));
    if let Step::Restore(restore) = step {
        places.push(super::restoring::place(world, restore.target));
        if matches!(restore.target, Target::Other(_)) {
            places.push(world.path("targets"));
        }
    }
    places
}

/// Objects come and go only as the step may make them, and never change.
pub fn objects_changed(world: &mut World, step: &Step, before: &Objects) -> Held {
    let after = &world.objects;
    let gone: Vec<ObjectName> = before
        .keys()
        .filter(|name| !after.contains_key(name))
        .copied()
        .collect();
    let come: Vec<ObjectName> = after
        .keys()
        .filter(|name| !before.contains_key(name))
        .copied()
        .collect();
    let changed = before
        .iter()
        .find(|(name, bytes)| after.get(name).is_some_and(|now| now != *bytes));
    let changed = changed.map(|(name, _)| *name);
    for name in &gone {
        world.gone.push((*name, before[name].clone()));
    }
    if matches!(step, Step::Damage(_)) {
        return Ok(());
    }
    if let Some(name) = changed.filter(|name| !is_mended_config(world, step, name)) {
        return Err(format!("R3 {name} was written over"));
    }
    let (may_come, may_go): (&[Area], &[Area]) = match step {
        Step::Backup(backup) if !backup.dry_run => {
            let come = &[
                Area::Packs,
                Area::Index,
                Area::Snapshots,
                Area::Runs,
                Area::Damaged,
            ];
            (come, &[Area::Runs])
        }
        Step::ForgetDamaged { .. } => {
            let areas = &[
                Area::Snapshots,
                Area::Runs,
                Area::Index,
                Area::Condemned,
                Area::Damaged,
            ];
            (&[], areas)
        }
        Step::ForgetOne { .. } | Step::ForgetByRule { dry_run: false, .. } => {
            (&[], &[Area::Snapshots])
        }
        Step::Prune(prune) if !prune.dry_run => {
            let areas = &[Area::Packs, Area::Index, Area::Condemned, Area::Damaged];
            (areas, areas)
        }
        Step::RepairIndex { dry_run: false, .. } => (&[Area::Index, Area::Damaged], &[Area::Index]),
        Step::RepairPacks { dry_run: false, .. } => {
            (&[Area::Packs, Area::Index, Area::Damaged], &[Area::Damaged])
        }
        Step::RepairConfig { dry_run: false, .. } => (&Area::CONFIGS, &Area::CONFIGS),
        Step::Check { mark: true, .. } => (&[Area::Damaged], &[Area::Damaged]),
        _ => (&[], &[]),
    };
    if let Some(name) = come.iter().find(|name| !may_come.contains(&name.area)) {
        return Err(format!("R3 {name} was added"));
    }
    if let Some(name) = gone.iter().find(|name| !may_go.contains(&name.area)) {
        return Err(format!("R3 {name} was removed"));
    }
    one_config_stays(world)?;
    only_forgotten_snapshots_go(world, &gone)
}

/// Only a repair writes `config` or its copy again, and only the damaged one, as it was.
fn is_mended_config(world: &World, step: &Step, name: &ObjectName) -> bool {
    let is_repair = matches!(step, Step::RepairConfig { dry_run: false, .. });
    is_repair && !name.area.is_directory() && *world.objects[name] == world.config
}

/// After every step one of the two is as it was made.
fn one_config_stays(world: &World) -> Held {
    let is_whole =
        |name: &ObjectName| (world.objects.get(name)).is_some_and(|bytes| **bytes == world.config);
    match ObjectName::configs().iter().any(is_whole) {
        true => Ok(()),
        false => Err("R3 neither config nor its copy is there any more".to_owned()),
    }
}

fn only_forgotten_snapshots_go(world: &World, gone: &[ObjectName]) -> Held {
    let ids = gone
        .iter()
        .filter(|name| name.area == Area::Snapshots)
        .filter_map(|name| name.id());
    for id in ids {
        if world
            .kept
            .iter()
            .any(|kept| kept.id == id && !kept.is_forgotten)
        {
            return Err(format!(
                "R3 snapshot {} was removed, and nobody asked for that",
                id.short()
            ));
        }
    }
    Ok(())
}

pub fn nothing_got_worse(world: &mut World, states: &States, is_damage: bool) -> Held {
    for kept in world.kept.iter_mut().filter(|kept| !kept.is_forgotten) {
        let Some(state) = states.get(&kept.id) else {
            continue;
        };
        let lost: Vec<String> = kept
            .whole
            .difference(&state.whole)
            .map(|path| text(path))
            .collect();
        if !lost.is_empty() && !is_damage {
            return Err(format!(
                "R1 of snapshot {} this could be restored, and cannot any more: {} paths, the \
                 first is {}",
                kept.id.short(),
                lost.len(),
                lost[0]
            ));
        }
        kept.whole = state.whole.clone();
    }
    Ok(())
}

/// A check that says clean may not be followed by a restore that fails; and what it calls lost is
/// lost.
pub fn check_tells_the_truth(
    world: &World,
    report: &CheckReport,
    states: &States,
    everything: bool,
) -> Held {
    for lost in &report.lost {
        let whole = states
            .get(&lost.snapshot)
            .is_some_and(|state| state.whole.contains(&lost.path));
        if whole {
            let short = lost.snapshot.short();
            return Err(format!(
                "R2 a check calls {short}:{} lost ({}), and it restores",
                text(&lost.path),
                lost.text
            ));
        }
    }
    if !world.is_damaged && !report.is_clean() {
        return Err(format!(
            "R2 a check finds damage where none is: {:?}",
            report.damage
        ));
    }
    if let Some(name) = world.damaged_config() {
        let is_named = (report.damage.iter()).any(|found| found.what == name.to_string());
        if !is_named {
            return Err(format!("R2 a check does not name {name}, which is damaged"));
        }
    }
    if !report.is_clean() {
        return Ok(());
    }
    for kept in world.kept_now() {
        let is_listed = world.objects.contains_key(&ObjectName::snapshot(kept.id));
        let lost = states
            .get(&kept.id)
            .and_then(|state| state.lost.iter().next());
        let (true, Some((path, faults))) = (is_listed, lost) else {
            continue;
        };
        if everything || !are_silent(world, faults)? {
            let short = kept.id.short();
            return Err(format!(
                "R2 a check says clean, and {short}:{} cannot be restored",
                text(path)
            ));
        }
    }
    Ok(())
}

/// Only who reads the packs can know.
fn are_silent(world: &World, faults: &[bale_format::ChunkId]) -> Held<bool> {
    let repository = world.open(0)?;
    let index = repository.index().map_err(|error| error.to_string())?;
    let is_silent = |fault: &bale_format::ChunkId| {
        index
            .copies(fault)
            .any(|place| world.silent.contains(&index.pack(place.pack).id))
    };
    Ok(!faults.is_empty() && faults.iter().all(is_silent))
}

/// Snapshots of a group, newest first, that were made when their clock was not ahead of ours.
fn of_group<'w>(world: &'w World, like: &Kept) -> Vec<&'w Kept> {
    let now = bale_pipeline::clock::Clock::time(&*world.clock);
    let alike = |kept: &&Kept| {
        kept.host == like.host
            && kept.sources == like.sources
            && kept.time.seconds <= now.seconds + SKEW_SECONDS
    };
    let mut group: Vec<&Kept> = world.kept_now().into_iter().filter(alike).collect();
    group.retain(|kept| world.objects.contains_key(&ObjectName::snapshot(kept.id)));
    group.sort_by_key(|kept| std::cmp::Reverse((kept.time, kept.id)));
    group
}

/// Whatever the clocks of some snapshots said, the newest that are not of the future are kept as
/// the rule says.
pub fn forgets_what_it_should(world: &World, rule: Rule, removed: &BTreeSet<ObjectId>) -> Held {
    let now = bale_pipeline::clock::Clock::time(&*world.clock).seconds;
    for kept in world
        .kept_now()
        .into_iter()
        .filter(|kept| removed.contains(&kept.id))
    {
        let group = of_group(world, kept);
        let Some(nth) = group.iter().position(|other| other.id == kept.id) else {
            continue;
        };
        let age = now - kept.time.seconds;
        let stays = match rule {
            Rule::Last(count) => nth < count as usize,
            // The newest one is the newest of its day and hour.
            Rule::Daily(_) | Rule::Hourly(_) => nth == 0,
            Rule::WithinDays(days) => age < days * 24 * 3600 - SKEW_SECONDS,
            Rule::WithinForEver => true,
            Rule::Tag => kept.tags.iter().any(|tag| tag == "keep"),
        };
        if stays {
            let short = kept.id.short();
            return Err(format!(
                "R1 {rule:?} forgets {short}, which is number {nth} of its group and {age} s old"
            ));
        }
    }
    Ok(())
}

/// No snapshot is newer than the one that is called latest, whether it can be read or not.
pub fn is_latest(world: &World, id: ObjectId) -> Held {
    let there = |kept: &&Kept| world.objects.contains_key(&ObjectName::snapshot(kept.id));
    let now = bale_pipeline::clock::Clock::time(&*world.clock);
    let kept = world.kept_now();
    let found = kept.iter().find(|kept| kept.id == id);
    let newest = kept
        .iter()
        .filter(|kept| there(kept))
        .filter(|kept| kept.time.seconds <= now.seconds + SKEW_SECONDS)
        .max_by_key(|kept| kept.time);
    match (found, newest) {
        (Some(found), Some(_)) if found.time.seconds > now.seconds + SKEW_SECONDS => Err(format!(
            "R1 latest is {}, which is dated in the future",
            found.id.short()
        )),
        (Some(found), Some(newest)) if found.time < newest.time => {
            let (latest, newer) = (found.id.short(), newest.id.short());
            Err(format!("R1 latest is {latest}, and {newer} is newer"))
        }
        _ => Ok(()),
    }
}

/// Is a path, as a snapshot has it, below one of its sources?
pub fn is_below_a_source(kept: &Kept, path: &[u8]) -> bool {
    kept.sources
        .iter()
        .any(|source| path != source.as_slice() && is_within(path, source))
}
