//! How often an operation waits for a store that is far away: rounds of requests, counted. The bars
//! are those of docs/PERF.md.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bale_engine::copy::{CopyOptions, copy};
use bale_engine::dump::dump_snapshot;
use bale_engine::restore::RepositoryChunks;
use bale_engine::restore::to_ext4::SnapshotToExt4;
use bale_format::{ChunkKind, ChunkPlace, Kind};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use bale_repository::limits::PACK_BYTES_MIN;
use bale_repository::metadata_cache::METADATA_CACHE_BYTES;
use bale_repository::pack::{ChunkWriter, PackPlan};
use bale_repository::repository::{CacheOptions, FirstLooks, Named, Repository};
use bale_repository::snapshots::{clean_path, remembered};
use bale_repository::store::{Area, ObjectName, Store};
use bale_restore::ext4::ImageTarget;
use bale_restore::{ChunkSource, Everything, RestoreOptions, ScratchSpace};
use bale_testkit::scene::noise;
use bale_testkit::{Call, HookedStore, RoundsStore, Scene, Trips, Verb};

/// What others do in the directory above the source is a change of it: so often a count is taken
/// again, and the tests of this file take turns.
const TRIES: usize = 10;
static TURNS: Mutex<()> = Mutex::new(());
/// The clock of file systems moves in such steps at most.
const SETTLED: Duration = Duration::from_millis(100);

/// For the whole of a test: no other makes a directory beside its own.
fn turn() -> MutexGuard<'static, ()> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A few backups of a small tree: several index objects, snapshots, layers, packs.
fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    for number in 0..40 {
        scene.write(&format!("many/{number}"), &noise(number, 1000));
    }
    scene.keep();
    for number in 0..3 {
        scene.write(&format!("new-{number}"), &noise(100 + number, 3000));
        scene.keep();
    }
    // The clock of the file system has moved on: no file is racy any more.
    std::thread::sleep(SETTLED);
    scene.keep();
    scene
}

/// As a new process opens it that is somewhere else.
fn open(scene: &Scene, store: RoundsStore, looks: FirstLooks) -> Arc<Repository> {
    let cache = CacheOptions {
        bytes_max: METADATA_CACHE_BYTES,
        report: Box::new(|text| panic!("{text}")),
    };
    let found = Repository::find(Arc::new(store), scene.environment(), looks, Some(cache));
    let opened = found.and_then(|found| found.open(&Scene::secret()));
    Arc::new(opened.unwrap())
}

/// The fewest rounds of a few tries; no more are made once there are as few as `enough`. With a
/// warm cache the same was done before, by this machine.
fn trips(scene: &Scene, is_cold: bool, enough: u64, act: impl Fn(&Scene, RoundsStore)) -> Trips {
    let mut best: Option<Trips> = None;
    for _ in 0..TRIES {
        match is_cold {
            true => std::fs::remove_dir_all(scene.cache()).unwrap(),
            false => act(scene, RoundsStore::at_once(scene.store.clone())),
        }
        let rounds = RoundsStore::over(scene.store.fork());
        act(scene, rounds.clone());
        let trips = rounds.take();
        if best
            .as_ref()
            .is_none_or(|best| trips.rounds() < best.rounds())
        {
            best = Some(trips);
        }
        if best.as_ref().is_some_and(|best| best.rounds() <= enough) {
            break;
        }
    }
    best.unwrap()
}

fn snapshots(repository: &Repository) -> Vec<Named> {
    let (snapshots, damaged) = remembered::list(repository, &|_| ()).unwrap();
    assert!(damaged.is_empty());
    repository.runs_readable().unwrap();
    snapshots
}

/// Below the source of a scene.
fn path_of(scene: &Scene, name: &str) -> Vec<u8> {
    clean_path(scene.source().join(name).as_os_str().as_encoded_bytes())
}

fn list_snapshots(scene: &Scene, store: RoundsStore) {
    let repository = open(scene, store, FirstLooks::Snapshots);
    assert!(snapshots(&repository).len() >= 4);
}

fn list_directory(scene: &Scene, store: RoundsStore) {
    let repository = open(scene, store, FirstLooks::Chunks);
    let layers = snapshots(&repository).pop().unwrap().1.layers;
    let catalog = CatalogReader::open(repository.segment_source_wherever(), layers).unwrap();
    let path = path_of(scene, "many");
    let found = catalog.lookup(&path).unwrap().unwrap();
    assert_eq!(found.kind, Kind::Directory);
    assert_eq!(catalog.list(&path).count(), 40);
}

fn back_up(scene: &Scene, store: RoundsStore) {
    let repository = open(scene, store, FirstLooks::Packs);
    let done = scene.backup(&repository).unwrap();
    assert_eq!(done.snapshot.counts.files_new, 0);
    assert_eq!(done.snapshot.counts.files_changed, 0);
}

fn restore_below(name: &'static str) -> impl Fn(&Scene, RoundsStore) {
    move |scene, store| {
        let repository = open(scene, store, FirstLooks::Chunks);
        let newest = snapshots(&repository).pop().unwrap();
        let path = path_of(scene, name);
        let tree = scene.restore_below(&repository, &newest, &path, &Recorder::default());
        assert!(tree.1.is_ok());
    }
}

/// Says more than a number when it is too high.
#[track_caller]
fn assert_rounds(trips: &Trips, most: u64) {
    assert!(
        trips.rounds() <= most,
        "{} rounds:\n{}",
        trips.rounds(),
        trips.story()
    );
}

#[test]
fn opening_takes_two_rounds() {
    let _turn = turn();
    let scene = scene();
    let act = |scene: &Scene, store| drop(open(scene, store, FirstLooks::Nothing));
    assert_rounds(&trips(&scene, true, 2, act), 2);
}

#[test]
fn listing_snapshots_takes_two_rounds_and_no_packs() {
    let _turn = turn();
    let scene = scene();
    let cold = trips(&scene, true, 2, list_snapshots);
    assert_rounds(&cold, 2);
    assert_eq!(cold.count_in(Verb::ReadAt, Area::Packs), 0);
    let warm = trips(&scene, false, 2, list_snapshots);
    assert_rounds(&warm, 2);
    assert_eq!(warm.count_in(Verb::Get, Area::Snapshots), 0);
}

#[test]
fn listing_a_directory_takes_three_rounds_and_two_with_a_warm_cache() {
    let _turn = turn();
    let scene = scene();
    let cold = trips(&scene, true, 3, list_directory);
    assert_rounds(&cold, 3);
    let warm = trips(&scene, false, 2, list_directory);
    assert_rounds(&warm, 2);
    for (verb, area) in [(Verb::ReadAt, Area::Packs), (Verb::Get, Area::Index)] {
        assert_eq!(warm.count_in(verb, area), 0, "{}", warm.story());
    }
}

#[test]
fn a_backup_of_what_did_not_change_takes_six_rounds_with_a_warm_cache() {
    let _turn = turn();
    let scene = scene();
    let warm = trips(&scene, false, 5, back_up);
    assert_rounds(&warm, 6);
    assert_eq!(
        warm.count_in(Verb::ReadAt, Area::Packs),
        0,
        "{}",
        warm.story()
    );
}

/// Naming them; the snapshot; looking whether they and all else are there, in two steps.
#[test]
fn after_the_last_pack_a_backup_takes_four_rounds() {
    let _turn = turn();
    let scene = scene();
    for number in 0..10 {
        scene.write(&format!("newer-{number}"), &noise(200 + number, 3000));
    }
    let act = |scene: &Scene, store| {
        let repository = open(scene, store, FirstLooks::Packs);
        let done = scene.backup(&repository).unwrap();
        assert_eq!(done.snapshot.counts.files_new, 10);
    };
    // What comes before them does not matter.
    let trips = trips(&scene, true, 0, act);
    let packs = (trips.calls.iter())
        .filter(|(_, call)| call.verb == Verb::Publish && call.area == Area::Packs);
    let last = packs.map(|(round, _)| *round).max().expect("a pack");
    let of = |verb, area| {
        let calls = trips.calls.iter();
        let calls = calls.filter(move |(_, call)| call.verb == verb && call.area == area);
        calls.map(|(round, _)| *round).max()
    };
    let snapshot = of(Verb::Put, Area::Snapshots).expect("a snapshot");
    let look = of(Verb::List, Area::Packs).expect("a look");
    assert!(snapshot < look, "{}", trips.story());
    let after = trips.rounds() - 1 - last;
    assert!(after <= 4, "{after} rounds:\n{}", trips.story());
}

/// A prune ran while the machine slept, after the packs were named.
#[test]
fn a_pack_that_goes_before_the_last_look_is_named_by_nobody_and_no_snapshot_is_made() {
    let _turn = turn();
    let scene = Scene::new();
    scene.write_tree();
    let below = scene.store.clone();
    let hook = move |call: &Call| {
        let is_look = call.verb == Verb::List && call.area == Area::Packs;
        if is_look && !names(&below, Area::Index).is_empty() {
            let packs = names(&below, Area::Packs);
            packs.iter().for_each(|pack| below.delete(pack).unwrap());
        }
    };
    let store = HookedStore::over(RoundsStore::at_once(scene.store.clone()), hook);
    let looks = FirstLooks::Packs;
    let found = Repository::find(Arc::new(store), scene.environment(), looks, None);
    let opened = found.and_then(|found| found.open(&Scene::secret()));
    let error = scene.backup(&Arc::new(opened.unwrap())).expect_err("gone");
    assert!(error.to_string().contains("again"), "{error}");
    for area in [Area::Snapshots, Area::Index] {
        assert!(names(&scene.store, area).is_empty(), "{area}");
    }
}

fn names(store: &impl Store, area: Area) -> Vec<ObjectName> {
    let mut names = Vec::new();
    let listed = store.list(area, &mut |info| names.push(info.name));
    listed.map(|()| names).unwrap()
}

#[test]
fn one_file_comes_back_in_six_rounds_and_in_three_with_a_warm_cache() {
    let _turn = turn();
    let scene = scene();
    for name in ["many/7", "large"] {
        let cold = trips(&scene, true, 5, restore_below(name));
        assert_rounds(&cold, 6);
        let warm = trips(&scene, false, 3, restore_below(name));
        assert_rounds(&warm, 3);
    }
}

/// Two dozen large files, each of a chunk or two, beside each other in one pack.
fn large_files() -> Scene {
    let mut scene = Scene::new();
    for number in 0..24 {
        scene.write(&format!("large-{number:02}"), &noise(number, 900 << 10));
    }
    scene.keep();
    scene
}

fn data_chunks(repository: &Repository) -> Vec<ChunkPlace> {
    let index = repository.index().unwrap();
    let mut places: Vec<_> = (index.entries().iter().copied())
        .filter(|place| place.chunk.kind == ChunkKind::Data)
        .collect();
    places.sort_by_key(ChunkPlace::sort_key);
    places
}

#[test]
fn a_restore_of_everything_reads_neighbours_together_and_several_at_once() {
    let _turn = turn();
    let scene = large_files();
    let chunks = data_chunks(&scene.repository()).len() as u64;
    assert!(chunks >= 24, "{chunks}");
    let act = |scene: &Scene, store: RoundsStore| {
        let repository = open(scene, store, FirstLooks::Chunks);
        let newest = snapshots(&repository).pop().unwrap();
        scene.assert_restores(&repository, &newest, &scene.kept[0].1, "far away");
    };
    let trips = trips(&scene, false, chunks / 2, act);
    let reads = trips.count_in(Verb::ReadAt, Area::Packs) as u64;
    assert!(reads <= chunks * 2 / 3, "{reads} of {chunks}");
    assert_rounds(&trips, chunks / 2 + 3);
}

/// Rounds of an operation on the large files, of which each encoder has made a pack: as many as for
/// a few of them.
fn rounds_of_one_pack(act: impl Fn(&Scene, RoundsStore)) -> Trips {
    let scene = large_files();
    let repository = scene.repository();
    let places = data_chunks(&repository);
    assert!(places.len() >= 24);
    let packs: std::collections::HashSet<u32> = places.iter().map(|place| place.pack.0).collect();
    assert!(packs.len() <= 2, "{packs:?}");
    trips(&scene, true, ONE_PACK_ROUNDS, act)
}

/// Two to open, listings, catalog, lists; then a chunk, and all that was waiting behind it.
const ONE_PACK_ROUNDS: u64 = 9;

#[test]
fn a_dump_takes_no_more_rounds_however_many_chunks_a_pack_has() {
    let _turn = turn();
    let act = |scene: &Scene, store: RoundsStore| {
        let repository = open(scene, store, FirstLooks::Chunks);
        let newest = snapshots(&repository).pop().unwrap();
        let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
        let (path, mut out) = (path_of(scene, ""), Vec::new());
        let monitor = Recorder::default();
        let dumped = dump_snapshot(&repository, &newest, &path, &scratch, &mut out, &monitor);
        assert_eq!(dumped.unwrap().problems, 0);
        assert!(out.len() > 24 * (900 << 10));
    };
    assert_rounds(&rounds_of_one_pack(act), ONE_PACK_ROUNDS);
}

#[test]
fn a_dump_of_one_file_takes_no_more_rounds_however_long_it_is() {
    let _turn = turn();
    let mut scene = Scene::new();
    scene.write("disk", &noise(1, 24 << 20));
    scene.keep();
    let act = |scene: &Scene, store: RoundsStore| {
        let repository = open(scene, store, FirstLooks::Chunks);
        let newest = snapshots(&repository).pop().unwrap();
        let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
        let (path, mut out) = (path_of(scene, "disk"), Vec::new());
        let monitor = Recorder::default();
        dump_snapshot(&repository, &newest, &path, &scratch, &mut out, &monitor).unwrap();
        assert!(out == noise(1, 24 << 20));
    };
    let trips = trips(&scene, true, ONE_PACK_ROUNDS, act);
    assert_rounds(&trips, ONE_PACK_ROUNDS);
}

#[test]
fn a_new_ext4_takes_no_more_rounds_however_many_chunks_a_pack_has() {
    let _turn = turn();
    let act = |scene: &Scene, store: RoundsStore| {
        let repository = open(scene, store, FirstLooks::Chunks);
        let newest = snapshots(&repository).pop().unwrap();
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("image");
        let to_ext4 = SnapshotToExt4 {
            repository: &repository,
            snapshot: &newest,
            options: RestoreOptions::new(&Everything),
            ext4: SnapshotToExt4::usual_options(&repository).unwrap(),
        };
        let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
        let target = ImageTarget::look_at(&image, false).unwrap();
        let report = to_ext4.restore(target, &scratch, &Recorder::default());
        let restored = report.unwrap().restored;
        assert_eq!((restored.files_written, restored.problems), (24, 0));
    };
    assert_rounds(&rounds_of_one_pack(act), ONE_PACK_ROUNDS);
}

#[test]
fn a_copy_takes_no_more_rounds_however_many_chunks_a_pack_has() {
    let _turn = turn();
    let act = |scene: &Scene, store: RoundsStore| {
        let (source, other) = (open(scene, store, FirstLooks::Nothing), Scene::new());
        let (target, snapshots) = (other.repository(), snapshots(&source));
        let options = CopyOptions::default();
        let copied = copy(&source, &target, &snapshots, &options, &Recorder::default());
        assert!(copied.unwrap().chunks_stored >= 24);
    };
    assert_rounds(&rounds_of_one_pack(act), COPY_ROUNDS);
}

/// Segments and lists are read twice, and nothing is remembered of what was listed.
const COPY_ROUNDS: u64 = 14;

/// A restore that finds its files in place reads none of their chunks.
#[test]
fn what_is_expected_and_not_read_is_not_fetched() {
    let _turn = turn();
    let scene = large_files();
    let store = RoundsStore::at_once(scene.store.fork());
    let repository = open(&scene, store.clone(), FirstLooks::Chunks);
    let places = data_chunks(&repository);
    store.take();
    let chunks = RepositoryChunks::new(repository).unwrap();
    assert!(chunks.is_far_away());
    let ids: Vec<_> = places.iter().map(|place| place.chunk.id).collect();
    chunks.expect(&ids);
    std::thread::sleep(SETTLED);
    assert_eq!(store.take().rounds(), 0);
    let first = &places[0].chunk;
    let bytes = chunks.read(&first.id, ChunkKind::Data).unwrap();
    assert_eq!(bytes.len(), first.plain_bytes as usize);
    drop(chunks);
    let read = store.take();
    let most = 2 * bale_repository::limits::FLIGHT_BYTES as u64;
    assert!(read.bytes_read() > 0 && read.bytes_read() < most);
}

/// Of however many packs: what is sent is looked at once more before it is named.
#[test]
fn packs_are_looked_at_together_before_they_are_named() {
    let _turn = turn();
    const CHUNKS: u64 = 50;
    let scene = Scene::new();
    let store = RoundsStore::over(scene.store.clone());
    let mut repository = Arc::into_inner(scene.open(store.clone()).unwrap()).unwrap();
    let memory = MemoryPlan::USUAL;
    let packs = PackPlan::of_size(PACK_BYTES_MIN, store.shape(), &memory).unwrap();
    repository.set_memory_to_write(memory, packs);
    let writer = ChunkWriter::start(Arc::new(repository), Default::default(), false).unwrap();
    for number in 0..CHUNKS {
        let bytes = noise(number, 1 << 20);
        writer.store(ChunkKind::Data, bytes).unwrap();
    }
    writer.flush().unwrap();
    let trips = store.take();
    let calls = trips.calls.iter();
    let looks = calls.filter(|(_, call)| call.verb == Verb::Stat && call.area == Area::Packs);
    let rounds: Vec<u64> = looks.map(|(round, _)| *round).collect();
    assert!(rounds.len() as u64 >= CHUNKS / 4, "{}", trips.story());
    let apart = rounds.iter().collect::<BTreeSet<_>>().len();
    assert!(
        apart <= rounds.len() / 2,
        "{apart} rounds:\n{}",
        trips.story()
    );
}
