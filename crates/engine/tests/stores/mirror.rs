//! A mirror is a repository at any moment, opens with the same key, and takes over neither damage
//! nor loss.

use std::sync::Arc;
use std::time::Duration;

use bale_engine::mirror::{MirrorOptions, mirror};
use bale_format::ObjectId;
use bale_pipeline::monitor::Recorder;
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::mirroring::{DELETING, VERIFYING};
use bale_testkit::recording_store::Verb;
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, FaultyStore, RecordingStore, Scene, StaleStore};

fn history() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("big", &noise(11, 2 << 20));
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 700 << 10));
    scene.keep();
    scene
}

fn damage(store: &DatedStore, name: &ObjectName, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = store.get(name, u64::MAX).unwrap();
    change(&mut bytes);
    store.delete(name).unwrap();
    store.put(name, &bytes).unwrap();
}

fn largest_pack(store: &DatedStore) -> ObjectName {
    let packs = store.names(Area::Packs).into_iter();
    let len = |name: &ObjectName| store.stat(name).unwrap().unwrap().len;
    packs.max_by_key(len).unwrap()
}

#[test]
fn a_mirror_has_the_same_objects_restores_equal_and_gets_nothing_twice() {
    let scene = history();
    let target = scene.empty_place();
    let mirrored = scene.mirror_to(target.clone()).unwrap();
    assert_eq!((mirrored.problems, mirrored.objects_there), (0, 0));
    for area in Area::ALL {
        assert_eq!(scene.store.names(area), target.names(area), "{area}");
        for name in target.names(area) {
            let of = |store: &DatedStore| store.get(&name, u64::MAX).unwrap();
            assert_eq!(of(&scene.store), of(&target));
        }
    }
    scene.assert_restorable(&target, "mirrored");
    assert!(scene.check(&target).unwrap().is_clean());

    let writes = RecordingStore::over(target.clone());
    let reads = RecordingStore::over(scene.store.clone());
    let source = scene.open(reads.clone()).unwrap();
    let store: Arc<dyn Store> = Arc::new(writes.clone());
    let options = MirrorOptions::default();
    let again = mirror(&source, &store, &options, &Recorder::default()).unwrap();
    assert_eq!((again.objects_sent, again.bytes_sent), (0, 0));
    assert!(writes.calls().iter().all(|call| !call.verb.writes()));
    assert_eq!(reads.count_in(Verb::ReadAt, Area::Packs), 0);
}

#[test]
fn a_mirror_killed_at_any_request_is_whole_and_goes_on() {
    let scene = history();
    scene.assert_mirrors_go_on_wherever_they_are_killed();
}

#[test]
fn what_is_no_mirror_of_this_repository_is_not_touched() {
    let (scene, other) = (history(), history());
    let error = scene.mirror_to(other.store.clone()).unwrap_err();
    assert!(error.to_string().contains("another repository"), "{error}");
    let headless = other.store.fork();
    for name in ObjectName::configs() {
        headless.delete(&name).unwrap();
    }
    let before = headless.memory().objects();
    assert!(scene.mirror_to(headless.clone()).is_err());
    assert_eq!(before, headless.memory().objects());
}

#[test]
fn damage_is_not_sent_and_what_needs_it_is_withheld() {
    let mut scene = Scene::new();
    scene.write("a", &noise(1, 1 << 20));
    let lost = scene.keep();
    let pack = largest_pack(&scene.store);
    std::fs::remove_file(scene.source().join("a")).unwrap();
    scene.write("b", &noise(2, 1000));
    let whole = scene.keep();
    damage(&scene.store, &pack, |bytes| bytes[300_000] ^= 1);
    let target = scene.empty_place();
    let mirrored = scene.mirror_to(target.clone()).unwrap();
    assert_eq!((mirrored.problems, mirrored.snapshots_withheld), (2, 1));
    assert!(!target.names(Area::Packs).contains(&pack));
    let ids: Vec<ObjectId> = scene
        .open(target.clone())
        .unwrap()
        .snapshots()
        .unwrap()
        .iter()
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(ids, [whole], "not {}", lost.short());
}

#[test]
fn an_intact_object_of_the_target_is_never_replaced_and_a_damaged_one_is_when_it_is_read() {
    let scene = history();
    let target = scene.empty_place();
    scene.mirror_to(target.clone()).unwrap();
    let pack = largest_pack(&scene.store);
    let intact = target.get(&pack, u64::MAX).unwrap();

    damage(&scene.store, &pack, |bytes| bytes[300_000] ^= 1);
    for options in [MirrorOptions::default(), VERIFYING] {
        scene.mirror_with(target.clone(), options).unwrap();
        assert_eq!(target.get(&pack, u64::MAX).unwrap(), intact);
    }
    // Damaged in both: what is there stays, too.
    damage(&target, &pack, |bytes| bytes[400_000] ^= 1);
    let spoiled = target.get(&pack, u64::MAX).unwrap();
    let mirrored = scene.mirror_with(target.clone(), VERIFYING).unwrap();
    assert_eq!((mirrored.objects_replaced, mirrored.problems), (0, 1));
    assert_eq!(target.get(&pack, u64::MAX).unwrap(), spoiled);

    damage(&scene.store, &pack, |bytes| bytes[300_000] ^= 1);
    let believed = scene.mirror_to(target.clone()).unwrap();
    assert_eq!(believed.objects_sent, 0, "its length is right");
    let mirrored = scene.mirror_with(target.clone(), VERIFYING).unwrap();
    assert_eq!((mirrored.objects_replaced, mirrored.problems), (1, 0));
    assert_eq!(target.get(&pack, u64::MAX).unwrap(), intact);
    damage(&target, &pack, |bytes| bytes.truncate(500));
    assert_eq!(scene.mirror_to(target.clone()).unwrap().objects_replaced, 1);
    assert!(scene.check(&target).unwrap().is_clean());
}

#[test]
fn what_the_source_pruned_goes_only_on_request_and_leaves_the_mirror_whole_at_any_moment() {
    let mut scene = history();
    let target = scene.mirrored_before_it_was_pruned();
    assert_eq!(
        target.names(Area::Snapshots).len(),
        2,
        "nothing was asked to go"
    );

    let (fork, _) = scene.deleting_mirrors_killed_anywhere(&target);
    for area in Area::ALL {
        assert_eq!(scene.store.names(area), fork.names(area), "{area}");
    }
}

#[test]
fn nothing_is_deleted_for_a_source_that_is_empty_was_set_back_or_is_damaged() {
    let scene = history();
    let target = scene.empty_place();
    scene.mirror_to(target.clone()).unwrap();
    let before = target.memory().objects();
    let newest = scene.kept[1].0;
    let spoils: [&dyn Fn(&DatedStore); 3] = [
        // All snapshots are gone.
        &|store| {
            for name in store.names(Area::Snapshots) {
                store.delete(&name).unwrap();
            }
        },
        // Of yesterday.
        &|store| store.delete(&ObjectName::snapshot(newest)).unwrap(),
        &|store| damage(store, &largest_pack(store), |bytes| bytes[200_000] ^= 1),
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        let source = scene.store.fork();
        spoil(&source);
        // A machine that has never seen it.
        scene.forget_newest_seen();
        let store: Arc<dyn Store> = Arc::new(target.clone());
        let monitor = Recorder::default();
        let source = scene.open(source).unwrap();
        let options = MirrorOptions {
            verify: true,
            ..DELETING
        };
        let mirrored = mirror(&source, &store, &options, &monitor).unwrap();
        let problems = monitor.problems.lock().unwrap();
        // The damaged pack is intact in the target, and so no problem of the mirror's.
        let is_refused = mirrored.problems > 0;
        assert_eq!(is_refused, number < 2, "{number}: {problems:?}");
        assert_eq!(mirrored.objects_deleted, 0);
        assert_eq!(before, target.memory().objects(), "{number}");
    }
}

#[test]
fn a_dry_run_counts_and_changes_nothing() {
    let scene = history();
    let target = scene.empty_place();
    let dry = MirrorOptions {
        dry_run: true,
        ..DELETING
    };
    let would = scene.mirror_with(target.clone(), dry).unwrap();
    assert!(target.memory().objects().is_empty());
    let done = scene.mirror_to(target.clone()).unwrap();
    assert_eq!(would.objects_sent, done.objects_sent);
}

/// Found by the oracle of copies: the mirror gave up the index object, too.
#[test]
fn nothing_is_deleted_for_a_source_that_lost_an_index_object() {
    let scene = history();
    let target = scene.empty_place();
    scene.mirror_to(target.clone()).unwrap();
    let before = target.memory().objects();
    for name in scene.store.names(Area::Index) {
        let bytes = scene.store.get(&name, u64::MAX).unwrap();
        scene.store.delete(&name).unwrap();
        let mirrored = scene.mirror_with(target.clone(), DELETING).unwrap();
        assert_eq!((mirrored.problems, mirrored.objects_deleted), (1, 0));
        assert_eq!(before, target.memory().objects());
        scene.store.put(&name, &bytes).unwrap();
    }
    scene.assert_restorable(&target, "whatever the source lost");
}

/// Nobody knows any more what was in the packs that it named.
#[test]
fn a_source_that_lost_an_index_object_has_no_snapshot_sent_that_needs_it() {
    let scene = history();
    for name in scene.store.names(Area::Index) {
        let bytes = scene.store.get(&name, u64::MAX).unwrap();
        scene.store.delete(&name).unwrap();
        let target = scene.empty_place();
        let mirrored = scene.mirror_to(target.clone()).unwrap();
        assert!(mirrored.snapshots_withheld > 0, "{mirrored:?}");
        assert_eq!(mirrored.problems, mirrored.snapshots_withheld);
        scene.store.put(&name, &bytes).unwrap();
        let mirrored = scene.mirror_to(target.clone()).unwrap();
        assert_eq!(mirrored.problems, 0, "{mirrored:?}");
    }
}

/// Each step finds the disk full once, the first bytes more often.
#[test]
fn a_mirror_to_a_full_disk_leaves_snapshots_whole_says_so_and_goes_on() {
    let scene = history();
    let all = scene.store.memory().objects();
    let bytes: u64 = all.values().map(|bytes| bytes.len() as u64).sum();
    let steps = (0..8).map(|step| step * 300);
    let steps = steps.chain((1..40).map(|step| bytes * step / 40));
    let index: u64 = scene
        .store
        .names(Area::Index)
        .iter()
        .map(|n| all[n].len() as u64)
        .sum();
    let snapshots = scene.store.names(Area::Snapshots);
    let snapshots: u64 = snapshots.iter().map(|n| all[n].len() as u64).sum();
    let last = [
        snapshots + index,
        snapshots + index / 2,
        snapshots,
        snapshots / 2,
        1,
    ];
    let steps: Vec<u64> = steps.chain(last.map(|left| bytes - left)).collect();
    let (mut unindexed, mut whole) = (0, 0);
    for free in steps {
        let story = format!("{free} of {bytes} bytes");
        let target = scene.empty_place();
        let full = FaultyStore::over(target.clone());
        full.full_after(free);
        let refused = scene.mirror_to(full.clone()).unwrap_err().to_string();
        assert!(refused.contains("mirror again"), "{story}: {refused}");
        if target.names(Area::Config).is_empty() && target.names(Area::ConfigCopy).is_empty() {
            assert_eq!(target.names(Area::Packs), [], "{story}");
        } else {
            scene.forget_newest_seen();
            let report = scene.check(&target).unwrap();
            // Its copy comes right after it.
            let mut damage = report.damage.iter();
            let is_copy = damage.all(|it| it.what == "config.copy" && report.snapshots == 0);
            assert!(is_copy && report.lost_count == 0, "{story}: {report:?}");
            unindexed += u64::from(report.packs_unindexed > 0);
            whole += report.snapshots;
        }
        full.heal();
        scene.forget_newest_seen();
        let done = scene.mirror_to(full).unwrap();
        assert_eq!(done.problems, 0, "{story}");
        assert_eq!(target.memory().objects(), all, "{story}");
    }
    assert!(unindexed > 3 && whole > 0, "{unindexed} {whole}");
}

/// An index object that the store goes on listing and does not have: what it names is not known.
#[test]
fn a_source_that_lists_what_it_does_not_have_is_named_and_not_mirrored_in_silence() {
    let scene = history();
    for area in [Area::Index, Area::Packs] {
        let inner = scene.store.fork();
        let lost = inner.names(area)[0];
        let store = StaleStore::over(&inner, scene.clock.clone(), Duration::ZERO);
        inner.delete(&lost).unwrap();
        let source = scene.open(store).unwrap();
        let target: Arc<dyn Store> = Arc::new(scene.empty_place());
        let monitor = Recorder::default();
        let done = mirror(&source, &target, &MirrorOptions::default(), &monitor).unwrap();
        assert!(done.problems > 0, "{lost}");
        let problems = monitor.problems.lock().unwrap();
        let is_named = |text: &str| text.contains(&lost.to_string());
        assert!(problems.iter().any(|it| is_named(&it.text)), "{problems:?}");
    }
}
