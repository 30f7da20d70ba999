//! Doing the steps, and holding the rules after each.

use std::collections::BTreeSet;

use bale_engine::dump::dump_snapshot;
use bale_engine::forget::{self, GroupBy, Policy};
use bale_engine::prune;
use bale_engine::repair::{repair_config, repair_index, repair_packs};
use bale_engine::verify::{self, Subset, check, scrub};
use bale_format::ObjectId;
use bale_repository::snapshots::{SnapshotFilter, find};
use bale_repository::store::{Area, ObjectName};
use bale_restore::ScratchSpace;
use jiff::ToSpan;
use jiff::tz::TimeZone;

use super::probe::probe;
use super::rules;
use super::source;
use super::steps::*;
use super::tree::{stamps, text, touched};
use super::world::{Held, Watch, World};
use super::{backing_up, damage, restoring, spoil};

/// Runs a sequence; `Err` tells which promise was broken at which step.
pub fn run(seed: u64, steps: &[Step]) -> Held {
    let mut world = World::new(seed);
    for (number, step) in steps.iter().enumerate() {
        one(&mut world, step).map_err(|broken| format!("step {number}: {broken}"))?;
    }
    restoring::everything(&mut world).map_err(|broken| format!("at the end: {broken}"))
}

/// One step, and the rules that hold whatever it was.
fn one(world: &mut World, step: &Step) -> Held {
    let before = world.look_at_objects();
    drop(before);
    let may_touch = rules::may_touch(world, step);
    let skipped: Vec<_> = may_touch.iter().map(|path| path.as_path()).collect();
    let files = stamps(world.dir.path(), &skipped);
    let result = act(world, step);
    let objects = world.look_at_objects();
    rules::objects_changed(world, step, &objects)?;
    result?;
    if !matches!(step, Step::Change(_) | Step::Litter { .. }) {
        let touched = touched(&files, &stamps(world.dir.path(), &skipped));
        if !touched.is_empty() {
            return Err(format!(
                "R3 what nobody asked to touch was touched: {touched:?}"
            ));
        }
    }
    if matches!(step, Step::Change(_) | Step::Litter { .. } | Step::Clock(_)) {
        return Ok(());
    }
    let states = probe(world)?;
    let is_damage = matches!(step, Step::Damage(_));
    rules::nothing_got_worse(world, &states, is_damage)
}

fn act(world: &mut World, step: &Step) -> Held {
    match step {
        Step::Change(edits) => {
            source::apply(edits, &world.path("home/src"), &world.path("home/mail"));
            Ok(())
        }
        Step::Backup(step) => backing_up::backup_step(world, step),
        Step::ForgetOne { nth, stop } => forget_one(world, *nth, *stop),
        Step::ForgetDamaged { nth, stop } => forget_damaged(world, *nth, *stop),
        Step::ForgetByRule { rule, dry_run } => forget_by_rule(world, *rule, *dry_run),
        Step::Prune(step) => prune_step(world, *step),
        Step::Check { host, read, mark } => check_step(world, *host, *read, *mark),
        Step::RepairIndex { dry_run, stop } => repair_index_step(world, *dry_run, *stop),
        Step::RepairPacks { nth, dry_run, stop } => repair_packs_step(world, *nth, *dry_run, *stop),
        Step::RepairConfig { dry_run, stop } => repair_config_step(world, *dry_run, *stop),
        Step::Restore(step) => restoring::restore_step(world, step),
        Step::Dump { nth, path } => dump_step(world, *nth, *path),
        Step::Latest => latest(world),
        Step::Damage(step) => {
            world.is_damaged |= damage::damage(world, *step);
            Ok(())
        }
        Step::Clock(step) => {
            spoil::clock(world, *step);
            Ok(())
        }
        Step::SpoilCache { host, nth, how } => {
            spoil::cache(world, *host, *nth, *how);
            Ok(())
        }
        Step::Litter { target, edits } => {
            restoring::litter(world, *target, edits);
            Ok(())
        }
    }
}

/// Where nothing was damaged and nobody interrupts, operations work.
pub fn must_work<T>(
    world: &World,
    what: &str,
    stop: Stop,
    result: Result<T, bale_repository::error::Error>,
) -> Held<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.to_string().contains("defect") => {
            Err(format!("{what} panicked: {error}"))
        }
        Err(_) if world.is_damaged || stop != Stop::Never => Ok(None),
        Err(error) => Err(format!("{what} fails and nothing is damaged: {error}")),
    }
}

fn forget_one(world: &mut World, nth: usize, stop: Stop) -> Held {
    let kept = world.kept_now();
    if kept.is_empty() {
        return Ok(());
    }
    let id = kept[nth % kept.len()].id;
    let store = world.store_until(stop);
    if let Ok(repository) = world.open_over(0, store) {
        let done = forget::find(&repository, &id.to_string())
            .and_then(|found| forget::remove(&repository, &found));
        must_work(world, "forget", stop, done)?;
    }
    was_asked_to_forget(world, id);
    Ok(())
}

fn was_asked_to_forget(world: &mut World, id: ObjectId) {
    let is_there = world
        .shelf
        .objects()
        .contains_key(&ObjectName::snapshot(id));
    for kept in world.kept.iter_mut().filter(|kept| kept.id == id) {
        kept.is_forgotten = !is_there;
    }
}

/// What cannot be read is in the way of prunes until somebody removes it.
fn forget_damaged(world: &mut World, nth: usize, stop: Stop) -> Held {
    let areas = [
        Area::Snapshots,
        Area::Runs,
        Area::Index,
        Area::Condemned,
        Area::Damaged,
    ];
    let repository = world.open_over(0, world.store_until(stop)).ok();
    let Some(repository) = repository else {
        return Ok(());
    };
    let is_damaged = |name: &&ObjectName| {
        let id = name.id().expect("all of these have one");
        forget::find(&repository, &id.to_string()).is_ok_and(|found| found.damage.is_some())
    };
    let names = world
        .objects
        .keys()
        .filter(|name| areas.contains(&name.area));
    let damaged: Vec<ObjectName> = names.filter(is_damaged).copied().collect();
    if damaged.is_empty() {
        return Ok(());
    }
    let id = damaged[nth % damaged.len()]
        .id()
        .expect("all of these have one");
    let done = forget::find(&repository, &id.to_string())
        .and_then(|found| forget::remove(&repository, &found));
    must_work(world, "forget", stop, done)?;
    if damaged[nth % damaged.len()].area == Area::Snapshots {
        was_asked_to_forget(world, id);
    }
    Ok(())
}

fn policy(rule: Rule) -> Policy {
    let mut policy = Policy::default();
    match rule {
        Rule::Last(count) => policy.last = count,
        Rule::Daily(count) => policy.daily = count,
        Rule::Hourly(count) => policy.hourly = count,
        Rule::WithinDays(days) => policy.within = Some(days.days()),
        Rule::WithinForEver => policy.within = Some(15_000.years()),
        Rule::Tag => policy.tags = vec![vec!["keep".to_owned()]],
    }
    policy
}

/// As the command does it: what the plan says is removed, and nothing else.
fn forget_by_rule(world: &mut World, rule: Rule, dry_run: bool) -> Held {
    let repository = world.open(0)?;
    let readable = repository
        .snapshots_readable()
        .map(|(readable, _)| readable);
    let Some(snapshots) = must_work(world, "list snapshots", Stop::Never, readable)? else {
        return Ok(());
    };
    let plan = forget::plan(
        &snapshots,
        &policy(rule),
        GroupBy::default(),
        &TimeZone::UTC,
        repository.clock().time(),
    );
    let empties = |group: &forget::SnapshotGroup| {
        group
            .decisions
            .iter()
            .all(|decision| decision.reasons.is_empty())
    };
    if plan.groups.iter().any(empties) {
        return Ok(());
    }
    let removed: BTreeSet<ObjectId> = plan.removed().map(|decision| decision.id).collect();
    rules::forgets_what_it_should(world, rule, &removed)?;
    if dry_run {
        return Ok(());
    }
    for id in &removed {
        must_work(
            world,
            "forget",
            Stop::Never,
            repository.forget_snapshot(*id),
        )?;
    }
    for kept in world
        .kept
        .iter_mut()
        .filter(|kept| removed.contains(&kept.id))
    {
        kept.is_forgotten = true;
    }
    Ok(())
}

fn prune_step(world: &World, step: Prune) -> Held {
    let options = super::options::prune(&step);
    let Ok(repository) = world.open_over(0, world.store_until(step.stop)) else {
        return Ok(());
    };
    let watch = Watch::until(step.stop);
    let planned = prune::plan(&repository, &options, &watch);
    let Some(plan) = must_work(world, "prune", step.stop, planned)? else {
        return Ok(());
    };
    if !step.dry_run {
        let done = prune::apply(&repository, &plan, &options, &watch);
        must_work(world, "prune", step.stop, done)?;
    }
    Ok(())
}

fn check_step(world: &mut World, host: usize, read: Read, mark: bool) -> Held {
    let watch = Watch::default();
    let subset = match read {
        Read::Structure => None,
        Read::Data => Some(Subset::All),
        Read::Part(part, of) => Some(Subset::Part { part, of }),
        Read::Percent(percent) => Some(Subset::Percent(f64::from(percent))),
        Read::Bytes(bytes) => Some(Subset::Bytes(bytes)),
        Read::Scrub => {
            let report = scrub(&world.shelf.reopened(), &watch);
            let report = must_work(world, "scrub", Stop::Never, report)?;
            let found = report.is_some_and(|report| !report.damage.is_empty());
            return match found && !world.is_damaged {
                true => Err("R2 a scrub finds damage where none is".to_owned()),
                false => Ok(()),
            };
        }
    };
    let repository = world.open(host)?;
    let report = check(&repository, subset, &watch);
    let Some(report) = must_work(world, "check", Stop::Never, report)? else {
        return Ok(());
    };
    let states = probe(world)?;
    let everything = subset == Some(Subset::All);
    rules::check_tells_the_truth(world, &report, &states, everything)?;
    if !mark {
        return Ok(());
    }
    let marked = verify::mark(&repository, &report);
    let is_marked = must_work(world, "mark", Stop::Never, marked)?.is_some();
    if everything && is_marked {
        let read: Vec<ObjectId> = world.silent.drain().collect();
        world.read_since.extend(read);
    }
    Ok(())
}

fn repair_index_step(world: &World, dry_run: bool, stop: Stop) -> Held {
    let Ok(repository) = world.open_over(1, world.store_until(stop)) else {
        return Ok(());
    };
    let done = repair_index(&repository, dry_run, &Watch::until(stop));
    must_work(world, "repair index", stop, done).map(|_| ())
}

fn repair_packs_step(world: &World, nth: Option<usize>, dry_run: bool, stop: Stop) -> Held {
    let packs: Vec<ObjectId> = world
        .objects
        .keys()
        .filter(|name| name.area == Area::Packs)
        .filter_map(|name| name.id())
        .collect();
    let one = nth
        .filter(|_| !packs.is_empty())
        .map(|nth| packs[nth % packs.len()]);
    let Ok(repository) = world.open_over(0, world.store_until(stop)) else {
        return Ok(());
    };
    // No index may name it any more.
    let is_named = repository
        .index()
        .is_ok_and(|index| one.is_none_or(|one| index.pack_number(&one).is_some()));
    let stop = if is_named {
        stop
    } else {
        Stop::Asked { calls: 0 }
    };
    let named: Vec<ObjectId> = one.into_iter().collect();
    let done = repair_packs(&repository, &named, dry_run, &Watch::until(stop));
    must_work(world, "repair packs", stop, done).map(|_| ())
}

fn repair_config_step(world: &World, dry_run: bool, stop: Stop) -> Held {
    let Ok(repository) = world.open_over(0, world.store_until(stop)) else {
        return match stop {
            Stop::Never => Err("R2 nothing opens with one config".to_owned()),
            _ => Ok(()),
        };
    };
    let done = repair_config(&repository, dry_run);
    let is_done = must_work(world, "repair config", stop, done)?.is_some();
    if stop == Stop::Never && !is_done {
        return Err("R2 config is not repaired from its other copy".to_owned());
    }
    Ok(())
}

fn dump_step(world: &World, nth: usize, path: usize) -> Held {
    let kept = world.kept_now();
    let Some(kept) = kept.get(nth % kept.len().max(1)) else {
        return Ok(());
    };
    let repository = world.open(0)?;
    let Ok((snapshots, _)) = repository.snapshots_readable() else {
        return Ok(());
    };
    let Some(named) = snapshots.iter().find(|(id, _)| *id == kept.id) else {
        return Ok(());
    };
    let paths: Vec<_> = kept
        .tree
        .0
        .iter()
        .filter(|(_, node)| node.is_file() || node.is_dir())
        .collect();
    let Some((path, node)) = paths.get(path % paths.len().max(1)) else {
        return Ok(());
    };
    let (mut bytes, watch) = (Vec::new(), Watch::default());
    let scratch = ScratchSpace::new(world.path("scratch"));
    let dumped = dump_snapshot(&repository, named, path, &scratch, &mut bytes, &watch);
    let Some(report) = must_work(world, "dump", Stop::Never, dumped)? else {
        return Ok(());
    };
    let is_exact = !node.is_file() || bytes == *node.content;
    match report.problems == 0 && !is_exact {
        true => Err(format!(
            "R1 dump of {} has other bytes, and says nothing",
            text(path)
        )),
        false => Ok(()),
    }
}

/// `latest` is the latest, or nothing: as the command asks for it, which goes on only while every
/// snapshot can be read.
fn latest(world: &World) -> Held {
    let repository = world.open(0)?;
    let found = repository.snapshots().and_then(|all| {
        find(
            &all,
            "latest",
            &SnapshotFilter::default(),
            repository.clock().time(),
        )
        .cloned()
    });
    let Ok((id, _)) = found else {
        return match world.is_damaged || world.kept_now().is_empty() {
            true => Ok(()),
            false => Err("there is no latest snapshot".to_owned()),
        };
    };
    rules::is_latest(world, id)
}
