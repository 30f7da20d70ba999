//! Restores into every kind of place, and the third rule: nothing there goes but what the snapshot
//! is about.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bale_engine::restore::to_ext4::SnapshotToExt4;
use bale_engine::restore::{Patterns, SnapshotRestore};
use bale_repository::repository::{Named, Repository};
use bale_restore::ext4::ImageTarget;
use bale_restore::{Everything, Protected, RestoreOptions, RestoreReport, ScratchSpace};

use super::act::must_work;
use super::case::{Case, same};
use super::expect::{is_mark, leave_out};
use super::options;
use super::source::{apply, bytes_of, path_of};
use super::steps::{Below, Edit, Restore, Stop, Target};
use super::tree::{Node, PathBytes, Tree, join, text};
use super::world::{Held, Kept, Watch, World};

/// Where a restore goes.
pub fn place(world: &World, target: Target) -> PathBuf {
    match target {
        Target::Other(nth) => world.path(["targets/a", "targets/b"][nth % 2]),
        Target::Home => world.path("home"),
        Target::Src => world.path("home/src"),
        Target::Image { .. } => world.path("scratch/image"),
    }
}

/// Things in a target that nobody backed up.
pub fn litter(world: &World, target: Target, edits: &[Edit]) {
    let place = place(world, target);
    let inner = world.path("home/src");
    let inner = inner.strip_prefix("/").expect("an absolute path");
    // At each place where the root of a restore may come to lie.
    for below in ["", "src", inner.to_str().expect("our own name")] {
        let root = place.join(below);
        if below.is_empty() || root.is_dir() {
            apply(edits, &root, &root.join("mail"));
        }
    }
    for name in ["etc/passwd", "src/foreign", "home/other/file", "foreign"] {
        let file = place.join(name);
        fs::create_dir_all(file.parent().expect("below the target")).ok();
        if !file.exists() {
            fs::write(file, name).ok();
        }
    }
    let above = place.join(inner).join("..");
    if above.is_dir() {
        fs::write(above.join("foreign above the source"), b"foreign").ok();
    }
}

pub fn restore_step(world: &mut World, step: &Restore) -> Held {
    let kept = world.kept_now();
    let Some(kept) = kept.get(step.nth % kept.len().max(1)) else {
        return Ok(());
    };
    let repository = world.open(0)?;
    let Ok((snapshots, _)) = repository.snapshots_readable() else {
        return Ok(());
    };
    let Some(named) = snapshots.iter().find(|(id, _)| *id == kept.id) else {
        return Ok(());
    };
    if let Target::Image { force } = step.target {
        return into_image(world, step, (&repository, named), force);
    }
    let below = below(world, kept, step.below);
    let (include, exclude) = (options::include(step), options::exclude(step));
    let patterns = Patterns::new(&below, &include, &exclude).expect("patterns that are understood");
    let target = place(world, step.target);
    let before = Tree::below(&target);
    let watch = Watch::until(step.stop);
    let restore = SnapshotRestore {
        repository: &repository,
        snapshot: named,
        target: &target,
        options: options::restore(step, &below, &patterns, guard(world, kept)),
    };
    let scratch = ScratchSpace::new(world.path("scratch"));
    let done = restore.restore(&scratch, &watch);
    let after = Tree::below(&target);
    let mut case = Case {
        kept,
        step,
        below: &below,
        include: &include,
        exclude: &exclude,
        before: &before,
        after: &after,
        is_exact: false,
        is_done: false,
        left_out: &stays(world, kept, &below, (&target, &before)),
    };
    // To restore nothing is refused.
    let stop = if case.is_anything_selected() {
        step.stop
    } else {
        Stop::Asked { calls: 0 }
    };
    let report = must_work(world, "restore", stop, done)?;
    case.is_done = report.is_some();
    case.is_exact = report
        .as_ref()
        .is_some_and(|report| is_exact(report) && watch.problems().is_empty());
    case.check()?;
    if step.verify && case.is_exact && !step.dry_run && step.overwrite == 0 && step.specials {
        let verified = restore.verify(&scratch, &watch);
        let report = must_work(world, "verify", Stop::Never, verified)?;
        if report.is_some_and(|report| report.differences > 0) {
            return Err(format!(
                "R1 reading back finds differences: {:?}",
                watch.problems()
            ));
        }
    }
    Ok(())
}

/// What deleting must leave: the command knows it, and the record of the snapshot says what was
/// left out.
fn guard(world: &World, kept: &Kept) -> Protected {
    let in_use = [
        Some(world.cache(0)),
        Some(world.cache(1)),
        world.shelf.root().map(PathBuf::from),
    ];
    let stats = in_use
        .into_iter()
        .flatten()
        .filter_map(|path| fs::symlink_metadata(path).ok());
    Protected {
        sources: vec![Vec::new()],
        left_out: kept.filter.clone(),
        knows_left_out: true,
        is_partly_left_out: false,
        in_use: stats.map(|stat| (stat.dev(), stat.ino())).collect(),
        ..Protected::default()
    }
}

fn is_exact(report: &RestoreReport) -> bool {
    report.problems == 0 && report.losses.iter().all(|loss| loss.kind.is_note())
}

fn below(world: &World, kept: &Kept, below: Below) -> PathBytes {
    let source = kept.sources[0].clone();
    match below {
        Below::Everything => Vec::new(),
        Below::Root => bytes_of(world.dir.path()),
        Below::Home => bytes_of(&world.path("home")),
        Below::Source if kept.tree.0.get(&source).is_some_and(Node::is_dir) => source,
        Below::Source => Vec::new(),
        Below::Directory(nth) => {
            let directories: Vec<&PathBytes> = kept
                .tree
                .0
                .iter()
                .filter(|(_, node)| node.is_dir())
                .map(|(path, _)| path)
                .collect();
            match directories.is_empty() {
                true => Vec::new(),
                false => directories[nth % directories.len()].clone(),
            }
        }
    }
}

/// What of a target no deleting may take.
fn stays(
    world: &World,
    kept: &Kept,
    below: &[u8],
    (target, before): (&Path, &Tree),
) -> BTreeSet<PathBytes> {
    let mut stays = would_be_left_out(kept, below, before);
    let repository = world
        .shelf
        .root()
        .and_then(|root| root.strip_prefix(target).ok());
    stays.extend(repository.map(|path| path.as_os_str().as_bytes().to_vec()));
    stays
}

/// What of a target the backup would have left out, if it had been there.
fn would_be_left_out(kept: &Kept, below: &[u8], target: &Tree) -> BTreeSet<PathBytes> {
    let mut there = Tree::default();
    for (path, node) in &target.0 {
        let path = join(below, path);
        let first_name = path.clone();
        there.0.insert(
            path,
            Node {
                first_name,
                ..node.clone()
            },
        );
    }
    let mut stays = there.clone();
    let sources: Vec<PathBuf> = kept.sources.iter().map(|source| path_of(source)).collect();
    leave_out(&mut stays, &sources, kept.leave_out, &[]);
    // A mark that was left in a directory says that nobody knows what is foreign in it.
    let is_mark = |path: &PathBytes| is_mark(path, kept.leave_out);
    let gone = there
        .0
        .keys()
        .filter(|path| !stays.0.contains_key(*path) || is_mark(path));
    let below = below.len() + usize::from(!below.is_empty());
    gone.map(|path| path.get(below..).unwrap_or_default().to_vec())
        .collect()
}

fn into_image(
    world: &World,
    step: &Restore,
    (repository, named): (&Arc<Repository>, &Named),
    force: bool,
) -> Held {
    // Not below /dev, where no images are made.
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let path = dir.path().join("restored.ext4");
    if step.nth % 2 == 1 {
        fs::write(&path, b"what somebody else had here").expect("a file");
    }
    let before = fs::read(&path).ok();
    let target = match ImageTarget::look_at(&path, force) {
        Ok(target) => target,
        Err(_) if before.is_some() && !force => {
            return match fs::read(&path).ok() == before {
                true => Ok(()),
                false => Err("R3 an image that was refused was changed".to_owned()),
            };
        }
        Err(error) => return Err(format!("an image cannot be made: {error}")),
    };
    let watch = Watch::default();
    let ext4 = SnapshotToExt4::usual_options(repository).map_err(|error| error.to_string())?;
    let restore = SnapshotToExt4 {
        repository,
        snapshot: named,
        options: RestoreOptions {
            dry_run: step.dry_run,
            ..RestoreOptions::new(&Everything)
        },
        ext4,
    };
    let scratch = ScratchSpace::new(world.path("scratch"));
    let done = restore.restore(target, &scratch, &watch);
    let Some(report) = must_work(world, "restore into an image", Stop::Never, done)? else {
        return Ok(());
    };
    if step.dry_run {
        return match fs::read(&path).ok() == before {
            true => Ok(()),
            false => Err("R3 a dry run wrote an image".to_owned()),
        };
    }
    let mode = fs::metadata(&path).expect("an image").mode();
    let is_ours = before.is_some();
    if mode & 0o077 != 0 && !is_ours {
        return Err(format!("R3 an image of private files has mode {mode:o}"));
    }
    if report.restored.problems > 0 {
        return Ok(());
    }
    let verified = restore.verify(&path, &scratch, &watch);
    let verified = must_work(world, "verify an image", Stop::Never, verified)?;
    let is_right = verified.is_none_or(|report| report.differences == 0);
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "R1 an image reads back otherwise: {:?}",
            watch.problems()
        )),
    }
}

/// At the end every snapshot is restored for good: what a look calls whole is whole, and what is
/// not is named.
pub fn everything(world: &mut World) -> Held {
    for number in 0..world.kept.len() {
        if world.kept[number].is_forgotten {
            continue;
        }
        let target = world.fresh("all");
        let kept = &world.kept[number];
        let repository = world.open(0)?;
        let Ok((snapshots, _)) = repository.snapshots_readable() else {
            return Ok(());
        };
        let Some(named) = snapshots.iter().find(|(id, _)| *id == kept.id) else {
            continue;
        };
        fs::create_dir_all(&target).expect("a new directory");
        let watch = Watch::default();
        let restore = SnapshotRestore {
            repository: &repository,
            snapshot: named,
            target: &target,
            options: RestoreOptions {
                threads: 1,
                sync: false,
                ..RestoreOptions::new(&Everything)
            },
        };
        let done = restore.restore(&ScratchSpace::new(world.path("scratch")), &watch);
        let all_whole = kept.whole.len() == kept.tree.0.len();
        let what = format!("R1 restore of {}", kept.id.short());
        let report = match done {
            Ok(report) => report,
            Err(error) if all_whole => return Err(format!("{what}: {error}")),
            Err(_) => continue,
        };
        let is_exact = is_exact(&report) && watch.problems().is_empty();
        if is_exact != all_whole {
            return Err(format!(
                "{what}: {} of {} paths are whole, problems {:?}",
                kept.whole.len(),
                kept.tree.0.len(),
                watch.problems()
            ));
        }
        let after = Tree::below(&target);
        for path in &kept.whole {
            let (is, should) = (after.0.get(path), &kept.tree.0[path]);
            let right = is.is_some_and(|is| {
                same(is, should)
                    && (is.is_dir() || !all_whole || is.first_name == should.first_name)
            });
            // Of a directory that lost children the time may be another.
            let right = right && is.is_some_and(|is| !all_whole || is.mtime == should.mtime);
            if !right {
                return Err(format!(
                    "{what}: {} is {is:?}, and should be {should:?}",
                    text(path)
                ));
            }
        }
        fs::remove_dir_all(&target).expect("a directory of our own");
    }
    Ok(())
}
