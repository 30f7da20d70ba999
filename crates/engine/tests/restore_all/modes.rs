//! Into trees that exist: overwriting, deleting, dry runs, selections, parts of a snapshot, users
//! that are not root.

use crate::model::*;
use bale_format::{Key, Kind};
use bale_pipeline::monitor::Act;
use bale_restore::{LossKind, Overwrite, RestoreError, verify};
use bytes::Bytes;
use std::os::unix::fs::{MetadataExt, symlink};

#[test]
fn running_again_writes_nothing_and_reads_no_chunk() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = everyday(300);
    run_exactly(&mut model, &target, &options());
    model.reads.lock().unwrap().clear();
    let (report, watch) = run(&model, &target, &options());
    let report = report.unwrap();
    assert_eq!(watch.problems(), []);
    assert_eq!(
        (report.files_written, report.links, report.kept),
        (0, 0, 304)
    );
    assert_eq!(model.reads_max(), 0);
    check(&model, &target);
}

#[test]
fn what_changed_in_the_target_is_put_right() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = everyday(60);
    run_exactly(&mut model, &target, &options());
    std::fs::write(target.join("d0/e0/f0"), b"changed").unwrap();
    std::fs::remove_file(target.join("d1/e1/f1")).unwrap();
    std::fs::remove_dir_all(target.join("d2/e2")).unwrap();
    std::fs::write(target.join("d2/e2"), b"a file now").unwrap();
    std::fs::remove_file(target.join("d0/link")).unwrap();
    symlink("elsewhere", target.join("d0/link")).unwrap();
    std::fs::remove_file(target.join("d1/big")).unwrap();
    std::fs::create_dir(target.join("d1/big")).unwrap();
    let report = run_exactly(&mut model, &target, &options());
    assert!(report.files_written >= 5);
}

#[test]
fn never_leaves_what_is_there() {
    let place = scratch();
    let target = place.path().join("t");
    std::fs::create_dir_all(target.join("d0/e0")).unwrap();
    std::fs::write(target.join("d0/e0/f0"), b"mine").unwrap();
    std::fs::create_dir(target.join("d1")).unwrap();
    std::fs::write(target.join("d1/big"), b"mine too").unwrap();
    let model = everyday(30);
    let mut options = options();
    options.overwrite = Overwrite::Never;
    let (report, watch) = run(&model, &target, &options);
    let report = report.unwrap();
    assert_eq!(watch.problems(), []);
    assert_eq!(report.skipped, 2);
    assert_eq!(std::fs::read(target.join("d0/e0/f0")).unwrap(), b"mine");
    assert_eq!(std::fs::read(target.join("d1/big")).unwrap(), b"mine too");
    assert_eq!(
        std::fs::read(target.join("d2/again")).unwrap().len(),
        540_000
    );
}

#[test]
fn always_writes_everything_again() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = everyday(30);
    run_exactly(&mut model, &target, &options());
    let time = target
        .join("d0/e0/f21")
        .metadata()
        .unwrap()
        .modified()
        .unwrap();
    // The same size and mtime, other bytes: only `always` sees it.
    let len = target.join("d0/e0/f21").metadata().unwrap().len();
    std::fs::write(target.join("d0/e0/f21"), vec![1; len as usize]).unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(target.join("d0/e0/f21"))
        .unwrap();
    file.set_modified(time).unwrap();
    let watch = Watch::default();
    let found = verify(&model, &model, &space(), &target, &self::options(), &watch).unwrap();
    assert_eq!(found.differences, 1);
    let mut options = options();
    options.overwrite = Overwrite::Always;
    let report = run_exactly(&mut model, &target, &options);
    assert_eq!(report.files_written, 31);
}

#[test]
fn verify_names_every_difference() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = everyday(40);
    model.large("sparse", &[(4096, None), (3, Some(b"abc"))]);
    run_exactly(&mut model, &target, &options());
    std::fs::remove_file(target.join("d0/e0/f0")).unwrap();
    std::fs::write(target.join("d1/e1/f1"), b"other").unwrap();
    std::fs::remove_file(target.join("d2/again")).unwrap();
    std::fs::copy(target.join("d1/big"), target.join("d2/again")).unwrap();
    symlink("x", target.join("d3/e0/new")).unwrap(); // Not ours to judge, but its directory's mtime is.
    let sparse = std::fs::File::options()
        .write(true)
        .open(target.join("sparse"))
        .unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"x", 100).unwrap();
    let watch = Watch::default();
    let report = verify(&model, &model, &space(), &target, &options(), &watch).unwrap();
    let problems = watch.problems();
    for path in [
        "d0/e0/f0", "d1/e1/f1", "d2/again", "d3/e0", "sparse", "d2/more",
    ] {
        assert!(
            problems.iter().any(|(found, _)| found == path),
            "{path} in {problems:?}"
        );
    }
    assert!(report.differences >= 5);
}

#[test]
fn delete_removes_what_the_snapshot_does_not_have_and_nothing_else() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = everyday(60);
    model
        .dir("unknown")
        .flags
        .set(bale_format::EntryFlags::NOT_CROSSED);
    run_exactly(&mut model, &target, &options());
    std::fs::create_dir(place.path().join("outside")).unwrap();
    std::fs::write(place.path().join("outside/witness"), b"x").unwrap();
    std::fs::create_dir_all(target.join("extra/deep/deeper")).unwrap();
    std::fs::write(target.join("extra/deep/deeper/file"), b"x").unwrap();
    symlink("../../outside", target.join("extra/out")).unwrap();
    symlink("../outside", target.join("d0/out")).unwrap();
    std::fs::write(target.join("d0/e0/zzz"), b"x").unwrap();
    std::fs::write(target.join("d0/e0/.hidden"), b"x").unwrap();
    std::fs::write(target.join("unknown/mounted"), b"x").unwrap();
    let mut options = options();
    options.delete = true;
    options.dry_run = true;
    let (report, watch) = run(&model, &target, &options);
    assert_eq!(report.unwrap().deleted, 8);
    let acts = watch.acts.lock().unwrap();
    let deleted: Vec<_> = acts
        .iter()
        .filter(|act| *act.1 == Act::Delete)
        .map(|act| String::from_utf8_lossy(act.0).into_owned())
        .collect();
    assert_eq!(
        deleted,
        [
            "d0/e0/.hidden",
            "d0/e0/zzz",
            "d0/out",
            "extra",
            "extra/deep",
            "extra/deep/deeper",
            "extra/deep/deeper/file",
            "extra/out"
        ]
    );
    assert!(target.join("extra/deep/deeper/file").exists());
    options.dry_run = false;
    let (report, watch) = run(&model, &target, &options);
    assert_eq!((report.unwrap().deleted, watch.problems()), (8, vec![]));
    assert!(target.join("unknown/mounted").exists());
    std::fs::remove_file(target.join("unknown/mounted")).unwrap();
    run_exactly(&mut model, &target, &self::options());
    assert_eq!(
        std::fs::read_dir(place.path().join("outside"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn delete_takes_nothing_from_directories_above_a_source() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = Model::new();
    model.dir("home").mode = 0o755;
    model.dir("home/me").mode = 0o755;
    model.dir("home/me/docs");
    model.file("home/me/docs/one", b"1");
    model.close();
    for path in [
        "etc/passwd",
        "home/other/f",
        "home/me/f",
        "home/me/docs/two",
    ] {
        let path = target.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"x").unwrap();
    }
    let mut options = options();
    options.delete = true;
    options.guard.sources = vec![b"home/me/docs".to_vec()];
    let (report, watch) = run(&model, &target, &options);
    assert_eq!((report.unwrap().deleted, watch.problems()), (1, vec![]));
    for path in [
        "etc/passwd",
        "home/other/f",
        "home/me/f",
        "home/me/docs/one",
    ] {
        assert!(target.join(path).exists(), "{path}");
    }
    assert!(!target.join("home/me/docs/two").exists());
}

#[test]
fn delete_keeps_what_the_selection_excludes_also_in_directories_that_go() {
    struct But;
    impl bale_restore::Selection for But {
        fn includes(&self, _: &[u8], _: bool) -> bool {
            true
        }
        fn excludes(&self, path: &[u8], _: bool) -> bool {
            path.ends_with(b"/mine")
        }
    }
    let place = scratch();
    let target = place.path().join("t");
    let mut model = Model::new();
    model.file("one", b"1");
    model.close();
    std::fs::create_dir_all(target.join("extra/mine")).unwrap();
    std::fs::write(target.join("extra/mine/f"), b"x").unwrap();
    std::fs::write(target.join("extra/other"), b"x").unwrap();
    let mut options = options();
    options.delete = true;
    options.select = &But;
    let (report, watch) = run(&model, &target, &options);
    assert_eq!((report.unwrap().deleted, watch.problems()), (1, vec![]));
    assert!(target.join("extra/mine/f").exists() && !target.join("extra/other").exists());
}

#[test]
fn a_full_directory_in_the_way_of_a_file_is_a_problem_unless_deleting_is_asked_for() {
    let place = scratch();
    let target = place.path().join("t");
    std::fs::create_dir_all(target.join("f/full")).unwrap();
    let mut model = Model::new();
    model.file("f", b"file");
    model.file("g", b"other");
    model.close();
    let (report, watch) = run(&model, &target, &options());
    assert_eq!(
        (report.unwrap().files_written, watch.problems().len()),
        (1, 1)
    );
    assert!(target.join("f/full").exists());
    let mut options = options();
    options.delete = true;
    run_exactly(&mut model, &target, &options);
}

#[test]
fn a_dry_run_tells_and_touches_nothing() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = everyday(30);
    let mut dry = options();
    dry.dry_run = true;
    let (report, watch) = run(&model, &target, &dry);
    assert_eq!(report.unwrap().files_written, 31);
    assert!(!target.exists());
    assert!(
        watch
            .acts
            .lock()
            .unwrap()
            .values()
            .all(|act| *act == Act::Create)
    );
    assert_eq!(model.reads_max(), 0);
    run_exactly(&mut model, &target, &options());
    std::fs::write(target.join("d0/e0/f0"), b"changed").unwrap();
    let (report, watch) = run(&model, &target, &dry);
    let acts = watch.acts.lock().unwrap();
    let replaced: Vec<_> = acts
        .iter()
        .filter(|act| *act.1 == Act::Replace)
        .map(|act| String::from_utf8_lossy(act.0).into_owned())
        .collect();
    // Both names of the changed inode.
    assert_eq!(replaced, ["d0/e0/f0", "d2/more"]);
    assert_eq!(report.unwrap().problems, 0);
    assert_eq!(std::fs::read(target.join("d0/e0/f0")).unwrap(), b"changed");
}

#[test]
fn a_part_of_a_snapshot_lands_in_the_target_itself() {
    let place = scratch();
    let target = place.path().join("t");
    let model = everyday(30);
    let mut options = options();
    options.below = Bytes::from("d0");
    let (report, watch) = run(&model, &target, &options);
    assert_eq!((report.unwrap().problems, watch.problems()), (0, vec![]));
    let mut part = Model::new();
    part.rows.clear();
    for row in model.rows.values() {
        let path = row.path();
        if path == b"d0" || path.starts_with(b"d0/") {
            let mut row = row.clone();
            let key = Key::of_path(&path[3.min(path.len())..]);
            (row.parent, row.name) = (key.parent.clone(), key.name.clone());
            row.nlink = 1;
            if let Some(content) = model.contents.get(&path) {
                part.contents.insert(row.path(), content.clone());
            }
            part.rows.insert(key, row);
        }
    }
    check(&part, &target);
    // One file.
    options.below = Bytes::from("d0/e0/f21");
    let target = place.path().join("u");
    run(&model, &target, &options).0.unwrap();
    assert_eq!(
        std::fs::read(target.join("f21")).unwrap(),
        model.contents[&b"d0/e0/f21"[..]]
    );
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 1);
    options.below = Bytes::from("not/there");
    assert!(matches!(
        run(&model, &target, &options).0,
        Err(RestoreError::NotFound)
    ));
}

#[test]
fn what_cannot_be_read_costs_only_its_own_files() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = everyday(200);
    model.large(
        "half",
        &[
            (1000, Some(&noise(70, 1000))),
            (1000, Some(&noise(71, 1000))),
        ],
    );
    model.break_chunk_of("d0/e0/f21");
    model.file("late", b"unharmed");
    model.close();
    let second = bale_format::ChunkId(*blake3::hash(&noise(71, 1000)).as_bytes());
    model.broken.lock().unwrap().insert(second);
    let (report, watch) = run(&model, &target, &options());
    let report = report.unwrap();
    assert_eq!(report.problems, watch.problems().len() as u64);
    assert!(report.problems > 1);
    assert_eq!(std::fs::read(target.join("late")).unwrap(), b"unharmed");
    // Of a large file the rest is kept, and the next restore tries again.
    let half = std::fs::read(target.join("half")).unwrap();
    assert_eq!(
        (&half[..1000], &half[1000..]),
        (&noise(70, 1000)[..], &[0; 1000][..])
    );
    model.broken.lock().unwrap().clear();
    run_exactly(&mut model, &target, &options());
}

/// A tree of few names and all kinds, so that two of them collide in every way.
fn random_tree(seed: u64) -> Model {
    let mut model = Model::numbered(seed + 1);
    let dice = noise(seed, 4096);
    let mut dice = dice.iter().map(|byte| usize::from(*byte));
    let mut roll = |sides: usize| dice.next().unwrap() % sides;
    let mut directories = vec![String::new()];
    let mut files: Vec<String> = Vec::new();
    while let Some(directory) = directories.pop() {
        for name in ["a", "b", "c", "d"] {
            let path = format!("{directory}{name}");
            let bytes = noise(seed * 77 + files.len() as u64, roll(200));
            match roll(9) {
                0 | 1 if directory.len() < 8 => {
                    model.dir(&path).mode = [0o755, 0o700, 0o555, 0][roll(4)];
                    directories.push(format!("{path}/"));
                }
                2 => {
                    model.symlink(&path, [&b"a"[..], b"../b", b"/"][roll(3)]);
                }
                3 => {
                    model.special(&path, Kind::Fifo, 0);
                }
                4 => {
                    model.large(&path, &[(3, Some(b"abc")), (9000, None)]);
                    files.push(path);
                }
                5 if !files.is_empty() => {
                    let first = files[roll(files.len())].clone();
                    model.link(&path, &first);
                }
                6 | 7 => {
                    model.file(&path, &bytes).mode = [0o644, 0o600, 0o400, 0][roll(4)];
                    if roll(3) == 0 {
                        model.row(&path).xattrs = column(&[(b"user.x", name.as_bytes())]);
                    }
                    files.push(path);
                }
                _ => {}
            }
        }
    }
    model
}

#[test]
fn with_delete_any_tree_becomes_any_other() {
    let place = scratch();
    let target = place.path().join("t");
    for seed in 0..60 {
        let mut model = random_tree(seed);
        let mut options = options();
        options.delete = true;
        options.overwrite = [Overwrite::IfChanged, Overwrite::Always][seed as usize % 2];
        run_exactly(&mut model, &target, &options);
        // And what it has become needs nothing more.
        options.overwrite = Overwrite::IfChanged;
        let report = run_exactly(&mut model, &target, &options);
        assert_eq!(
            (report.files_written, report.links, report.deleted),
            (0, 0, 0),
            "{seed}"
        );
    }
}

/// Runs the named test of this binary as another user, in a directory of his.
fn as_nobody(test: &str) -> Option<()> {
    const MARK: &str = "BALE_RESTORE_AS_NOBODY";
    if std::env::var_os(MARK).is_some() {
        return Some(());
    }
    if !root_or_skip(test) {
        return None;
    }
    use std::os::unix::process::CommandExt;
    let place = scratch();
    std::os::unix::fs::chown(place.path(), Some(65534), Some(65534)).unwrap();
    // The build's own directory may be closed to others.
    let binary = place.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let output = std::process::Command::new(&binary)
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .env("TMPDIR", place.path())
        .current_dir(place.path())
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    None
}

#[test]
fn a_user_gets_everything_but_what_only_root_may_give() {
    if as_nobody("modes::a_user_gets_everything_but_what_only_root_may_give").is_none() {
        return;
    }
    let place = scratch();
    let target = place.path().join("t");
    let mut model = everyday(50);
    model.dir("closed").mode = 0o555;
    model.file("closed/f", b"x").mode = 0;
    model.row("closed/f").xattrs = column(&[(b"user.x", b"y")]);
    model.dir("closed/shut").mode = 0;
    model.file("closed/shut/g", b"x");
    model.close();
    for _ in 0..2 {
        let (report, watch) = run(&model, &target, &options());
        assert_eq!((report.unwrap().losses, watch.problems()), (vec![], vec![]));
        assert_eq!(
            target.join("closed").metadata().unwrap().mode() & 0o7777,
            0o555
        );
    }
    model.file("rooted", b"x").uid = 0;
    model.row("rooted").mode = 0o4755;
    model.file("able", b"x").xattrs = column(&[(
        b"security.capability",
        &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    )]);
    model.special("device", Kind::CharDevice, 1 << 32 | 3);
    model.special("pipe", Kind::Fifo, 0);
    model.close();
    let (report, watch) = run(&model, &target, &options());
    assert_eq!(watch.problems(), []);
    let kinds: Vec<_> = report
        .unwrap()
        .losses
        .iter()
        .map(|loss| (loss.kind, loss.entries))
        .collect();
    assert_eq!(
        kinds,
        [
            (LossKind::Owner, 1),
            (LossKind::SetId, 1),
            (LossKind::Capability, 1),
            (LossKind::Special, 1)
        ]
    );
    // Never a set-user-id file of the wrong user.
    assert_eq!(
        target.join("rooted").metadata().unwrap().mode() & 0o7777,
        0o755
    );
}

#[test]
fn inode_flags_come_last_and_only_on_request() {
    if !root_or_skip("inode_flags_come_last_and_only_on_request") {
        return;
    }
    let place = scratch();
    let target = place.path().join("t");
    let mut model = Model::new();
    model.dir("d").inode_flags = 0x10;
    model.file("d/fixed", b"x").inode_flags = 0x10;
    model.link("d/fixed2", "d/fixed");
    model.large("d/big", &[(3, Some(b"abc"))]).inode_flags = 0x20;
    model.file("d/nodump", b"").inode_flags = 0x40;
    model.close();
    let mut options = options();
    options.inode_flags = true;
    let (report, watch) = run(&model, &target, &options);
    let report = report.unwrap();
    let flags = |path: &str| {
        let file = std::fs::File::open(target.join(path)).unwrap();
        let flags = rustix::fs::ioctl_getflags(&file).unwrap();
        (flags.bits() & 0x70, file)
    };
    let result = std::panic::catch_unwind(|| {
        assert_eq!(watch.problems(), []);
        check(&model, &target);
        if report.losses.is_empty() {
            let found = ["d", "d/fixed", "d/fixed2", "d/big", "d/nodump"].map(|path| flags(path).0);
            assert_eq!(found, [0x10, 0x10, 0x10, 0x20, 0x40]);
        } else {
            skipped(
                "inode_flags_come_last_and_only_on_request",
                "this file system has no inode flags",
            );
        }
    });
    for path in ["d", "d/fixed", "d/big"] {
        let (_, file) = flags(path);
        let _unsupported = rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::empty());
    }
    result.unwrap();
}
