//! Sources that are empty and were not: is their file system mounted?

use std::fs;

use bale_engine::backup::{BackupOptions, Outcome};
use bale_format::Snapshot;
use bale_pipeline::monitor::{Problem, Recorder};
use bale_source::scan::source_filesystems;
use bale_source::scan::{ScanMode, ScanOptions, Sources};
use bale_testkit::Scene;
use bale_testkit::scene::STEP;

fn backup(scene: &Scene) -> (Outcome, Vec<Problem>) {
    let monitor = Recorder::default();
    let options = BackupOptions::default();
    let outcome = scene.backup_with(&scene.repository(), &options, &monitor);
    (outcome.unwrap(), monitor.problems.into_inner().unwrap())
}

fn empty(scene: &Scene) {
    fs::remove_dir_all(scene.source()).unwrap();
    fs::create_dir(scene.source()).unwrap();
}

/// The snapshots of a scene become those of another file system, which was mounted in its place.
fn as_of_another_file_system(scene: &Scene) {
    let repository = scene.repository();
    for (id, snapshot) in repository.snapshots().unwrap() {
        let other = Snapshot {
            source_filesystems: vec!["nfs4:server:/export".to_owned()],
            ..snapshot
        };
        repository.write_snapshot(&other).unwrap();
        repository.forget_snapshot(id).unwrap();
    }
    scene.forget_newest_seen();
}

fn is_told(told: &(Outcome, Vec<Problem>), had: &str) {
    let (outcome, problems) = told;
    assert!(outcome.id.is_some(), "there is a snapshot all the same");
    assert_eq!(outcome.snapshot.counts.problems, 1, "{problems:?}");
    assert!(
        problems[0].text.contains("is its file system mounted?") && problems[0].text.contains(had),
        "{problems:?}"
    );
}

#[test]
fn a_source_that_was_emptied_is_told_once() {
    let scene = Scene::new();
    assert_eq!(backup(&scene).1, [], "it never had anything");
    scene.write("a", b"a");
    scene.write("b", b"b");
    assert_eq!(backup(&scene).1, []);
    empty(&scene);
    is_told(&backup(&scene), "2 files");
    assert_eq!(backup(&scene).1, [], "it stays empty");
    scene.write("a", b"a");
    assert_eq!(backup(&scene).1, []);
    empty(&scene);
    is_told(&backup(&scene), "1 file ");
}

/// What is in the directory that something was mounted on.
#[test]
fn a_few_names_where_a_file_system_was_are_told_by_every_backup() {
    let scene = Scene::new();
    let fill = || (0..6).for_each(|number| scene.write(&number.to_string(), b"content"));
    fill();
    backup(&scene);
    as_of_another_file_system(&scene);
    empty(&scene);
    scene.write(".keep", b"");
    for _ in 0..3 {
        is_told(&backup(&scene), "6 files");
    }
    fill();
    assert_eq!(backup(&scene).1, [], "it is used as it is");
    empty(&scene);
    scene.write(".keep", b"");
    assert_eq!(backup(&scene).1, [], "what it had was of this one");
}

#[test]
fn a_source_whose_file_system_is_not_mounted_is_told_by_every_backup() {
    let scene = Scene::new();
    scene.write("a", b"a");
    backup(&scene);
    as_of_another_file_system(&scene);
    empty(&scene);
    for _ in 0..3 {
        is_told(&backup(&scene), "1 file ");
    }
    scene.write("b", b"of this file system");
    assert_eq!(backup(&scene).1, []);
    empty(&scene);
    is_told(&backup(&scene), "1 file ");
    assert_eq!(backup(&scene).1, [], "what it had was of this one");
}

/// Of a file system that nothing tells apart from any other.
#[test]
fn where_nothing_tells_the_file_system_every_backup_of_what_was_emptied_says_so() {
    let scene = Scene::new();
    scene.write("a", b"a");
    scene.write("b", b"b");
    let key_is_known = !source_filesystems(
        &Sources::resolve(&[scene.source()]).unwrap().0,
        ScanMode::Walk,
    )
    .is_empty();
    backup(&scene);
    empty(&scene);
    is_told(&backup(&scene), "2 files");
    assert_eq!(backup(&scene).1.is_empty(), key_is_known);
}

#[test]
fn of_several_sources_the_empty_one_is_named() {
    let scene = Scene::new();
    scene.write("one/a", b"a");
    scene.write("two/b", b"b");
    let backup = || {
        scene.clock.advance(STEP);
        let paths = ["one", "two"].map(|name| scene.source().join(name));
        let (sources, _) = Sources::resolve(&paths).unwrap();
        assert_eq!(source_filesystems(&sources, ScanMode::Walk).len(), 1);
        let scan = ScanOptions {
            spill_directory: std::env::temp_dir(),
            ..ScanOptions::default()
        };
        let monitor = Recorder::default();
        let options = BackupOptions::default();
        let repository = scene.repository();
        let done = bale_engine::backup::backup(&repository, &sources, scan, &options, &monitor);
        (done.unwrap(), monitor.problems.into_inner().unwrap())
    };
    assert_eq!(backup().1, []);
    fs::remove_file(scene.source().join("two/b")).unwrap();
    let told = backup();
    is_told(&told, "something");
    assert!(told.1[0].path.ends_with(b"/source/two"), "{:?}", told.1);
    assert_eq!(backup().1, []);
}
