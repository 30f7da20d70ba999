//! Objects that list packs, damaged, out of reach or of another time: an index object stops no
//! backup and no restore, whatever else happens on the way; lists of condemned packs stop neither
//! what can go on nor prunes for ever (issue 13, S4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bale_format::{ChunkKind, ObjectId};
use bale_pipeline::clock::Clock;
use bale_pipeline::monitor::Recorder;
use bale_repository::repository::Repository;
use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, Result, Store, StoreError,
};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, HookedStore, Scene, Tree, Verb};

/// One object lies on a bad block.
struct BadBlock {
    inner: DatedStore,
    name: ObjectName,
}

impl Store for BadBlock {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.inner.begin()
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        if *name == self.name {
            return Err(StoreError {
                action: "read",
                object: name.to_string(),
                source: std::io::Error::from_raw_os_error(5),
            });
        }
        self.inner.get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.inner.stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.inner.list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.inner.delete(name)
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}

fn two_snapshots() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    scene.write("new/d", &noise(1, 50_000));
    scene.keep();
    scene
}

fn restores_now(scene: &Scene, store: &DatedStore, id: ObjectId, story: &str) {
    let repository = scene.open(store.clone()).unwrap();
    let snapshots = repository.snapshots().unwrap();
    let snapshot = snapshots.iter().find(|(other, _)| *other == id).unwrap();
    let now = Tree::read(&scene.source());
    scene.assert_restores(&repository, snapshot, &now, story);
}

#[test]
fn an_index_object_on_a_bad_block_stops_no_restore_and_no_backup() {
    let scene = two_snapshots();
    let names = scene.store.names(Area::Index);
    let mut restored = 0;
    for name in &names {
        let bad = || BadBlock {
            inner: scene.store.fork(),
            name: *name,
        };
        let repository = scene.open(bad()).unwrap();
        for snapshot in &repository.snapshots().unwrap() {
            let (_, expected) = scene.kept.iter().find(|(id, _)| *id == snapshot.0).unwrap();
            let (tree, _) = scene.restore(&repository, snapshot, &Recorder::default());
            restored += usize::from(tree == *expected);
        }
        let bad = bad();
        let store = bad.inner.clone();
        let outcome = scene.backup(&scene.open(bad).unwrap()).unwrap();
        restores_now(&scene, &store, outcome.id.unwrap(), &name.to_string());
    }
    assert!(
        restored > 0,
        "the first snapshot needs one index object only"
    );
}

/// At its end a backup reads the index once more: because a prune has condemned what it relies on,
/// for one.
#[test]
fn a_damaged_index_object_stops_no_backup_that_must_store_again() {
    let scene = two_snapshots();
    let names = scene.store.names(Area::Index);
    assert!(names.len() > 1);
    scene.write("changed", &noise(2, 5_000));
    for name in &names {
        let store = scene.store.fork();
        store.memory().overwrite(name, b"not an index".to_vec());
        let (other, is_done) = (scene.open(store.clone()).unwrap(), AtomicBool::new(false));
        let packs: Vec<ObjectId> = (store.names(Area::Packs).iter())
            .filter_map(ObjectName::id)
            .collect();
        let hooked = HookedStore::over(store.clone(), move |call| {
            let is_flush = call.verb == Verb::Put && call.area == Area::Index;
            if is_flush && !is_done.swap(true, Ordering::Relaxed) {
                other.condemn(packs.clone()).unwrap();
            }
        });
        let repository = scene.open(hooked).unwrap();
        let outcome = scene.backup(&repository);
        let id = outcome.unwrap_or_else(|error| panic!("{name}: {error}")).id;
        assert_eq!(store.names(Area::Condemned).len(), 1);
        restores_now(&scene, &store, id.unwrap(), &name.to_string());
        drop(Arc::into_inner(repository));
    }
}

/// What a prune may delete at any time is not known: said at once, and not after all the work.
#[test]
fn a_damaged_list_of_condemned_packs_ends_a_backup_before_it_begins_and_is_named() {
    let scene = two_snapshots();
    let repository = scene.repository();
    repository.condemn(vec![ObjectId([7; 32])]).unwrap();
    let name = scene.store.names(Area::Condemned)[0];
    scene
        .store
        .memory()
        .overwrite(&name, b"not a list".to_vec());
    let packs = scene.store.names(Area::Packs);
    scene.write("changed", &noise(2, 5_000));
    let failed = scene.backup(&scene.repository()).unwrap_err().to_string();
    let advice = format!("bale forget {}", name.id().unwrap());
    assert!(failed.contains(&advice), "{failed}");
    assert_eq!(scene.store.names(Area::Packs), packs, "nothing was stored");
    scene.store.delete(&name).unwrap();
    assert!(scene.backup(&scene.repository()).is_ok());
}

/// Condemned on a day when the clock was a century ahead: grace begins again as soon as a prune
/// sees it, and ends.
#[test]
fn packs_condemned_by_a_clock_of_the_future_are_deleted_after_the_grace_period() {
    let scene = two_snapshots();
    let (day, hour) = (Duration::from_secs(86_400), Duration::from_secs(3_600));
    scene.clock.advance(day);
    let repository = scene.repository();
    repository.forget_snapshot(scene.kept[0].0).unwrap();
    repository.forget_snapshot(scene.kept[1].0).unwrap();
    let now = scene.clock.now();
    let packs: Vec<ObjectId> = (scene.store.names(Area::Packs).iter())
        .filter_map(ObjectName::id)
        .collect();
    scene.clock.set(now + day * 36_500);
    repository.condemn(packs).unwrap();
    scene.clock.set(now);
    scene.prune(&scene.repository(), hour).unwrap();
    assert!(!scene.store.names(Area::Packs).is_empty(), "grace begins");
    assert_eq!(scene.store.names(Area::Condemned).len(), 1);
    scene.clock.advance(hour * 2);
    scene.prune(&scene.repository(), hour).unwrap();
    assert_eq!(scene.store.names(Area::Packs), []);
}

#[test]
fn what_an_index_object_named_that_is_gone_with_its_pack_is_stored_again() {
    const PIECES: u32 = 200_000;
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("large", &noise(7, 6_000_000));
    scene.keep();
    let is_kept = || {
        std::thread::sleep(Duration::from_millis(20));
        let outcome = scene.backup(&scene.repository()).unwrap();
        outcome.snapshot.counts.bytes_read == 0
    };
    assert!((0..500).any(|_| is_kept()), "nothing is read again");
    let now = Tree::read(&scene.source());
    scene.lose_from_index(|chunk| chunk.kind == ChunkKind::Data && chunk.plain_bytes > PIECES);
    for host in ["a backup with its cache", "a backup of a new machine"] {
        let store = scene.store.fork();
        let mut environment = scene.environment();
        if host != "a backup with its cache" {
            environment.cache_dir = scene.cache().join("of another");
        }
        let repository = Arc::new(
            Repository::open(Arc::new(store.clone()), &Scene::secret(), environment).unwrap(),
        );
        let outcome = scene.backup(&repository).unwrap();
        let named = (outcome.id.unwrap(), outcome.snapshot);
        scene.assert_restores(&scene.open(store).unwrap(), &named, &now, host);
    }
}
