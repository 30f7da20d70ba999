//! Backups from snapshots that a command makes, with the scripts that come with Bale.

use super::backup::restore_newest;
use super::mounts::*;
use bale_engine::backup::{BackupOptions, Outcome, backup};
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use bale_source::scan::snapshot_command::{
    SnapshotCommand, SnapshotError, SnapshotRequest, take_all,
};
use bale_source::scan::{ScanMode, ScanOptions, Sources, barrier_now};
use bale_testkit::Scene;
use bale_testkit::scene::STEP;
use std::fs::File;
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

fn wanted(source: &Path) -> SnapshotRequest {
    SnapshotRequest {
        source: source.to_owned(),
        name: "test".to_owned(),
        ..SnapshotRequest::default()
    }
}

#[test]
fn a_snapshot_is_there_as_long_as_it_is_held_and_released_however_that_ends() {
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("mark");
    let text = format!(
        "trap 'rm {0}' EXIT; touch {0}; echo directory $BALE_SOURCE/$BALE_SNAPSHOT_NAME; echo \
         ready; cat",
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
        let (outcome, _) = self.backup_of(&source, ScanMode::Walk, command, change);
        outcome
    }

    /// And what was said.
    fn backup_of(
        &self,
        source: &Path,
        mode: ScanMode,
        command: Option<&SnapshotCommand>,
        change: impl FnOnce(),
    ) -> (Outcome, Vec<String>) {
        let (mut sources, _) = Sources::resolve(&[source]).unwrap();
        let barrier = command.map(|_| barrier_now());
        let mut notes = Vec::new();
        let taken = command.map(|command| {
            let mut note = |text| notes.push(text);
            take_all(command, &mut sources, mode, "test-1", &mut note).unwrap()
        });
        change();
        let scan = ScanOptions {
            mode,
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
        notes.append(&mut monitor.notes.lock().unwrap());
        (outcome, notes)
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

/// A command that copies the image under a mounted file system, after `settle`, and names a loop
/// device of the copy, or where that is mounted, as it was wanted. It writes down what it did.
fn copying(mounted: &Mounted, settle: &str) -> SnapshotCommand {
    let text = format!(
        r#"set -eu
cd {place}
loop=
release() {{
    xfs_freeze -u mount 2>/dev/null || :
    test "$BALE_WANTED" = device || umount mounted-copy || :
    test -z "$loop" || losetup -d "$loop"
    rm -f copy
    echo "released $BALE_WANTED" >>log
}}
trap release EXIT
{settle}
cp --sparse=always image copy
xfs_freeze -u mount 2>/dev/null || :
if test "$BALE_WANTED" = device; then
    loop=$(losetup -f --show copy)
    printf 'device %s\nready\n' "$loop"
else
    mkdir -p mounted-copy
    nouuid=; test "$BALE_FILESYSTEM" != xfs || nouuid=,nouuid
    mount -o loop$nouuid copy mounted-copy
    printf 'directory %s\nready\n' "$PWD/mounted-copy/$BALE_PATH_IN_FILESYSTEM"
fi
cat >/dev/null
"#,
        place = mounted.beside("").display(),
    );
    shell(&text)
}

fn has_loops() -> bool {
    can_mount() && can_run(&["losetup", "xfs_freeze"])
}

/// What a snapshot says of the rows below a source: all of it.
fn told(bench: &Bench, source: &Path, outcome: &Outcome) -> Vec<String> {
    let repository = bench.scene.repository();
    let layers = outcome.snapshot.layers.clone();
    let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
    let below = &source.as_os_str().as_bytes()[1..];
    let rows = catalog.subtree(below).unwrap().map(|row| row.unwrap());
    rows.map(|row| format!("{row:?}")).collect()
}

/// Path, inode and hash of each row below a source.
fn inodes_and_hashes(
    bench: &Bench,
    source: &Path,
    outcome: &Outcome,
) -> Vec<(Vec<u8>, u64, Option<[u8; 16]>)> {
    let repository = bench.scene.repository();
    let layers = outcome.snapshot.layers.clone();
    let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
    let below = &source.as_os_str().as_bytes()[1..];
    let rows = catalog.subtree(below).unwrap().map(|row| row.unwrap());
    rows.map(|row| {
        let path = [&row.parent[..], &row.name].join(&b'/');
        (path, row.inode, row.content_hash)
    })
    .collect()
}

fn bench_with_a_tree(kind: &'static str) -> Bench {
    let bench = Bench {
        mounted: Mounted::new(kind, 512),
        scene: Scene::new(),
    };
    let tree = bench.mounted.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    for number in 0..300usize {
        let path = tree.join(format!("a/{number}"));
        std::fs::write(path, vec![number as u8; number * 97]).unwrap();
    }
    std::fs::write(tree.join("a/b/large"), vec![7; 5 << 20]).unwrap();
    std::fs::hard_link(tree.join("a/7"), tree.join("a/b/seven")).unwrap();
    std::os::unix::fs::symlink("somewhere", tree.join("link")).unwrap();
    rustix::fs::setxattr(
        tree.join("a/8"),
        "user.color",
        b"blue",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    run("sync", &["-f", bench.mounted.path().to_str().unwrap()]);
    // And this is on no device yet.
    std::fs::set_permissions(tree.join("a/8"), std::fs::Permissions::from_mode(0o640)).unwrap();
    std::fs::rename(tree.join("a/20"), tree.join("a/twenty")).unwrap();
    // Old enough to be settled.
    std::thread::sleep(Duration::from_millis(50));
    bench
}

/// Brings the last changes to the journal, and, as far as that can be had, not to where they
/// belong.
const JOURNALED: &str = "sync mount/tree/a/8 mount/tree/a";
const FROZEN: &str = "xfs_freeze -f mount";

#[test]
fn a_snapshot_that_is_a_device_is_read_by_inodes_and_told_as_its_source() {
    if !has_loops() {
        return;
    }
    for (kind, settle) in [("ext4", JOURNALED), ("xfs", FROZEN)] {
        for below in ["tree", "tree/a", ""] {
            let bench = bench_with_a_tree(kind);
            let source = bench.mounted.path().join(below);
            let source = source.components().collect::<PathBuf>();
            let tree = bench.mounted.path().join("tree");
            let (walked, _) = bench.backup_of(&source, ScanMode::Walk, None, || ());
            let expected = told(&bench, &source, &walked);
            let command = copying(&bench.mounted, settle);
            let (outcome, notes) =
                bench.backup_of(&source, ScanMode::Inode, Some(&command), || {
                    std::fs::write(tree.join("a/9"), b"changed after the snapshot").unwrap();
                    std::fs::rename(tree.join("a/10"), tree.join("moved")).unwrap();
                    std::fs::write(bench.mounted.path().join("new"), b"").unwrap();
                });
            assert!(
                notes
                    .iter()
                    .any(|note| note.contains("inode scan of the snapshot")),
                "{notes:?}"
            );
            let rows = told(&bench, &source, &outcome);
            assert_eq!(rows.len(), expected.len(), "{kind} {below:?}");
            for (row, expected) in rows.iter().zip(&expected) {
                assert_eq!(row, expected, "{kind} {below:?}");
            }
            assert_eq!(
                outcome.snapshot.filesystems.last().unwrap().scanner,
                "inode"
            );
            let log = std::fs::read_to_string(bench.mounted.beside("log")).unwrap();
            assert_eq!(log, "released device\n");
            assert!(!bench.mounted.beside("copy").exists());
        }
    }
}

#[test]
fn a_snapshot_whose_content_is_only_on_the_device_is_read_from_it() {
    if !has_loops() {
        return;
    }
    // Without a parent: everything is read from the device, and what is restored is what was there.
    let bench = bench_with_a_tree("ext4");
    let tree = bench.mounted.path().join("tree");
    let before = bale_testkit::Tree::read(&tree);
    let command = copying(&bench.mounted, "sync -f mount");
    let (outcome, _) = bench.backup_of(&tree, ScanMode::Inode, Some(&command), || {
        std::fs::write(tree.join("a/b/large"), b"changed after the snapshot").unwrap();
    });
    let target = bench.mounted.beside("restored");
    assert!(outcome.id.is_some());
    assert!(restore_newest(&bench.scene, &tree, &target));
    let differing = bale_testkit::Tree::read(&target).differences(&before);
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn a_device_with_a_log_of_xfs_to_be_replayed_is_mounted_and_walked() {
    if !has_loops() {
        return;
    }
    let bench = bench_with_a_tree("xfs");
    let top = bench.mounted.path();
    // Enough that the inode scan is right.
    for number in 0..10_000 {
        File::create(top.join(format!("tree/a/b/{number}"))).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    let (walked, _) = bench.backup_of(&top, ScanMode::Walk, None, || ());
    let command = copying(
        &bench.mounted,
        "sync mount/tree/a/b mount/tree/a/299 mount/tree/a",
    );
    let (mut sources, _) = Sources::resolve(&[&top]).unwrap();
    let inode = ScanMode::Inode;
    let refused = take_all(&command, &mut sources, inode, "test", &mut |_| ()).unwrap_err();
    let why = refused.to_string();
    assert!(why.contains("its log has to be replayed"), "{why}");
    let log = || std::fs::read_to_string(bench.mounted.beside("log")).unwrap();
    assert_eq!(log(), "released device\n");

    // Where the scanner may choose, the device was wanted first, and then a directory.
    let (outcome, notes) = bench.backup_of(&top, ScanMode::Auto, Some(&command), || ());
    assert!(notes[0].contains("its log has to be replayed"), "{notes:?}");
    assert_eq!(
        log(),
        "released device\n".repeat(2) + "released directory\n"
    );
    assert_eq!(told(&bench, &top, &outcome), told(&bench, &top, &walked));
}

#[test]
fn a_directory_that_was_a_good_part_of_a_file_system_is_read_by_inodes_from_then_on() {
    if !has_loops() {
        return;
    }
    let bench = bench_with_a_tree("ext4");
    let tree = bench.mounted.path().join("tree");
    std::fs::create_dir(bench.mounted.path().join("other")).unwrap();
    // 3,206 of 10,716: a promise of so few is not enough, what is known is.
    for number in 0..2_900 {
        File::create(tree.join(format!("a/b/{number}"))).unwrap();
    }
    for number in 0..7_500 {
        File::create(bench.mounted.path().join(format!("other/{number}"))).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    let is_by_inodes = |outcome: &Outcome| {
        let mut filesystems = outcome.snapshot.filesystems.iter();
        filesystems.any(|filesystem| filesystem.scanner == "inode")
    };
    let (first, notes) = bench.backup_of(&tree, ScanMode::Auto, None, || ());
    assert!(notes[0].contains("only about 320"), "{notes:?}");
    assert!(!is_by_inodes(&first));
    let (second, notes) = bench.backup_of(&tree, ScanMode::Auto, None, || ());
    assert!(is_by_inodes(&second), "{notes:?}");
    assert_eq!(bench.rows(&second), bench.rows(&first));
}

#[test]
fn the_snapshot_is_released_when_the_backup_fails_or_is_interrupted() {
    if !has_loops() {
        return;
    }
    let bench = bench_with_a_tree("ext4");
    let tree = bench.mounted.path().join("tree");
    let copy = bench.mounted.beside("copy");
    for fails in [true, false] {
        let command = copying(&bench.mounted, "sync -f mount");
        let (mut sources, _) = Sources::resolve(&[&tree]).unwrap();
        let mode = ScanMode::Inode;
        let taken = take_all(&command, &mut sources, mode, "test", &mut |_| ()).unwrap();
        assert!(copy.exists());
        let monitor = Recorder::default();
        if fails {
            // The snapshot ran full.
            let device = taken[0].device.clone().unwrap();
            run(
                "dd",
                &[
                    "if=/dev/zero",
                    &format!("of={}", device.display()),
                    "bs=1M",
                    "count=1",
                ],
            );
        } else {
            monitor
                .interrupt
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let scan = ScanOptions {
            mode,
            spill_directory: bench.mounted.beside(""),
            ..ScanOptions::default()
        };
        let options = BackupOptions::default();
        let done = backup(
            &bench.scene.repository(),
            &sources,
            scan,
            &options,
            &monitor,
        );
        let error = done.unwrap_err();
        assert_eq!(
            matches!(error, bale_repository::error::Error::Interrupted),
            !fails,
            "{error}"
        );
        drop(taken);
        assert!(!copy.exists(), "still there: {error}");
    }
    // A device with something else on it: who named it made a mistake, and the snapshot goes all
    // the same.
    let other = bench.mounted.beside("other");
    File::create(&other).unwrap().set_len(64 << 20).unwrap();
    run("mkfs.ext4", &["-q", other.to_str().unwrap()]);
    let text = format!(
        "trap 'rm {0}' EXIT; echo device {0}; echo ready; cat",
        other.display()
    );
    let (mut sources, _) = Sources::resolve(&[&tree]).unwrap();
    let refused = take_all(
        &shell(&text),
        &mut sources,
        ScanMode::Inode,
        "test",
        &mut |_| (),
    );
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("another file system"), "{why}");
    assert!(!other.exists());
}

/// A path below the mount point is another directory in the snapshot where a directory is bound to
/// that mount point.
#[test]
fn behind_a_bind_mount_the_directory_of_the_snapshot_is_the_bound_one_or_refused() {
    if !has_loops() {
        return;
    }
    let bench = bench_with_a_tree("ext4");
    let cover = bench.mounted.beside("cover");
    std::fs::create_dir_all(&cover).unwrap();
    std::fs::create_dir_all(bench.mounted.path().join("a")).unwrap();
    std::fs::write(bench.mounted.path().join("a/other"), b"not the source's").unwrap();
    let _bind = Bind::new(&bench.mounted.path().join("tree"), &cover);
    let source = cover.join("a");
    let (walked, _) = bench.backup_of(&source, ScanMode::Walk, None, || ());
    let of_walk = inodes_and_hashes(&bench, &source, &walked);
    let command = copying(&bench.mounted, JOURNALED);
    let (outcome, _) = bench.backup_of(&source, ScanMode::Walk, Some(&command), || ());
    assert!(of_walk.len() > 300);
    assert!(inodes_and_hashes(&bench, &source, &outcome) == of_walk);

    let mut naive = command.clone();
    for argument in &mut naive.arguments {
        let text = argument.to_str().unwrap();
        let text = text.replace(
            "/$BALE_PATH_IN_FILESYSTEM",
            "${BALE_SOURCE#$BALE_MOUNT_POINT}",
        );
        *argument = text.into();
    }
    let (mut sources, _) = Sources::resolve(&[&source]).unwrap();
    let taken = take_all(&naive, &mut sources, ScanMode::Walk, "test", &mut |_| ());
    let why = taken.unwrap_err().to_string();
    assert!(why.contains("another directory"), "{why}");
    assert!(!bench.mounted.beside("copy").exists(), "not released");
}

/// The device knows nothing of what is mounted on the way to the source: it has the directory that
/// is covered there.
#[test]
fn a_device_is_refused_for_a_source_behind_a_bind_mount_of_its_own_file_system() {
    if !has_loops() {
        return;
    }
    for (kind, settle) in [("ext4", JOURNALED), ("xfs", FROZEN)] {
        let bench = bench_with_a_tree(kind);
        let (tree, cover) = (
            bench.mounted.path().join("tree"),
            bench.mounted.path().join("cover"),
        );
        std::fs::create_dir_all(cover.join("a")).unwrap();
        std::fs::write(cover.join("a/covered"), b"nobody sees it").unwrap();
        let _bind = Bind::new(&tree, &cover);
        let source = cover.join("a");
        let command = copying(&bench.mounted, settle);
        let (mut sources, _) = Sources::resolve(&[&source]).unwrap();
        let mode = ScanMode::Inode;
        let taken = take_all(&command, &mut sources, mode, "test", &mut |_| ()).unwrap();
        let scan = ScanOptions {
            mode,
            spill_directory: bench.mounted.beside(""),
            ..ScanOptions::default()
        };
        let repository = bench.scene.repository();
        let (options, monitor) = (BackupOptions::default(), Recorder::default());
        let why = backup(&repository, &sources, scan, &options, &monitor).unwrap_err();
        let expected = format!(
            "the way to {} leads through {}, where a directory of the same file system is mounted",
            source.display(),
            cover.display()
        );
        assert!(why.to_string().contains(&expected), "{kind}: {why}");
        assert!(repository.snapshots().unwrap().is_empty(), "{kind}");
        drop(taken);
        assert!(
            !bench.mounted.beside("copy").exists(),
            "{kind}: not released"
        );
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

/// Programs that stand for LVM and for mounting: they say what they were asked, and do as much as
/// is needed.
fn pretended_lvm(place: &Path, pool: &str) -> SnapshotCommand {
    let bin = place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let log = place.join("log");
    let exists = place.join("exists");
    let programs = [
        (
            "lvs",
            format!(
                "case \"$*\" in *vg_name*) echo '  vg' ;; *lv_name*) echo '  home' ;; *pool_lv*) \
                 echo '  {pool}' ;; *) test -e {} ;; esac",
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
        let wanted = SnapshotRequest {
            source: "/home/me".into(),
            mount_point: "/home".into(),
            path_in_filesystem: "me".into(),
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

        let wanted = SnapshotRequest {
            device_wanted: true,
            ..wanted
        };
        let snapshot = command.take(&wanted).unwrap();
        assert_eq!(snapshot.device, Some("/dev/vg/bale-test".into()));
        drop(snapshot);
        assert!(log().ends_with("lvremove --yes vg/bale-test\n"));

        std::fs::write(place.path().join("log.refuse"), b"").unwrap();
        let wanted = SnapshotRequest {
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
