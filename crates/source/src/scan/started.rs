//! A started scan: what belongs to each way of looking, and the steps that all inode scans share.
//!
//! Which way it is, [`super::choose`] decides. The ways: [`super::walk`], [`super::image_source`],
//! [`super::device_copy`], [`super::mounted`].

use super::image_stamp::ImageStamp;
use super::inode::{
    Digests, EmitOptions, Gather, Gathered, ImageScanner, MountContext, ParentDigests, TablesState,
    planned_reads,
};
use super::mounted::MountedScan;
use super::{ScanItem, ScanOptions, Sources};
use crate::image::Image;
use crate::read::Arranged;
use bale_format::snapshot::{Filesystem, Totals};
use bale_pipeline::error::{Failure, Result, with_causes};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The stream of a scan, in the order of the catalog.
pub type ScanItems = Box<dyn Iterator<Item = ScanItem> + Send>;

/// What `choose` has started.
pub enum StartedScan {
    /// Through the kernel, directory by directory.
    Walk(ScanItems),
    /// The inode tables are identical to the parent's: nothing else was read.
    TablesUnchanged(Box<UnchangedTables>),
    /// From the device.
    Inodes(Box<InodeScan>),
}

/// A file system in which no inode was changed since the parent snapshot.
pub struct UnchangedTables {
    pub filesystem: Filesystem,
    pub state: TablesState,
    /// Of an image or device; a mounted file system was looked at between barriers.
    pub stamp: Option<ImageStamp>,
}

/// A file system whose inodes and names were read; content is not read yet.
pub struct InodeScan {
    pub items: ScanItems,
    /// What is there, if all of it is asked for.
    pub expected: Option<Totals>,
    /// Reads all small files in the order of the device, for those who need them all. `None` where
    /// the kernel must read them.
    pub arranged: Option<Arranged>,
    /// Of each inode as read.
    pub digests: Arc<Digests>,
    pub state: TablesState,
    pub look_again: LookAgain,
}

/// What must be looked at again after everything was read.
pub enum LookAgain {
    /// Was it written to meanwhile?
    Image(ImageStamp),
    /// What was changed meanwhile?
    Mounted(Box<MountedScan>),
}

impl StartedScan {
    /// Nothing was changed.
    pub(super) fn tables_unchanged(tables: UnchangedTables, monitor: &dyn Monitor) -> StartedScan {
        let place = String::from_utf8_lossy(&tables.filesystem.mount.0);
        monitor.note(&format!(
            "inode scan of {place}: no inode was changed since the snapshot compared with"
        ));
        StartedScan::TablesUnchanged(Box::new(tables))
    }

    /// What the scan knows to be there, before a byte of content is read.
    pub fn expected(&self) -> Option<Totals> {
        match self {
            StartedScan::Inodes(scan) => scan.expected,
            StartedScan::Walk(_) | StartedScan::TablesUnchanged(_) => None,
        }
    }

    /// The stream, for those who store nothing; hold the other part until its end.
    pub fn into_stream(self) -> (ScanItems, Option<LookAgain>) {
        match self {
            StartedScan::Walk(items) => (items, None),
            StartedScan::TablesUnchanged(tables) => (
                Box::new(std::iter::empty()),
                tables.stamp.map(LookAgain::Image),
            ),
            StartedScan::Inodes(scan) => (scan.items, Some(scan.look_again)),
        }
    }
}

/// Reads inode tables and directories of the file system on `path`, for a tree below `inside` of
/// it; reports how far it is.
pub(super) fn gather(
    image: &Arc<Image>,
    path: &Path,
    inside: &Path,
    options: &ScanOptions,
    monitor: &dyn Monitor,
) -> Result<Gather> {
    let gathered = Gathered::gather(
        image.clone(),
        &options.inode_key,
        parent_digests(options),
        inside,
        options.spill(),
        &mut |done, total| {
            let progress = Progress {
                done,
                total,
                ..Progress::default()
            };
            monitor.progress(Phase::Scan, progress);
            !monitor.interrupted()
        },
        options.known.as_deref().map(|known| known as _),
    );
    gathered.map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => Failure::Interrupted,
        _ if is_for_want_of_room(&error) => Failure::Other(format!(
            "sort inodes and names in {}: {} (--cache-dir names another place)",
            options.spill_directory.display(),
            with_causes(&error)
        )),
        kind => {
            let error = io::Error::new(kind, with_causes(&error));
            Failure::local("read the inodes of", path)(error)
        }
    })
}

/// Also where sorting says so, whose error is of no kind.
fn is_for_want_of_room(error: &io::Error) -> bool {
    let first: &dyn std::error::Error = error;
    let mut causes = std::iter::successors(Some(first), |cause| cause.source());
    causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| {
            matches!(
                cause.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
        })
    })
}

/// Of an answer that only [`inode::ParentDigests::noting_changes`] asks for.
pub(super) fn nobody_asked() -> Failure {
    Failure::Other("a scan found few changes, which nobody asked for".to_owned())
}

/// Unless a file's size must be known to leave it out.
fn parent_digests(options: &ScanOptions) -> Option<ParentDigests> {
    let open = options.parent_digests.as_deref()?;
    match options.filter.limits_size() {
        true => None,
        false => open(),
    }
}

/// Starts to hand out what was gathered.
pub(super) struct Emitter<'a> {
    pub(super) sources: &'a Sources,
    pub(super) gathered: &'a Gathered,
    pub(super) context: &'a MountContext,
    pub(super) options: &'a EmitOptions,
    /// For errors.
    pub(super) path: &'a Path,
}

impl Emitter<'_> {
    pub(super) fn stream(&self) -> Result<ScanItems> {
        Ok(Box::new(self.start()?.ahead()))
    }

    /// Goes through the same stream on its own, to know what will be read.
    pub(super) fn arranged(&self) -> Result<Arranged> {
        let memory = self.options.memory;
        let ahead = Box::new(planned_reads(self.start()?, &memory));
        let image = self.gathered.image().clone();
        let arranged = Arranged::new(image, ahead, &self.options.spill_directory);
        Ok(arranged.within(memory))
    }

    fn start(&self) -> Result<ImageScanner> {
        let context = self.context.clone();
        ImageScanner::start(self.sources, self.gathered, context, self.options)
            .map_err(Failure::local("scan", self.path))
    }
}
