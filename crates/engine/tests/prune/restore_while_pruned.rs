//! Restores, dumps and checks that last longer than the grace period of prunes which go on
//! meanwhile: what moved is read where it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bale_engine::dump::dump_snapshot;
use bale_engine::verify::{Subset, check};
use bale_pipeline::monitor::Recorder;
use bale_repository::repository::Repository;
use bale_repository::store::{Area, Store};
use bale_restore::ScratchSpace;
use bale_testkit::scene::noise;
use bale_testkit::{Call, HookedStore, Scene, Verb};

const GRACE: Duration = Duration::from_secs(24 * 3600);

/// A snapshot that uses little of its packs: the next prune copies that, and the one after the
/// grace period deletes them.
fn to_be_repacked() -> Scene {
    let mut scene = Scene::new();
    scene.write("gone", &noise(1, 4_000_000));
    scene.write("large", &noise(2, 1_200_000));
    scene.write("small", b"few bytes");
    let first = scene.keep();
    std::fs::remove_file(scene.source().join("gone")).unwrap();
    scene.keep();
    scene.repository().forget_snapshot(first).unwrap();
    scene.kept.remove(0);
    scene.clock.advance(2 * GRACE);
    scene
}

/// Has prunes move everything just before the `number`th read of a pack while `act` goes on; false:
/// there are fewer reads.
fn moved_at(scene: &Scene, number: u64, act: impl FnOnce(&Arc<Repository>)) -> bool {
    let store = scene.store.fork();
    let reads = Arc::new(AtomicU64::new(0));
    let hooked = {
        let (pruner, reads) = (scene.open(store.clone()).unwrap(), reads.clone());
        let clock = scene.clock.clone();
        HookedStore::over(store.clone(), move |call: &Call| {
            let is_read = call.verb == Verb::ReadAt && call.area == Area::Packs;
            if is_read && reads.fetch_add(1, Ordering::SeqCst) + 1 == number {
                for _ in 0..2 {
                    prune(&pruner);
                    clock.advance(2 * GRACE);
                }
            }
        })
    };
    let before = store.names(Area::Packs);
    act(&scene.open(hooked).unwrap());
    let is_done = reads.load(Ordering::SeqCst) >= number;
    let stays = |name| store.stat(name).unwrap().is_some();
    assert!(!is_done || !before.iter().all(stays), "something moved");
    is_done
}

fn prune(repository: &Arc<Repository>) {
    use bale_engine::prune::{PruneOptions, apply, plan};
    let options = PruneOptions {
        grace: GRACE,
        repack_below_percent: 60,
    };
    let monitor = Recorder::default();
    let plan = plan(repository, &options, &monitor).unwrap();
    apply(repository, &plan, &options, &monitor).unwrap();
}

fn at_each_read(act: impl Fn(&Scene, &Arc<Repository>, u64)) {
    let scene = to_be_repacked();
    let mut number = 1;
    while moved_at(&scene, number, |repository| act(&scene, repository, number)) {
        number += 1;
    }
    assert!(number > 3, "{number}");
}

#[test]
fn a_restore_reads_what_prunes_moved_meanwhile() {
    at_each_read(|scene, repository, number| {
        let named = repository.snapshots().unwrap().pop().unwrap();
        let monitor = Recorder::default();
        let (tree, report) = scene.restore(repository, &named, &monitor);
        let problems = monitor.problems.lock().unwrap();
        assert_eq!(report.unwrap().problems, 0, "read {number}: {problems:?}");
        assert!(tree.differences(&scene.kept[0].1).is_empty(), "{number}");
    });
}

#[test]
fn a_dump_reads_what_prunes_moved_meanwhile() {
    at_each_read(|scene, repository, number| {
        let named = repository.snapshots().unwrap().pop().unwrap();
        let monitor = Recorder::default();
        let spill = tempfile::tempdir().unwrap();
        let scratch = ScratchSpace::new(spill.path().to_owned());
        let path = scene.source().join("large");
        let path = &path.as_os_str().as_encoded_bytes()[1..];
        let mut out = Vec::new();
        let report = dump_snapshot(repository, &named, path, &scratch, &mut out, &monitor);
        let problems = monitor.problems.lock().unwrap();
        assert_eq!(report.unwrap().problems, 0, "read {number}: {problems:?}");
        assert!(out == noise(2, 1_200_000), "read {number}");
    });
}

#[test]
fn a_check_finds_no_damage_in_what_prunes_moved_meanwhile() {
    at_each_read(|_, repository, number| {
        let report = check(repository, Some(Subset::All), &Recorder::default()).unwrap();
        assert!(report.is_clean(), "read {number}: {:?}", report.damage);
    });
}
