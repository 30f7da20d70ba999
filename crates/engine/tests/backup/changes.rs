//! What counts as a change, and how files are counted (issue 13): a backup that is skipped because
//! nothing changed is one whose snapshot would be the parent's.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bale_engine::backup::{BackupOptions, Outcome};
use bale_format::{Key, ObjectId, Snapshot};
use bale_pipeline::monitor::Recorder;
use bale_repository::store::{Area, Store};
use bale_source::scan::{Protocol, ScanOptions, Sources};
use bale_testkit::scene::{STEP, noise};
use bale_testkit::{Call, HookedStore, Scene, Verb};

const SETTLED: Duration = Duration::from_millis(100);

fn options() -> BackupOptions {
    BackupOptions {
        skip_if_unchanged: true,
        ..BackupOptions::default()
    }
}

fn backup(scene: &Scene, options: &BackupOptions) -> Outcome {
    std::thread::sleep(SETTLED);
    let repository = scene.repository();
    let outcome = scene.backup_with(&repository, options, &Recorder::default());
    let outcome = outcome.unwrap();
    let (counts, totals) = (outcome.snapshot.counts, outcome.snapshot.totals);
    let counted = counts.files_new + counts.files_changed + counts.files_unmodified;
    assert_eq!(counted, totals.files, "{counts:?}");
    outcome
}

fn many_bundles(scene: &Scene) {
    for number in 0..40 {
        scene.write(&format!("many/{number:02}"), &noise(number, 300 << 10));
    }
}

fn set_mode(scene: &Scene, name: &str, mode: u32) {
    fs::set_permissions(scene.source().join(name), fs::Permissions::from_mode(mode)).unwrap();
}

type Change = (&'static str, fn(&Scene));

const CHANGES: [Change; 14] = [
    ("a small file in the last bundle", |scene| {
        scene.write("z", b"other")
    }),
    ("a small file of the same length", |scene| {
        scene.write("a.txt", b"First file\n")
    }),
    ("the first of many bundles", |scene| {
        scene.write("many/00", &noise(99, 300 << 10))
    }),
    ("the last of many bundles", |scene| {
        scene.write("many/39", &noise(98, 300 << 10))
    }),
    ("a file in a subdirectory", |scene| {
        scene.write("dir/deep/c.bin", b"c")
    }),
    ("a file that became empty", |scene| {
        scene.write("b.txt", b"")
    }),
    ("a new file", |scene| scene.write("new", b"new")),
    ("a new empty file", |scene| scene.write("new empty", b"")),
    ("a removed file", |scene| {
        fs::remove_file(scene.source().join("b.txt")).unwrap()
    }),
    ("a mode", |scene| set_mode(scene, "z", 0o640)),
    ("a directory's mode", |scene| set_mode(scene, "dir", 0o750)),
    ("a link's target", |scene| {
        let link = scene.source().join("link");
        fs::remove_file(&link).unwrap();
        symlink("b.txt", link).unwrap();
    }),
    ("a large file", |scene| {
        let mut large = noise(7, 700 << 10);
        large[5] ^= 1;
        scene.write("large", &large);
    }),
    ("a name of a hard link", |scene| {
        fs::remove_file(scene.source().join("dir/again-a")).unwrap()
    }),
];

/// B1: a changed small file of the last bundle was not counted, so its backup was skipped, exit 0.
#[test]
fn no_change_of_any_kind_is_skipped() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("z", b"the last one");
    many_bundles(&scene);
    backup(&scene, &options());
    for (story, change) in CHANGES {
        change(&scene);
        let outcome = backup(&scene, &options());
        assert!(outcome.id.is_some(), "{story}: skipped");
        let id = outcome.id.unwrap();
        let repository = scene.repository();
        let all = repository.snapshots().unwrap();
        let snapshot = all.iter().find(|(other, _)| *other == id).unwrap();
        let now = bale_testkit::Tree::read(&scene.source());
        scene.assert_restores(&repository, snapshot, &now, story);
        // What was young is read once more, and is the same.
        let again = [backup(&scene, &options()), backup(&scene, &options())];
        // Files of a chunk that is used but little are stored afresh by the first.
        let is_skipped = again.iter().any(|outcome| outcome.id.is_none());
        assert!(is_skipped, "{story}: nothing changed since");
    }
    scene.kept.clear();
}

/// Compared with what an unfinished run stored nothing changed, and yet no snapshot has it.
#[test]
fn what_an_unfinished_run_stored_is_not_skipped() {
    let scene = Scene::new();
    scene.write("file", b"before");
    let before = backup(&scene, &BackupOptions::default());
    scene.write("file", b"after");
    // The second is certain of its rows: nothing in it is as young as the scan.
    let after = [(), ()].map(|()| backup(&scene, &BackupOptions::default()));
    let repository = scene.repository();
    for outcome in &after {
        repository.forget_snapshot(outcome.id.unwrap()).unwrap();
    }
    let until = Key {
        parent: scene.source().as_os_str().as_bytes()[1..].to_vec().into(),
        name: b"file stored, and then it was killed"[..].into(),
    };
    let record = Snapshot {
        partial: true,
        until: Some(until),
        ..after[1].snapshot.clone()
    };
    repository.write_run([1; 16], &record).unwrap();
    let next = backup(&scene, &options());
    assert_eq!(next.snapshot.parent, before.id);
    assert_eq!(next.snapshot.counts.bytes_read, 0, "gone on from the run");
    assert!(next.id.is_some(), "no snapshot has it");
    assert!(backup(&scene, &options()).id.is_none());
}

/// As `backup`, of paths below the scene's source.
fn backup_of(scene: &Scene, names: &[&str], options: &BackupOptions) -> Option<ObjectId> {
    let trusting = Protocol {
        memory_is_racy: false,
        ..Protocol::default()
    };
    backup_by(scene, names, trusting, options)
}

fn backup_by(
    scene: &Scene,
    names: &[&str],
    protocol: Protocol,
    options: &BackupOptions,
) -> Option<ObjectId> {
    std::thread::sleep(SETTLED);
    scene.clock.advance(STEP);
    let paths = names.iter().map(|name| scene.source().join(name));
    let (sources, missing) = Sources::resolve(&paths.collect::<Vec<_>>()).unwrap();
    assert!(missing.is_empty());
    let scan = ScanOptions {
        spill_directory: std::env::temp_dir(),
        protocol,
        ..ScanOptions::default()
    };
    let monitor = Recorder::default();
    let outcome =
        bale_engine::backup::backup(&scene.repository(), &sources, scan, options, &monitor);
    outcome.unwrap().id
}

/// What is young when it is stored is stored once more, so the second of the same may not be
/// skipped; the third is.
fn is_skipped_in_the_end(scene: &Scene, names: &[&str]) -> bool {
    let again = [(), ()].map(|()| backup_of(scene, names, &options()));
    again[1].is_none()
}

#[test]
fn one_file_or_two_sources_are_skipped_only_if_nothing_changed() {
    for names in [&["b.txt"][..], &["dir", "b.txt"], &["a.txt", "b.txt"]] {
        let scene = Scene::new();
        scene.write_tree();
        assert!(
            backup_of(&scene, names, &options()).is_some(),
            "{names:?}: first"
        );
        assert!(is_skipped_in_the_end(&scene, names), "{names:?}");
        scene.write("empty", b"beside the sources");
        assert!(is_skipped_in_the_end(&scene, names), "{names:?}: beside");
        scene.write("b.txt", b"changed");
        assert!(
            backup_of(&scene, names, &options()).is_some(),
            "{names:?}: content"
        );
        assert!(is_skipped_in_the_end(&scene, names), "{names:?}");
        set_mode(&scene, "b.txt", 0o600);
        assert!(
            backup_of(&scene, names, &options()).is_some(),
            "{names:?}: mode"
        );
        assert!(is_skipped_in_the_end(&scene, names), "{names:?}");
    }
}

#[test]
fn a_parent_of_other_sources_or_of_another_host_is_no_reason_to_skip() {
    let scene = Scene::new();
    scene.write("dir/deep/file", b"bytes");
    backup_of(&scene, &["dir"], &options()).unwrap();
    assert!(is_skipped_in_the_end(&scene, &["dir"]));
    let parent = scene.repository().snapshots().unwrap().pop().unwrap().0;
    let compared_with = |host: &str| BackupOptions {
        host: host.to_owned(),
        parent: Some(parent),
        ..options()
    };
    let host = options().host;
    assert!(backup_of(&scene, &["dir"], &compared_with(&host)).is_none());
    assert!(backup_of(&scene, &["dir"], &compared_with("other")).is_some());
    let below = backup_of(&scene, &["dir/deep"], &compared_with(&host));
    assert!(below.is_some(), "the directory alone has no snapshot");
}

#[test]
fn a_parent_that_is_not_the_newest_is_no_reason_to_skip() {
    let scene = Scene::new();
    scene.write("dir/file", b"bytes");
    backup_of(&scene, &["dir"], &options()).unwrap();
    backup_of(&scene, &["dir"], &options());
    let as_now = scene.repository().snapshots().unwrap().pop().unwrap().0;
    scene.write("dir/other", b"for a while");
    backup_of(&scene, &["dir"], &options()).unwrap();
    fs::remove_file(scene.source().join("dir/other")).unwrap();
    let compared_with_older = BackupOptions {
        parent: Some(as_now),
        ..options()
    };
    for _ in 0..2 {
        assert!(backup_of(&scene, &["dir"], &compared_with_older).is_some());
    }
    assert!(is_skipped_in_the_end(&scene, &["dir"]));
}

/// Forgotten before any call of the run but those after the last look at it: there is a snapshot of
/// the state in the end.
#[test]
fn a_parent_that_is_forgotten_meanwhile_is_no_reason_to_skip() {
    let scene = Scene::new();
    scene.write("file", b"bytes");
    backup(&scene, &options());
    backup(&scene, &options());
    let mut saw_it_gone = 0;
    for at in 0.. {
        let store = scene.store.fork();
        let calls = Arc::new(AtomicU64::new(0));
        let looked_at = Arc::new(AtomicU64::new(u64::MAX));
        let (elsewhere, count, looked) = (store.clone(), calls.clone(), looked_at.clone());
        let hooked = HookedStore::over(store.clone(), move |call: &Call| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            if (call.verb, call.area) == (Verb::Stat, Area::Snapshots) {
                looked.store(number, Ordering::SeqCst);
            }
            if number == at {
                let names = elsewhere.names(Area::Snapshots);
                names
                    .iter()
                    .for_each(|name| elsewhere.delete(name).unwrap());
            }
        });
        let repository = scene.open(hooked).unwrap();
        let outcome = scene.backup_with(&repository, &options(), &Recorder::default());
        let id = outcome.unwrap().id;
        if calls.load(Ordering::SeqCst) <= at {
            assert_eq!(id, None, "nobody forgot anything");
            break;
        }
        if at <= looked_at.load(Ordering::SeqCst) {
            let left = store.names(Area::Snapshots);
            assert!(id.is_some() && left.len() == 1, "call {at}: {left:?}");
            saw_it_gone += 1;
        }
    }
    assert!(saw_it_gone > 10, "{saw_it_gone}");
}

#[test]
fn who_forces_compares_with_nothing_and_skips_nothing() {
    let scene = Scene::new();
    scene.write_tree();
    let force = BackupOptions {
        force: true,
        ..options()
    };
    for _ in 0..3 {
        assert!(backup(&scene, &force).id.is_some());
    }
}

/// What is in memory is doubted: its names share nothing that was read. So the new name's content
/// is stored anew, the old one's stays where it was stored: two places, one inode.
#[test]
fn a_hard_link_made_between_backups_is_restored_as_one_file() {
    let scene = Scene::new();
    let doubting = Protocol::default();
    for (seed, name) in [(1, "f"), (2, "g"), (3, "h")] {
        scene.write(name, &noise(seed, 1_500));
    }
    backup_by(&scene, &[""], doubting, &options()).unwrap();
    let link = |from: &str, to: &str| {
        fs::hard_link(scene.source().join(from), scene.source().join(to)).unwrap();
        let id = backup_by(&scene, &[""], doubting, &options()).unwrap();
        let repository = scene.repository();
        let all = repository.snapshots().unwrap();
        let snapshot = all.iter().find(|(other, _)| *other == id).unwrap();
        // Trees differ if other names are of one inode.
        let now = bale_testkit::Tree::read(&scene.source());
        assert_eq!(
            now.0[to.as_bytes()].first_name,
            now.0[from.as_bytes()].first_name
        );
        scene.assert_restores(&repository, snapshot, &now, to);
    };
    link("f", "l");
    link("h", "a");
}
