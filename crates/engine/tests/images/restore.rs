//! Where an image is restored to, and what is written there.

use crate::bench::{BLOCK, Images, allocated};
use bale_engine::dump::dump_snapshot;
use bale_engine::restore::SnapshotRestore;
use bale_pipeline::monitor::{Monitor, Problem, Recorder};
use bale_repository::error::Error;
use bale_restore::{Everything, RestoreOptions, ScratchSpace};
use bale_testkit::scene::noise;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// With holes, and a snapshot.
fn with_holes() -> Images {
    let mut images = Images::of(&noise(1, 2 * BLOCK as usize));
    images.set_len(10 * BLOCK + 9);
    images.write_at(7 * BLOCK + 4096, &noise(2, 9000));
    images.keep();
    images
}

#[test]
fn of_a_file_that_is_there_only_blocks_that_differ_are_written_and_holes_are_made() {
    let images = with_holes();
    let (id, bytes) = images.kept[0].clone();
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, id);
    let target = images.path("target.raw");
    let restore = || {
        let report = images.restore_to(&repository, &snapshot, &target, &Recorder::default());
        let report = report.unwrap();
        assert!(fs::read(&target).unwrap() == bytes);
        assert_eq!((report.problems, report.files_written), (0, 1));
        report.bytes
    };
    fs::write(&target, &bytes).unwrap();
    assert_eq!(restore(), 0);
    let file = File::options().write(true).open(&target).unwrap();
    file.write_all_at(b"x", BLOCK + 5).unwrap();
    assert_eq!(restore(), 4096);
    // Where the image has nothing.
    file.write_all_at(&noise(3, 3 * BLOCK as usize), 3 * BLOCK)
        .unwrap();
    let before = allocated(&target);
    assert!(restore() <= 4 * BLOCK);
    assert!(allocated(&target) < before - 2 * BLOCK);
    // A shorter file becomes as long as the image.
    file.set_len(100).unwrap();
    restore();
}

/// Once so much was done.
struct StopAfter(AtomicU64);

impl Monitor for StopAfter {
    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn interrupted(&self) -> bool {
        let left = |left: u64| Some(left.saturating_sub(1));
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            == Ok(0)
    }
}

#[test]
fn an_interrupted_restore_leaves_a_file_of_its_owner_and_the_next_one_finishes_it() {
    let images = with_holes();
    let (id, bytes) = images.kept[0].clone();
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, id);
    let target = images.path("target.raw");
    let stop = StopAfter(AtomicU64::new(4));
    let stopped = images.restore_to(&repository, &snapshot, &target, &stop);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    let left = fs::metadata(&target).unwrap();
    assert_eq!(
        (left.mode() & 0o777, left.len()),
        (0o600, bytes.len() as u64)
    );
    let report = images.restore_to(&repository, &snapshot, &target, &Recorder::default());
    assert_eq!(report.unwrap().problems, 0);
    assert!(fs::read(&target).unwrap() == bytes);
}

#[test]
fn a_file_is_never_cut_unasked_nor_one_written_that_has_other_names() {
    let images = with_holes();
    let (id, bytes) = images.kept[0].clone();
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, id);
    let target = images.path("target.raw");
    let mut longer = bytes.clone();
    longer.extend_from_slice(b"somebody's data");
    fs::write(&target, &longer).unwrap();
    let monitor = Recorder::default();
    let report = images.restore_to(&repository, &snapshot, &target, &monitor);
    assert_eq!(report.unwrap().problems, 1);
    let problems = monitor.problems.lock().unwrap();
    assert!(problems[0].text.contains("--force"), "{problems:?}");
    assert!(fs::read(&target).unwrap() == longer);

    let work = SnapshotRestore {
        repository: &repository,
        snapshot: &snapshot,
        target: &target,
        options: RestoreOptions::new(&Everything),
    };
    let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
    let report = work.restore_image(true, &scratch, &Recorder::default());
    assert_eq!(report.unwrap().problems, 0);
    assert!(fs::read(&target).unwrap() == bytes);

    fs::write(&target, b"short").unwrap();
    fs::hard_link(&target, images.path("other name")).unwrap();
    let report = images.restore_to(&repository, &snapshot, &target, &Recorder::default());
    assert_eq!(report.unwrap().problems, 1);
    assert_eq!(fs::read(&target).unwrap(), b"short");
}

fn into_directory(images: &Images, target: &Path, dry_run: bool) -> bale_restore::RestoreReport {
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, images.kept[0].0);
    let work = SnapshotRestore {
        repository: &repository,
        snapshot: &snapshot,
        target,
        options: RestoreOptions {
            dry_run,
            ..RestoreOptions::new(&Everything)
        },
    };
    let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
    let report = work.restore(&scratch, &Recorder::default()).unwrap();
    if !dry_run {
        let verified = work.verify(&scratch, &Recorder::default()).unwrap();
        assert_eq!((verified.differences, verified.problems), (0, 0));
    }
    report
}

#[test]
fn into_a_directory_an_image_comes_under_its_own_name_with_its_holes_and_metadata() {
    let images = with_holes();
    let target = images.path("directory");
    assert_eq!(into_directory(&images, &target, true).files_written, 1);
    assert!(!target.exists());
    let report = into_directory(&images, &target, false);
    assert_eq!((report.files_written, report.problems), (1, 0));
    let restored = target.join("disk.raw");
    assert!(fs::read(&restored).unwrap() == images.kept[0].1);
    assert!(allocated(&restored) < 3 * BLOCK);
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(modified(&restored), modified(&images.path("disk.raw")));
    // As any file of the same size and time.
    assert_eq!(into_directory(&images, &target, false).kept, 1);
}

#[test]
fn what_differs_from_an_image_is_found_wherever_it_is() {
    let images = with_holes();
    let (id, bytes) = images.kept[0].clone();
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, id);
    let target = images.path("target.raw");
    for at in [0, BLOCK - 1, 5 * BLOCK, 7 * BLOCK + 5000, 10 * BLOCK + 8] {
        let mut other = bytes.clone();
        other[at as usize] ^= 1;
        fs::write(&target, &other).unwrap();
        let work = SnapshotRestore {
            repository: &repository,
            snapshot: &snapshot,
            target: &target,
            options: RestoreOptions::new(&Everything),
        };
        let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
        let report = work.verify_image(&scratch, &Recorder::default()).unwrap();
        assert_eq!(report.differences, 1, "at {at}");
        assert!(fs::read(&target).unwrap() == other);
    }
}

#[test]
fn a_dump_is_the_image_itself_and_of_a_snapshot_an_archive_with_its_holes() {
    let images = with_holes();
    let (id, bytes) = images.kept[0].clone();
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, id);
    let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
    let dump = |path: &[u8]| {
        let (mut out, monitor) = (Vec::new(), Recorder::default());
        let report = dump_snapshot(&repository, &snapshot, path, &scratch, &mut out, &monitor);
        let report = report.unwrap();
        assert_eq!((report.entries, report.problems), (1, 0));
        out
    };
    assert!(dump(b"disk.raw") == bytes);
    let archive = dump(b"");
    assert!((archive.len() as u64) < 4 * BLOCK, "{}", archive.len());
    let (archived, unpacked) = (images.path("archive.tar"), images.path("unpacked"));
    fs::write(&archived, archive).unwrap();
    fs::create_dir(&unpacked).unwrap();
    let tar = std::process::Command::new("tar")
        .arg("-xf")
        .arg(&archived)
        .arg("-C")
        .arg(&unpacked)
        .status();
    assert!(tar.unwrap().success());
    assert!(fs::read(unpacked.join("disk.raw")).unwrap() == bytes);
}
