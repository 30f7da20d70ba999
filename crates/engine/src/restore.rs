//! Restoring from a repository: its catalog, index and packs behind the seams of a restore.

mod reads;
pub mod to_ext4;
mod warm_command;
mod warm_up;

pub use reads::plan_reads;
pub use warm_command::WarmCommand;
pub use warm_up::WarmUp;

use crate::limits::flight_bytes;
use bale_format::entry::join;
use bale_format::snapshot::PathText;
use bale_format::{ChunkId, ChunkKind, ChunkPlace, Entry, Layer, Snapshot};
use bale_pipeline::error::with_causes;
use bale_pipeline::filter::{Filter, FilterOptions, Pattern, PatternError, Reach, distinct};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::{ChunkFlights, Named, Repository};
use bale_restore::select::Selection;
use bale_restore::{
    CatalogRows, CatalogSource, ChunkSource, ChunkTrouble, RestoreError, RestoreOptions,
    RestoreReport, ScratchSpace,
};
use bytes::Bytes;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Chunks of an open repository.
pub struct RepositoryChunks {
    repository: Arc<Repository>,
    index: Arc<ChunkIndex>,
    /// Of a repository that is far away.
    flights: Option<ChunkFlights>,
}

impl RepositoryChunks {
    /// Of the repository as its index is now.
    pub fn new(repository: Arc<Repository>) -> Result<RepositoryChunks> {
        let bytes = flight_bytes(&repository.memory());
        RepositoryChunks::within(repository, bytes)
    }

    /// The same with so much memory for what is on its way from far away.
    pub fn within(repository: Arc<Repository>, bytes: usize) -> Result<RepositoryChunks> {
        let index = repository.index()?;
        Ok(RepositoryChunks {
            flights: ChunkFlights::start(&repository, bytes),
            repository,
            index,
        })
    }
}

impl ChunkSource for RepositoryChunks {
    fn place(&self, id: &ChunkId) -> Option<ChunkPlace> {
        self.index.any(id)
    }

    fn expect(&self, ids: &[ChunkId]) {
        if let Some(flights) = &self.flights {
            flights.expect(ids);
        }
    }

    fn fetch_ahead(&self, ids: &[ChunkId]) {
        self.repository.fetch_ahead(ids);
    }

    fn is_far_away(&self) -> bool {
        self.flights.is_some()
    }

    fn read(&self, id: &ChunkId, kind: ChunkKind) -> std::result::Result<Bytes, ChunkTrouble> {
        // Lists and sets are small, and neighbours have the same.
        let bytes = match kind {
            ChunkKind::Data => match self
                .flights
                .as_ref()
                .and_then(|flights| flights.read(id, kind))
            {
                Some(bytes) => Ok(bytes),
                None => self.repository.read_chunk_wherever(id, kind),
            },
            _ => self.repository.read_chunk_wherever_remembering(id, kind),
        };
        Ok(bytes?)
    }
}

/// Of what contents on their way may take, what segments of the catalog may before.
const CATALOG_PART: usize = 3;

/// A snapshot's catalog.
///
/// Who asks for all of it does not get the files in images, which would be everything a second
/// time: they are there for who names them.
pub struct SnapshotCatalog {
    repository: Arc<Repository>,
    /// Directories of the views of images.
    views: HashSet<Bytes>,
    rows: CatalogReader,
    /// The same, for look-ups: those of directories above a path are often in one segment, which is
    /// remembered.
    lookups: CatalogReader,
}

impl SnapshotCatalog {
    pub fn of(repository: &Arc<Repository>, snapshot: &Snapshot) -> Result<SnapshotCatalog> {
        let views = snapshot.images.iter().flat_map(|image| &image.views);
        let name = |path: &PathText| path.0.strip_prefix(b"/").map(Bytes::copy_from_slice);
        Ok(SnapshotCatalog {
            views: views.filter_map(|view| name(&view.path)).collect(),
            ..SnapshotCatalog::of_layers(repository, snapshot.layers.clone())?
        })
    }

    /// For who reads the extents of images alone.
    pub(crate) fn of_layers(
        repository: &Arc<Repository>,
        layers: Vec<Layer>,
    ) -> Result<SnapshotCatalog> {
        Ok(SnapshotCatalog {
            repository: repository.clone(),
            views: HashSet::new(),
            rows: CatalogReader::open(repository.segment_source_wherever(), layers.clone())?,
            lookups: CatalogReader::open(repository.segment_source_wherever_remembering(), layers)?,
        })
    }

    fn is_of_view(&self, row: &Entry) -> bool {
        let path = match row.parent.is_empty() {
            true => &row.name[..],
            false => &row.parent[..],
        };
        let end = path.iter().position(|byte| *byte == b'/');
        !row.is_image() && self.views.contains(&path[..end.unwrap_or(path.len())])
    }

    /// The same, of which so many bytes may be fetched together.
    fn fetched_within(mut self, bytes: usize) -> Result<SnapshotCatalog> {
        let source = self.repository.segment_source_wherever_within(bytes);
        self.rows = CatalogReader::open(source, self.rows.layers().to_vec())?;
        Ok(self)
    }
}

impl CatalogSource for SnapshotCatalog {
    fn rows(&self, path: &[u8]) -> std::result::Result<CatalogRows<'_>, ChunkTrouble> {
        let rows = self.rows.subtree(path)?;
        let rows = rows.map(|row| row.map_err(|error| Box::new(error) as ChunkTrouble));
        if self.views.is_empty() || !path.is_empty() {
            return Ok(Box::new(rows));
        }
        Ok(Box::new(rows.filter(|row| {
            row.as_ref().map_or(true, |row| !self.is_of_view(row))
        })))
    }

    fn extents(&self, path: &[u8]) -> std::result::Result<CatalogRows<'_>, ChunkTrouble> {
        let rows = self.rows.extents(path);
        Ok(Box::new(rows.map(|row| {
            row.map_err(|error| Box::new(error) as ChunkTrouble)
        })))
    }

    /// Neighbours are looked up in turn, and their segment is remembered.
    fn extents_from(
        &self,
        path: &[u8],
        start: u64,
    ) -> std::result::Result<CatalogRows<'_>, ChunkTrouble> {
        let rows = self.lookups.extents_from(path, start);
        Ok(Box::new(rows.map(|row| {
            row.map_err(|error| Box::new(error) as ChunkTrouble)
        })))
    }

    fn lookup(&self, path: &[u8]) -> std::result::Result<Option<Entry>, ChunkTrouble> {
        Ok(self.lookups.lookup(path)?)
    }
}

/// Patterns of `--include` and `--exclude`, matched against paths below the restored one.
pub struct Patterns {
    below: Vec<u8>,
    include: Filter,
    exclude: Filter,
    wanted: Vec<IncludePattern>,
    /// Has each of them matched? Then nobody need look any more.
    all_matched: AtomicBool,
}

/// A pattern of `--include` that takes nothing back.
struct IncludePattern {
    /// Its place among the patterns.
    number: usize,
    text: String,
    has_matched: AtomicBool,
}

impl Patterns {
    /// Compiles the patterns. `below` is the restored path, without leading slash.
    pub fn new(
        below: &[u8],
        include: &[String],
        exclude: &[String],
    ) -> std::result::Result<Patterns, PatternError> {
        let filter = |patterns: &[String]| {
            let patterns = patterns
                .iter()
                .map(|text| Pattern {
                    text: text.clone(),
                    ignore_case: false,
                })
                .collect();
            Filter::new(&FilterOptions {
                patterns,
                ..FilterOptions::default()
            })
        };
        Ok(Patterns {
            below: below.to_vec(),
            include: filter(include)?,
            exclude: filter(exclude)?,
            all_matched: AtomicBool::new(include.is_empty()),
            wanted: wanted_of(include),
        })
    }

    /// What was included and has matched none of the paths that were looked at so far, in the order
    /// given.
    pub fn unmatched(&self) -> Vec<&str> {
        let unmatched = (self.wanted.iter()).filter(|wanted| !wanted.has_matched());
        unmatched.map(|wanted| wanted.text.as_str()).collect()
    }

    /// As patterns see it. `None`: it is not below the restored path, and no name of it says what
    /// is wanted there.
    fn relative<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        if self.below.is_empty() {
            return Some(path);
        }
        let rest = path.strip_prefix(self.below.as_slice())?;
        match rest.is_empty() {
            true => Some(rest),
            false => rest.strip_prefix(b"/"),
        }
    }

    fn matches(&self, filter: &Filter, path: &[u8]) -> bool {
        let relative = self.relative(path);
        relative.is_some_and(|path| filter.has_patterns() && filter.excludes(path))
    }
}

fn wanted_of(include: &[String]) -> Vec<IncludePattern> {
    let wanted = include.iter().enumerate();
    let wanted = wanted.filter(|(_, text)| !text.starts_with('!'));
    wanted
        .map(|(number, text)| IncludePattern {
            number,
            text: text.clone(),
            has_matched: AtomicBool::new(false),
        })
        .collect()
}

impl IncludePattern {
    fn has_matched(&self) -> bool {
        self.has_matched.load(Ordering::Relaxed)
    }
}

impl Selection for Patterns {
    fn pass(&self, path: &[u8]) {
        if self.all_matched.load(Ordering::Relaxed) {
            return;
        }
        let Some(path) = self.relative(path) else {
            return;
        };
        let mut is_news = false;
        for number in self.include.matching(path) {
            let found = (self.wanted.iter()).find(|wanted| wanted.number == number);
            is_news |=
                found.is_some_and(|wanted| !wanted.has_matched.swap(true, Ordering::Relaxed));
        }
        if is_news && self.wanted.iter().all(IncludePattern::has_matched) {
            self.all_matched.store(true, Ordering::Relaxed);
        }
    }

    fn includes(&self, path: &[u8], _is_directory: bool) -> bool {
        !self.include.has_patterns() || self.matches(&self.include, path)
    }

    fn excludes(&self, path: &[u8], _is_directory: bool) -> bool {
        self.matches(&self.exclude, path)
    }

    fn within(&self) -> Option<Vec<Vec<u8>>> {
        let reaches = self
            .include
            .reaches()
            .filter(|_| self.include.has_patterns())?;
        // Everything below what matches is wanted too.
        let subtrees = reaches
            .iter()
            .map(|reach| Reach::Subtree(join(&self.below, reach.path())));
        let subtrees = distinct(subtrees.collect()).into_iter();
        Some(subtrees.map(|reach| reach.path().to_vec()).collect())
    }

    fn is_everything(&self) -> bool {
        !self.include.has_patterns() && !self.exclude.has_patterns()
    }
}

/// Restores a snapshot, or compares a target with it.
pub struct SnapshotRestore<'a> {
    pub repository: &'a Arc<Repository>,
    pub snapshot: &'a Named,
    pub target: &'a Path,
    pub options: RestoreOptions<'a>,
}

impl SnapshotRestore<'_> {
    /// Brings it back.
    pub fn restore(&self, scratch: &ScratchSpace, monitor: &dyn Monitor) -> Result<RestoreReport> {
        let (catalog, chunks) = seams(self.repository, self.snapshot, monitor)?;
        let options = self.guarded()?;
        if options.delete && options.guard.has_more_withheld {
            monitor.note(
                "the backup left out more files than its record can name: files that the \
                snapshot does not have stay, for they may never have been backed up",
            );
        }
        bale_restore::restore(&catalog, &chunks, scratch, self.target, &options, monitor)
            .map_err(|error| into_engine_error(error, self.snapshot, &self.options))
    }

    /// Restores the one image that is chosen to the target itself: a file or a device. With
    /// `may_cut`, a file that is longer is cut.
    pub fn restore_image(
        &self,
        may_cut: bool,
        scratch: &ScratchSpace,
        monitor: &dyn Monitor,
    ) -> Result<RestoreReport> {
        let (catalog, chunks) = seams(self.repository, self.snapshot, monitor)?;
        let (target, options) = (self.target_itself(), &self.options);
        let target = (target.as_path(), may_cut);
        bale_restore::restore_image(&catalog, &chunks, scratch, target, options, monitor)
            .map_err(|error| into_engine_error(error, self.snapshot, options))
    }

    /// Compares the target itself with the one image that is chosen.
    pub fn verify_image(
        &self,
        scratch: &ScratchSpace,
        monitor: &dyn Monitor,
    ) -> Result<RestoreReport> {
        let (catalog, chunks) = seams(self.repository, self.snapshot, monitor)?;
        let (target, options) = (self.target_itself(), &self.options);
        bale_restore::verify_image(&catalog, &chunks, scratch, &target, options, monitor)
            .map_err(|error| into_engine_error(error, self.snapshot, options))
    }

    /// Links to it are followed: devices have many names.
    fn target_itself(&self) -> PathBuf {
        std::fs::canonicalize(self.target).unwrap_or_else(|_| self.target.to_owned())
    }

    /// The options with what deleting must leave alone because of this snapshot. An error if it
    /// does not know what was there.
    fn guarded(&self) -> Result<RestoreOptions<'_>> {
        let (mut options, snapshot) = (self.options.clone(), &self.snapshot.1);
        if !options.delete {
            return Ok(options);
        }
        if snapshot.partial {
            let text = "an unfinished run does not know all that was there: --delete needs a \
                finished snapshot";
            return Err(Error::Other(text.to_owned()));
        }
        let clean = |path: &PathText| bale_repository::snapshots::clean_path(&path.0);
        options.guard.sources = snapshot.paths.iter().map(clean).collect();
        options.guard.withheld = snapshot.withheld.iter().map(clean).collect();
        options.guard.withheld.sort();
        options.guard.has_more_withheld = snapshot.withheld_more;
        options.guard.is_partly_left_out = !snapshot.excludes.is_empty();
        if options.guard.is_partly_left_out && !options.guard.knows_left_out {
            let text = "what the backup left out is not known: --delete could remove what was \
                never backed up";
            return Err(Error::Other(text.to_owned()));
        }
        Ok(options)
    }

    /// Compares what is in the target with the snapshot.
    pub fn verify(&self, scratch: &ScratchSpace, monitor: &dyn Monitor) -> Result<RestoreReport> {
        let (catalog, chunks) = seams(self.repository, self.snapshot, monitor)?;
        bale_restore::verify(
            &catalog,
            &chunks,
            scratch,
            self.target,
            &self.options,
            monitor,
        )
        .map_err(|error| into_engine_error(error, self.snapshot, &self.options))
    }
}

/// Catalog and chunks for one operation on a snapshot, which begins with its plan.
pub(super) fn seams(
    repository: &Arc<Repository>,
    snapshot: &Named,
    monitor: &dyn Monitor,
) -> Result<(SnapshotCatalog, RepositoryChunks)> {
    let bytes = flight_bytes(&repository.memory());
    // The plan reads the whole catalog before a content is on its way.
    let (catalog, chunks) = seams_within(repository, snapshot, bytes, monitor)?;
    Ok((catalog.fetched_within(bytes / CATALOG_PART)?, chunks))
}

/// The same with so much memory for chunks that are on their way from far away.
pub(super) fn seams_within(
    repository: &Arc<Repository>,
    snapshot: &Named,
    bytes: usize,
    monitor: &dyn Monitor,
) -> Result<(SnapshotCatalog, RepositoryChunks)> {
    let catalog = SnapshotCatalog::of(repository, &snapshot.1)?;
    monitor.progress(Phase::Plan, Progress::default());
    let chunks = RepositoryChunks::within(repository.clone(), bytes)?;
    Ok((catalog, chunks))
}

/// Converts a restore's error into the engine's.
pub(super) fn into_engine_error(
    error: RestoreError,
    snapshot: &Named,
    options: &RestoreOptions,
) -> Error {
    match error {
        RestoreError::Stopped => Error::Interrupted,
        RestoreError::NotFound => Error::NoPath {
            path: format!("/{}", String::from_utf8_lossy(&options.below)),
            snapshot: snapshot.0.short(),
        },
        other => Error::Other(with_causes(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_restore::select::{above, chosen};

    /// Found by the oracle: a directory above the restored path had the name of a pattern.
    #[test]
    fn names_above_the_restored_path_neither_include_nor_exclude() {
        let texts = ["docs".to_owned()];
        let is_chosen = |include: &[String], exclude: &[String], below: &[u8], path: &[u8]| {
            let patterns = Patterns::new(below, include, exclude).unwrap();
            let parent = bale_format::entry::split(path).0;
            chosen(&patterns, above(&patterns, parent), path, false)
        };
        let below = b"home/docs/old";
        assert!(!is_chosen(&texts, &[], below, b"home/docs/old/letter"));
        assert!(is_chosen(&[], &texts, below, b"home/docs/old/letter"));
        assert!(is_chosen(&texts, &[], below, b"home/docs/old/docs/letter"));
        assert!(!is_chosen(&[], &texts, below, b"home/docs/old/docs/letter"));
        assert!(is_chosen(&texts, &[], b"", b"home/docs/old/letter"));
    }
}
