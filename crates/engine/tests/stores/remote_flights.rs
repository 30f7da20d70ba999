//! Chunks that are fetched before they are read: whatever becomes of a fetch, whoever reads gets
//! the chunk or is told what is wrong, and nobody waits for ever.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bale_engine::restore::RepositoryChunks;
use bale_format::{ChunkId, ChunkKind, ChunkPlace};
use bale_repository::store::{Area, Store};
use bale_restore::ChunkSource;
use bale_testkit::scene::noise;
use bale_testkit::{Effect, FaultyStore, HookedStore, InjectedFault, RoundsStore, Scene, Verb};
use bytes::Bytes;

/// A dozen large files and some small ones, in a few packs.
fn scene() -> Scene {
    let mut scene = Scene::new();
    for backup in 0..3 {
        for number in 0..4 {
            let bytes = noise(backup * 100 + number, 700 << 10);
            scene.write(&format!("large-{backup}-{number}"), &bytes);
        }
        scene.write(&format!("small-{backup}"), &noise(backup, 5_000));
        scene.keep();
    }
    scene
}

/// Chunks of files in the order of their places, and what they are.
fn contents(scene: &Scene) -> (Vec<ChunkId>, HashMap<ChunkId, Bytes>) {
    let repository = scene.repository();
    let index = repository.index().unwrap();
    let mut places: Vec<ChunkPlace> = index.entries().to_vec();
    places.retain(|place| place.chunk.kind == ChunkKind::Data);
    places.sort_by_key(ChunkPlace::sort_key);
    let ids: Vec<ChunkId> = places.iter().map(|place| place.chunk.id).collect();
    let read = |id: &ChunkId| (*id, repository.read_chunk(id, ChunkKind::Data).unwrap());
    let contents = ids.iter().map(read).collect();
    (ids, contents)
}

/// Far away, and everything comes at once. What opens the repository is read before anything goes
/// wrong.
fn chunks_of(scene: &Scene, store: impl Store + 'static) -> RepositoryChunks {
    let repository = scene.open(store).unwrap();
    repository.index().unwrap();
    let chunks = RepositoryChunks::new(repository).unwrap();
    assert!(chunks.is_far_away());
    chunks
}

fn far(scene: &Scene) -> RoundsStore {
    RoundsStore::at_once(scene.store.fork())
}

/// Reads all, by three threads; how many came.
fn read_all(
    chunks: &RepositoryChunks,
    (ids, contents): &(Vec<ChunkId>, HashMap<ChunkId, Bytes>),
    story: &str,
) -> usize {
    chunks.expect(ids);
    let next = AtomicU64::new(0);
    let came = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(id) = ids.get(next.fetch_add(1, Ordering::SeqCst) as usize) {
                    if let Ok(bytes) = chunks.read(id, ChunkKind::Data) {
                        assert_eq!(bytes, contents[id], "{story}");
                        came.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    came.into_inner() as usize
}

#[test]
fn a_fetch_that_fails_or_brings_other_bytes_is_made_again_by_whoever_reads() {
    let scene = scene();
    let all = contents(&scene);
    let effects = [
        Effect::Fail(ErrorKind::TimedOut),
        Effect::FailAfterwards(ErrorKind::Other),
        Effect::CutShort(9),
        Effect::FlipBit(80_000),
    ];
    for effect in effects {
        for after in 0..8 {
            let store = FaultyStore::over(far(&scene));
            let chunks = chunks_of(&scene, store.clone());
            let fault = InjectedFault::new(effect).of(Verb::ReadAt);
            store.inject(fault.within(Area::Packs).after(after));
            let story = format!("{effect:?} at read {after}");
            let came = read_all(&chunks, &all, &story);
            // The fault may strike the one who reads again.
            assert!(came + 1 >= all.0.len(), "{story}: {came}");
        }
    }
}

#[test]
fn while_nothing_answers_every_reader_is_told_and_nobody_waits() {
    let scene = scene();
    let all = contents(&scene);
    let store = FaultyStore::over(far(&scene));
    let chunks = chunks_of(&scene, store.clone());
    let down = InjectedFault::new(Effect::Fail(ErrorKind::ConnectionReset));
    store.inject(down.of(Verb::ReadAt).within(Area::Packs).for_ever());
    assert_eq!(read_all(&chunks, &all, "down"), 0);
    let told = chunks.read(&all.0[0], ChunkKind::Data).unwrap_err();
    assert!(told.to_string().contains("pack"), "{told}");
    // And when it answers again, all come.
    store.heal();
    assert_eq!(read_all(&chunks, &all, "up again"), all.0.len());
}

#[test]
fn a_thread_that_panics_while_it_fetches_leaves_nobody_waiting() {
    let scene = scene();
    let all = contents(&scene);
    for panics in [1, 3, u64::MAX] {
        let left = Arc::new(AtomicU64::new(0));
        let store = {
            let left = left.clone();
            HookedStore::over(far(&scene), move |call| {
                let thread = std::thread::current();
                let is_fetching = thread.name().is_some_and(|name| name.starts_with("fetch-"));
                let is_struck = is_fetching && call.verb == Verb::ReadAt;
                let take = |left: u64| left.checked_sub(1);
                let order = Ordering::SeqCst;
                if is_struck && left.fetch_update(order, order, take).is_ok() {
                    panic!("a store that panics");
                }
            })
        };
        let chunks = chunks_of(&scene, store);
        left.store(panics, Ordering::SeqCst);
        let came = read_all(&chunks, &all, "panics");
        assert_eq!(came, all.0.len(), "{panics} panics");
        drop(chunks);
    }
}

/// Who reads may come in any order, ask for what was never expected, and leave out the rest.
#[test]
fn whatever_order_chunks_are_read_in_they_are_what_they_are() {
    let scene = scene();
    let (ids, contents) = contents(&scene);
    for step in [1, 3, 7] {
        let chunks = chunks_of(&scene, far(&scene));
        let (expected, not) = ids.split_at(ids.len() * 2 / 3);
        chunks.expect(expected);
        chunks.expect(expected);
        let orders = expected.iter().rev().step_by(step).chain(not);
        for id in orders.chain(ids.iter().step_by(step)) {
            assert_eq!(chunks.read(id, ChunkKind::Data).unwrap(), contents[id]);
        }
    }
}

/// One that an index calls something else is not handed out as content.
#[test]
fn a_chunk_of_another_kind_is_no_content_also_when_it_was_expected() {
    let scene = scene();
    let chunks = chunks_of(&scene, far(&scene));
    let repository = scene.repository();
    let index = repository.index().unwrap();
    let segment = index.entries().iter();
    let segment = segment.map(|place| place.chunk);
    let segment = segment
        .clone()
        .find(|chunk| chunk.kind == ChunkKind::Segment);
    let id = segment.unwrap().id;
    chunks.expect(&[id]);
    assert!(chunks.read(&id, ChunkKind::Data).is_err());
}
