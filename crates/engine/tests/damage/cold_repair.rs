//! What the cold store has lost or has damaged comes back from the hot one: nothing that was
//! deleted on purpose without the user's word, and nothing that is not proven.

use bale_engine::repair::{ColdOptions, ColdReport, repair_cold, repair_hot};
use bale_engine::verify::{Subset, check};
use bale_format::ObjectId;
use bale_pipeline::monitor::Recorder;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_repository::store::{Area, MemoryStore, ObjectName, Store, TieredStore};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, Effect, FaultyStore, InjectedFault, Scene, Tree, Verb};
use std::sync::Arc;
use std::time::Duration;

/// More calls than any repair here makes.
const CALLS_MAX: u64 = 2_000;

const EVERYTHING: ColdOptions = ColdOptions {
    snapshots: true,
    keys: true,
    read_data: true,
    dry_run: false,
};

/// A repository with two stores, and two snapshots in it.
struct TwoStores {
    scene: Scene,
    hot: DatedStore,
    cold: DatedStore,
    kept: Vec<(ObjectId, Tree)>,
}

impl TwoStores {
    fn new() -> TwoStores {
        let scene = Scene::new();
        let store = || DatedStore::new(scene.clock.clone());
        let (hot, cold) = (store(), store());
        let mut two = TwoStores {
            scene,
            hot,
            cold,
            kept: Vec::new(),
        };
        two.scene.init(two.both(&two.hot, &two.cold)).unwrap();
        two.scene.write_tree();
        two.keep();
        two.scene.write("later", &noise(3, 40_000));
        two.keep();
        two
    }

    fn both(&self, hot: &DatedStore, cold: &DatedStore) -> TieredStore {
        TieredStore::new(
            Arc::new(hot.clone()),
            Arc::new(cold.clone()),
            Box::new(|_| {}),
        )
    }

    fn open(&self, hot: &DatedStore, cold: &DatedStore) -> Arc<Repository> {
        self.scene.open(self.both(hot, cold)).unwrap()
    }

    fn keep(&mut self) -> ObjectId {
        let repository = self.open(&self.hot, &self.cold);
        let id = self.scene.backup(&repository).unwrap().id.unwrap();
        self.kept.push((id, Tree::read(&self.scene.source())));
        id
    }

    fn repair(
        &self,
        hot: &DatedStore,
        cold: impl Store + 'static,
        options: ColdOptions,
    ) -> Result<ColdReport> {
        self.repair_telling(hot, cold, options, &Recorder::default())
    }

    fn repair_telling(
        &self,
        hot: &DatedStore,
        cold: impl Store + 'static,
        options: ColdOptions,
        recorder: &Recorder,
    ) -> Result<ColdReport> {
        let repository = self.scene.open(self.hot.clone()).unwrap();
        let (hot, cold): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(hot.clone()), Arc::new(cold));
        repair_cold(&repository, [&hot, &cold], options, recorder)
    }

    fn assert_restores(&self, hot: &DatedStore, cold: &DatedStore, story: &str) {
        for repository in [
            self.open(hot, cold),
            self.scene.open(cold.clone()).expect(story),
        ] {
            let report = check(&repository, Some(Subset::All), &Recorder::default());
            assert!(
                report.as_ref().expect(story).is_clean(),
                "{story} {report:?}"
            );
            let snapshots = repository.snapshots().expect(story);
            for (id, tree) in &self.kept {
                let named = snapshots.iter().find(|(other, _)| other == id);
                let named = named.unwrap_or_else(|| panic!("{story}: {} is gone", id.short()));
                self.scene.assert_restores(&repository, named, tree, story);
            }
        }
    }
}

#[test]
fn whatever_the_cold_store_lost_comes_back_from_the_hot_one_and_a_check_says_how() {
    let two = TwoStores::new();
    let whole = two.cold.memory().objects();
    for name in two.hot.memory().objects().into_keys() {
        let story = name.to_string();
        let cold = two.cold.fork();
        cold.delete(&name).unwrap();
        let of_one = match name.area.is_directory() {
            true => {
                let repository = two.open(&two.hot, &cold);
                check(&repository, None, &Recorder::default()).unwrap()
            }
            false => Default::default(),
        };
        let advice = match name.area {
            Area::Snapshots => "bale repair cold --snapshots brings it back",
            Area::Keys => "bale repair cold --keys brings it back",
            _ => "bale repair cold brings it back",
        };
        let mut damage = of_one.damage.iter();
        let is_said = damage.any(|it| it.what.contains(&story) && it.text.contains(advice));
        assert!(is_said || !name.area.is_directory(), "{story} {of_one:?}");
        let dry = ColdOptions {
            dry_run: true,
            ..EVERYTHING
        };
        let dry = two.repair(&two.hot, cold.clone(), dry).unwrap();
        assert_eq!((dry.objects, dry.problems), (1, 0), "{story}");
        assert_eq!(cold.memory().objects().len(), whole.len() - 1, "{story}");
        let done = two.repair(&two.hot, cold.clone(), EVERYTHING).unwrap();
        assert_eq!((done.objects, done.replaced, done.problems), (1, 0, 0));
        assert_eq!(cold.memory().objects(), whole, "{story}");
    }
    // All of it at once, but packs of data.
    let cold = two.cold.fork();
    for name in two.hot.memory().objects().into_keys() {
        cold.delete(&name).unwrap();
    }
    let done = two.repair(&two.hot, cold.clone(), EVERYTHING).unwrap();
    assert_eq!(done.objects, two.hot.memory().objects().len() as u64);
    assert!(done.only_hot.iter().all(|object| object.is_brought));
    two.assert_restores(&two.hot, &cold, "all at once");
    let again = two.repair(&two.hot, cold, EVERYTHING).unwrap();
    assert_eq!((again.objects, again.only_hot.len()), (0, 0));
}

/// The hot store was brought back from a copy: it alone has what was deleted meanwhile.
#[test]
fn what_was_forgotten_or_removed_does_not_rise_without_the_users_word() {
    let mut two = TwoStores::new();
    let (forgotten, _) = two.kept.remove(0);
    let set_back = two.hot.fork();
    let repository = two.open(&two.hot, &two.cold);
    repository.forget_snapshot(forgotten).unwrap();
    two.scene.prune(&repository, Duration::ZERO).unwrap();
    two.keep();
    let before = two.cold.names(Area::Snapshots);
    let timid = ColdOptions {
        read_data: true,
        ..ColdOptions::default()
    };
    let done = two.repair(&set_back, two.cold.clone(), timid).unwrap();
    assert_eq!(two.cold.names(Area::Snapshots), before);
    let left: Vec<_> = done.left().map(|object| object.name).collect();
    assert_eq!(left, [ObjectName::snapshot(forgotten)]);
    assert!(done.only_hot[0].snapshot.is_some());
    // Everything that is wanted is there, and stays there.
    let hot = &set_back;
    let repository = two.open(hot, &two.cold);
    let refused = two.scene.prune(&repository, Duration::ZERO).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("bale repair cold --snapshots"),
        "{refused}"
    );
    for (id, tree) in &two.kept {
        let snapshots = repository.snapshots().unwrap();
        let named = snapshots.iter().find(|(other, _)| other == id).unwrap();
        two.scene
            .assert_restores(&repository, named, tree, "set back");
    }
    // As the refusal says.
    let done = two.repair(hot, two.cold.clone(), EVERYTHING).unwrap();
    assert!(done.only_hot[0].is_brought);
    let repository = two.open(hot, &two.cold);
    repository.forget_snapshot(forgotten).unwrap();
    two.scene.prune(&repository, Duration::ZERO).unwrap();
    let repository = two.open(hot, &two.cold);
    assert_eq!(repository.snapshots().unwrap().len(), two.kept.len());
    two.assert_restores(hot, &two.cold, "forgotten again");
}

#[test]
fn a_key_that_only_the_hot_store_has_opens_the_cold_one_only_if_the_user_says_so() {
    let two = TwoStores::new();
    let keys = two.cold.names(Area::Keys);
    for key in &keys {
        two.cold.delete(key).unwrap();
    }
    let timid = ColdOptions {
        snapshots: true,
        ..ColdOptions::default()
    };
    let done = two.repair(&two.hot, two.cold.clone(), timid).unwrap();
    let left: Vec<_> = done.left().map(|object| object.name).collect();
    assert_eq!(left, keys);
    assert!(two.scene.open(two.cold.clone()).is_err());
    two.repair(&two.hot, two.cold.clone(), EVERYTHING).unwrap();
    two.assert_restores(&two.hot, &two.cold, "with the key");
}

#[test]
fn what_is_damaged_in_the_cold_store_is_replaced_by_what_is_proven_and_by_nothing_else() {
    let two = TwoStores::new();
    let whole = two.cold.memory().objects();
    for (name, bytes) in two.hot.memory().objects() {
        let story = name.to_string();
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        let cold = two.cold.fork();
        cold.memory().overwrite(&name, damaged.clone());
        // Nobody has it whole.
        let hot = two.hot.fork();
        if name.area.is_directory() {
            hot.memory().overwrite(&name, damaged.clone());
            let recorder = Recorder::default();
            let done = two.repair_telling(&hot, cold.clone(), EVERYTHING, &recorder);
            let done = done.unwrap();
            assert_eq!((done.objects, done.problems), (0, 1), "{story}");
            let problems = recorder.problems.lock().unwrap();
            assert!(problems[0].path == story.as_bytes(), "{problems:?}");
            assert_eq!(cold.memory().objects()[&name], damaged, "{story}");
        }
        let done = two.repair(&two.hot, cold.clone(), EVERYTHING).unwrap();
        assert_eq!((done.objects, done.replaced, done.problems), (1, 1, 0));
        assert_eq!(cold.memory().objects(), whole, "{story}");
        // The hot one's damage is not carried over.
        let cold = two.cold.fork();
        let done = two.repair(&hot, cold.clone(), EVERYTHING).unwrap();
        assert_eq!((done.objects, done.problems), (0, 0), "{story}");
        assert_eq!(cold.memory().objects(), whole, "{story}");
    }
}

#[test]
fn what_cannot_be_read_in_the_cold_store_is_named_and_left() {
    let two = TwoStores::new();
    let whole = two.cold.memory().objects();
    for area in [Area::Snapshots, Area::Index, Area::Packs] {
        let faulty = FaultyStore::over(two.cold.clone());
        let fault = InjectedFault::error().of(Verb::ReadAt).within(area);
        faulty.inject(fault.for_ever());
        let recorder = Recorder::default();
        let done = two.repair_telling(&two.hot, faulty, EVERYTHING, &recorder);
        let done = done.unwrap();
        assert_eq!(done.problems, two.hot.names(area).len() as u64, "{area}");
        assert_eq!(done.objects, 0);
        let problems = recorder.problems.lock().unwrap();
        assert!(problems[0].text.contains("left as it is"), "{problems:?}");
        assert_eq!(two.cold.memory().objects(), whole);
    }
}

#[test]
fn a_repair_of_the_cold_store_goes_on_wherever_it_was_interrupted() {
    let two = TwoStores::new();
    let whole = two.cold.memory().objects();
    let lost = two.cold.fork();
    for (name, bytes) in two.hot.memory().objects() {
        match name.area {
            Area::Packs => lost.memory().overwrite(&name, bytes[1..].to_vec()),
            _ => lost.delete(&name).unwrap(),
        }
    }
    for after in 0..CALLS_MAX {
        let cold = lost.fork();
        let faulty = FaultyStore::over(cold.clone());
        faulty.crash_after(after, true);
        let first = two.repair(&two.hot, faulty.clone(), EVERYTHING);
        assert!(first.is_ok() || faulty.crashed());
        // What is named by then is there.
        let names = |area| cold.names(area).len();
        let packs: Vec<_> = cold.memory().objects().into_iter().collect();
        let is_whole = |name: &ObjectName| {
            let bytes = packs.iter().find(|(other, _)| other == name);
            bytes.is_some_and(|(_, bytes)| bytes == &whole[name])
        };
        assert!(names(Area::Index) == 0 || two.hot.names(Area::Packs).iter().all(is_whole));
        assert!(names(Area::Snapshots) == 0 || two.hot.names(Area::Index).iter().all(is_whole));
        two.repair(&two.hot, cold.clone(), EVERYTHING).unwrap();
        assert_eq!(cold.memory().objects(), whole, "after {after}");
        if !faulty.crashed() {
            return;
        }
    }
    panic!("makes more than {CALLS_MAX} calls");
}

#[test]
fn stores_that_are_swapped_empty_or_of_another_repository_are_not_written() {
    let (two, other) = (TwoStores::new(), TwoStores::new());
    let swapped = two.repair(&two.cold, two.hot.clone(), EVERYTHING);
    assert!(swapped.unwrap_err().to_string().contains("swapped"));
    let before = other.cold.memory().objects();
    let foreign = two.repair(&two.hot, other.cold.clone(), EVERYTHING);
    let foreign = foreign.unwrap_err().to_string();
    assert!(foreign.contains("of another repository"), "{foreign}");
    assert_eq!(other.cold.memory().objects(), before);
    let empty = MemoryStore::new();
    let refused = two.repair(&two.hot, empty.clone(), EVERYTHING);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("is it mounted"), "{refused}");
    assert!(empty.objects().is_empty());
    // Nor where there is one store.
    let scene = Scene::new();
    let repository = scene.open(scene.store.clone()).unwrap();
    let store: Arc<dyn Store> = Arc::new(scene.store.clone());
    let none = repair_cold(
        &repository,
        [&store, &store],
        EVERYTHING,
        &Recorder::default(),
    );
    assert!(matches!(none, Err(Error::NoColdStore(_))));
}

/// An answer that is garbled on its way says nothing of what is stored.
#[test]
fn one_bad_read_of_either_store_has_nothing_replaced() {
    let two = TwoStores::new();
    let repository = two.scene.open(two.cold.clone()).unwrap();
    let areas = [Area::Config, Area::ConfigCopy, Area::Keys, Area::Index];
    let areas = areas.into_iter().chain([Area::Snapshots, Area::Packs]);
    for (area, verb) in areas.flat_map(|area| [Verb::Get, Verb::ReadAt].map(|verb| (area, verb))) {
        let garbled = InjectedFault::new(Effect::FlipBit(9)).of(verb).within(area);
        let (hot, cold) = (two.hot.fork(), two.cold.fork());
        let before = [&hot, &cold].map(|store| store.memory().objects());
        let faulty = FaultyStore::over(cold.clone());
        faulty.inject(garbled.clone());
        let report = two.repair(&hot, faulty, EVERYTHING).unwrap();
        assert_eq!(
            (report.objects, report.problems),
            (0, 0),
            "{area}: {report:?}"
        );
        let faulty = FaultyStore::over(hot.clone());
        faulty.inject(garbled);
        let report = repair_hot(&repository, &faulty, false, &Recorder::default()).unwrap();
        assert_eq!(
            (report.objects, report.problems),
            (0, 0),
            "{area}: {report:?}"
        );
        let after = [&hot, &cold].map(|store| store.memory().objects());
        assert!(after == before, "{area}");
    }
}
