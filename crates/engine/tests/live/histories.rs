//! What is renamed, exchanged, linked, removed, replaced and written on both sides of both
//! barriers: what was there all the time is in the snapshot, as it was at one moment, or is named.
//!
//! Many small trees with a history each are backed up at once. Histories are of up to three steps,
//! each at one of four moments: when all inodes were read, right before the second barrier, right
//! after it, and when the second pass has begun.

mod world;

use super::backup::{Bench, EmitOptions, INODE, UNFROZEN, WALK, hardly_any};
use super::mounts::*;
use bale_engine::backup::Outcome;
use bale_pipeline::monitor::{Monitor, Problem, Recorder};
use bale_pipeline::random::SeededRandom;
use bale_testkit::{Choices, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use world::{History, MOMENTS, STEPS, Stored, World, histories};

/// Of the trees of one backup in the tests that always run.
const SAMPLED: usize = 600;
/// Of the trees of one backup in the test of all.
const AT_ONCE: usize = 5_000;
/// Longer than the doubt about the clock of ctimes.
const SETTLED: Duration = Duration::from_millis(150);
const FAULTS_SHOWN: usize = 8;

/// Drives histories from what a backup tells.
struct Driver<'a> {
    worlds: &'a Mutex<Vec<World>>,
    /// The next moment.
    at: AtomicUsize,
    recorder: Recorder,
}

impl Driver<'_> {
    /// All moments before this one have been.
    fn advance(&self, until: usize) {
        let mut worlds = self.worlds.lock().unwrap();
        while self.at.load(Ordering::SeqCst) < until {
            let moment = self.at.fetch_add(1, Ordering::SeqCst);
            worlds.iter_mut().for_each(|world| world.act(moment));
        }
    }
}

impl Monitor for Driver<'_> {
    fn problem(&self, problem: &Problem) {
        self.recorder.problem(problem);
    }

    fn note(&self, text: &str) {
        if text.starts_with("inode scan of ") {
            self.advance(1);
        }
        if text.contains("changed while it was read") {
            self.advance(MOMENTS);
        }
        self.recorder.note(text);
    }
}

/// Where a way of reading sees all that happened before.
fn still_from(way: EmitOptions) -> usize {
    match (way.is_by_inodes(), way.freezes()) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 2,
    }
}

/// Backs up while histories happen; the driver has what was told.
fn back_up<'a>(
    bench: &Bench,
    way: EmitOptions,
    worlds: &'a Mutex<Vec<World>>,
) -> (Outcome, Driver<'a>) {
    let driver = Driver {
        worlds,
        at: AtomicUsize::new(0),
        recorder: Recorder::default(),
    };
    let mark = bench.mounted.beside("barrier");
    let ended = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| match way.is_by_inodes() {
            true => answer_barriers(&mark, &driver, &ended),
            // As they come, beside the walk.
            false => driver.advance(MOMENTS),
        });
        let fault = format!("second::{}", mark.display());
        let outcome = bench.backup_with_freezer(&fault, &driver);
        ended.store(true, Ordering::SeqCst);
        outcome
    });
    driver.advance(MOMENTS);
    (outcome, driver)
}

/// The freezer waits before and after its second barrier.
fn answer_barriers(mark: &Path, driver: &Driver<'_>, ended: &AtomicBool) {
    for (name, until) in [("before", 2), ("after", 3)] {
        let mark = mark.with_extension(name);
        while !mark.exists() {
            if ended.load(Ordering::SeqCst) {
                return;
            }
            std::thread::yield_now();
        }
        driver.advance(until);
        fs::remove_file(&mark).unwrap();
    }
}

/// Problems by world.
fn problems_of(bench: &Bench, recorder: &Recorder) -> BTreeMap<String, BTreeSet<String>> {
    let below = bench.source();
    let mut problems: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for problem in recorder.problems.lock().unwrap().iter() {
        let path = Path::new(std::ffi::OsStr::from_bytes(&problem.path));
        let path = path
            .strip_prefix(&below)
            .unwrap_or_else(|_| panic!("{problem:?}"));
        let path = path.to_str().unwrap();
        let (world, rest) = path.split_once('/').unwrap_or((path, ""));
        problems
            .entry(world.to_owned())
            .or_default()
            .insert(rest.to_owned());
    }
    problems
}

/// Backs up, checks every world, and that the next backup has every byte.
fn check(bench: &mut Bench, way: EmitOptions, histories: &[History], is_first: bool) {
    let named = |number: usize| bench.source().join(format!("w{number}"));
    let worlds = histories.iter().enumerate();
    let worlds = worlds.map(|(number, history)| World::create(&named(number), history.clone()));
    let worlds = Mutex::new(worlds.collect::<Vec<_>>());
    if !is_first {
        bench.backup();
        fs::write(bench.source().join("so-that-something-is-new"), "").unwrap();
    }
    // Old enough to be settled.
    std::thread::sleep(SETTLED);
    let (_, driver) = back_up(bench, way, &worlds);
    let restored: PathBuf = bench.restore().expect("the source");
    let problems = problems_of(bench, &driver.recorder);
    let worlds = worlds.lock().unwrap();
    let mut faults = Vec::new();
    let mut wrong = 0;
    for (number, world) in worlds.iter().enumerate() {
        let name = format!("w{number}");
        let tree = match restored.join(&name) {
            path if path.exists() => Tree::read(&path),
            _ => Tree::default(),
        };
        let named = problems.get(&name).cloned().unwrap_or_default();
        let found = world.faults(&Stored::new(&tree, named), still_from(way));
        wrong += usize::from(!found.is_empty());
        if !found.is_empty() && faults.len() < FAULTS_SHOWN {
            faults.push(format!("{name} {:?}: {found:#?}", world.history()));
        }
    }
    let kind = bench.mounted.kind;
    let told = problems.len();
    if wrong > 0 {
        let notes = driver.recorder.notes.lock().unwrap();
        notes.iter().for_each(|note| eprintln!("{note}"));
        let problems = driver.recorder.problems.lock().unwrap();
        problems.iter().for_each(|problem| eprintln!("{problem:?}"));
    }
    eprintln!(
        "{kind} {way:?} first {is_first}: {} histories, {told} named",
        worlds.len()
    );
    assert!(
        wrong == 0,
        "{kind} {way:?} first {is_first}: {wrong} of {}: {}",
        worlds.len(),
        faults.join("\n")
    );
    fs::remove_dir_all(restored).unwrap();
    drop(worlds);
    bench.next_backup_has_every_byte();
}

/// File systems that find an inode by its number.
const FOUND_BY_NUMBER: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// Of a first walk nobody knows what it did not meet.
fn promised(kind: &str, way: EmitOptions, is_first: bool) -> Vec<History> {
    let is_all = way.is_by_inodes() || (!is_first && FOUND_BY_NUMBER.contains(&kind));
    let is_within = |history: &History| history.iter().all(|(_, step)| step.is_within_directory());
    let all = histories().into_iter();
    all.filter(|history| is_all || is_within(history)).collect()
}

fn check_sampled(mounted: Mounted, way: EmitOptions) {
    let all = histories();
    assert_eq!(
        all.len(),
        4 * STEPS.len() + 10 * STEPS.len().pow(2) + 20 * STEPS.len().pow(3)
    );
    let mut random = SeededRandom::new(44);
    let mut bench = Bench::on(mounted, way, hardly_any());
    for is_first in [true, false] {
        let all = promised(bench.mounted.kind, way, is_first);
        let sampled: Vec<History> = (0..SAMPLED)
            .map(|_| all[random.pick(all.len())].clone())
            .collect();
        check(&mut bench, way, &sampled, is_first);
        bench.empty();
    }
}

#[test]
fn histories_around_barriers_lose_nothing() {
    if can_mount() {
        FILESYSTEMS
            .into_iter()
            .for_each(|kind| check_sampled(Mounted::new(kind, 320), INODE));
    }
}

#[test]
fn histories_without_a_freeze_lose_nothing() {
    if can_mount() {
        FILESYSTEMS
            .into_iter()
            .for_each(|kind| check_sampled(Mounted::new(kind, 320), UNFROZEN));
    }
}

#[test]
fn histories_during_a_walk_lose_nothing() {
    if can_mount() && can_run(&["mkfs.btrfs"]) {
        for kind in ["ext4", "xfs", "btrfs"] {
            check_sampled(Mounted::new(kind, 320), WALK);
        }
        check_sampled(Mounted::in_memory(), WALK);
    }
}

/// All of them: an hour.
#[test]
#[ignore = "an hour"]
fn all_histories_lose_nothing() {
    assert!(can_mount());
    for (kind, way) in [
        ("ext4", INODE),
        ("xfs", INODE),
        ("xfs", UNFROZEN),
        ("ext4", UNFROZEN),
        ("ext4", WALK),
        ("xfs", WALK),
    ] {
        let mut bench = Bench::on(Mounted::new(kind, 1024), way, hardly_any());
        for is_first in [true, false] {
            for chunk in promised(kind, way, is_first).chunks(AT_ONCE) {
                check(&mut bench, way, chunk, is_first);
                bench.empty();
            }
        }
    }
}
