//! `restore`

use super::Pick;
use super::cold::ColdReads;
use super::ext4::Ext4Choices;
use super::sources::DiskFormat;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// `restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// Snapshot, or snapshot:/path; latest:/path is the newest that was made of all of /path
    pub address: OsString,
    /// Where to: an existing or new directory. Of an image, if it is the only one or named
    /// (SNAP:/disk.raw), also a file or an unused device: a new file is as sparse as can be, and of
    /// what is there only blocks that differ are written
    #[arg(
        short,
        long,
        value_name = "DIR",
        value_hint = ValueHint::AnyPath,
        required_unless_present_any = ["to_ext4", "plan"],
    )]
    pub target: Option<PathBuf>,
    /// Write a ready ext4 file system to a file or an unused device instead
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath,
        conflicts_with_all = ["target", "overwrite", "delete"])]
    pub to_ext4: Option<PathBuf>,
    /// Write the image to a new file in this format, with QEMU's qemu-img (vmdk, vdi and vhdx are
    /// others that it writes)
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        requires = "target",
        conflicts_with_all = [
            "to_ext4", "include", "exclude", "overwrite", "delete", "inode_flags", "dry_run",
            "plan",
        ],
    )]
    pub image_format: Option<DiskFormat>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// Only what matches; patterns are of paths below the ADDRESS: of latest:/home/me, /mail is
    /// /home/me/mail. One that matches nothing ends with exit code 3; if all match nothing, with 1
    #[arg(short, long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Leave out what matches, the same way
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// What to do with files that exist: if-changed compares kind, size and mtime
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "if-changed",
        value_parser = ["always", "if-changed", "never"],
    )]
    pub overwrite: String,
    /// Restore owners, modes, times, attributes and access control lists of what is in the target,
    /// and no content: nothing is made or replaced, and no pack is read. What is not there, or of
    /// another kind, is a problem
    #[arg(
        long,
        requires = "target",
        conflicts_with_all = [
            "to_ext4", "image_format", "overwrite", "delete", "verify", "plan", "warm_command",
            "warm_up",
        ],
    )]
    pub metadata_only: bool,
    /// Remove what is in the target and not in the snapshot, where the snapshot knows what was
    /// there
    ///
    /// Only directories at or below a path that was backed up lose anything. What the backup left
    /// out stays: patterns, sizes, directories with its marks (new marks, too), other file systems,
    /// and the key files it worked with. So do other mounts, other repositories of Bale
    /// (directories with BALE-REPOSITORY.TAG), the repository, cache and keys in use, and
    /// NAME.bale-salvaged of a restore before. In /, in a home directory or above one it needs
    /// --include or --force. It comes last, and not at all if content could not be had. --dry-run
    /// -v names what would go. Of another host's snapshot, latest needs --host. Of images, and of
    /// files in them, it is refused: what else was in a directory is not known there.
    #[arg(long)]
    pub delete: bool,
    /// Restore immutable, append-only and other inode flags
    #[arg(long)]
    pub inode_flags: bool,
    /// Print what would be done; write nothing
    #[arg(short = 'n', long, conflicts_with_all = ["warm_command", "warm_up"])]
    pub dry_run: bool,
    /// Read back everything that was written and compare
    #[arg(long)]
    pub verify: bool,
    /// Start even if the target seems too small, is in a repository, (--delete) is / or a home
    /// directory, (--to-ext4) holds something that will be lost, or (of an image) is a longer file,
    /// which is cut, or (--image-format) a file that is replaced
    #[arg(long)]
    pub force: bool,
    /// What is not readable at once.
    #[command(flatten)]
    pub cold: ColdReads,
    /// The file system.
    #[command(flatten)]
    pub ext4: Ext4Choices,
}
