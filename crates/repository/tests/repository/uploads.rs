//! Packs that a store takes whole leave beside the work: who reads and encodes waits only while as
//! many are on their way as there may be, what fails fails the run, and the next one sends what is
//! missing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bale_format::ChunkKind;
use bale_pipeline::memory::MemoryPlan;
use bale_repository::error::Error;
use bale_repository::pack::{ChunkWriter, PackPlan};
use bale_repository::repository::Repository;
use bale_repository::store::{Area, Store};
use bale_testkit::scene::noise;
use bale_testkit::{
    DatedStore, Effect, FaultyStore, InjectedFault, RecordingStore, Scene, Verb, WholeStore,
};

/// The least that can be wanted.
const PACK_BYTES: u64 = 4 << 20;
const CHUNK_BYTES: usize = 1 << 20;
/// Chunks in a pack: with heads and a trailer four would be more than it may have.
const CHUNKS_A_PACK: u64 = 3;
/// Nothing that is waited for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Opens the scene's repository in a store, with small packs.
fn open(scene: &Scene, store: impl Store + 'static) -> Arc<Repository> {
    let shape = store.shape();
    let repository = scene.open(store).expect("a repository");
    let mut repository = Arc::into_inner(repository).expect("nobody else has it");
    let memory = MemoryPlan::USUAL;
    let packs = PackPlan::of_size(PACK_BYTES, shape, &memory).expect("small packs fit");
    repository.set_memory_to_write(memory, packs);
    Arc::new(repository)
}

fn store_chunk(writer: &ChunkWriter, number: u64) -> Result<(), Error> {
    let bytes = noise(1000 + number, CHUNK_BYTES);
    writer.store(ChunkKind::Data, bytes).map(|_| ())
}

fn wait_until(holds: impl Fn() -> bool, what: &str) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn readers_go_on_while_three_packs_are_on_their_way_and_wait_at_the_fourth() {
    let scene = Scene::new();
    let (store, gate) = WholeStore::over(scene.store.clone()).gated();
    let repository = open(&scene, store);
    let workers = repository.memory().workers() as u64;
    let writer = ChunkWriter::start(repository, Default::default(), false).unwrap();
    // Three on their way, and the fourth is full.
    let held = 4 * CHUNKS_A_PACK;
    // In the hands of an encoder, in the queue, and in the hands of who stores.
    let elsewhere = 2 * workers + 1;
    let (accepted, passed) = (AtomicU64::new(0), AtomicU64::new(0));
    let chunks = 3 * held;
    std::thread::scope(|scope| {
        // Also if an assertion fails: then nobody waits any more.
        let gate = gate;
        let storing = scope.spawn(|| {
            for number in 0..chunks {
                store_chunk(&writer, number).unwrap();
                let accepted = accepted.fetch_add(1, Ordering::SeqCst) + 1;
                let passed = passed.load(Ordering::SeqCst);
                let room = held + passed * CHUNKS_A_PACK + elsewhere;
                assert!(accepted <= room, "{accepted} with {passed} packs gone");
            }
        });
        let at_least = |chunks| accepted.load(Ordering::SeqCst) >= chunks;
        wait_until(|| at_least(held), "the readers wait too early");
        // All three go at once.
        gate.wait_for(3);
        assert_eq!(gate.arrived(), 3);
        for gone in 1..=3 {
            passed.store(gone, Ordering::SeqCst);
            gate.let_pass(1);
            let more = held + gone * CHUNKS_A_PACK;
            wait_until(|| at_least(more), "nobody goes on when a pack has left");
        }
        passed.store(chunks, Ordering::SeqCst);
        gate.open();
        storing.join().unwrap();
    });
    let counts = writer.finish().unwrap();
    assert_eq!(counts.chunks_new, chunks);
    assert_eq!(
        scene.store.names(Area::Packs).len() as u64,
        chunks.div_ceil(CHUNKS_A_PACK)
    );
}

#[test]
fn a_flush_returns_when_everything_is_durable_and_named() {
    let scene = Scene::new();
    let recording = RecordingStore::over(scene.store.clone());
    let repository = open(&scene, WholeStore::over(recording.clone()));
    let writer = ChunkWriter::start(repository.clone(), Default::default(), false).unwrap();
    for number in 0..10 {
        store_chunk(&writer, number).unwrap();
    }
    writer.store(ChunkKind::Segment, noise(7, 5_000)).unwrap();
    writer.flush().unwrap();
    let index = repository.reload_index().unwrap();
    assert_eq!(index.entries().len(), 11);
    // Index objects only after the packs that they name.
    let calls = recording.calls();
    let put =
        |area: Area| move |call: &&bale_testkit::Call| call.verb == Verb::Put && call.area == area;
    let last_pack = calls
        .iter()
        .rposition(|call| put(Area::Packs)(&call))
        .unwrap();
    let first_index = calls
        .iter()
        .position(|call| put(Area::Index)(&call))
        .unwrap();
    assert!(last_pack < first_index, "{calls:?}");
    for place in index.entries() {
        repository
            .read_place(&index, place.chunk.kind, place)
            .unwrap();
    }
    // And it goes on after that.
    store_chunk(&writer, 10).unwrap();
    assert_eq!(writer.finish().unwrap().chunks_new, 12);
    assert!(scene.check(&scene.store).unwrap().is_clean());
}

#[test]
fn what_is_large_goes_to_a_pack_of_its_own() {
    let scene = Scene::new();
    let repository = open(&scene, WholeStore::over(scene.store.clone()));
    let writer = ChunkWriter::start(repository, Default::default(), false).unwrap();
    for number in 0..3 {
        let large = noise(number, 5 << 20);
        writer.store(ChunkKind::Data, large).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(scene.store.names(Area::Packs).len(), 3);
    assert!(scene.check(&scene.store).unwrap().is_clean());
}

/// A tree of several packs.
fn write_packs(scene: &Scene) {
    scene.write_tree();
    for number in 0..12 {
        scene.write(&format!("many/{number}"), &noise(100 + number, 1_200_000));
    }
}

#[test]
fn an_error_of_any_put_fails_the_run_and_the_next_one_is_whole() {
    let scene = Scene::new();
    write_packs(&scene);
    for effect in [Effect::Fail, Effect::FailAfterwards] {
        let mut puts = 0;
        loop {
            let store = scene.store.fork();
            let faulty = FaultyStore::over(store.clone());
            faulty.inject(
                InjectedFault::new(effect(io::ErrorKind::Other))
                    .of(Verb::Put)
                    .after(puts),
            );
            let story = format!("put {puts} of {:?}", effect(io::ErrorKind::Other));
            let repository = open(&scene, WholeStore::over(faulty));
            let done = scene.backup(&repository);
            drop(repository);
            let is_through = done.is_ok();
            if let Err(error) = done {
                assert!(matches!(error, Error::Store(_)), "{story}: {error}");
                assert!(
                    store.names(Area::Snapshots).is_empty()
                        || effect(io::ErrorKind::Other)
                            == Effect::FailAfterwards(io::ErrorKind::Other),
                    "{story}"
                );
                let again = open(&scene, WholeStore::over(store.clone()));
                scene.backup(&again).expect(&story);
            }
            let report = scene.check(&store).expect(&story);
            assert!(report.is_clean(), "{story}: {report:?}");
            if is_through {
                break;
            }
            puts += 1;
        }
        assert!(puts > 6, "{puts}");
    }
}

#[test]
fn a_backup_killed_at_any_call_leaves_what_the_next_goes_on_from() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    scene.write("new/a", &noise(4, 700_000));
    scene.write("new/b", &noise(5, 700));
    for after in 0.. {
        let store = scene.store.fork();
        let faulty = FaultyStore::over(store.clone());
        faulty.crash_after(after, after % 2 == 0);
        let opened = scene.open(WholeStore::over(faulty.clone()));
        let done = opened.and_then(|repository| scene.backup(&repository));
        let story = format!("killed at call {after}");
        assert!(done.is_ok() || faulty.crashed(), "{story}: {done:?}");
        scene.assert_sound(&store, &story);
        if !faulty.crashed() {
            assert!(after > 10, "{after}");
            break;
        }
    }
}

/// Bytes of packs that a store holds.
fn pack_bytes(store: &DatedStore) -> u64 {
    let mut bytes = 0;
    let found = store.list(Area::Packs, &mut |info| bytes += info.len);
    found.expect("a listing in memory");
    bytes
}

#[test]
fn when_the_store_dies_the_next_run_goes_on_and_sends_only_what_is_missing() {
    let scene = Scene::new();
    write_packs(&scene);
    let whole = scene.store.fork();
    let repository = open(&scene, WholeStore::over(whole.clone()));
    scene.backup(&repository).unwrap();
    let packs = whole.names(Area::Packs).len() as u64;
    assert!(packs > 4, "{packs}");
    // Nobody takes packs any more, or nobody answers any more.
    for only_packs in [true, false] {
        for after in 0..packs {
            let store = scene.store.fork();
            let faulty = FaultyStore::over(store.clone());
            let dead = InjectedFault::new(Effect::Fail(io::ErrorKind::TimedOut));
            let dead = dead.of(Verb::Put).for_ever();
            faulty.inject(match only_packs {
                true => dead.within(Area::Packs).after(after),
                false => dead.after(after),
            });
            let story = format!("dead after {after}, packs alone: {only_packs}");
            let repository = open(&scene, WholeStore::over(faulty.clone()));
            match scene.backup(&repository) {
                Err(Error::Store(error)) => assert!(error.may_pass(), "{story}: {error}"),
                other => panic!("{story}: {other:?}"),
            }
            drop(repository);
            let durable = pack_bytes(&store);
            let again = open(&scene, WholeStore::over(store.clone()));
            let outcome = scene.backup(&again).expect(&story);
            assert!(outcome.id.is_some(), "{story}");
            if only_packs {
                // What is durable was named, and is not sent again: only the packs are cut
                // otherwise.
                let room = whole_room(&whole);
                let uploaded = outcome.uploads.bytes;
                assert!(
                    durable + uploaded <= room,
                    "{story}: {durable} + {uploaded}"
                );
                assert_eq!(durable + uploaded, pack_bytes(&store), "{story}");
            }
            let report = scene.check(&store).expect(&story);
            assert!(report.is_clean(), "{story}: {report:?}");
        }
    }
}

/// What a tree may take in packs that are cut at other places.
fn whole_room(whole: &DatedStore) -> u64 {
    pack_bytes(whole) * 102 / 100 + 64 * 1024
}

#[test]
fn every_transfer_of_a_run_is_in_its_record() {
    let scene = Scene::new();
    write_packs(&scene);
    let repository = open(&scene, WholeStore::over(scene.store.clone()));
    let outcome = scene.backup(&repository).unwrap();
    let snapshot = scene.repository().snapshots().unwrap().remove(0).1;
    let transfers = &snapshot.transfers;
    assert_eq!(transfers.each, 1);
    assert_eq!(transfers.list.len() as u64, outcome.uploads.uploads);
    assert_eq!(transfers.list.len(), scene.store.names(Area::Packs).len());
    let bytes: u64 = transfers.list.iter().map(|transfer| transfer.bytes).sum();
    assert_eq!(
        (bytes, bytes),
        (pack_bytes(&scene.store), outcome.uploads.bytes)
    );
    assert!(transfers.list.iter().all(|transfer| transfer.tries == 1));
    // What is streamed to a disk is no transfer.
    scene.write("more", &noise(9, 5_000));
    let local = scene.backup(&scene.repository()).unwrap();
    assert!(local.snapshot.transfers.is_empty());
}
