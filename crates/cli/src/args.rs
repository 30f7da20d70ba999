//! The words of the command line. Nothing here opens anything: words become options, `commands`
//! turns them into one engine call.

mod cold;
mod copy;
mod excludes;
mod export;
mod ext4;
mod forget;
mod generate;
mod global;
mod measured;
mod mirror;
mod mount;
mod profile;
mod remote;
mod restore;
mod rewrite;
mod run;
mod schedule;
mod serve;
mod snapshots;
mod sources;
mod status;
mod tag;
mod track;

pub use cold::ColdReads;
pub use copy::{Copy, FromRepository};
pub use excludes::{Exclude, Excludes};
pub use export::Export;
pub use forget::{Forget, Prune, PruneChoices};
pub use generate::Generate;
pub use global::Global;
use global::NoRepository;
pub use measured::WorkLabels;
pub use mirror::Mirror;
pub use mount::MountCommand;
pub use profile::{ChosenProfiles, ProfileCommand, ProfileFiles, ProfileShow};
pub use remote::Whose;
pub use restore::Restore;
pub use rewrite::Rewrite;
pub use run::{RunProfiles, StateDir};
pub use schedule::{
    ScheduleCommand, ScheduleInstall, SchedulePlace, ScheduleRemove, ScheduleStatus,
};
pub use serve::Serve;
pub use snapshots::{
    Diff, Dump, DumpArchive, Find, FindConditions, FindKind, LongListing, Ls, Pick, Select,
    Snapshots, SortBy, Stats, StatsMode,
};
pub use sources::{Backup, DiskFormat, Look, Scan, ScanPaths};
pub use status::Status;
pub use tag::{Pin, Tag};
pub use track::Track;

use clap::{Args, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Back up file systems with very many files, at the speed of the disk.
#[derive(Debug, Parser)]
#[command(
    name = "bale",
    version,
    about,
    max_term_width = 100,
    after_help = "Exit codes: 0 complete, 1 failed (find: nothing matches), 2 usage, 3 committed \
        but something could not be read or changed while read (backup: also if the repository \
        cannot be reached any more; nothing is committed, and the next run goes on), 4 check found \
        damage, repair a loss, or gen --verify-manifest a difference, 10 no repository, 11 locked, \
        12 wrong key, 130 interrupted, 141 the reader of the output was gone.\n\n\
Examples:\n  bale backup /home\n  bale restore latest:/home/me/mail --target /tmp/mail\n  \
bale forget --keep-daily 7 --keep-weekly 5 --prune"
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a repository
    #[command(after_help = "Examples:\n  bale init -r /srv/backup\n  \
            BALE_PASSWORD_FILE=/etc/bale/password bale init -r /srv/backup\n  \
            bale init -r /srv/hot --cold /hpss/backup --segments\n  \
bale init --print-policy put-only -r s3:https://s3.eu-central-1.amazonaws.com/bucket/web1")]
    Init(Init),
    /// Back up files and directories
    #[command(
        after_help = "Examples:\n  bale backup /home /etc --exclude '*.o' --exclude-caches\n  \
find /data -newer stamp -print0 | bale backup --files-from0 -\n  \
bale backup --files-from /etc/bale/paths --exclude-file /etc/bale/excludes\n  \
bale backup -x / --exclude-larger-than 2G --exclude-if-present .nobackup\n  \
bale backup --snapshot-command /usr/local/lib/bale/snapshot-lvm /srv\n  \
bale backup --stdin-from-command --stdin-filename db.sql -- pg_dump db\n  \
bale backup --with-atime /home   # also when each file was last read\n  \
bale backup --retain 30 /srv   # to S3: nobody deletes it for thirty days\n  \
bale backup --tag weekly --host web1 --skip-if-unchanged /etc\n  bale backup --dry-run --json /srv"
    )]
    Backup(Box<Backup>),
    /// Print what a backup would see
    #[command(after_help = "Examples:\n  bale scan /home\n  \
            bale scan --scan inode disk.img --densest 20 --json\n  \
bale scan /srv --list --format '%s %p' | sort -n | tail\n\n\
Directives of --format: %p path, %P path below the one given, %f name, %h directory, %d depth, %y \
type, %s size (0 of directories), %m mode, %M mode as ls shows it, %n links, %u or %U user id, %g \
or %G group id, %i inode, %T@ and %C@ times of change of content and inode, %l target, %F file \
system, %% percent; \\\\n, \\\\t, \\\\0, \\\\\\\\")]
    Scan(Box<ScanPaths>),
    /// List snapshots
    #[command(after_help = "Examples:\n  bale snapshots\n  bale snapshots --host web1 --json")]
    Snapshots(Snapshots),
    /// Say of each source when it was backed up last, and whether all is well
    #[command(
        after_help = "Examples:\n  bale status\n  bale status --max-age 26h || mail -s \
'bale: late' admin\n  bale status --host web1 --json\n  \
bale status --nagios --warning 26h --critical 50h\n  bale status --profile home\n\n\
Profiles (bale.toml) of the repository say when a source is late, and that it must be there. Where \
no repository is named, it is theirs.\n\n\
Exit code 3: a source is late (--max-age, or by its profile) or was never backed up, its last \
backup had problems, a run of a profile failed, or snapshots are missing, damaged or dated in the \
future."
    )]
    Status(Status),
    /// List what is in a snapshot
    #[command(
        after_help = "Examples:\n  bale ls latest\n  bale ls -l latest:/home/me\n  \
            bale ls --recursive 3fa9c1d2:/etc\n  bale ls -R latest --sort size | tail\n  \
bale ls --ncdu latest > s.json; ncdu -f s.json"
    )]
    Ls(Ls),
    /// Find paths in snapshots by name, size, time and kind
    #[command(after_help = "Examples:\n  bale find '*.mbox'\n  \
            bale find --snapshot latest --iname 'invoice*' --path /home\n  \
bale find --min-size 1G --newer-than 7d\n  \
bale find '*.mbox' --latest   # where to restore each from\n  \
bale find --type l --older-than 2020-01-01 --below /srv")]
    Find(Find),
    /// Compare two snapshots
    #[command(after_help = "Examples:\n  bale diff latest~1 latest\n  \
            bale diff latest~1:/etc latest:/etc --json\n  \
bale diff --host web1 latest~7:/etc latest:/etc --content   # the lines that changed")]
    Diff(Diff),
    /// Count what the repository and its snapshots hold
    #[command(after_help = "Examples:\n  bale stats\n  bale stats latest --json\n  \
            bale stats latest~3 --mode unique   # what forgetting it would free\n  \
bale stats --mode by-source\n  bale stats --host web1 --mode stored")]
    Stats(Stats),
    /// Restore files and directories
    #[command(after_help = "Examples:\n  bale restore latest --target /mnt/new\n  \
            bale restore latest:/home/me/mail --target /tmp/mail\n  \
bale restore latest:/ --include '/etc/**' --target /tmp/r --dry-run\n  \
bale restore latest:/home/me -t /tmp/r --warm-up=3   # from Glacier, for three days\n  \
bale restore latest:/vm.img --target vm.qcow2 --image-format qcow2\n  \
bale restore latest:/home --to-ext4 /dev/sdx1 --label home --verify   # a ready file system, at \
the speed of the disk")]
    Restore(Box<Restore>),
    /// Print a file, or a directory as a tar or zip archive
    #[command(after_help = "Examples:\n  bale dump latest:/etc/fstab\n  \
            bale dump latest:/home/me | tar tvf -\n  \
bale dump latest:/db.sql --target /tmp/db.sql\n  \
bale dump latest:/home/me/photos --archive zip --target photos.zip")]
    Dump(Dump),
    /// Serve images of a snapshot to other programs over NBD, without restoring them
    #[command(after_help = "Examples:\n  \
            bale export latest --nbd unix:/run/bale/disk.sock\n  \
bale export latest:/sdb.raw --nbd localhost:10809 &\n  \
nbdcopy nbd://localhost:10809/ /dev/vg/new   # or nbdfuse, qemu-img convert, a guest's disk\n  \
bale export 3fa9c1d2:/vm.img --nbd unix:/tmp/vm.sock --once &\n  \
bale export latest:/vm.img --nbd unix:/tmp/vm.sock --overlay /var/tmp/vm.overlay   # a guest \
boots from it\n  \
guestmount --ro --format=raw -i -a 'nbd://?socket=/tmp/vm.sock' /mnt\n\n\
It serves until it is interrupted (Ctrl-C, SIGTERM), or with --once until the last client has \
gone. Several images are exports of their names, and the first is the one without a name.")]
    Export(Box<Export>),
    /// Show snapshots as directories, until they are unmounted
    #[command(after_help = "Examples:\n  bale mount /mnt/bale\n  \
            bale mount /mnt/bale --host web1 --allow-other\n  \
bale mount /mnt/bale 3fa9c1d2 &\n  \
cp -a /mnt/bale/latest/home/me/mail /tmp/mail\n  \
fusermount3 -u /mnt/bale   # or Ctrl-C; as root: umount\n\n\
Below DIR: snapshots/TIME, latest, ids/ID, hosts/HOST/TIME and hosts/HOST/latest, read-only. Times \
are UTC. New snapshots show up within seconds. It stays in the foreground; a second Ctrl-C \
unmounts it though it is in use.")]
    Mount(Box<MountCommand>),
    /// Show profiles: what bale.toml says of backups
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Do what is due of profiles: backup, forget, prune, check
    #[command(
        after_help = "Examples:\n  bale run home\n  bale run home --dry-run\n  \
            bale run --all --json\n\n\
What is due is what had a moment of its schedule since it last succeeded. Nothing is forgotten or \
pruned after a backup that failed. The exit code is the worst of all; 11: another run of the \
profile, or of its sources, is under way."
    )]
    Run(RunProfiles),
    /// Have profiles run by timers of systemd, or by cron
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Keep account of what changes on a device, so that backups of it read only that
    #[command(subcommand)]
    Track(Track),
    /// Look for damage
    #[command(
        after_help = "Examples:\n  bale check\n  bale check --read-data-subset 1/12\n  \
            bale check --scrub   # needs no key"
    )]
    Check(Check),
    /// Remove snapshots by rules
    #[command(after_help = "Examples:\n  \
            bale forget --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run\n  \
            bale forget 3fa9c1d2 --prune")]
    Forget(Box<Forget>),
    /// Change the tags of snapshots, which get new ids by it
    #[command(after_help = "Examples:\n  bale tag --add weekly,offsite 3fa9c1d2\n  \
            bale tag --remove old --host web1\n  bale tag --set '' 3fa9c1d2\n\n\
A changed snapshot is a new one in the place of the old, which is removed.")]
    Tag(Tag),
    /// Pin snapshots: no forget removes them, by rules or by id, until they are unpinned
    #[command(
        after_help = "Examples:\n  bale pin 3fa9c1d2\n  bale pin latest --host web1\n\n\
A pinned snapshot has a new id."
    )]
    Pin(Pin),
    /// Take a pin back
    #[command(after_help = "Example:\n  bale unpin 3fa9c1d2")]
    Unpin(Pin),
    /// Take out of snapshots what should not be in them
    #[command(
        after_help = "Examples:\n  bale rewrite --exclude '/home/me/id_rsa' --dry-run\n  \
            bale rewrite --exclude '*.key' --forget --host web1\n  \
            bale rewrite 3fa9c1d2 --exclude /srv/dump.sql\n\n\
A rewritten snapshot is a new one without what matches; the old one goes with --forget. It is said \
what is to be done until the bytes are gone from the repository."
    )]
    Rewrite(Box<Rewrite>),
    /// Copy snapshots from another repository, which has other keys
    #[command(
        after_help = "Examples:\n  bale copy --from-repo /srv/backup -r /mnt/far/backup\n  \
            bale copy --from-repo /srv/backup --from-password-file old -r /mnt/new --host web1 \
latest\n  \
bale copy --from-repo /srv/backup -r /mnt/new --dry-run\n\n\
What the target has is not sent again: a copy that was stopped goes on, and one that runs every \
day sends what is new."
    )]
    Copy(Box<Copy>),
    /// Keep all objects of the repository, as they are, in a second place
    #[command(after_help = "Examples:\n  bale mirror --to /mnt/disk/backup\n  \
            bale mirror -r /srv/backup --to rest:https://far.example.org:8000/site/ --delete\n  \
bale mirror --to /mnt/disk/backup --verify --dry-run\n\n\
The mirror opens with the same passwords and keys, and is read as any repository. A copy (bale \
copy) has keys of its own.")]
    Mirror(Mirror),
    /// Free the space of data that no snapshot uses
    #[command(after_help = "Examples:\n  bale prune --dry-run\n  bale prune --grace 2h")]
    Prune(Prune),
    /// Manage keys and passwords
    #[command(subcommand)]
    Key(KeyCommand),
    /// Work with catalogs
    #[command(subcommand)]
    Catalog(Catalog),
    /// Repair what can be repaired without deleting
    #[command(subcommand)]
    Repair(Repair),
    /// Serve a directory of repositories to other machines over HTTP
    #[command(after_help = "Examples:\n  bale serve --no-auth /srv/backups\n  \
bale serve --hash-password web1 >> /etc/bale/users\n  \
bale serve --listen 0.0.0.0:8000 --password-file /etc/bale/users --private --append-only \
--tls-cert /etc/bale/cert.pem --tls-key /etc/bale/key.pem --max-size 10T /srv/backups\n\n\
Clients name a repository there as rest:https://USER:PASSWORD@HOST:8000/NAME/, with --private as \
.../USER/ or .../USER/NAME/. Counters for Prometheus are at /metrics.")]
    Serve(Box<Serve>),
    /// Make trees of very many files to test with, in a directory or as an ext4 image
    #[command(
        name = "gen",
        after_help = "Examples:\n  \
            bale gen -t /mnt/test -d 7 -D 15 -r 5 -R 14 -f 32 -F 128 -s 1024 -S 2048 -C -N\n  \
bale gen --to-ext4 dense.img --count 1000000 -s 1024 -S 2048 --manifest dense.list\n  \
bale gen -t /mnt/test --change 2 --new 0.5 --delete 0.5 --seed 2\n  \
bale gen -t /tmp/restored --verify-manifest dense.list"
    )]
    Generate(Box<Generate>),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  bale completions bash > /etc/bash_completion.d/bale")]
    Completions(Completions),
    /// Write the manual pages to a directory
    #[command(after_help = "Example:\n  bale man /usr/local/share/man/man1")]
    Man(Man),
}

/// `init`
#[derive(Debug, Args)]
pub struct Init {
    /// Also write a new key file that opens the repository without a password
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub new_key_file: Option<PathBuf>,
    /// Make it in a directory that holds other things, too
    #[arg(long)]
    pub force: bool,
    /// Keep data in few large objects, each written in one stream, of about this size: for tape
    /// and HPSS, in a directory or over sftp:, ftp:, ftps: [without a size: 10 GB]
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "")]
    pub segments: Option<String>,
    /// Make nothing: print the policy of the bucket (S3) by which a client only adds, and cannot
    /// replace or delete
    #[arg(
        long,
        value_name = "POLICY",
        value_parser = ["put-only"],
        conflicts_with_all = ["new_key_file", "force"],
    )]
    pub print_policy: Option<String>,
}

/// `check`
#[derive(Debug, Args)]
pub struct Check {
    /// Read, decrypt and verify every chunk
    #[arg(long, conflicts_with = "read_data_subset")]
    pub read_data: bool,
    /// The same for a part: n/t (part n of t), x% (chosen at random), or a size (500M)
    #[arg(long, value_name = "PART")]
    pub read_data_subset: Option<String>,
    /// Compare every object with its name; needs no key
    #[arg(long)]
    pub scrub: bool,
    /// Change nothing: do not mark damaged packs, so that backups go on relying on them
    #[arg(long)]
    pub no_mark: bool,
}

/// `key`
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Add a password, a key file or a recovery key
    #[command(
        after_help = "Examples:\n  bale key add --new-password-file /root/second\n  \
            bale key add --recovery"
    )]
    Add(KeyAdd),
    /// Remove a key, but never the one that opens the repository just now: open it with one that
    /// stays
    #[command(after_help = "Example:\n  bale key remove 3fa9c1d2")]
    Remove {
        /// Beginning of the key's id
        id: String,
    },
    /// List the keys
    #[command(after_help = "Example:\n  bale key list --json")]
    List,
    /// Change the password: adds the new key, then removes the one that was used
    #[command(after_help = "Example:\n  bale key passwd --new-password-file /root/new")]
    Passwd(KeyAdd),
}

/// `key add` and `key passwd`
#[derive(Clone, Debug, Args)]
pub struct KeyAdd {
    /// Read the new password from the first line of this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub new_password_file: Option<PathBuf>,
    /// Write a new key file
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "new_password_file",
    )]
    pub new_key_file: Option<PathBuf>,
    /// Make and print a recovery key
    #[arg(long, conflicts_with_all = ["new_password_file", "new_key_file"])]
    pub recovery: bool,
    /// Words to know it by; of a key that replaces another, those of that one
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
}

/// `catalog`
#[derive(Debug, Subcommand)]
pub enum Catalog {
    /// Write a snapshot's catalog as Parquet files
    #[command(after_help = "Example:\n  \
            bale catalog export latest /tmp/c && duckdb -c \"select count(*), sum(size) from \
            '/tmp/c/*.parquet'\"")]
    Export {
        /// Snapshot, or snapshot:/path
        address: OsString,
        /// Directory, new or empty
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// Which snapshots.
        #[command(flatten)]
        select: Pick,
    },
}

/// `repair`
#[derive(Debug, Subcommand)]
pub enum Repair {
    /// List packs that no index names, from their trailers
    #[command(after_help = "Example:\n  bale repair index --dry-run")]
    Index {
        /// Print what would be done; write nothing
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Write again the one of config and config.copy that is damaged or missing, from the other
    #[command(after_help = "Examples:\n  bale repair config --dry-run\n  bale repair config")]
    Config {
        /// Print what would be done; write nothing
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Make a hot store again from the cold one, which has everything
    #[command(after_help = "Example:\n  bale repair hot -r /srv/hot --cold sftp:tape:/backup")]
    Hot {
        /// Print what would be done; write nothing
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Bring back what the cold store lost or has damaged, and the hot one still has
    ///
    /// All but file contents, which are in the cold store alone. A snapshot that only the hot store
    /// has was lost by the cold one, or it was forgotten, and the hot store was set back to an
    /// older state since: it is named, and comes back with --snapshots. A key likewise: --keys.
    #[command(
        after_help = "Examples:\n  bale repair cold -r /srv/hot --cold /tape/backup --dry-run\n  \
            bale repair cold -r /srv/hot --cold /tape/backup --snapshots"
    )]
    Cold {
        /// Bring back snapshots and unfinished runs that only the hot store has
        #[arg(long)]
        snapshots: bool,
        /// Bring back keys that only the hot store has
        #[arg(long)]
        keys: bool,
        /// Read the packs of the cold store that the hot one has too; else their lengths are
        /// compared
        #[arg(long)]
        read_data: bool,
        /// Print what would be done; write nothing
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Save what can still be read of damaged packs, and name what cannot
    #[command(
        after_help = "Examples:\n  bale check --read-data ; bale repair packs\n  \
            bale repair packs --dry-run\n  bale repair packs 3fa9c1d2"
    )]
    Packs {
        /// Packs, by the beginnings of their ids [default: those that a check marked, and those of
        /// a wrong length]
        ids: Vec<String>,
        /// Print what would be done; write nothing
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
}

/// `completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
    /// Which shell
    pub shell: clap_complete::Shell,
}

/// `man`
#[derive(Debug, Args)]
pub struct Man {
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
    /// Directory for the pages
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}
