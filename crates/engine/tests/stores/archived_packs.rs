//! Packs in a cold class, from which they must be brought back before they are read, and objects
//! that the store does not hand out for want of a right or of an answer: nothing is known of them,
//! so nobody calls them damaged or gives them up.

use bale_engine::copy::{CopyOptions, copy};
use bale_engine::mirror::{MirrorOptions, mirror};
use bale_engine::prune::{self, PruneOptions};
use bale_engine::repair::repair_packs;
use bale_engine::verify::{Subset, check, mark, scrub};
use bale_format::ObjectId;
use bale_pipeline::monitor::Recorder;
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::scene::noise;
use bale_testkit::{ArchivedStore, DatedStore, Scene, Tree, WholeStore};
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Packs of data of a repository.
fn packs_of_data(scene: &Scene) -> Vec<ObjectName> {
    let index = scene.repository().index().unwrap();
    let is_data = |pack: &ObjectId| {
        let number = index.pack_number(pack);
        let mut entries = index.entries().iter();
        !entries.any(|place| Some(place.pack) == number && place.chunk.kind.is_metadata())
    };
    let packs = index.packs().iter().map(|pack| pack.id);
    packs.filter(is_data).map(ObjectName::pack).collect()
}

/// A snapshot that uses little of a pack of data: where packs go whole, one is open for all.
fn wasteful() -> Scene {
    let mut scene = Scene::new();
    let backup = |scene: &Scene| {
        let repository = scene.open(WholeStore::over(scene.store.clone()));
        scene.backup(&repository.unwrap()).unwrap().id.unwrap()
    };
    scene.write("stays", &noise(5, 20_000));
    scene.write("gone", &noise(6, 900_000));
    let first = backup(&scene);
    std::fs::remove_file(scene.source().join("gone")).unwrap();
    let second = backup(&scene);
    scene.repository().forget_snapshot(first).unwrap();
    scene.kept.push((second, Tree::read(&scene.source())));
    scene
}

#[test]
fn a_prune_leaves_archived_packs_as_they_are_and_marks_none_as_damaged() {
    let scene = wasteful();
    let archived = packs_of_data(&scene);
    let store = ArchivedStore::over(scene.store.clone(), archived.clone());
    let options = PruneOptions {
        grace: Duration::ZERO,
        repack_below_percent: 60,
    };
    let monitor = Recorder::default();
    let repository = scene.open(store.clone()).unwrap();
    let plan = prune::plan(&repository, &options, &monitor).unwrap();
    let pruned = prune::apply(&repository, &plan, &options, &monitor).unwrap();
    assert!(pruned.problems > 0, "something was to be copied");
    assert_eq!(scene.store.names(Area::Damaged), []);
    {
        let problems = monitor.problems.lock().unwrap();
        let is_said = |text: &str| text.contains("archived") && !text.contains("repair packs");
        assert!(problems.iter().all(|it| is_said(&it.text)), "{problems:?}");
    }
    scene.assert_sound(&scene.store.fork(), "beside archived packs");
    assert_eq!(packs_of_data(&scene), archived);
    // Nor what another prune has condemned.
    let condemned = scene.repository();
    let packs = archived.iter().filter_map(ObjectName::id);
    condemned.condemn(packs.collect()).unwrap();
    let repository = scene.open(store.clone()).unwrap();
    let pruned = scene.prune(&repository, Duration::ZERO).unwrap();
    assert!(pruned.problems > 0, "{pruned:?}");
    assert_eq!(scene.store.names(Area::Damaged), []);
    assert_eq!(packs_of_data(&scene), archived);
    // Brought back, it is given up.
    store.bring_back();
    let repository = scene.open(store).unwrap();
    let pruned = scene.prune(&repository, Duration::ZERO).unwrap();
    assert!(pruned.problems == 0 && pruned.bytes_repacked > 0);
    scene.assert_sound(&scene.store.fork(), "brought back");
}

#[test]
fn a_repair_of_packs_leaves_archived_ones_alone_with_their_marks() {
    let scene = wasteful();
    let archived = packs_of_data(&scene);
    let packs: Vec<ObjectId> = archived.iter().filter_map(ObjectName::id).collect();
    for is_marked in [false, true] {
        if is_marked {
            let marked = scene.repository().mark_damaged(packs.clone());
            assert_eq!(marked.unwrap(), packs.len());
        }
        let store = ArchivedStore::over(scene.store.clone(), archived.clone());
        let before = scene.store.memory().objects();
        let repository = scene.open(store).unwrap();
        let named = if is_marked { &[][..] } else { &packs };
        let repair = repair_packs(&repository, named, false, &Recorder::default()).unwrap();
        assert_eq!(repair.packs.len(), packs.len());
        for pack in &repair.packs {
            assert!(
                pack.archived.is_some() && pack.trouble.is_none(),
                "{pack:?}"
            );
            assert_eq!((pack.chunks_saved, pack.chunks_lost), (0, 0));
        }
        assert_eq!(repair.lost_count, 0);
        assert_eq!(scene.store.memory().objects(), before);
    }
}

#[test]
fn a_check_counts_archived_packs_and_calls_nothing_damaged() {
    let scene = wasteful();
    let archived = packs_of_data(&scene);
    let store = ArchivedStore::over(scene.store.clone(), archived.clone());
    let repository = scene.open(store).unwrap();
    let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
    assert!(report.is_clean() && report.packs_damaged.is_empty());
    assert_eq!(report.packs_archived, archived.len() as u64);
}

#[test]
fn a_copy_or_mirror_of_archived_packs_says_so_calls_nothing_lost_and_goes_on_once_they_are_back() {
    let scene = wasteful();
    let store = ArchivedStore::over(scene.store.clone(), packs_of_data(&scene));
    let source = scene.open(store.clone()).unwrap();
    let chosen = source.snapshots().unwrap();
    let other = Scene::new();
    let copy_all = || {
        let monitor = Recorder::default();
        let target = other.repository();
        let done = copy(&source, &target, &chosen, &CopyOptions::default(), &monitor);
        assert_eq!(monitor.problems.lock().unwrap().len(), 0);
        done
    };
    let target: Arc<dyn Store> = Arc::new(DatedStore::new(scene.clock.clone()));
    let mirror_all = || {
        mirror(
            &source,
            &target,
            &MirrorOptions::default(),
            &Recorder::default(),
        )
    };
    for refused in [copy_all().map(drop), mirror_all().map(drop)] {
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("archived") && text.contains("--plan"),
            "{text}"
        );
    }
    assert_eq!(other.repository().snapshots().unwrap().len(), 0);
    store.bring_back();
    assert_eq!(copy_all().unwrap().snapshots.len(), chosen.len());
    assert_eq!(mirror_all().unwrap().problems, 0);
}

/// What says nothing of the object that was to be read.
const INCONCLUSIVE: [ErrorKind; 4] = [
    ErrorKind::PermissionDenied,
    ErrorKind::TimedOut,
    ErrorKind::ConnectionRefused,
    ErrorKind::Other,
];

/// Of this repository, without these objects.
fn refusing(scene: &Scene, refused: &[ObjectName], kind: ErrorKind) -> ArchivedStore {
    ArchivedStore::refusing(scene.store.clone(), refused.to_vec(), move || kind.into())
}

#[test]
fn a_check_names_what_could_not_be_read_and_neither_calls_nor_marks_it_damaged() {
    let scene = wasteful();
    let all = |area| scene.store.names(area);
    for kind in INCONCLUSIVE {
        let data = packs_of_data(&scene);
        for (refused, least) in [
            (data.clone(), data.len()),
            (all(Area::Packs), 1),
            (all(Area::Snapshots), 1),
            (all(Area::Config), 1),
        ] {
            let repository = scene.open(refusing(&scene, &refused, kind)).unwrap();
            let before = scene.store.memory().objects();
            let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
            let story = format!("{kind}: {refused:?}: {report:?}");
            assert!(report.is_clean() && report.lost.is_empty(), "{story}");
            assert!(report.packs_damaged.is_empty(), "{story}");
            assert!(report.unread.count >= least as u64, "{story}");
            assert_eq!(report.unread.listed.len() as u64, report.unread.count);
            mark(&repository, &report).unwrap();
            assert_eq!(scene.store.memory().objects(), before, "{story}");
        }
    }
}

#[test]
fn what_is_not_there_or_on_a_bad_sector_is_damaged() {
    const EIO: i32 = 5;
    const ELOOP: i32 = 40;
    let scene = wasteful();
    let packs = packs_of_data(&scene);
    let whys: [fn() -> Error; 6] = [
        || Error::from_raw_os_error(EIO),
        || ErrorKind::NotFound.into(),
        || ErrorKind::UnexpectedEof.into(),
        || ErrorKind::IsADirectory.into(),
        // No file, as a directory of this machine says it.
        || ErrorKind::InvalidInput.into(),
        || Error::from_raw_os_error(ELOOP),
    ];
    for why in whys {
        let store = ArchivedStore::refusing(scene.store.clone(), packs.clone(), why);
        let repository = scene.open(store).unwrap();
        let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
        assert!(!report.is_clean() && report.lost_count > 0, "{}", why());
        assert_eq!(report.packs_damaged.len(), packs.len(), "{}", why());
        assert_eq!(report.unread.count, 0, "{}", why());
    }
}

/// What it names is not known, so that what is in no pack that is named is no loss.
#[test]
fn a_check_without_a_right_to_the_index_says_so_and_calls_nothing_lost() {
    let scene = wasteful();
    let index = scene.store.names(Area::Index);
    let store = refusing(&scene, &index, ErrorKind::PermissionDenied);
    let repository = scene.open(store).unwrap();
    let error = check(&repository, None, &Recorder::default()).unwrap_err();
    assert!(error.to_string().contains("rights"), "{error}");
}

#[test]
fn a_scrub_counts_what_could_not_be_read_apart_from_damage() {
    let scene = wasteful();
    for kind in INCONCLUSIVE {
        let packs = scene.store.names(Area::Packs);
        let store = refusing(&scene, &packs, kind);
        let report = scrub(&store, &Recorder::default()).unwrap();
        assert_eq!(report.damage, [], "{kind}");
        assert_eq!(report.unread.count, packs.len() as u64, "{kind}");
    }
}

#[test]
fn a_repair_of_packs_leaves_what_could_not_be_read_alone_with_its_marks() {
    let scene = wasteful();
    let data = packs_of_data(&scene);
    let packs: Vec<ObjectId> = data.iter().filter_map(ObjectName::id).collect();
    for is_marked in [false, true] {
        if is_marked {
            scene.repository().mark_damaged(packs.clone()).unwrap();
        }
        for kind in INCONCLUSIVE {
            let before = scene.store.memory().objects();
            let repository = scene.open(refusing(&scene, &data, kind)).unwrap();
            let named = if is_marked { &[][..] } else { &packs };
            let repair = repair_packs(&repository, named, false, &Recorder::default()).unwrap();
            assert_eq!(repair.packs.len(), packs.len());
            for pack in &repair.packs {
                assert!(pack.unread.is_some() && pack.trouble.is_none(), "{pack:?}");
            }
            assert_eq!(repair.lost_count, 0);
            assert_eq!(scene.store.memory().objects(), before);
        }
    }
}

#[test]
fn a_prune_gives_up_nothing_that_it_could_not_read_and_says_what_to_do() {
    let scene = wasteful();
    let data = packs_of_data(&scene);
    for kind in INCONCLUSIVE {
        let repository = scene.open(refusing(&scene, &data, kind)).unwrap();
        let monitor = Recorder::default();
        let options = PruneOptions {
            grace: Duration::ZERO,
            repack_below_percent: 60,
        };
        let plan = prune::plan(&repository, &options, &monitor).unwrap();
        let pruned = prune::apply(&repository, &plan, &options, &monitor).unwrap();
        assert!(pruned.problems > 0, "something was to be copied");
        let problems = monitor.problems.lock().unwrap();
        let is_said = |text: &str| text.contains("rights") && !text.contains("repair packs");
        assert!(problems.iter().all(|it| is_said(&it.text)), "{problems:?}");
        assert_eq!(scene.store.names(Area::Damaged), []);
        assert_eq!(packs_of_data(&scene), data);
    }
    scene.assert_sound(&scene.store.fork(), "beside what could not be read");
}

#[test]
fn a_backup_that_could_not_read_what_it_would_rely_on_marks_nothing() {
    let scene = wasteful();
    scene.write("again", &noise(5, 20_000));
    for kind in INCONCLUSIVE {
        let store = refusing(&scene, &packs_of_data(&scene), kind);
        let repository = scene.open(store).unwrap();
        let _whatever_became_of_it = scene.backup(&repository);
        assert_eq!(scene.store.names(Area::Damaged), [], "{kind}");
    }
}
