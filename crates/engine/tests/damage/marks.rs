//! Marks of damaged packs: what they change for readers and writers, and what happens when they
//! themselves are wrong.

use std::collections::HashSet;
use std::sync::Arc;

use bale_format::ObjectId;
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, Scene};

fn one_snapshot() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("dir/more.bin", &noise(5, 5_000));
    scene.keep();
    scene
}

fn packs(store: &DatedStore) -> Vec<ObjectId> {
    let names = store.names(Area::Packs);
    names.iter().filter_map(ObjectName::id).collect()
}

fn marked(repository: &Repository) -> HashSet<ObjectId> {
    repository
        .damage_marks()
        .unwrap()
        .packs()
        .copied()
        .collect()
}

/// A mark in which a byte is turned round.
fn with_unreadable_mark(scene: &Scene) -> DatedStore {
    let store = scene.store.fork();
    let repository = scene.open(store.clone()).unwrap();
    repository.mark_damaged(packs(&store)).unwrap();
    let [mark] = store.names(Area::Damaged)[..] else {
        panic!("one mark");
    };
    let mut bytes = store.get(&mark, 1 << 20).unwrap();
    bytes[60] ^= 1;
    store.memory().overwrite(&mark, bytes);
    store
}

#[test]
fn chunks_in_a_marked_pack_are_absent_for_writers_and_there_for_readers() {
    let scene = one_snapshot();
    let repository = scene.repository();
    let all = packs(&scene.store);
    assert_eq!(repository.mark_damaged(all.clone()).unwrap(), all.len());
    assert_eq!(repository.mark_damaged(all.clone()).unwrap(), 0, "known");
    assert_eq!(scene.store.names(Area::Damaged).len(), 1);

    let repository = scene.repository();
    let index = repository.index().unwrap();
    for place in index.entries() {
        assert!(index.pack(place.pack).damaged);
        assert_eq!(index.reliable(&place.chunk.id), None);
        assert!(index.any(&place.chunk.id).is_some());
    }
    assert!(repository.reliable_packs().unwrap().is_empty());
    scene.assert_restorable(&scene.store, "all packs marked");
}

#[test]
fn a_mark_is_taken_back_for_the_packs_named_and_stays_for_the_others() {
    let scene = one_snapshot();
    let repository = scene.repository();
    let ids = [1, 2, 3].map(|byte| ObjectId([byte; 32]));
    repository.mark_damaged(ids).unwrap();
    assert_eq!(repository.unmark_damaged(&HashSet::new()).unwrap(), 0);
    let first = HashSet::from([ids[0], ObjectId([9; 32])]);
    assert_eq!(repository.unmark_damaged(&first).unwrap(), 1);
    assert_eq!(marked(&repository), HashSet::from([ids[1], ids[2]]));
    repository.unmark_damaged(&ids.into()).unwrap();
    assert!(scene.store.names(Area::Damaged).is_empty());
}

#[test]
fn a_mark_that_cannot_be_read_stops_neither_reading_nor_backups() {
    let scene = one_snapshot();
    let store = with_unreadable_mark(&scene);
    let repository: Arc<Repository> = scene.open(store.clone()).unwrap();
    let index = repository.reload_index().unwrap();
    assert!(index.marks_unreadable(), "told apart from no mark");
    scene.assert_restorable(&store, "a mark is damaged");
    scene.write("new", b"a new file");
    scene.backup(&repository).unwrap();
    scene.assert_restorable(&store, "backed up");
}

#[test]
fn a_condemned_list_that_cannot_be_read_takes_no_other_with_it() {
    let mut scene = one_snapshot();
    scene.write("later.bin", &noise(6, 5_000));
    scene.keep();
    let store = scene.store.fork();
    let repository = scene.open(store.clone()).unwrap();
    let [first, second, ..] = packs(&store)[..] else {
        panic!("two packs");
    };
    let damaged = ObjectName::condemned(repository.condemn(vec![first]).unwrap());
    repository.condemn(vec![second]).unwrap();
    let mut bytes = store.get(&damaged, 1 << 20).unwrap();
    bytes[60] ^= 1;
    store.memory().overwrite(&damaged, bytes);

    let index = repository.reload_index_readable().unwrap();
    let is_condemned = |id| index.pack(index.pack_number(&id).unwrap()).condemned;
    assert!(is_condemned(second), "its list can be read");
    assert!(!is_condemned(first));
}
