//! A tree, a repository and a clock: where the tests of whole operations begin, and what must hold
//! after each.
//!
//! The repository is in memory and opens with a key file, so nothing waits for a disk or a key
//! derivation.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bale_engine::backup::{BackupOptions, Outcome, backup};
use bale_engine::prune::{self, PruneOptions, Pruned};
use bale_engine::restore::SnapshotRestore;
use bale_engine::verify::{CheckReport, Subset, check};
use bale_format::ObjectId;
use bale_format::index::{IndexEntry, IndexPack};
use bale_format::pack::PackEntry;
use bale_pipeline::clock::ManualClock;
use bale_pipeline::monitor::{Monitor, Recorder};
use bale_pipeline::random::OsRandom;
use bale_repository::error::Result;
use bale_repository::repository::{
    Environment, InitOptions, Made, Named, NewSlot, Repository, Secret,
};
use bale_repository::store::{Area, Store};
use bale_restore::{Everything, RestoreOptions, RestoreReport, ScratchSpace};
use bale_source::scan::{Protocol, ScanOptions, Sources};
use tempfile::TempDir;

use crate::dated_store::DatedStore;
use crate::tree::Tree;

/// Between two operations of a scene.
pub const STEP: Duration = Duration::from_secs(60);

/// A tree, a repository and a clock.
pub struct Scene {
    dir: TempDir,
    /// Stands still but for `STEP` before each backup.
    pub clock: Arc<ManualClock>,
    /// The repository.
    pub store: DatedStore,
    /// Snapshots that were acknowledged, and what they must restore to.
    pub kept: Vec<(ObjectId, Tree)>,
    targets: AtomicU64,
}

impl Scene {
    /// An empty tree and a repository without snapshots.
    pub fn new() -> Scene {
        let clock = Arc::new(ManualClock::at_seconds(1_700_000_000));
        let shm = Path::new("/dev/shm");
        let dir = match shm.is_dir() {
            true => tempfile::tempdir_in(shm),
            false => tempfile::tempdir(),
        };
        let scene = Scene {
            dir: dir.expect("a place for temporary files"),
            store: DatedStore::new(clock.clone()),
            clock,
            kept: Vec::new(),
            targets: AtomicU64::new(0),
        };
        fs::create_dir(scene.source()).expect("an empty directory");
        scene.init(scene.store.clone()).expect("an empty store");
        scene
    }

    /// The directory that is backed up.
    pub fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    /// Where the repository keeps what can be rebuilt.
    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    /// The secret that opens it.
    pub fn secret() -> Secret {
        Secret::KeyFile(b"the key file of a test, long enough to be one".to_vec())
    }

    /// Clock, randomness and cache of this scene.
    pub fn environment(&self) -> Environment {
        Environment {
            clock: self.clock.clone(),
            random: Arc::new(OsRandom),
            cache_dir: self.cache(),
        }
    }

    /// Makes a repository.
    pub fn init(&self, store: impl Store + 'static) -> Result<Made> {
        self.init_on(Arc::new(store))
    }

    /// The same on a store of which nobody knows the kind.
    pub fn init_on(&self, store: Arc<dyn Store>) -> Result<Made> {
        self.init_on_with(store, InitOptions::default())
    }

    /// The same with all options.
    pub fn init_on_with(&self, store: Arc<dyn Store>, options: InitOptions) -> Result<Made> {
        let slot = NewSlot {
            secret: Scene::secret(),
            label: "test".to_owned(),
        };
        Repository::init_with(store, vec![slot], self.environment(), options)
    }

    /// Opens a repository, as a new process would.
    pub fn open(&self, store: impl Store + 'static) -> Result<Arc<Repository>> {
        self.open_on(Arc::new(store))
    }

    /// The same on a store of which nobody knows the kind.
    pub fn open_on(&self, store: Arc<dyn Store>) -> Result<Arc<Repository>> {
        let opened = Repository::open(store, &Scene::secret(), self.environment());
        opened.map(Arc::new)
    }

    /// Opens the scene's own.
    pub fn repository(&self) -> Arc<Repository> {
        self.open(self.store.clone())
            .expect("an undamaged repository")
    }

    /// Writes a file of the source.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.source().join(path);
        fs::create_dir_all(path.parent().expect("below the source")).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }

    /// A dozen entries of every common kind, small in all; one file is cut into pieces.
    pub fn write_tree(&self) {
        self.write("a.txt", b"first file\n");
        self.write("b.txt", b"second file, a little longer than the first\n");
        self.write("empty", b"");
        self.write("dir/same-as-a", b"first file\n");
        self.write("dir/deep/c.bin", &noise(3, 2_000));
        self.write("large", &periodic(700 << 10));
        let source = self.source();
        std::os::unix::fs::symlink("a.txt", source.join("link")).expect("a link");
        fs::hard_link(source.join("a.txt"), source.join("dir/again-a")).expect("a hard link");
    }

    /// Backs up the source; the clock is moved on first.
    pub fn backup(&self, repository: &Arc<Repository>) -> Result<Outcome> {
        self.backup_with(repository, &BackupOptions::default(), &Recorder::default())
    }

    /// The same with options.
    pub fn backup_with(
        &self,
        repository: &Arc<Repository>,
        options: &BackupOptions,
        monitor: &dyn Monitor,
    ) -> Result<Outcome> {
        self.clock.advance(STEP);
        let (sources, _) = Sources::resolve(&[self.source()]).expect("a source that exists");
        let scan = ScanOptions {
            threads: Some(1),
            spill_directory: self.dir.path().to_owned(),
            // The tree is in memory, so that nothing waits; nobody stores through maps.
            protocol: Protocol {
                memory_is_racy: false,
                ..Protocol::default()
            },
            ..ScanOptions::default()
        };
        let options = BackupOptions {
            host: "host".to_owned(),
            ..options.clone()
        };
        backup(repository, &sources, scan, &options, monitor)
    }

    /// Backs up into the scene's own store and remembers what must come back.
    pub fn keep(&mut self) -> ObjectId {
        let outcome = self.backup(&self.repository()).expect("a backup");
        let id = outcome.id.expect("a snapshot");
        self.kept.push((id, Tree::read(&self.source())));
        id
    }

    /// Three snapshots of which the first two are forgotten: of the first one's packs little is
    /// used, of the second's nothing.
    pub fn keep_and_forget_most(&mut self) {
        self.write("gone", &noise(6, 900_000));
        let first = self.keep();
        fs::remove_file(self.source().join("gone")).expect("it was written");
        self.write("gone too", &noise(8, 30_000));
        let second = self.keep();
        fs::remove_file(self.source().join("gone too")).expect("it was written");
        self.write("new", &noise(7, 500));
        self.keep();
        for id in [first, second] {
            let forgotten = self.repository().forget_snapshot(id);
            forgotten.expect("a store in memory");
        }
        self.kept.drain(..2);
    }

    /// Plans and applies a prune.
    pub fn prune(&self, repository: &Arc<Repository>, grace: Duration) -> Result<Pruned> {
        self.forget_newest_seen();
        let options = PruneOptions {
            grace,
            repack_below_percent: 60,
        };
        let monitor = Recorder::default();
        let plan = prune::plan(repository, &options, &monitor)?;
        prune::apply(repository, &plan, &options, &monitor)
    }

    /// A fork of the store is another past of the repository, and nothing that was seen in the
    /// others is missed in it.
    pub fn forget_newest_seen(&self) {
        for repository in fs::read_dir(self.cache()).into_iter().flatten() {
            let repository = repository.expect("a cache that can be read").path();
            // There is none before the first backup.
            let _ = fs::remove_file(repository.join("newest-snapshots"));
        }
    }

    /// Restores a snapshot into a new directory: what is there then, and the report.
    pub fn restore(
        &self,
        repository: &Arc<Repository>,
        snapshot: &Named,
        monitor: &dyn Monitor,
    ) -> (Tree, Result<RestoreReport>) {
        let source = self.source();
        let below = &source.as_os_str().as_bytes()[1..];
        self.restore_below(repository, snapshot, below, monitor)
    }

    /// The same of what is at a path of the snapshot, without leading slash.
    pub fn restore_below(
        &self,
        repository: &Arc<Repository>,
        snapshot: &Named,
        below: &[u8],
        monitor: &dyn Monitor,
    ) -> (Tree, Result<RestoreReport>) {
        let number = self.targets.fetch_add(1, Ordering::Relaxed);
        let target = self.dir.path().join(format!("target-{number}"));
        fs::create_dir(&target).expect("a new directory");
        let report = repository.spill_dir().and_then(|spill| {
            let restore = SnapshotRestore {
                repository,
                snapshot,
                target: &target,
                options: RestoreOptions {
                    below: below.to_vec().into(),
                    threads: 1,
                    ..RestoreOptions::new(&Everything)
                },
            };
            restore.restore(&ScratchSpace::new(spill), monitor)
        });
        let tree = Tree::read(&target);
        fs::remove_dir_all(&target).expect("a directory of our own");
        (tree, report)
    }

    /// The index object that named some chunks is gone together with their packs, as far as a
    /// reader of the index can tell.
    pub fn lose_from_index(&self, is_lost: impl Fn(&PackEntry) -> bool) {
        let repository = self.repository();
        let index = repository.index().expect("an undamaged index");
        let before = self.store.names(Area::Index);
        let packs: Vec<IndexPack> = (index.packs().iter())
            .map(|pack| IndexPack {
                id: pack.id,
                bytes: pack.len,
            })
            .collect();
        let all = index.entries().iter();
        let stays = all.filter(|place| !is_lost(&place.chunk));
        let entries: Vec<IndexEntry> = stays
            .map(|place| IndexEntry {
                pack: place.pack.0,
                chunk: place.chunk,
            })
            .collect();
        assert!(entries.len() < index.entries().len(), "something is lost");
        repository
            .write_index_object(&packs, entries)
            .expect("a store in memory");
        for name in before {
            self.store.delete(&name).expect("it was listed");
        }
    }

    /// Every kept snapshot is listed and restores exactly; so does every other one, to what the
    /// source holds now.
    pub fn assert_restorable(&self, store: &DatedStore, story: &str) {
        let repository = self.open(store.clone()).expect(story);
        let snapshots = repository.snapshots().expect(story);
        for (id, _) in &self.kept {
            let listed = snapshots.iter().any(|(other, _)| other == id);
            assert!(listed, "{story}: snapshot {} is gone", id.short());
        }
        let now = Tree::read(&self.source());
        for snapshot in &snapshots {
            let kept = self.kept.iter().find(|(id, _)| *id == snapshot.0);
            let expected = kept.map_or(&now, |(_, tree)| tree);
            self.assert_restores(&repository, snapshot, expected, story);
        }
    }

    /// A snapshot restores to exactly this, without a problem.
    pub fn assert_restores(
        &self,
        repository: &Arc<Repository>,
        snapshot: &Named,
        expected: &Tree,
        story: &str,
    ) {
        let monitor = Recorder::default();
        let (tree, report) = self.restore(repository, snapshot, &monitor);
        let problems = monitor.problems.lock().expect("no panics while held");
        assert!(report.is_ok(), "{story}: {report:?}");
        assert!(problems.is_empty(), "{story}: {problems:?}");
        let differing = tree.differences(expected);
        let paths: Vec<_> = differing
            .iter()
            .map(|path| String::from_utf8_lossy(path))
            .collect();
        assert!(paths.is_empty(), "{story}: differ: {paths:?}");
    }

    /// A check that reads everything.
    pub fn check(&self, store: &DatedStore) -> Result<CheckReport> {
        self.check_all(&self.open(store.clone())?)
    }

    /// The same of a repository that is open.
    pub fn check_all(&self, repository: &Arc<Repository>) -> Result<CheckReport> {
        check(repository, Some(Subset::All), &Recorder::default())
    }

    /// All that must hold after any crash: kept snapshots restore, nothing is damaged, and the next
    /// backup and the next prune work without anybody's help.
    pub fn assert_sound(&self, store: &DatedStore, story: &str) {
        self.assert_restorable(store, story);
        let report = self.check(store).expect(story);
        assert!(report.is_clean(), "{story}: {report:?}");
        let repository = self.open(store.clone()).expect(story);
        let outcome = self.backup(&repository);
        assert!(outcome.is_ok(), "{story}: next backup: {outcome:?}");
        let pruned = self.prune(&self.open(store.clone()).expect(story), Duration::ZERO);
        assert!(pruned.is_ok(), "{story}: next prune: {pruned:?}");
        self.assert_restorable(store, &format!("{story}, backed up and pruned"));
        let report = self.check(store).expect(story);
        assert!(
            report.is_clean(),
            "{story}, backed up and pruned: {report:?}"
        );
    }
}

impl Default for Scene {
    fn default() -> Scene {
        Scene::new()
    }
}

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    use bale_pipeline::random::{Random, SeededRandom};
    let mut bytes = vec![0; len];
    SeededRandom::new(seed)
        .fill(&mut bytes)
        .expect("a seeded stream has no end");
    bytes
}

/// Bytes that compress to almost nothing.
pub fn periodic(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}
