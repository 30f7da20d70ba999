//! What a restore did, and why it ended.

use crate::Loss;
use crate::ext4::TargetError;
use crate::seams::ChunkTrouble;
use bale_pipeline::amount;
use std::io;
use std::path::PathBuf;

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
    /// Files whose metadata alone was restored and whose modification time was another: their
    /// content may be, too, and does not show it any more.
    pub times_changed: u64,
    /// Entries that were there and, by order, were left alone.
    pub skipped: u64,
    /// Directories made (compared, by `verify`).
    pub directories: u64,
    pub directories_kept: u64,
    /// What was no directory and made way for one.
    pub replaced: u64,
    /// Symbolic links, devices, pipes.
    pub others: u64,
    /// Further names of files.
    pub links: u64,
    /// Files and directories removed because the snapshot does not have them; of a dry run, that
    /// would be.
    pub deleted: u64,
    /// Files and directories that the snapshot does not have and that deleting left: the backup
    /// would have left them out, or this command needs them. What is in such a directory is not
    /// counted.
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
    /// Whoever takes the list of packs that will be read.
    #[error("hand out the list of packs: {0}")]
    Reads(#[source] io::Error),
    /// Not a single thread can be started.
    #[error("start a thread: {0}")]
    Threads(#[source] io::Error),
    /// The target cannot be used.
    #[error("{action} {}: {source}", path.display())]
    Target {
        /// What was attempted.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Nothing was written.
    #[error(
        "the target's file system has {} and {} inodes free, the restore needs {} and {} (--force \
         starts all the same)",
        amount::bytes(*bytes_free),
        amount::count(*inodes_free),
        amount::bytes(*bytes_needed),
        amount::count(*inodes_needed)
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
    ImageTarget(TargetError),
    /// Nothing was written.
    #[error(
        "the image needs {}, and {} are free (--force starts anyway)",
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
    #[error("interrupted: run the same command again to continue")]
    Stopped,
    /// The path is not in the snapshot.
    #[error("no such path in the snapshot")]
    NotFound,
    /// A file or a device takes one image.
    #[error(
        "{images} images are selected, and a file or device takes one: name it \
         (SNAPSHOT:/NAME), or a directory for all of them"
    )]
    NotOneImage { images: usize },
    /// Nothing in the snapshot is wanted.
    #[error(
        "nothing in the snapshot is selected: no path matches --include, or --exclude matches all \
         (of SNAPSHOT:/PATH they are patterns of what is below /PATH)"
    )]
    NothingSelected,
}
