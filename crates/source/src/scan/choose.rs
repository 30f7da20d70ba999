//! Which way to look: by inodes from the device where that is allowed and right, or by walking.

use super::device_copy;
use super::inode::{
    Digests, EmitOptions, Gather, Gathered, IMAGE_DEVICE, ImageScanner, MountContext,
    ParentDigests, TablesState, planned_reads,
};
use super::mounted::{self, MountedScan};
use super::promise::promised_names;
use super::{ScanItem, ScanMode, ScanOptions, ScanProblem, Scanner, Sources, barrier_now};
use crate::image::{Image, OpenedAs};
use crate::read::Arranged;
use bale_format::entry::Time;
use bale_format::snapshot::{Filesystem, PathText, Totals};
use bale_pipeline::error::{Failure, Result};
use bale_pipeline::filter::Filter;
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A started scan: its stream, and what belongs to the way it was started.
pub struct StartedScan {
    /// The stream.
    pub items: Box<dyn Iterator<Item = ScanItem> + Send>,
    /// What the scan knows to be there, before a byte of content is read.
    pub expected: Option<Totals>,
    /// Notices when an image is written to while it is read.
    pub(super) guard: Option<ImageStamp>,
    /// Reads all small files in the order of the device: for those who need them all.
    pub(super) arranged: Option<Arranged>,
    /// The file system is mounted: changes during the scan must be found by a second look.
    pub(super) mounted: Option<MountedScan>,
    /// Digest of each inode as read.
    pub digests: Option<Arc<Digests>>,
    /// Digest of all inode tables, if they were read.
    pub state: Option<TablesState>,
    /// Set if the tables are identical to the parent's: the stream is empty, and this is the file
    /// system.
    pub tables_unchanged: Option<Filesystem>,
}

impl StartedScan {
    pub(super) fn new(items: impl Iterator<Item = ScanItem> + Send + 'static) -> StartedScan {
        StartedScan {
            items: Box::new(items),
            expected: None,
            guard: None,
            arranged: None,
            mounted: None,
            digests: None,
            state: None,
            tables_unchanged: None,
        }
    }

    /// Nothing was changed.
    pub(super) fn tables_unchanged(
        filesystem: Filesystem,
        state: TablesState,
        monitor: &dyn Monitor,
    ) -> StartedScan {
        let place = String::from_utf8_lossy(&filesystem.mount.0).into_owned();
        monitor.note(&format!(
            "inode scan of {place}: no inode was changed since the snapshot compared with"
        ));
        StartedScan {
            state: Some(state),
            tables_unchanged: Some(filesystem),
            ..StartedScan::new(std::iter::empty())
        }
    }

    /// Takes the way to read all small files at once.
    pub fn arranged(&mut self) -> Option<Arranged> {
        self.arranged.take()
    }

    /// Takes the mounted file system that must be looked at again after everything was read.
    pub fn mounted(&mut self) -> Option<MountedScan> {
        self.mounted.take()
    }

    /// Takes what must be looked at again after everything was read.
    pub fn guard(&mut self) -> Option<ImageStamp> {
        self.guard.take()
    }
}

/// How long the stamp of an image is waited for until no further write can leave the same one, and
/// how often it is looked at.
const STAMP_WAIT_MAX: Duration = Duration::from_millis(2_100);
const STAMP_PAUSE: Duration = Duration::from_millis(5);

/// Of an image that was neither unmounted nor frozen, what had changed in this time before its
/// newest change is read again by the next backup: what is overwritten in place has its new time in
/// the journal within seconds, and its bytes on the disk when the kernel comes to it.
pub const IN_USE_RACY_SECONDS: i64 = 3_600;

/// What an image looked like before it was read.
pub struct ImageStamp {
    path: PathBuf,
    before: WriteCount,
}

#[derive(PartialEq, Eq)]
struct WriteCount {
    inode: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: Time,
    /// Writes to a device, whose times say nothing of them.
    writes: Option<[u64; 2]>,
}

impl ImageStamp {
    /// Waits a little where the image was written to just now. One that is written to all the time
    /// is another one afterwards in any case.
    pub(super) fn of(path: &Path) -> io::Result<ImageStamp> {
        let began = Instant::now();
        loop {
            let before = WriteCount::of(path)?;
            if before.is_not_racy() || began.elapsed() > STAMP_WAIT_MAX {
                let path = path.to_path_buf();
                return Ok(ImageStamp { path, before });
            }
            std::thread::sleep(STAMP_PAUSE);
        }
    }

    /// A problem if the image was modified since `before`.
    pub fn check(&self) -> Option<ScanProblem> {
        let error = match WriteCount::of(&self.path) {
            Ok(now) if now == self.before => return None,
            Ok(_) => io::Error::other(
                "the image was written to while it was read: what was stored may belong to \
                 different moments",
            ),
            Err(error) => error,
        };
        Some(ScanProblem {
            path: without_slash(&self.path),
            action: "read",
            error,
        })
    }
}

impl WriteCount {
    fn is_not_racy(&self) -> bool {
        self.ctime.is_stamped_before(barrier_now())
    }

    fn of(path: &Path) -> io::Result<WriteCount> {
        let metadata = std::fs::metadata(path)?;
        Ok(WriteCount {
            inode: metadata.ino(),
            size: metadata.size(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: Time {
                seconds: metadata.ctime(),
                nanos: u32::try_from(metadata.ctime_nsec()).unwrap_or_default(),
            },
            writes: match metadata.file_type().is_block_device() {
                true => writes_to(metadata.rdev()),
                false => None,
            },
        })
    }
}

/// Writes and discards that a block device has taken so far, as far as the kernel counts them.
fn writes_to(device: u64) -> Option<[u64; 2]> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let counted = |at: usize| text.split_whitespace().nth(at)?.parse().ok();
    Some([counted(4)?, counted(11).unwrap_or(0)])
}

/// Inodes in use below which walking is as quick.
const INODES_WORTH_IT: u64 = 10_000;
/// Where only a part of a file system is asked for, one inode of so many at least must be in it, as
/// an earlier snapshot tells. Reading the tables takes about a microsecond for each inode there is,
/// walking takes several for each that is asked for.
const PART_WORTH_IT: u64 = 4;
/// The same where a look at the top levels promises how many there are: it may promise too much.
const PROMISE_WORTH_IT: u64 = 3;

/// Chooses and begins.
pub fn choose(
    sources: &Sources,
    options: ScanOptions,
    monitor: &dyn Monitor,
) -> Result<StartedScan> {
    if let Some((source, device)) = sources.device_copy() {
        return device_copy::begin(sources, source, device, options, monitor);
    }
    match options.mode {
        ScanMode::Inode if !sources.read_at().is_empty() => Err(Failure::Other(
            "--scan inode cannot be used: the snapshot is a directory".to_owned(),
        )),
        _ if !sources.read_at().is_empty() => {
            monitor.note("walking the snapshot");
            walk(sources, options)
        }
        ScanMode::Walk => walk(sources, options),
        ScanMode::Inode => match image_source(sources) {
            Some(path) => scan_image(sources, &path, options, monitor),
            None => {
                let refuse =
                    |why: String| Failure::Other(format!("--scan inode cannot be used: {why}"));
                let target = mounted::target(sources, &options).map_err(refuse)?;
                mounted::begin(sources, target, options, monitor).map_err(|error| match error {
                    Failure::Interrupted => error,
                    error => refuse(error.to_string()),
                })
            }
        },
        ScanMode::Auto => choose_automatically(sources, options, monitor),
    }
}

/// By inodes where that is allowed and right; says in a line which it is, where there was a choice.
fn choose_automatically(
    sources: &Sources,
    options: ScanOptions,
    monitor: &dyn Monitor,
) -> Result<StartedScan> {
    let walking = |why: &str| monitor.note(&format!("walking: {why}"));
    let target = match mounted::target(sources, &options) {
        Ok(target) => target,
        Err(why) => {
            walking(&why);
            return walk(sources, options);
        }
    };
    let whole = target.path_inside.as_os_str().is_empty();
    let part = match whole {
        true => Part::All,
        false => Part::Of(sources.paths(), &options.filter, options.entries_before),
    };
    if let Err(why) = is_worth_it(target.directory.as_fd(), part) {
        walking(&why);
        return walk(sources, options);
    }
    let again = ScanOptions {
        filter: options.filter.clone(),
        left_out: options.left_out.clone(),
        spill_directory: options.spill_directory.clone(),
        freezer: options.freezer.clone(),
        known: options.known.clone(),
        parent_digests: options.parent_digests.clone(),
        ..options
    };
    match mounted::begin(sources, target, options, monitor) {
        Err(Failure::Interrupted) => Err(Failure::Interrupted),
        Err(error) => {
            walking(&error.to_string());
            walk(sources, again)
        }
        begun => begun,
    }
}

/// How much of a file system is asked for.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    All,
    /// These directories, without what is excluded; entries of an earlier snapshot of them, 0:
    /// there is none.
    Of(&'a [PathBuf], &'a Filter, u64),
}

/// Reading all inode tables pays for a whole file system or a good part of one. How large the part
/// is, is known from the parent snapshot; a first backup of a part walks.
pub(super) fn is_worth_it(
    directory: BorrowedFd<'_>,
    part: Part<'_>,
) -> std::result::Result<(), String> {
    let stat = rustix::fs::fstatvfs(directory).map_err(|errno| errno.to_string())?;
    let inodes = stat.f_files.saturating_sub(stat.f_ffree);
    judge(inodes, part, promised_names)
}

fn judge(
    inodes: u64,
    part: Part<'_>,
    promised_names: impl FnOnce(&[PathBuf], &Filter, u64) -> io::Result<u64>,
) -> std::result::Result<(), String> {
    let by_inode = "--scan inode reads it by inodes all the same";
    if inodes < INODES_WORTH_IT {
        return Err(format!("there are only {inodes} inodes"));
    }
    let (paths, filter, entries_before) = match part {
        Part::All => return Ok(()),
        Part::Of(paths, filter, entries_before) => (paths, filter, entries_before),
    };
    let (about, worth_it) = match entries_before {
        0 => {
            let enough = inodes.div_ceil(PROMISE_WORTH_IT);
            let promised = promised_names(paths, filter, enough).map_err(|error| {
                format!("it cannot be told how many inodes are asked for: {error} ({by_inode})")
            })?;
            (promised, promised >= enough)
        }
        before => (before, before.saturating_mul(PART_WORTH_IT) >= inodes),
    };
    match worth_it {
        true => Ok(()),
        false => Err(format!(
            "only about {about} of {inodes} inodes are asked for ({by_inode})"
        )),
    }
}

fn walk(sources: &Sources, options: ScanOptions) -> Result<StartedScan> {
    let scanner = Scanner::start(sources, options).map_err(Failure::local("scan", "/"))?;
    Ok(StartedScan::new(scanner))
}

/// The one source, if it is a file or a block device.
fn image_source(sources: &Sources) -> Option<PathBuf> {
    let [path] = sources.paths() else {
        return None;
    };
    let kind = std::fs::metadata(path).ok()?.file_type();
    (kind.is_file() || kind.is_block_device()).then(|| path.clone())
}

fn scan_image(
    sources: &Sources,
    path: &Path,
    options: ScanOptions,
    monitor: &dyn Monitor,
) -> Result<StartedScan> {
    let began = std::time::Instant::now();
    let barrier = barrier_now();
    let guard = ImageStamp::of(path).map_err(Failure::local("look at", path))?;
    let image = Image::open(path, OpenedAs::Still).map_err(|error| {
        Failure::Other(format!(
            "read the file system in {}: {error}",
            path.display()
        ))
    })?;
    let image = Arc::new(image);
    let gathered = match gather(&image, path, Path::new(""), &options, monitor)? {
        Gather::Whole(gathered) => gathered,
        Gather::Unchanged(state) => {
            return Ok(StartedScan {
                guard: Some(guard),
                ..StartedScan::tables_unchanged(
                    filesystem(&image, path, state, barrier),
                    state,
                    monitor,
                )
            });
        }
    };
    let totals = gathered.totals();
    monitor.note(&format!(
        "inode scan of {}: {} with {} inodes, read from the device in {:.1} s",
        path.display(),
        image.kind(),
        totals.inodes(),
        began.elapsed().as_secs_f64()
    ));
    let context = MountContext {
        filesystem: filesystem(&image, path, gathered.state(), barrier),
        device: IMAGE_DEVICE,
        image_path: Some(without_slash(path)),
        barrier: None,
        changed: Arc::default(),
        handles: None,
    };
    Ok(StartedScan {
        expected: Some(totals.expected()),
        guard: Some(guard),
        ..emit_still(sources, image, &gathered, context, options, path)?
    })
}

/// The stream of what was gathered from a device or image that nobody writes to, and the way to
/// read all its small files.
pub(super) fn emit_still(
    sources: &Sources,
    image: Arc<Image>,
    gathered: &Gathered,
    context: MountContext,
    options: ScanOptions,
    path: &Path,
) -> Result<StartedScan> {
    let emit_options = EmitOptions::from(options);
    let start = |context| {
        ImageScanner::start(sources, gathered, context, &emit_options)
            .map_err(Failure::local("scan", path))
    };
    let scanner = start(context.clone())?;
    let ahead = Box::new(planned_reads(start(context)?));
    Ok(StartedScan {
        arranged: Some(
            Arranged::new(image, ahead, &emit_options.spill_directory).within(emit_options.memory),
        ),
        digests: Some(gathered.digests().clone()),
        state: Some(gathered.state()),
        ..StartedScan::new(scanner.ahead())
    })
}

/// Reads inode tables and directories of the file system on `path`, for a tree below `inside` of
/// it; tells how far it is.
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
        _ => Failure::local("read the inodes of", path)(error),
    })
}

/// Unless a file's size must be known to leave it out.
fn parent_digests(options: &ScanOptions) -> Option<ParentDigests> {
    let open = options.parent_digests.as_deref()?;
    match options.filter.limits_size() {
        true => None,
        false => open(),
    }
}

fn filesystem(image: &Image, mount: &Path, state: TablesState, opened: Time) -> Filesystem {
    let barrier = if image.was_never_mounted() {
        None
    } else if image.was_in_use() {
        // Its newest change tells when it was left, unless that is still to come.
        let left = Time {
            seconds: state
                .not_racy_from
                .seconds
                .saturating_sub(IN_USE_RACY_SECONDS),
            ..state.not_racy_from
        };
        (state.not_racy_from <= opened).then_some(left)
    } else {
        Some(opened)
    };
    Filesystem {
        uuid: super::filesystems::uuid_text(&image.uuid()),
        kind: image.kind().to_owned(),
        mount: PathText(mount.as_os_str().as_bytes().to_vec()),
        scanner: "image".to_owned(),
        barrier,
    }
}

fn without_slash(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_worth_reading_all_tables_when_it_is_known_or_promised_to_be_large() {
        let filter = Filter::default();
        let of = |entries| Part::Of(&[], &filter, entries);
        let never = |_: &[PathBuf], _: &Filter, _: u64| -> io::Result<u64> { panic!("not asked") };
        assert!(judge(INODES_WORTH_IT, Part::All, never).is_ok());
        assert!(judge(INODES_WORTH_IT - 1, Part::All, never).is_err());
        assert!(judge(1_000_000, of(250_000), never).is_ok());
        let why = judge(1_000_000, of(249_999), never).unwrap_err();
        assert!(why.contains("about 249999 of 1000000"), "{why}");
        for (promised, is_enough) in [(400_000, true), (333_334, true), (333_333, false)] {
            let judged = judge(1_000_000, of(0), |_, _, enough| {
                assert_eq!(enough, 333_334);
                Ok(promised)
            });
            assert_eq!(judged.is_ok(), is_enough, "{judged:?}");
        }
        let why = judge(1_000_000, of(0), |_, _, _| {
            Err(io::ErrorKind::TimedOut.into())
        });
        assert!(why.unwrap_err().contains("cannot be told"));
    }
}
