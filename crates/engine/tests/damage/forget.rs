//! Objects that cannot be read stand in the way of a prune, and go by their own id only.

use std::time::Duration;

use bale_engine::forget::{find, remove};
use bale_engine::repair::repair_index;
use bale_pipeline::monitor::Recorder;
use bale_repository::error::Error;
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, Scene};

fn two_snapshots() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("gone", &noise(1, 700_000));
    scene.keep();
    std::fs::remove_file(scene.source().join("gone")).unwrap();
    scene.write("new/d", &noise(2, 50_000));
    scene.keep();
    scene
}

fn damaged(scene: &Scene, name: &ObjectName) -> DatedStore {
    let store = scene.store.fork();
    let mut bytes = store.memory().objects().remove(name).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    store.memory().overwrite(name, bytes);
    store
}

/// A prune says what to do, and takes nothing before it was done.
fn refused(scene: &Scene, store: &DatedStore, advice: &str) {
    let packs = store.names(Area::Packs);
    let pruned = scene.prune(&scene.open(store.clone()).unwrap(), Duration::ZERO);
    let text = pruned.unwrap_err().to_string();
    assert!(text.contains(advice), "{text}");
    assert_eq!(store.names(Area::Packs), packs);
}

fn by_id(name: &ObjectName) -> String {
    format!("bale forget {}", name.id().unwrap())
}

/// One damaged snapshot: the others stay, its id removes it, and then prunes give back what it
/// alone used.
#[test]
fn a_damaged_snapshot_goes_by_its_id_and_prunes_work_again() {
    for digits in [8, 64] {
        let mut scene = two_snapshots();
        let (id, _) = scene.kept.remove(0);
        let name = ObjectName::snapshot(id);
        let store = damaged(&scene, &name);
        refused(&scene, &store, &by_id(&name));
        let repository = scene.open(store.clone()).unwrap();
        let found = find(&repository, &id.to_string()[..digits]).unwrap();
        assert!(found.name == name && found.damage.is_some(), "{found:?}");
        remove(&repository, &found).unwrap();
        let pruned = scene.prune(&scene.open(store.clone()).unwrap(), Duration::ZERO);
        assert!(pruned.unwrap().bytes_deleted > 600_000);
        scene.assert_sound(&store, "the damaged one removed");
    }
}

/// A damaged index object goes by a repair; by its id once its packs are named by others, and not
/// before.
#[test]
fn a_damaged_index_object_goes_once_no_pack_needs_it() {
    let scene = two_snapshots();
    for name in scene.store.names(Area::Index) {
        let store = damaged(&scene, &name);
        refused(&scene, &store, "bale repair index");
        let repository = scene.open(store.clone()).unwrap();
        let found = find(&repository, &name.id().unwrap().to_string()).unwrap();
        let early = remove(&repository, &found).unwrap_err().to_string();
        assert!(early.contains("bale repair index"), "{early}");
        assert!(store.stat(&name).unwrap().is_some());
        let bytes = store.memory().objects().remove(&name).unwrap();
        let repaired = repair_index(&repository, false, &Recorder::default()).unwrap();
        assert_eq!(repaired.objects_removed, 1, "it goes by itself");
        assert!(store.stat(&name).unwrap().is_none());
        // As a repair leaves it that was stopped before its last step.
        store.memory().overwrite(&name, bytes);
        refused(&scene, &store, "bale repair index");
        remove(&repository, &found).unwrap();
        assert!(store.stat(&name).unwrap().is_none());
        scene.assert_sound(&store, "the damaged index object removed");
    }
}

#[test]
fn damaged_lists_of_condemned_packs_go_by_their_id() {
    let scene = two_snapshots();
    let repository = scene.repository();
    repository.forget_snapshot(scene.kept[0].0).unwrap();
    scene.clock.advance(Duration::from_secs(9_000));
    scene
        .prune(&repository, Duration::from_secs(3_600))
        .unwrap();
    let name = scene.store.names(Area::Condemned)[0];
    let store = damaged(&scene, &name);
    refused(&scene, &store, &by_id(&name));
    let repository = scene.open(store.clone()).unwrap();
    let id = name.id().unwrap().to_string();
    let advice = format!("bale forget {id}");
    // A writer would not know what to rely on: it says so before it stores anything, and so does a
    // check.
    let packs = store.names(Area::Packs);
    let text = scene.backup(&repository).unwrap_err().to_string();
    assert!(text.contains(&advice), "{text}");
    assert_eq!(store.names(Area::Packs), packs);
    let checked = scene.check(&store).unwrap();
    assert_eq!(checked.damage.len(), 1, "{checked:?}");
    assert_eq!(checked.damage[0].what, name.to_string());
    assert!(checked.damage[0].text.contains(&advice), "{checked:?}");
    // Who only reads is not hindered.
    let latest = &scene.kept[1];
    scene.assert_restores(
        &repository,
        &repository.snapshots().unwrap()[0],
        &latest.1,
        "a list is damaged",
    );
    let found = find(&repository, &id).unwrap();
    remove(&repository, &found).unwrap();
    let repository = scene.open(store.clone()).unwrap();
    assert!(scene.backup(&repository).unwrap().id.is_some());
    let pruned = scene.prune(&scene.open(store.clone()).unwrap(), Duration::ZERO);
    assert!(pruned.unwrap().bytes_deleted > 600_000);
}

/// An object that can be read is not removed for being named: no index object, no list.
#[test]
fn what_can_be_read_and_is_no_snapshot_is_not_found() {
    let scene = two_snapshots();
    let repository = scene.repository();
    for area in [Area::Index, Area::Packs, Area::Keys] {
        let id = scene.store.names(area)[0].id().unwrap().to_string();
        let found = find(&repository, &id);
        assert!(
            matches!(found, Err(Error::NoSnapshot(_))),
            "{area}: {found:?}"
        );
    }
    assert!(matches!(find(&repository, ""), Err(Error::NoSnapshot(_))));
}
