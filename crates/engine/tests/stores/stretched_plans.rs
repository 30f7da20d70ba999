//! What a restore reads of segments: whatever backups, deletions and prunes came before, a plan
//! goes through each segment once and forwards, names all that is read and nothing else, and a
//! project comes back from it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use bale_engine::restore::plan_reads;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::Recorder;
use bale_pipeline::random::SeededRandom;
use bale_repository::pack::PackPlan;
use bale_repository::repository::{InitOptions, Named, NewSlot, Repository};
use bale_repository::store::{Area, ObjectName, Store};
use bale_restore::{Everything, RestoreOptions, ScratchSpace};
use bale_testkit::scene::noise;
use bale_testkit::{Choices, DatedStore, Scene, TapeReads, TapeStore, Tree};

const PROJECTS: [&str; 3] = ["alpha", "beta", "gamma"];
const SEQUENCES: u64 = 12;
const STEPS: usize = 5;
/// A segment has several packs, a repository several segments.
const STRETCH_BYTES: u64 = 8 << 20;

/// Ranges of one line of a plan, and the object that they are in.
#[derive(Debug)]
struct Line {
    object: ObjectName,
    ranges: Vec<(u64, u64)>,
}

fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    let slot = NewSlot {
        secret: Scene::secret(),
        label: "test".to_owned(),
    };
    let options = InitOptions {
        stretch_bytes: Some(STRETCH_BYTES),
    };
    let store = Arc::new(scene.store.clone());
    Repository::init_with(store, vec![slot], scene.environment(), options).unwrap();
    scene
}

/// With small packs, so that a segment has several.
fn open(scene: &Scene, store: impl Store + 'static) -> Arc<Repository> {
    let repository = scene.open(store).unwrap();
    let mut repository = Arc::into_inner(repository).expect("nobody else has it");
    let shape = repository.store().shape();
    let packs = PackPlan::of_size(4 << 20, shape, &MemoryPlan::USUAL);
    repository.set_memory_to_write(MemoryPlan::USUAL, packs.expect("small packs fit"));
    Arc::new(repository)
}

fn below(scene: &Scene, project: &str) -> Vec<u8> {
    let path = scene.source().join(project);
    path.as_os_str().as_bytes()[1..].to_vec()
}

fn plan(repository: &Arc<Repository>, snapshot: &Named, below: &[u8]) -> Vec<Line> {
    let options = RestoreOptions {
        below: below.to_vec().into(),
        threads: 1,
        ..RestoreOptions::new(&Everything)
    };
    let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
    let monitor = Recorder::default();
    let mut out = Vec::new();
    plan_reads(repository, snapshot, &options, &scratch, &mut out, &monitor).unwrap();
    let lines = out
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let lines = lines.map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap());
    let packs = lines.filter(|line| line["type"] == "pack");
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    packs
        .map(|line| Line {
            object: ObjectName::parse(line["path"].as_str().unwrap()).unwrap(),
            ranges: (line["ranges"].as_array().unwrap().iter())
                .map(|range| (number(&range[0]), number(&range[1])))
                .collect(),
        })
        .collect()
}

/// Each object is gone through once, from its front to its end.
fn assert_forward(lines: &[Line], story: &str) {
    let mut done = BTreeSet::new();
    let mut at: Option<(ObjectName, u64)> = None;
    for line in lines {
        for (from, to) in &line.ranges {
            match at {
                Some((object, end)) if object == line.object => {
                    assert!(
                        *from >= end,
                        "{story}: back to {from} from {end}: {lines:?}"
                    );
                }
                _ => assert!(done.insert(line.object), "{story}: twice: {lines:?}"),
            }
            assert!(from < to, "{story}: {lines:?}");
            at = Some((line.object, *to));
        }
    }
}

/// What was read of segments is in the ranges of the plan, and all of these were read.
fn assert_as_planned(lines: &[Line], reads: &TapeReads, story: &str) {
    let mut planned: BTreeMap<ObjectName, Vec<(u64, u64)>> = BTreeMap::new();
    for line in lines {
        planned.entry(line.object).or_default().extend(&line.ranges);
    }
    for read in &reads.0 {
        let ranges = planned.get(&read.name);
        let is_planned = ranges.is_some_and(|ranges| {
            let within =
                |range: &&(u64, u64)| range.0 <= read.range.start && read.range.end <= range.1;
            ranges.iter().any(|range| within(&range))
        });
        assert!(is_planned, "{story}: {read:?} of {lines:?}");
    }
    let objects: BTreeSet<_> = reads.0.iter().map(|read| read.name).collect();
    assert_eq!(objects, planned.into_keys().collect(), "{story}");
}

/// Changes something in a project.
fn change(scene: &Scene, random: &mut SeededRandom, seed: u64) {
    let project = PROJECTS[random.pick(PROJECTS.len())];
    for file in 0..1 + random.pick(4) {
        let name = format!("{project}/f{}", random.pick(8));
        let len = [300, 5_000, 700 << 10, 3 << 20][random.pick(4)];
        scene.write(&name, &noise(seed * 100 + file as u64, len));
    }
    if random.pick(3) == 0 {
        let gone = scene
            .source()
            .join(project)
            .join(format!("f{}", random.pick(8)));
        let _ = std::fs::remove_file(gone);
    }
}

fn newest(repository: &Repository) -> Named {
    repository.snapshots().unwrap().pop().unwrap()
}

fn check_projects(scene: &Scene, story: &str) {
    for project in PROJECTS {
        let story = format!("{story}, {project}");
        let tape = TapeStore::over(scene.store.clone());
        let repository = open(scene, tape.clone());
        let snapshot = newest(&repository);
        let below = below(scene, project);
        let lines = plan(&repository, &snapshot, &below);
        assert_forward(&lines, &story);
        tape.take();
        let monitor = Recorder::default();
        let (tree, report) = scene.restore_below(&repository, &snapshot, &below, &monitor);
        assert_eq!(report.unwrap().problems, 0, "{story}");
        assert_eq!(tree, Tree::read(&scene.source().join(project)), "{story}");
        let reads = tape.take().within(Area::Stretches);
        let data: Vec<Line> = (lines.into_iter())
            .filter(|line| line.object.area == Area::Stretches)
            .collect();
        assert_as_planned(&data, &reads, &story);
    }
}

#[test]
fn whatever_came_before_a_plan_goes_through_each_segment_once_and_forwards() {
    let mut segments_max = 0;
    for seed in 0..SEQUENCES {
        let mut random = SeededRandom::new(seed);
        let scene = scene();
        for project in PROJECTS {
            scene.write(&format!("{project}/first"), &noise(seed, 1 << 20));
        }
        for step in 0..STEPS {
            change(&scene, &mut random, seed * 10 + step as u64);
            let repository = open(&scene, scene.store.clone());
            scene.backup(&repository).unwrap();
            if random.pick(3) == 0 {
                let (oldest, _) = repository.snapshots().unwrap().remove(0);
                if repository.snapshots().unwrap().len() > 1 {
                    repository.forget_snapshot(oldest).unwrap();
                }
                let repository = open(&scene, scene.store.clone());
                scene.prune(&repository, Duration::ZERO).unwrap();
            }
            check_projects(&scene, &format!("sequence {seed}, step {step}"));
        }
        segments_max = segments_max.max(scene.store.names(Area::Stretches).len());
    }
    assert!(segments_max > 3, "{segments_max} segments");
}

/// Goal: what was stored in one go is read in one go.
#[test]
fn a_project_of_one_backup_is_one_way_forward_through_one_segment() {
    // Of a pack, the head of its first record is read with its own, and again with that record.
    const READ_TWICE_BYTES: u64 = 48;
    let scene = scene();
    for (number, project) in (0..).zip(PROJECTS) {
        for file in 0..6 {
            let content = noise(number * 10 + file, 300 << 10);
            scene.write(&format!("{project}/f{file}"), &content);
        }
    }
    scene.backup(&open(&scene, scene.store.clone())).unwrap();
    let stretches = scene.store.names(Area::Stretches).len();
    assert_eq!(stretches, 1);
    for project in PROJECTS {
        let tape = TapeStore::over(scene.store.clone());
        let repository = open(&scene, tape.clone());
        let snapshot = newest(&repository);
        let below = below(&scene, project);
        let packs = plan(&repository, &snapshot, &below).len() as u64;
        tape.take();
        let monitor = Recorder::default();
        let (_, report) = scene.restore_below(&repository, &snapshot, &below, &monitor);
        assert_eq!(report.unwrap().problems, 0);
        let reads = tape.take().within(Area::Stretches);
        assert_eq!(reads.opened(), 1, "{project}: {reads:?}");
        let bytes_back = reads.bytes_back();
        assert!(
            bytes_back <= packs * READ_TWICE_BYTES,
            "{project}: {reads:?}"
        );
        assert!(reads.seeks() as u64 <= 2 * packs, "{project}: {reads:?}");
        // Its own bytes and, of its neighbours, what is in one chunk with them at either end.
        let own = 6 * (300 << 10);
        assert!(reads.bytes() <= own + (4 << 20), "{project}: {reads:?}");
    }
}
