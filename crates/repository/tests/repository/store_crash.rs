//! Goal: whatever the moment of a power cut and whatever the disk had not yet written, an object
//! that was acknowledged is there and whole, and no name ever stands for a torn object. Shown by
//! walking through every cut of a sequence of calls and every subset of what was unsynced; longer
//! sequences by seeded chance.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bale_format::ObjectId;
use bale_pipeline::random::{Random, SeededRandom};
use bale_repository::store::disk::Disk;
use bale_repository::store::{Area, LocalStore, ObjectName, Result, Store};
use bale_testkit::{Choices, Every, SimulatedDisk};

const LEN_MAX: u64 = 1 << 20;

/// Cycles of use and crash in one seeded history.
const CRASHES: usize = 6;

const SEEDS: u64 = 400;

#[derive(Clone, Debug)]
enum Step {
    Put(ObjectName, Vec<u8>),
    Publish(ObjectName, Vec<Vec<u8>>),
    Delete(ObjectName),
}

impl Step {
    fn name(&self) -> ObjectName {
        match self {
            Step::Put(name, _) | Step::Publish(name, _) | Step::Delete(name) => *name,
        }
    }

    fn play(&self, store: &dyn Store) -> Result<()> {
        match self {
            Step::Put(name, bytes) => store.put(name, bytes),
            Step::Publish(name, parts) => {
                let mut writer = store.begin()?;
                parts.iter().try_for_each(|part| writer.append(part))?;
                writer.publish(name)
            }
            Step::Delete(name) => store.delete(name),
        }
    }
}

/// What must be found after a crash.
#[derive(Default, Clone)]
struct Model {
    /// Bytes that a name stands for if it is there at all: names are hashes.
    contents: BTreeMap<ObjectName, Vec<u8>>,
    /// Whether an acknowledged call says that it is there, or gone. Names of unacknowledged calls
    /// are missing.
    certain: BTreeMap<ObjectName, bool>,
}

impl Model {
    fn play(&mut self, store: &dyn Store, step: &Step) -> Result<()> {
        let name = step.name();
        let content = match step {
            Step::Put(_, bytes) => Some(bytes.clone()),
            Step::Publish(_, parts) => Some(parts.concat()),
            Step::Delete(_) => None,
        };
        let there = content.is_some();
        if let Some(content) = content {
            let known = self.contents.entry(name).or_insert_with(|| content.clone());
            assert_eq!(*known, content, "one name, one content");
        }
        let before = self.certain.remove(&name);
        let played = step.play(store);
        if played.is_ok() {
            self.certain.insert(name, there);
        } else if before == Some(there) {
            self.certain.insert(name, there); // It was so before and this call could not change it.
        }
        played
    }

    fn check(&self, store: &dyn Store, context: &str) {
        for (name, there) in &self.certain {
            assert_eq!(
                store.stat(name).unwrap().is_some(),
                *there,
                "{name} was acknowledged; {context}"
            );
        }
        for area in Area::ALL {
            store
                .list(area, &mut |info| {
                    let bytes = store.get(&info.name, LEN_MAX).unwrap();
                    assert!(
                        self.contents.get(&info.name) == Some(&bytes),
                        "{} is torn; {context}",
                        info.name
                    );
                })
                .unwrap();
        }
    }

    /// After a crash: what is there now is what counts.
    fn settle(&mut self, store: &dyn Store) {
        for name in self.contents.keys() {
            self.certain
                .insert(*name, store.stat(name).unwrap().is_some());
        }
    }
}

fn id(seed: u8) -> ObjectId {
    ObjectId([seed; 32])
}

fn random(seed: u64) -> Arc<dyn Random> {
    Arc::new(SeededRandom::new(seed))
}

/// A durable, empty repository.
fn new_repository() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    LocalStore::create_on(Arc::new(disk.clone()), random(1)).unwrap();
    copy(&disk)
}

/// The same disk after a crash that loses nothing unsynced, because nothing is.
fn copy(disk: &SimulatedDisk) -> SimulatedDisk {
    disk.crashed(&mut Every::default())
}

fn open(disk: &SimulatedDisk, seed: u64) -> LocalStore {
    LocalStore::open_on(Arc::new(disk.clone()), random(seed))
}

/// Every kind of write: into a prepared directory, in parts, into a directory of a run that comes
/// and goes.
fn sequences() -> Vec<Vec<Step>> {
    let index = ObjectName::index(id(1));
    let pack = ObjectName::pack(id(2));
    let record = ObjectName::run([3; 16], id(3));
    let other_record = ObjectName::run([3; 16], id(4));
    let put = |name, len| Step::Put(name, vec![0x11; len]);
    vec![
        vec![
            put(index, 1_300),
            put(index, 1_300),
            put(ObjectName::config(), 20),
        ],
        vec![
            Step::Publish(pack, vec![vec![0x22; 1_100], vec![0x33; 600]]),
            put(index, 700),
        ],
        vec![
            put(record, 600),
            Step::Delete(record),
            put(other_record, 600),
        ],
        vec![
            put(record, 600),
            put(other_record, 10),
            Step::Delete(record),
        ],
        vec![put(index, 600), Step::Delete(index), put(index, 600)],
        // As a backup commits.
        vec![
            Step::Publish(pack, vec![vec![0x22; 1_100], vec![0x33; 600]]),
            put(index, 700),
            put(ObjectName::snapshot(id(5)), 513),
            Step::Delete(ObjectName::run([3; 16], id(3))),
        ],
        vec![
            Step::Delete(index),
            put(ObjectName::snapshot(id(5)), 513),
            put(ObjectName::key(id(6)), 5),
        ],
    ]
}

/// Calls `seen` with the disk and model as they are when the process ends after each number of
/// changes, 0 to all.
fn at_every_cut(
    steps: &[Step],
    start: &SimulatedDisk,
    mut seen: impl FnMut(&SimulatedDisk, &Model, u64),
) {
    for cut in 0.. {
        let disk = copy(start);
        disk.cut_power_after(cut);
        let store = open(&disk, 2);
        let mut model = Model::default();
        let through = steps.iter().all(|step| model.play(&store, step).is_ok());
        drop(store);
        seen(&disk, &model, cut);
        if through && disk.ops() <= cut {
            return;
        }
    }
}

#[test]
fn no_power_cut_loses_or_tears_an_object() {
    let start = new_repository();
    let mut crashes = 0_u64;
    for (number, steps) in sequences().iter().enumerate() {
        at_every_cut(steps, &start, |disk, model, cut| {
            let mut every = Every::default();
            while every.more() {
                let found = disk.crashed(&mut every);
                model.check(
                    &open(&found, 3),
                    &format!("sequence {number}, cut after {cut} changes, {every:?}"),
                );
                crashes += 1;
            }
        });
    }
    println!("{crashes} crashes");
    assert!(
        crashes > 2_000,
        "the walk covers what it did when it was written"
    );
}

#[test]
fn after_a_power_cut_the_same_calls_succeed_without_repair() {
    let start = new_repository();
    for (number, steps) in sequences().iter().enumerate() {
        at_every_cut(steps, &start, |disk, model, cut| {
            for seed in 0..8 {
                let found = disk.crashed(&mut SeededRandom::new(seed));
                let store = open(&found, 3);
                let mut model = model.clone();
                steps
                    .iter()
                    .for_each(|step| model.play(&store, step).unwrap());
                let context = format!("sequence {number}, cut after {cut} changes, seed {seed}");
                model.check(
                    &open(&found.crashed(&mut SeededRandom::new(seed)), 4),
                    &context,
                );
            }
        });
    }
}

/// A process is killed and leaves unsynced names that the next one sees: it must not take them for
/// durable.
#[test]
fn what_a_killed_process_left_unsynced_is_not_taken_for_durable() {
    let start = new_repository();
    for (number, steps) in sequences().iter().enumerate() {
        at_every_cut(steps, &start, |disk, _, cut| {
            disk.restart_process();
            let store = open(disk, 3);
            let mut model = Model::default();
            steps
                .iter()
                .for_each(|step| model.play(&store, step).unwrap());
            drop(store);
            for seed in 0..8 {
                let found = disk.crashed(&mut SeededRandom::new(seed));
                model.check(
                    &open(&found, 4),
                    &format!("sequence {number}, killed after {cut} changes, seed {seed}"),
                );
            }
        });
    }
}

/// REP-07: the disk drops what it could not write, and reports success the next time it is asked.
#[test]
fn a_failed_sync_or_write_is_never_acknowledged_later() {
    let start = new_repository();
    for (number, steps) in sequences().iter().enumerate() {
        let whole_run = copy(&start);
        let store = open(&whole_run, 2);
        steps.iter().for_each(|step| step.play(&store).unwrap());
        for failing in 0..whole_run.ops() {
            let disk = copy(&start);
            disk.fail_after(failing, io::ErrorKind::Other);
            let store = open(&disk, 2);
            let mut model = Model::default();
            // The caller tries each step twice, against all advice.
            for step in steps.iter().flat_map(|step| [step, step]) {
                let _ = model.play(&store, step);
            }
            for seed in 0..8 {
                let found = disk.crashed(&mut SeededRandom::new(seed));
                model.check(
                    &open(&found, 4),
                    &format!("sequence {number}, change {failing} failed, seed {seed}"),
                );
            }
        }
    }
}

#[test]
fn a_store_whose_directory_could_not_be_synced_refuses_to_write() {
    let disk = new_repository();
    let store = open(&disk, 2);
    let name = ObjectName::index(id(1));
    store
        .put(&ObjectName::index(id(9)), b"settles the directory")
        .unwrap();
    disk.fail_after(4, io::ErrorKind::Other); // create, append, sync, rename, then the directory
    store.put(&name, b"bytes").unwrap_err();
    let (ops, other) = (disk.ops(), ObjectName::index(id(2)));
    for refused in [
        store.put(&name, b"bytes"),
        store.put(&other, b"bytes"),
        store.delete(&name),
        store.begin().map(drop),
    ] {
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("refused after a directory could not be synced")
        );
    }
    assert_eq!(disk.ops(), ops, "and touches nothing");
    assert_eq!(
        store.get(&ObjectName::index(id(9)), LEN_MAX).unwrap(),
        b"settles the directory",
        "reading goes on"
    );
}

#[test]
fn a_writer_refuses_everything_after_an_error() {
    let disk = new_repository();
    let store = open(&disk, 2);
    let mut writer = store.begin().unwrap();
    writer.append(b"well").unwrap();
    disk.fail_after(0, io::ErrorKind::Other);
    writer.append(b"badly").unwrap_err();
    let ops = disk.ops();
    writer.append(b"again").unwrap_err();
    assert_eq!(disk.ops(), ops, "the file is left alone");
    let error = writer.publish(&ObjectName::pack(id(1))).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(disk.files().is_empty(), "and its temporary file is gone");
    store
        .put(&ObjectName::pack(id(1)), b"other")
        .expect("the store itself goes on");
}

/// REP-06 for one store: full at every byte.
#[test]
fn a_full_disk_is_told_apart_and_leaves_nothing_behind() {
    let start = new_repository();
    for (number, steps) in sequences().iter().enumerate() {
        for room in (0..2_000).step_by(7) {
            let disk = copy(&start);
            disk.full_after(room);
            let store = open(&disk, 2);
            let mut model = Model::default();
            for step in steps {
                if let Err(error) = model.play(&store, step) {
                    assert!(error.is_storage_full(), "{error}");
                }
            }
            model.check(&store, &format!("sequence {number}, room for {room} bytes"));
            assert!(
                disk.files()
                    .keys()
                    .all(|path| ObjectName::parse(path).is_some()),
                "{:?}",
                disk.files().keys()
            );
            let names: Vec<_> = model.contents.keys().copied().collect();
            names
                .iter()
                .for_each(|name| store.delete(name).expect("deleting needs no room"));
        }
    }
}

#[test]
fn an_interrupted_create_is_completed_by_the_next() {
    let sequences = sequences();
    for cut in [0, 1, 2, 5, 100, 262, 263, 264, 265, 300] {
        for seed in 0..20 {
            let disk = SimulatedDisk::new();
            disk.cut_power_after(cut);
            let _ = LocalStore::create_on(Arc::new(disk.clone()), random(1));
            let found = disk.crashed(&mut SeededRandom::new(seed));
            let store = LocalStore::create_on(Arc::new(found.clone()), random(2)).unwrap();
            let mut model = Model::default();
            sequences[seed as usize % sequences.len()]
                .iter()
                .for_each(|step| model.play(&store, step).unwrap());
            model.check(
                &open(&found.crashed(&mut SeededRandom::new(seed)), 3),
                &format!("cut {cut}, seed {seed}"),
            );
        }
    }
}

#[test]
fn a_second_create_is_refused() {
    let disk = new_repository();
    open(&disk, 1).put(&ObjectName::config(), b"here").unwrap();
    let error = LocalStore::create_on(Arc::new(disk), random(1))
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn missing_directories_are_made_again_durably() {
    // As a tool that copies no empty directories leaves a repository: these four are never empty,
    // and never made again.
    let start = SimulatedDisk::new();
    for dir in ["keys", "packs", "index", "snapshots"] {
        start.make_dir(dir).unwrap();
    }
    start.sync_dir("").unwrap();
    for (number, steps) in sequences().iter().enumerate() {
        at_every_cut(steps, &start, |disk, model, cut| {
            for seed in 0..50 {
                let found = disk.crashed(&mut SeededRandom::new(seed));
                model.check(
                    &open(&found, 3),
                    &format!("sequence {number}, cut after {cut} changes, seed {seed}"),
                );
            }
        });
    }
}

#[test]
fn only_temporary_files_older_than_a_day_are_swept() {
    let disk = new_repository();
    let day = Duration::from_secs(24 * 60 * 60);
    let start = UNIX_EPOCH + 1_000 * day;
    disk.set_now(start);
    let store = open(&disk, 2);
    let mut dead = store.begin().unwrap();
    dead.append(b"left by a process that died").unwrap();
    std::mem::forget(dead);
    disk.set_now(start + day);
    let mut writer = store.begin().unwrap();
    writer.append(b"in use").unwrap();
    assert_eq!(store.sweep(start + day).unwrap(), 0, "just a day");
    assert_eq!(store.sweep(start - day).unwrap(), 0, "from the future");
    assert_eq!(
        store.sweep(start + day + Duration::from_secs(1)).unwrap(),
        1
    );
    writer.publish(&ObjectName::pack(id(1))).unwrap();
    assert_eq!(disk.files().len(), 1);
}

fn any_step(random: &mut SeededRandom) -> Step {
    let seed = random.pick(4) as u8;
    let name = match random.pick(4) {
        0 => ObjectName::pack(id(seed)),
        1 => ObjectName::index(id(seed)),
        2 => ObjectName::snapshot(id(seed)),
        _ => ObjectName::run([seed % 2; 16], id(seed)),
    };
    let bytes = vec![seed + 1; 300 + 700 * usize::from(seed)];
    match random.pick(3) {
        0 => Step::Put(name, bytes),
        1 => Step::Publish(name, bytes.chunks(800).map(<[u8]>::to_vec).collect()),
        _ => Step::Delete(name),
    }
}

#[test]
fn long_histories_of_use_and_power_cuts_lose_nothing() {
    let start = new_repository();
    for seed in 0..SEEDS {
        let mut chance = SeededRandom::new(seed);
        let (mut disk, mut model) = (copy(&start), Model::default());
        for crash in 0..CRASHES {
            disk.cut_power_after(chance.pick(60) as u64);
            let store = open(&disk, seed * 100 + crash as u64);
            while model.play(&store, &any_step(&mut chance)).is_ok() {}
            disk = disk.crashed(&mut chance);
            let store = open(&disk, 0);
            model.check(&store, &format!("seed {seed}, crash {crash}"));
            model.settle(&store);
        }
    }
}
