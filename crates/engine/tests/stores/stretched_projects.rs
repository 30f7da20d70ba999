//! Segments end with projects: a directory of a source that nearly fills one lies in one of its
//! own, and however large or small directories are, no segment is short but the last of a backup.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bale_engine::backup::BackupOptions;
use bale_engine::restore::plan_reads;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::Recorder;
use bale_pipeline::random::SeededRandom;
use bale_repository::error::Result;
use bale_repository::pack::PackPlan;
use bale_repository::repository::{InitOptions, Repository};
use bale_repository::store::{Area, ObjectName, Store};
use bale_restore::{Everything, RestoreOptions, ScratchSpace};
use bale_testkit::scene::noise;
use bale_testkit::{Choices, DatedStore, Scene, Tree, at_every_call};

const MIB: usize = 1 << 20;
/// Of a bundle at either end of what was closed.
const BUNDLE_BYTES_MAX: u64 = 4 << 20;

fn scene(stretch_bytes: usize) -> Scene {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    let options = InitOptions {
        stretch_bytes: Some(stretch_bytes as u64),
    };
    let store = Arc::new(scene.store.clone());
    scene.init_on_with(store, options).unwrap();
    scene
}

/// With small packs, so that a segment has several.
fn open(scene: &Scene, store: impl Store + 'static) -> Result<Arc<Repository>> {
    let repository = scene.open(store)?;
    let mut repository = Arc::into_inner(repository).expect("nobody else has it");
    let shape = repository.store().shape();
    let packs = PackPlan::of_size(4 << 20, shape, &MemoryPlan::USUAL);
    repository.set_memory_to_write(MemoryPlan::USUAL, packs.expect("small packs fit"));
    Ok(Arc::new(repository))
}

fn backup(scene: &Scene) -> u64 {
    let outcome = scene.backup(&open(scene, scene.store.clone()).unwrap());
    outcome.unwrap().snapshot.counts.bytes_stored
}

/// The same, and remembers what must come back.
fn keep(scene: &mut Scene) {
    let outcome = scene.backup(&open(scene, scene.store.clone()).unwrap());
    let id = outcome.unwrap().id.unwrap();
    scene.kept.push((id, Tree::read(&scene.source())));
}

/// Writes so many bytes below a directory of the source, in files of every size.
fn write_project(scene: &Scene, name: &str, seed: u64, bytes: usize) {
    let lens = [70_000, 900_000, 400_000, 3_000, 600_000];
    let (mut left, mut number) = (bytes, 0);
    while left > 0 {
        let len = lens[number % lens.len()].min(left);
        let path = format!("{name}/d{}/f{number}", number % 3);
        scene.write(&path, &noise(seed * 1000 + number as u64, len));
        left -= len;
        number += 1;
    }
}

/// Segments, in the order in which they were written, by their lengths.
fn segments(scene: &Scene) -> Vec<(ObjectName, u64)> {
    let lens = scene.store.memory().objects();
    let names = scene.store.names(Area::Stretches).into_iter();
    let mut found: Vec<_> = names.map(|name| (name, lens[&name].len() as u64)).collect();
    found.sort_by_key(|(name, _)| name.stretch_name().map(|name| (name.run, name.number)));
    found
}

/// Objects with data of what is at a path of the newest snapshot.
fn planned(scene: &Scene, below: &str) -> BTreeSet<ObjectName> {
    let repository = scene.repository();
    let snapshot = repository.snapshots().unwrap().pop().unwrap();
    let path = scene.source().join(below);
    let options = RestoreOptions {
        below: path.as_os_str().as_bytes()[1..].to_vec().into(),
        threads: 1,
        ..RestoreOptions::new(&Everything)
    };
    let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
    let (monitor, mut out) = (Recorder::default(), Vec::new());
    plan_reads(
        &repository,
        &snapshot,
        &options,
        &scratch,
        &mut out,
        &monitor,
    )
    .unwrap();
    let lines = out
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let lines = lines.map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap());
    let packs = lines.filter(|line| line["type"] == "pack");
    packs
        .map(|line| ObjectName::parse(line["path"].as_str().unwrap()).unwrap())
        .collect()
}

#[test]
fn projects_that_nearly_fill_a_segment_lie_in_segments_of_their_own() {
    let mut scene = scene(16 * MIB);
    for (seed, name) in (0..).zip(["alpha", "beta", "gamma"]) {
        write_project(&scene, name, seed, 14 * MIB);
    }
    keep(&mut scene);
    assert_eq!(segments(&scene).len(), 3, "{:?}", segments(&scene));
    let mut seen: BTreeMap<ObjectName, &str> = BTreeMap::new();
    for name in ["alpha", "beta", "gamma"] {
        let objects = planned(&scene, name);
        assert_eq!(objects.len(), 1, "{name}");
        for object in objects {
            let other = seen.insert(object, name);
            assert_eq!(other, None, "{name} shares {object}");
        }
    }
    scene.assert_sound(&scene.store.fork(), "projects");
}

/// Goal: whatever projects there are, segments cost no more marks on a tape than bytes warrant.
#[test]
fn no_segment_is_short_but_the_last_of_a_backup() {
    const STRETCH: usize = 8 * MIB;
    for seed in 0..6 {
        let mut scene = scene(STRETCH);
        let mut random = SeededRandom::new(seed);
        let mut bytes = 0;
        for project in 0..20 {
            // Many tiny ones, some that are nearly or hardly more than one, a few of several.
            let sizes = [100_000, 500_000, 1_500_000, 7 * MIB, 9 * MIB, 20 * MIB];
            let len = match seed {
                0 => 100_000,
                1 => 20 * MIB * usize::from(project < 2),
                _ => sizes[random.pick(sizes.len()) * random.pick(2)],
            };
            bytes += len;
            write_project(&scene, &format!("p{project:02}"), seed * 100 + project, len);
        }
        keep(&mut scene);
        let segments = segments(&scene);
        let (_last, full) = segments.split_last().unwrap();
        for (name, len) in full {
            let least = STRETCH as u64 / 4 * 3 - (64 << 10);
            assert!(*len >= least, "seed {seed}: {name} has {len}: {segments:?}");
        }
        let most = bytes / (STRETCH / 4 * 3) + 1;
        assert!(segments.len() <= most, "seed {seed}: {segments:?}");
        scene.assert_restorable(&scene.store, "projects of every size");
        // And nothing is stored of what is there.
        let before = segments.len();
        let repository = open(&scene, scene.store.clone()).unwrap();
        let again = scene.backup(&repository).unwrap();
        let stored = again.snapshot.counts.bytes_stored;
        // Rows that were racy.
        assert!(stored < 64 << 10, "seed {seed}: {stored}");
        assert_eq!(scene.store.names(Area::Stretches).len(), before);
    }
}

/// Goal: where a segment ends, bundles end that would not have. It costs a bundle at that place,
/// and none behind it.
#[test]
fn equal_trees_are_stored_once_wherever_segments_ended() {
    let mut scene = scene(16 * MIB);
    for (seed, name) in (0..).zip(["alpha", "beta", "gamma"]) {
        write_project(&scene, name, seed, 14 * MIB);
    }
    keep(&mut scene);
    // Compared with nothing, and with nothing to fill segments with.
    let repository = open(&scene, scene.store.clone()).unwrap();
    let options = BackupOptions {
        force: true,
        ..BackupOptions::default()
    };
    let again = scene.backup_with(&repository, &options, &Recorder::default());
    let stored = again.unwrap().snapshot.counts.bytes_stored;
    // Two kinds of bundles at two ends of segments.
    assert!(stored <= 4 * BUNDLE_BYTES_MAX, "{stored}");
    // Moved, one project is read again and found.
    let beta = scene.source().join("beta");
    std::fs::rename(beta, scene.source().join("zeta")).unwrap();
    let stored = backup(&scene);
    assert!(stored <= 2 * BUNDLE_BYTES_MAX, "{stored}");
}

#[test]
fn a_dry_run_ends_no_segment_and_writes_none() {
    let scene = scene(2 * MIB);
    for (seed, name) in (0..).zip(["alpha", "beta", "gamma"]) {
        write_project(&scene, name, seed, 1_800_000);
    }
    let before = scene.store.memory().objects();
    let options = BackupOptions {
        dry_run: true,
        ..BackupOptions::default()
    };
    let repository = open(&scene, scene.store.clone()).unwrap();
    let outcome = scene.backup_with(&repository, &options, &Recorder::default());
    assert_eq!(outcome.unwrap().snapshot.totals.files, 3 * 5);
    assert_eq!(scene.store.memory().objects(), before);
}

/// Bytes that the next backup stores, if one was killed that had closed segments of these sizes.
fn most_after(closed: &[u64], total: u64) -> u64 {
    // One may not be named yet, and of a bundle or a pack at the end, others are made.
    let named = closed.iter().sum::<u64>() - closed.iter().max().unwrap_or(&0);
    total.saturating_sub(named) + (700 << 10)
}

/// Sizes of the segments that are closed.
fn closed_bytes(store: &DatedStore) -> Vec<u64> {
    let mut sizes = Vec::new();
    let listed = store.list(Area::Stretches, &mut |info| sizes.push(info.len));
    listed.unwrap();
    sizes
}

#[test]
fn a_run_killed_anywhere_sends_nothing_again_of_segments_that_ended_with_projects() {
    let scene = scene(MIB);
    let len = 900_000;
    for (seed, name) in (0..).zip(["alpha", "beta", "gamma", "zeta"]) {
        write_project(&scene, name, seed, len);
    }
    next_sends_the_rest(&scene, 4 * len as u64);
}

#[test]
fn a_run_killed_anywhere_sends_nothing_again_of_segments_that_were_full() {
    let scene = scene(MIB);
    let len = 9 * MIB;
    scene.write("alpha/large", &noise(1, len));
    // A segment has one pack, which is full when the next piece has no room in it.
    next_sends_the_rest(&scene, len as u64);
}

fn next_sends_the_rest(scene: &Scene, total: u64) {
    let act = |faulty| scene.backup(&open(scene, faulty)?).map(|_| ());
    let closed_max = Cell::new(0);
    at_every_call(&scene.store, "backup", act, |store, story| {
        let closed = closed_bytes(store);
        closed_max.set(closed_max.get().max(closed.len()));
        let outcome = scene.backup(&open(scene, store.clone()).unwrap()).unwrap();
        let stored = outcome.snapshot.counts.bytes_stored;
        let most = most_after(&closed, total);
        assert!(
            stored <= most,
            "{story}: {closed:?} closed, {stored} stored"
        );
        scene.assert_restorable(store, story);
        assert!(scene.check(store).unwrap().is_clean(), "{story}");
    });
    assert!(closed_max.get() > 2, "{closed_max:?}");
}
