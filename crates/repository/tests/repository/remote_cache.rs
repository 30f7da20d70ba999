//! The cache of what is far away is believed in nothing: whatever happens to its files, operations
//! do what they do without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bale_pipeline::monitor::Recorder;
use bale_repository::error::Result;
use bale_repository::metadata_cache::METADATA_CACHE_BYTES;
use bale_repository::repository::{CacheOptions, FirstLooks, Repository};
use bale_repository::snapshots::remembered;
use bale_repository::store::{Area, Store};
use bale_testkit::scene::noise;
use bale_testkit::{FaultyStore, RoundsStore, Scene, Verb};

fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    scene.write("new", &noise(5, 700));
    scene.keep();
    scene
}

fn open_counting(
    scene: &Scene,
    store: impl Store + 'static,
    told: &Arc<AtomicUsize>,
) -> Result<Arc<Repository>> {
    let told = told.clone();
    let report = move |_: &str| {
        told.fetch_add(1, Ordering::SeqCst);
    };
    let cache = CacheOptions {
        bytes_max: METADATA_CACHE_BYTES,
        report: Box::new(report),
    };
    let looks = FirstLooks::Packs;
    let found = Repository::find(Arc::new(store), scene.environment(), looks, Some(cache))?;
    found.open(&Scene::secret()).map(Arc::new)
}

fn open(scene: &Scene, store: impl Store + 'static) -> Result<Arc<Repository>> {
    open_counting(scene, store, &Arc::default())
}

fn far(scene: &Scene) -> RoundsStore {
    RoundsStore::at_once(scene.store.fork())
}

/// Snapshots are listed, and the newest restores exactly.
fn look(scene: &Scene, store: RoundsStore, story: &str) {
    let repository = open(scene, store).unwrap();
    let (all, damaged) = remembered::list(&repository, &|missed| panic!("{missed:?}")).unwrap();
    assert!(damaged.is_empty(), "{story}: {damaged:?}");
    let (id, tree) = scene.kept.last().unwrap();
    let newest = all.iter().find(|(other, _)| other == id).unwrap();
    scene.assert_restores(&repository, newest, tree, story);
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        match entry.is_dir() {
            true => files.extend(files_below(&entry)),
            false => files.push(entry),
        }
    }
    files.sort();
    files
}

fn cached(scene: &Scene) -> Vec<PathBuf> {
    let id = scene.repository().id().to_string();
    files_below(&scene.cache().join(id).join("metadata"))
}

/// Requests for what is cached.
fn fetched(store: &RoundsStore) -> usize {
    let trips = store.take();
    let objects = [Area::Index, Area::Snapshots].map(|area| trips.count_in(Verb::Get, area));
    objects.iter().sum()
}

#[test]
fn damaged_files_of_the_cache_are_fetched_again_and_replaced() {
    let scene = scene();
    look(&scene, far(&scene), "cold");
    let whole: Vec<_> = (cached(&scene).into_iter())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    assert!(whole.len() >= 5, "{whole:?}");
    let swapped = whole.iter().map(|(_, bytes)| bytes.clone());
    let swapped: Vec<_> = swapped.skip(1).chain([whole[0].1.clone()]).collect();
    type Damage<'d> = Box<dyn Fn(usize, &[u8]) -> Vec<u8> + 'd>;
    let damages: [(&str, Damage); 6] = [
        (
            "a bit",
            Box::new(|_, bytes| flipped(bytes, bytes.len() / 2)),
        ),
        ("the first bit", Box::new(|_, bytes| flipped(bytes, 0))),
        (
            "the end",
            Box::new(|_, bytes| bytes[..bytes.len() - 1].to_vec()),
        ),
        ("all", Box::new(|_, _| Vec::new())),
        ("more", Box::new(|_, bytes| [bytes, b"more"].concat())),
        ("another's", Box::new(|number, _| swapped[number].clone())),
    ];
    for (story, damage) in &damages {
        for (number, (path, bytes)) in whole.iter().enumerate() {
            fs::write(path, damage(number, bytes)).unwrap();
        }
        let store = far(&scene);
        look(&scene, store.clone(), story);
        assert!(fetched(&store) > 0, "{story}");
        look(&scene, store.clone(), story);
        assert_eq!(fetched(&store), 0, "{story}: replaced");
    }
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes
}

#[test]
fn a_cache_that_goes_at_any_moment_or_cannot_be_written_is_no_harm() {
    let scene = scene();
    look(&scene, far(&scene), "cold");
    for path in cached(&scene).iter().step_by(2) {
        fs::remove_file(path).unwrap();
    }
    look(&scene, far(&scene), "half of it");
    let directory = cached(&scene)[0].ancestors().nth(2).unwrap().to_owned();
    fs::remove_dir_all(&directory).unwrap();
    fs::write(&directory, b"something else").unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let repository = open_counting(&scene, far(&scene), &told).unwrap();
    assert_eq!(repository.snapshots().unwrap().len(), scene.kept.len());
    repository.index().unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 1, "it is said once");
}

/// What exists is for the store to say.
#[test]
fn what_was_removed_from_the_store_is_not_seen_in_the_cache() {
    let mut scene = scene();
    look(&scene, far(&scene), "cold");
    let (first, _) = scene.kept.remove(0);
    scene.repository().forget_snapshot(first).unwrap();
    let repository = open(&scene, far(&scene)).unwrap();
    let (all, _) = remembered::list(&repository, &|missed| panic!("{missed:?}")).unwrap();
    assert_eq!(all.len(), scene.kept.len());
    for name in scene.store.names(Area::Index) {
        scene.store.delete(&name).unwrap();
    }
    let repository = open(&scene, far(&scene)).unwrap();
    let (tree, report) = scene.restore(&repository, &all[0], &Recorder::default());
    assert!(report.is_err() || tree.differences(&scene.kept[0].1).len() > 1);
}

/// A check believes nothing but the store, however well the cache knows it.
#[test]
fn a_check_reads_the_store_although_the_cache_has_all_of_it() {
    let scene = scene();
    look(&scene, far(&scene), "cold");
    for name in scene.store.names(Area::Index) {
        let bytes = scene.store.get(&name, 1 << 20).unwrap();
        scene.store.delete(&name).unwrap();
        scene.store.put(&name, &flipped(&bytes, 200)).unwrap();
    }
    look(&scene, far(&scene), "still in the cache");
    assert!(!scene.check(&scene.store).unwrap().is_clean());
}

/// CRA-01 for stores that are far away, where requests are made at once.
#[test]
fn a_backup_to_a_store_far_away_killed_anywhere_keeps_all_snapshots() {
    let scene = scene();
    scene.write("dir/deep/c.bin", &noise(4, 2_000));
    for after in 0.. {
        let mut crashed = false;
        for last_is_done in [false, true] {
            let store = scene.store.fork();
            let faulty = FaultyStore::over(RoundsStore::at_once(store.clone()));
            faulty.crash_after(after, last_is_done);
            let done = open(&scene, faulty.clone()).and_then(|open| scene.backup(&open));
            crashed |= faulty.crashed();
            let story = format!("killed at call {after}, done: {last_is_done}");
            assert!(done.is_ok() || faulty.crashed(), "{story}: {done:?}");
            scene.assert_sound(&store, &story);
        }
        if !crashed {
            assert!(after > 15, "{after}");
            return;
        }
    }
}
