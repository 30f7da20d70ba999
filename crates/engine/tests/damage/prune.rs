//! Prunes of damaged repositories: what restored before restores afterwards, whichever copy is the
//! damaged one.

use std::sync::Arc;
use std::time::Duration;

use bale_engine::prune::{self, PackFate, PlannedPack, PruneOptions, Pruned};
use bale_format::{ChunkKind, ChunkPlace, ObjectId};
use bale_pipeline::monitor::Recorder;
use bale_repository::index::ChunkIndex;
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::{Named, Repository};
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, Scene, Tree};

const GRACE: Duration = Duration::from_secs(3600);

/// Snapshots that restore exactly to what was kept of them, or to what the source holds now.
fn restorable(scene: &Scene, store: &DatedStore) -> Vec<ObjectId> {
    let repository = scene.open(store.clone()).unwrap();
    let (snapshots, _) = repository.snapshots_readable().unwrap();
    let now = Tree::read(&scene.source());
    let whole = |named: &&Named| {
        let kept = scene.kept.iter().find(|(id, _)| *id == named.0);
        let expected = kept.map_or(&now, |(_, tree)| tree);
        let monitor = Recorder::default();
        let (tree, report) = scene.restore(&repository, named, &monitor);
        report.is_ok() && tree.differences(expected).is_empty()
    };
    snapshots
        .iter()
        .filter(whole)
        .map(|named| named.0)
        .collect()
}

/// What a prune by a new process does and says.
fn pruned(scene: &Scene, store: &DatedStore) -> (Result<Pruned, String>, Recorder) {
    let monitor = Recorder::default();
    let options = PruneOptions {
        grace: GRACE,
        repack_below_percent: 60,
    };
    let repository = scene.open(store.clone()).unwrap();
    let done = prune::plan(&repository, &options, &monitor)
        .and_then(|plan| prune::apply(&repository, &plan, &options, &monitor));
    (done.map_err(|error| error.to_string()), monitor)
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Cut,
    Empty,
    Flip(usize),
    Remove,
}

fn damage(store: &DatedStore, pack: &ObjectName, how: Damage) {
    let mut bytes = store.memory().objects().remove(pack).unwrap();
    match how {
        Damage::Cut => bytes.truncate(bytes.len() - bytes.len() / 10 - 1),
        Damage::Empty => bytes.clear(),
        Damage::Flip(permille) => {
            let at = bytes.len() * permille / 1000;
            bytes[at] ^= 1;
        }
        Damage::Remove => {
            store.delete(pack).unwrap();
            return;
        }
    }
    store.memory().overwrite(pack, bytes);
}

fn several_packs() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("large noise", &noise(1, 700_000));
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 9_000));
    scene.write("new/d", b"a new file");
    scene.keep();
    scene
}

/// The chunks that these packs hold, a second time, in packs of their own.
fn store_again(repository: &Arc<Repository>, is_wanted: impl Fn(&ObjectId) -> bool) {
    store_places_again(repository, |index, place| {
        is_wanted(&index.pack(place.pack).id)
    });
}

fn store_places_again(
    repository: &Arc<Repository>,
    is_wanted: impl Fn(&ChunkIndex, &ChunkPlace) -> bool,
) {
    let index = repository.reload_index().unwrap();
    let writer = ChunkWriter::start(repository.clone(), Default::default(), false).unwrap();
    for place in index.entries() {
        if is_wanted(&index, place) {
            let (id, kind) = (place.chunk.id, place.chunk.kind);
            let bytes = repository.read_chunk_uncached(&id, kind).unwrap();
            writer.store_again(kind, id, bytes.into()).unwrap();
        }
    }
    writer.finish().unwrap();
}

const DAMAGES: [Damage; 7] = [
    Damage::Cut,
    Damage::Empty,
    Damage::Flip(20),
    Damage::Flip(300),
    Damage::Flip(600),
    Damage::Flip(870),
    Damage::Remove,
];

/// Prunes, each after the grace period of the one before: whatever restored before the first
/// restores after each, and what was left alone is named. Tells how many packs were deleted.
fn prunes_take_nothing(scene: &Scene, store: &DatedStore, story: &str) -> u64 {
    let before = restorable(scene, store);
    let mut deleted = 0;
    for round in 0..4 {
        let (done, monitor) = pruned(scene, store);
        match &done {
            Ok(pruned) => {
                deleted += pruned.packs_deleted;
                let named = monitor.problems.lock().unwrap();
                assert_eq!(pruned.problems as usize, named.len(), "{story}: {named:?}");
            }
            Err(text) => assert!(text.contains("bale forget"), "{story}: {text}"),
        }
        let after = restorable(scene, store);
        assert_eq!(after, before, "{story}, prune {round}: {done:?}");
        scene.clock.advance(2 * GRACE);
    }
    deleted
}

/// Each pack is damaged in turn, a backup heals what it can, and prunes follow, with the older
/// snapshots and without.
#[test]
fn whatever_pack_is_damaged_prunes_take_nothing_that_restored_before_them() {
    let scene = several_packs();
    let mut deleted = 0;
    for pack in scene.store.names(Area::Packs) {
        for (how, forgets) in DAMAGES
            .into_iter()
            .flat_map(|how| [(how, false), (how, true)])
        {
            let store = scene.store.fork();
            damage(&store, &pack, how);
            let repository = scene.open(store.clone()).unwrap();
            scene.backup(&repository).unwrap();
            for (id, _) in scene.kept.iter().filter(|_| forgets) {
                repository.forget_snapshot(*id).unwrap();
            }
            let story = format!("{pack}, {how:?}, older ones forgotten: {forgets}");
            deleted += prunes_take_nothing(&scene, &store, &story);
        }
    }
    assert!(
        deleted > 0,
        "{deleted}: what is damaged and not needed goes"
    );
}

/// Two packs hold the same chunks, and one of both is damaged, whichever: its chunks are had from
/// the other for ever.
#[test]
fn of_two_copies_the_one_that_reads_stays() {
    let scene = several_packs();
    for pack in scene.store.names(Area::Packs) {
        let twice = scene.store.fork();
        store_again(&scene.open(twice.clone()).unwrap(), |other| {
            Some(*other) == pack.id()
        });
        let copies = twice.names(Area::Packs);
        let copies = copies
            .iter()
            .filter(|name| !scene.store.names(Area::Packs).contains(name));
        for damaged in copies.chain([&pack]) {
            for how in [
                Damage::Flip(100),
                Damage::Flip(500),
                Damage::Cut,
                Damage::Remove,
            ] {
                let store = twice.fork();
                damage(&store, damaged, how);
                scene.clock.advance(2 * GRACE);
                for round in 0..3 {
                    let (done, _) = pruned(&scene, &store);
                    assert!(done.is_ok(), "{damaged}, {how:?}, prune {round}: {done:?}");
                    scene.assert_restorable(&store, &format!("{damaged}, {how:?}, prune {round}"));
                    scene.clock.advance(2 * GRACE);
                }
                // What nobody uses may be damaged still: a prune is no check.
                let report = scene.check(&store).unwrap();
                assert_eq!(report.lost_count, 0, "{damaged}, {how:?}: {report:?}");
            }
        }
    }
}

fn flipped(store: &DatedStore, place: &ChunkPlace, pack: ObjectId) -> DatedStore {
    let store = store.fork();
    let name = ObjectName::pack(pack);
    let mut bytes = store.memory().objects().remove(&name).unwrap();
    let range = place.chunk.range();
    bytes[(range.start + range.end) as usize / 2] ^= 1;
    store.memory().overwrite(&name, bytes);
    store
}

/// Six files, five of which only a forgotten snapshot has, and a pack of which little is used: the
/// sixth. Which chunks share a pack is a matter of threads.
fn with_a_pack_to_repack() -> (Scene, ObjectId) {
    loop {
        let mut scene = Scene::new();
        for number in 0..6 {
            scene.write(&format!("file {number}"), &noise(number, 600_000));
        }
        let first = scene.keep();
        for number in 1..6 {
            std::fs::remove_file(scene.source().join(format!("file {number}"))).unwrap();
        }
        scene.keep();
        scene.kept.retain(|(id, _)| *id != first);
        scene.repository().forget_snapshot(first).unwrap();
        scene.clock.advance(2 * GRACE);
        let options = PruneOptions {
            grace: GRACE,
            repack_below_percent: 60,
        };
        let repository = scene.repository();
        let plan = prune::plan(&repository, &options, &Recorder::default()).unwrap();
        let little_used =
            |pack: &&PlannedPack| pack.fate == PackFate::Repack && pack.used > 500_000;
        if let Some(pack) = plan.packs.iter().find(little_used) {
            return (scene, pack.id);
        }
    }
}

/// A chunk in use of a pack to be repacked does not read: the pack is named and stays, the others
/// are pruned. A backup then stores the chunk again, and the pack goes.
#[test]
fn a_pack_that_cannot_be_repacked_is_left_alone_until_a_backup_has_healed_it() {
    let (scene, little_used) = with_a_pack_to_repack();
    let index = scene.repository().reload_index().unwrap();
    let mut left_alone = 0;
    for place in index.entries() {
        let pack = index.pack(place.pack).id;
        if place.chunk.kind != ChunkKind::Data || pack != little_used {
            continue;
        }
        let store = flipped(&scene.store, place, pack);
        let story = format!("chunk {} flipped", place.chunk.id);
        scene.forget_newest_seen();
        let mut problems = 0;
        for _ in 0..3 {
            let (done, monitor) = pruned(&scene, &store);
            problems = done.expect(&story).problems;
            assert_eq!(problems as usize, monitor.problems.lock().unwrap().len());
            scene.clock.advance(2 * GRACE);
        }
        let is_there = store.stat(&ObjectName::pack(pack)).unwrap().is_some();
        if problems == 0 {
            scene.assert_sound(&store, &story);
            continue;
        }
        left_alone += 1;
        assert!(problems == 1 && is_there, "{story}: {problems}");
        scene.backup(&scene.open(store.clone()).unwrap()).unwrap();
        for _ in 0..3 {
            let (done, _) = pruned(&scene, &store);
            problems = done.expect(&story).problems;
            scene.clock.advance(2 * GRACE);
        }
        assert_eq!(problems, 0, "{story}, healed");
        assert!(
            store.stat(&ObjectName::pack(pack)).unwrap().is_none(),
            "{story}"
        );
        assert!(
            store.names(Area::Damaged).is_empty(),
            "{story}: marks of what is gone go"
        );
        scene.assert_sound(&store, &format!("{story}, healed"));
    }
    assert!(left_alone >= 1, "something in the pack is in use");
}

/// The good copy of a chunk is in a pack that no index names any more: it is stored again before
/// that pack goes.
#[test]
fn a_pack_without_a_name_is_asked_for_what_reads_nowhere_else() {
    let scene = several_packs();
    let nameless: Vec<ObjectId> = scene
        .store
        .names(Area::Packs)
        .iter()
        .filter_map(|name| name.id())
        .collect();
    let indexes = scene.store.names(Area::Index);
    store_again(&scene.repository(), |pack| nameless.contains(pack));
    indexes
        .iter()
        .for_each(|name| scene.store.delete(name).unwrap());
    scene.clock.advance(2 * GRACE);
    let index = scene.repository().reload_index().unwrap();
    let mut tried = 0;
    for place in index.entries() {
        // Without its catalogs a prune refuses: it cannot know what is in use.
        if place.chunk.kind != ChunkKind::Data {
            continue;
        }
        tried += 1;
        let store = flipped(&scene.store, place, index.pack(place.pack).id);
        for _ in 0..3 {
            pruned(&scene, &store).0.unwrap();
            scene.clock.advance(2 * GRACE);
        }
        let story = format!("chunk {} read in a pack without a name", place.chunk.id);
        scene.assert_restorable(&store, &story);
        let still = store.names(Area::Packs);
        assert!(
            nameless
                .iter()
                .all(|pack| !still.contains(&ObjectName::pack(*pack))),
            "{story}"
        );
    }
    assert!(tried > 1);
}

/// A pack in which nothing opens was held for ever, and ended every prune with 3.
#[test]
fn a_pack_without_a_name_in_which_nothing_opens_goes_by_its_whole_id() {
    let scene = several_packs();
    let before = scene.store.names(Area::Packs);
    let indexes = scene.store.names(Area::Index);
    store_again(&scene.repository(), |_| true);
    let store = scene.store.fork();
    indexes.iter().for_each(|name| store.delete(name).unwrap());
    let (lost, readable) = (before[0], before[1]);
    let mut bytes = store.get(&lost, 1 << 30).unwrap();
    bytes.iter_mut().skip(16).for_each(|byte| *byte ^= 1);
    store.memory().overwrite(&lost, bytes);
    scene.clock.advance(2 * GRACE);
    let id = |name: &ObjectName| name.id().unwrap().to_string();
    pruned(&scene, &store).0.unwrap();
    scene.clock.advance(2 * GRACE);
    let (held, problems) = pruned(&scene, &store);
    assert_eq!(held.unwrap().problems, 1);
    let problems = problems.problems.lock().unwrap();
    assert!(
        problems[0]
            .text
            .contains(&format!("bale forget {}", id(&lost))),
        "{problems:?}"
    );
    let repository = scene.open(store.clone()).unwrap();
    let packs = store.names(Area::Packs);
    let named = packs.iter().find(|pack| !before.contains(pack)).unwrap();
    for other in [&id(&lost)[..20], &id(&readable), &id(named)] {
        assert!(
            bale_engine::forget::find(&repository, other).is_err(),
            "{other}"
        );
    }
    let found = bale_engine::forget::find(&repository, &id(&lost)).unwrap();
    assert_eq!(found.name, lost);
    bale_engine::forget::remove(&repository, &found).unwrap();
    assert!(!store.names(Area::Packs).contains(&lost));
    assert_eq!(pruned(&scene, &store).0.unwrap().problems, 0);
    scene.assert_restorable(&store, "the pack is gone");
}

/// A prune that was stopped while it deleted leaves such packs. The one that deleted them condemned
/// them once more, and said that a later prune would give their bytes back.
#[test]
fn a_pack_without_a_name_is_condemned_once() {
    let scene = several_packs();
    let packs = scene.store.names(Area::Packs).len() as u64;
    let indexes = scene.store.names(Area::Index);
    store_again(&scene.repository(), |_| true);
    let store = &scene.store;
    indexes.iter().for_each(|name| store.delete(name).unwrap());
    scene.clock.advance(2 * GRACE);
    let first = pruned(&scene, store).0.unwrap();
    assert_eq!((first.packs_condemned, first.packs_deleted), (packs, 0));
    scene.clock.advance(2 * GRACE);
    let second = pruned(&scene, store).0.unwrap();
    assert_eq!((second.packs_condemned, second.packs_deleted), (0, packs));
    assert_eq!(store.names(Area::Condemned), []);
    scene.assert_sound(store, "packs without a name are gone");
}

/// A snapshot of one small file, whose content is moved to a pack of its own.
fn keep_content_apart(scene: &mut Scene) -> (ObjectId, ObjectName) {
    scene.write("only before", &noise(1, 9_000));
    let snapshot = scene.keep();
    let store = &scene.store;
    let (packs, indexes) = (store.names(Area::Packs), store.names(Area::Index));
    let was_there = |index: &ChunkIndex, place: &ChunkPlace| {
        packs.contains(&ObjectName::pack(index.pack(place.pack).id))
    };
    let is_content = |place: &ChunkPlace| place.chunk.kind == ChunkKind::Data;
    store_places_again(&scene.repository(), |index, place| {
        was_there(index, place) && is_content(place)
    });
    let content = store.names(Area::Packs);
    let content = content.iter().find(|pack| !packs.contains(pack)).unwrap();
    store_places_again(&scene.repository(), |index, place| {
        was_there(index, place) && !is_content(place)
    });
    for name in indexes.iter().chain(&packs) {
        store.delete(name).unwrap();
    }
    (snapshot, *content)
}

/// Prunes and backups ended with 0, and without a word, while files of older snapshots were gone.
#[test]
fn a_pack_in_use_that_is_gone_is_named_by_every_prune_and_noted_by_every_backup() {
    let mut scene = Scene::new();
    let (older, pack) = keep_content_apart(&mut scene);
    std::fs::remove_file(scene.source().join("only before")).unwrap();
    scene.write("other", b"stays");
    scene.keep();
    let store = scene.store.fork();
    damage(&store, &pack, Damage::Remove);
    let backup_notes = || {
        let monitor = Recorder::default();
        let repository = scene.open(store.clone()).unwrap();
        let outcome = scene.backup_with(&repository, &Default::default(), &monitor);
        assert_eq!(outcome.unwrap().snapshot.counts.problems, 0);
        let notes = monitor.notes.into_inner().unwrap();
        notes
            .iter()
            .filter(|note| note.contains("not in the repository"))
            .count()
    };
    for _ in 0..3 {
        scene.clock.advance(2 * GRACE);
        let (done, monitor) = pruned(&scene, &store);
        let done = done.unwrap();
        assert_eq!((done.problems, done.packs_gone), (1, 1));
        let problems = monitor.problems.lock().unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].path, pack.path().into_bytes());
        assert!(problems[0].text.contains("bale check"), "{problems:?}");
        assert_eq!(backup_notes(), 1);
    }
    let repository = scene.open(store.clone()).unwrap();
    repository.forget_snapshot(older).unwrap();
    scene.forget_newest_seen();
    for _ in 0..2 {
        scene.clock.advance(2 * GRACE);
        let done = pruned(&scene, &store).0.unwrap();
        assert_eq!((done.problems, done.packs_gone), (0, 0), "nobody uses it");
    }
    assert_eq!(backup_notes(), 0, "and no index names it");
}

/// The source has it still: the next backup stores it again, and nothing is lost.
#[test]
fn a_pack_that_is_gone_and_stored_again_is_no_trouble_of_a_prune() {
    let mut scene = Scene::new();
    let (_, pack) = keep_content_apart(&mut scene);
    damage(&scene.store, &pack, Damage::Remove);
    assert_eq!(pruned(&scene, &scene.store).0.unwrap().packs_gone, 1);
    scene.keep();
    for _ in 0..2 {
        scene.clock.advance(2 * GRACE);
        assert_eq!(pruned(&scene, &scene.store).0.unwrap().problems, 0);
    }
    scene.assert_sound(&scene.store, "stored again");
}
