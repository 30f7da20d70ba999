//! Which way to look: by inodes from the device where that is allowed and right, or by walking.

use super::device_copy;
use super::inode::{
    Digests, Frame, Gather, Gathered, IMAGE_DEVICE, ImageScanner, KnownInodes, TablesState, Way,
    planned_reads,
};
use super::mounted::{self, Mounted};
use super::{Problem, ScanItem, ScanMode, ScanOptions, Scanner, Sources, barrier_now};
use crate::error::{Error, Result};
use crate::image::{Image, State};
use crate::monitor::{Monitor, Phase, Progress};
use crate::read::Arranged;
use bale_format::entry::Time;
use bale_format::snapshot::{Filesystem, PathText, Totals};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A scan that has begun.
pub struct Chosen {
    /// The stream.
    pub items: Box<dyn Iterator<Item = ScanItem> + Send>,
    /// What the scan knows to be there, before a byte of content is read.
    pub expected: Option<Totals>,
    /// Notices when an image is written to while it is read.
    pub(super) guard: Option<Guard>,
    /// Reads all small files in the order of the device: for those who need them all.
    pub(super) arranged: Option<Arranged>,
    /// Must be looked at again.
    pub(super) mounted: Option<Mounted>,
    /// What the inode tables said, inode by inode.
    pub digests: Option<Arc<Digests>>,
    /// What the inode tables say as a whole, if they were read.
    pub state: Option<TablesState>,
    /// Nothing was changed since the snapshot that is compared with: the stream is empty, and this is its file system.
    pub as_known: Option<Filesystem>,
}

impl Chosen {
    pub(super) fn new(items: impl Iterator<Item = ScanItem> + Send + 'static) -> Chosen {
        Chosen {
            items: Box::new(items),
            expected: None,
            guard: None,
            arranged: None,
            mounted: None,
            digests: None,
            state: None,
            as_known: None,
        }
    }

    /// Nothing was changed.
    pub(super) fn as_known(
        filesystem: Filesystem,
        state: TablesState,
        monitor: &dyn Monitor,
    ) -> Chosen {
        let place = String::from_utf8_lossy(&filesystem.mount.0).into_owned();
        monitor.note(&format!(
            "inode scan of {place}: no inode was changed since the snapshot compared with"
        ));
        Chosen {
            state: Some(state),
            as_known: Some(filesystem),
            ..Chosen::new(std::iter::empty())
        }
    }

    /// Takes the way to read all small files at once.
    pub fn arranged(&mut self) -> Option<Arranged> {
        self.arranged.take()
    }

    /// Takes the mounted file system that must be looked at again after everything was read.
    pub fn mounted(&mut self) -> Option<Mounted> {
        self.mounted.take()
    }

    /// Takes what must be looked at again after everything was read.
    pub fn guard(&mut self) -> Option<Guard> {
        self.guard.take()
    }
}

/// How long the stamp of an image is waited for until no further write can leave the same one, and how often it is looked at.
const STAMP_WAIT_MAX: Duration = Duration::from_millis(2_100);
const STAMP_PAUSE: Duration = Duration::from_millis(5);

/// Of an image that was neither unmounted nor frozen, what had changed in this time before its newest change is read again by
/// the next backup: what is overwritten in place has its new time in the journal within seconds, and its bytes on the disk
/// when the kernel comes to it.
pub const IN_USE_DOUBT_SECONDS: i64 = 3_600;

/// What an image looked like before it was read.
pub struct Guard {
    path: PathBuf,
    before: Stamp,
}

#[derive(PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: Time,
    /// Writes to a device, whose times say nothing of them.
    writes: Option<[u64; 2]>,
}

impl Guard {
    /// Waits a little where the image was written to just now. One that is written to all the time is another one afterwards
    /// in any case.
    pub(super) fn of(path: &Path) -> io::Result<Guard> {
        let began = Instant::now();
        loop {
            let before = Stamp::of(path)?;
            if before.is_settled() || began.elapsed() > STAMP_WAIT_MAX {
                let path = path.to_path_buf();
                return Ok(Guard { path, before });
            }
            std::thread::sleep(STAMP_PAUSE);
        }
    }

    /// A problem, if the image is not what it was.
    pub fn check(&self) -> Option<Problem> {
        let error = match Stamp::of(&self.path) {
            Ok(now) if now == self.before => return None,
            Ok(_) => io::Error::other(
                "the image was written to while it was read: what was stored may belong to different moments",
            ),
            Err(error) => error,
        };
        Some(Problem {
            path: without_slash(&self.path),
            action: "read",
            error,
        })
    }
}

impl Stamp {
    fn is_settled(&self) -> bool {
        self.ctime.is_stamped_before(barrier_now())
    }

    fn of(path: &Path) -> io::Result<Stamp> {
        let metadata = std::fs::metadata(path)?;
        Ok(Stamp {
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
/// Where only a part of a file system is asked for, one inode of so many at least must be in it. Reading the tables takes about
/// a microsecond for each inode there is, walking takes several for each that is asked for.
const PART_WORTH_IT: u64 = 4;

/// Chooses and begins.
pub fn choose(sources: &Sources, options: ScanOptions, monitor: &dyn Monitor) -> Result<Chosen> {
    if let Some((source, device)) = sources.device_copy() {
        return device_copy::begin(sources, source, device, options, monitor);
    }
    match options.mode {
        ScanMode::Inode if !sources.read_at().is_empty() => Err(Error::Other(
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
                    |why: String| Error::Other(format!("--scan inode cannot be used: {why}"));
                let target = mounted::target(sources, &options).map_err(refuse)?;
                mounted::begin(sources, target, options, monitor).map_err(|error| match error {
                    Error::Interrupted => error,
                    error => refuse(error.to_string()),
                })
            }
        },
        ScanMode::Auto => by_itself(sources, options, monitor),
    }
}

/// By inodes where that is allowed and right; says in a line which it is, where there was a choice.
fn by_itself(sources: &Sources, options: ScanOptions, monitor: &dyn Monitor) -> Result<Chosen> {
    let walking = |why: &str| monitor.note(&format!("walking: {why}"));
    let target = match mounted::target(sources, &options) {
        Ok(target) => target,
        Err(why) => {
            walking(&why);
            return walk(sources, options);
        }
    };
    let whole = target.path_inside.as_os_str().is_empty();
    if let Err(why) = is_worth_it(target.directory.as_fd(), whole, options.entries_before) {
        walking(&why);
        return walk(sources, options);
    }
    let again = ScanOptions {
        filter: options.filter.clone(),
        left_out: options.left_out.clone(),
        spill_directory: options.spill_directory.clone(),
        freezer: options.freezer.clone(),
        known: options.known.clone(),
        known_inodes: options.known_inodes.clone(),
        ..options
    };
    match mounted::begin(sources, target, options, monitor) {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            walking(&error.to_string());
            walk(sources, again)
        }
        begun => begun,
    }
}

/// Reading all inode tables is right for all of a file system, and for a good part of it. How large a part is, is told by the
/// entries of an earlier snapshot of it; 0: there is none.
pub(super) fn is_worth_it(
    directory: BorrowedFd<'_>,
    whole: bool,
    entries_before: u64,
) -> std::result::Result<(), String> {
    let stat = rustix::fs::fstatvfs(directory).map_err(|errno| errno.to_string())?;
    let inodes = stat.f_files.saturating_sub(stat.f_ffree);
    judge(inodes, whole, entries_before)
}

fn judge(inodes: u64, whole: bool, entries_before: u64) -> std::result::Result<(), String> {
    let by_inode = "--scan inode reads it by inodes all the same";
    if inodes < INODES_WORTH_IT {
        return Err(format!("there are only {inodes} inodes"));
    }
    if whole || entries_before.saturating_mul(PART_WORTH_IT) >= inodes {
        return Ok(());
    }
    Err(match entries_before {
        0 => format!("only a part of the file system is asked for ({by_inode})"),
        few => format!("only about {few} of {inodes} inodes are asked for ({by_inode})"),
    })
}

fn walk(sources: &Sources, options: ScanOptions) -> Result<Chosen> {
    let scanner = Scanner::start(sources, options).map_err(Error::local("scan", "/"))?;
    Ok(Chosen::new(scanner))
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
) -> Result<Chosen> {
    let began = std::time::Instant::now();
    let barrier = barrier_now();
    let guard = Guard::of(path).map_err(Error::local("look at", path))?;
    let image = Image::open(path, State::Still).map_err(|error| {
        Error::Other(format!(
            "read the file system in {}: {error}",
            path.display()
        ))
    })?;
    let image = Arc::new(image);
    let gathered = match gather(&image, path, Path::new(""), &options, monitor)? {
        Gather::Whole(gathered) => gathered,
        Gather::AsKnown(state) => {
            return Ok(Chosen {
                guard: Some(guard),
                ..Chosen::as_known(filesystem(&image, path, state, barrier), state, monitor)
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
    let frame = Frame {
        filesystem: filesystem(&image, path, gathered.state(), barrier),
        device: IMAGE_DEVICE,
        image_path: Some(without_slash(path)),
        barrier: None,
        changed: Arc::default(),
        handles: None,
    };
    Ok(Chosen {
        expected: Some(totals.expected()),
        guard: Some(guard),
        ..emit_still(sources, image, &gathered, frame, options, path)?
    })
}

/// The stream of what was gathered from a device or image that nobody writes to, and the way to read all its small files.
pub(super) fn emit_still(
    sources: &Sources,
    image: Arc<Image>,
    gathered: &Gathered,
    frame: Frame,
    options: ScanOptions,
    path: &Path,
) -> Result<Chosen> {
    let way = Way::from(options);
    let start = |frame| {
        ImageScanner::start(sources, gathered, frame, &way).map_err(Error::local("scan", path))
    };
    let scanner = start(frame.clone())?;
    let ahead = Box::new(planned_reads(start(frame)?));
    Ok(Chosen {
        arranged: Some(Arranged::new(image, ahead, &way.spill_directory)),
        digests: Some(gathered.digests().clone()),
        state: Some(gathered.state()),
        ..Chosen::new(scanner.ahead())
    })
}

/// Reads inode tables and directories of the file system on `path`, for a tree below `inside` of it; tells how far it is.
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
        known_inodes(options),
        inside,
        &options.spill_directory,
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
        io::ErrorKind::Interrupted => Error::Interrupted,
        _ => Error::local("read the inodes of", path)(error),
    })
}

/// Unless a file's size must be known to leave it out.
fn known_inodes(options: &ScanOptions) -> Option<KnownInodes> {
    let open = options.known_inodes.as_deref()?;
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
            seconds: state.settles.seconds.saturating_sub(IN_USE_DOUBT_SECONDS),
            ..state.settles
        };
        (state.settles <= opened).then_some(left)
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
    fn a_part_is_worth_reading_all_tables_when_it_is_known_to_be_large() {
        assert!(judge(INODES_WORTH_IT, true, 0).is_ok());
        assert!(judge(INODES_WORTH_IT - 1, true, 0).is_err());
        assert!(judge(1_000_000, false, 250_000).is_ok());
        for (entries, word) in [(0, "only a part"), (249_999, "about 249999 of 1000000")] {
            let why = judge(1_000_000, false, entries).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
