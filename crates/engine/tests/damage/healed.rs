//! One damaged chunk of any kind: found, healed by the next backup from what the source still has,
//! and never relied on by a backup that is acknowledged after it was found.

use std::collections::BTreeMap;
use std::sync::Arc;

use bale_engine::backup::BackupOptions;
use bale_engine::repair::{repair_index, repair_packs};
use bale_engine::verify::{CheckReport, Subset, check, mark};
use bale_format::pack::PACK_FOOTER_BYTES;
use bale_format::{ChunkKind, ChunkPlace, ObjectId};
use bale_pipeline::monitor::Recorder;
use bale_repository::error::Result;
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::scene::{noise, periodic};
use bale_testkit::{DatedStore, Scene, Tree};

/// A snapshot with a chunk of every kind, and after it one of a changed tree.
fn two_snapshots() -> Scene {
    let mut scene = one_snapshot();
    scene.write("b.txt", b"other bytes than before\n");
    scene.keep();
    scene
}

fn one_snapshot() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("noise", &noise(7, 1_200_000));
    let named = scene.source().join("a.txt");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&named, "user.large", &noise(8, 900), flags).unwrap();
    scene.keep();
    scene
}

struct Damaged {
    store: DatedStore,
    place: ChunkPlace,
    pack: ObjectId,
    story: String,
}

/// The repository once for each of its chunks, with a byte of that one turned round.
fn with_each_chunk_damaged(scene: &Scene) -> Vec<Damaged> {
    let index = scene.repository().index().unwrap();
    let mut kinds: BTreeMap<u8, usize> = BTreeMap::new();
    let all: Vec<_> = (index.entries().iter())
        .map(|place| {
            *kinds.entry(place.chunk.kind as u8).or_default() += 1;
            let pack = index.pack(place.pack).id;
            let store = scene.store.fork();
            let name = ObjectName::pack(pack);
            let mut bytes = store.get(&name, 1 << 30).unwrap();
            let range = place.chunk.range();
            bytes[((range.start + range.end) / 2) as usize] ^= 4;
            store.memory().overwrite(&name, bytes);
            Damaged {
                store,
                place: *place,
                pack,
                story: format!("a chunk of {:?}", place.chunk.kind),
            }
        })
        .collect();
    assert!(kinds[&(ChunkKind::Data as u8)] > 2, "bundles and pieces");
    assert_eq!(kinds.len(), 4, "every kind: {kinds:?}");
    all
}

fn check_all(repository: &Arc<Repository>) -> CheckReport {
    check(repository, Some(Subset::All), &Recorder::default()).unwrap()
}

/// As `bale check --read-data`.
fn check_and_mark(scene: &Scene, store: &DatedStore) -> CheckReport {
    let repository = scene.open(store.clone()).unwrap();
    let report = check_all(&repository);
    mark(&repository, &report).unwrap();
    report
}

fn latest_restores(scene: &Scene, store: &DatedStore, story: &str) {
    let repository = scene.open(store.clone()).unwrap();
    let latest = repository.snapshots().unwrap().pop().unwrap();
    let now = Tree::read(&scene.source());
    scene.assert_restores(&repository, &latest, &now, story);
}

fn back_up(scene: &Scene, store: &DatedStore, force: bool) -> Result<()> {
    let options = BackupOptions {
        force,
        ..BackupOptions::default()
    };
    let repository = scene.open(store.clone())?;
    let outcome = scene.backup_with(&repository, &options, &Recorder::default())?;
    assert!(outcome.id.is_some());
    Ok(())
}

#[test]
fn what_a_check_finds_damaged_is_stored_again_by_the_next_backup() {
    let scene = one_snapshot();
    for damaged in with_each_chunk_damaged(&scene) {
        let Damaged {
            store, pack, story, ..
        } = &damaged;
        let report = check_and_mark(&scene, store);
        assert!(!report.is_clean(), "{story}");
        assert_eq!(report.packs_damaged, [*pack], "{story}");
        back_up(&scene, store, false).unwrap();
        latest_restores(&scene, store, story);
        // The tree is what it was, so that the older snapshot has all its chunks again, too: but
        // for the segments of its own catalog, of which those that open may stand in the damaged
        // pack only.
        let repository = scene.open(store.clone()).unwrap();
        repair_packs(&repository, &[], false, &Recorder::default()).unwrap();
        let after = check_and_mark(&scene, store);
        if damaged.place.chunk.kind != ChunkKind::Segment {
            assert!(after.is_clean(), "{story}: {after:?}");
            assert_eq!(after.packs_not_needed, 1, "{story}");
            scene.assert_restorable(store, story);
        }
        let quick = check(
            &scene.open(store.clone()).unwrap(),
            None,
            &Recorder::default(),
        );
        assert_eq!(quick.unwrap().is_clean(), after.is_clean(), "{story}");
    }
}

#[test]
fn a_forced_backup_relies_only_on_what_it_has_read() {
    let scene = one_snapshot();
    for Damaged {
        store,
        place,
        pack,
        story,
    } in with_each_chunk_damaged(&scene)
    {
        back_up(&scene, &store, true).unwrap();
        latest_restores(&scene, &store, &story);
        let repository = scene.open(store.clone()).unwrap();
        let marked: Vec<_> = repository
            .damage_marks()
            .unwrap()
            .packs()
            .copied()
            .collect();
        // A segment of other rows is not asked for.
        if place.chunk.kind != ChunkKind::Segment {
            assert_eq!(marked, [pack], "{story}");
        }
    }
}

#[test]
fn a_forced_backup_of_an_undamaged_repository_stores_nothing_again() {
    let scene = one_snapshot();
    let packs = scene.store.names(Area::Packs).len();
    let bytes: u64 = scene
        .store
        .memory()
        .objects()
        .values()
        .map(|bytes| bytes.len() as u64)
        .sum();
    back_up(&scene, &scene.store, true).unwrap();
    let after: u64 = scene
        .store
        .memory()
        .objects()
        .values()
        .map(|bytes| bytes.len() as u64)
        .sum();
    assert!(after - bytes < 40_000, "{bytes} then {after}");
    assert!(scene.store.names(Area::Packs).len() <= packs + 1);
    assert!(scene.store.names(Area::Damaged).is_empty());
}

#[test]
fn repair_packs_saves_what_opens_and_names_what_does_not() {
    let scene = two_snapshots();
    for Damaged {
        store,
        place,
        pack,
        story,
    } in with_each_chunk_damaged(&scene)
    {
        let found = check_and_mark(&scene, &store);
        let before = store.memory().objects();
        let repository = scene.open(store.clone()).unwrap();
        let plan = repair_packs(&repository, &[], true, &Recorder::default()).unwrap();
        assert_eq!(store.memory().objects(), before, "{story}: a dry run");
        let done = repair_packs(&repository, &[], false, &Recorder::default()).unwrap();
        assert_eq!(plan.packs, done.packs, "{story}");
        let [repaired] = &done.packs[..] else {
            panic!("{story}: {done:?}");
        };
        assert_eq!((repaired.pack, repaired.chunks_lost), (pack, 1), "{story}");
        assert_eq!(done.lost_count, found.lost_count, "{story}");
        assert_eq!(done.lost, found.lost, "{story}");
        // Nothing good is in the damaged pack only.
        let index = scene.open(store.clone()).unwrap().index().unwrap();
        for of_pack in index
            .entries()
            .iter()
            .filter(|of| index.pack(of.pack).id == pack)
        {
            let saved = index.reliable(&of_pack.chunk.id).is_some();
            assert_eq!(saved, of_pack.chunk.id != place.chunk.id, "{story}");
        }
        back_up(&scene, &store, false).unwrap();
        latest_restores(&scene, &store, &story);
    }
}

#[test]
fn what_a_repair_of_packs_finds_missing_is_lost_with_all_that_a_lost_catalog_names() {
    let scene = one_snapshot();
    let (id, tree) = scene.kept[0].clone();
    let index = scene.repository().index().unwrap();
    let all = index.entries().iter();
    let segment = all
        .clone()
        .find(|of| of.chunk.kind == ChunkKind::Segment)
        .unwrap();
    let store = scene.store.fork();
    let pack = index.pack(segment.pack).id;
    store.delete(&ObjectName::pack(pack)).unwrap();
    let repository = scene.open(store.clone()).unwrap();
    let done = repair_packs(&repository, &[], false, &Recorder::default()).unwrap();
    assert_eq!(done.packs[0].pack, pack);
    assert!(done.lost.iter().any(|lost| lost.snapshot == id));
    assert!(done.lost_count >= tree.0.len() as u64, "{done:?}");
}

#[test]
fn what_is_whole_in_a_condemned_pack_only_is_saved_and_not_called_lost() {
    let scene = one_snapshot();
    let old: Vec<ObjectId> = (scene.store.names(Area::Packs).iter())
        .filter_map(ObjectName::id)
        .collect();
    scene.repository().condemn(old.clone()).unwrap();
    back_up(&scene, &scene.store, false).unwrap();
    let mut tried = 0;
    for Damaged {
        store, pack, place, ..
    } in with_each_chunk_damaged(&scene)
    {
        let index = scene.open(store.clone()).unwrap().index().unwrap();
        let is_old = |of: ChunkPlace| old.contains(&index.pack(of.pack).id);
        if old.contains(&pack) || !index.copies(&place.chunk.id).any(is_old) {
            continue;
        }
        tried += 1;
        assert_eq!(check_and_mark(&scene, &store).lost_count, 0);
        let repository = scene.open(store.clone()).unwrap();
        let done = repair_packs(&repository, &[], false, &Recorder::default()).unwrap();
        assert_eq!((done.packs[0].chunks_lost, done.lost_count), (0, 0));
        let index = scene.open(store.clone()).unwrap().index().unwrap();
        assert!(index.reliable(&place.chunk.id).is_some());
    }
    assert!(tried > 3, "{tried} chunks have a copy in a condemned pack");
}

#[test]
fn a_mark_that_proves_wrong_is_taken_back() {
    let scene = one_snapshot();
    let packs: Vec<_> = scene
        .store
        .names(Area::Packs)
        .iter()
        .filter_map(ObjectName::id)
        .collect();
    for by_check in [true, false] {
        let store = scene.store.fork();
        let repository = scene.open(store.clone()).unwrap();
        repository.mark_damaged(packs.clone()).unwrap();
        match by_check {
            true => assert!(check_and_mark(&scene, &store).is_clean()),
            false => {
                let done = repair_packs(&repository, &[], false, &Recorder::default()).unwrap();
                assert!(
                    done.packs.iter().all(|pack| pack.trouble.is_none()),
                    "{done:?}"
                );
            }
        }
        assert!(
            store.names(Area::Damaged).is_empty(),
            "by check: {by_check}"
        );
    }
}

/// Until then nobody knows what it said, so that backups read what they rely on.
#[test]
fn a_mark_that_cannot_be_read_is_removed_once_every_pack_was_read() {
    let scene = one_snapshot();
    let damaged = with_each_chunk_damaged(&scene);
    for Damaged { store, story, .. } in damaged {
        check_and_mark(&scene, &store);
        let [name] = store.names(Area::Damaged)[..] else {
            panic!("{story}: one mark");
        };
        store
            .memory()
            .overwrite(&name, b"nothing that opens".to_vec());
        back_up(&scene, &store, false).unwrap();
        latest_restores(&scene, &store, &story);
        check_and_mark(&scene, &store);
        assert!(!store.names(Area::Damaged).contains(&name), "{story}");
    }
}

/// The bytes that the first snapshot alone had are lost; the second, of a changed file, is whole
/// and no path of it is named.
#[test]
fn only_rows_that_are_visible_count_as_lost() {
    let mut scene = one_snapshot();
    let first = scene.kept[0].0;
    let packs = scene.store.names(Area::Packs);
    let source = scene.source();
    packs
        .iter()
        .for_each(|pack| scene.store.delete(pack).unwrap());
    std::fs::write(source.join("noise"), noise(9, 1_200_000)).unwrap();
    scene.keep();
    let (second, tree) = scene.kept.pop().unwrap();
    let repository = scene.repository();
    let snapshots = repository.snapshots().unwrap();
    scene.assert_restores(&repository, &snapshots[1], &tree, "after healing");
    let report = check_all(&repository);
    assert!(
        report.lost.iter().all(|lost| lost.snapshot == first),
        "{report:?}"
    );
    assert!(report.lost_count > 0);
    repository.forget_snapshot(first).unwrap();
    let report = check_all(&repository);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.packs_not_needed, packs.len() as u64);
    assert!(second != first);
}

/// Rows that a newer layer hides point at chunks that are gone.
#[test]
fn a_row_that_a_newer_layer_hides_takes_nothing_away() {
    let mut scene = Scene::new();
    scene.write("kept", &periodic(600 << 10));
    for number in 0..40 {
        scene.write(&format!("dir/{number}"), &noise(number, 400));
    }
    scene.write("changes", &noise(100, 700_000));
    scene.keep();
    scene.write("changes", &noise(101, 700_000));
    scene.keep();
    let (first, _) = scene.kept.remove(0);
    let repository = scene.repository();
    let layers = &repository.snapshots().unwrap()[1].1.layers;
    assert!(layers.len() > 1, "the old row is hidden, not gone");
    repository.forget_snapshot(first).unwrap();
    let index = repository.index().unwrap();
    let is_old = |place: &&ChunkPlace| {
        let bytes = repository
            .read_place(&index, place.chunk.kind, place)
            .unwrap();
        place.chunk.kind == ChunkKind::Data && noise(100, 700_000).starts_with(&bytes)
    };
    let old = *index.entries().iter().find(is_old).unwrap();
    let name = ObjectName::pack(index.pack(old.pack).id);
    let mut bytes = scene.store.get(&name, 1 << 30).unwrap();
    bytes[old.chunk.range().start as usize + 100] ^= 1;
    scene.store.memory().overwrite(&name, bytes);
    scene.assert_restorable(&scene.store, "an old chunk is damaged");
    let report = check_and_mark(&scene, &scene.store);
    assert_eq!(report.lost_count, 0, "{report:?}");
    back_up(&scene, &scene.store, false).unwrap();
    repair_packs(&scene.repository(), &[], false, &Recorder::default()).unwrap();
    let report = check_and_mark(&scene, &scene.store);
    assert!(report.is_clean(), "{report:?}");
}

/// An index object and a record of a pack that it named are damaged, both: all records are listed
/// again, and the pack is marked.
#[test]
fn a_pack_of_a_lost_index_is_listed_and_marked_where_records_do_not_open() {
    let scene = one_snapshot();
    for Damaged {
        store,
        place,
        pack,
        story,
    } in with_each_chunk_damaged(&scene)
    {
        let index = scene.repository().index().unwrap();
        let of_pack = |other: &&ChunkPlace| index.pack(other.pack).id == pack;
        let count = index.entries().iter().filter(of_pack).count();
        for name in store.names(Area::Index) {
            store.memory().overwrite(&name, b"not an index".to_vec());
        }
        let repository = scene.open(store.clone()).unwrap();
        let repaired = repair_index(&repository, false, &Recorder::default()).unwrap();
        assert_eq!(repaired.damaged, [(pack, 1)], "{story}");
        assert!(repaired.objects_removed > 0, "{story}");
        let index = scene.open(store.clone()).unwrap().index().unwrap();
        assert_eq!(index.reliable(&place.chunk.id), None, "{story}");
        let listed = (index.entries().iter()).filter(|other| index.pack(other.pack).id == pack);
        assert_eq!(listed.count(), count, "{story}");
        back_up(&scene, &store, false).unwrap();
        latest_restores(&scene, &store, &story);
    }
}

/// Index objects and a trailer are damaged, both: the heads of the records lead through the pack,
/// and everything is back.
#[test]
fn a_pack_whose_trailer_is_damaged_and_that_no_index_names_is_listed_by_its_record_heads() {
    let scene = one_snapshot();
    for pack in scene.store.names(Area::Packs) {
        for part in ["footer", "trailer", "footer cut off"] {
            let store = scene.store.fork();
            for name in store.names(Area::Index) {
                store.delete(&name).unwrap();
            }
            let mut bytes = store.get(&pack, 1 << 30).unwrap();
            let end = bytes.len();
            match part {
                "footer" => bytes[end - PACK_FOOTER_BYTES + 20] ^= 1,
                "trailer" => bytes[end - PACK_FOOTER_BYTES - 20] ^= 1,
                _ => bytes.truncate(end - 1),
            }
            store.memory().overwrite(&pack, bytes);
            let repository = scene.open(store.clone()).unwrap();
            let repaired = repair_index(&repository, false, &Recorder::default()).unwrap();
            let id = pack.id().unwrap();
            assert_eq!(repaired.damaged, [(id, 1)], "{part}");
            assert!(repaired.unreadable.is_empty(), "{part}: {repaired:?}");
            scene.assert_restorable(&store, part);
            let repository = scene.open(store.clone()).unwrap();
            let repaired = repair_packs(&repository, &[], false, &Recorder::default()).unwrap();
            assert_eq!(
                (repaired.packs.len(), repaired.lost_count),
                (1, 0),
                "{part}"
            );
            assert!(check_and_mark(&scene, &store).is_clean(), "{part}");
            scene.assert_restorable(&store, part);
        }
    }
}
