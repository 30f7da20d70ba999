//! The walking scanner: a tree becomes one stream of entries in the order of a catalog.
//!
//! The stream is the same whatever the number of threads: workers list and stat directories *ahead*
//! of the point of emission, inside a window bounded in bytes and directories, and the stream is
//! taken from the window in order. A directory's children come as one run of batches, sorted by
//! name, before any of its subdirectories is entered. Directories are reached through descriptors,
//! never by absolute path, and never through a symbolic link; a directory that is not the one that
//! was stat'ed is refused. Nothing here grows with the number of files.
//!
//! An entry comes without what costs another system call (target, extended attributes, inode flags,
//! project, generation): [`Directory::complete`] fetches these for entries that the parent snapshot
//! does not know.

mod above;
mod alive;
mod choose;
mod complete;
mod device_copy;
mod directory;
mod filesystems;
pub mod freeze;
mod grafts;
pub mod handle;
mod identity;
mod image_part;
mod image_source;
mod image_stamp;
pub mod inode;
mod left_out;
mod list;
mod listing;
pub mod live;
mod mount_table;
mod mounted;
mod names;
mod not_entered;
mod pending;
mod promise;
mod renamed;
pub mod report;
pub mod snapshot_command;
mod source_filesystems;
mod sources;
mod started;
mod stat;
mod statted;
mod statx;
mod vanished;
mod walk;
mod window;
mod worth;

pub use crate::problem::ScanProblem;
pub use crate::read::UNSEEN_WRITE_SECONDS_MAX;
pub use above::fingerprint_above;
pub use choose::{choose, is_of_image};
pub use complete::{ATTRIBUTES_BYTES_MAX, complete_opened};
pub use complete::{FLAGS_STORED, encode_xattrs};
pub use directory::{Directory, DirectoryFd};
pub use identity::{Identity, promises_inode_numbers};
pub use image_part::{PartFew, PartFound, PartScan};
pub use image_source::IN_USE_RACY_SECONDS;
pub use image_stamp::ImageStamp;
pub use left_out::LeftOut;
pub use listing::{DirectoryListing, Missing, Whereabouts};
pub use mounted::{MountedScan, Protocol, SecondLook, changed_bytes};
pub use source_filesystems::source_filesystems;
pub use sources::{Sources, parse_list};
pub use started::{InodeScan, LookAgain, ScanItems, StartedScan, UnchangedTables};
pub use vanished::{ListedAgain, Renamed};
pub use walk::Scanner;

pub use directory::replaced;
pub(crate) use statx::Atime;
pub use statx::set_stat;

use crate::image::EntryPlace;
use bale_format::entry::{Entry, EntryFlags, Key, Time};
use bale_format::snapshot::Filesystem;
use bale_pipeline::filter::Filter;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::spill::Spill;
use inode::UnchangedChildren;
use std::path::PathBuf;
use std::sync::Arc;

/// Entries of one batch at most.
pub const BATCH_ENTRIES_MAX: usize = 2048;
/// Entries and names that wait for their turn.
pub(crate) const WINDOW_BYTES_MAX: usize = 12 << 20;
/// Directories (or parts of one) listed ahead.
pub(crate) const WINDOW_TASKS_MAX: usize = 256;
/// Names of one directory held by a worker before it calls the directory large.
pub(crate) const LIST_NAMES_BYTES_MAX: usize = 512 << 10;
/// Names of a large directory sorted at a time; one large directory is listed at a time.
pub(crate) const SORT_BYTES_MAX: usize = 4 << 20;
/// Subdirectories that wait to be entered, before they wait in a file.
pub(crate) const PENDING_BYTES_MAX: usize = 4 << 20;
/// Workers: enough to keep a device busy with waiting stats; two processors suffice to run them.
pub(crate) const SCAN_THREADS_MAX: usize = 16;
/// Buffer of one `getdents64`.
pub(crate) const GETDENTS_BYTES: usize = 64 << 10;
/// Longest path of a directory (docs/FORMAT.md, `parent`).
pub(crate) const PARENT_BYTES_MAX: usize = 4 << 20;
/// Open directories kept for later use, if the limit of open files allows.
pub const DIRECTORY_FDS_MAX: usize = 256;

/// What a worker holds of the entries it makes: the entry and its `statx`.
const WORKER_ENTRIES_BYTES: usize =
    BATCH_ENTRIES_MAX * (size_of::<Entry>() + size_of::<rustix::fs::Statx>());

/// Memory of a scan that walks, all together.
pub const fn walk_bytes(memory: &MemoryPlan) -> usize {
    memory.share(WINDOW_BYTES_MAX)
        + vanished::UNFOUND_BYTES
        + 2 * memory.share(SORT_BYTES_MAX)
        + memory.share(PENDING_BYTES_MAX)
        + memory.share(SCAN_THREADS_MAX)
            * (GETDENTS_BYTES + LIST_NAMES_BYTES_MAX / 2 + WORKER_ENTRIES_BYTES)
}

/// What to leave out, and how to go about it.
#[derive(Clone)]
pub struct ScanOptions {
    /// How to look.
    pub mode: ScanMode,
    /// The command that becomes the freezer; `None`: a mounted file system is not frozen.
    pub freezer: Option<freeze::FreezerCommand>,
    /// Tells whether the inode tables are as they were for the snapshot that is compared with; then
    /// nothing else is read.
    pub known: Option<TablesUnchanged>,
    /// Opens the digests of inodes of the snapshot that is compared with, if there are any.
    pub parent_digests: Option<OpenParentDigests>,
    /// Entries of the snapshot that is compared with; 0: there is none.
    pub entries_before: u64,
    /// Keys the digests of inodes.
    pub inode_key: inode::DigestKey,
    /// For tests.
    pub protocol: Protocol,
    /// When what is read was as it is, if that is over: a barrier before a snapshot was taken.
    pub barrier: Option<Time>,
    /// Stay on the file system that each source is on: on its device, or its mount.
    pub one_file_system: bool,
    /// Repositories, and what this backup works with.
    pub left_out: LeftOut,
    /// Rows say when entries were last accessed, and an inode of which that changed is a changed
    /// one.
    pub with_atime: bool,
    /// Paths to leave out.
    pub filter: Filter,
    /// Workers, for tests; otherwise what the limits of this process allow.
    pub threads: Option<usize>,
    /// Where files without a name go when memory is not enough: a directory on a disk.
    pub spill_directory: PathBuf,
    /// What it may take.
    pub memory: MemoryPlan,
}

/// True if the inode tables are identical to those of the parent snapshot.
pub type TablesUnchanged = Arc<dyn Fn(&inode::TablesState) -> bool + Send + Sync>;

/// Opens the inode digests of the parent snapshot, if the cache has them.
pub type OpenParentDigests = Arc<dyn Fn() -> Option<inode::ParentDigests> + Send + Sync>;

/// How a scan finds what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanMode {
    /// By inodes where that is allowed and right, by walking otherwise.
    #[default]
    Auto,
    /// Directory by directory, through the kernel.
    Walk,
    /// From the device, or not at all.
    Inode,
}

/// Is anything mounted below a directory? Of a table that cannot be read, perhaps.
pub fn has_mounts_below(directory: &std::path::Path) -> bool {
    let table = mount_table::MountTable::read();
    !table.is_ok_and(|table| table.below(directory).is_empty())
}

impl Default for ScanOptions {
    fn default() -> ScanOptions {
        ScanOptions {
            mode: ScanMode::Walk,
            freezer: None,
            known: None,
            parent_digests: None,
            entries_before: 0,
            inode_key: [0; 16],
            protocol: Protocol::default(),
            barrier: None,
            one_file_system: false,
            left_out: LeftOut::default(),
            with_atime: false,
            filter: Filter::default(),
            threads: None,
            spill_directory: PathBuf::from("/var/tmp"),
            memory: MemoryPlan::default(),
        }
    }
}

impl ScanOptions {
    /// Where temporary files go, and what is in memory before.
    pub(crate) fn spill(&self) -> Spill<'_> {
        Spill {
            directory: &self.spill_directory,
            memory: self.memory,
        }
    }
}

/// One thing in the stream.
#[derive(Debug)]
pub enum ScanItem {
    /// A file system, before the first entry on it. `Entry::filesystem` is a position in the list
    /// of these.
    Filesystem(Filesystem),
    /// A directory that is walked was listed: its children follow, if it has some.
    Listed(DirectoryListing),
    /// A file that was gone when it was looked at: it may be found elsewhere.
    Missing(Missing),
    /// Children of one directory.
    Entries(Batch),
    /// Children of one directory whose inode digests are those of the parent snapshot: only names
    /// and inode numbers. Needs `ScanOptions::parent_digests`.
    Unchanged(UnchangedChildren),
    /// An entry that came earlier gets more flags: what was found only when the directory was
    /// entered. In no order.
    Amend {
        key: Key,
        /// To be set.
        flags: EntryFlags,
    },
    /// Something that could not be read.
    Problem(ScanProblem),
    /// Something worth a word, but no loss.
    Note(Note),
}

/// A run of children of one directory, sorted by name.
#[derive(Debug)]
pub struct Batch {
    /// For looking closer at them.
    pub places: EntryPlaces,
    /// Sorted; never empty.
    pub entries: Vec<Entry>,
}

/// Where the entries of a batch are found.
#[derive(Debug)]
pub enum EntryPlaces {
    /// All are children of this directory.
    Directory(Arc<Directory>),
    /// Each has a place of its own.
    Each(Vec<EntryPlace>),
}

impl EntryPlaces {
    /// Of so many entries.
    pub fn into_each(self, count: usize) -> Vec<EntryPlace> {
        match self {
            EntryPlaces::Directory(directory) => vec![EntryPlace::Directory(directory); count],
            EntryPlaces::Each(places) => places,
        }
    }

    /// Place of the entry at a position of the batch.
    pub fn of(&self, at: usize) -> EntryPlace {
        match self {
            EntryPlaces::Directory(directory) => EntryPlace::Directory(directory.clone()),
            EntryPlaces::Each(places) => places[at].clone(),
        }
    }
}

/// Something that belongs to one path and is no loss.
#[derive(Debug)]
pub struct Note {
    /// Path without leading slash.
    pub path: Vec<u8>,
    pub kind: NoteKind,
    /// Does an entry say so, too?
    pub has_row: bool,
}

/// Kinds of [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// Gone between being listed and being looked at, and not listed any more.
    Vanished,
    /// Left out: a file or directory on another file system.
    OtherFilesystem,
    /// Not entered: a directory above it is mounted there.
    Above,
    /// Left out: the repository, cache or key that this backup works with.
    InUse,
    /// Left out: snapshots of a repository that are mounted.
    OwnMount,
    /// Empty: a subvolume that the snapshot of btrfs, which is read, does not have.
    NoSubvolume,
    /// Left out: a repository, as its tag says.
    Repository,
    /// Left out: a file larger than the filter lets in.
    Size,
}

/// The barrier of a scan without a freeze: a ctime before it is not racy. Coarse clock, less two of
/// its ticks.
pub fn barrier_now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let nanos = now.tv_sec as i128 * 1_000_000_000 + now.tv_nsec as i128 - 2 * TICK_NANOS_MAX;
    Time {
        seconds: nanos.div_euclid(1_000_000_000) as i64,
        nanos: nanos.rem_euclid(1_000_000_000) as u32,
    }
}

/// The barrier for storage snapshots taken after `now`. A write under way may be half in them, and
/// leases cannot be probed any more, so it is earlier by the longest direct write.
pub fn barrier_before_snapshots(
    now: Time,
    snapshots: &[snapshot_command::StorageSnapshot],
) -> Time {
    let seconds = match snapshots.iter().any(|snapshot| snapshot.is_racy) {
        // Before whatever a clock stamps.
        true => 0,
        false => now.seconds - UNSEEN_WRITE_SECONDS_MAX,
    };
    Time { seconds, ..now }
}

/// Longest tick of a kernel.
const TICK_NANOS_MAX: i128 = 10_000_000;
