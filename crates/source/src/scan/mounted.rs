//! An inode scan of a mounted file system: a barrier, the scan, everything read; then another
//! barrier, and a look at what is not as it was.
//!
//! What was true at the first barrier and is unchanged at the second was read right, whatever
//! happened in between to other files: the device holds all that was written before a freeze, and
//! an inode that is equal byte by byte (but for the access time) and whose times are older than the
//! first barrier was not touched since. All else is asked of the kernel: at once, what was younger
//! than the barrier when it was scanned; in a second pass, what changed later.
//!
//! Where it may not be frozen, ext4 still says on its device what there is, because its inodes and
//! directories lie in the page cache of the device; of XFS the kernel lists the inodes, and the
//! directories by inode. Then all content is read through the kernel, which can wait for writers
//! file by file. What is known to be there is as right as with a freeze, and what is in it as right
//! as by walking (docs/decisions/0016, 0017).

use super::filesystems::describe;
use super::freeze::{Barrier, BarrierKind, FreezeLimits, Freezer};
use super::handle::{FileHandles, Handles};
use super::identity::identity_of;
use super::inode::{EmitOptions, Gather, Gathered, ImageScanner, InodeTotals, MountContext};
use super::live::{ClockSteps, LiveKind, LiveTarget};
use super::started::{
    Emitter, InodeScan, LookAgain, ScanItems, StartedScan, UnchangedTables, gather, nobody_asked,
};
use super::statx::{Atime, mount_of, stat_at};
use super::{ScanOptions, Scanner, Sources, barrier_now};
use crate::image::{Image, ImageError, OpenedAs};
use bale_format::entry::Time;
use bale_format::snapshot::Filesystem;
use bale_fsimage::xfs::LogPlace;
use bale_pipeline::error::{Failure, Result};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::Monitor;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Inodes that changed during a scan and are remembered one by one, with the usual ceiling of
/// memory. Of more, everything is walked.
const CHANGED_MAX: usize = 2 << 20;

const fn changed_max(memory: &MemoryPlan) -> usize {
    memory.inode_share(CHANGED_MAX)
}

/// Memory for them.
pub const fn changed_bytes(memory: &MemoryPlan) -> usize {
    changed_max(memory) * size_of::<u64>()
}

/// What tests leave out, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// How the barriers are made.
    pub barrier: BarrierKind,
    /// Inodes are looked at again after the second barrier.
    pub verify: bool,
    /// What is younger than the first barrier is read through the kernel, and again by the next
    /// backup.
    pub respect_t0: bool,
    /// Content is read past the page cache.
    pub direct: bool,
    /// Files that are kept in memory are read again by every backup.
    pub memory_is_racy: bool,
}

impl Default for Protocol {
    fn default() -> Protocol {
        Protocol {
            barrier: BarrierKind::Freeze,
            verify: true,
            respect_t0: true,
            direct: true,
            memory_is_racy: true,
        }
    }
}

/// An inode scan of a mounted file system; needs a second look when everything was read.
pub struct MountedScan {
    gathered: Gathered,
    fixed: Fixed,
    context: MountContext,
    emit_options: EmitOptions,
    target: LiveTarget,
    clock: ClockSteps,
    protocol: Protocol,
}

/// What a second look showed.
pub enum SecondLook {
    /// All that was read is right.
    Still,
    /// This is what there is now: compared with what was stored, it tells what is to be read again.
    Changed {
        /// The whole stream once more, the changed parts of it by the kernel.
        items: ScanItems,
        /// Which inodes, sorted.
        changed: Arc<Vec<u64>>,
        /// Says of an inode whether it is still there.
        handles: Option<Arc<FileHandles>>,
    },
    /// Nothing that was read without the kernel can be trusted: this is a walk.
    Unsure {
        /// The walk.
        items: ScanItems,
        why: String,
    },
}

/// How the moment of a scan was fixed.
struct Fixed {
    /// `None`: nothing can be written, or it was not frozen.
    freezer: Option<Freezer>,
    /// What is younger may not be what was scanned.
    t0: Time,
    /// Writes may be under way: content is read through the kernel.
    unfrozen: bool,
    /// A place in the log of the file system before that moment.
    log: Option<LogPlace>,
}

impl Fixed {
    fn now(
        target: &LiveTarget,
        options: &ScanOptions,
        monitor: &dyn Monitor,
    ) -> std::result::Result<Fixed, String> {
        let command = match &options.freezer {
            _ if target.read_only => {
                return Ok(Fixed {
                    freezer: None,
                    t0: barrier_now(),
                    unfrozen: false,
                    log: None,
                });
            }
            None => return Fixed::unfrozen(target),
            Some(command) => command,
        };
        // What is changed from now on is told behind it.
        let log = match options.protocol.barrier {
            BarrierKind::Freeze => log_place(target),
            _ => None,
        };
        let frozen = Freezer::start(command, target.directory.as_fd(), FreezeLimits::default())
            .and_then(|mut freezer| {
                let barrier = freezer.barrier(options.protocol.barrier)?;
                Ok((freezer, barrier))
            });
        match frozen {
            Ok((freezer, barrier)) => Ok(Fixed {
                freezer: Some(freezer),
                t0: barrier.t0_coarse,
                unfrozen: false,
                log,
            }),
            Err(error) if error.is_refusal() => {
                monitor.note(&error.to_string());
                Fixed::unfrozen(target)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn unfrozen(target: &LiveTarget) -> std::result::Result<Fixed, String> {
        let t0 = barrier_now();
        write_back(target)?;
        Ok(Fixed {
            freezer: None,
            t0,
            unfrozen: true,
            log: None,
        })
    }

    /// For the snapshot: what is younger is read again by the next backup.
    fn barrier(&self, protocol: Protocol) -> Time {
        let margin = if self.unfrozen {
            crate::scan::UNSEEN_WRITE_SECONDS_MAX
        } else {
            0
        };
        match protocol.respect_t0 {
            true => Time {
                seconds: self.t0.seconds - margin,
                ..self.t0
            },
            false => LAST_TIME,
        }
    }
}

/// Where the log of an XFS is now. The file system is opened once more behind the barrier.
fn log_place(target: &LiveTarget) -> Option<LogPlace> {
    match target.kind {
        LiveKind::Xfs => {
            let image = Image::open(target.device_path(), OpenedAs::Mounted).ok()?;
            image.log()?.place()
        }
        LiveKind::Ext4 => None,
    }
}

/// Brings to the device what is kept back: the lengths of files that wait for their blocks, and
/// times (`lazytime`). The kernel, asked for all inodes of an XFS, tells the lengths that the
/// device has.
fn write_back(target: &LiveTarget) -> std::result::Result<(), String> {
    rustix::fs::syncfs(&target.directory).map_err(|errno| format!("write it back: {errno}"))
}

/// Begins; an error of the kind [`Failure::Other`] says why it must be walked.
pub(super) fn begin(
    sources: &Sources,
    target: LiveTarget,
    options: ScanOptions,
    monitor: &dyn Monitor,
) -> Result<StartedScan> {
    let began = std::time::Instant::now();
    let protocol = options.protocol;
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let clock = ClockSteps::watch().map_err(|error| other(&error))?;
    let fixed = Fixed::now(&target, &options, monitor).map_err(Failure::Other)?;
    let atime = Atime::taken_if(options.with_atime);
    let image = open_image(&target, fixed.unfrozen, atime)?;
    let image = Arc::new(image.reading(protocol.direct));
    let barrier = fixed.barrier(protocol);
    let filesystem = described(&target, barrier).map_err(|errno| other(&errno))?;
    // Without a freeze hardly a row is old enough to be kept, so most inodes would be read twice.
    let options = ScanOptions {
        parent_digests: options.parent_digests.filter(|_| !fixed.unfrozen),
        ..options
    };
    let (device, inside) = (target.device_path(), target.places_inside());
    let gathered = match gather(&image, device, &inside, &options, monitor)? {
        Gather::Whole(gathered) => *gathered,
        Gather::Few(_) | Gather::Much => return Err(nobody_asked()),
        Gather::Unchanged(state) => {
            let tables = UnchangedTables {
                filesystem,
                state,
                stamp: None,
            };
            return Ok(StartedScan::tables_unchanged(tables, monitor));
        }
    };
    let totals = gathered.totals();
    note_inodes(&target, &image, &totals, (began, fixed.unfrozen), monitor);
    let barrier = Some(barrier).filter(|_| !fixed.unfrozen);
    let context = context_of(&target, filesystem, barrier);
    let emit_options = EmitOptions::from(options);
    let whole = target.path_inside.as_os_str().is_empty();
    let emitter = Emitter {
        sources,
        gathered: &gathered,
        context: &context,
        options: &emit_options,
        path: &target.mount_point,
    };
    let arranged = match fixed.unfrozen {
        true => None,
        false => Some(emitter.arranged()?),
    };
    Ok(StartedScan::Inodes(Box::new(InodeScan {
        expected: whole.then(|| totals.expected()),
        arranged,
        items: emitter.stream()?,
        digests: gathered.digests().clone(),
        state: gathered.state(),
        look_again: LookAgain::Mounted(Box::new(MountedScan {
            gathered,
            fixed,
            context,
            emit_options,
            target,
            clock,
            protocol,
        })),
    })))
}

/// The mounted file system as the scan of its inodes has to know it.
fn context_of(target: &LiveTarget, filesystem: Filesystem, barrier: Option<Time>) -> MountContext {
    MountContext {
        filesystem,
        device: target.device,
        image_path: None,
        barrier,
        changed: Arc::default(),
        handles: target.directory.try_clone().ok().map(|directory| {
            let handles = Handles::new(directory, target.kind);
            Arc::new(FileHandles::new(target.device, handles))
        }),
    }
}

/// Says what was read of the inodes, of what, how and how long.
fn note_inodes(
    target: &LiveTarget,
    image: &Image,
    totals: &InodeTotals,
    (began, unfrozen): (std::time::Instant, bool),
    monitor: &dyn Monitor,
) {
    monitor.note(&format!(
        "inode scan of {} ({} with {} inodes, {} in {:.1} s{})",
        target.mount_point.display(),
        image.facts().kind,
        totals.inodes(),
        match image.names().bulkstat() {
            Some(_) => "listed by the kernel",
            None => "read from its device",
        },
        began.elapsed().as_secs_f64(),
        match unfrozen {
            true => "; not frozen: content is read through the kernel",
            false => "",
        }
    ));
}

/// Opens the source of inodes and names: the device, or XFS bulkstat if the file system was not
/// frozen.
fn open_image(target: &LiveTarget, unfrozen: bool, atime: Atime) -> Result<Image> {
    let path = target.device_path();
    let image = if unfrozen && target.kind == LiveKind::Xfs {
        let directory = target.directory.try_clone();
        directory
            .map_err(|source| ImageError::Open {
                path: target.mount_point.display().to_string(),
                source,
            })
            .and_then(|directory| Image::from_bulkstat(path, directory, target.uuid, atime))
    } else {
        let opened = Image::open(path, OpenedAs::Mounted);
        opened.map(|image| image.keeping_atimes(atime == Atime::Taken))
    };
    let image = image.map_err(|error| Failure::Other(error.to_string()))?;
    match image.facts().uuid == target.uuid {
        true => Ok(image),
        false => Err(Failure::Other(
            "its device holds another file system".to_owned(),
        )),
    }
}

fn described(target: &LiveTarget, barrier: Time) -> rustix::io::Result<Filesystem> {
    let directory = target.directory.as_fd();
    let stat = stat_at(directory, c".")?;
    let device = identity_of(&stat).device;
    Ok(Filesystem {
        scanner: "inode".to_owned(),
        ..describe(device, mount_of(&stat), directory, c".", barrier)
    })
}

/// Later than any time of a file.
const LAST_TIME: Time = Time {
    seconds: i64::MAX,
    nanos: 0,
};

impl MountedScan {
    /// Looks again, after everything was read.
    pub fn look_again(mut self, sources: &Sources) -> Result<SecondLook> {
        if !self.protocol.verify {
            return Ok(SecondLook::Still);
        }
        let changed = match self.changed() {
            Ok(changed) if changed.is_empty() => return Ok(SecondLook::Still),
            Ok(changed) => changed,
            Err(why) => {
                let options = ScanOptions {
                    filter: bale_pipeline::filter::Filter::default(),
                    one_file_system: self.emit_options.one_file_system,
                    left_out: self.emit_options.left_out.clone(),
                    with_atime: self.gathered.image().atime() == Atime::Taken,
                    spill_directory: self.emit_options.spill_directory.clone(),
                    memory: self.emit_options.memory,
                    protocol: self.protocol,
                    ..ScanOptions::default()
                };
                let walk = Scanner::start_with(sources, options, self.emit_options.filter.clone());
                let walk = walk.map_err(Failure::local("scan", &self.target.mount_point))?;
                return Ok(SecondLook::Unsure {
                    items: Box::new(walk),
                    why,
                });
            }
        };
        let changed = Arc::new(changed);
        self.context.changed = changed.clone();
        // Nobody looks once more at what is read from now on: a file that has another path, and did
        // not change itself, may be moved on the device while it is read. The kernel knows where it
        // is.
        self.context.barrier = None;
        let handles = self.context.handles.clone();
        let scanner =
            ImageScanner::start(sources, &self.gathered, self.context, &self.emit_options);
        Ok(SecondLook::Changed {
            items: Box::new(scanner.map_err(Failure::local("scan", &self.target.mount_point))?),
            changed,
            handles,
        })
    }

    /// Inodes that changed during the scan, and directories that may have.
    fn changed(&mut self) -> std::result::Result<Vec<u64>, String> {
        if let Some(freezer) = &mut self.fixed.freezer {
            let barrier: std::result::Result<Barrier, _> = freezer.barrier(self.protocol.barrier);
            barrier.map_err(|error| error.to_string())?;
        }
        if self.fixed.unfrozen {
            write_back(&self.target)?;
        }
        self.target.check_again().map_err(|why| why.to_string())?;
        if self.clock.seen() {
            return Err("the clock was changed during the scan".to_owned());
        }
        let image = self.gathered.image();
        let logged = self
            .fixed
            .log
            .and_then(|place| image.log()?.inodes_since(place));
        let changed_max = changed_max(&self.emit_options.memory);
        let changed = self
            .gathered
            .changed_inodes(self.fixed.t0, logged.as_deref(), changed_max);
        match changed {
            Ok(Some(changed)) => Ok(changed),
            Ok(None) => Err(format!(
                "more than {changed_max} inodes changed during the scan"
            )),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// May this mounted directory be scanned by inodes? Otherwise a sentence says why not.
pub(super) fn target(
    sources: &Sources,
    options: &ScanOptions,
) -> std::result::Result<LiveTarget, String> {
    let [path, others @ ..] = sources.paths() else {
        return Err("there is no source".to_owned());
    };
    if !rustix::process::geteuid().is_root() {
        return Err("reading a device takes root".to_owned());
    }
    let find = |path| {
        super::live::live_target(path, &options.spill_directory).map_err(|why| why.to_string())
    };
    let mut first = find(path)?;
    let mut below = first.mounts_below.first().cloned();
    for other in others {
        let other = find(other)?;
        if other.device != first.device {
            return Err("the sources are on several file systems".to_owned());
        }
        first.others_inside.push(other.path_inside);
        below = below.or(other.mounts_below.into_iter().next());
    }
    match below {
        None => Ok(first),
        Some(below) => Err(format!(
            "something is mounted below it ({}): a file system of its own, or another directory of \
             this one",
            below.display()
        )),
    }
}
