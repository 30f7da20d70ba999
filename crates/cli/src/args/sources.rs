//! Options of what looks at files: `backup` and `scan`.

use super::cold::DAYS_MAX;
use super::excludes::Excludes;
use super::snapshots::tags;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// `--scan`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scan {
    /// Inodes where that is allowed and right, walking otherwise
    Auto,
    /// Directory by directory
    Walk,
    /// From the device, or not at all
    Inode,
}

/// `--image-format`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiskFormat {
    /// The bytes of the disk as they are
    Raw,
    /// QEMU
    Qcow2,
    /// VMware
    Vmdk,
    /// VirtualBox
    Vdi,
    /// Hyper-V
    Vhdx,
}

/// What to look at, and how: the options of everything that scans.
#[derive(Clone, Debug, Args)]
pub struct Look {
    /// Patterns that leave out.
    #[command(flatten)]
    pub excludes: Excludes,
    /// Leave out the content of directories that hold FILE (FILE:TEXT: and it begins with TEXT)
    #[arg(long, value_name = "FILE[:TEXT]")]
    pub exclude_if_present: Vec<String>,
    /// Leave out the content of directories with a valid CACHEDIR.TAG
    #[arg(long)]
    pub exclude_caches: bool,
    /// Back up repositories of Bale, too, that lie below the paths; the one in use never is
    #[arg(long)]
    pub include_repositories: bool,
    /// Leave out files larger than this (512K, 10M, 2G)
    #[arg(long, value_name = "SIZE")]
    pub exclude_larger_than: Option<String>,
    /// Stay on the file systems of the given paths
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// How to find what there is: by inodes from the device (ext4, XFS; also images and unmounted
    /// devices), by walking, or whichever is right (auto: few inodes, or a small part of them, are
    /// walked)
    #[arg(long, value_enum, default_value_t = Scan::Auto)]
    pub scan: Scan,
    /// Never freeze a file system: of ext4 the device then only lists what there is, of XFS the
    /// kernel does, and content is read through the kernel
    #[arg(long)]
    pub no_freeze: bool,
}

/// What says which files, and how they are looked at: it means nothing where none are.
const OF_FILES: [&str; 13] = [
    "files_from",
    "files_from0",
    "snapshot_command",
    "exclude",
    "iexclude",
    "exclude_file",
    "exclude_if_present",
    "exclude_caches",
    "exclude_larger_than",
    "one_file_system",
    "scan",
    "no_freeze",
    "include_repositories",
];

/// `backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// Files and directories; with --stdin-from-command the command and its words
    #[arg(value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Read paths from a file, one a line; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from: Vec<PathBuf>,
    /// Read paths from a file, each ended by a zero byte; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from0: Vec<PathBuf>,
    /// What to look at, and how.
    #[command(flatten)]
    pub look: Look,
    /// Read from storage snapshots that this command makes and releases: directories, or devices
    /// that are read by inodes (docs/SNAPSHOTS.md)
    #[arg(
        long,
        value_name = "COMMAND",
        value_hint = ValueHint::CommandString,
        value_parser = NonEmptyStringValueParser::new(),
    )]
    pub snapshot_command: Option<String>,
    /// Back up what comes on standard input, as one file of the snapshot: /stdin, or what
    /// --stdin-filename says. Nobody tells whether the writer failed; --stdin-from-command does
    #[arg(
        long,
        conflicts_with_all = OF_FILES,
        conflicts_with_all = ["stdin_from_command", "image"],
    )]
    pub stdin: bool,
    /// Run the command behind -- and back up what it writes to standard output, as one file of the
    /// snapshot. If it fails, there is no snapshot
    ///
    /// It is started as it is, without a shell, and gets no password of the repository by the
    /// environment.
    #[arg(
        long,
        requires = "paths",
        conflicts_with_all = OF_FILES,
        conflicts_with = "image",
    )]
    pub stdin_from_command: bool,
    /// How the file of --stdin or --stdin-from-command is called [default: stdin]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["image", "files_from", "files_from0"])]
    pub stdin_filename: Option<OsString>,
    /// Back up a block device, a file that is an image of one, or an export of an NBD server
    /// (nbd://HOST/EXPORT), block by block, in place of files. In the snapshot it is a file of the
    /// last part of its path, of a device or an export with .raw behind (/dev/sdb is /sdb.raw); of
    /// a .qcow2, .vmdk, .vdi or .vhdx the disk that is in it, with .raw behind
    ///
    /// Repeat it for several. Blocks of zeros are not stored, and holes of a file are not read, nor
    /// what a server says to be zeros, nor what the file systems on it have as free (ext2/3/4, XFS,
    /// NTFS, swap, on all of it, in partitions or in linear volumes of LVM; see --read-free). What
    /// is in use, or changes while it is read, is fuzzy: named, recorded in the snapshot, and exit
    /// code 3; it is read whole. A device is held, so that nobody mounts it meanwhile; of an export
    /// nobody knows, see --point-in-time.
    ///
    /// An export is named as nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH; with nbds
    /// for nbd its connection is encrypted, and ?tls-certificates=DIRECTORY names where ca-cert.pem
    /// is, if the system does not trust the server's certificate. With ?bitmap=NAME its server's
    /// dirty bitmap of that name (of QEMU) says what changed since the snapshot of --changes-since,
    /// and nothing else is read; where that cannot be believed, everything is, and it is said why.
    ///
    /// A disk of a machine that runs in QEMU is qemu:NODE?qmp=SOCKET&scratch=DIRECTORY: its block
    /// node, the socket of QEMU's monitor, and a directory for this machine alone in which QEMU
    /// keeps what the machine overwrites meanwhile. All disks of a machine are read at one moment,
    /// and later backups read what was written since, as QEMU's dirty bitmaps say. If QEMU's server
    /// of NBD runs already, add &server=SOCKET.
    #[arg(
        long,
        value_name = "SOURCE",
        value_hint = ValueHint::AnyPath,
        conflicts_with_all = OF_FILES,
        conflicts_with = "paths",
    )]
    pub image: Vec<PathBuf>,
    /// What the files that --image names are, where their names do not end with it (.qcow2, .vmdk,
    /// .vdi, .vhdx; else raw). The disk in them is read by a qemu-nbd that is started for it, and
    /// stored as /NAME.raw; with raw the file is stored as it is. What is in a file never decides,
    /// as a guest can write into a raw one what looks like any format
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        requires = "image",
        conflicts_with_all = ["paths", "files_from", "files_from0"],
    )]
    pub image_format: Option<DiskFormat>,
    /// An image may be based on files outside of its directory. Without it one that is, is refused:
    /// whoever wrote an image could have any file of this machine read
    #[arg(
        long,
        requires = "image",
        conflicts_with_all = ["paths", "files_from", "files_from0"],
    )]
    pub allow_files_elsewhere: bool,
    /// The exports that --image names stand still: whoever serves them holds a point in time.
    /// Without it they are fuzzy, as no server says whether somebody writes
    #[arg(
        long,
        requires = "image",
        conflicts_with_all = ["paths", "files_from", "files_from0"],
    )]
    pub point_in_time: bool,
    /// The file systems in the images were frozen, or unmounted, at the moment that is read, as
    /// whoever made the copy knows. The snapshot records it
    ///
    /// So it is behind fsfreeze, and in a snapshot of LVM of what is mounted on the same machine;
    /// not in one of a disk of a virtual machine, unless its guest agent froze it. It matters to
    /// --trust-metadata alone: an XFS that was not unmounted cannot say itself whether it was
    /// frozen.
    #[arg(
        long,
        requires = "image",
        conflicts_with_all = ["paths", "files_from", "files_from0"],
    )]
    pub frozen: bool,
    /// Read only what a list says may have changed since the snapshot of --changes-since:
    /// thin_delta:FILE, era_invalidate:FILE (XML of these programs) or json:FILE. Of one image
    ///
    /// JSON is {"extents": [{"offset": BYTES, "length": BYTES}]}. The list must name all that
    /// changed between the device as that snapshot has it and as it is read now: what it leaves out
    /// is taken from the snapshot unread. One that is not understood is refused; where it cannot be
    /// believed, everything is read, and it is said why.
    #[arg(
        long,
        value_name = "FORMAT:FILE",
        requires_all = ["image", "changes_since"],
        conflicts_with_all = ["force", "paths", "files_from", "files_from0"],
    )]
    pub changes: Option<OsString>,
    /// The snapshot that --changes, or the bitmap that an --image names, is relative to
    #[arg(
        long,
        value_name = "SNAP",
        requires = "image",
        conflicts_with_all = ["parent", "force", "paths", "files_from", "files_from0"],
    )]
    pub changes_since: Option<String>,
    /// Of exports with a bitmap request nothing but what changed, as their servers fail everything
    /// else; the rest of a block comes from the snapshot of --changes-since, which must hold the
    /// image in the same length and whole, or the backup is refused
    #[arg(
        long,
        requires_all = ["image", "changes_since"],
        conflicts_with_all = ["changes", "paths", "files_from", "files_from0"],
    )]
    pub changes_only: bool,
    /// Bytes of the blocks that a list of era_invalidate counts (64K)
    #[arg(long, value_name = "SIZE", requires = "changes")]
    pub changes_block_size: Option<String>,
    /// Read and store what no file system of an image has in use, too: deleted files come back with
    /// the image, as far as nothing was written over them
    #[arg(
        long,
        requires = "image",
        conflicts_with_all = ["paths", "files_from", "files_from0"],
    )]
    pub read_free: bool,
    /// Where nobody keeps account of what changes in an image, read of its file systems what their
    /// metadata says may have changed: ext2/3/4 and XFS (version 5), unmounted or frozen, as in the
    /// parent
    ///
    /// Metadata is read, and blocks of files whose inodes are other than in the parent, or changed
    /// in the last two seconds of it; of all else, everything. Of an XFS that was frozen, --frozen
    /// has to say so, as in the parent. What is written past the file system is missed: to swap
    /// files, or to the device itself; and, after a crash, what was written in place in the half
    /// minute before it.
    #[arg(
        long,
        requires = "image",
        conflicts_with_all = ["paths", "files_from", "files_from0", "read_free", "changes_only"],
    )]
    pub trust_metadata: bool,
    /// Do not list the files in the images. Without it, the snapshot has a directory beside the
    /// image for each ext2/3/4, XFS and NTFS on it (/p1 for the first partition, /disk for one
    /// without partitions, the name of a volume), whose files are listed, found and restored one by
    /// one
    #[arg(
        long,
        requires = "image",
        conflicts_with_all = ["paths", "files_from", "files_from0"],
    )]
    pub no_file_catalog: bool,
    /// An image that is fuzzy is as good as any: no problem, and no exit code 3
    #[arg(
        long,
        requires = "image",
        conflicts_with_all = ["paths", "files_from", "files_from0"],
    )]
    pub allow_fuzzy: bool,
    /// Tag the snapshot (repeat, or separate by commas)
    #[arg(long, value_name = "TAG", value_parser = tags)]
    pub tag: Vec<String>,
    /// Record this host name instead of the machine's [env: BALE_HOST]
    #[arg(short = 'H', long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub host: Option<String>,
    /// Store when files, directories and all else were last accessed, and restore it
    ///
    /// What was accessed since the last backup and not changed is not read again; it gets a new row
    /// in the catalog, so a snapshot of files that are read much is larger. A run with this option
    /// after one without it, or the other way round, writes all rows anew.
    #[arg(long, conflicts_with_all = ["stdin", "stdin_from_command"])]
    pub with_atime: bool,
    /// Compare with this snapshot instead of the latest of the same host and paths
    #[arg(long, value_name = "SNAP")]
    pub parent: Option<String>,
    /// Compare with nothing: read every file
    #[arg(short, long)]
    pub force: bool,
    /// Record this time instead of now (2026-11-27, "2026-11-27 08:30:00" or RFC 3339): of a copy
    /// that was made then
    #[arg(long, value_name = "TIME")]
    pub time: Option<String>,
    /// Make no snapshot when nothing changed
    #[arg(long)]
    pub skip_if_unchanged: bool,
    /// When the snapshot is there, lock what it uses for so many days (S3 with Object Lock), where
    /// it is not locked as long; renewed locks last a quarter longer
    #[arg(
        long,
        value_name = "DAYS",
        value_parser = clap::value_parser!(u32).range(1..=DAYS_MAX),
        conflicts_with = "dry_run",
    )]
    pub retain: Option<u32>,
    /// Make a repository of your own if none is named and there is none, also where no terminal
    /// shows its recovery key [env: BALE_INIT]
    #[arg(long, conflicts_with = "dry_run")]
    pub init: bool,
    /// Print what would be done; store nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// `scan`
#[derive(Debug, Args)]
pub struct ScanPaths {
    /// Files and directories
    #[arg(value_hint = ValueHint::AnyPath, required = true)]
    pub paths: Vec<PathBuf>,
    /// What to look at, and how.
    #[command(flatten)]
    pub look: Look,
    /// Name this many of the directories with the most children
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub densest: usize,
    /// Print every entry, one a line
    #[arg(long)]
    pub list: bool,
    /// Print every entry as it is, each ended by a zero byte
    #[arg(long, conflicts_with = "list")]
    pub list0: bool,
    /// How to print an entry, in the manner of find -printf [default: %p]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<OsString>,
}
