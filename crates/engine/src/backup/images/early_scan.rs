//! Inodes and names of one file system, read while the blocks of its image are read and stored.
//!
//! Storing blocks waits for devices, and reading tables takes the processor: one beside the other
//! takes the time of one. It begins once it is certain that the files are to be listed anew: at
//! once where the parent has no list that could stay, otherwise with the first block that changed.
//! It is done for one file system, the largest, since each takes memory; others are scanned when
//! the blocks are stored.

use super::block_runs::BlockRuns;
use super::planned_view::Planned;
use bale_pipeline::error::Result;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_pipeline::ordered::both;
use bale_source::image::Image;
use bale_source::scan::inode::DigestKey;
use bale_source::scan::{OpenParentDigests, PartFound, PartScan, ScanOptions};
use bytes::Bytes;
use crossbeam_channel::{Sender, bounded};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file system that is open, and its scan.
pub(super) type Started = (Arc<Image>, PartScan);

/// The same, or what changed in it.
pub(super) type Found = (Arc<Image>, PartFound);

/// What a scan takes.
pub(super) struct ScanPlace {
    pub(super) spill_directory: PathBuf,
    pub(super) memory: MemoryPlan,
    pub(super) inode_key: DigestKey,
    /// Rows say when files were last accessed.
    pub(super) with_atime: bool,
}

/// Reads inodes and names of a file system; `known`: what the parent knew of its inodes. The inner
/// error: it cannot be opened.
pub(super) fn start(
    view: &Planned,
    place: &ScanPlace,
    known: Option<OpenParentDigests>,
    monitor: &dyn Monitor,
) -> Result<std::result::Result<Found, String>> {
    let image = match Image::of_part(view.file_system.source().clone()) {
        Ok(image) => Arc::new(image.keeping_atimes(place.with_atime)),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let options = ScanOptions {
        spill_directory: place.spill_directory.clone(),
        memory: place.memory,
        inode_key: place.inode_key,
        parent_digests: known,
        ..ScanOptions::default()
    };
    let scan = PartScan::start(&image, &view.name, options, monitor)?;
    Ok(Ok((image, scan)))
}

/// A scan that was begun early.
pub(super) struct EarlyScan {
    /// Of its view.
    pub(super) name: Bytes,
    pub(super) started: Result<std::result::Result<Found, String>>,
}

/// Lets a scan begin while blocks are stored.
pub(super) struct Begin {
    /// Position of its image.
    image: usize,
    depends_on: Vec<Range<u64>>,
    /// Until it is told.
    sender: Option<Sender<()>>,
}

impl Begin {
    /// The last of these blocks of an image has changed.
    pub(super) fn look(&mut self, image: usize, changed: &BlockRuns) {
        if self.sender.is_some() && image == self.image && changed.last_touches(&self.depends_on) {
            self.now();
        }
    }

    fn now(&mut self) {
        if let Some(sender) = self.sender.take() {
            let _the_scan_is_told = sender.send(());
        }
    }
}

/// Stores blocks, and scans a file system meanwhile if it must be scanned. `is_certain`: whatever
/// of it has changed.
pub(super) fn while_storing<T, E>(
    view: &Planned,
    is_certain: bool,
    place: &ScanPlace,
    monitor: &dyn Monitor,
    store: impl FnOnce(Begin) -> std::result::Result<T, E>,
) -> (Option<EarlyScan>, std::result::Result<T, E>) {
    let (sender, begun) = bounded(1);
    let mut begin = Begin {
        image: view.image,
        depends_on: view.file_system.depends_on(),
        sender: Some(sender),
    };
    if is_certain {
        begin.now();
    }
    let beside = Beside {
        monitor,
        has_begun: AtomicBool::new(false),
        is_alone: AtomicBool::new(false),
        is_given_up: AtomicBool::new(false),
    };
    let scan = || {
        // Nobody is left to send where it is not needed.
        begun.recv().ok()?;
        Some(EarlyScan {
            name: view.name.clone(),
            started: start(view, place, None, &beside),
        })
    };
    both(scan, || {
        let stored = store(begin);
        beside.ends(stored.is_err());
        stored
    })
}

/// What a scan tells while blocks are stored: that it began; else their progress is shown. If
/// storing fails it ends.
struct Beside<'a> {
    monitor: &'a dyn Monitor,
    has_begun: AtomicBool,
    is_alone: AtomicBool,
    is_given_up: AtomicBool,
}

impl Beside<'_> {
    /// Blocks are stored, or that has failed.
    fn ends(&self, has_failed: bool) {
        self.is_alone.store(true, Ordering::Relaxed);
        self.is_given_up.store(has_failed, Ordering::Relaxed);
    }
}

impl Monitor for Beside<'_> {
    fn progress(&self, phase: Phase, progress: Progress) {
        let has_begun = self.has_begun.swap(true, Ordering::Relaxed);
        if !has_begun || self.is_alone.load(Ordering::Relaxed) {
            self.monitor.progress(phase, progress);
        }
    }

    fn problem(&self, problem: &Problem) {
        self.monitor.problem(problem);
    }

    fn note(&self, text: &str) {
        self.monitor.note(text);
    }

    fn interrupted(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed) || self.monitor.interrupted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::extent::IMAGE_BLOCK_BYTES;
    use bale_pipeline::monitor::Recorder;

    #[test]
    fn a_scan_begins_with_the_first_change_of_its_file_system_and_of_no_other() {
        let (sender, begun) = bounded(1);
        let block = |number: u64| number * IMAGE_BLOCK_BYTES..(number + 1) * IMAGE_BLOCK_BYTES;
        let mut begin = Begin {
            image: 1,
            depends_on: vec![block(0), block(7)],
            sender: Some(sender),
        };
        let mut changed = BlockRuns::default();
        for (image, number, is_begun) in [(1, 3, false), (0, 7, false), (1, 7, true)] {
            changed.push(&block(number));
            begin.look(image, &changed);
            assert_eq!(begun.try_recv().is_ok(), is_begun, "{image} {number}");
        }
        drop(begin);
        begun.recv().expect_err("nobody is left to send");
    }

    #[test]
    fn a_scan_ends_when_storing_fails_and_shows_its_progress_once_it_is_alone() {
        let recorder = Recorder::default();
        let beside = Beside {
            monitor: &recorder,
            has_begun: AtomicBool::new(false),
            is_alone: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        };
        let told = || recorder.progress_calls.load(Ordering::Relaxed);
        for _ in 0..3 {
            beside.progress(Phase::Scan, Progress::default());
            assert_eq!(told(), 1, "that it began");
        }
        assert!(!beside.interrupted());
        beside.ends(false);
        beside.progress(Phase::Scan, Progress::default());
        assert_eq!(told(), 2);
        assert!(!beside.interrupted());
        beside.ends(true);
        assert!(beside.interrupted());
    }
}
