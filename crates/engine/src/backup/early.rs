//! A scan of an image that begins before the repository is open: to connect, and to make a key of a
//! password, takes a processor or nothing, and reading inodes takes the device and another one.
//!
//! Which snapshot a backup is compared with is not known by then, so this is for first backups: the
//! scan knows nothing of any snapshot, and is given up where there is one. Nothing is told before
//! it is known that the scan counts.

use super::digest_cache::has_digests;
use super::parent::Parent;
use crate::limits::fits_while_opening;
use bale_pipeline::beside::{Beside, Unwanted, Waited};
use bale_pipeline::error::{Failure, Result};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_pipeline::random::{OsRandom, draw};
use bale_source::scan::inode::DigestKey;
use bale_source::scan::{self, ScanOptions, Sources, StartedScan};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two looks at whether an operation is interrupted.
const PAUSE: Duration = Duration::from_millis(50);

/// A scan under way. Dropped, it ends.
pub struct EarlyScan {
    key: DigestKey,
    memory: MemoryPlan,
    told: Arc<Told>,
    scan: Beside<Result<StartedScan>>,
}

/// What the scan tells, for when it counts.
#[derive(Default)]
struct Told {
    /// A few lines: an image is one file.
    lines: Mutex<Vec<Line>>,
    done: AtomicU64,
    total: AtomicU64,
}

/// Tells it, and ends the scan when nobody wants it any more.
struct Teller<'a> {
    told: &'a Told,
    unwanted: &'a Unwanted,
}

enum Line {
    Problem(Problem),
    Note(String),
}

impl EarlyScan {
    /// Begins, if it may pay: the source is an image, no backup has left digests in this cache, and
    /// there is memory for it beside what makes a key of a password. `scan` is what the backup will
    /// ask for, but for what only the repository can tell.
    pub fn begin(sources: &Sources, scan: &ScanOptions, cache: &Path) -> Option<EarlyScan> {
        if !fits_while_opening(&scan.memory)
            || !scan::is_of_image(sources, scan.mode)
            || has_digests(cache)
        {
            return None;
        }
        let key = draw(&OsRandom).ok()?;
        let scan = ScanOptions {
            inode_key: key,
            ..scan.clone()
        };
        let told = Arc::new(Told::default());
        let (memory, sources, teller) = (scan.memory, sources.clone(), told.clone());
        let scan = Beside::start("early scan", move |unwanted| {
            let told = &*teller;
            scan::choose(&sources, scan, &Teller { told, unwanted })
        });
        Some(EarlyScan {
            key,
            memory,
            told,
            scan: scan.ok()?,
        })
    }

    /// Does it find what a scan would find that begins now?
    pub(super) fn suits(&self, parent: &Parent, memory: &MemoryPlan) -> bool {
        !parent.has_entries() && self.memory.inode_bytes() <= memory.inode_bytes()
    }

    /// Keys its digests of inodes.
    pub(super) fn key(&self) -> DigestKey {
        self.key
    }

    /// Waits until it has begun to hand out what there is.
    pub(super) fn finish(self, monitor: &dyn Monitor) -> Result<StartedScan> {
        loop {
            match self.scan.wait(PAUSE) {
                Waited::Done(scanned) => {
                    self.told.tell(monitor);
                    return scanned;
                }
                Waited::Gone => {
                    let text = "the scanning thread panicked, by a defect of Bale";
                    return Err(Failure::Other(text.to_owned()));
                }
                Waited::NotYet if monitor.interrupted() => return Err(Failure::Interrupted),
                Waited::NotYet => monitor.progress(Phase::Scan, self.told.progress()),
            }
        }
    }
}

impl Told {
    fn progress(&self) -> Progress {
        Progress {
            done: self.done.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
            ..Progress::default()
        }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, monitor: &dyn Monitor) {
        for line in self.lines().drain(..) {
            match line {
                Line::Problem(problem) => monitor.problem(&problem),
                Line::Note(text) => monitor.note(&text),
            }
        }
    }
}

impl Monitor for Teller<'_> {
    fn progress(&self, _phase: Phase, progress: Progress) {
        self.told.done.store(progress.done, Ordering::Relaxed);
        self.told.total.store(progress.total, Ordering::Relaxed);
    }

    fn problem(&self, problem: &Problem) {
        self.told.lines().push(Line::Problem(problem.clone()));
    }

    fn note(&self, text: &str) {
        self.told.lines().push(Line::Note(text.to_owned()));
    }

    fn interrupted(&self) -> bool {
        self.unwanted.is_said()
    }
}
