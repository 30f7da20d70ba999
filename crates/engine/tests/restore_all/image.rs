//! Into a ready ext4 file system: what comes back, what is refused, what is left after trouble.

use crate::model::*;
use bale_engine::restore::Patterns;
use bale_format::{Content, EntryFlags, Key, Kind, Time};
use bale_fsimage::mkext4::Ext4Options;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_restore::ext4::{Ext4Report, ImageTarget, TargetError, restore, verify};
use bale_restore::{LossKind, RestoreError, RestoreOptions};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Mounted until dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path, how: &str) -> Mounted {
        std::fs::create_dir_all(at).unwrap();
        did(Command::new("mount").args(["-o", how]).args([image, at]));
        Mounted(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _told_by_mount = Command::new("umount").arg(&self.0).status();
    }
}

/// A loop device until dropped.
struct Device(PathBuf);

impl Device {
    fn new(file: &Path) -> Device {
        let out = did(Command::new("losetup").args(["--find", "--show"]).arg(file));
        Device(PathBuf::from(out.trim()))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _told_by_losetup = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

fn did(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sized(path: &Path, len: u64) -> PathBuf {
    File::create(path).unwrap().set_len(len).unwrap();
    path.to_owned()
}

fn fsck(image: &Path) {
    did(Command::new("e2fsck").args(["-fn"]).arg(image));
}

/// Restores into `image` and returns what the monitor saw.
fn to_image(
    model: &Model,
    image: &Path,
    options: &RestoreOptions,
) -> (Result<Ext4Report, RestoreError>, Watch) {
    let watch = Watch::default();
    let target = ImageTarget::look_at(image, false).unwrap();
    let how = (Ext4Options::default(), options);
    let result = restore(model, model, &space(), target, how, &watch);
    (result, watch)
}

/// What reading back finds.
fn read_back(model: &Model, image: &Path, options: &RestoreOptions) -> Vec<(String, String)> {
    let watch = Watch::default();
    let how = (Ext4Options::default(), options);
    let image = File::open(image).unwrap();
    let report = verify(model, model, &space(), image, how, &watch).unwrap();
    assert_eq!(report.differences, watch.problems().len() as u64);
    watch.problems()
}

/// Restores without a problem, reads back, and mounts: the tree is the model's.
fn exactly(model: &mut Model, place: &Path) -> Ext4Report {
    model.close();
    let image = place.join("image");
    let (report, watch) = to_image(model, &image, &options());
    assert_eq!(watch.problems(), []);
    let report = report.unwrap();
    assert_eq!(report.restored.losses, []);
    fsck(&image);
    assert_eq!(read_back(model, &image, &options()), []);
    let mounted = Mounted::new(&image, &place.join("mounted"), "ro,loop");
    check(model, &mounted.0);
    for row in model.rows.values() {
        let path = String::from_utf8_lossy(&row.path()).into_owned();
        if let Ok(stat) = mounted.0.join(&path).symlink_metadata() {
            let ctime = (stat.ctime(), stat.ctime_nsec() as u32);
            assert_eq!(ctime, (row.ctime.seconds, row.ctime.nanos), "{path}");
        }
    }
    report
}

/// Everything that a row can say.
fn every_kind() -> Model {
    let mut model = everyday(300);
    model.row("").mode = 0o751;
    model.dir("empty");
    model.file("nothing", b"");
    model.file(b"odd/line\nend \xff\xfe".as_slice(), b"odd");
    model.dir("odd").mode = 0o1777;
    model.file(format!("odd/{}", "n".repeat(255)), b"long").mode = 0o6755;
    model.symlink("odd/long-link", &[b't'; 3000]);
    model.special("null", Kind::CharDevice, 1 << 32 | 3);
    model.special("block", Kind::BlockDevice, 259 << 32 | 1_048_575);
    model.special("pipe", Kind::Fifo, 0);
    model.link("odd/pipe-again", "pipe");
    let owned = model.file("owned", b"mine");
    (owned.uid, owned.gid) = (4_000_000_000, 77);
    let times = [
        (-2_000_000_000, 1),
        (-1, 999_999_999),
        (5_000_000_000, 5),
        (15_032_385_535, 0),
    ];
    for (seconds, nanos) in times {
        let row = model.file(format!("time{seconds}"), b"then");
        row.mtime = Time { seconds, nanos };
        row.ctime = Time {
            seconds: 1_700_000_000 - seconds % 1000,
            nanos,
        };
    }
    let acl = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\xd2\x04\0\0\x04\0\x04\0\xff\xff\xff\xff\x10\0\x06\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
    let long = noise(5, 9_000);
    model.file("acl", b"listed").mode = 0o664;
    model.row("acl").xattrs =
        column(&[(b"system.posix_acl_access", acl), (b"user.note", b"small")]);
    model.file("attributes", b"many").xattrs = column(&[
        (b"user.large", &long),
        (b"trusted.t", b""),
        (b"security.capability", CAPABILITY),
    ]);
    let (one, two) = (noise(8, 70_001), noise(9, 5));
    model.large(
        "holes",
        &[
            (1 << 20, None),
            (70_001, Some(&one)),
            (5, Some(&two)),
            (3 << 20, None),
            (70_001, Some(&one)),
            (4097, None),
        ],
    );
    model.large("all-hole", &[(8 << 20, None)]);
    model
}

const CAPABILITY: &[u8] = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn everything_comes_back_in_a_file_system_that_the_checker_and_the_kernel_accept() {
    if !root_or_skip("mounting an image") {
        return;
    }
    let place = scratch();
    let mut model = every_kind();
    let report = exactly(&mut model, place.path());
    assert!(report.bytes >= report.needed_bytes && report.bytes_written > 0);
    assert_eq!(report.restored.links, 3);
    assert_eq!(model.reads_max(), 2, "once to write and once to read back");
}

#[test]
fn holes_stay_holes() {
    let place = scratch();
    let image = place.path().join("image");
    let mut model = Model::new();
    model.large("holes", &[(1 << 40, None), (10, Some(b"0123456789"))]);
    let (report, watch) = to_image(&model, &image, &options());
    assert_eq!(watch.problems(), []);
    assert!(report.unwrap().bytes < 64 << 20);
    assert_eq!(read_back(&model, &image, &options()), []);
}

#[test]
fn a_part_and_a_selection_are_what_a_directory_would_have_got() {
    if !root_or_skip("mounting an image") {
        return;
    }
    let place = scratch();
    let model = everyday(120);
    let chosen = |include: &[&str], exclude: &[&str], below: &str| {
        let owned = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.to_string())
                .collect::<Vec<_>>()
        };
        let patterns = Patterns::new(below.as_bytes(), &owned(include), &owned(exclude)).unwrap();
        let options = RestoreOptions {
            below: Bytes::copy_from_slice(below.as_bytes()),
            ..RestoreOptions::new(&patterns)
        };
        let directory = tempfile::tempdir_in(place.path()).unwrap();
        let (report, _) = run(&model, &directory.path().join("t"), &options);
        report.unwrap();
        let image = directory.path().join("image");
        let (report, watch) = to_image(&model, &image, &options);
        assert_eq!(watch.problems(), [], "{include:?} {exclude:?} {below}");
        report.unwrap();
        fsck(&image);
        assert_eq!(read_back(&model, &image, &options), []);
        let mounted = Mounted::new(&image, &directory.path().join("m"), "ro,loop");
        let (wanted, found) = (names(&directory.path().join("t")), names(&mounted.0));
        assert_eq!(found, wanted, "{include:?} {exclude:?} {below}");
        found.len()
    };
    assert_eq!(chosen(&[], &[], "d1/big"), 1);
    assert!(chosen(&[], &[], "d1") > 10);
    assert!(chosen(&["f1*"], &[], "") > 20);
    assert!(chosen(&["f1*", "big"], &["e1", "f10?"], "") > 10);
    assert!(chosen(&["again"], &[], "") == 2);
    assert!(chosen(&[], &["d?"], "") == 0);
}

fn names(root: &Path) -> BTreeSet<PathBuf> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![PathBuf::new()]);
    while let Some(below) = waiting.pop() {
        for entry in std::fs::read_dir(root.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            if path == Path::new("lost+found") {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

#[test]
fn what_cannot_be_had_is_named_and_the_rest_is_whole() {
    let place = scratch();
    let image = place.path().join("image");
    let mut model = everyday(60);
    model.file("broken", &noise(70, 3_000));
    model.close();
    model.link("broken-again", "broken");
    model.break_chunk_of("broken");
    let piece = noise(71, 300_000);
    model.large("gap", &[(300_000, Some(&piece)), (8, Some(b"readable"))]);
    let id = model.chunk(&piece);
    model.broken.lock().unwrap().insert(id);
    let unread = model.file("unread", b"x");
    unread.content = Content::None;
    unread.flags.set(EntryFlags::UNREADABLE);
    let late = model.file("late", b"x");
    late.mtime.seconds = 1 << 40;
    let strange = model.file("strange", b"x");
    strange.xattrs = column(&[(b"user.kept", b"1"), (b"weird.name", b"2")]);
    model.close();
    let (report, watch) = to_image(&model, &image, &options());
    let report = report.unwrap();
    let problems: Vec<String> = watch.problems().into_iter().map(|(path, _)| path).collect();
    // Why, and how much: a file that is written in part is named for both.
    assert_eq!(problems, ["unread", "broken", "broken-again", "gap", "gap"]);
    assert_eq!(report.restored.problems, 5);
    assert_eq!(report.restored.incomplete, 1);
    assert_eq!(report.restored.bytes_missing, 300_000);
    let losses: Vec<_> = report
        .restored
        .losses
        .iter()
        .map(|loss| (loss.kind, &loss.paths[0][..]))
        .collect();
    assert_eq!(
        losses,
        [
            (LossKind::Xattr, &b"strange"[..]),
            (LossKind::Time, b"late")
        ]
    );
    fsck(&image);
    // What is missing is found missing; the file with the gap is zeros there, and as long as it
    // was.
    let differences: BTreeSet<String> = read_back_paths(&model, &image);
    assert_eq!(
        differences,
        ["broken", "broken-again", "gap"].map(str::to_owned).into()
    );
}

fn read_back_paths(model: &Model, image: &Path) -> BTreeSet<String> {
    let watch = Watch::default();
    let options = options();
    let how = (Ext4Options::default(), &options);
    verify(
        model,
        model,
        &space(),
        File::open(image).unwrap(),
        how,
        &watch,
    )
    .unwrap();
    watch.problems().into_iter().map(|(path, _)| path).collect()
}

#[test]
fn rows_that_cannot_be_are_refused_one_by_one() {
    let place = scratch();
    let image = place.path().join("image");
    let mut model = everyday(40);
    let mut stray = model.row("d0/e0/f0").clone();
    (stray.parent, stray.name) = (Bytes::from_static(b"d6/nowhere"), Bytes::from_static(b"f"));
    stray.nlink = 1;
    model.rows.insert(stray.key(), stray.clone());
    for (parent, name) in [
        ("d0", ".."),
        ("d0", "a/b"),
        ("..", "x"),
        ("d0", "e0"),
        ("", ""),
    ] {
        let mut row = stray.clone();
        (row.parent, row.name) = (Bytes::from(parent), Bytes::from(name));
        model.extra.push(row);
    }
    let (report, watch) = to_image(&model, &image, &options());
    report.unwrap();
    assert_eq!(watch.problems().len(), 5, "{:?}", watch.problems());
    fsck(&image);
}

#[test]
fn more_names_than_ext4_allows_become_two_inodes() {
    let place = scratch();
    let image = place.path().join("image");
    let mut model = Model::new();
    model.file("first", b"of many names");
    model.close();
    model.row("first").nlink = 70_000;
    let first = model.row("first").clone();
    for number in 0..69_999 {
        let mut row = first.clone();
        row.name = Bytes::from(format!("n{number:05}"));
        model.rows.insert(
            Key {
                parent: Bytes::new(),
                name: row.name.clone(),
            },
            row,
        );
    }
    let (report, watch) = to_image(&model, &image, &options());
    assert_eq!(watch.problems(), []);
    let report = report.unwrap().restored;
    assert_eq!((report.files_written, report.links), (2, 69_998));
    fsck(&image);
    assert_eq!(read_back(&model, &image, &options()), []);
}

#[test]
fn reading_back_sees_a_flipped_byte_and_a_foreign_name() {
    let place = scratch();
    let image = place.path().join("image");
    let mut model = everyday(50);
    model.file("seen", &noise(99, 4_096));
    model.close();
    to_image(&model, &image, &options()).0.unwrap();
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let at = bytes
        .windows(64)
        .position(|window| window == &noise(99, 4_096)[..64])
        .unwrap() as u64;
    file.write_all_at(b"?", at + 100).unwrap();
    let found = read_back(&model, &image, &options());
    assert_eq!(
        found,
        [("seen".to_owned(), "verify: content differs".to_owned())]
    );
    file.write_all_at(&bytes[at as usize..][..4096], at)
        .unwrap();
    model.rows.remove(&Key::of_path(b"seen"));
    model.row("d0/e0/f0").mode = 0o600;
    model.row("d2/more").mode = 0o600;
    let found = read_back(&model, &image, &options());
    let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["seen", "d0/e0/f0"], "{found:?}");
}

#[test]
fn a_dry_run_and_a_plan_that_does_not_fit_touch_nothing() {
    let place = scratch();
    let image = place.path().join("image");
    let model = everyday(50);
    let dry = RestoreOptions {
        dry_run: true,
        ..options()
    };
    let (report, _) = to_image(&model, &image, &dry);
    let report = report.unwrap();
    assert!(report.bytes > 0 && !image.exists());
    let would = report.restored;
    let (report, _) = to_image(&model, &place.path().join("done"), &options());
    let did = report.unwrap().restored;
    assert_eq!(
        (
            would.files_written,
            would.directories,
            would.links,
            would.bytes
        ),
        (did.files_written, did.directories, did.links, did.bytes)
    );
    let small = Ext4Options {
        size_bytes: Some(256 << 10),
        ..Ext4Options::default()
    };
    let target = ImageTarget::look_at(&image, false).unwrap();
    let watch = Watch::default();
    let options = options();
    let error = restore(&model, &model, &space(), target, (small, &options), &watch).unwrap_err();
    assert!(matches!(error, RestoreError::Image(_)), "{error:?}");
    assert!(!image.exists());
}

/// Stops after some calls.
struct Stopping(AtomicU64);

impl Monitor for Stopping {
    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn interrupted(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) == 0
    }
}

#[test]
fn what_was_interrupted_or_did_not_fit_is_gone_and_a_device_cannot_be_mounted() {
    let place = scratch();
    let image = place.path().join("image");
    let model = everyday(2_000);
    let stop = Stopping(AtomicU64::new(4));
    let target = ImageTarget::look_at(&image, false).unwrap();
    let options = options();
    let how = || (Ext4Options::default(), &options);
    let error = restore(&model, &model, &space(), target, how(), &stop).unwrap_err();
    assert!(matches!(error, RestoreError::Stopped), "{error:?}");
    assert!(!image.exists());
    if !root_or_skip("a full file system") {
        return;
    }
    let small = sized(&place.path().join("small"), 4 << 20);
    did(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&small));
    let mounted = Mounted::new(&small, &place.path().join("m"), "loop");
    let full = mounted.0.join("image");
    let (report, _) = to_image(&model, &full, &options);
    assert!(
        matches!(report, Err(RestoreError::NoRoom { .. })),
        "{report:?}"
    );
    let forced = RestoreOptions {
        force_space: true,
        ..options.clone()
    };
    let (report, _) = to_image(&model, &full, &forced);
    let error = report.unwrap_err();
    let text = format!("{:?}", error);
    assert!(
        matches!(error, RestoreError::Image(_)) && text.contains("StorageFull"),
        "{text}"
    );
    assert!(!full.exists());
    drop(mounted);

    // A device that held a file system and was given up holds none.
    let device = Device::new(&small);
    let target = ImageTarget::look_at(&device.0, true).unwrap();
    let (mut sink, unfinished) = target.create(0).unwrap();
    bale_fsimage::mkext4::BlockSink::flush(&mut sink).unwrap();
    drop((sink, unfinished));
    assert!(
        ImageTarget::look_at(&device.0, false).is_ok(),
        "nothing is recognised"
    );
}

#[test]
fn an_image_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = scratch();
    let image = place.path().join("image");
    let (report, _) = to_image(&everyday(3), &image, &options());
    report.unwrap();
    assert_eq!(
        image.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn what_is_used_or_holds_something_is_refused() {
    let place = scratch();
    let refused = |path: &Path, force: bool| match ImageTarget::look_at(path, force) {
        Err(TargetError::Refused { why, .. }) => why,
        other => panic!("{}: {other:?}", path.display()),
    };
    let file = place.path().join("file");
    std::fs::write(&file, b"mine").unwrap();
    assert!(refused(&file, false).contains("not empty"));
    assert!(ImageTarget::look_at(&file, true).is_ok());
    assert!(refused(place.path(), true).contains("neither"));
    for missing in [
        "/dev/bale-no-such-device",
        "/dev/../dev/bale-none",
        "/dev/shm/bale-none",
    ] {
        assert!(
            refused(Path::new(missing), true).contains("/dev holds no images"),
            "{missing}"
        );
    }
    // A file that another program has locked, as a virtual machine does.
    let lock = "import fcntl,sys\nf=open(sys.argv[1],'r+b'); \
        fcntl.lockf(f,fcntl.LOCK_EX,1,100)\nprint('held',flush=True); sys.stdin.read()";
    let mut holder = Command::new("python3")
        .args(["-c", lock])
        .arg(&file)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 4];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).unwrap();
    let why = refused(&file, true);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(why.contains("locked"), "{why}");
    assert!(ImageTarget::look_at(&file, true).is_ok());
    if !root_or_skip("devices") {
        return;
    }
    let disk = sized(&place.path().join("disk"), 64 << 20);
    {
        let device = Device::new(&disk);
        assert!(refused(&disk, true).contains("is behind"));
        let other_name = place.path().join("other name");
        std::fs::hard_link(&disk, &other_name).unwrap();
        assert!(refused(&other_name, true).contains("is behind"));
        {
            let twice = Device::new(&disk);
            assert!(refused(&twice.0, true).contains("is over the same file"));
        }
        assert!(
            ImageTarget::look_at(&device.0, false).is_ok(),
            "an empty device"
        );
        did(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device.0));
        assert!(refused(&device.0, false).contains("ext4"));
        assert!(ImageTarget::look_at(&device.0, true).is_ok());
        let mounted = Mounted::new(&device.0, &place.path().join("m"), "rw");
        assert!(refused(&device.0, true).contains("is mounted at"));
        drop(mounted);
        let model = everyday(20);
        let target = ImageTarget::look_at(&device.0, true).unwrap();
        let options = options();
        let how = (Ext4Options::default(), &options);
        let watch = Watch::default();
        let report = restore(&model, &model, &space(), target, how, &watch).unwrap();
        assert_eq!(report.bytes, 64 << 20);
        fsck(&device.0);
        assert_eq!(read_back(&model, &device.0, &options), []);
    }
    for (make, says) in [
        ("mkswap -q", "swap"),
        ("mkfs.xfs -q -f", "XFS"),
        ("mkfs.btrfs -q -f", "Btrfs"),
        (
            "cryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
             --key-file /dev/zero --keyfile-size 8",
            "LUKS",
        ),
        ("mkfs.vfat", "FAT"),
    ] {
        let tool = make.split(' ').next().unwrap();
        if Command::new(tool).arg("-V").output().is_err() {
            let demanded = std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_some();
            assert!(!demanded, "SKIPPED: {tool} is not installed");
            println!("SKIPPED: {tool} is not installed");
            continue;
        }
        let disk = sized(&place.path().join(says), 512 << 20);
        did(Command::new("sh").args(["-c", &format!("{make} {} >/dev/null 2>&1", disk.display())]));
        let device = Device::new(&disk);
        assert!(refused(&device.0, false).contains(says), "{make}");
    }
    let disk = sized(&place.path().join("gpt"), 8 << 20);
    File::options()
        .write(true)
        .open(&disk)
        .unwrap()
        .write_all_at(b"EFI PART", (8 << 20) - 512)
        .unwrap();
    let device = Device::new(&disk);
    assert!(refused(&device.0, false).contains("GPT"));
}

/// Files whose neighbours in the catalog lie in other chunks, as those of many backups and of equal
/// contents do.
fn scattered() -> Model {
    let mut model = Model::new();
    for number in 0..4000u32 {
        let place = number * 1237 % 4000;
        let content = format!("{number} ").repeat(180);
        model.file(format!("{place:04}"), content.as_bytes());
    }
    model.close();
    model
}

#[test]
fn chunks_needed_in_many_places_are_fetched_once_or_twice() {
    let place = scratch();
    let image = place.path().join("image");
    let model = scattered();
    let (report, watch) = to_image(&model, &image, &options());
    assert_eq!(watch.problems(), []);
    assert_eq!(report.unwrap().restored.files_written, 4000);
    let reads_max = model.reads_max();
    assert!(
        reads_max <= 2,
        "to set apart, and for the last ones: {reads_max}"
    );
    fsck(&image);
    assert_eq!(read_back(&model, &image, &options()), []);
    assert!(model.reads_max() <= 4);
}

#[test]
fn what_cannot_be_had_is_named_also_where_it_was_set_apart() {
    let place = scratch();
    let image = place.path().join("image");
    let mut model = scattered();
    let whole = model.row("0000").content;
    model.break_chunk_of("0000");
    let chunk_of = |content: &Content| match content {
        Content::Bundled { chunk, .. } => *chunk,
        _ => unreachable!("all are small"),
    };
    let lost: BTreeSet<String> = model
        .rows
        .values()
        .filter(|row| row.kind == Kind::File && chunk_of(&row.content) == chunk_of(&whole))
        .map(|row| String::from_utf8(row.path()).unwrap())
        .collect();
    let (report, watch) = to_image(&model, &image, &options());
    let named: BTreeSet<String> = watch.problems().into_iter().map(|told| told.0).collect();
    assert!(lost.len() > 10, "a chunk of many files");
    assert_eq!(named, lost);
    assert_eq!(
        report.unwrap().restored.files_written,
        4000 - lost.len() as u64
    );
}
