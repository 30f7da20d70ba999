//! The oracle of copies: random sequences of backups, forgetting, pruning, copies there and back,
//! mirrors and damage, over a small tree. Whatever came before, a snapshot that a copy or a mirror
//! brought restores equal to what was backed up, and nothing that restored before does not now.
//!
//! `BALE_ORACLE_SEQUENCES=n` sets how many sequences are tried, `BALE_ORACLE_SEED=n` with which
//! they begin. A sequence that breaks a promise is printed with its seed.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::draw::Draw;
use crate::number;
use bale_engine::copy::{CopyOptions, Fate, copy};
use bale_engine::mirror::{MirrorOptions, mirror};
use bale_engine::verify::{self, Subset, check};
use bale_format::ObjectId;
use bale_pipeline::monitor::Recorder;
use bale_repository::repository::{Named, Repository};
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, FaultyStore, RoundsStore, Scene, Tree};

/// Sequences of a run without orders.
const SEQUENCES: u64 = 40;
const STEPS_MAX: usize = 14;
const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn what_was_copied_or_mirrored_restores_equal_whatever_happened_before() {
    let first = number("BALE_ORACLE_SEED").unwrap_or(1);
    let count = number("BALE_ORACLE_SEQUENCES").unwrap_or(SEQUENCES);
    let mut copied = 0;
    for seed in first..first + count {
        let mut story = Vec::new();
        match catch_unwind(AssertUnwindSafe(|| sequence(seed, &mut story))) {
            Ok(more) => copied += more,
            Err(_) => panic!("sequence {seed}:\n{}", story.join("\n")),
        }
    }
    println!("{count} sequences, {copied} snapshots copied");
    assert!(copied >= count / 2, "copies are what this is about");
}

/// Repositories by number, and the mirror of the first.
struct World {
    draw: Draw,
    /// The tree is that of the first, which is backed up; all have keys of their own.
    scenes: [Scene; 3],
    mirror: DatedStore,
    /// What was backed up, by the snapshot that was made first.
    trees: HashMap<ObjectId, Tree>,
    /// Snapshots, by repository and the mirror last, that damage may have struck.
    struck: [HashSet<ObjectId>; 4],
    /// Was something damaged there since it was empty?
    is_damaged: [bool; 4],
    copied: u64,
}

fn sequence(seed: u64, story: &mut Vec<String>) -> u64 {
    let scenes: [Scene; 3] = std::array::from_fn(|_| Scene::new());
    let mirror = DatedStore::new(scenes[0].clock.clone());
    let mut world = World {
        draw: Draw::new(seed),
        scenes,
        mirror,
        trees: HashMap::new(),
        struck: Default::default(),
        is_damaged: [false; 4],
        copied: 0,
    };
    world.change();
    world.backup();
    for _ in 0..4 + world.draw.below(STEPS_MAX - 4) {
        let one = world
            .draw
            .weighted(&[(4, 0), (2, 1), (2, 2), (8, 3), (3, 4), (2, 5)]);
        story.push(match one {
            0 => {
                world.change();
                world.backup()
            }
            1 => world.forget(),
            2 => world.prune(),
            3 => world.copy(),
            4 => world.mirror(),
            _ => world.damage(),
        });
        world.look(story);
    }
    world.copied
}

fn origin((id, snapshot): &Named) -> ObjectId {
    snapshot.original.unwrap_or(*id)
}

impl World {
    fn store(&self, number: usize) -> &DatedStore {
        match self.scenes.get(number) {
            Some(scene) => &scene.store,
            None => &self.mirror,
        }
    }

    /// As a new process would open it, near or far away.
    fn open(&self, number: usize) -> Arc<Repository> {
        let store = self.store(number).clone();
        let scene = self.scenes.get(number).unwrap_or(&self.scenes[0]);
        let opened = match self.draw.once_in(3) {
            true => scene.open(RoundsStore::at_once(store)),
            false => scene.open(store),
        };
        opened.expect("config and keys are never damaged")
    }

    /// Writes, removes and moves some files; some are large, and some have the content of others.
    fn change(&self) {
        let scene = &self.scenes[0];
        for _ in 0..1 + self.draw.below(4) {
            let path = format!("{}/{}", self.draw.below(3), self.draw.below(5));
            let seed = self.draw.below(12) as u64;
            let at = scene.source().join(&path);
            match self.draw.below(8) {
                0 => drop(std::fs::remove_file(at)),
                1 => scene.write(&path, &noise(seed, 500 << 10)),
                2 => scene.write(&path, &[noise(seed, 500 << 10), noise(99, 9)].concat()),
                _ => scene.write(&path, &noise(seed, 20 + 50 * seed as usize)),
            }
        }
    }

    fn backup(&mut self) -> String {
        let scene = &self.scenes[0];
        let outcome = match scene.backup(&self.open(0)) {
            Ok(outcome) => outcome,
            Err(error) if self.is_damaged[0] => return format!("backup: {error}"),
            Err(error) => panic!("backup: {error}"),
        };
        let id = outcome.id.expect("a snapshot");
        self.trees.insert(id, Tree::read(&scene.source()));
        format!("backup {}", id.short())
    }

    fn some_snapshot(&self, number: usize) -> Option<Named> {
        let (snapshots, _) = self.open(number).snapshots_readable().unwrap();
        let at = self.draw.below(snapshots.len());
        snapshots.into_iter().nth(at)
    }

    fn forget(&mut self) -> String {
        let number = self.draw.below(3);
        let Some((id, _)) = self.some_snapshot(number) else {
            return format!("nothing to forget in {number}");
        };
        let repository = self.open(number);
        repository.forget_snapshot(id).unwrap();
        format!("forget {} in {number}", id.short())
    }

    fn prune(&mut self) -> String {
        let number = self.draw.below(3);
        let grace = self.draw.of(&[Duration::ZERO, Duration::ZERO, DAY]);
        let done = self.scenes[number].prune(&self.open(number), grace);
        if let Err(error) = &done {
            assert!(self.is_damaged[number], "prune {number}: {error}");
        }
        format!("prune {number}, {grace:?}: {}", done.is_ok())
    }

    /// From one into another, all or one; perhaps killed on the way.
    fn copy(&mut self) -> String {
        let from = self.draw.below(3);
        let to = (from + 1 + self.draw.below(2)) % 3;
        let source = self.open(from);
        let (mut snapshots, _) = source.snapshots_readable().unwrap();
        if self.draw.once_in(3) {
            let at = self.draw.below(snapshots.len());
            snapshots = snapshots.into_iter().skip(at).take(1).collect();
        }
        let faulty = FaultyStore::over(self.store(to).clone());
        let is_killed = self.draw.once_in(4);
        let target = match is_killed {
            true => self.scenes[to].open(faulty.clone()).unwrap(),
            false => self.open(to),
        };
        if is_killed {
            faulty.crash_after(self.draw.below(40) as u64, self.draw.once_in(2));
        }
        let monitor = Recorder::default();
        let done = copy(
            &source,
            &target,
            &snapshots,
            &CopyOptions::default(),
            &monitor,
        );
        let text = format!("copy {from} to {to}, {} snapshots", snapshots.len());
        let copied = match done {
            Err(_) if faulty.crashed() => return format!("{text}, killed"),
            Err(error) if self.is_damaged[to] => return format!("{text}: {error}"),
            done => done.unwrap_or_else(|error| panic!("{text}: {error}")),
        };
        for one in &copied.snapshots {
            match &one.fate {
                Fate::Copied(id) | Fate::Refilled(id) => {
                    self.copied += 1;
                    // Whatever was struck there, this one is whole.
                    self.struck[to].remove(id);
                }
                Fate::NotMade(why) => assert!(self.is_damaged[from], "{text}: {why}"),
                Fate::There(_) | Fate::WouldCopy => {}
            }
        }
        let fates: Vec<_> = copied.snapshots.iter().map(|one| &one.fate).collect();
        format!("{text}: {fates:?}")
    }

    fn mirror(&mut self) -> String {
        let options = MirrorOptions {
            verify: self.draw.once_in(2) || self.is_damaged[3],
            delete: self.draw.once_in(3),
            dry_run: false,
        };
        let faulty = FaultyStore::over(self.mirror.clone());
        let is_killed = self.draw.once_in(4);
        if is_killed {
            faulty.crash_after(self.draw.below(40) as u64, self.draw.once_in(2));
        }
        let store: Arc<dyn Store> = Arc::new(faulty.clone());
        self.scenes[0].forget_newest_seen();
        let text = format!("mirror {options:?}");
        let mirrored = match mirror(&self.open(0), &store, &options, &Recorder::default()) {
            Err(_) if faulty.crashed() => return format!("{text}, killed"),
            done => done.unwrap_or_else(|error| panic!("{text}: {error}")),
        };
        if mirrored.problems > 0 {
            // Nothing is deleted for a source that lost its newest snapshots, or all.
            let may_be = self.is_damaged[0] || options.delete;
            assert!(may_be, "{text}: {mirrored:?}");
            return format!("{text}: {mirrored:?}");
        }
        for (name, bytes) in self.scenes[0].store.memory().objects() {
            let is_sign = name.area == Area::Runs;
            let there = self.mirror.get(&name, u64::MAX);
            assert!(is_sign || there.is_ok(), "{text}: {name} is not there");
            let is_read = options.verify || !self.is_damaged[3];
            if is_read && !self.is_damaged[0] && !is_sign {
                assert!(there.unwrap() == bytes, "{text}: {name} differs");
            }
        }
        if options.verify && !self.is_damaged[0] {
            self.struck[3].clear();
        }
        format!("{text}: {mirrored:?}")
    }

    /// A byte, the end, or all of a pack or an index object. What is a target of copies is checked
    /// after that, and marked.
    fn damage(&mut self) -> String {
        let number = self.draw.below(4);
        let store = self.store(number).clone();
        let area = self.draw.of(&[Area::Packs, Area::Packs, Area::Index]);
        let names = store.names(area);
        if names.is_empty() {
            return format!("nothing to damage in {number}");
        }
        let name: ObjectName = self.draw.of(&names);
        let mut bytes = store.get(&name, u64::MAX).unwrap();
        let at = self.draw.below(bytes.len());
        // A source that lost index objects is not known to have had them.
        let is_whole_lost = area == Area::Packs || number != 0;
        let how = self.draw.below(if is_whole_lost { 3 } else { 2 });
        store.delete(&name).unwrap();
        match how {
            0 => bytes[at] ^= 4,
            1 => bytes.truncate(at),
            _ => bytes.clear(),
        }
        if how < 2 {
            store.put(&name, &bytes).unwrap();
        }
        self.is_damaged[number] = true;
        let repository = self.open(number);
        let (snapshots, _) = repository.snapshots_readable().unwrap();
        self.struck[number].extend(snapshots.iter().map(|(id, _)| *id));
        if number < 3 {
            let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
            verify::mark(&repository, &report).unwrap();
        }
        format!("damage {name} of {number}: {how} at {at}")
    }

    /// Everything that nobody struck restores.
    fn look(&self, story: &[String]) {
        let last = story.last().expect("a step was made");
        for number in 0..4 {
            if self.store(number).names(Area::Snapshots).is_empty() {
                continue;
            }
            let repository = self.open(number);
            let (snapshots, damaged) = repository.snapshots_readable().unwrap();
            assert!(damaged.is_empty(), "{damaged:?}");
            for named in snapshots {
                if !self.struck[number].contains(&named.0) {
                    let tree = &self.trees[&origin(&named)];
                    self.scenes[0].assert_restores(&repository, &named, tree, last);
                }
            }
        }
    }
}
