//! Snapshots of a directory by walking and of an image by its inodes, and how their rows compare.

use super::image::run;
use bale_engine::backup::{BackupOptions, EarlyScan, Outcome, backup_begun};
use bale_engine::dump::dump_snapshot;
use bale_format::{ChunkKind, Content, Entry, EntryFlags};
use bale_pipeline::filter::{Filter, FilterOptions};
use bale_pipeline::monitor::{Problem, Recorder};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Result;
use bale_restore::ScratchSpace;
use bale_source::scan::{LeftOut, ScanMode, ScanOptions, Sources};
use bale_testkit::scene::{STEP, Scene};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Rows by their path below the source; the source itself has none.
pub type Rows = BTreeMap<Vec<u8>, Entry>;

/// A repository for snapshots of both kinds.
pub struct Pair {
    pub scene: Scene,
    pub filter: FilterOptions,
    pub left_out: LeftOut,
    /// Compare with nothing.
    pub force: bool,
    pub skip_if_unchanged: bool,
    pub with_atime: bool,
    /// Bundles of both kinds of snapshots hold the same files. If not, neighbours in a bundle have
    /// other chunks, too, until both kinds read everything again.
    bundles_agree: Cell<bool>,
}

/// A snapshot, and what was said while it was made.
pub struct Taken {
    pub rows: Rows,
    pub problems: Vec<Problem>,
    pub notes: Vec<String>,
    pub outcome: Outcome,
    /// The path of the source, without leading slash.
    source: Vec<u8>,
}

impl Taken {
    /// What the record names as left out, below the source.
    pub fn withheld(&self) -> Vec<Vec<u8>> {
        let withheld = self.outcome.snapshot.withheld.iter();
        let below = withheld.map(|path| path.0[1 + self.source.len()..].to_vec());
        below.collect()
    }
}

impl Pair {
    pub fn new() -> Pair {
        Pair {
            scene: Scene::new(),
            filter: FilterOptions::default(),
            left_out: LeftOut::default(),
            force: true,
            skip_if_unchanged: false,
            with_atime: false,
            bundles_agree: Cell::new(true),
        }
    }

    /// Of a mounted directory.
    pub fn walk(&self, directory: &Path) -> Taken {
        self.take(directory, ScanMode::Walk).unwrap()
    }

    /// Of an image file.
    pub fn inode_scan(&self, image: &Path) -> Taken {
        self.take(image, ScanMode::Inode).unwrap()
    }

    pub fn take(&self, source: &Path, mode: ScanMode) -> Result<Taken> {
        self.take_begun(source, mode, |_, _| None)
    }

    /// The same, of which a scan may have begun.
    pub fn take_begun(
        &self,
        source: &Path,
        mode: ScanMode,
        begin: impl FnOnce(&Sources, &ScanOptions) -> Option<EarlyScan>,
    ) -> Result<Taken> {
        self.scene.clock.advance(STEP);
        let source = source.canonicalize().unwrap();
        let (sources, missing) = Sources::resolve(&[&source]).unwrap();
        assert!(missing.is_empty());
        let scan = ScanOptions {
            mode,
            filter: Filter::new(&self.filter).unwrap(),
            left_out: self.left_out.clone(),
            with_atime: self.with_atime,
            spill_directory: std::env::temp_dir(),
            ..ScanOptions::default()
        };
        let options = BackupOptions {
            host: "host".to_owned(),
            force: self.force,
            skip_if_unchanged: self.skip_if_unchanged,
            with_atime: self.with_atime,
            ..BackupOptions::default()
        };
        let monitor = Recorder::default();
        let begun = (&sources, begin(&sources, &scan));
        let repository = self.scene.repository();
        let outcome = backup_begun(&repository, begun, scan, &options, &monitor)?;
        let problems = std::mem::take(&mut *monitor.problems.lock().unwrap());
        Ok(Taken {
            rows: self.rows(&outcome, &source),
            problems,
            notes: std::mem::take(&mut *monitor.notes.lock().unwrap()),
            outcome,
            source: source.as_os_str().as_bytes()[1..].to_vec(),
        })
    }

    fn rows(&self, outcome: &Outcome, source: &Path) -> Rows {
        let source = &source.as_os_str().as_bytes()[1..];
        // As another process would see it.
        let segments = self.scene.repository().segment_source();
        let catalog = CatalogReader::open(segments, outcome.snapshot.layers.clone()).unwrap();
        let rows = catalog.subtree(source).unwrap().map(|row| {
            let mut row = row.unwrap();
            let path = row.path()[source.len()..].to_vec();
            // What may differ: where it was found, and the number of the file system there.
            row.filesystem = 0;
            row.parent = bytes::Bytes::new();
            if path.is_empty() {
                row.name = bytes::Bytes::new();
            }
            (path, row)
        });
        rows.collect()
    }

    /// Where is kept what inodes were.
    pub fn cache(&self) -> PathBuf {
        self.scene.repository().cache_dir().unwrap().join("inodes")
    }

    /// Chunks of content in the repository.
    pub fn data_chunks(&self) -> usize {
        let index = self.scene.repository().index().unwrap();
        let entries = index.entries().iter();
        entries
            .filter(|place| place.chunk.kind == ChunkKind::Data)
            .count()
    }

    /// Ranges that were allocated and never written are holes to an inode scan. The kernel, asked
    /// for holes, calls them data for as long as they are in its cache, where reading ahead may
    /// have put them: a walk may store zeros there, or holes where the scan stored zeros, as the
    /// machine has memory. Such files hold the same bytes all the same; that is what is asserted of
    /// them before they count as equal.
    ///
    /// Without any hole a small file goes into a bundle, else into pieces. Where the two differ in
    /// that, all files of that bundle have another chunk.
    ///
    /// True if nothing was to be adopted, so that the scan stored no content of its own.
    pub fn adopt_other_holes(&self, walked: &Taken, scanned: &mut Taken, which: &str) -> bool {
        let in_pieces = |row: &Entry| matches!(row.content, Content::Pieces { .. });
        let differing: Vec<_> = (scanned.rows.iter())
            .filter_map(|(path, row)| {
                let other = walked.rows.get(path)?;
                let differs =
                    other.content_hash != row.content_hash || other.content != row.content;
                (differs && row.size == other.size).then_some((path, row, other))
            })
            .collect();
        let mut pairs = differing.iter();
        let bundles_differ = pairs.any(|(_, row, other)| in_pieces(row) != in_pieces(other));
        if bundles_differ || self.force {
            self.bundles_agree.set(!bundles_differ);
        }
        let bundles_agree = self.bundles_agree.get();
        let is_excused = |row: &Entry, other: &Entry| match in_pieces(row) || in_pieces(other) {
            true => true,
            false => !bundles_agree && row.content_hash == other.content_hash,
        };
        let excused: Vec<_> = (differing.into_iter())
            .filter(|(_, row, other)| is_excused(row, other))
            .map(|(path, ..)| path.clone())
            .collect();
        for path in &excused {
            let same = self.hash(walked, path) == self.hash(scanned, path);
            assert!(same, "{which}: {} holds other bytes", path.escape_ascii());
            let walked = &walked.rows[path];
            let row = scanned.rows.get_mut(path).unwrap();
            row.content = walked.content;
            row.content_hash = walked.content_hash;
            let sparse = EntryFlags::SPARSE.0;
            row.flags = EntryFlags(row.flags.0 & !sparse | walked.flags.0 & sparse);
        }
        excused.is_empty() && bundles_agree
    }

    /// Of the bytes of a file, as a restore would have them.
    fn hash(&self, taken: &Taken, path: &[u8]) -> blake3::Hash {
        let snapshot = (taken.outcome.id.unwrap(), taken.outcome.snapshot.clone());
        let path = [&taken.source[..], path].concat();
        let scratch = ScratchSpace::new(std::env::temp_dir());
        let (mut hasher, monitor) = (blake3::Hasher::new(), Recorder::default());
        let repository = self.scene.repository();
        dump_snapshot(
            &repository,
            &snapshot,
            &path,
            &scratch,
            &mut hasher,
            &monitor,
        )
        .unwrap();
        assert!(monitor.problems.lock().unwrap().is_empty());
        hasher.finalize()
    }

    /// A walk of `mounted` and then an inode scan of `image`, which hold the same, give the same
    /// rows, and the second stores no content.
    pub fn assert_same(&self, mounted: impl FnOnce(&Pair) -> Taken, image: &Path, which: &str) {
        await_settled_times(image);
        let walked = mounted(self);
        assert!(walked.problems.is_empty(), "{which}: {:?}", walked.problems);
        let chunks = self.data_chunks();
        at_rest(image);
        let mut scanned = self.inode_scan(image);
        assert!(
            scanned.problems.is_empty(),
            "{which}: {:?}",
            scanned.problems
        );
        let is_same_content = self.adopt_other_holes(&walked, &mut scanned, which);
        assert_same_rows(&walked.rows, &scanned.rows, which);
        if is_same_content {
            assert_eq!(
                self.data_chunks(),
                chunks,
                "{which}: content was stored again"
            );
        }
        assert_eq!(walked.withheld(), scanned.withheld(), "{which}");
        let totals = |taken: &Taken| {
            let totals = taken.outcome.snapshot.totals;
            (totals.files, totals.others, totals.bytes, totals.hard_links)
        };
        assert_eq!(totals(&walked), totals(&scanned), "{which}");
    }
}

/// Of ext4 with inodes of 128 bytes, whose times are whole seconds: until the last change is two of
/// them old, as some file systems keep times. A walk doubts what is younger.
fn await_settled_times(image: &Path) {
    let (magic, inode_bytes) = (1024 + 56, 1024 + 88);
    let field = |offset| {
        let mut bytes = [0; 2];
        let file = std::fs::File::open(image).unwrap();
        file.read_exact_at(&mut bytes, offset).unwrap();
        u16::from_le_bytes(bytes)
    };
    if (field(magic), field(inode_bytes)) != (0xef53, 128) {
        return;
    }
    let second = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let changed = second(std::fs::metadata(image).unwrap().modified().unwrap());
    while second(SystemTime::now()) <= changed + 1 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Field by field; the first few that differ are shown.
pub fn assert_same_rows(walked: &Rows, scanned: &Rows, which: &str) {
    let all: std::collections::BTreeSet<_> = walked.keys().chain(scanned.keys()).collect();
    let differing = all
        .into_iter()
        .filter(|path| walked.get(*path) != scanned.get(*path))
        .map(|path| {
            let path_text = path.escape_ascii();
            format!(
                "{path_text}:\n  walk  {:?}\n  inode {:?}",
                walked.get(path),
                scanned.get(path)
            )
        });
    let differing: Vec<String> = differing.collect();
    assert!(
        differing.is_empty(),
        "{which}: {} of {} rows differ:\n{}",
        differing.len(),
        walked.len(),
        differing[..differing.len().min(5)].join("\n")
    );
}

/// The image was unmounted and comes to rest, and ctimes settle: what changed a tick ago is marked
/// to be read again, and the second scan would not mark it.
pub fn settle(image: &Path) {
    settle_for(image, TICKS);
}

/// The same, where it may take longer.
pub fn settle_for(image: &Path, rest: Duration) {
    at_rest(image);
    std::thread::sleep(rest);
}

/// How long ctimes take to settle: where they have nanoseconds, and where they have none.
pub const TICKS: Duration = Duration::from_millis(40);
pub const WHOLE_SECONDS: Duration = Duration::from_millis(2_040);

/// Waits until no loop device writes to the image: another test's child may have held the mount for
/// a moment longer.
fn at_rest(image: &Path) {
    let is_attached = || {
        let attached = run("losetup", &["-j", image.to_str().unwrap()]).stdout;
        !attached.is_empty()
    };
    let mut attempts = 0;
    while is_attached() {
        attempts += 1;
        assert!(attempts < 3_000, "{} stays attached", image.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}
