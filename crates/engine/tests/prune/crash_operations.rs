//! Killed at any call to the store, an operation costs its own work and nothing else (CRA-01).
//!
//! For each operation: it runs over a store that stops answering at call 0, 1, 2 ... until it gets
//! through; each time once with and once without the effect of the call that the crash struck.
//! After each: every acknowledged snapshot restores bit for bit, a check that reads all finds
//! nothing, and the next backup and the next prune work.

use std::sync::Arc;
use std::time::Duration;

use bale_pipeline::random::SeededRandom;
use bale_repository::error::Error;
use bale_repository::repository::{NewSlot, Secret};
use bale_repository::store::{Area, LocalStore, ObjectName, Store};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, FaultyStore, Scene, SimulatedDisk, Tree, at_every_call};

const GRACE: Duration = Duration::from_secs(24 * 3600);

#[test]
fn a_first_backup_killed_anywhere_leaves_nothing_behind_that_hinders_the_next() {
    let scene = Scene::new();
    scene.write_tree();
    let calls = at_every_call(
        &scene.store,
        "first backup",
        |store| scene.backup(&scene.open(store)?).map(|_| ()),
        |store, story| scene.assert_sound(store, story),
    );
    assert!(calls > 10, "{calls}");
}

#[test]
fn an_incremental_backup_killed_anywhere_keeps_all_snapshots() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 2_000));
    scene.write("new/d", &noise(5, 700));
    at_every_call(
        &scene.store,
        "incremental backup",
        |store| scene.backup(&scene.open(store)?).map(|_| ()),
        |store, story| scene.assert_sound(store, story),
    );
}

/// Three snapshots of which the first two are forgotten: of the first one's packs little is used,
/// of the second's nothing.
fn half_forgotten() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep_and_forget_most();
    scene
}

#[test]
fn forget_and_prune_without_grace_killed_anywhere_keep_what_is_used() {
    let scene = half_forgotten();
    let packs = scene.store.names(Area::Packs).len();
    at_every_call(
        &scene.store,
        "prune",
        |store| scene.prune(&scene.open(store)?, Duration::ZERO).map(|_| ()),
        |store, story| scene.assert_sound(store, story),
    );
    // The prune has work to do, or this shows nothing.
    let pruned = scene.prune(&scene.repository(), Duration::ZERO).unwrap();
    assert!(
        pruned.packs_deleted > 0 && pruned.bytes_repacked > 0,
        "{pruned:?}"
    );
    assert!(scene.store.names(Area::Packs).len() <= packs);
}

#[test]
fn a_prune_with_grace_killed_anywhere_in_either_phase_keeps_what_is_used() {
    let scene = half_forgotten();
    scene.clock.advance(2 * GRACE);
    let prune = |store| scene.prune(&scene.open(store)?, GRACE).map(|_| ());
    let look = |store: &DatedStore, story: &str| scene.assert_sound(store, story);
    at_every_call(&scene.store, "prune condemns", prune, look);
    let condemned = scene.prune(&scene.repository(), GRACE).unwrap();
    assert!(condemned.packs_condemned > 0, "{condemned:?}");
    assert_eq!(condemned.packs_deleted, 0, "{condemned:?}");
    scene.clock.advance(2 * GRACE);
    at_every_call(&scene.store, "prune deletes", prune, look);
    let pruned = scene.prune(&scene.repository(), GRACE).unwrap();
    assert!(pruned.packs_deleted > 0, "{pruned:?}");
}

/// CRA-03: after the crash comes a backup whose content only the doomed packs hold, and then prunes
/// that finish the work.
#[test]
fn a_backup_that_reuses_what_a_killed_prune_was_deleting_stays_whole() {
    let mut scene = half_forgotten();
    scene.clock.advance(2 * GRACE);
    let prune = |scene: &Scene, store| scene.prune(&scene.open(store)?, GRACE).map(|_| ());
    scene.write("gone", &noise(6, 900_000));
    scene.write("gone too", &noise(8, 30_000));
    let reuse = |scene: &Scene, store: &DatedStore, story: &str| {
        let outcome = scene.backup(&scene.open(store.clone()).expect(story));
        let id = outcome.expect(story).id.expect(story);
        for _ in 0..2 {
            scene.clock.advance(2 * GRACE);
            prune(scene, FaultyStore::over(store.clone())).expect(story);
        }
        let snapshots = scene.open(store.clone()).expect(story).snapshots();
        assert!(
            snapshots
                .expect(story)
                .iter()
                .any(|(other, _)| *other == id),
            "{story}"
        );
        scene.assert_restorable(store, story);
        let report = scene.check(store).expect(story);
        assert!(report.is_clean(), "{story}: {report:?}");
    };
    for phase in ["condemns", "deletes"] {
        let calls = at_every_call(
            &scene.store,
            &format!("prune {phase}"),
            |store| prune(&scene, store),
            |store, story| reuse(&scene, store, story),
        );
        assert!(calls > 10, "{calls}");
        scene.prune(&scene.repository(), GRACE).unwrap();
        scene.clock.advance(2 * GRACE);
    }
    scene.kept.clear();
}

#[test]
fn init_killed_anywhere_can_be_run_again_or_has_made_a_whole_repository() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.store = DatedStore::new(scene.clock.clone());
    at_every_call(
        &scene.store,
        "init",
        |store| scene.init(store).map(|_| ()),
        |store, story| {
            match scene.init(store.clone()) {
                Ok(_) | Err(Error::RepositoryExists(_)) => {}
                Err(error) => panic!("{story}: {error}"),
            }
            // As every command does that writes.
            let repository = scene.open(store.clone()).expect(story);
            bale_engine::repair::renew_config_copy(&repository).expect(story);
            let [config, copy] = ObjectName::configs().map(|name| store.get(&name, u64::MAX));
            assert_eq!(config.expect(story), copy.expect(story), "{story}");
            scene.assert_sound(store, story);
        },
    );
}

/// Whatever is killed, one of the two is sound, and the next repair finishes.
#[test]
fn repairing_config_killed_anywhere_leaves_a_repository_and_can_be_run_again() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    let whole = scene.store.memory().objects();
    for name in ObjectName::configs() {
        for damage in [None, Some(b"neither id nor line".to_vec())] {
            match damage {
                None => scene.store.delete(&name).unwrap(),
                Some(bytes) => scene.store.memory().overwrite(&name, bytes),
            }
            let repair = |store| {
                let repository = scene.open(store)?;
                bale_engine::repair::repair_config(&repository, false).map(|_| ())
            };
            let calls = at_every_call(&scene.store, "repair config", repair, |store, story| {
                scene.assert_restorable(store, story);
                repair(FaultyStore::over(store.clone())).expect(story);
                assert_eq!(store.memory().objects(), whole, "{story}");
            });
            assert!(calls > 4, "{calls}");
            scene.store.memory().overwrite(&name, whole[&name].clone());
        }
    }
}

#[test]
fn changing_keys_killed_anywhere_never_locks_everybody_out() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    let other = Secret::KeyFile(b"another key file, as long as the first one is".to_vec());
    let add = |store| {
        let slot = NewSlot {
            secret: other.clone(),
            label: "other".to_owned(),
        };
        scene
            .open(store)?
            .add_key(&Scene::secret(), &slot)
            .map(|_| ())
    };
    let look = |store: &DatedStore, story: &str| scene.assert_restorable(store, story);
    at_every_call(&scene.store, "key add", add, look);
    add(FaultyStore::over(scene.store.clone())).unwrap();
    let slots = scene.repository().list_keys().unwrap();
    let removed = slots.iter().find(|slot| slot.label == "other").unwrap();
    let prefix = removed.id.to_string();
    at_every_call(
        &scene.store,
        "key remove",
        |store| scene.open(store)?.remove_key(&prefix).map(|_| ()),
        look,
    );
}

#[test]
fn repairing_the_index_killed_anywhere_can_be_run_again() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    for name in scene.store.names(Area::Index) {
        bale_repository::store::Store::delete(&scene.store, &name).unwrap();
    }
    let repair = |store| {
        let monitor = bale_pipeline::monitor::Recorder::default();
        bale_engine::repair::repair_index(&*scene.open(store)?, false, &monitor).map(|_| ())
    };
    at_every_call(&scene.store, "repair index", repair, |store, story| {
        repair(FaultyStore::over(store.clone())).expect(story);
        scene.assert_sound(store, story);
    });
}

/// A local repository on a disk that holds what the scene's does, all of it durable.
fn on_a_disk(scene: &Scene) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let random = Arc::new(SeededRandom::new(1));
    let store = LocalStore::create_on(Arc::new(disk.clone()), random).unwrap();
    for (name, bytes) in scene.store.memory().objects() {
        store.put(&name, &bytes).unwrap();
    }
    disk
}

/// What is found on a disk, as the scene's other tests look at it.
fn found_on(scene: &Scene, disk: &SimulatedDisk) -> DatedStore {
    let store = local(disk, 3);
    let found = DatedStore::new(scene.clock.clone());
    for area in Area::ALL {
        let mut names: Vec<ObjectName> = Vec::new();
        store.list(area, &mut |info| names.push(info.name)).unwrap();
        for name in names {
            found
                .put(&name, &store.get(&name, u64::MAX).unwrap())
                .unwrap();
        }
    }
    found
}

fn local(disk: &SimulatedDisk, seed: u64) -> LocalStore {
    LocalStore::open_on(Arc::new(disk.clone()), Arc::new(SeededRandom::new(seed)))
}

/// CRA-02 for a whole backup: the power goes after each change of the disk, and of what was not
/// synced the disk keeps what it likes. What was acknowledged is there and whole, and nobody has to
/// mend anything.
#[test]
fn a_power_cut_at_any_change_of_the_disk_costs_no_acknowledged_snapshot() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 2_000));
    scene.write("new/d", &noise(5, 700));
    let start = on_a_disk(&scene);
    let now = Tree::read(&scene.source());
    let (mut acknowledged, mut cut) = (0, 0);
    while acknowledged == 0 {
        // Every change is followed by a cut; the kinds of what is lost are drawn.
        for seed in 0..4 {
            let disk = start.crashed(&mut SeededRandom::new(0));
            disk.cut_power_after(cut);
            let done = scene
                .open(local(&disk, 2))
                .and_then(|repository| scene.backup(&repository));
            let story = format!(
                "power cut after {cut} changes, seed {seed}: {:?}",
                done.as_ref().err()
            );
            let found = found_on(&scene, &disk.crashed(&mut SeededRandom::new(seed)));
            scene.assert_sound(&found, &story);
            if let Ok(outcome) = done {
                acknowledged += 1;
                let repository = scene.open(found).unwrap();
                let snapshots = repository.snapshots().unwrap();
                let new = snapshots.iter().find(|(id, _)| Some(*id) == outcome.id);
                scene.assert_restores(&repository, new.expect(&story), &now, &story);
            }
        }
        cut += 1;
    }
    assert!(cut > 10, "{cut}");
}
