//! Snapshots that this machine has seen and that are gone without having been forgotten here (issue
//! 13, 16).

use bale_engine::forget;
use bale_engine::mirror::{MirrorOptions, mirror};
use bale_engine::prune::{self, PruneOptions, PrunePlan};
use bale_engine::verify::check;
use bale_format::{ObjectId, Snapshot};
use bale_pipeline::clock::Clock;
use bale_pipeline::monitor::Recorder;
use bale_repository::snapshots::remembered::{Missed, forgotten, list, missed};
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::Scene;
use bale_testkit::scene::noise;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn scene() -> Scene {
    let scene = Scene::new();
    scene.write("file", b"content");
    scene
}

fn backup(scene: &Scene) -> ObjectId {
    let outcome = scene.backup(&scene.repository()).unwrap();
    outcome.id.unwrap()
}

/// What a look at the snapshots tells.
fn told(scene: &Scene) -> Vec<String> {
    let notes = RefCell::new(Vec::new());
    let note = |missed: Missed| notes.borrow_mut().push(missed.text);
    list(&scene.repository(), &note).unwrap();
    notes.into_inner()
}

fn is_missed(notes: &[String], id: ObjectId) -> bool {
    let names =
        |note: &&String| note.contains(&id.short()) && note.contains("not in the repository");
    notes.iter().filter(names).count() == 1
}

/// The memory, in the cache of the scene.
fn memory(scene: &Scene) -> PathBuf {
    let dir = std::fs::read_dir(scene.cache()).unwrap().next().unwrap();
    dir.unwrap().path().join("newest-snapshots")
}

#[test]
fn a_store_that_was_set_back_is_told_until_a_newer_snapshot_of_the_source_is_there() {
    let mut scene = scene();
    backup(&scene);
    let earlier = scene.store.fork();
    let lost = backup(&scene);
    assert_eq!(told(&scene), [""; 0]);
    scene.store = earlier;
    for _ in 0..2 {
        let notes = told(&scene);
        assert!(is_missed(&notes, lost), "{notes:?}");
        assert!(notes[0].contains("of host, 20"), "{notes:?}");
    }
    let monitor = Recorder::default();
    check(&scene.repository(), None, &monitor).unwrap();
    assert!(is_missed(&monitor.notes.into_inner().unwrap(), lost));
    let monitor = Recorder::default();
    let repository = scene.repository();
    let done = scene.backup_with(&repository, &Default::default(), &monitor);
    assert!(done.unwrap().id.is_some());
    assert!(is_missed(&monitor.notes.into_inner().unwrap(), lost));
    assert_eq!(told(&scene), [""; 0], "a newer one is there");
}

#[test]
fn what_is_forgotten_here_is_not_missed() {
    let scene = scene();
    let (first, second) = (backup(&scene), backup(&scene));
    for id in [second, first] {
        let repository = scene.repository();
        let found = forget::find(&repository, &id.to_string()).unwrap();
        forget::remove(&repository, &found).unwrap();
        assert_eq!(told(&scene), [""; 0]);
    }
}

#[test]
fn what_another_machine_removes_is_missed_while_nothing_newer_is_there_or_until_it_is_named() {
    let scene = scene();
    let first = backup(&scene);
    let remove = |id| scene.store.delete(&ObjectName::snapshot(id)).unwrap();
    let second = backup(&scene);
    remove(first);
    assert_eq!(told(&scene), [""; 0], "rules remove old ones");
    let repository = scene.repository();
    assert_eq!(missed(&repository, &second.short()).unwrap(), None);
    remove(second);
    assert!(is_missed(&told(&scene), second));
    let named = missed(&repository, &second.short().to_ascii_uppercase()).unwrap();
    assert_eq!(named, Some(second));
    assert_eq!(missed(&repository, "").unwrap(), None);
    forgotten(&repository, second);
    assert_eq!(told(&scene), [""; 0]);
}

/// REP-10: the store hides the newest snapshot, of which another one uses nothing.
#[test]
fn nothing_is_pruned_while_a_snapshot_is_missed() {
    let scene = scene();
    backup(&scene);
    scene.write("file", &noise(7, 100_000));
    let hidden = ObjectName::snapshot(backup(&scene));
    let options = PruneOptions {
        grace: Duration::ZERO,
        repack_below_percent: 50,
    };
    let planned = || prune::plan(&scene.repository(), &options, &Recorder::default());
    let apply = |plan: &PrunePlan| {
        let repository = scene.repository();
        let done = prune::apply(&repository, plan, &options, &Recorder::default());
        done.map_err(|error| error.to_string())
    };
    let early = planned().unwrap();
    assert!(early.missed.is_empty());
    let bytes = scene.store.get(&hidden, 1 << 20).unwrap();
    scene.store.delete(&hidden).unwrap();
    let before = scene.store.names(Area::Packs);
    let late = planned().unwrap();
    assert_eq!(late.missed.len(), 1);
    let acknowledges = format!("bale forget {}", late.missed[0].id.short());
    for _ in 0..2 {
        let refused = apply(&planned().unwrap()).unwrap_err();
        assert!(refused.contains(&acknowledges), "{refused}");
    }
    scene
        .repository()
        .condemn(before.iter().filter_map(ObjectName::id).collect())
        .unwrap();
    let refused = apply(&early).unwrap_err();
    assert!(refused.contains(&acknowledges), "the look: {refused}");
    assert_eq!(scene.store.names(Area::Packs), before);
    // It is back: everything of it is still there.
    scene.store.put(&hidden, &bytes).unwrap();
    apply(&planned().unwrap()).unwrap();
    assert!(
        check(&scene.repository(), None, &Recorder::default())
            .unwrap()
            .is_clean()
    );
    // It is meant to be gone.
    scene.store.delete(&hidden).unwrap();
    forgotten(&scene.repository(), hidden.id().unwrap());
    assert!(apply(&planned().unwrap()).unwrap().packs_condemned > 0);
}

/// What a wrong clock dated years ahead is newer than every other for as long: it excuses none that
/// is gone, nor does it take the place of one in the memory.
#[test]
fn a_snapshot_dated_in_the_future_hides_no_other_that_is_gone() {
    let scene = scene();
    let remove = |id| scene.store.delete(&ObjectName::snapshot(id)).unwrap();
    let missed = || prune::refuse_while_missed(&scene.repository()).is_err();
    let before = backup(&scene);
    let now = scene.clock.now();
    scene
        .clock
        .advance(Duration::from_secs(3 * 365 * 24 * 3600));
    let ahead = backup(&scene);
    scene.clock.set(now);
    assert_eq!(told(&scene), [""; 0]);
    let newest = backup(&scene);
    remove(before);
    assert_eq!((told(&scene), missed()), (Vec::new(), false), "a newer one");
    remove(newest);
    for _ in 0..2 {
        assert!(missed());
        assert!(is_missed(&told(&scene), newest), "still remembered");
    }
    remove(ahead);
    let notes = told(&scene);
    assert!(is_missed(&notes, ahead) && is_missed(&notes, newest));
    backup(&scene);
    assert!(is_missed(&told(&scene), ahead), "nothing newer came");
    forgotten(&scene.repository(), ahead);
    assert_eq!((told(&scene), missed()), (Vec::new(), false));
}

#[test]
fn the_newest_of_every_source_is_remembered() {
    let scene = scene();
    let own = scene.backup(&scene.repository()).unwrap();
    let of_another_host = Snapshot {
        host: "web2".to_owned(),
        ..own.snapshot
    };
    let repository = scene.repository();
    let theirs = repository.write_snapshot(&of_another_host).unwrap();
    assert_eq!(told(&scene), [""; 0]);
    backup(&scene);
    scene.store.delete(&ObjectName::snapshot(theirs)).unwrap();
    let notes = told(&scene);
    assert!(
        is_missed(&notes, theirs) && notes[0].contains("of web2"),
        "{notes:?}"
    );
}

#[test]
fn a_snapshot_that_cannot_be_read_is_there() {
    let scene = scene();
    let id = backup(&scene);
    let name = ObjectName::snapshot(id);
    let bytes = scene.store.get(&name, 1 << 20).unwrap();
    scene.store.delete(&name).unwrap();
    scene.store.put(&name, &bytes[..40]).unwrap();
    assert_eq!(told(&scene), [""; 0]);
    scene.store.delete(&name).unwrap();
    assert!(is_missed(&told(&scene), id), "still remembered");
}

#[test]
fn a_memory_that_is_lost_touched_or_refused_costs_the_warning_only() {
    let scene = scene();
    let id = backup(&scene);
    scene.store.delete(&ObjectName::snapshot(id)).unwrap();
    let whole = std::fs::read(memory(&scene)).unwrap();
    assert!(is_missed(&told(&scene), id));
    let tell_with = |bytes: &[u8]| {
        std::fs::write(memory(&scene), bytes).unwrap();
        told(&scene)
    };
    for at in 0..whole.len() {
        let mut touched = whole.clone();
        touched[at] ^= 1;
        assert_eq!(tell_with(&touched), [""; 0], "byte {at}");
        assert_eq!(tell_with(&whole[..at]), [""; 0], "cut at {at}");
    }
    assert!(is_missed(&tell_with(&whole), id));
    std::fs::remove_file(memory(&scene)).unwrap();
    assert_eq!(told(&scene), [""; 0]);
    replace_by_a_file(&scene.cache());
    assert_eq!(told(&scene), [""; 0], "no cache");
}

fn replace_by_a_file(dir: &Path) {
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::write(dir, b"no directory").unwrap();
}

/// A mirror on the same machine is the same repository.
#[test]
fn what_was_forgotten_here_is_not_missed_by_whoever_saw_it_in_a_mirror() {
    let mut scene = scene();
    backup(&scene);
    let second = backup(&scene);
    let original = scene.store.clone();
    let mirror = scene.store.fork();
    let repository = scene.repository();
    let found = forget::find(&repository, &second.to_string()).unwrap();
    forget::remove(&repository, &found).unwrap();
    scene.store = mirror;
    assert_eq!(told(&scene), [""; 0]);
    scene.store = original;
    assert_eq!(told(&scene), [""; 0]);
    prune::refuse_while_missed(&scene.repository()).unwrap();
}

/// It is no loss, and mirroring again ends it.
#[test]
fn of_a_mirror_that_is_behind_it_is_said_that_mirroring_brings_it_up_to_date() {
    let mut scene = scene();
    backup(&scene);
    let behind = scene.store.fork();
    let newer = backup(&scene);
    let source = std::mem::replace(&mut scene.store, behind);
    let notes = told(&scene);
    assert!(is_missed(&notes, newer), "{notes:?}");
    assert!(notes[0].contains("a mirror that is behind"), "{notes:?}");
    assert!(
        notes[0].contains("bale mirror brings it up to date"),
        "{notes:?}"
    );
    let target: Arc<dyn Store> = Arc::new(scene.store.clone());
    let source = scene.open(source).unwrap();
    mirror(
        &source,
        &target,
        &MirrorOptions::default(),
        &Recorder::default(),
    )
    .unwrap();
    assert_eq!(told(&scene), [""; 0]);
}
