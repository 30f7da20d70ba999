//! The second half of an inode scan: the children of one directory after the other, in the order of the catalog.
//!
//! Where the kernel knows better, it is asked, directory by directory: for the directories that lead to a source, and on a
//! mounted file system for what changed after the barrier.

mod children;
mod kernel;
mod make;
mod order;
mod planned;
mod same;

pub use make::ImageScanner;
pub use planned::planned_reads;
pub use same::SameChildren;

use super::gather::Gathered;
use crate::filter::Filter;
use crate::scan::handle::FileHandles;
use crate::scan::sources::Sources;
use crate::scan::{LeftOut, ScanItem, ScanOptions};
use bale_format::entry::{EntryFlags, Key, Time};
use bale_format::snapshot::Filesystem;
use bytes::Bytes;
use order::Order;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Device number of a file system that is in an image and has none.
pub const IMAGE_DEVICE: u64 = u64::MAX;

/// What to leave out, and where temporary files go.
#[derive(Clone)]
pub struct Way {
    /// Paths to leave out.
    pub filter: Arc<Filter>,
    /// Stay on the mount that each source is on.
    pub one_file_system: bool,
    /// Repositories, and what this backup works with.
    pub left_out: LeftOut,
    /// Where files without a name go.
    pub spill_directory: PathBuf,
}

impl From<ScanOptions> for Way {
    fn from(options: ScanOptions) -> Way {
        Way {
            filter: Arc::new(options.filter),
            one_file_system: options.one_file_system,
            left_out: options.left_out,
            spill_directory: options.spill_directory,
        }
    }
}

/// How an inode scan is brought into the tree of the sources.
#[derive(Clone)]
pub struct Frame {
    /// Recorded in the snapshot.
    pub filesystem: Filesystem,
    /// `major << 32 | minor` where the file system is mounted, or [`IMAGE_DEVICE`].
    pub device: u64,
    /// The source that is an image or device, to be shown as a directory. `None`, and nothing writes to the image: it stands
    /// for the file system that has its device number.
    pub image_path: Option<Vec<u8>>,
    /// Entries with a ctime at or after this are read through the kernel; of a mounted file system without one, all are.
    pub barrier: Option<Time>,
    /// Inodes that are not what they were gathered as, sorted: the kernel is asked for them.
    pub changed: Arc<Vec<u64>>,
    /// For what is read through the kernel.
    pub handles: Option<Arc<FileHandles>>,
}

impl ImageScanner {
    /// Begins to emit.
    pub fn start(
        sources: &Sources,
        gathered: &Gathered,
        frame: Frame,
        way: &Way,
    ) -> io::Result<ImageScanner> {
        let order = Order::start(sources, gathered, frame, way)?;
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
