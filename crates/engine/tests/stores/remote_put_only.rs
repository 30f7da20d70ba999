//! A server that only takes what is new keeps every snapshot that it was sent: one that does not
//! restore must not be sent, and if it was, that is said.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bale_engine::backup::Outcome;
use bale_engine::copy::{CopyOptions, copy};
use bale_pipeline::monitor::Recorder;
use bale_repository::error::Result;
use bale_repository::repository::{FirstLooks, Repository};
use bale_repository::store::{Area, Store};
use bale_testkit::scene::noise;
use bale_testkit::{
    Call, DatedStore, Effect, FaultyStore, HookedStore, InjectedFault, RoundsStore, Scene, Verb,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Far away, and gives up nothing; something happens elsewhere just before some call.
fn put_only(
    store: &DatedStore,
    hook: impl Fn(&Call) + Send + Sync + 'static,
) -> impl Store + 'static {
    let far = RoundsStore::at_once(store.clone());
    let refusing = FaultyStore::over(HookedStore::over(far, hook));
    let refused = Effect::Fail(std::io::ErrorKind::PermissionDenied);
    for area in [Area::Snapshots, Area::Index, Area::Packs] {
        let fault = InjectedFault::new(refused).of(Verb::Delete).within(area);
        refusing.inject(fault.for_ever());
    }
    refusing
}

/// As a new process that backs up.
fn open(scene: &Scene, store: impl Store + 'static) -> Arc<Repository> {
    let looks = FirstLooks::Packs;
    let found = Repository::find(Arc::new(store), scene.environment(), looks, None);
    let opened = found.and_then(|found| found.open(&Scene::secret()));
    Arc::new(opened.unwrap())
}

fn history() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("noise", &noise(1, 200 << 10));
    scene.keep();
    scene
}

/// Backs up while somebody at the server forgets all and prunes, just before the first of these
/// calls.
fn backed_up_beside_a_prune(
    scene: &Arc<Scene>,
    (verb, area): (Verb, Area),
    grace: Duration,
) -> Result<Outcome> {
    let (beside, is_done) = (scene.clone(), AtomicBool::new(false));
    let store = put_only(&scene.store, move |call| {
        let is_it = (call.verb, call.area) == (verb, area);
        if is_it && !is_done.swap(true, Ordering::SeqCst) {
            let repository = beside.repository();
            for (id, _) in repository.snapshots().unwrap() {
                repository.forget_snapshot(id).unwrap();
            }
            beside.prune(&repository, grace).unwrap();
            beside.prune(&beside.repository(), grace).unwrap();
        }
    });
    let repository = open(scene, store);
    scene.backup(&repository)
}

#[test]
fn a_prune_that_waits_before_it_deletes_breaks_no_snapshot_of_a_server_that_keeps_all() {
    let scene = Arc::new(history());
    let done = backed_up_beside_a_prune(&scene, (Verb::Put, Area::Snapshots), DAY);
    let done = done.unwrap();
    let snapshots = scene.repository().snapshots().unwrap();
    assert_eq!(snapshots.len(), 1);
    assert_eq!(Some(snapshots[0].0), done.id);
    let tree = &scene.kept[0].1;
    scene.assert_restores(&scene.repository(), &snapshots[0], tree, "beside a prune");
}

#[test]
fn a_snapshot_that_a_server_keeps_and_nobody_can_restore_is_said_and_the_next_one_is_whole() {
    let scene = Arc::new(history());
    let gone = scene.kept[0].0;
    let done = backed_up_beside_a_prune(&scene, (Verb::Put, Area::Snapshots), Duration::ZERO);
    let stays = scene.repository().snapshots().unwrap();
    assert!(stays.len() == 1 && stays[0].0 != gone, "{stays:?}");
    let said = done
        .expect_err("something was deleted that it relies on")
        .to_string();
    assert!(said.contains(&stays[0].0.short()), "{said}");
    assert!(said.contains("cannot be taken back"), "{said}");
    assert!(said.contains("run it again"), "{said}");

    let again = scene.backup(&open(&scene, put_only(&scene.store, |_| ())));
    let id = again.unwrap().id.unwrap();
    let repository = scene.repository();
    let snapshots = repository.snapshots().unwrap();
    let named = snapshots.iter().find(|(other, _)| *other == id).unwrap();
    scene.assert_restores(&repository, named, &scene.kept[0].1, "the next one");
}

/// Where deleting is allowed, nothing stays.
#[test]
fn a_copy_into_a_server_that_keeps_all_says_which_snapshots_stay() {
    let (scene, other) = (history(), Arc::new(Scene::new()));
    let (beside, is_done) = (other.clone(), AtomicBool::new(false));
    let store = put_only(&other.store, move |call| {
        let is_it = (call.verb, call.area) == (Verb::Put, Area::Snapshots);
        if is_it && !is_done.swap(true, Ordering::SeqCst) {
            for area in [Area::Packs, Area::Index] {
                for name in beside.store.names(area) {
                    beside.store.delete(&name).unwrap();
                }
            }
        }
    });
    let (source, target) = (scene.repository(), open(&other, store));
    let snapshots = source.snapshots().unwrap();
    let options = CopyOptions::default();
    let done = copy(&source, &target, &snapshots, &options, &Recorder::default());
    let said = done.unwrap_err().to_string();
    let stays = other.repository().snapshots().unwrap();
    assert_eq!(stays.len(), 1);
    assert!(said.contains(&stays[0].0.short()), "{said}");
    assert!(said.contains("cannot be taken back"), "{said}");
}
