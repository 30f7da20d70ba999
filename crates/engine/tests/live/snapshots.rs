//! Backups from snapshots that a command makes, with the scripts that come with Bale.

use super::mounts::*;
use bale_engine::backup::{BackupOptions, Outcome, backup};
use bale_engine::catalog::CatalogReader;
use bale_engine::monitor::Recorder;
use bale_engine::scan::snapshot_command::{SnapshotCommand, SnapshotError, Wanted, take_all};
use bale_engine::scan::{ScanOptions, Sources, barrier_now};
use bale_testkit::Scene;
use bale_testkit::scene::STEP;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn script(name: &str) -> SnapshotCommand {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scripts")
        .join(name);
    command(path.as_os_str().to_owned(), &[])
}

fn command(program: impl Into<std::ffi::OsString>, arguments: &[&str]) -> SnapshotCommand {
    SnapshotCommand {
        program: program.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        wait_max: PATIENCE,
    }
}

/// A shell script given as text.
fn shell(text: &str) -> SnapshotCommand {
    command("sh", &["-c", text])
}

fn wanted(source: &Path) -> Wanted {
    Wanted {
        source: source.to_owned(),
        name: "test".to_owned(),
        ..Wanted::default()
    }
}

#[test]
fn a_snapshot_is_there_as_long_as_it_is_held_and_released_however_that_ends() {
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("mark");
    let text = format!(
        "trap 'rm {0}' EXIT; touch {0}; echo directory $BALE_SOURCE/$BALE_SNAPSHOT_NAME; echo ready; cat",
        mark.display()
    );
    let snapshot = shell(&text).take(&wanted(place.path())).unwrap();
    assert_eq!(snapshot.directory, Some(place.path().join("test")));
    assert!(mark.exists());
    snapshot.release().unwrap();
    assert!(!mark.exists());
    drop(shell(&text).take(&wanted(place.path())).unwrap());
    assert!(!mark.exists());
}

#[test]
fn a_command_that_makes_no_snapshot_is_an_error_after_it_has_cleaned_up() {
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("mark");
    let refused = |text: &str| {
        shell(text)
            .take(&wanted(place.path()))
            .unwrap_err()
            .to_string()
    };
    assert!(refused("exit 7").contains("ended without saying"));
    assert!(refused("echo directory relative; echo ready; cat").contains("no absolute path"));
    assert!(refused("echo ready; cat").contains("names no directory"));
    assert!(refused("yes | head -c 100000; cat").contains("too much"));
    let text = format!(
        "trap 'touch {}' EXIT; echo nonsense; echo ready; cat",
        mark.display()
    );
    refused(&text);
    assert!(mark.exists(), "its end was not waited for");
    let slow = SnapshotCommand {
        wait_max: Duration::from_millis(300),
        ..shell("cat")
    };
    let why = slow.take(&wanted(place.path())).unwrap_err().to_string();
    assert!(why.contains("too long"), "{why}");
    let missing = command("/no/such/program", &[]).take(&wanted(place.path()));
    assert!(
        matches!(missing, Err(SnapshotError::Run { .. })),
        "{missing:?}"
    );
    let failing = shell("echo directory /; echo ready; cat; exit 3");
    let failed = failing.take(&wanted(place.path())).unwrap().release();
    assert!(
        matches!(failed, Err(SnapshotError::NotReleased { .. })),
        "{failed:?}"
    );
}

struct Bench {
    mounted: Mounted,
    scene: Scene,
}

impl Bench {
    fn backup(&self, command: Option<&SnapshotCommand>, change: impl FnOnce()) -> Outcome {
        let source = self.mounted.path().join("tree");
        let (mut sources, _) = Sources::resolve(&[&source]).unwrap();
        let barrier = command.map(|_| barrier_now());
        let taken =
            command.map(|command| take_all(command, &mut sources, "test-1", &mut |_| ()).unwrap());
        change();
        let scan = ScanOptions {
            barrier,
            spill_directory: self.mounted.beside(""),
            ..ScanOptions::default()
        };
        let options = BackupOptions {
            host: "host".to_owned(),
            ..BackupOptions::default()
        };
        let repository = self.scene.repository();
        self.scene.clock.advance(STEP);
        let monitor = Recorder::default();
        let outcome = backup(&repository, &sources, scan, &options, &monitor).unwrap();
        assert!(
            monitor.problems.lock().unwrap().is_empty(),
            "{:?}",
            monitor.problems
        );
        for snapshot in taken.into_iter().flatten() {
            snapshot.release().unwrap();
        }
        outcome
    }

    /// Paths below the source, and what dump tells of one.
    fn rows(&self, outcome: &Outcome) -> Vec<(PathBuf, u64)> {
        let source = self.mounted.path().join("tree");
        let layers = outcome.snapshot.layers.clone();
        let repository = self.scene.repository();
        let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
        let below = &source.as_os_str().as_bytes()[1..];
        let rows = catalog.subtree(below).unwrap().map(|row| row.unwrap());
        rows.map(|row| {
            let path = PathBuf::from(std::ffi::OsString::from_vec(row.path()));
            let path = Path::new("/")
                .join(path)
                .strip_prefix(&source)
                .unwrap()
                .to_path_buf();
            (path, row.size)
        })
        .collect()
    }
}

#[test]
fn a_btrfs_snapshot_is_backed_up_under_the_paths_of_its_source() {
    if !can_run(&["mkfs.btrfs", "btrfs", "mount"]) {
        return;
    }
    let bench = Bench {
        mounted: Mounted::new("btrfs", 256),
        scene: Scene::new(),
    };
    let tree = bench.mounted.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::write(tree.join("a/b/file"), b"as it was").unwrap();
    std::fs::write(tree.join("doomed"), b"soon gone").unwrap();
    // Old enough to be settled.
    std::thread::sleep(Duration::from_millis(50));
    let command = script("snapshot-btrfs");
    let outcome = bench.backup(Some(&command), || {
        std::fs::write(tree.join("a/b/file"), b"changed after the snapshot").unwrap();
        std::fs::remove_file(tree.join("doomed")).unwrap();
        std::fs::write(tree.join("new"), b"").unwrap();
    });
    let directory = |path: &str| (PathBuf::from(path), 0);
    let expected = [
        directory(""),
        directory("a"),
        ("doomed".into(), 9),
        directory("a/b"),
        ("a/b/file".into(), 9),
    ];
    assert_eq!(bench.rows(&outcome), expected);
    let names: Vec<_> = std::fs::read_dir(bench.mounted.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["tree"], "the snapshot was not released");

    // The next one, without a snapshot, knows the files again.
    std::thread::sleep(Duration::from_millis(50));
    let next = bench.backup(None, || {});
    let names: Vec<_> = bench
        .rows(&next)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(
        names,
        ["", "a", "new", "a/b", "a/b/file"].map(PathBuf::from)
    );
    let again = bench.backup(Some(&command), || {});
    let filesystems = |outcome: &Outcome| {
        let all = outcome.snapshot.filesystems.iter();
        all.map(|filesystem| (filesystem.uuid.clone(), filesystem.kind.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(filesystems(&again), filesystems(&next));
    assert_eq!(again.snapshot.totals, next.snapshot.totals);
}

/// Programs that stand for LVM and for mounting: they say what they were asked, and do as much as is needed.
fn pretended_lvm(place: &Path, pool: &str) -> SnapshotCommand {
    let bin = place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let log = place.join("log");
    let exists = place.join("exists");
    let programs = [
        (
            "lvs",
            format!(
                "case \"$*\" in *vg_name*) echo '  vg' ;; *lv_name*) echo '  home' ;; *pool_lv*) echo '  {pool}' ;; *) test -e {} ;; esac",
                exists.display()
            ),
        ),
        (
            "lvcreate",
            format!(
                "echo lvcreate $* >>{}; touch {}",
                log.display(),
                exists.display()
            ),
        ),
        (
            "lvremove",
            format!(
                "echo lvremove $* >>{}; rm {}",
                log.display(),
                exists.display()
            ),
        ),
        (
            "mount",
            format!(
                "echo mount $1 $2 $3 $4 >>{0}; test ! -e {0}.refuse",
                log.display()
            ),
        ),
        ("umount", format!("echo umount >>{}", log.display())),
    ];
    for (name, text) in programs {
        let path = bin.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = script("snapshot-lvm").program;
    let text = format!("PATH={}:$PATH exec \"$0\"", bin.display());
    command("sh", &["-c", &text, script.to_str().unwrap()])
}

#[test]
fn the_lvm_script_snapshots_mounts_unmounts_and_removes() {
    for (pool, expected) in [
        (
            "",
            "lvcreate --snapshot --extents 10%ORIGIN --name bale-test vg/home",
        ),
        (
            "thin",
            "lvcreate --snapshot --setactivationskip n --name bale-test vg/home",
        ),
    ] {
        let place = tempfile::tempdir().unwrap();
        let command = pretended_lvm(place.path(), pool);
        let wanted = Wanted {
            source: "/home/me".into(),
            mount_point: "/home".into(),
            device: "/dev/mapper/vg-home".into(),
            filesystem: "xfs".to_owned(),
            name: "test".to_owned(),
            device_wanted: false,
        };
        let snapshot = command.take(&wanted).unwrap();
        let directory = snapshot.directory.clone().unwrap();
        assert!(directory.ends_with("me"), "{directory:?}");
        snapshot.release().unwrap();
        let log = || std::fs::read_to_string(place.path().join("log")).unwrap();
        let lines = [
            expected,
            "mount -o ro,nouuid -- /dev/vg/bale-test",
            "umount",
            "lvremove --yes vg/bale-test",
        ];
        assert_eq!(log().lines().collect::<Vec<_>>(), lines);
        assert!(!directory.parent().unwrap().exists());

        let wanted = Wanted {
            device_wanted: true,
            ..wanted
        };
        let snapshot = command.take(&wanted).unwrap();
        assert_eq!(snapshot.device, Some("/dev/vg/bale-test".into()));
        drop(snapshot);
        assert!(log().ends_with("lvremove --yes vg/bale-test\n"));

        std::fs::write(place.path().join("log.refuse"), b"").unwrap();
        let wanted = Wanted {
            device_wanted: false,
            ..wanted
        };
        command.take(&wanted).unwrap_err();
        assert!(
            log().ends_with("lvremove --yes vg/bale-test\n"),
            "{}",
            log()
        );
    }
}
