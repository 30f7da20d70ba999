//! Restore: a snapshot's rows become files again, exactly, and nowhere but below the target.
//!
//! First the catalog is read once and becomes a plan on disk: directories in order, hard links by inode, file rows by the
//! place of their chunk. Then directories are made, each chunk is fetched once and its files are written by one thread,
//! further names are linked to first names, and directories get their metadata last. Whatever the repository says,
//! every name is checked again here and every call goes through a descriptor that was reached without following a link.
//!
//! A file is unreadable for others and has a fresh mtime until it is whole; its own mtime is set when all else is. So
//! running the same restore again after a kill finishes the work and repeats none of it.

mod compare;
mod content;
mod delete;
mod directories;
pub mod ext4;
mod guard;
mod large;
mod links;
pub(crate) mod losses;
mod make;
mod metadata;
pub mod names;
mod piece_rows;
pub mod pieces;
mod plan;
mod queue;
mod row;
mod salvage;
pub mod select;
pub mod snapshot;
pub mod sort;
mod specials;
mod target;
mod told;
mod worker;
pub mod xattrs;

pub use guard::{Guard, Identity};
pub use losses::{LOSS_PATHS_LISTED_MAX, Loss, LossKind};
pub use plan::Plan;
pub(crate) use plan::{GROUP_KEY_BYTES, group_key};
pub(crate) use row::{decode as decode_row, encode as encode_row};
pub use select::{Everything, Selection};
pub use sort::{Scratch, Sorter, SorterInMemory};
pub use told::Told;

use crate::amount;
use bale_format::{ChunkId, Entry};
use bytes::Bytes;
use std::io;
use std::path::{Path, PathBuf};

/// Chunks that a restore may ask for, by what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkUse {
    /// File bytes.
    Data,
    /// A list of pieces.
    Pieces,
    /// A large set of extended attributes.
    Xattrs,
}

/// Where a chunk lies: rows are worked on in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Ordinal of the pack.
    pub pack: u32,
    /// Offset in the pack.
    pub offset: u64,
}

/// Why a chunk cannot be had; a problem of the files that need it.
pub type ChunkTrouble = Box<dyn std::error::Error + Send + Sync>;

/// Where content comes from; used by many threads at once.
pub trait ChunkSource: Sync {
    /// Where the index says that it is; `None` if no index knows it.
    fn place(&self, id: &ChunkId) -> Option<Place>;

    /// Fetches, opens and checks one chunk.
    fn read(&self, id: &ChunkId, wanted: ChunkUse) -> Result<Bytes, ChunkTrouble>;
}

/// Rows in the catalog's order. An `Err` is a stretch of the catalog that cannot be read; later rows may follow.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Entry, ChunkTrouble>> + 'a>;

/// A snapshot's catalog.
pub trait CatalogSource: Sync {
    /// All rows at `path` and below, in order.
    fn rows(&self, path: &[u8]) -> Result<Rows<'_>, ChunkTrouble>;

    /// One row.
    fn lookup(&self, path: &[u8]) -> Result<Option<Entry>, ChunkTrouble>;
}

/// Who watches. Called from many threads.
pub trait Monitor: Sync {
    /// The plan is made; nothing has been written yet.
    fn planned(&self, _plan: &Plan) {}

    /// The file system is planned, in bytes: what the tree needs at least, what it will have, and its inodes. Nothing has
    /// been written yet.
    fn sized(&self, _needed_bytes: u64, _bytes: u64, _inodes: u64) {}

    /// So much more is done.
    fn progress(&self, _entries: u64, _bytes: u64) {}

    /// One entry did not come back as it was. `path` is relative to the target.
    fn problem(&self, path: &[u8], action: &'static str, text: &str);

    /// Something about one entry that is worth a line and no problem.
    fn note(&self, _path: &[u8], _text: &str) {}

    /// What a dry run would do to one path; of any run, what is deleted or left. Of one that is not dry, what is restored,
    /// if the monitor wants to know.
    fn would(&self, _path: &[u8], _act: Act) {}

    /// Shall every path that was restored be told?
    fn wants_restored(&self) -> bool {
        false
    }

    /// Should the restore end early?
    fn stop(&self) -> bool {
        false
    }
}

/// What happens to a path in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Nothing was there.
    Create,
    /// Something else was there.
    Replace,
    /// It is there already; only metadata is looked after.
    Keep,
    /// Something is there and may not be touched.
    Skip,
    /// It is not in the snapshot.
    Delete,
    /// It is not in the snapshot, and what was left out of the backup is never deleted.
    Leave,
    /// It was written, by a run that is not dry.
    Restored,
}

/// What to do with a file that exists in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Write it again, always.
    Always,
    /// Keep its content if kind, size and mtime are equal.
    #[default]
    IfChanged,
    /// Leave it alone. Directories still get the snapshot's metadata.
    Never,
}

/// What a restore shall do.
#[derive(Clone)]
pub struct RestoreOptions<'a> {
    /// Path in the snapshot whose children become the target's; empty for all. Without leading slash.
    pub below: Bytes,
    /// Which of them.
    pub select: &'a dyn Selection,
    /// Files that exist.
    pub overwrite: Overwrite,
    /// Remove what is not in the snapshot (only paths that are selected).
    pub delete: bool,
    /// What deleting leaves alone.
    pub guard: Guard,
    /// Write nothing; tell the monitor what would be done.
    pub dry_run: bool,
    /// What is wrong with the catalog was told and counted by a restore before: only of `verify`.
    pub is_plan_told: bool,
    /// What a restore has told, for the `verify` that follows: it tells and counts only what is new.
    pub told: Option<&'a Told>,
    /// Begin even if the target's file system seems too small.
    pub force_space: bool,
    /// Restore device nodes, named pipes and sockets.
    pub specials: bool,
    /// Restore immutable, append-only and the like, and project ids.
    pub inode_flags: bool,
    /// Wait at the end until everything is on the device.
    pub sync: bool,
    /// Threads; 0 for two a core.
    pub threads: usize,
}

impl<'a> RestoreOptions<'a> {
    /// Everything, into a target where equal files are kept.
    pub fn new(select: &'a dyn Selection) -> RestoreOptions<'a> {
        RestoreOptions {
            below: Bytes::new(),
            select,
            overwrite: Overwrite::default(),
            delete: false,
            guard: Guard::default(),
            dry_run: false,
            is_plan_told: false,
            told: None,
            force_space: false,
            specials: true,
            inode_flags: false,
            sync: true,
            threads: 0,
        }
    }

    /// Did a restore before tell of this? What it tells itself is remembered.
    fn is_told_before(&self, path: &[u8], action: &str, text: &str) -> bool {
        match self.told {
            Some(told) if self.is_plan_told => told.covers(path, action, text),
            Some(told) => {
                told.add(path, action, text);
                false
            }
            None => false,
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Regular files whose content was written, all of it.
    pub files_written: u64,
    /// Files that were written at their names, and of which a part is missing: zeros stand for it.
    pub incomplete: u64,
    /// Files of which only a part could be had, kept beside what stands at their names.
    pub salvaged: u64,
    /// Bytes for which zeros stand, in files of both kinds.
    pub bytes_missing: u64,
    /// Entries that were there already and keep their content.
    pub kept: u64,
    /// Entries that were there and, by order, were left alone.
    pub skipped: u64,
    /// Directories made (compared, by `verify`).
    pub directories: u64,
    /// Directories that were there.
    pub directories_kept: u64,
    /// What was no directory and made way for one.
    pub replaced: u64,
    /// Symbolic links, devices, pipes.
    pub others: u64,
    /// Further names of files.
    pub links: u64,
    /// Files and directories removed because the snapshot does not have them; of a dry run, that would be.
    pub deleted: u64,
    /// Files and directories that the snapshot does not have and that deleting left: the backup would have left them out,
    /// or this command needs them. What is in such a directory is not counted.
    pub spared: u64,
    /// Content bytes written (compared, by `verify`; of a dry run, that would be). Holes have none.
    pub bytes: u64,
    /// Entries that differ: only of `verify`.
    pub differences: u64,
    /// Problems told to the monitor.
    pub problems: u64,
    /// Part of the repository could not be read: the same again would not help.
    pub has_damage: bool,
    /// Something failed in the target: the same again may help.
    pub has_failed_calls: bool,
    /// What the backup did not have, and what this user or file system could not take, by kind.
    pub losses: Vec<Loss>,
}

/// The end of a restore. Troubles of single entries are problems instead.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The catalog cannot be read at all.
    #[error("read the catalog: {0}")]
    Catalog(#[source] ChunkTrouble),
    /// Temporary files of the plan.
    #[error("sort the plan: {0}")]
    Scratch(#[source] io::Error),
    /// Not a single thread can be started.
    #[error("start a thread: {0}")]
    Threads(#[source] io::Error),
    /// The target cannot be used.
    #[error("{action} {}: {source}", path.display())]
    Target {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nothing was written.
    #[error(
        "the target's file system has {} and {} inodes free, the restore needs {} and {} (--force starts all the same)",
        amount::bytes(*bytes_free), amount::count(*inodes_free), amount::bytes(*bytes_needed), amount::count(*inodes_needed)
    )]
    NoSpace {
        /// Bytes that would be written, in whole blocks.
        bytes_needed: u64,
        /// Bytes this user may write.
        bytes_free: u64,
        /// Files and directories that would be made.
        inodes_needed: u64,
        /// Inodes that are left.
        inodes_free: u64,
    },
    /// The file system of an image cannot be planned or written.
    #[error("write the file system")]
    Image(#[source] bale_fsimage::mkext4::MkError),
    /// An image cannot be written to this place.
    #[error(transparent)]
    ImageTarget(ext4::TargetError),
    /// Nothing was written.
    #[error(
        "the image needs {}, and {} are free (--force starts all the same)",
        amount::bytes(*bytes_needed), amount::bytes(*bytes_free)
    )]
    NoRoom {
        /// Bytes of file content, in whole blocks.
        bytes_needed: u64,
        /// Bytes this user may write.
        bytes_free: u64,
    },
    /// An image that was written cannot be opened.
    #[error("read the file system")]
    ImageRead(#[source] bale_fsimage::ext4::Ext4Error),
    /// The monitor asked for it.
    #[error("stopped; the same command continues")]
    Stopped,
    /// The path is not in the snapshot.
    #[error("no such path in the snapshot")]
    NotFound,
    /// Nothing in the snapshot is wanted.
    #[error(
        "nothing in the snapshot is selected: no path matches --include, or --exclude matches all (of SNAPSHOT:/PATH they are \
         patterns of what is below /PATH)"
    )]
    NothingSelected,
}

/// Restores what `options` say of `catalog` into the directory `target`, which is made if need be.
pub fn restore(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &dyn Scratch,
    target: &Path,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<RestoreReport, RestoreError> {
    let mut planned = plan::plan(catalog, chunks, scratch, options, monitor)?;
    let target = target::Target::open(target, !options.dry_run)?;
    target.check_space(&planned.plan, options)?;
    monitor.planned(&planned.plan);
    let run = worker::Run::new(&target, chunks, options, monitor, &mut planned)
        .read_only(options.dry_run);

    let directories = directories::create(&run, planned.directories, scratch)?;
    content::restore(&run, planned.content, scratch)?;
    links::restore(&run, planned.links)?;
    // What stays before what goes: a name that the snapshot does not have may hold the last copy of what it has lost.
    if options.delete {
        match delete::hindrance(&run, planned.complete) {
            None => delete::delete(&run, catalog, directories.by_path, scratch)?,
            Some(text) => run.problem(b"", "delete", &text),
        }
    }
    directories::finish(&run, directories.deepest_first)?;
    target.sync(options)?;
    Ok(run.report())
}

/// Reads again what a restore wrote, from the target's device where it can, and compares it with the repository: content,
/// metadata, links. Every difference is a problem.
pub fn verify(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &dyn Scratch,
    target: &Path,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<RestoreReport, RestoreError> {
    let mut planned = plan::plan(catalog, chunks, scratch, options, monitor)?;
    let target = target::Target::open(target, false)?;
    monitor.planned(&planned.plan);
    let run = worker::Run::new(&target, chunks, options, monitor, &mut planned).read_only(true);
    compare::compare(&run, planned, scratch)?;
    Ok(run.report())
}
