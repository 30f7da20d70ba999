//! A repository that is damaged, cut, shuffled, full, or lied about: found out, and never taken for
//! good (REP-01 .. 10).

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use bale_engine::backup::BackupOptions;
use bale_engine::repair::repair_index;
use bale_engine::verify::scrub;
use bale_format::error::FormatError;
use bale_format::{ChunkKind, ObjectId};
use bale_pipeline::monitor::Recorder;
use bale_repository::error::Error;
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::{NewSlot, Repository, Secret};
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::scene::{noise, periodic};
use bale_testkit::{
    Call, DatedStore, Effect, FaultyStore, HookedStore, InjectedFault, ListFault, Scene, Tree, Verb,
};

/// Two snapshots in a repository of some 20 KB, with every kind of object but a run.
fn small() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 900));
    scene.write("new/d", b"a new file");
    scene.keep();
    scene
}

fn scrub_finds(store: &DatedStore) -> usize {
    let report = scrub(store, &Recorder::default()).unwrap();
    report.damage.len()
}

/// Restores all kept snapshots as far as they can be had: what differs must be named, and nothing
/// else may differ. Returns whether anything was lost.
fn restore_tells_the_truth(scene: &Scene, store: &DatedStore, story: &str) -> bool {
    let Ok(repository) = scene.open(store.clone()) else {
        return true;
    };
    let Ok((snapshots, damaged)) = repository.snapshots_readable() else {
        return true;
    };
    let mut lost = !damaged.is_empty();
    for snapshot in &snapshots {
        let (_, expected) = (scene.kept.iter())
            .find(|(id, _)| *id == snapshot.0)
            .unwrap_or_else(|| panic!("{story}: {} was never made", snapshot.0));
        let monitor = Recorder::default();
        let (tree, report) = scene.restore(&repository, snapshot, &monitor);
        let problems = monitor.problems.lock().unwrap();
        let named: BTreeSet<&[u8]> = problems.iter().map(|p| p.path.as_slice()).collect();
        lost |= report.is_err() || !named.is_empty();
        for path in tree.differences(expected) {
            let text = String::from_utf8_lossy(&path).into_owned();
            assert!(
                report.is_err() || !named.is_empty(),
                "{story}: {text} differs and nobody says so"
            );
            let (is, should) = (tree.0.get(&path), expected.0.get(&path));
            if let (Some(is), Some(should)) = (is, should)
                && is.content != should.content
            {
                // A hard link of a file that was lost stands under its first name.
                let first = should.first_name.as_slice();
                assert!(
                    report.is_err() || named.contains(path.as_slice()) || named.contains(first),
                    "{story}: {text} has other bytes and is not named: {named:?}"
                );
            }
        }
    }
    lost
}

fn with(store: &DatedStore, name: &ObjectName, bytes: Vec<u8>) -> DatedStore {
    let damaged = store.fork();
    damaged.memory().overwrite(name, bytes);
    damaged
}

/// As a later program leaves `config` and its copy.
fn with_both(store: &DatedStore, bytes: &[u8]) -> DatedStore {
    let [config, copy] = ObjectName::configs();
    with(&with(store, &config, bytes.to_vec()), &copy, bytes.to_vec())
}

/// Every byte of every object is turned round, and scrubbed; every 5th of these repositories is
/// also checked, every 31st also restored (and every byte of the first and last 16 of each object).
#[test]
fn every_flipped_byte_is_found_and_never_restored() {
    let scene = small();
    let (mut bytes_flipped, mut restores, mut losses) = (0_u64, 0, 0);
    for (name, bytes) in scene.store.memory().objects() {
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let damaged = with(&scene.store, &name, flipped);
            let story = format!("{name}, byte {at} of {} flipped", bytes.len());
            bytes_flipped += 1;
            assert_eq!(scrub_finds(&damaged), 1, "{story}: not found");
            if bytes_flipped % 5 == 0 {
                let found = scene.check(&damaged).map(|report| report.is_clean());
                assert!(!matches!(found, Ok(true)), "{story}: check finds nothing");
            }
            if bytes_flipped % 31 == 0 || at < 16 || at + 16 >= bytes.len() {
                restores += 1;
                losses += u64::from(restore_tells_the_truth(&scene, &damaged, &story));
            }
        }
    }
    assert!(bytes_flipped > 5_000 && restores > 200 && losses > 50);
}

/// Each object cut to each of some 40 lengths, 0 and all but one byte among them.
#[test]
fn every_cut_object_is_found_and_never_restored() {
    let scene = small();
    for (name, bytes) in scene.store.memory().objects() {
        let step = (bytes.len() / 40).max(1);
        for len in (0..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
            let damaged = with(&scene.store, &name, bytes[..len].to_vec());
            let story = format!("{name} cut to {len} of {}", bytes.len());
            // Without the end of its last line it says the same.
            if !name.area.is_directory() && len + 1 == bytes.len() {
                continue;
            }
            assert_eq!(scrub_finds(&damaged), 1, "{story}: not found");
            let found = scene.check(&damaged).map(|report| report.is_clean());
            assert!(!matches!(found, Ok(true)), "{story}: check finds nothing");
            if len % (8 * step) == 0 {
                restore_tells_the_truth(&scene, &damaged, &story);
            }
        }
    }
}

/// What a check calls lost is what a restore cannot bring back, path by path.
#[test]
fn a_check_names_exactly_the_paths_that_are_lost() {
    let mut scene = Scene::new();
    scene.write("good", b"stays");
    scene.keep();
    let before: BTreeSet<_> = scene.store.names(Area::Packs).into_iter().collect();
    scene.write("large", &noise(1, 600_000));
    scene.keep();
    // The largest new pack holds the large file's pieces; in its middle, one of them.
    let objects = scene.store.memory().objects();
    let new = objects
        .iter()
        .filter(|(name, _)| name.area == Area::Packs && !before.contains(name));
    let (name, bytes) = new.max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let damaged = with(&scene.store, name, flipped);
    let report = scene.check(&damaged).unwrap();
    let large = scene.source().join("large");
    let lost: Vec<_> = report
        .lost
        .iter()
        .map(|lost| (lost.snapshot, &lost.path[..]))
        .collect();
    let second = scene.kept[1].0;
    assert_eq!(
        lost,
        [(second, &large.as_os_str().as_bytes()[1..])],
        "{report:?}"
    );
    assert!(restore_tells_the_truth(
        &scene,
        &damaged,
        "one pack damaged"
    ));
}

/// Somebody who keeps our objects gives us another of them under each name: found, and no file gets
/// another's bytes.
#[test]
fn objects_swapped_among_each_other_are_refused() {
    let scene = small();
    let objects: Vec<_> = scene.store.memory().objects().into_iter().collect();
    for (name, bytes) in &objects {
        for (other, others_bytes) in &objects {
            if name == other || bytes == others_bytes {
                continue;
            }
            let story = format!("{other} given as {name}");
            let damaged = with(&scene.store, name, others_bytes.clone());
            assert_ne!(bytes, others_bytes, "{story}");
            assert_eq!(scrub_finds(&damaged), 1, "{story}");
            let found = scene.check(&damaged).map(|report| report.is_clean());
            assert!(!matches!(found, Ok(true)), "{story}: check finds nothing");
            restore_tells_the_truth(&scene, &damaged, &story);
        }
    }
}

/// Readers go on without an index object that is damaged; who deletes, refuses.
#[test]
fn one_damaged_index_object_does_not_take_the_others_with_it() {
    let scene = small();
    let names = scene.store.names(Area::Index);
    assert!(names.len() > 1);
    let mut restored = 0;
    for name in &names {
        let damaged = with(&scene.store, name, b"not an index".to_vec());
        let repository = scene.open(damaged.clone()).unwrap();
        let pruned = scene.prune(&repository, Duration::ZERO);
        assert!(pruned.is_err(), "a prune must know all: {pruned:?}");
        let repository = scene.open(damaged.clone()).unwrap();
        for snapshot in &repository.snapshots().unwrap() {
            let (_, expected) = scene.kept.iter().find(|(id, _)| *id == snapshot.0).unwrap();
            let (tree, _) = scene.restore(&repository, snapshot, &Recorder::default());
            restored += usize::from(tree == *expected);
        }
        // All packs are there: listing them again heals what reads.
        let repaired = repair_index(&repository, false, &Recorder::default()).unwrap();
        assert!(repaired.packs_listed > 0, "{repaired:?}");
        assert_eq!(repaired.objects_removed, 1);
        assert!(scene.check(&damaged).unwrap().is_clean());
        let pruned = scene.prune(&scene.open(damaged.clone()).unwrap(), Duration::ZERO);
        assert!(pruned.is_ok(), "{pruned:?}");
        let repository = scene.open(damaged).unwrap();
        for snapshot in &repository.snapshots().unwrap() {
            let (_, expected) = scene.kept.iter().find(|(id, _)| *id == snapshot.0).unwrap();
            scene.assert_restores(&repository, snapshot, expected, "index repaired");
        }
    }
    assert!(
        restored > 0,
        "the first snapshot needs one index object only"
    );
}

/// REP-04: whatever single object is lost (but for `config` and the keys), the next backup of the
/// same tree is whole again.
#[test]
fn after_the_loss_of_any_object_the_next_backup_is_whole() {
    let scene = small();
    let areas = [Area::Packs, Area::Index, Area::Snapshots];
    for name in areas.into_iter().flat_map(|area| scene.store.names(area)) {
        let story = format!("{name} lost");
        let store = scene.store.fork();
        store.delete(&name).unwrap();
        restore_tells_the_truth(&scene, &store, &story);
        let outcome = scene.backup(&scene.open(store.clone()).unwrap());
        let id = outcome
            .unwrap_or_else(|error| panic!("{story}: {error}"))
            .id
            .unwrap();
        let repository = scene.open(store.clone()).unwrap();
        let snapshots = repository.snapshots().unwrap();
        let snapshot = snapshots.iter().find(|(other, _)| *other == id).unwrap();
        let now = Tree::read(&scene.source());
        scene.assert_restores(&repository, snapshot, &now, &story);
        if name.area == Area::Index {
            repair_index(&repository, false, &Recorder::default()).unwrap();
            scene.assert_restorable(&store, &format!("{story}, index repaired"));
        }
    }
}

/// REP-06: full after each of some 60 numbers of bytes, a backup fails, says so, commits nothing
/// and hinders nobody.
#[test]
fn a_full_store_ends_a_backup_with_a_clear_word_and_nothing_committed() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    scene.write("new", &noise(9, 9_000));
    scene.write("large new", &noise(10, 600_000));
    let (mut bytes, mut full) = (0, 0);
    loop {
        let store = scene.store.fork();
        let faulty = FaultyStore::over(store.clone());
        faulty.full_after(bytes);
        let outcome = scene.backup(&scene.open(faulty).unwrap());
        let story = format!("full after {bytes}");
        match outcome {
            Ok(_) => break,
            Err(error) => assert!(is_storage_full(&error), "{story}: {error}"),
        }
        full += 1;
        assert_eq!(store.names(Area::Snapshots).len(), 1, "{story}: committed");
        scene.assert_sound(&store, &story);
        bytes += if bytes < 12_000 { 499 } else { 29_989 };
    }
    assert!(full > 30, "{full}");
}

/// REP-06 when not a byte is left: what only deletes works; a prune works or says that there is no
/// room, and takes nothing away that is used. With room again it does its work.
#[test]
fn in_a_full_store_forgetting_works_and_a_prune_works_or_says_why() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("gone", &noise(6, 900_000));
    let first = scene.keep();
    fs::remove_file(scene.source().join("gone")).unwrap();
    // A catalog of its own: in a shared one the row would stay below the one that removes it.
    let force = BackupOptions {
        force: true,
        ..BackupOptions::default()
    };
    let (repository, monitor) = (scene.repository(), Recorder::default());
    let second = scene.backup_with(&repository, &force, &monitor).unwrap();
    let now = Tree::read(&scene.source());
    scene.kept.push((second.id.unwrap(), now));
    let faulty = FaultyStore::over(scene.store.clone());
    let repository = scene.open(faulty.clone()).unwrap();
    faulty.full_after(0);
    repository.forget_snapshot(first).unwrap();
    scene.kept.remove(0);
    let pruned = scene.prune(&repository, Duration::ZERO);
    if let Err(error) = &pruned {
        assert!(is_storage_full(error), "{error}");
    }
    scene.assert_restorable(&scene.store, "pruned without room");
    faulty.heal();
    let again = scene.prune(&scene.open(faulty).unwrap(), Duration::ZERO);
    let deleted = again.unwrap().packs_deleted + pruned.map_or(0, |pruned| pruned.packs_deleted);
    assert!(deleted > 0);
    scene.assert_sound(&scene.store.fork(), "pruned with room");
}

/// REP-08: something is damaged, something is not ours, listings lie. A repair writes index objects
/// and marks, nothing else: whatever could be read is there afterwards, byte for byte.
#[test]
fn a_repair_only_adds_whatever_it_finds() {
    let scene = small();
    let packs = scene.store.names(Area::Packs);
    let stranger = noise(77, 3_000);
    let strangers = ObjectName::pack(ObjectId(*blake3::hash(&stranger).as_bytes()));
    for lie in [
        None,
        Some(ListFault::DropEvery(2)),
        Some(ListFault::Duplicate),
    ] {
        let store = scene.store.fork();
        for name in store.names(Area::Index) {
            store.memory().overwrite(&name, b"not an index".to_vec());
        }
        store.put(&strangers, &stranger).unwrap();
        let half = store.memory().objects()[&packs[0]].len() / 2;
        let cut = store.memory().objects()[&packs[0]][..half].to_vec();
        store.memory().overwrite(&packs[0], cut);
        let before = store.memory().objects();
        let faulty = FaultyStore::over(store.clone());
        let repository = scene.open(faulty.clone()).unwrap();
        if let Some(lie) = lie {
            let fault = InjectedFault::new(Effect::List(lie)).of(Verb::List);
            faulty.inject(fault.within(Area::Packs).for_ever());
        }
        let repaired = repair_index(&repository, false, &Recorder::default()).unwrap();
        let after = store.memory().objects();
        for (name, bytes) in &before {
            let is_of_no_use = name.area == Area::Index && bytes == b"not an index";
            assert!(
                after.get(name).or(is_of_no_use.then_some(bytes)) == Some(bytes),
                "{lie:?}: {name} was changed"
            );
        }
        let added = after.keys().filter(|name| !before.contains_key(name));
        let added: Vec<_> = added.collect();
        assert!(
            (added.iter()).all(|name| matches!(name.area, Area::Index | Area::Damaged)),
            "{lie:?}: {added:?}"
        );
        if lie.is_none() {
            // Of the one cut short, what its heads lead to is listed, if there is something.
            let in_part = repaired.damaged.len();
            let nothing = repaired.unreadable.len();
            assert_eq!(nothing + in_part, 2, "the stranger and the one cut short");
            let of_no_use = before.keys().filter(|name| name.area == Area::Index);
            assert_eq!(repaired.objects_removed as usize, of_no_use.count());
            assert_eq!(repaired.packs_listed as usize, packs.len() - 1 + in_part);
        }
    }
}

/// REP-10: a listing leaves snapshots out, once or always. Packs that they use are not deleted.
#[test]
fn a_listing_that_lies_does_not_make_a_prune_delete_what_is_used() {
    let mut scene = Scene::new();
    scene.write_tree();
    for number in 0..4 {
        scene.write("changing", &noise(20 + number, 700_000));
        scene.keep();
    }
    let areas = [Area::Snapshots, Area::Index, Area::Packs, Area::Condemned];
    let lies = [
        ListFault::DropEvery(2),
        ListFault::Duplicate,
        ListFault::Reverse,
    ];
    for (area, lie) in areas
        .into_iter()
        .flat_map(|area| lies.map(|lie| (area, lie)))
    {
        for after in 0..8 {
            let store = scene.store.fork();
            let faulty = FaultyStore::over(store.clone());
            let repository = scene.open(faulty.clone()).unwrap();
            let fault = InjectedFault::new(Effect::List(lie))
                .of(Verb::List)
                .within(area)
                .after(after);
            faulty.inject(fault.clone());
            // Refusing is as good as seeing through it.
            let pruned = scene.prune(&repository, Duration::ZERO);
            scene.assert_restorable(
                &store,
                &format!("{area} lied {lie:?} at {after}: {pruned:?}"),
            );
            // Who always leaves out the same snapshots, and the latest among them, deceives anybody
            // without a memory.
            let deceives = area == Area::Snapshots && matches!(lie, ListFault::DropEvery(_));
            if after == 0 && !deceives {
                let store = scene.store.fork();
                let faulty = FaultyStore::over(store.clone());
                let repository = scene.open(faulty.clone()).unwrap();
                faulty.inject(fault.for_ever());
                let pruned = scene.prune(&repository, Duration::ZERO);
                scene.assert_restorable(&store, &format!("{area} always {lie:?}: {pruned:?}"));
            }
        }
    }
}

/// A snapshot that is there and always left out is noticed by what it is the parent of.
#[test]
fn a_prune_refuses_when_a_parent_is_there_and_never_listed() {
    loop {
        let mut scene = Scene::new();
        scene.write("first", &noise(1, 2_000));
        let parent = scene.keep();
        fs::remove_file(scene.source().join("first")).unwrap();
        scene.write("second", &noise(2, 2_000));
        scene.keep();
        // The listing leaves out its first, and names are by chance.
        if scene.store.names(Area::Snapshots)[0].id() != Some(parent) {
            continue;
        }
        let faulty = FaultyStore::over(scene.store.clone());
        let repository = scene.open(faulty.clone()).unwrap();
        let lie = InjectedFault::new(Effect::List(ListFault::DropEvery(2)));
        faulty.inject(lie.within(Area::Snapshots).of(Verb::List).for_ever());
        let pruned = scene.prune(&repository, Duration::ZERO);
        assert!(pruned.is_err(), "{pruned:?}");
        scene.assert_restorable(&scene.store, "a parent never listed");
        return;
    }
}

/// FMT-02, FMT-04: what this program does not know, it refuses by name, and changes nothing.
#[test]
fn a_repository_of_a_later_program_is_refused_and_left_alone() {
    let scene = small();
    let before = scene.store.memory().objects();
    let config = ObjectName::config();
    let text = String::from_utf8(before[&config].clone()).unwrap();
    let newer = text.replacen("\"format\":1", "\"format\":2", 1);
    assert_ne!(text, newer);
    let store = with_both(&scene.store, &newer.into_bytes());
    match scene.open(store).map(|_| ()) {
        Err(Error::Object {
            source: FormatError::Newer { found: 2, .. },
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
    let repository = scene.repository();
    for (read, write, delete) in [
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ] {
        let feature = |needed| {
            if needed {
                vec!["later".to_owned()]
            } else {
                Vec::new()
            }
        };
        let mut config_of_later = repository.config().clone();
        config_of_later.features_read = feature(read);
        config_of_later.features_write = feature(write);
        config_of_later.features_gc = feature(delete);
        let bytes = config_of_later.encode(repository.keys()).unwrap();
        let store = with_both(&scene.store, &bytes);
        let opened = scene.open(store.clone());
        assert_eq!(opened.is_err(), read, "reading needs the feature");
        let Ok(opened) = opened else { continue };
        scene.assert_restorable(&store, "features for others");
        let objects = store.memory().objects();
        let backed_up = scene.backup(&opened);
        assert_eq!(backed_up.is_err(), write, "{backed_up:?}");
        if write {
            assert_eq!(
                store.memory().objects(),
                objects,
                "a refused backup writes nothing"
            );
        }
        refuses_deleting(&scene, &opened, delete);
    }
    assert_eq!(scene.store.memory().objects(), before);
}

fn refuses_deleting(scene: &Scene, repository: &std::sync::Arc<Repository>, needed: bool) {
    let refused = repository.check_access(bale_format::Access::Delete);
    assert_eq!(refused.is_err(), needed);
    if needed {
        let pruned = scene.prune(repository, Duration::ZERO);
        assert!(pruned.is_err(), "{pruned:?}");
    }
}

/// FMT-02 for whoever adds without backing up.
#[test]
fn repairing_and_changing_keys_leave_a_repository_of_a_later_program_alone() {
    let scene = small();
    let mut later = scene.repository().config().clone();
    later.features_write = vec!["later".to_owned()];
    let bytes = later.encode(scene.repository().keys()).unwrap();
    let store = with_both(&scene.store, &bytes);
    let index = store.names(Area::Index);
    index.iter().for_each(|name| store.delete(name).unwrap());
    let before = store.memory().objects();
    let opened = scene.open(store.clone()).unwrap();
    let repaired = repair_index(&opened, false, &Recorder::default());
    assert!(repaired.is_err(), "{repaired:?}");
    let new = NewSlot {
        secret: Secret::KeyFile(b"another key file, as long as the first one is".to_vec()),
        label: "other".to_owned(),
    };
    assert!(opened.add_key(&Scene::secret(), &new).is_err());
    assert_eq!(store.memory().objects(), before);
}

/// RES-03: a cache that is gone, or full of somebody else's bytes, costs time only.
#[test]
fn a_lost_or_damaged_cache_changes_nothing() {
    let mut scene = small();
    std::fs::remove_dir_all(scene.cache()).ok();
    scene.assert_sound(&scene.store.fork(), "cache removed");
    spoil(&scene.cache());
    scene.assert_sound(&scene.store.fork(), "cache overwritten");
    scene.write("after", &periodic(1_000));
    scene.keep();
    scene.assert_sound(&scene.store.fork(), "backed up with a spoilt cache");
}

/// RES-03: a cache as it was two prunes ago, or that of another repository, under this one's name.
#[test]
fn a_cache_of_another_time_or_repository_changes_nothing() {
    let mut scene = small();
    scene.prune(&scene.repository(), Duration::ZERO).unwrap();
    let mut other = small();
    other.write("elsewhere", &noise(50, 4_000));
    other.keep();
    other.prune(&other.repository(), Duration::ZERO).unwrap();
    let caches = scene.source().with_file_name("caches");
    copy(&scene.cache(), &caches.join("earlier"));
    copy(
        &only_child(&other.cache()),
        &caches
            .join("other")
            .join(only_child(&scene.cache()).file_name().unwrap()),
    );
    for number in 0..2 {
        let (id, _) = scene.kept.remove(0);
        scene.repository().forget_snapshot(id).unwrap();
        scene.write("later", &noise(60 + number, 5_000));
        scene.keep();
        scene.prune(&scene.repository(), Duration::ZERO).unwrap();
    }
    for name in ["earlier", "other"] {
        fs::remove_dir_all(scene.cache()).unwrap();
        copy(&caches.join(name), &scene.cache());
        scene.assert_sound(&scene.store.fork(), name);
    }
}

fn only_child(dir: &std::path::Path) -> std::path::PathBuf {
    let mut children = fs::read_dir(dir).unwrap();
    let only = children.next().unwrap().unwrap().path();
    assert!(children.next().is_none());
    only
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for child in fs::read_dir(from).unwrap() {
        let child = child.unwrap().path();
        let to = to.join(child.file_name().unwrap());
        match child.is_dir() {
            true => copy(&child, &to),
            false => drop(fs::copy(&child, &to).unwrap()),
        }
    }
}

fn spoil(dir: &std::path::Path) {
    for child in std::fs::read_dir(dir).unwrap() {
        let path = child.unwrap().path();
        match path.is_dir() {
            true => spoil(&path),
            false => std::fs::write(path, b"spoilt").unwrap(),
        }
    }
}

/// Is that the reason somewhere down the chain, as it is printed?
fn is_storage_full(error: &Error) -> bool {
    let first: &dyn std::error::Error = error;
    let mut chain = std::iter::successors(Some(first), |error| error.source());
    chain.any(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
    })
}

/// The snapshot to compare with has lost a segment of its catalog: the backup says so, compares
/// with an older one or with nothing, and what it commits is whole although equal segments are
/// still named by the index.
#[test]
fn a_damaged_catalog_of_the_parent_costs_time_and_no_force() {
    for snapshots in 1..3 {
        let mut scene = Scene::new();
        scene.write_tree();
        for number in 0..snapshots {
            scene.write("changing", &noise(number, 3_000));
            scene.keep();
        }
        let repository = scene.repository();
        let (_, latest) = repository.snapshots().unwrap().pop().unwrap();
        let segment = latest.layers.last().unwrap().segments[0].id;
        let index = repository.index().unwrap();
        let place = index.any(&segment).unwrap();
        let name = ObjectName::pack(index.pack(place.pack).id);
        let mut bytes = scene.store.memory().objects()[&name].clone();
        let range = place.chunk.range();
        bytes[(range.start + range.end) as usize / 2] ^= 4;
        let damaged = with(&scene.store, &name, bytes);
        assert!(!scene.check(&damaged).unwrap().is_clean());

        let monitor = Recorder::default();
        let repository = scene.open(damaged.clone()).unwrap();
        let outcome = scene.backup_with(&repository, &Default::default(), &monitor);
        let id = outcome.unwrap().id.unwrap();
        let notes = monitor.notes.lock().unwrap();
        assert!(
            notes.iter().any(|note| note.contains("damaged")),
            "{notes:?}"
        );
        let reopened = scene.open(damaged.clone()).unwrap();
        let all = reopened.snapshots().unwrap();
        let new = all.iter().find(|(other, _)| *other == id).unwrap();
        scene.assert_restores(&reopened, new, &Tree::read(&scene.source()), "after damage");
        let again = scene.backup(&reopened).unwrap();
        assert_eq!(
            again.snapshot.counts.files_changed + again.snapshot.counts.files_new,
            0
        );
    }
}

/// REP-09 in the whole engine: memory that flips a bit after the id was computed. Reading back what
/// was encoded finds it before anything is published.
#[test]
fn a_bit_that_flips_between_hashing_and_sealing_is_never_published() {
    let scene = Scene::new();
    let repository = scene.repository();
    let bytes = noise(9, 50_000);
    for kind in [ChunkKind::Data, ChunkKind::Segment, ChunkKind::Pieces] {
        for at in [0, 25_000, 49_999] {
            let writer = ChunkWriter::start(repository.clone(), HashSet::new(), false).unwrap();
            let id = repository.keys().chunk_id(kind, &bytes);
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            writer.store_again(kind, id, flipped).unwrap();
            assert!(writer.finish().is_err(), "{kind:?}, byte {at}");
        }
    }
    assert!(scene.store.names(Area::Packs).is_empty());
    assert!(scene.store.names(Area::Index).is_empty());
}

/// And a bit that flips after all checks, on its way to the store: the name tells, without a key,
/// and no file gets it.
#[test]
fn a_bit_that_flips_on_the_way_to_the_store_is_found_by_a_scrub_and_a_check() {
    let mut scene = Scene::new();
    scene.write("file", &noise(9, 50_000));
    scene.keep();
    let objects = scene.store.memory().objects();
    for (name, bytes) in objects.iter().filter(|(name, _)| name.area == Area::Packs) {
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 0x10;
        let damaged = with(&scene.store, name, flipped);
        assert_eq!(scrub_finds(&damaged), 1);
        let found = scene.check(&damaged).map(|report| report.is_clean());
        assert!(!matches!(found, Ok(true)));
        restore_tells_the_truth(&scene, &damaged, "flipped on its way");
    }
}

/// REP-04: what read well when packs were looked for was not listed again, so that it is all there
/// is to say what is in them.
#[test]
fn repairing_removes_no_index_object_that_became_unreadable_after_packs_were_looked_for() {
    let scene = small();
    let (store, names) = (scene.store.fork(), scene.store.names(Area::Index));
    let [first, second, ..] = &names[..] else {
        panic!("two index objects");
    };
    let spoil = |store: &DatedStore, name: &ObjectName| {
        store.memory().overwrite(name, b"not an index".to_vec());
    };
    spoil(&store, first);
    let (below, late) = (store.clone(), *second);
    let hooked = HookedStore::over(store.clone(), move |call: &Call| {
        if call.verb == Verb::List && call.area == Area::Packs {
            spoil(&below, &late);
        }
    });
    let repository = scene.open(hooked).unwrap();
    let repaired = repair_index(&repository, false, &Recorder::default()).unwrap();
    assert_eq!(repaired.objects_removed, 1, "{repaired:?}");
    let left = store.names(Area::Index);
    assert!(left.contains(second) && !left.contains(first));
    // The next one heals this, too.
    let repository = scene.open(store.clone()).unwrap();
    let repaired = repair_index(&repository, false, &Recorder::default()).unwrap();
    assert_eq!(repaired.objects_removed, 1, "{repaired:?}");
    scene.assert_restorable(&store, "repaired twice");
}
