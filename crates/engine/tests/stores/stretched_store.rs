//! Packs of data in segments: the store around a store conforms, whatever stops in the middle costs
//! nothing that was acknowledged, damage is named and mended, space comes back, and one file costs
//! its own bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bale_engine::prune::Pruned;
use bale_engine::repair::repair_index;
use bale_engine::verify::{Subset, check};
use bale_format::keys::{Keys, RootKey};
use bale_format::{ObjectId, RepositoryId};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::Recorder;
use bale_pipeline::random::OsRandom;
use bale_repository::error::{Error, Result};
use bale_repository::pack::PackPlan;
use bale_repository::repository::{InitOptions, Made, NewSlot, Repository};
use bale_repository::store::{
    Area, LocalStore, MemoryStore, ObjectName, PackContent, Store, TieredStore, conformance,
};
use bale_repository::stretched::{Reclaimed, STRETCH_BYTES_MIN, StretchedStore};
use bale_testkit::scene::noise;
use bale_testkit::{
    DatedStore, Effect, FaultyStore, InjectedFault, RecordingStore, RoundsStore, Scene, Tree, Verb,
    WholeStore, at_every_call,
};
use bytes::Bytes;

const MIB: usize = 1 << 20;

fn over(base: impl Store + 'static, len_target: u64) -> StretchedStore {
    let keys = Keys::derive(&RootKey::from_bytes([7; 32]), RepositoryId([3; 16]));
    StretchedStore::new(Arc::new(base), keys, Arc::new(OsRandom), len_target)
}

#[test]
fn segments_in_memory_conform() {
    conformance::run_slow(|| Box::new(over(MemoryStore::new(), STRETCH_BYTES_MIN)));
}

#[test]
fn segments_in_a_directory_conform() {
    let scratch = tempfile::tempdir().unwrap();
    let number = AtomicU32::new(0);
    conformance::run_slow(|| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let store = LocalStore::create(&scratch.path().join(number.to_string()));
        Box::new(over(store.unwrap(), STRETCH_BYTES_MIN))
    });
}

/// Something like a pack, and its name.
fn pack(seed: u64, len: usize) -> (ObjectName, Bytes) {
    let bytes = noise(seed, len);
    let name = ObjectName::pack(ObjectId(*blake3::hash(&bytes).as_bytes()));
    (name, bytes.into())
}

fn upload(
    store: &StretchedStore,
    pack: &(ObjectName, Bytes),
) -> bale_repository::store::Result<()> {
    store.upload(&pack.0, &pack.1, PackContent::Data, &mut |_| {})
}

fn listed(store: &StretchedStore) -> BTreeMap<ObjectName, u64> {
    let mut found = BTreeMap::new();
    let list = store.list(Area::Packs, &mut |info| {
        assert!(
            found.insert(info.name, info.len).is_none(),
            "{} twice",
            info.name
        );
    });
    list.unwrap();
    found
}

fn assert_holds(store: &StretchedStore, packs: &[(ObjectName, Bytes)], story: &str) {
    let expected: BTreeMap<_, _> = packs
        .iter()
        .map(|(name, bytes)| (*name, bytes.len() as u64))
        .collect();
    assert_eq!(listed(store), expected, "{story}");
    for (name, bytes) in packs {
        assert_eq!(
            store.get(name, u64::MAX).expect(story),
            bytes[..],
            "{story}"
        );
        let info = store.stat(name).expect(story).expect(story);
        assert_eq!(info.len, bytes.len() as u64, "{story}");
        let mut part = [0; 10];
        store.read_at(name, 17, &mut part).expect(story);
        assert_eq!(part[..], bytes[17..27], "{story}");
        let behind = store.read_at(name, info.len - 9, &mut part).unwrap_err();
        assert_eq!(behind.kind(), std::io::ErrorKind::UnexpectedEof, "{story}");
    }
}

fn names(store: &DatedStore, area: Area) -> Vec<ObjectName> {
    store.names(area)
}

#[test]
fn packs_lie_one_after_the_other_and_are_found_once_the_segment_is_closed() {
    let memory = MemoryStore::new();
    let store = over(memory.clone(), STRETCH_BYTES_MIN);
    let packs: Vec<_> = (0..9).map(|seed| pack(seed, 300_000)).collect();
    for pack in &packs {
        upload(&store, pack).unwrap();
    }
    // Two segments of four are full, the ninth is in one that is open.
    assert_holds(
        &over(memory.clone(), 0),
        &packs[..8],
        "others see what is closed",
    );
    let objects = |area| {
        let all = memory.objects().into_iter();
        let of_area = all.filter(move |(name, _)| name.area == area);
        of_area.collect::<Vec<_>>()
    };
    assert_eq!(objects(Area::Stretches).len(), 2);
    assert!(objects(Area::Packs).is_empty());
    store.settle().unwrap();
    assert_holds(&store, &packs, "who wrote them");
    assert_holds(&over(memory.clone(), 0), &packs, "others");
    let stretches = objects(Area::Stretches);
    assert_eq!((stretches.len(), objects(Area::Stretched).len()), (3, 3));
    let all: Vec<u8> = packs.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    let (first, second) = all.split_at(4 * 300_000);
    assert!(stretches[0].1.starts_with(first));
    assert!(stretches[1].1.starts_with(&second[..4 * 300_000]));
    // Nothing is open: nothing is written.
    store.settle().unwrap();
    assert_eq!(objects(Area::Stretches).len(), 3);
}

#[test]
fn a_segment_without_a_record_is_read_by_its_table() {
    let memory = MemoryStore::new();
    let store = over(memory.clone(), STRETCH_BYTES_MIN);
    let packs: Vec<_> = (0..9).map(|seed| pack(seed, 300_000)).collect();
    packs.iter().for_each(|pack| upload(&store, pack).unwrap());
    store.settle().unwrap();
    for name in memory.objects().into_keys() {
        if name.area == Area::Stretched {
            memory.delete(&name).unwrap();
        }
    }
    let other = over(memory.clone(), 0);
    assert_holds(&other, &packs, "without records");
    assert_eq!(other.repair_records(false).unwrap().written, 3);
    let count = memory.objects().into_keys();
    assert_eq!(count.filter(|name| name.area == Area::Stretched).count(), 3);
    assert_holds(&other, &packs, "with new ones");
    assert!(other.check(|_| true).unwrap().is_empty());
}

#[test]
fn a_deleted_pack_goes_at_once_and_its_segment_with_the_last_one() {
    let memory = MemoryStore::new();
    let store = over(memory.clone(), STRETCH_BYTES_MIN);
    let mut packs: Vec<_> = (0..4).map(|seed| pack(seed, 300_000)).collect();
    packs.iter().for_each(|pack| upload(&store, pack).unwrap());
    while let Some((name, _)) = packs.pop() {
        store.delete(&name).unwrap();
        assert!(store.stat(&name).unwrap().is_none());
        assert!(store.get(&name, u64::MAX).unwrap_err().is_not_found());
        assert_holds(&store, &packs, "who deleted");
        assert_holds(&over(memory.clone(), 0), &packs, "others");
        let records = memory.objects().into_keys();
        let records = records.filter(|name| name.area == Area::Stretched).count();
        assert_eq!(records, usize::from(!packs.is_empty()));
    }
    assert!(memory.objects().is_empty(), "{:?}", memory.objects().keys());
}

#[test]
fn a_reader_finds_packs_that_others_have_moved_and_added() {
    let memory = MemoryStore::new();
    let store = over(memory.clone(), STRETCH_BYTES_MIN);
    let packs: Vec<_> = (0..4).map(|seed| pack(seed, 300_000)).collect();
    packs.iter().for_each(|pack| upload(&store, pack).unwrap());
    let reader = over(memory.clone(), 0);
    assert_holds(&reader, &packs, "before");
    packs[1..]
        .iter()
        .for_each(|(name, _)| store.delete(name).unwrap());
    let stretch = store.uses().unwrap().remove(0);
    assert!(stretch.is_below(40) && !stretch.is_below(20), "{stretch:?}");
    assert_eq!(
        store.copy_rest(&stretch.name).unwrap(),
        Reclaimed::Copied(300_000)
    );
    store.settle().unwrap();
    assert!(store.let_go(&stretch.name).unwrap());
    assert_holds(&store, &packs[..1], "moved");
    assert_eq!(reader.get(&packs[0].0, u64::MAX).unwrap(), packs[0].1);
    let new = pack(77, 1000);
    upload(&store, &new).unwrap();
    store.settle().unwrap();
    assert_eq!(reader.get(&new.0, u64::MAX).unwrap(), new.1);
}

#[test]
fn a_segment_with_a_damaged_pack_is_not_given_back() {
    let memory = MemoryStore::new();
    let store = over(memory.clone(), STRETCH_BYTES_MIN);
    let packs: Vec<_> = (0..4).map(|seed| pack(seed, 300_000)).collect();
    packs.iter().for_each(|pack| upload(&store, pack).unwrap());
    let stretch = store.uses().unwrap().remove(0).name;
    let name = ObjectName::stretch(stretch);
    let mut bytes = memory.get(&name, u64::MAX).unwrap();
    bytes[400_000] ^= 1;
    memory.overwrite(&name, bytes);
    let damaged = packs[1].0.id().unwrap();
    assert_eq!(
        store.copy_rest(&stretch).unwrap(),
        Reclaimed::Damaged(damaged)
    );
    store.settle().unwrap();
    assert!(!store.let_go(&stretch).unwrap());
    assert!(memory.stat(&name).unwrap().is_some());
}

#[test]
fn after_a_write_that_failed_nothing_more_is_taken_and_nothing_was_promised() {
    let calls = {
        let faulty = FaultyStore::over(MemoryStore::new());
        write_three(&over(faulty.clone(), STRETCH_BYTES_MIN)).unwrap();
        faulty.calls()
    };
    assert!(calls > 6, "{calls}");
    for after in 0..calls {
        let memory = MemoryStore::new();
        let faulty = FaultyStore::over(memory.clone());
        faulty.crash_after(after, false);
        let store = over(faulty.clone(), STRETCH_BYTES_MIN);
        assert!(write_three(&store).is_err(), "{after}");
        faulty.heal();
        assert!(upload(&store, &pack(9, 10)).is_err(), "{after}");
        assert!(store.settle().is_err(), "{after}");
        // Whole or not at all.
        let there = listed(&over(memory, 0)).len();
        assert!(there == 0 || there == 3, "{after}: {there}");
    }
}

fn write_three(store: &StretchedStore) -> bale_repository::store::Result<()> {
    for seed in 0..3 {
        upload(store, &pack(seed, 1000))?;
    }
    store.settle()
}

fn init(scene: &Scene, store: impl Store + 'static) -> Result<Made> {
    init_of_size(scene, store, STRETCH_BYTES_MIN)
}

fn init_of_size(scene: &Scene, store: impl Store + 'static, bytes: u64) -> Result<Made> {
    let slot = NewSlot {
        secret: Scene::secret(),
        label: "test".to_owned(),
    };
    let options = InitOptions {
        stretch_bytes: Some(bytes),
    };
    Repository::init_with(Arc::new(store), vec![slot], scene.environment(), options)
}

/// A scene whose repository has segments.
fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    init(&scene, scene.store.clone()).unwrap();
    scene.write_tree();
    scene
}

/// Opens it with small packs, so that a segment has several.
fn open(scene: &Scene, store: impl Store + 'static) -> Result<Arc<Repository>> {
    let repository = scene.open(store)?;
    let mut repository = Arc::into_inner(repository).expect("nobody else has it");
    let shape = repository.store().shape();
    let memory = MemoryPlan::USUAL;
    let packs = PackPlan::of_size(4 << 20, shape, &memory).expect("small packs fit");
    repository.set_memory_to_write(memory, packs);
    Ok(Arc::new(repository))
}

#[test]
fn data_is_in_segments_and_metadata_in_packs_of_their_own() {
    let mut scene = scene();
    scene.keep();
    let index = scene.repository().index().unwrap();
    let mut data = 0;
    for place in index.entries() {
        let name = ObjectName::pack(index.pack(place.pack).id);
        let is_pack = scene.store.stat(&name).unwrap().is_some();
        assert_eq!(is_pack, place.chunk.kind.is_metadata());
        data += usize::from(!is_pack);
    }
    assert!(data > 0);
    assert_eq!(names(&scene.store, Area::Stretches).len(), 1);
    scene.assert_sound(&scene.store.fork(), "one backup");
    // Others than those who know the feature keep away.
    let config = scene.repository().config().clone();
    for features in [
        config.features_read,
        config.features_write,
        config.features_gc,
    ] {
        assert_eq!(features, ["stretches"]);
    }
}

#[test]
fn the_index_numbers_packs_in_the_order_in_which_they_lie() {
    let mut scene = scene();
    for number in 0..6 {
        scene.write(&format!("n{number}"), &noise(50 + number, 3000));
        scene.keep();
    }
    let repository = scene.repository();
    let (index, stretched) = (repository.index().unwrap(), repository.stretched().unwrap());
    stretched.refresh().unwrap();
    let places = index.packs().iter();
    let places: Vec<_> = places
        .filter_map(|pack| stretched.place_of(&pack.id))
        .map(|place| (place.stretch, place.offset))
        .collect();
    assert_eq!(places.len(), 6);
    assert!(places.is_sorted(), "{places:?}");
    scene.assert_restorable(&scene.store, "numbered anew");
}

#[test]
fn a_store_that_takes_whole_objects_only_is_refused() {
    let scene = Scene::new();
    let memory = MemoryStore::new();
    let made = init(&scene, WholeStore::over(memory.clone()));
    assert!(matches!(made, Err(Error::NoStreams(_))));
    assert!(memory.objects().is_empty());
    init(&scene, memory.clone()).unwrap();
    let opened = scene.open(WholeStore::over(memory));
    assert!(matches!(opened, Err(Error::NoStreams(_))));
}

/// Runs `act` with a crash at each call; whatever is left is sound.
fn sound_at_every_call(scene: &Scene, name: &str, act: impl Fn(FaultyStore) -> Result<()>) -> u64 {
    at_every_call(&scene.store, name, act, |store, story| {
        scene.assert_sound(store, story);
    })
}

#[test]
fn a_backup_killed_anywhere_keeps_all_snapshots() {
    let mut scene = scene();
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 2_000));
    scene.write("new/d", &noise(5, 1_700_000));
    let calls = sound_at_every_call(&scene, "backup", |store| {
        scene.backup(&scene.open(store)?).map(|_| ())
    });
    assert!(calls > 10, "{calls}");
}

#[test]
fn a_segment_on_another_machine_stands_still_when_nothing_comes() {
    let (now, later) = (Duration::ZERO, Duration::from_secs(3600));
    let far = over(RoundsStore::at_once(MemoryStore::new()), STRETCH_BYTES_MIN);
    assert!(!far.stands_still(now), "nothing is open");
    upload(&far, &pack(1, 1000)).unwrap();
    assert!(far.stands_still(now) && !far.stands_still(later));
    far.settle().unwrap();
    assert!(!far.stands_still(now));
    let near = over(MemoryStore::new(), STRETCH_BYTES_MIN);
    upload(&near, &pack(1, 1000)).unwrap();
    assert!(!near.stands_still(now), "no server ends it");
}

#[test]
fn a_segment_that_breaks_costs_its_own_packs_and_no_others() {
    // What is lost is a part of a pack, a table, or what would make a segment visible; and with
    // larger segments, packs before it that were taken.
    let breaks = [
        (STRETCH_BYTES_MIN, Verb::Append, 4),
        (STRETCH_BYTES_MIN, Verb::Append, 5),
        (STRETCH_BYTES_MIN, Verb::Publish, 2),
        (STRETCH_BYTES_MIN, Verb::Begin, 2),
        (7 << 20, Verb::Append, 5),
        (7 << 20, Verb::Publish, 1),
    ];
    for (len_target, verb, calls) in breaks {
        let mut scene = Scene::new();
        scene.store = DatedStore::new(scene.clock.clone());
        init_of_size(&scene, scene.store.clone(), len_target).unwrap();
        for number in 0..6 {
            scene.write(&format!("f{number}"), &noise(number, 4 * MIB));
        }
        let store = scene.store.fork();
        let faulty = FaultyStore::over(store.clone());
        let reset = Effect::Fail(std::io::ErrorKind::ConnectionReset);
        faulty.inject(InjectedFault::new(reset).of(verb).after(calls));
        let failed = scene.backup(&open(&scene, faulty).unwrap());
        let Err(Error::Store(trouble)) = failed else {
            panic!("{verb:?}: {failed:?}");
        };
        assert!(trouble.may_pass(), "the run goes on from there: {trouble}");
        let says_so = trouble.to_string().contains("is lost with it");
        assert_eq!(says_so, verb != Verb::Begin, "{trouble}");
        // Those before are named, and not sent again.
        assert!(!names(&store, Area::Stretches).is_empty());
        let repository = open(&scene, store.clone()).unwrap();
        let index = repository.index().unwrap();
        let entries = index.entries().iter();
        let data = entries.filter(|place| !place.chunk.kind.is_metadata());
        let named: u64 = data.map(|place| u64::from(place.chunk.sealed_bytes)).sum();
        assert!(named > MIB as u64, "{verb:?}: {named}");
        let outcome = scene.backup(&repository).unwrap();
        let stored = outcome.snapshot.counts.bytes_stored;
        let both = named + stored;
        assert!(both < 25 * MIB as u64, "{verb:?}: {named} and {stored}");
        scene.assert_sound(&store, "after it");
    }
}

#[test]
fn a_prune_killed_anywhere_keeps_what_is_used() {
    let mut scene = scene();
    scene.keep_and_forget_most();
    sound_at_every_call(&scene, "prune", |store| {
        scene.prune(&scene.open(store)?, Duration::ZERO).map(|_| ())
    });
    let pruned = scene.prune(&scene.repository(), Duration::ZERO).unwrap();
    assert!(pruned.packs_deleted > 0, "{pruned:?}");
}

/// Each backup of little leaves a segment, and a medium for large objects gets thousands of them.
#[test]
fn a_prune_puts_short_segments_together_once_they_fill_one() {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    init(&scene, scene.store.clone()).unwrap();
    let mut counts = Vec::new();
    for number in 0..8 {
        scene.write(&format!("n{number}"), &noise(80 + number, 150_000));
        scene.keep();
        if counts.is_empty() || number > 4 {
            let before = names(&scene.store, Area::Stretches).len();
            if number == 7 {
                sound_at_every_call(&scene, "putting together", |store| {
                    scene.prune(&scene.open(store)?, Duration::ZERO).map(|_| ())
                });
            }
            scene.prune(&scene.repository(), Duration::ZERO).unwrap();
            counts.push((before, names(&scene.store, Area::Stretches).len()));
            scene.assert_sound(&scene.store.fork(), "together");
        }
    }
    // 786 kB fill one: six of them do, and what came of that is left alone.
    assert_eq!(counts, [(1, 1), (6, 1), (2, 2), (3, 3)]);
}

#[test]
fn giving_back_a_segment_killed_anywhere_loses_no_pack() {
    let whole = MemoryStore::new();
    let packs: Vec<_> = (0..4).map(|seed| pack(seed, 300_000)).collect();
    let store = over(whole.clone(), STRETCH_BYTES_MIN);
    packs.iter().for_each(|pack| upload(&store, pack).unwrap());
    packs[2..]
        .iter()
        .for_each(|(name, _)| store.delete(name).unwrap());
    let reclaim = |store: &StretchedStore| {
        for stretch in store.uses()? {
            if stretch.is_below(60) {
                store.copy_rest(&stretch.name)?;
                store.settle()?;
                store.let_go(&stretch.name)?;
            }
        }
        Ok::<(), bale_repository::store::StoreError>(())
    };
    let calls = at_every_call(
        &whole,
        "giving back",
        |faulty| reclaim(&over(faulty, STRETCH_BYTES_MIN)),
        |memory, story| {
            let store = over(memory.clone(), STRETCH_BYTES_MIN);
            assert_holds(&store, &packs[..2], story);
            assert!(store.check(|_| true).unwrap().is_empty(), "{story}");
            reclaim(&store).unwrap();
            assert_holds(&over(memory.clone(), 0), &packs[..2], story);
        },
    );
    assert!(calls > 8, "{calls}");
}

#[test]
fn deleting_a_pack_killed_anywhere_loses_no_other() {
    let whole = MemoryStore::new();
    let packs: Vec<_> = (0..4).map(|seed| pack(seed, 300_000)).collect();
    let store = over(whole.clone(), STRETCH_BYTES_MIN);
    packs.iter().for_each(|pack| upload(&store, pack).unwrap());
    let delete = |store: &StretchedStore| {
        let mut gone = packs[1..].iter();
        gone.try_for_each(|(name, _)| store.delete(name))
    };
    let calls = at_every_call(
        &whole,
        "deleting",
        |faulty| delete(&over(faulty, STRETCH_BYTES_MIN)),
        |memory, story| {
            let store = over(memory.clone(), STRETCH_BYTES_MIN);
            let (name, bytes) = &packs[0];
            assert_eq!(&store.get(name, u64::MAX).unwrap(), bytes, "{story}");
            delete(&store).unwrap();
            assert_holds(&over(memory.clone(), 0), &packs[..1], story);
            store.delete(name).unwrap();
            assert!(memory.objects().is_empty(), "{story}");
        },
    );
    assert!(calls > 8, "{calls}");
}

/// A segment with four packs, of which a second backup needs the first.
fn little_used() -> Scene {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    init_of_size(&scene, scene.store.clone(), 64 << 20).unwrap();
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        scene.write(name, &noise(5 + number as u64, 4 * MIB));
    }
    let repository = open(&scene, scene.store.clone()).unwrap();
    let first = scene.backup(&repository).unwrap().id.unwrap();
    for name in ["b", "c", "d"] {
        std::fs::remove_file(scene.source().join(name)).unwrap();
    }
    scene.keep();
    repository.forget_snapshot(first).unwrap();
    scene
}

#[test]
fn a_prune_gives_back_a_segment_of_which_little_is_used() {
    let scene = little_used();
    let before = names(&scene.store, Area::Stretches);
    assert_eq!(before.len(), 1, "{before:?}");
    let bytes = |store: &DatedStore| {
        let all = store.memory().objects();
        all.values().map(Vec::len).sum::<usize>()
    };
    let bytes_before = bytes(&scene.store);
    let pruned: Pruned = scene.prune(&scene.repository(), Duration::ZERO).unwrap();
    assert_eq!(pruned.segments_reclaimed, 1, "{pruned:?}");
    assert!(pruned.bytes_reclaimed > 9 * MIB as u64, "{pruned:?}");
    assert!(bytes(&scene.store) < bytes_before - 9 * MIB);
    assert!(!names(&scene.store, Area::Stretches).contains(&before[0]));
    scene.assert_sound(&scene.store.fork(), "given back");
    let again = scene.prune(&scene.repository(), Duration::ZERO).unwrap();
    assert_eq!(again.segments_reclaimed, 0, "{again:?}");
}

#[test]
fn a_prune_that_gives_back_a_segment_killed_anywhere_keeps_what_is_used() {
    let scene = little_used();
    sound_at_every_call(&scene, "prune", |store| {
        scene.prune(&scene.open(store)?, Duration::ZERO).map(|_| ())
    });
}

#[test]
fn one_file_out_of_a_segment_costs_its_own_bytes_and_four_mebibytes_at_most() {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    init_of_size(&scene, scene.store.clone(), 1 << 30).unwrap();
    for number in 0..40 {
        scene.write(&format!("f{number:02}"), &noise(number, MIB));
    }
    scene.write("small", &noise(99, 1000));
    scene
        .backup(&open(&scene, scene.store.clone()).unwrap())
        .unwrap();
    assert_eq!(names(&scene.store, Area::Stretches).len(), 1);
    for (name, bytes) in [("f20", MIB), ("small", 1000)] {
        let recording = RecordingStore::over(scene.store.clone());
        let repository = scene.open(recording.clone()).unwrap();
        let named = repository.snapshots().unwrap().remove(0);
        let below = scene.source().join(name);
        let below = below.to_str().unwrap().as_bytes()[1..].to_vec();
        let monitor = Recorder::default();
        let (_, report) = scene.restore_below(&repository, &named, &below, &monitor);
        assert_eq!(report.unwrap().problems, 0);
        // Everything, from opening on.
        let read = recording.bytes(Verb::Get) + recording.bytes(Verb::ReadAt);
        let most = (bytes + 4 * MIB) as u64;
        assert!(read >= bytes as u64 && read <= most, "{name}: {read}");
    }
}

#[test]
fn damage_of_records_tables_and_segments_is_named_and_mended_as_far_as_can_be() {
    let mut scene = scene();
    scene.keep();
    let stretch = names(&scene.store, Area::Stretches).remove(0);
    let record = names(&scene.store, Area::Stretched).remove(0);
    let len = scene.store.memory().objects()[&stretch].len();
    let flipped = |name: ObjectName, at: usize| {
        let store = scene.store.fork();
        let mut bytes = store.memory().objects()[&name].clone();
        bytes[at] ^= 1;
        store.memory().overwrite(&name, bytes);
        store
    };
    let found = |store: &DatedStore| {
        let repository = scene.open(store.clone()).unwrap();
        let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
        assert!(!report.is_clean());
        report
    };
    for (name, at) in [(record, 100), (stretch, len - 1), (stretch, len - 2000)] {
        let store = flipped(name, at);
        // Nothing is lost by it.
        scene.assert_restorable(&store, "record or table");
        let report = found(&store);
        assert_eq!(report.damage.len(), 1, "{report:?}");
        assert_eq!(report.damage[0].what, name.to_string());
        assert_eq!(report.lost_count, 0);
    }
    // A record is written again by its table, and what is in the segment is named pack by pack.
    let store = flipped(record, 100);
    let repository = scene.open(store.clone()).unwrap();
    let dry = repair_index(&repository, true, &Recorder::default()).unwrap();
    assert_eq!((dry.segments_listed, dry.segment_records_removed), (1, 1));
    let repair = repair_index(&repository, false, &Recorder::default()).unwrap();
    assert_eq!(
        (repair.segments_listed, repair.segment_records_removed),
        (1, 1)
    );
    scene.assert_sound(&store, "repaired");
    let report = found(&flipped(stretch, 3000));
    assert_eq!(report.packs_damaged.len(), 1, "{report:?}");
    // Without both, the packs in it are lost, and said to be.
    let store = flipped(record, 100);
    let mut bytes = store.memory().objects()[&stretch].clone();
    bytes[len - 1] ^= 1;
    store.memory().overwrite(&stretch, bytes);
    let report = found(&store);
    let named: Vec<_> = report
        .damage
        .iter()
        .map(|damage| damage.what.clone())
        .collect();
    assert!(named.contains(&record.to_string()) && named.contains(&stretch.to_string()));
    assert!(report.lost_count > 0, "{report:?}");
    // A segment that is cut off, or gone.
    for cut in [Some(len - 5000), Some(100), None] {
        let store = scene.store.fork();
        match cut {
            Some(cut) => {
                let bytes = store.memory().objects()[&stretch][..cut].to_vec();
                store.memory().overwrite(&stretch, bytes);
            }
            None => store.delete(&stretch).unwrap(),
        }
        let report = found(&store);
        let named: Vec<_> = report
            .damage
            .iter()
            .map(|damage| damage.what.clone())
            .collect();
        assert!(named.contains(&stretch.to_string()), "{named:?}");
    }
}

#[test]
fn segments_are_in_the_cold_store_and_their_records_in_both() {
    let scene = Scene::new();
    let (hot, cold) = (MemoryStore::new(), MemoryStore::new());
    let tiered = || {
        TieredStore::new(
            Arc::new(hot.clone()),
            Arc::new(cold.clone()),
            Box::new(|error| panic!("{error}")),
        )
    };
    init(&scene, tiered()).unwrap();
    scene.write_tree();
    let repository = scene.open(tiered()).unwrap();
    scene.backup(&repository).unwrap();
    let tree = Tree::read(&scene.source());
    let count = |store: &MemoryStore, area| {
        let names = store.objects().into_keys();
        names.filter(|name| name.area == area).count()
    };
    assert_eq!(
        (count(&hot, Area::Stretches), count(&cold, Area::Stretches)),
        (0, 1)
    );
    assert_eq!(
        (count(&hot, Area::Stretched), count(&cold, Area::Stretched)),
        (1, 1)
    );
    for repository in [
        scene.open(tiered()).unwrap(),
        scene.open(cold.clone()).unwrap(),
    ] {
        let named = repository.snapshots().unwrap().remove(0);
        scene.assert_restores(&repository, &named, &tree, "both, cold");
        let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
    // A hot store is made again from the cold one.
    let alone = scene.open(cold.clone()).unwrap();
    let made = MemoryStore::new();
    bale_engine::repair::repair_hot(&alone, &made, false, &Recorder::default()).unwrap();
    assert_eq!(made.objects(), hot.objects());
}
