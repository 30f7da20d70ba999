//! The generator: the same tree everywhere, in a directory, in an image and in its manifest.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bale_fsimage::mkext4::Ext4Options;
use bale_tune::generate::*;

fn small() -> GenerateOptions {
    GenerateOptions {
        directories: (2, 4),
        files: (3, 12),
        depth: (1, 3),
        file_bytes: (511, 20_000),
        name_bytes: (2, 6),
        pool_bytes: 1 << 20,
        count: Some(300),
        ..GenerateOptions::default()
    }
}

/// Everything that a tree can have.
fn rich() -> GenerateOptions {
    GenerateOptions {
        snapshots: 4,
        snapshot_change_share: 1_000,
        symlink_share: 500,
        sparse_share: 500,
        xattr_share: 2_000,
        odd_name_share: 1_000,
        owners: 5,
        age_days_max: 3_000,
        realistic_names: true,
        compressible: true,
        ..small()
    }
}

fn manifest(options: &GenerateOptions) -> Vec<u8> {
    let mut out = Vec::new();
    Generator::new(options.clone())
        .unwrap()
        .write_manifest(&mut out)
        .unwrap();
    out
}

fn write(options: &GenerateOptions, root: &Path) -> GenerateProgress {
    Generator::new(options.clone())
        .unwrap()
        .write_directory(root, &Unwatched)
        .unwrap()
}

fn is_same(root: &Path, manifest: &[u8]) {
    let verified = verify_manifest(root, 2, &mut &manifest[..]).unwrap();
    assert_eq!(verified.differences, Vec::<String>::new());
    assert_eq!(
        verified.same,
        manifest.iter().filter(|byte| **byte == b'\n').count() as u64 - 1
    );
}

fn is_root_with(tools: &[&str]) -> bool {
    for tool in tools {
        let found = Command::new("sh")
            .arg("-c")
            .arg(format!("command -v {tool}"))
            .output()
            .unwrap()
            .status
            .success();
        if !found || fs::metadata("/proc/self").unwrap().uid() != 0 {
            let text = format!("SKIPPED: needs {tool} and root");
            assert!(
                std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_none_or(|value| value != "1"),
                "{text}"
            );
            eprintln!("{text}");
            return false;
        }
    }
    true
}

/// If this fails, trees made from old seeds are no longer what they were. Change it only with a new
/// major version.
#[test]
fn a_seed_gives_the_tree_it_always_gave() {
    let hash =
        |options: &GenerateOptions| blake3::hash(&manifest(options)).to_hex()[..16].to_owned();
    assert_eq!(hash(&small()), "a9630fdc2161aa9c");
    assert_eq!(hash(&rich()), "b1a0638df2471fd7");
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let one = manifest(&GenerateOptions {
        threads: 1,
        ..rich()
    });
    for threads in [2, 3, 8] {
        assert!(manifest(&GenerateOptions { threads, ..rich() }) == one);
    }
    assert!(manifest(&GenerateOptions { seed: 2, ..rich() }) != one);
}

#[test]
fn a_directory_holds_what_the_manifest_says() {
    for options in [
        small(),
        GenerateOptions {
            owners: 0,
            ..rich()
        },
    ] {
        for threads in [1, 4] {
            let dir = tempfile::tempdir().unwrap();
            let expected = Generator::new(options.clone()).unwrap().expected();
            let progress = write(
                &GenerateOptions {
                    threads,
                    ..options.clone()
                },
                dir.path(),
            );
            is_same(dir.path(), &manifest(&options));
            let mut listed = Vec::new();
            write_manifest(dir.path(), 3, &mut listed).unwrap();
            assert!(listed == manifest(&options));
            let names = listed.iter().filter(|byte| **byte == b'\n').count() as u64 - 1;
            assert_eq!(expected.directories, progress.directories);
            assert_eq!(
                expected.files,
                progress.files + progress.links + progress.symlinks
            );
            let root = 1;
            assert_eq!(
                names,
                progress.files + progress.links + progress.symlinks + progress.directories - root
            );
        }
    }
}

#[test]
fn a_second_run_leaves_what_exists_and_another_seed_adds() {
    let dir = tempfile::tempdir().unwrap();
    let first = write(&small(), dir.path());
    let again = write(&small(), dir.path());
    assert_eq!((again.files, again.existing), (0, first.files));
    let more = write(&GenerateOptions { seed: 9, ..small() }, dir.path());
    assert!(more.files > 250);
}

#[test]
fn a_farm_links_every_unchanged_file() {
    let dir = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        snapshots: 5,
        snapshot_change_share: 0,
        ..small()
    };
    let progress = write(&options, dir.path());
    assert_eq!((progress.files, progress.links), (300, 1200));
    assert!(
        regular_files(dir.path())
            .iter()
            .all(|(_, meta)| meta.nlink() == 5)
    );
    let dir = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        snapshot_change_share: 2_000,
        ..options
    };
    let progress = write(&options, dir.path());
    assert_eq!(progress.files + progress.links, 1500);
    assert!((400..700).contains(&progress.files), "{progress:?}");
}

fn regular_files(root: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    entries(root)
        .into_iter()
        .filter(|(_, meta)| meta.is_file())
        .collect()
}

fn entries(root: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                waiting.push(path.clone());
            }
            if path != root.join("lost+found") {
                found.push((path.strip_prefix(root).unwrap().to_owned(), meta));
            }
        }
    }
    found
}

struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path) -> Mounted {
        fs::create_dir_all(at).unwrap();
        let output = Command::new("mount")
            .args(["-o", "loop,noatime"])
            .arg(image)
            .arg(at)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Mounted(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn image_file(path: &Path, len_bytes: u64) -> fs::File {
    let file = fs::File::create(path).unwrap();
    file.set_len(len_bytes).unwrap();
    file
}

fn write_image(
    options: &GenerateOptions,
    ext4: &Ext4Options,
    image: &Path,
    scratch: &Path,
) -> GenerateProgress {
    let generator = Generator::new(options.clone()).unwrap();
    let plan = generator.plan_ext4(ext4).unwrap();
    let sink = image_file(image, plan.bytes());
    generator
        .write_ext4(plan, sink, scratch_in(scratch), &Unwatched)
        .unwrap()
        .2
}

#[test]
fn an_image_holds_the_same_tree_as_a_directory_in_every_field() {
    if !is_root_with(&["mount", "umount", "e2fsck"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    for (options, block_size) in [
        (rich(), 1024),
        (rich(), 4096),
        (
            GenerateOptions {
                owners: 1,
                age_days_max: 1,
                ..small()
            },
            2048,
        ),
    ] {
        let ext4 = Ext4Options {
            block_size,
            ..Ext4Options::default()
        };
        let image_progress = write_image(&options, &ext4, &image, dir.path());
        let fsck = Command::new("e2fsck")
            .arg("-fn")
            .arg(&image)
            .output()
            .unwrap();
        assert!(
            fsck.status.success(),
            "{}",
            String::from_utf8_lossy(&fsck.stdout)
        );
        let mounted = Mounted::new(&image, &dir.path().join("mnt"));
        is_same(&mounted.0, &manifest(&options));
        let written = dir.path().join("written");
        fs::create_dir(&written).unwrap();
        let mut progress = write(&options, &written);
        // A farm's own directory is opened once more.
        progress.existing = 0;
        assert_eq!(progress, image_progress);
        assert_eq!(fields(&written), fields(&mounted.0));
        fs::remove_dir_all(&written).unwrap();
    }
}

type Fields = (u32, u32, u32, u64, i64, i64, u64);

fn fields(root: &Path) -> BTreeMap<PathBuf, Fields> {
    let fields = |meta: &fs::Metadata| {
        let is_directory = meta.is_dir();
        (
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.nlink(),
            meta.mtime(),
            meta.mtime_nsec(),
            if is_directory { 0 } else { meta.size() },
        )
    };
    entries(root)
        .iter()
        .map(|(path, meta)| (path.clone(), fields(meta)))
        .collect()
}

#[test]
fn changing_a_tree_is_reproducible_and_as_much_as_asked() {
    let before = manifest(&small());
    let options = ChangeOptions {
        changed_share: 1_000,
        new_share: 500,
        deleted_share: 500,
        seed: 5,
    };
    let changed: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let dir = tempfile::tempdir().unwrap();
            write(&small(), dir.path());
            let done = change(dir.path(), &options).unwrap();
            assert_eq!(done.files, 300);
            assert!(
                (15..50).contains(&done.changed)
                    && (4..30).contains(&done.new)
                    && (4..30).contains(&done.deleted),
                "{done:?}"
            );
            let verified = verify_manifest(dir.path(), 0, &mut &before[..]).unwrap();
            assert_eq!(verified.different, done.changed + done.new + done.deleted);
            let mut after = Vec::new();
            write_manifest(dir.path(), 0, &mut after).unwrap();
            after
        })
        .collect();
    assert!(changed[0] == changed[1]);
}

#[test]
fn changing_one_name_of_a_link_farm_leaves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let farm = GenerateOptions {
        snapshots: 2,
        snapshot_change_share: 0,
        ..small()
    };
    write(&farm, dir.path());
    let options = ChangeOptions {
        changed_share: 2_000,
        new_share: 0,
        deleted_share: 0,
        seed: 5,
    };
    let done = change(dir.path(), &options).unwrap();
    assert_eq!(done.files, 600);
    let verified = verify_manifest(dir.path(), 0, &mut &manifest(&farm)[..]).unwrap();
    assert_eq!(
        (verified.different, done.changed > 60),
        (done.changed, true)
    );
}

#[test]
fn verifying_names_what_is_missing_different_and_new() {
    let dir = tempfile::tempdir().unwrap();
    write(&small(), dir.path());
    let files = regular_files(dir.path());
    fs::remove_file(dir.path().join(&files[0].0)).unwrap();
    fs::write(dir.path().join(&files[1].0), b"other").unwrap();
    fs::write(dir.path().join("~extra"), b"").unwrap();
    let verified = verify_manifest(dir.path(), 0, &mut &manifest(&small())[..]).unwrap();
    assert_eq!(verified.different, 3, "{verified:?}");
    assert!(
        verified
            .differences
            .contains(&"not in the manifest: ~extra".to_owned())
    );
    let cut = &manifest(&small())[..500];
    assert!(matches!(
        verify_manifest(dir.path(), 0, &mut &cut[..]),
        Err(GenerateError::ManifestLine { .. })
    ));
    assert!(matches!(
        verify_manifest(dir.path(), 0, &mut &b"x\n"[..]),
        Err(GenerateError::ManifestLine { line: 1, .. })
    ));
}

#[test]
fn impossible_options_are_refused_with_their_letters() {
    let refused = |options: GenerateOptions| match Generator::new(options) {
        Err(GenerateError::Options(text)) => text,
        _ => panic!("accepted"),
    };
    assert!(
        refused(GenerateOptions {
            files: (5, 4),
            ..small()
        })
        .starts_with("-f/-F")
    );
    assert!(
        refused(GenerateOptions {
            file_bytes: (510, 600),
            ..small()
        })
        .starts_with("-s/-S")
    );
    assert!(
        refused(GenerateOptions {
            name_bytes: (1, 4),
            ..small()
        })
        .starts_with("-l/-L")
    );
    assert!(
        refused(GenerateOptions {
            pool_bytes: 1,
            ..small()
        })
        .starts_with("-P")
    );
    assert!(
        refused(GenerateOptions {
            files_max: 3,
            ..small()
        })
        .contains("--count")
    );
    assert!(
        refused(GenerateOptions {
            symlink_share: 9_000,
            sparse_share: 9_000,
            ..small()
        })
        .contains("more than all")
    );
    assert!(
        refused(GenerateOptions {
            snapshots: 65_001,
            ..small()
        })
        .contains("--links")
    );
}

#[test]
fn a_missing_target_and_a_full_one_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let generator = Generator::new(small()).unwrap();
    match generator.write_directory(&dir.path().join("missing"), &Unwatched) {
        Err(GenerateError::Path { what: "open", .. }) => {}
        other => panic!("{other:?}"),
    }
    if !is_root_with(&["mount", "umount"]) {
        return;
    }
    let at = dir.path().join("tmpfs");
    fs::create_dir(&at).unwrap();
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(&at)
        .status()
        .unwrap();
    assert!(status.success());
    let mounted = Mounted(at.clone());
    match generator.write_directory(&at, &Unwatched) {
        Err(GenerateError::Path {
            what: "create",
            source,
            ..
        }) => assert_eq!(source.kind(), std::io::ErrorKind::StorageFull),
        other => panic!("{other:?}"),
    }
    drop(mounted);
}

#[test]
fn a_monitor_can_stop_and_an_image_given_up_does_not_mount() {
    struct Stop;
    impl GenerateMonitor for Stop {
        fn progress(&self, so_far: &GenerateProgress) -> bool {
            so_far.files < 100
        }
    }
    let options = GenerateOptions {
        count: Some(5_000),
        ..small()
    };
    let dir = tempfile::tempdir().unwrap();
    let generator = Generator::new(options).unwrap();
    assert!(matches!(
        generator.write_directory(dir.path(), &Stop),
        Err(GenerateError::Stopped)
    ));
    let image = dir.path().join("image");
    let plan = generator.plan_ext4(&Ext4Options::default()).unwrap();
    let sink = image_file(&image, plan.bytes());
    let stopped = generator.write_ext4(plan, sink, scratch_in(dir.path()), &Stop);
    assert!(matches!(stopped, Err(GenerateError::Stopped)));
    let magic = &fs::read(&image).unwrap()[1024 + 0x38..][..2];
    assert_eq!(magic, [0, 0]);
}
