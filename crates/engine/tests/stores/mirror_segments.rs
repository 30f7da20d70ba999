//! A mirror of a repository with segments has the same packs, in segments of its own and in the
//! same order, is whole at any moment, and takes over neither damage nor what was deleted.

use std::sync::Arc;

use bale_pipeline::memory::MemoryPlan;
use bale_repository::error::Error;
use bale_repository::pack::PackPlan;
use bale_repository::repository::{InitOptions, Repository};
use bale_repository::store::{Area, ObjectName};
use bale_repository::stretched::STRETCH_BYTES_MIN;
use bale_testkit::mirroring::VERIFYING;
use bale_testkit::recording_store::Verb;
use bale_testkit::scene::noise;
use bale_testkit::{
    DatedStore, Effect, FaultyStore, InjectedFault, RecordingStore, Scene, WholeStore,
};

const MIB: usize = 1 << 20;
fn of_size(stretch_bytes: u64) -> Scene {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    let options = InitOptions {
        stretch_bytes: Some(stretch_bytes),
    };
    let store = Arc::new(scene.store.clone());
    scene.init_on_with(store, options).unwrap();
    scene
}

/// Two snapshots, in a segment each.
fn history() -> Scene {
    let mut scene = of_size(STRETCH_BYTES_MIN);
    scene.write_tree();
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 700 << 10));
    scene.keep();
    scene
}

/// Packs of data in the order in which they lie.
fn packs_in_order(scene: &Scene, store: &DatedStore) -> Vec<Vec<ObjectName>> {
    let repository = scene.open(store.clone()).unwrap();
    let stretched = repository.stretched().unwrap();
    stretched.refresh().unwrap();
    let index = repository.index().unwrap();
    let packs = index.packs().iter().map(|pack| pack.id);
    let mut placed: Vec<_> = packs
        .filter_map(|id| Some((stretched.place_of(&id)?, ObjectName::pack(id))))
        .collect();
    placed.sort_by_key(|(place, _)| (place.stretch, place.offset));
    let segments = placed.chunk_by(|(one, _), (other, _)| one.stretch == other.stretch);
    segments
        .map(|packs| packs.iter().map(|(_, name)| *name).collect())
        .collect()
}

/// A byte of the pack that lies first.
fn rot_first_pack(scene: &Scene, store: &DatedStore) {
    let pack = packs_in_order(scene, store)[0][0].id().unwrap();
    let repository = scene.open(store.clone()).unwrap();
    let stretched = repository.stretched().unwrap();
    stretched.refresh().unwrap();
    let place = stretched.place_of(&pack).unwrap();
    let segment = ObjectName::stretch(place.stretch);
    let mut bytes = store.memory().objects()[&segment].clone();
    bytes[place.offset as usize + 100_000] ^= 1;
    store.memory().overwrite(&segment, bytes);
}

/// Six packs of four mebibytes in the order of the catalog, in segments of 12 MiB.
fn with_many_packs() -> Scene {
    let mut scene = of_size(12 << 20);
    for number in 0..6 {
        scene.write(&format!("f{number}"), &noise(number, 4 * MIB));
    }
    let repository = Arc::into_inner(scene.repository()).expect("nobody else has it");
    let mut repository: Repository = repository;
    let shape = repository.store().shape();
    let packs = PackPlan::of_size(4 << 20, shape, &MemoryPlan::USUAL).expect("small packs fit");
    repository.set_memory_to_write(MemoryPlan::USUAL, packs);
    let id = scene.backup(&Arc::new(repository)).unwrap().id.unwrap();
    let tree = bale_testkit::Tree::read(&scene.source());
    scene.kept.push((id, tree));
    scene
}

#[test]
fn a_mirror_of_segments_has_the_same_packs_in_order_restores_equal_and_gets_nothing_twice() {
    for scene in [history(), with_many_packs()] {
        let target = scene.empty_place();
        let mirrored = scene.mirror_to(target.clone()).unwrap();
        assert_eq!((mirrored.problems, mirrored.objects_there), (0, 0));
        let (ours, theirs) = (
            packs_in_order(&scene, &scene.store),
            packs_in_order(&scene, &target),
        );
        assert_eq!(ours.concat(), theirs.concat());
        assert!(!theirs.is_empty());
        let is_data = |name: &ObjectName| ours.concat().contains(name);
        assert!(!target.names(Area::Packs).iter().any(is_data));
        scene.assert_sound(&target, "mirrored");

        let writes = RecordingStore::over(target.clone());
        let again = scene.mirror_to(writes.clone()).unwrap();
        assert_eq!((again.objects_sent, again.bytes_sent), (0, 0));
        assert!(writes.calls().iter().all(|call| !call.verb.writes()));
    }
}

#[test]
fn short_segments_come_together_in_a_mirror() {
    let mut scene = of_size(12 << 20);
    for number in 0..4 {
        scene.write(&format!("n{number}"), &noise(number, 3000));
        scene.keep();
    }
    assert_eq!(scene.store.names(Area::Stretches).len(), 4);
    let target = scene.empty_place();
    scene.mirror_to(target.clone()).unwrap();
    assert_eq!(target.names(Area::Stretches).len(), 1);
    scene.assert_sound(&target, "together");
}

#[test]
fn a_mirror_of_segments_killed_at_any_request_is_whole_and_goes_on() {
    let scene = history();
    scene.assert_mirrors_go_on_wherever_they_are_killed();
}

#[test]
fn a_segment_of_the_mirror_that_breaks_costs_what_was_in_it_and_the_next_mirror_goes_on() {
    let scene = with_many_packs();
    for (verb, after) in [(Verb::Append, 6), (Verb::Publish, 2), (Verb::Begin, 2)] {
        let target = scene.empty_place();
        let faulty = FaultyStore::over(target.clone());
        let reset = Effect::Fail(std::io::ErrorKind::ConnectionReset);
        faulty.inject(InjectedFault::new(reset).of(verb).after(after));
        let failed = scene.mirror_to(faulty);
        assert!(
            matches!(&failed, Err(Error::Store(error)) if error.may_pass()),
            "{verb:?}: {failed:?}"
        );
        assert!(target.names(Area::Snapshots).is_empty());
        let mirrored = scene.mirror_to(target.clone()).unwrap();
        assert_eq!(mirrored.problems, 0);
        scene.assert_sound(&target, "after it");
    }
}

#[test]
fn a_damaged_pack_in_a_segment_is_not_sent_and_takes_no_other_with_it() {
    let scene = with_many_packs();
    let intact = scene.store.fork();
    rot_first_pack(&scene, &scene.store);
    let target = scene.empty_place();
    let mirrored = scene.mirror_to(target.clone()).unwrap();
    assert_eq!((mirrored.problems, mirrored.snapshots_withheld), (2, 1));
    let sent = packs_in_order(&scene, &target).concat();
    assert_eq!(
        sent.len() + 1,
        packs_in_order(&scene, &intact).concat().len()
    );
    assert!(target.names(Area::Snapshots).is_empty());
    // Mended, it comes.
    let mut mended = scene;
    mended.store = intact;
    assert_eq!(mended.mirror_to(target.clone()).unwrap().problems, 0);
    mended.assert_sound(&target, "mended");
    // What rots in the mirror comes again.
    rot_first_pack(&mended, &target);
    let mirrored = mended.mirror_with(target.clone(), VERIFYING).unwrap();
    assert_eq!((mirrored.problems, mirrored.objects_replaced), (0, 1));
    mended.assert_sound(&target, "sent again");
}

#[test]
fn what_the_source_pruned_goes_from_segments_of_the_mirror_and_their_bytes_come_back() {
    let mut scene = of_size(STRETCH_BYTES_MIN);
    scene.write_tree();
    scene.write("large", &noise(9, 5 * MIB));
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 300 << 10));
    std::fs::remove_file(scene.source().join("large")).unwrap();
    scene.keep();
    let target = scene.mirrored_before_it_was_pruned();
    let before = bytes_in_segments(&target);
    let (fork, mirrored) = scene.deleting_mirrors_killed_anywhere(&target);
    assert!(mirrored.objects_deleted > 0);
    assert!(bytes_in_segments(&fork) < before / 2, "{mirrored:?}");
}

fn bytes_in_segments(store: &DatedStore) -> usize {
    let objects = store.memory().objects();
    let segments = objects
        .iter()
        .filter(|(name, _)| name.area == Area::Stretches);
    segments.map(|(_, bytes)| bytes.len()).sum()
}

#[test]
fn a_place_that_takes_no_streams_or_has_segments_of_another_repository_is_refused_untouched() {
    let scene = history();
    let memory = scene.empty_place();
    let refused = scene.mirror_to(WholeStore::over(memory.clone()));
    assert!(matches!(refused, Err(Error::NoStreams(_))), "{refused:?}");
    assert!(memory.memory().objects().is_empty());
    // All that is left of it is a segment.
    let other = history();
    let target = scene.empty_place();
    let segment = other.store.names(Area::Stretches)[0];
    let bytes = other.store.memory().objects()[&segment].clone();
    target.memory().overwrite(&segment, bytes);
    let before = target.memory().objects();
    let refused = scene.mirror_to(target.clone()).unwrap_err().to_string();
    assert!(
        refused.contains("nothing says of which repository"),
        "{refused}"
    );
    assert_eq!(target.memory().objects(), before);
}
