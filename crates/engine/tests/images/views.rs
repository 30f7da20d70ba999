//! Files in images, with trackers.

use crate::bench::{BLOCK, Images, NAME, run};
use crate::told::{differences, tracked, tracked_with};
use bale_engine::backup::{BackupOptions, Outcome};
use bale_engine::restore::SnapshotRestore;
use bale_format::snapshot::ImageState;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress, Recorder};
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_restore::{Everything, RestoreOptions, ScratchSpace};
use bale_testkit::needs;
use bale_testkit::scene::noise;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: usize = 1 << 20;

/// An image of an ext4 with files of all sizes, side by side.
fn image(images: &Images) {
    let tree = images.path("tree");
    fs::create_dir_all(tree.join("small")).unwrap();
    for number in 0..200u64 {
        let name = tree.join(format!("small/{number}"));
        fs::write(name, noise(number, 1 + number as usize * 61)).unwrap();
    }
    for number in 0..4u64 {
        let name = tree.join(format!("large{number}"));
        fs::write(name, noise(900 + number, 4 * MIB + 777)).unwrap();
    }
    images.write(NAME, &vec![0; 48 * MIB]);
    let (image, tree) = (images.path(NAME), tree.to_str().unwrap().to_owned());
    run(
        "mkfs.ext4",
        &["-q", "-F", "-d", &tree, image.to_str().unwrap()],
    );
}

fn has_tools() -> bool {
    let has = needs::have("mkfs.ext4") && needs::have("debugfs");
    if !has {
        needs::skipped("mkfs.ext4 or debugfs is missing");
    }
    has
}

fn files_below(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => directories.push(path),
                false => {
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                    files.insert(name.to_owned(), fs::read(&path).unwrap());
                }
            }
        }
    }
    files
}

/// The files that a snapshot has are those that `debugfs` finds in the image.
fn assert_files(images: &Images, outcome: &Outcome) {
    let expected = images.path("expected");
    let _was_not_there = fs::remove_dir_all(&expected);
    fs::create_dir(&expected).unwrap();
    let dump = format!("rdump / {}", expected.display());
    run(
        "debugfs",
        &["-R", &dump, images.path(NAME).to_str().unwrap()],
    );
    assert_same(&files_below(&expected), &restored_files(images, outcome));
}

/// Names and bytes.
pub fn assert_same(expected: &BTreeMap<String, Vec<u8>>, found: &BTreeMap<String, Vec<u8>>) {
    let names: Vec<_> = expected.keys().collect();
    assert_eq!(names, found.keys().collect::<Vec<_>>());
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{name}");
    }
}

/// The files of the view of a snapshot.
pub fn restored_files(images: &Images, outcome: &Outcome) -> BTreeMap<String, Vec<u8>> {
    let target = images.path("files");
    let _was_not_there = fs::remove_dir_all(&target);
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, outcome.id.unwrap());
    let work = SnapshotRestore {
        repository: &repository,
        snapshot: &snapshot,
        target: &target,
        options: RestoreOptions {
            threads: 2,
            below: "disk".into(),
            ..RestoreOptions::new(&Everything)
        },
    };
    let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
    let report = work.restore(&scratch, &Recorder::default()).unwrap();
    assert_eq!(report.problems, 0);
    files_below(&target)
}

/// Notes whether anything was scanned.
#[derive(Default)]
struct Scans(AtomicBool);

impl Monitor for Scans {
    fn progress(&self, phase: Phase, _progress: Progress) {
        self.0.fetch_or(phase == Phase::Scan, Ordering::Relaxed);
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }
}

/// Writes to the image once its files are being listed.
struct WritesMeanwhile<'a>(&'a Images);

impl Monitor for WritesMeanwhile<'_> {
    fn progress(&self, phase: Phase, _progress: Progress) {
        if phase == Phase::Scan {
            self.0.write_at(40 * BLOCK, b"meanwhile");
        }
    }

    fn problem(&self, _problem: &Problem) {}
}

#[test]
fn an_image_written_to_while_its_files_are_listed_has_no_view() {
    if !has_tools() {
        return;
    }
    let images = Images::new();
    image(&images);
    let first = images.backup();
    assert_eq!(first.snapshot.images[0].views.len(), 1);
    // Something to list.
    fs::write(images.path("new"), noise(5, 9000)).unwrap();
    let command = format!("write {} new", images.path("new").display());
    let path = images.path(NAME);
    run("debugfs", &["-w", "-R", &command, path.to_str().unwrap()]);
    let (repository, mut sources) = (images.scene.repository(), [images.source(NAME)]);
    let (options, monitor) = (BackupOptions::default(), WritesMeanwhile(&images));
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let outcome = outcome.unwrap();
    let record = &outcome.snapshot.images[0];
    assert_eq!((record.how, record.views.len()), (ImageState::Fuzzy, 0));
    let repository = images.scene.repository();
    let layers = Images::named(&repository, outcome.id.unwrap()).1.layers;
    let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
    let paths = catalog.rows(KeyRange::all()).map(|row| row.unwrap().path());
    assert_eq!(paths.collect::<Vec<_>>(), [NAME.as_bytes()]);
    // The next one is of one moment again.
    assert_files(&images, &images.backup());
}

#[test]
fn with_a_tracker_files_are_what_is_there_now() {
    if !has_tools() {
        return;
    }
    let images = Images::new();
    image(&images);
    let path = images.path(NAME);
    let path = path.to_str().unwrap();
    let first = tracked(&images, 0, Vec::new());
    assert_files(&images, &first);
    assert_eq!(first.snapshot.images[0].views[0].totals.files, 204);
    for (epoch, command) in [
        (1, "rm small/77"),
        (2, "rm large2"),
        (3, "ln large1 small/other"),
        (4, "write new small/new"),
        (5, "write large large"),
        (6, "punch large1 100 300"),
    ] {
        fs::write(images.path("new"), noise(1000 + epoch, 12_345)).unwrap();
        fs::write(images.path("large"), noise(2000 + epoch, 3 * MIB + 5)).unwrap();
        let before = images.bytes();
        let command = command.replace("write ", &format!("write {}/", images.dir.path().display()));
        run("debugfs", &["-w", "-R", &command, path]);
        let changes = differences(&before, &images.bytes());
        let outcome = tracked(&images, epoch, changes);
        assert_files(&images, &outcome);
        // What did not change is neither read nor stored, whichever view it is in.
        let counts = &outcome.snapshot.counts;
        assert!(
            counts.bytes_read <= 12 * BLOCK,
            "{epoch}: {}",
            counts.bytes_read
        );
        assert!(
            counts.bytes_stored <= 9 * BLOCK,
            "{epoch}: {}",
            counts.bytes_stored
        );
    }
    let report = images.scene.check(&images.scene.store).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_view_of_which_no_block_changed_keeps_its_rows_and_is_not_scanned() {
    if !has_tools() {
        return;
    }
    let images = Images::new();
    image(&images);
    let first = tracked(&images, 0, Vec::new());
    let monitor = Scans::default();
    let second = tracked_with(&images, 1, Vec::new(), &monitor);
    assert_eq!(second.snapshot.layers, first.snapshot.layers);
    assert_eq!(
        second.snapshot.images[0].views,
        first.snapshot.images[0].views
    );
    assert_eq!(second.snapshot.filesystems, first.snapshot.filesystems);
    assert!(!monitor.0.load(Ordering::Relaxed));
    assert_files(&images, &second);
}
