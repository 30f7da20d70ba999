//! Backups, and the second rule: one that says complete restores whole, at once.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bale_engine::backup::{Outcome, backup};
use bale_format::{ObjectId, Snapshot};
use bale_pipeline::monitor::Problem;
use bale_repository::repository::Repository;
use bale_repository::store::Area;
use bale_source::scan;
use std::sync::Arc;

use super::act::must_work;
use super::expect::leave_out;
use super::probe::{State, probe_some};
use super::source::bytes_of;
use super::steps::{Backup, Look, Sources, Stop};
use super::tree::{Tree, text};
use super::world::{Held, Kept, Watch, World};
use super::{image, options};

pub fn backup_step(world: &mut World, step: &Backup) -> Held {
    world.clock.advance(std::time::Duration::from_secs(1));
    world.right += std::time::Duration::from_secs(1);
    if step.look == Look::Image && !world.path("home/src").is_dir() {
        return Ok(());
    }
    let paths = sources(world, step);
    let Ok((mut resolved, missing)) = scan::Sources::resolve(&paths) else {
        return Ok(());
    };
    let copy = copy_if_asked(world, step, &mut resolved);
    let not_found: Vec<Problem> = missing.iter().map(as_problem).collect();
    let not_found_count = not_found.len() as u64;
    let sources = resolved.paths().to_vec();
    let expected = expected(world, step, &sources);
    let Ok(repository) = world.open_over(step.host, world.store_until(step.stop)) else {
        return Ok(());
    };
    let parent = step.parent.and_then(|nth| nth_id(world, nth));
    let scan = options::scan(step, &sources, &world.path("scratch"), &in_use(world));
    let engine_options = options::backup(step, parent, not_found);
    let watch = Watch::until(step.stop);
    let done = backup(&repository, &resolved, scan, &engine_options, &watch);
    drop(copy);
    let is_interrupted = step.stop != Stop::Never;
    let named_parent_is_gone = parent.is_some() && done.is_err();
    if done.is_err() && (is_interrupted || named_parent_is_gone)
        || world.is_damaged && done.is_err()
    {
        must_work(world, "backup", Stop::Asked { calls: 0 }, done)?;
        return adopt(world, step, &expected, &sources);
    }
    let Some(outcome) = must_work(world, "backup", step.stop, done)? else {
        return Ok(());
    };
    let unread_count = unread_count(&repository, &watch, step.stop)?;
    let named_count = not_found_count + emptied_count(&watch) + unread_count;
    if outcome.snapshot.counts.problems != named_count {
        let told = watch.problems();
        return Err(format!(
            "R2 a backup of what can be read tells problems: {told:?}"
        ));
    }
    if step.dry_run {
        return match outcome.id {
            None => Ok(()),
            Some(_) => Err("R3 a dry run committed".to_owned()),
        };
    }
    match outcome.id {
        None => not_needed(world, step, &outcome, &expected),
        Some(id) => keep(world, step, (id, &outcome.snapshot), &expected, &sources),
    }
}

/// Sources of which it was told that they are empty, and they are.
fn emptied_count(watch: &Watch) -> u64 {
    let is_empty = |problem: &Problem| {
        let path = Path::new(std::ffi::OsStr::from_bytes(&problem.path));
        fs::read_dir(path).is_ok_and(|mut names| names.next().is_none())
    };
    let told = watch.problems();
    let emptied = told
        .iter()
        .filter(|problem| problem.text.contains("is its file system mounted?"));
    emptied.filter(|problem| is_empty(problem)).count() as u64
}

/// Index objects that it named as unreadable: those that are, and none if all can be read.
fn unread_count(repository: &Repository, watch: &Watch, stop: Stop) -> Held<u64> {
    let told = watch.problems();
    let of_index = told.iter().filter(|told| told.action == "read the index");
    let named = of_index.count();
    let index = repository.index();
    let index = index.map_err(|error| format!("R2 a backup leaves no index: {error}"))?;
    let unread = index.unread_objects();
    match named == unread.len() || stop != Stop::Never && !unread.is_empty() {
        true => Ok(named as u64),
        false => Err(format!(
            "R2 a backup names {named} index objects, and these cannot be read: {unread:?}"
        )),
    }
}

fn nth_id(world: &World, nth: usize) -> Option<ObjectId> {
    let kept = world.kept_now();
    (!kept.is_empty()).then(|| kept[nth % kept.len()].id)
}

fn as_problem(problem: &scan::ScanProblem) -> Problem {
    Problem {
        path: problem.path.clone(),
        action: problem.action,
        text: problem.error.to_string(),
    }
}

fn sources(world: &World, step: &Backup) -> Vec<PathBuf> {
    if step.look == Look::Image {
        let image = world.path("image.ext4");
        image::write(&world.path("home/src"), &image);
        return vec![image];
    }
    let names: &[&str] = match step.sources {
        Sources::Src => &["home/src"],
        Sources::SrcAndMail => &["home/src", "home/mail"],
        Sources::Home => &["home"],
        Sources::DeepInSrc => &["home/src/d0", "home/src/d1"],
        Sources::OneFile => &["home/src/a"],
        Sources::SrcAndMissing => &["home/src", "home/missing"],
    };
    names.iter().map(|name| world.path(name)).collect()
}

/// A storage snapshot in the form of a directory, removed when dropped.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("a directory of our own");
    }
}

fn copy_if_asked(world: &mut World, step: &Backup, resolved: &mut scan::Sources) -> Option<Copy> {
    let source = resolved.paths().first()?.clone();
    // In a copy the repository is another one, which is backed up if repositories are.
    let is_possible = step.look == Look::Copy && resolved.paths().len() == 1 && !step.repositories;
    if !is_possible || !fs::symlink_metadata(&source).is_ok_and(|stat| stat.is_dir()) {
        return None;
    }
    let place = world.fresh("copy");
    let mut command = std::process::Command::new("cp");
    let status = command.arg("-a").arg(&source).arg(&place).status();
    assert!(status.expect("cp").success());
    resolved
        .read_from(&source, place.clone())
        .expect("two directories");
    Some(Copy(place))
}

/// What the command leaves out because it works with it.
fn in_use(world: &World) -> Vec<PathBuf> {
    let repository = world.shelf.root().map(PathBuf::from);
    repository
        .into_iter()
        .chain([world.cache(0), world.cache(1)])
        .collect()
}

/// What this backup must hold.
fn expected(world: &World, step: &Backup, sources: &[PathBuf]) -> Tree {
    let mut tree = match step.look {
        Look::Image => image::tree_of(&world.path("home/src"), &sources[0]),
        _ => Tree::of(sources),
    };
    // The caches are elsewhere; the repository is left out of a backup into it.
    let own = world.shelf.root().filter(|_| world.repository_in_home);
    leave_out(&mut tree, sources, step.leave_out, own.as_slice());
    tree
}

/// Nothing was committed: then there is a snapshot that says what this one would have said.
fn not_needed(world: &World, step: &Backup, outcome: &Outcome, expected: &Tree) -> Held {
    if !step.skip_if_unchanged {
        return Err("R2 a backup committed nothing, and nobody allowed that".to_owned());
    }
    let parent = outcome.snapshot.parent;
    let Some(kept) = world.kept.iter().find(|kept| Some(kept.id) == parent) else {
        return Err(
            "R2 nothing is said to have changed, and there is no snapshot to tell".to_owned(),
        );
    };
    let differing = differences(&kept.tree, expected);
    match differing.is_empty() {
        true => Ok(()),
        false => Err(format!("R2 nothing is said to have changed: {differing:?}")),
    }
}

fn differences(one: &Tree, other: &Tree) -> Vec<String> {
    let paths: BTreeSet<_> = one.0.keys().chain(other.0.keys()).collect();
    let differing = paths
        .into_iter()
        .filter(|path| one.0.get(*path) != other.0.get(*path));
    differing.map(|path| text(path)).collect()
}

/// Somebody was told that he has this snapshot.
fn keep(
    world: &mut World,
    step: &Backup,
    (id, snapshot): (ObjectId, &Snapshot),
    expected: &Tree,
    sources: &[PathBuf],
) -> Held {
    let kept = Kept {
        id,
        tree: Arc::new(expected.clone()),
        sources: sources.iter().map(|path| bytes_of(path)).collect(),
        host: snapshot.host.clone(),
        tags: snapshot.tags.clone(),
        time: snapshot.time,
        whole: BTreeSet::new(),
        is_forgotten: false,
        leave_out: step.leave_out,
        own: world.shelf.root().map(bytes_of),
        filter: Arc::new(options::filter(step.leave_out, sources)),
    };
    let states =
        probe_some(world, &[&kept]).map_err(|broken| format!("R2 just acknowledged: {broken}"))?;
    let state = &states[&id];
    let whole = state.whole.clone();
    excused(world, step, state)
        .map_err(|broken| format!("R2 snapshot {}: {broken}", id.short()))?;
    world.kept.push(Kept { whole, ..kept });
    Ok(())
}

/// What a complete backup may have lost at once: what it relied on in a pack of which nobody could
/// know that it was changed. With `--force` everything is known.
fn excused(world: &World, step: &Backup, state: &State) -> Held {
    if state.lost.is_empty() {
        return Ok(());
    }
    let repository: Arc<Repository> = world.open(0)?;
    let index = repository.index().map_err(|error| error.to_string())?;
    for (path, faults) in &state.lost {
        let is_silent = |fault: &bale_format::ChunkId| {
            index
                .copies(fault)
                .any(|place| world.silent.contains(&index.pack(place.pack).id))
        };
        let was_read = |fault: &bale_format::ChunkId| {
            index
                .copies(fault)
                .any(|place| world.read_since.contains(&index.pack(place.pack).id))
        };
        if step.force || faults.is_empty() || !faults.iter().all(is_silent) {
            let known = faults
                .iter()
                .all(|fault| is_silent(fault) || was_read(fault))
                && !faults.is_empty();
            return Err(format!(
                "a backup says complete, and {} cannot be restored ({} paths in all){}",
                text(path),
                state.lost.len(),
                if known {
                    ": it relied on a pack that was known to be damaged, or had to read it"
                } else {
                    ""
                }
            ));
        }
    }
    Ok(())
}

/// A run that was killed after its last write has made a snapshot all the same.
fn adopt(world: &mut World, step: &Backup, expected: &Tree, sources: &[PathBuf]) -> Held {
    let repository = world.open(0)?;
    let Ok((snapshots, _)) = repository.snapshots_readable() else {
        return Ok(());
    };
    let new: Vec<_> = snapshots
        .iter()
        .filter(|(id, _)| {
            !world
                .objects
                .keys()
                .any(|name| name.area == Area::Snapshots && name.id() == Some(*id))
        })
        .cloned()
        .collect();
    for (id, snapshot) in new {
        keep(world, step, (id, &snapshot), expected, sources)?;
    }
    Ok(())
}
