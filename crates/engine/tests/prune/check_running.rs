//! A check beside prunes and backups: what went because it was pruned is no damage, and what came
//! is known (issue 13).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bale_engine::verify::{Subset, check, mark, scrub};
use bale_format::ObjectId;
use bale_pipeline::monitor::Recorder;
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::recording_store::Verb;
use bale_testkit::scene::noise;
use bale_testkit::{Call, DatedStore, HookedStore, Scene, StaleStore};

/// Every so many calls of the check are tried.
const STRIDE: usize = 3;

/// Two snapshots that share a pack; the first is to go, and what they share will be repacked.
fn two_snapshots() -> (Scene, ObjectId) {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("only in the first", &noise(1, 700_000));
    let first = scene.keep();
    std::fs::remove_file(scene.source().join("only in the first")).unwrap();
    scene.write("only in the second", &noise(2, 40_000));
    scene.keep();
    (scene, first)
}

/// Before call number `at` of a check of `store`, `act` happens. Was there such a call?
fn struck_at(
    store: &DatedStore,
    at: u64,
    act: impl Fn() + Send + Sync + 'static,
) -> (HookedStore, Arc<AtomicBool>) {
    let struck = Arc::new(AtomicBool::new(false));
    let (strikes, count) = (struck.clone(), AtomicU64::new(0));
    let hooked = HookedStore::over(store.clone(), move |_: &Call| {
        if count.fetch_add(1, Ordering::SeqCst) == at {
            strikes.store(true, Ordering::SeqCst);
            act();
        }
    });
    (hooked, struck)
}

/// Prunes without any grace until what was condemned is gone.
fn forget_and_prune(scene: &Scene, store: &DatedStore, forget: ObjectId) {
    let repository = scene.open(store.clone()).unwrap();
    repository.forget_snapshot(forget).unwrap();
    for _ in 0..2 {
        scene.clock.advance(Duration::from_secs(60));
        scene.prune(&repository, Duration::ZERO).unwrap();
    }
}

/// Runs checks with `act` before their calls, until no such call comes. Tells how many.
fn strike_everywhere(act: impl Fn(&Scene, &DatedStore, ObjectId) + Send + Sync + Copy + 'static) {
    let mut tried = 0;
    for at in (0..).step_by(STRIDE) {
        let (scene, first) = two_snapshots();
        let scene = Arc::new(scene);
        let (store, actor) = (scene.store.clone(), scene.clone());
        let (hooked, struck) = struck_at(&scene.store, at, move || act(&actor, &store, first));
        let repository = scene.open(hooked).unwrap();
        let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
        assert!(report.is_clean(), "before call {at}: {report:?}");
        assert_eq!(report.packs_damaged, [], "before call {at}");
        mark(&repository, &report).unwrap();
        assert_eq!(scene.store.names(Area::Damaged), [], "before call {at}");
        if !struck.load(Ordering::SeqCst) {
            break;
        }
        tried += 1;
    }
    assert!(tried > 5, "{tried}");
}

#[test]
fn what_a_prune_takes_at_any_call_of_a_check_is_neither_damage_nor_marked() {
    strike_everywhere(forget_and_prune);
}

#[test]
fn what_a_backup_adds_at_any_call_of_a_check_is_no_damage() {
    strike_everywhere(|scene, store, _| {
        scene.write("new meanwhile", &noise(3, 50_000));
        scene.backup(&scene.open(store.clone()).unwrap()).unwrap();
    });
}

/// Looking again must not overlook: all that a prune leaves is damaged at once.
#[test]
fn damage_is_named_though_a_prune_goes_on_meanwhile() {
    let mut named = 0;
    for at in (0..).step_by(STRIDE) {
        let (scene, first) = two_snapshots();
        let scene = Arc::new(scene);
        let (store, actor) = (scene.store.clone(), scene.clone());
        let (hooked, struck) = struck_at(&scene.store, at, move || {
            forget_and_prune(&actor, &store, first);
            for pack in store.names(Area::Packs) {
                let mut bytes = store.get(&pack, 1 << 30).unwrap();
                bytes[120] ^= 1;
                store.memory().overwrite(&pack, bytes);
            }
        });
        let repository = scene.open(hooked).unwrap();
        let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
        if !struck.load(Ordering::SeqCst) {
            break;
        }
        let again = scene.check(&scene.store).unwrap();
        assert!(!again.is_clean(), "before call {at}");
        // What was read before it was damaged may not be read twice.
        named += usize::from(!report.is_clean());
    }
    assert!(named > 3, "{named}");
}

#[test]
fn a_scrub_beside_a_prune_finds_no_damage() {
    let mut tried = 0;
    for at in 0.. {
        let (scene, first) = two_snapshots();
        let scene = Arc::new(scene);
        let (store, actor) = (scene.store.clone(), scene.clone());
        let (hooked, struck) = struck_at(&scene.store, at, move || {
            forget_and_prune(&actor, &store, first)
        });
        let report = scrub(&hooked, &Recorder::default()).unwrap();
        assert_eq!(report.damage, [], "before call {at}");
        if !struck.load(Ordering::SeqCst) {
            break;
        }
        tried += 1;
    }
    assert!(tried > 5, "{tried}");
}

/// The store goes on listing what it lost: nobody has forgotten it.
#[test]
fn what_is_listed_and_not_there_is_named_as_damage() {
    let (scene, _) = two_snapshots();
    let repository = scene.repository();
    repository
        .add_recovery_key(&Scene::secret(), "another")
        .unwrap();
    let packs = scene.store.names(Area::Packs);
    repository.condemn(vec![ObjectId([1; 32])]).unwrap();
    repository.mark_damaged([ObjectId([2; 32])]).unwrap();
    let opened_by = ObjectName::key(repository.slot());
    let areas = [
        Area::Snapshots,
        Area::Index,
        Area::Packs,
        Area::Keys,
        Area::Condemned,
        Area::Damaged,
    ];
    let names = areas.map(|area| scene.store.names(area));
    let names = names
        .into_iter()
        .flatten()
        .filter(|name| *name != opened_by);
    let mut tried = 0;
    for name in names {
        let inner = scene.store.fork();
        let store = StaleStore::over(&inner, scene.clock.clone(), Duration::ZERO);
        inner.delete(&name).unwrap();
        let report = scene.check_all(&scene.open(store).unwrap()).unwrap();
        let is_named = |what: &str| match name.area {
            Area::Packs => report
                .damage
                .iter()
                .any(|damage| damage.what.contains("pack")),
            _ => report.damage.iter().any(|damage| damage.what == what),
        };
        assert!(is_named(&name.to_string()), "{name}: {report:?}");
        assert!(!report.is_clean(), "{name}");
        let is_record = u64::from(name.area == Area::Snapshots);
        assert_eq!(report.records_unreadable, is_record, "{name}");
        tried += 1;
    }
    assert!(tried > 5 + packs.len(), "{tried}");
}

#[test]
fn a_snapshot_forgotten_between_listing_and_reading_is_no_damage_and_is_said() {
    let (scene, first) = two_snapshots();
    let name = ObjectName::snapshot(first);
    let inner = scene.store.clone();
    let hooked = HookedStore::over(scene.store.clone(), move |call: &Call| {
        if (call.verb, call.name) == (Verb::Get, Some(name)) {
            inner.delete(&name).unwrap();
        }
    });
    let monitor = Recorder::default();
    let report = check(&scene.open(hooked).unwrap(), None, &monitor).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let notes = monitor.notes.lock().unwrap();
    let is_said = |note: &String| note.contains(&name.to_string()) && note.contains("forgotten");
    assert!(notes.iter().any(is_said), "{notes:?}");
}
