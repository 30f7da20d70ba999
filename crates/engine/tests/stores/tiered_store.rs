//! A cold store that holds everything and a hot one that holds everything but packs of data:
//! together they are a store like any other, and whatever stops in the middle, the hot one holds
//! nothing that the cold one lacks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bale_engine::copy::{CopyOptions, copy};
use bale_engine::mirror::{MirrorOptions, mirror};
use bale_engine::repair::repair_hot;
use bale_engine::verify::{CheckFinding, MendedBy, Subset, check, scrub};
use bale_format::ObjectId;
use bale_pipeline::monitor::Recorder;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_repository::store::{
    Area, LocalStore, MemoryStore, ObjectName, Store, StoreShape, TieredStore, conformance,
};
use bale_testkit::scene::noise;
use bale_testkit::{
    DatedStore, Effect, FaultyStore, InjectedFault, RecordingStore, Scene, Tree, Verb, WholeStore,
};

/// More calls than any operation here makes.
const CALLS_MAX: u64 = 2_000;

fn tiered(hot: impl Store + 'static, cold: impl Store + 'static) -> TieredStore {
    TieredStore::new(Arc::new(hot), Arc::new(cold), Box::new(|_| {}))
}

#[test]
fn two_stores_in_memory_conform() {
    conformance::run_slow(|| Box::new(tiered(MemoryStore::new(), MemoryStore::new())));
}

#[test]
fn two_directories_conform() {
    let scratch = tempfile::tempdir().unwrap();
    let number = AtomicU32::new(0);
    conformance::run_slow(|| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let store = |name| LocalStore::create(&scratch.path().join(format!("{number}/{name}")));
        Box::new(tiered(store("hot").unwrap(), store("cold").unwrap()))
    });
}

#[test]
fn a_directory_with_a_hot_store_that_forgets_everything_conforms() {
    // What the hot one loses costs reads of the cold one, and nothing else.
    conformance::run_slow(|| {
        Box::new(tiered(
            ForgetfulStore(MemoryStore::new()),
            MemoryStore::new(),
        ))
    });
}

/// Takes everything and has nothing.
struct ForgetfulStore(MemoryStore);

impl Store for ForgetfulStore {
    fn put(&self, _: &ObjectName, _: &[u8]) -> bale_repository::store::Result<()> {
        Ok(())
    }
    fn begin(
        &self,
    ) -> bale_repository::store::Result<Box<dyn bale_repository::store::ObjectWriter>> {
        MemoryStore::new().begin()
    }
    fn get(&self, name: &ObjectName, len_max: u64) -> bale_repository::store::Result<Vec<u8>> {
        self.0.get(name, len_max)
    }
    fn read_at(
        &self,
        name: &ObjectName,
        offset: u64,
        buf: &mut [u8],
    ) -> bale_repository::store::Result<()> {
        self.0.read_at(name, offset, buf)
    }
    fn stat(
        &self,
        name: &ObjectName,
    ) -> bale_repository::store::Result<Option<bale_repository::store::ObjectInfo>> {
        self.0.stat(name)
    }
    fn list(
        &self,
        _: Area,
        _: &mut dyn FnMut(bale_repository::store::ObjectInfo),
    ) -> bale_repository::store::Result<()> {
        Ok(())
    }
    fn delete(&self, _: &ObjectName) -> bale_repository::store::Result<()> {
        Ok(())
    }
    fn place(&self) -> String {
        "forgetful".to_owned()
    }
    fn keeps_the_first(&self) -> bool {
        true
    }
}

#[test]
fn stores_that_want_packs_whole_get_each_where_it_belongs() {
    for whole_is_hot in [false, true] {
        let scene = Scene::new();
        let (hot, cold) = (MemoryStore::new(), MemoryStore::new());
        let store = match whole_is_hot {
            true => tiered(WholeStore::over(hot.clone()), cold.clone()),
            false => tiered(hot.clone(), WholeStore::over(cold.clone())),
        };
        assert_ne!(store.shape(), StoreShape::Streams);
        scene.init(store).unwrap();
        scene.write_tree();
        let repository = scene.open(match whole_is_hot {
            true => tiered(WholeStore::over(hot.clone()), cold.clone()),
            false => tiered(hot.clone(), WholeStore::over(cold.clone())),
        });
        scene.backup(&repository.unwrap()).unwrap();
        let index = scene.open(cold.clone()).unwrap().index().unwrap();
        let (hot, cold) = (hot.objects(), cold.objects());
        for place in index.entries() {
            let name = ObjectName::pack(index.pack(place.pack).id);
            assert_eq!(hot.contains_key(&name), place.chunk.kind.is_metadata());
            assert!(cold.contains_key(&name));
        }
    }
}

/// A scene whose repository has two stores.
struct TwoStores {
    scene: Scene,
    hot: DatedStore,
    cold: DatedStore,
    kept: Vec<(ObjectId, Tree)>,
}

impl TwoStores {
    fn new() -> TwoStores {
        let scene = Scene::new();
        let (hot, cold) = (
            DatedStore::new(scene.clock.clone()),
            DatedStore::new(scene.clock.clone()),
        );
        scene.init(tiered(hot.clone(), cold.clone())).unwrap();
        scene.write_tree();
        TwoStores {
            scene,
            hot,
            cold,
            kept: Vec::new(),
        }
    }

    fn open(&self, hot: &DatedStore, cold: &DatedStore) -> Arc<Repository> {
        self.scene.open(tiered(hot.clone(), cold.clone())).unwrap()
    }

    fn keep(&mut self) -> ObjectId {
        let repository = self.open(&self.hot, &self.cold);
        let id = self.scene.backup(&repository).unwrap().id.unwrap();
        self.kept.push((id, Tree::read(&self.scene.source())));
        id
    }

    /// Three snapshots, of which two are forgotten.
    fn half_forgotten() -> TwoStores {
        let mut two = TwoStores::new();
        two.scene.write("gone", &noise(6, 900_000));
        let first = two.keep();
        std::fs::remove_file(two.scene.source().join("gone")).unwrap();
        two.scene.write("gone too", &noise(8, 30_000));
        let second = two.keep();
        std::fs::remove_file(two.scene.source().join("gone too")).unwrap();
        two.scene.write("new", &noise(7, 500));
        two.keep();
        let repository = two.open(&two.hot, &two.cold);
        for id in [first, second] {
            repository.forget_snapshot(id).unwrap();
        }
        two.kept.drain(..2);
        two
    }

    fn assert_restores(&self, repository: &Arc<Repository>, story: &str) {
        let snapshots = repository.snapshots().expect(story);
        for (id, tree) in &self.kept {
            let named = snapshots.iter().find(|(other, _)| other == id);
            let named = named.unwrap_or_else(|| panic!("{story}: {} is gone", id.short()));
            self.scene.assert_restores(repository, named, tree, story);
        }
    }

    /// All that must hold after any crash.
    fn assert_sound(&self, hot: &DatedStore, cold: &DatedStore, story: &str) {
        for area in Area::ALL {
            let of = |store: &DatedStore| BTreeSet::from_iter(store.names(area));
            let beside: Vec<_> = of(hot).difference(&of(cold)).copied().collect();
            assert!(
                beside.is_empty(),
                "{story}: only in the hot one: {beside:?}"
            );
        }
        self.assert_restores(&self.scene.open(cold.clone()).expect(story), story);
        let repository = self.open(hot, cold);
        self.assert_restores(&repository, story);
        let is_clean = |repository: &Arc<Repository>| {
            let report = check(repository, Some(Subset::All), &Recorder::default());
            assert!(report.expect(story).is_clean(), "{story}");
        };
        is_clean(&repository);
        self.scene.backup(&self.open(hot, cold)).expect(story);
        let pruned = self.scene.prune(&self.open(hot, cold), Duration::ZERO);
        pruned.expect(story);
        is_clean(&self.open(hot, cold));
        self.assert_restores(&self.open(hot, cold), story);
    }

    /// Runs `act` while one of the two stores stops answering at call 0, 1, 2 ...
    fn at_every_call(&self, name: &str, act: impl Fn(Arc<Repository>) -> Result<()>) {
        for breaks_hot in [false, true] {
            let mut after = 0;
            loop {
                let mut crashed = false;
                for last_is_done in [false, true] {
                    let (hot, cold) = (self.hot.fork(), self.cold.fork());
                    let faulty = FaultyStore::over(if breaks_hot {
                        hot.clone()
                    } else {
                        cold.clone()
                    });
                    faulty.crash_after(after, last_is_done);
                    let store = match breaks_hot {
                        true => tiered(faulty.clone(), cold.clone()),
                        false => tiered(hot.clone(), faulty.clone()),
                    };
                    let done = self.scene.open(store).and_then(&act);
                    let story = format!("{name}: hot {breaks_hot}, call {after}, {last_is_done}");
                    assert!(done.is_ok() || faulty.crashed(), "{story}: {done:?}");
                    crashed |= faulty.crashed();
                    self.assert_sound(&hot, &cold, &story);
                }
                if !crashed {
                    break;
                }
                after += 1;
                assert!(
                    after < CALLS_MAX,
                    "{name} makes more than {CALLS_MAX} calls"
                );
            }
            assert!(after > 3, "{name}: {after}");
        }
    }
}

#[test]
fn a_backup_that_loses_either_store_anywhere_leaves_both_whole() {
    let mut two = TwoStores::new();
    two.keep();
    two.scene.write("new/d", &noise(5, 700));
    two.scene.write("large too", &noise(9, 600_000));
    two.at_every_call("backup", |repository| {
        two.scene.backup(&repository).map(|_| ())
    });
}

#[test]
fn a_prune_that_loses_either_store_anywhere_leaves_both_whole() {
    let two = TwoStores::half_forgotten();
    two.at_every_call("prune", |repository| {
        two.scene.prune(&repository, Duration::ZERO).map(|_| ())
    });
    let (hot, cold) = (two.hot.fork(), two.cold.fork());
    let pruned = two.scene.prune(&two.open(&hot, &cold), Duration::ZERO);
    let pruned = pruned.unwrap();
    assert!(pruned.packs_deleted > 0 && pruned.bytes_repacked > 0);
}

#[test]
fn the_hot_store_has_everything_but_packs_of_data_and_is_enough_to_look() {
    let mut two = TwoStores::new();
    two.keep();
    let index = two.scene.open(two.cold.clone()).unwrap().index().unwrap();
    let mut data_packs = 0;
    for place in index.entries() {
        let name = ObjectName::pack(index.pack(place.pack).id);
        let is_hot = two.hot.stat(&name).unwrap().is_some();
        assert_eq!(is_hot, place.chunk.kind.is_metadata());
        data_packs += u32::from(!is_hot);
    }
    assert!(data_packs > 0);
    for area in Area::ALL.into_iter().filter(|area| *area != Area::Packs) {
        assert_eq!(two.hot.names(area), two.cold.names(area), "{area}");
    }
    // A look at a snapshot reads nothing of the cold one's packs.
    let cold = RecordingStore::over(two.cold.clone());
    let repository = two
        .scene
        .open(tiered(two.hot.clone(), cold.clone()))
        .unwrap();
    let (_, snapshot) = repository.snapshots().unwrap().remove(0);
    let read = || cold.count_in(Verb::Get, Area::Packs) + cold.count_in(Verb::ReadAt, Area::Packs);
    let segment = &snapshot.layers[0].segments[0].id;
    let kind = bale_format::ChunkKind::Segment;
    repository.read_chunk_uncached(segment, kind).unwrap();
    assert_eq!(read(), 0);
    // Alone, it says where data is.
    let alone = two.scene.open(two.hot.clone()).unwrap();
    let named = alone.snapshots().unwrap().remove(0);
    let monitor = Recorder::default();
    let (_, report) = two.scene.restore(&alone, &named, &monitor);
    assert!(report.unwrap().problems > 0);
    let problems = monitor.problems.lock().unwrap();
    assert!(
        problems
            .iter()
            .any(|problem| problem.text.contains("--cold")),
        "{problems:?}"
    );
}

#[test]
fn nothing_is_written_to_one_of_two_stores_alone() {
    let mut two = TwoStores::new();
    let kept = two.keep();
    for alone in [&two.hot, &two.cold] {
        let before = alone.memory().objects();
        let repository = two.scene.open(alone.clone()).unwrap();
        for refused in [
            two.scene.backup(&repository).map(drop),
            repository.forget_snapshot(kept),
            two.scene.prune(&repository, Duration::ZERO).map(drop),
        ] {
            assert!(
                matches!(refused, Err(Error::OneOfTwoStores(_))),
                "{refused:?}"
            );
        }
        assert_eq!(alone.memory().objects(), before);
    }
    // Nor is a cold store taken for one where there is none.
    let scene = Scene::new();
    let none = scene.open(tiered(scene.store.clone(), scene.store.clone()));
    assert!(matches!(none, Err(Error::NoColdStore(_))));
}

#[test]
fn stores_of_two_repositories_are_refused() {
    let (one, other) = (TwoStores::new(), TwoStores::new());
    let open = |hot: &DatedStore, cold: &DatedStore| {
        TieredStore::open(
            Arc::new(hot.clone()),
            Arc::new(cold.clone()),
            Box::new(|_| {}),
        )
    };
    assert!(open(&one.hot, &one.cold).is_ok());
    assert!(open(&one.hot, &other.cold).is_err());
}

#[test]
fn a_lost_hot_store_is_made_again_wherever_that_is_interrupted() {
    let mut two = TwoStores::half_forgotten();
    two.keep();
    let repository = two.scene.open(two.cold.clone()).unwrap();
    let monitor = Recorder::default();
    let lost = two.hot.memory().objects();
    for after in 0..CALLS_MAX {
        let hot = MemoryStore::new();
        let faulty = FaultyStore::over(hot.clone());
        faulty.crash_after(after, true);
        let first = repair_hot(&repository, &faulty, false, &monitor);
        assert!(first.is_ok() || faulty.crashed());
        // Without its config nobody takes it for a store.
        let has_config = hot.stat(&ObjectName::config()).unwrap().is_some();
        assert!(!has_config || hot.objects() == lost);
        let again = repair_hot(&repository, &hot, false, &monitor).unwrap();
        assert_eq!(hot.objects(), lost, "after {after}");
        assert_eq!((again.beside, again.problems), (0, 0));
        if !faulty.crashed() {
            assert_eq!((again.objects, again.intact), (0, lost.len() as u64));
            return;
        }
    }
    panic!("makes more than {CALLS_MAX} calls");
}

#[test]
fn what_rots_in_the_hot_store_is_read_from_the_cold_one_and_mended() {
    let mut two = TwoStores::new();
    two.keep();
    let whole = two.hot.memory().objects();
    let misses = Arc::new(AtomicU64::new(0));
    for (name, bytes) in &whole {
        let hot = two.hot.fork();
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        hot.memory().overwrite(name, damaged);
        let counted = misses.clone();
        let counting = Box::new(move |_: &_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let (hot_store, cold) = (Arc::new(hot.clone()), Arc::new(two.cold.clone()));
        let store = TieredStore::new(hot_store, cold, counting);
        let repository = two.scene.open(store).unwrap();
        two.assert_restores(&repository, &name.to_string());
        if name.area == Area::Packs {
            let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
            assert_eq!(report.damage.len(), 1, "{report:?}");
            assert!(report.damage[0].what.contains("in the hot store"));
            assert_eq!((report.lost_count, report.packs_damaged.len()), (0, 0));
        }
        let cold = two.scene.open(two.cold.clone()).unwrap();
        let dry = repair_hot(&cold, &hot, true, &Recorder::default()).unwrap();
        assert_eq!((dry.objects, dry.replaced), (1, 1));
        assert_ne!(hot.memory().objects(), whole);
        let mended = repair_hot(&cold, &hot, false, &Recorder::default()).unwrap();
        assert_eq!((mended.objects, mended.replaced), (1, 1));
        assert_eq!(hot.memory().objects(), whole);
    }
    assert!(misses.load(Ordering::Relaxed) >= 2, "said once of each");
}

/// The cold store is read when it is all that is left: too late to learn that it rotted.
#[test]
fn a_byte_that_rots_in_either_store_is_named_by_a_check_and_a_scrub_of_both() {
    let mut two = TwoStores::new();
    two.keep();
    for (name, bytes) in two.hot.memory().objects() {
        for is_cold in [true, false] {
            let (hot, cold) = (two.hot.fork(), two.cold.fork());
            let store = if is_cold { &cold } else { &hot };
            let mut damaged = bytes.clone();
            damaged[bytes.len() / 2] ^= 1;
            store.memory().overwrite(&name, damaged);
            let which = if is_cold { "cold store" } else { "hot store" };
            let story = format!("{name} in the {which}");
            let both = tiered(hot.clone(), cold.clone());
            let scrubbed = scrub(&both, &Recorder::default()).unwrap();
            let [found] = &scrubbed.damage[..] else {
                panic!("{story}: {scrubbed:?}");
            };
            // Of two configs that differ, only a key says which one is damaged.
            assert!(found.what.contains(which), "{story}: {found:?}");
            let repository = two.scene.open(both).unwrap();
            // Packs are long: read where that is wanted.
            let subset = (name.area == Area::Packs).then_some(Subset::All);
            let report = check(&repository, subset, &Recorder::default()).unwrap();
            let [found] = &report.damage[..] else {
                panic!("{story}: {report:?}");
            };
            assert_eq!((report.lost_count, report.packs_damaged.len()), (0, 0));
            if name.area.is_directory() {
                assert!(found.what.contains(which), "{story}: {found:?}");
                let command = if is_cold { "repair cold" } else { "repair hot" };
                assert!(found.text.contains(command), "{story}: {found:?}");
            }
            assert_eq!(repository.damage_marks().unwrap().marks.len(), 0);
        }
    }
}

/// No right to it, or no answer: not damage, and not silence.
#[test]
fn what_cannot_be_read_in_the_cold_store_alone_is_named_and_no_damage() {
    let mut two = TwoStores::new();
    two.keep();
    for area in [Area::Snapshots, Area::Index, Area::Packs] {
        let cold = FaultyStore::over(two.cold.clone());
        let hot = two.hot.names(area).len() as u64;
        let refused = Effect::Fail(std::io::ErrorKind::PermissionDenied);
        let fault = InjectedFault::new(refused).of(Verb::ReadAt).within(area);
        cold.inject(fault.for_ever());
        let repository = two.scene.open(tiered(two.hot.clone(), cold)).unwrap();
        let subset = (area == Area::Packs).then_some(Subset::Percent(100.0));
        let report = check(&repository, subset, &Recorder::default()).unwrap();
        assert!(report.is_clean(), "{area}: {report:?}");
        assert!(report.unread.count >= hot, "{area}: {report:?}");
    }
}

/// No reader takes more of it than the index says, and fewer bytes are read from the cold one.
#[test]
fn a_pack_of_another_length_in_the_hot_store_is_named_without_reading_it() {
    let mut two = TwoStores::new();
    two.keep();
    for name in two.hot.names(Area::Packs) {
        let whole = two.hot.memory().objects()[&name].clone();
        for bytes in [
            [&whole[..], b"more"].concat(),
            whole[..9].to_vec(),
            Vec::new(),
        ] {
            let hot = two.hot.fork();
            hot.memory().overwrite(&name, bytes);
            let repository = two.open(&hot, &two.cold);
            let report = check(&repository, None, &Recorder::default()).unwrap();
            let [found] = &report.damage[..] else {
                panic!("{report:?}");
            };
            assert_eq!(found.mended_by, Some(MendedBy::RepairHot), "{found:?}");
            let cold = two.scene.open(two.cold.clone()).unwrap();
            repair_hot(&cold, &hot, false, &Recorder::default()).unwrap();
            let repository = two.open(&hot, &two.cold);
            assert!(
                check(&repository, None, &Recorder::default())
                    .unwrap()
                    .is_clean()
            );
        }
    }
}

/// Rights that are missing, in each store and each area: nothing is damaged, and nothing silent.
#[test]
fn what_may_not_be_read_in_one_of_two_stores_is_named_with_the_store_and_left() {
    let mut two = TwoStores::new();
    two.keep();
    let whole = two.hot.memory().objects();
    for area in whole.keys().map(|name| name.area).collect::<BTreeSet<_>>() {
        for is_cold in [true, false] {
            let refused = Effect::Fail(std::io::ErrorKind::PermissionDenied);
            let refusing = |store: &DatedStore, verb| {
                let faulty = FaultyStore::over(store.clone());
                let fault = InjectedFault::new(refused).of(verb).within(area);
                faulty.inject(fault.for_ever());
                faulty
            };
            for verb in [Verb::Get, Verb::ReadAt] {
                let both = match is_cold {
                    true => tiered(two.hot.clone(), refusing(&two.cold, verb)),
                    false => tiered(refusing(&two.hot, verb), two.cold.clone()),
                };
                let repository = two.scene.open(both).unwrap();
                let report = check(&repository, Some(Subset::All), &Recorder::default());
                let report = report.unwrap();
                let story = format!("{area}, cold: {is_cold}, {verb:?}: {report:?}");
                assert!(report.is_clean(), "{story}");
                let is_whole_read = matches!(area, Area::Keys | Area::Config | Area::ConfigCopy);
                if is_whole_read == (verb == Verb::Get) {
                    let which = if is_cold { "cold store" } else { "hot store" };
                    let named = report.unread.listed.iter();
                    assert!(
                        named.filter(|it| it.what.contains(which)).count() > 0,
                        "{story}"
                    );
                }
                assert_eq!(repository.damage_marks().unwrap().marks.len(), 0);
            }
            if !is_cold {
                let cold = two.scene.open(two.cold.clone()).unwrap();
                let hot = refusing(&two.hot, Verb::ReadAt);
                let left = repair_hot(&cold, &hot, false, &Recorder::default()).unwrap();
                assert_eq!((left.objects, left.replaced), (0, 0), "{area}");
                assert_eq!(two.hot.memory().objects(), whole);
            }
        }
    }
}

/// Nobody is sent to the hot store for what it never had, or to one that is as damaged.
#[test]
fn what_is_whole_in_neither_store_is_not_said_to_be_mended_by_the_other() {
    let mut two = TwoStores::new();
    two.keep();
    let of_hot = two.hot.memory().objects();
    for (name, bytes) in two.cold.memory().objects() {
        if !name.area.is_directory() {
            continue;
        }
        let (hot, cold) = (two.hot.fork(), two.cold.fork());
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        cold.memory().overwrite(&name, damaged.clone());
        if of_hot.contains_key(&name) {
            hot.memory().overwrite(&name, damaged);
        }
        let report = scrub(&tiered(hot, cold), &Recorder::default()).unwrap();
        assert!(!report.damage.is_empty(), "{name}");
        let is_mended = |it: &CheckFinding| it.mended_by.is_some();
        assert!(!report.damage.iter().any(is_mended), "{name}: {report:?}");
    }
    for name in two.hot.names(Area::Packs) {
        let (hot, cold) = (two.hot.fork(), two.cold.fork());
        for store in [&hot, &cold] {
            store.memory().overwrite(&name, of_hot[&name][1..].to_vec());
        }
        let repository = two.open(&hot, &cold);
        let report = check(&repository, None, &Recorder::default()).unwrap();
        assert!(!report.packs_damaged.is_empty(), "{report:?}");
        assert!(
            report.damage.iter().all(|it| it.mended_by.is_none()),
            "{report:?}"
        );
    }
}

/// It needs no key to see what one store has and the other lost.
#[test]
fn a_scrub_of_both_names_what_the_cold_store_lost_and_says_what_the_hot_one_lacks() {
    let mut two = TwoStores::new();
    two.keep();
    for name in two.hot.memory().objects().into_keys() {
        if !name.area.is_directory() {
            continue;
        }
        let (hot, cold) = (two.hot.fork(), two.cold.fork());
        cold.delete(&name).unwrap();
        let both = tiered(two.hot.clone(), cold);
        let lost = scrub(&both, &Recorder::default()).unwrap();
        assert_eq!(lost.damage.len(), 1, "{name}: {lost:?}");
        assert!(
            lost.damage[0].what.contains("in the cold store"),
            "{lost:?}"
        );
        hot.delete(&name).unwrap();
        let both = tiered(hot, two.cold.clone());
        let recorder = Recorder::default();
        let lacks = scrub(&both, &recorder).unwrap();
        assert!(lacks.damage.is_empty(), "{name}: {lacks:?}");
        let is_said = !recorder.notes.lock().unwrap().is_empty();
        assert_eq!(is_said, name.area != Area::Packs, "{name}");
    }
}

#[test]
fn a_pack_that_is_cut_in_the_cold_store_alone_is_mended_from_the_hot_one_and_not_marked() {
    let mut two = TwoStores::new();
    two.keep();
    for name in two.hot.names(Area::Packs) {
        let cold = two.cold.fork();
        let whole = cold.memory().objects()[&name].clone();
        cold.memory()
            .overwrite(&name, whole[..whole.len() - 1].to_vec());
        let repository = two.open(&two.hot, &cold);
        let report = check(&repository, None, &Recorder::default()).unwrap();
        let [found] = &report.damage[..] else {
            panic!("{report:?}");
        };
        assert!(found.text.contains("repair cold"), "{found:?}");
        assert_eq!((report.lost_count, report.packs_damaged.len()), (0, 0));
    }
}

/// Each store alone is what is left when the other is lost.
#[test]
fn a_key_or_config_that_is_damaged_in_one_store_is_named_with_the_store() {
    let scene = Scene::new();
    let (hot, cold) = (
        DatedStore::new(scene.clock.clone()),
        DatedStore::new(scene.clock.clone()),
    );
    let both = |hot: &DatedStore, cold: &DatedStore| tiered(hot.clone(), cold.clone());
    scene.init(both(&hot, &cold)).unwrap();
    scene.write("file", &noise(1, 3_000));
    scene
        .backup(&scene.open(both(&hot, &cold)).unwrap())
        .unwrap();
    let check_of = |hot: &DatedStore, cold: &DatedStore| {
        let repository = scene.open(both(hot, cold)).unwrap();
        check(&repository, None, &Recorder::default()).unwrap()
    };
    assert!(check_of(&hot, &cold).is_clean());
    let configs = ObjectName::configs();
    let names = cold.names(Area::Keys).into_iter().chain(configs);
    for name in names {
        for is_cold in [true, false] {
            for is_lost in [true, false] {
                let (hot, cold) = (hot.fork(), cold.fork());
                let store = if is_cold { &cold } else { &hot };
                let mut bytes = store.get(&name, u64::MAX).unwrap();
                bytes[30] ^= 1;
                store.delete(&name).unwrap();
                if !is_lost {
                    store.put(&name, &bytes).unwrap();
                }
                let report = check_of(&hot, &cold);
                let story = format!("{name}, cold: {is_cold}, lost: {is_lost}: {report:?}");
                // What a crash leaves out of the hot store is no damage.
                let is_crash = is_lost && !is_cold && name.area == Area::Keys;
                assert_eq!(report.is_clean(), is_crash, "{story}");
                let (which, mended_by) = match is_cold {
                    true => (
                        "in the cold store",
                        MendedBy::RepairCold { read_data: false },
                    ),
                    false => ("in the hot store", MendedBy::RepairHot),
                };
                let mut damage = report.damage.iter();
                let is_said =
                    |it: &CheckFinding| it.what.contains(which) && it.mended_by == Some(mended_by);
                assert!(is_crash || damage.any(is_said), "{story}");
            }
        }
    }
}

/// The cold store alone is listed: what it has lost would count as never made.
#[test]
fn what_the_cold_store_lost_is_named_and_nothing_that_it_uses_is_pruned() {
    let mut two = TwoStores::new();
    two.keep();
    let everything = two.cold.memory().objects();
    for name in two.cold.names(Area::Snapshots) {
        two.cold.delete(&name).unwrap();
        // A machine that has never seen it.
        std::fs::remove_dir_all(two.scene.cache()).unwrap();
        let repository = two.open(&two.hot, &two.cold);
        let report = check(&repository, None, &Recorder::default()).unwrap();
        let named = |finding: &CheckFinding| finding.what.contains(&name.to_string());
        assert!(report.damage.iter().any(named), "{report:?}");
        let pruned = two.scene.prune(&repository, Duration::ZERO);
        let refused = pruned.unwrap_err().to_string();
        assert!(refused.contains("has lost it"), "{refused}");
        // As it is said.
        let bytes = two.hot.get(&name, u64::MAX).unwrap();
        two.cold.put(&name, &bytes).unwrap();
    }
    assert_eq!(two.cold.memory().objects(), everything);
    let repository = two.open(&two.hot, &two.cold);
    let notes = Recorder::default();
    assert!(check(&repository, None, &notes).unwrap().is_clean());
    assert!(notes.notes.lock().unwrap().is_empty());
}

#[test]
fn what_a_hot_store_lacks_is_said_and_no_damage() {
    let mut two = TwoStores::new();
    two.keep();
    for area in [Area::Packs, Area::Index, Area::Snapshots] {
        for name in two.hot.names(area) {
            two.hot.delete(&name).unwrap();
        }
        let repository = two.open(&two.hot, &two.cold);
        let recorder = Recorder::default();
        assert!(check(&repository, None, &recorder).unwrap().is_clean());
        let notes = recorder.notes.lock().unwrap();
        assert!(
            notes
                .iter()
                .any(|note| note.contains("not in the hot store")
                    && note.contains(&format!("in {area}, "))),
            "{notes:?}"
        );
    }
}

/// Its file contents would count as lost, and the target as a mirror of what is left.
#[test]
fn a_hot_store_alone_is_refused_by_what_reads_contents_before_anything_is_written() {
    let mut two = TwoStores::new();
    two.keep();
    let other = Scene::new();
    let before = other.store.memory().objects();
    let place: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let monitor = Recorder::default();
    let refusals = |alone: &DatedStore| {
        let alone = two.scene.open(alone.clone()).unwrap();
        let chosen = alone.snapshots().unwrap();
        let target = other.repository();
        let copied = copy(&alone, &target, &chosen, &CopyOptions::default(), &monitor);
        let mirrored = mirror(&alone, &place, &MirrorOptions::default(), &monitor);
        let checked = check(&alone, Some(Subset::All), &monitor);
        [
            (copied.map(drop), "--from-repo"),
            (mirrored.map(drop), "--cold"),
            (checked.map(drop), "--cold"),
        ]
    };
    for (refused, option) in refusals(&two.hot) {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("hot store"), "{refused}");
        assert!(refused.contains(option), "{refused}");
    }
    assert_eq!(other.store.memory().objects(), before);
    assert_eq!(monitor.problems.lock().unwrap().len(), 0);
    let mut listed = 0;
    place.list(Area::Keys, &mut |_| listed += 1).unwrap();
    assert_eq!(listed, 0);
    // The cold one is complete.
    for (done, _) in refusals(&two.cold) {
        done.unwrap();
    }
}
