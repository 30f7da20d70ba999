//! What counts as a change, and how files are counted (issue 13): a backup that is skipped because nothing changed is one
//! whose snapshot would be the parent's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bale_engine::backup::{BackupOptions, Outcome};
use bale_engine::monitor::{Monitor, Problem, Recorder};
use bale_engine::store::Area;
use bale_testkit::Scene;
use bale_testkit::scene::noise;

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

/// Interrupts once it was asked so often.
struct After(AtomicU64);

impl Monitor for After {
    fn problem(&self, _: &Problem) {}

    fn interrupted(&self) -> bool {
        let asked = |left: u64| Some(left.saturating_sub(1));
        self.0.fetch_update(SeqCst, SeqCst, asked) == Ok(0)
    }
}

/// As many as are handed over to be stored together, twice: so none waits when the run is interrupted.
const CHANGED: usize = 512;

/// Compared with what an unfinished run stored nothing changed, and yet no snapshot has it.
#[test]
fn what_an_unfinished_run_stored_is_not_skipped() {
    let mut scene = Scene::new();
    let write = |scene: &Scene, content: &[u8]| {
        for number in 0..CHANGED {
            scene.write(&format!("changed/{number:03}"), content);
        }
    };
    write(&scene, b"before");
    for number in 0..20 {
        scene.write(&format!("unchanged/{number:02}/file"), b"stays");
    }
    backup(&scene, &options());
    backup(&scene, &options());
    write(&scene, b"after");
    std::thread::sleep(SETTLED);
    let base = scene.store.clone();
    let often = BackupOptions {
        checkpoint_every: Some(Duration::ZERO),
        ..options()
    };
    let mut left_records = 0;
    for times in 1..100 {
        scene.store = base.fork();
        let repository = scene.repository();
        let ended = scene.backup_with(&repository, &often, &After(AtomicU64::new(times)));
        left_records += scene.store.names(Area::Runs).len();
        let next = backup(&scene, &options());
        if ended.is_ok() {
            break;
        }
        assert!(next.id.is_some(), "interrupted after {times}");
    }
    assert!(left_records > 0, "some are gone on from");
}
