//! A repository in memory, files that are images, and what was in them when they were backed up.

use bale_engine::backup::{BackupOptions, ImageSource, Outcome, backup_images};
use bale_engine::restore::SnapshotRestore;
use bale_format::{ImageExtent, ObjectId};
use bale_pipeline::monitor::{Monitor, Recorder};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Result;
use bale_repository::repository::{Named, Repository};
use bale_restore::{Everything, RestoreOptions, RestoreReport, ScratchSpace};
use bale_source::raw::RawImage;
use bale_testkit::Scene;
use bale_testkit::scene::STEP;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub const BLOCK: u64 = 1 << 20;

/// The image of most tests.
pub const NAME: &str = "disk.raw";

pub struct Images {
    pub scene: Scene,
    pub dir: tempfile::TempDir,
    /// Snapshots of `disk.raw`, and what it was.
    pub kept: Vec<(ObjectId, Vec<u8>)>,
}

impl Images {
    pub fn new() -> Images {
        Images {
            scene: Scene::new(),
            // Not below /dev: an image in a new file there is refused.
            dir: tempfile::tempdir().unwrap(),
            kept: Vec::new(),
        }
    }

    /// With `disk.raw` of these bytes.
    pub fn of(bytes: &[u8]) -> Images {
        let images = Images::new();
        images.write(NAME, bytes);
        images
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Writes into `disk.raw`.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.path(NAME)).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    pub fn set_len(&self, bytes: u64) {
        let file = File::options().write(true).open(self.path(NAME)).unwrap();
        file.set_len(bytes).unwrap();
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(self.path(NAME)).unwrap()
    }

    pub fn source(&self, name: &str) -> ImageSource {
        ImageSource::untracked(RawImage::open(&self.path(name)).unwrap())
    }

    /// Backs up into an open repository.
    pub fn backup_into(
        &self,
        repository: &Arc<Repository>,
        sources: &mut [ImageSource],
        options: &BackupOptions,
        monitor: &dyn Monitor,
    ) -> Result<Outcome> {
        self.scene.clock.advance(STEP);
        let options = BackupOptions {
            host: "host".to_owned(),
            ..options.clone()
        };
        backup_images(repository, sources, false, &options, monitor)
    }

    /// Backs up `disk.raw`, which must go without a problem.
    pub fn backup(&self) -> Outcome {
        let monitor = Recorder::default();
        let mut sources = [self.source(NAME)];
        let options = BackupOptions::default();
        let repository = self.scene.repository();
        let outcome = self.backup_into(&repository, &mut sources, &options, &monitor);
        let problems = monitor.problems.lock().unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        outcome.unwrap()
    }

    /// The same, and remembers what must come back.
    pub fn keep(&mut self) -> Outcome {
        let outcome = self.backup();
        self.kept.push((outcome.id.unwrap(), self.bytes()));
        outcome
    }

    /// Extents of `disk.raw`.
    pub fn extents(&self, outcome: &Outcome) -> Vec<ImageExtent> {
        let source = self.scene.repository().segment_source();
        let catalog = CatalogReader::open(source, outcome.snapshot.layers.clone()).unwrap();
        let rows = catalog.extents(NAME.as_bytes());
        rows.map(|row| ImageExtent::of(&row.unwrap()).unwrap())
            .collect()
    }

    pub fn named(repository: &Repository, id: ObjectId) -> Named {
        let snapshots = repository.snapshots().unwrap();
        let found = snapshots.into_iter().find(|(other, _)| *other == id);
        found.expect("the snapshot is there")
    }

    /// Restores the one image of a snapshot to a path.
    pub fn restore_to(
        &self,
        repository: &Arc<Repository>,
        snapshot: &Named,
        target: &Path,
        monitor: &dyn Monitor,
    ) -> Result<RestoreReport> {
        let work = SnapshotRestore {
            repository,
            snapshot,
            target,
            options: RestoreOptions {
                threads: 2,
                ..RestoreOptions::new(&Everything)
            },
        };
        let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
        work.restore_image(false, &scratch, monitor)
    }

    /// A snapshot of a repository restores to exactly these bytes, without a problem.
    pub fn assert_restores(&self, repository: &Arc<Repository>, id: ObjectId, bytes: &[u8]) {
        let target = self.path("restored.raw");
        let _was_not_there = fs::remove_file(&target);
        let monitor = Recorder::default();
        let snapshot = Images::named(repository, id);
        let report = self.restore_to(repository, &snapshot, &target, &monitor);
        let problems = monitor.problems.lock().unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(report.unwrap().problems, 0);
        assert!(
            fs::read(&target).unwrap() == bytes,
            "{}: other bytes",
            id.short()
        );
    }

    /// Everything that was kept restores, and a check that reads all finds nothing.
    pub fn assert_whole(&self) {
        let repository = self.scene.repository();
        for (id, bytes) in &self.kept {
            self.assert_restores(&repository, *id, bytes);
        }
        let report = self.scene.check(&self.scene.store).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// A program that must succeed, and what it says.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output().unwrap();
    assert!(done.status.success(), "{program} {arguments:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Blocks that a file takes, in bytes.
pub fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}
