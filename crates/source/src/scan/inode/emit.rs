//! The second half of an inode scan: the children of one directory after the other, in the order of
//! the catalog.
//!
//! Where the kernel knows better, it is asked, directory by directory: for the directories that
//! lead to a source, and on a mounted file system for what changed after the barrier.

mod children;
mod kernel;
mod make;
mod order;
mod planned;
mod unchanged;

pub use make::ImageScanner;
pub(super) use make::Maker;
pub use planned::planned_reads;
pub use unchanged::UnchangedChildren;

use super::gather::Gathered;
use crate::scan::handle::FileHandles;
use crate::scan::sources::Sources;
use crate::scan::{LeftOut, ScanItem, ScanOptions};
use bale_format::entry::{EntryFlags, Key, Time};
use bale_format::snapshot::Filesystem;
use bale_pipeline::filter::Filter;
use bale_pipeline::memory::MemoryPlan;
use bytes::Bytes;
use order::Order;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Device number of a file system that is in an image and has none.
pub const IMAGE_DEVICE: u64 = u64::MAX;

/// What to leave out, and where temporary files go.
#[derive(Clone)]
pub struct EmitOptions {
    /// Paths to leave out.
    pub filter: Arc<Filter>,
    /// Stay on the mount that each source is on.
    pub one_file_system: bool,
    /// Repositories, and what this backup works with.
    pub left_out: LeftOut,
    /// Where files without a name go.
    pub spill_directory: PathBuf,
    /// What it may take.
    pub memory: MemoryPlan,
}

impl From<ScanOptions> for EmitOptions {
    fn from(options: ScanOptions) -> EmitOptions {
        EmitOptions {
            filter: Arc::new(options.filter),
            one_file_system: options.one_file_system,
            left_out: options.left_out,
            spill_directory: options.spill_directory,
            memory: options.memory,
        }
    }
}

/// Where the scanned file system appears below the sources, and which inodes must be stat'ed again.
#[derive(Clone)]
pub struct MountContext {
    /// Recorded in the snapshot.
    pub filesystem: Filesystem,
    /// `major << 32 | minor` where the file system is mounted, or [`IMAGE_DEVICE`].
    pub device: u64,
    /// The source that is an image or device, to be shown as a directory. `None`, and nothing
    /// writes to the image: it stands for the file system that has its device number.
    pub image_path: Option<Vec<u8>>,
    /// Entries with a ctime at or after this are read through the kernel; of a mounted file system
    /// without one, all are.
    pub barrier: Option<Time>,
    /// Inodes that changed after they were read from the tables, sorted: stat'ed through the
    /// kernel.
    pub changed: Arc<Vec<u64>>,
    /// For what is read through the kernel.
    pub handles: Option<Arc<FileHandles>>,
}

impl ImageScanner {
    /// Begins to emit.
    pub fn start(
        sources: &Sources,
        gathered: &Gathered,
        context: MountContext,
        emit_options: &EmitOptions,
    ) -> io::Result<ImageScanner> {
        let order = Order::start(sources, gathered, context, emit_options)?;
        let maker = order.maker.clone();
        Ok(ImageScanner::behind(order, maker))
    }

    /// The same of all of a file system that nothing writes to, as a directory of this name below
    /// the root.
    pub fn start_as(
        name: Bytes,
        gathered: &Gathered,
        context: MountContext,
        emit_options: &EmitOptions,
    ) -> io::Result<ImageScanner> {
        let order = Order::start_as(name, gathered, context, emit_options)?;
        let maker = order.maker.clone();
        Ok(ImageScanner::behind(order, maker))
    }
}

fn amend(path: &Bytes, flags: EntryFlags) -> ScanItem {
    ScanItem::Amend {
        key: Key::of_path(path),
        flags,
    }
}
