//! Mount: snapshots as directories, served to the kernel until somebody unmounts them.
//!
//! Nothing is written to the repository. What cannot be read fails whoever reads it, is a problem,
//! and does not end the mount.

use crate::limits::{mount_flight_bytes, mount_segments_bytes};
use crate::restore::{RepositoryChunks, SnapshotCatalog};
use bale_format::{ObjectId, Snapshot, Time};
use bale_mount::{
    KernelOptions, MountSession, SnapshotCatalogs, SnapshotStore, SnapshotTree, StoreTrouble,
    Unmounting,
};
use bale_pipeline::error::with_causes;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_repository::catalog::{CatalogReader, DecodedSegments, KeptSegments};
use bale_repository::error::{Error, Result, is_missing};
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::SnapshotFilter;
use bale_repository::store::{Area, ObjectName};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks at signals and at what could not be read.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Threads that answer the kernel end so soon after an unmount, if nobody uses the mount any more.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Which snapshots are shown.
pub enum MountedSnapshots {
    /// All that pass, also those that come later.
    Passing(SnapshotFilter),
    /// These, as long as they are there.
    These(Vec<Named>),
}

/// What is mounted, and where.
pub struct MountOptions {
    pub dir: PathBuf,
    pub snapshots: MountedSnapshots,
    pub kernel: KernelOptions,
}

/// What happens to a mount while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountEvent<'a> {
    /// There, with so many snapshots.
    Mounted { dir: &'a Path, snapshots: usize },
    /// It is to end, and somebody uses it.
    Busy { dir: &'a Path },
    /// It is in use, and was taken away from where it was.
    Detached { dir: &'a Path },
    /// Nobody sees it any more.
    Unmounted { dir: &'a Path },
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountReport {
    pub problems: u64,
}

/// Mounts, and serves until it is unmounted. `stops` says how often somebody asked for the end: the
/// first time it is unmounted unless it is in use, the second time all the same.
pub fn mount_snapshots(
    repository: &Arc<Repository>,
    options: MountOptions,
    monitor: &dyn Monitor,
    stops: &dyn Fn() -> usize,
    event: &mut dyn FnMut(MountEvent),
) -> Result<MountReport> {
    let memory = repository.memory();
    let chunks = Arc::new(RepositoryChunks::within(
        repository.clone(),
        mount_flight_bytes(&memory),
    )?);
    let store = Arc::new(RepositorySnapshots {
        repository: repository.clone(),
        shown: options.snapshots,
        decoded: Arc::new(DecodedSegments::new(mount_segments_bytes(&memory))),
        seen: Mutex::default(),
    });
    let tree = SnapshotTree::open(store, chunks, &memory);
    let tree = Arc::new(tree.map_err(|trouble| Error::Other(with_causes(&*trouble)))?);
    let session = MountSession::mount(&options.dir, &tree, &options.kernel);
    let shown = options.dir.display();
    let session = session
        .map_err(|error| Error::Other(format!("mount on {shown}: {}", with_causes(&error))))?;
    event(MountEvent::Mounted {
        dir: session.dir(),
        snapshots: tree.snapshots(),
    });
    let mut report = MountReport::default();
    let ended = serve(&session, &tree, monitor, stops, event, &mut report);
    report.problems += report_problems(&tree, monitor);
    ended.map_err(|error| Error::Other(format!("unmount {shown}: {error}")))?;
    event(MountEvent::Unmounted { dir: session.dir() });
    Ok(report)
}

fn serve(
    session: &MountSession,
    tree: &SnapshotTree,
    monitor: &dyn Monitor,
    stops: &dyn Fn() -> usize,
    event: &mut dyn FnMut(MountEvent),
    report: &mut MountReport,
) -> std::io::Result<()> {
    let mut stops_seen = 0;
    loop {
        report.problems += report_problems(tree, monitor);
        if session.is_over() {
            // Threads that ended for another reason leave a mount that answers nobody.
            session.unmount(true)?;
            return Ok(());
        }
        let stops = stops();
        if stops > stops_seen {
            stops_seen = stops;
            let is_detached = stops > 1;
            match session.unmount(is_detached)? {
                Unmounting::Busy => event(MountEvent::Busy { dir: session.dir() }),
                Unmounting::Done => return end(session, event),
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whoever still uses what is unmounted is served for a moment.
fn end(session: &MountSession, event: &mut dyn FnMut(MountEvent)) -> std::io::Result<()> {
    let began = Instant::now();
    let mut is_told = false;
    while !session.is_over() && began.elapsed() < END_WITHIN {
        if !is_told && began.elapsed() > 4 * LOOK_EVERY {
            is_told = true;
            event(MountEvent::Detached { dir: session.dir() });
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn report_problems(tree: &SnapshotTree, monitor: &dyn Monitor) -> u64 {
    let problems = tree.take_problems();
    let count = problems.len() as u64;
    for problem in problems {
        monitor.problem(&Problem {
            path: problem.path,
            action: problem.action,
            text: problem.text,
        });
    }
    count
}

/// The snapshots of a repository, as a mount wants them.
struct RepositorySnapshots {
    repository: Arc<Repository>,
    shown: MountedSnapshots,
    decoded: Arc<DecodedSegments>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// When the index was read.
    with_index: Option<HashSet<ObjectId>>,
    /// Snapshots came since then, whose packs it does not name.
    is_index_old: bool,
}

impl RepositorySnapshots {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, listed: &[ObjectId]) {
        let mut seen = self.seen();
        let now = || listed.iter().copied().collect();
        let known = seen.with_index.get_or_insert_with(now);
        seen.is_index_old = listed.iter().any(|id| !known.contains(id));
    }

    /// Reads the index afresh if somebody looks into a snapshot that came after it.
    fn renew_index(&self, listed: &[ObjectId]) -> Result<()> {
        let mut seen = self.seen();
        if std::mem::take(&mut seen.is_index_old) {
            let reloaded = self.repository.reload_index_as_far_as_possible();
            seen.is_index_old = reloaded.is_err();
            reloaded?;
            seen.with_index = Some(listed.iter().copied().collect());
        }
        Ok(())
    }

    fn listed(&self, area: Area) -> Result<Vec<ObjectId>> {
        let infos = self.repository.list(area)?;
        Ok(infos.iter().filter_map(|info| info.name.id()).collect())
    }
}

impl SnapshotStore for RepositorySnapshots {
    fn list(&self) -> std::result::Result<Vec<ObjectId>, StoreTrouble> {
        let snapshots = self.listed(Area::Snapshots)?;
        self.note(&snapshots);
        let MountedSnapshots::These(these) = &self.shown else {
            return Ok(snapshots);
        };
        let runs = self.listed(Area::Runs)?;
        let there = these.iter().map(|(id, _)| *id);
        Ok(there
            .filter(|id| snapshots.contains(id) || runs.contains(id))
            .collect())
    }

    fn read(&self, id: &ObjectId) -> std::result::Result<Option<Snapshot>, StoreTrouble> {
        match &self.shown {
            MountedSnapshots::These(these) => {
                let found = these.iter().find(|(other, _)| other == id);
                Ok(found.map(|(_, snapshot)| snapshot.clone()))
            }
            MountedSnapshots::Passing(filter) => {
                match self.repository.read_record(&ObjectName::snapshot(*id)) {
                    Ok(snapshot) => Ok(filter.passes(&snapshot).then_some(snapshot)),
                    // Forgotten since it was listed.
                    Err(error) if is_missing(&error) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    fn open(&self, snapshot: &Snapshot) -> std::result::Result<SnapshotCatalogs, StoreTrouble> {
        if self.seen().is_index_old {
            self.renew_index(&self.listed(Area::Snapshots)?)?;
        }
        let source = self.repository.segment_source_wherever();
        let kept = Arc::new(KeptSegments::new(source, &self.decoded));
        Ok(SnapshotCatalogs {
            rows: CatalogReader::open(kept, snapshot.layers.clone())?,
            images: Arc::new(SnapshotCatalog::of(&self.repository, snapshot)?),
        })
    }

    fn now(&self) -> Time {
        self.repository.clock().time()
    }
}
