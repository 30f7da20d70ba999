//! Tracking of what changes on a block device of this machine, by programs in the kernel (eBPF):
//! begun, looked at, ended, and asked by a backup.
//!
//! The programs mark what is written (`program.rs`), are named in a file system of the kernel
//! (`pins.rs`), and so go on without any process, until they are stopped or the machine is. A
//! backup begins an epoch and reads what was marked since that of its parent (`epoch.rs`). Whatever
//! makes that doubtful is a reason to read everything.
//!
//! What is not seen: writes that do not go through the block layer of this kernel (commands that
//! are passed to a disk as they are, other machines at the same disk, a disk that changes itself),
//! and anything before the start.

mod assembler;
mod btf;
mod disk;
mod epoch;
mod pins;
mod program;

pub use btf::{Argument, KERNEL_TYPES_BYTES_MAX, KernelTypes, KernelTypesError, Tracepoint};
pub use epoch::EpochTracker;

use bale_pipeline::users::mounts_of_device;
use bale_sys::bpf;
use disk::DiskFacts;
use pins::{NewObjects, Pinned};
use program::{Arrays, Kernel, SECTOR_BYTES, TrackedRange};
use rustix::fs::makedev;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Longest device that is tracked: for each TiB the kernel has 8 MiB of marks, which stay in
/// memory.
pub const TRACKED_BYTES_MAX: u64 = 64 << 40;

const SYS: &str = "/sys";
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Why tracking cannot begin, end or be looked at.
#[derive(Debug, thiserror::Error)]
pub enum TrackingError {
    #[error("look at it: {0}")]
    Device(#[source] io::Error),
    #[error("it is no block device")]
    NoDevice,
    #[error("{0}")]
    Refused(String),
    #[error("it is tracked already, but not to be relied on: {0} (stop it, and start it again)")]
    Unreliable(String),
    #[error("{action}: {source}{}", advice_on(source))]
    Kernel {
        action: &'static str,
        source: io::Error,
    },
    #[error(
        "read the kernel's description of its types ({KERNEL_TYPES}): {0} (it takes Linux 5.15 or \
         newer, built with CONFIG_DEBUG_INFO_BTF)"
    )]
    TypesOfKernel(String),
}

fn advice_on(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (only root may, or who has CAP_BPF and CAP_PERFMON; a kernel in lockdown lets nobody)"
        }
        io::ErrorKind::AlreadyExists => {
            " (somebody else begins it just now, or was killed: stop removes what is left)"
        }
        io::ErrorKind::DirectoryNotEmpty => " (somebody else has just begun it: status shows it)",
        io::ErrorKind::ReadOnlyFilesystem => {
            " (who runs this, perhaps a container, may not change what is tracked: do it outside)"
        }
        _ => "",
    }
}

fn kernel(action: &'static str) -> impl Fn(io::Error) -> TrackingError {
    move |source| TrackingError::Kernel { action, source }
}

/// A device that is tracked.
#[derive(Clone, Debug)]
pub struct TrackingStatus {
    pub device: PathBuf,
    /// None: it is gone.
    pub len_bytes: Option<u64>,
    /// Seconds since 1970; unknown of what is not to be relied on.
    pub started: Option<i64>,
    /// Begun so far.
    pub epoch: u64,
    /// Marked since the newest epoch began, by blocks of an image.
    pub changed_bytes: u64,
    /// Events that were passed over; a backup after one reads everything.
    pub misses: u64,
    /// Memory of the kernel.
    pub marks_bytes: u64,
    /// Why the next backup reads everything, and all that follow until it is started again.
    pub trouble: Option<String>,
}

/// What was found when tracking was to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingStart {
    Begun,
    /// It is tracked, and goes on.
    WasThere,
}

/// Begins to track a device. `tracking_id` is random, and `seconds` the time.
pub fn start_tracking(
    path: &Path,
    tracking_id: u64,
    seconds: i64,
) -> Result<TrackingStart, TrackingError> {
    let facts = facts_of(path)?;
    if let Some(why) = facts.refusal() {
        return Err(TrackingError::Refused(why.to_owned()));
    }
    if facts.len_bytes() > TRACKED_BYTES_MAX {
        let text = format!("it is longer than {} TiB", TRACKED_BYTES_MAX >> 40);
        return Err(TrackingError::Refused(text));
    }
    if !bpf::can_wait_for_programs() {
        let text = "this kernel cannot wait for its programs (membarrier; booted with nohz_full?)";
        return Err(TrackingError::Refused(text.to_owned()));
    }
    pins::prepare().map_err(kernel("prepare /sys/fs/bpf"))?;
    if pins::exists(facts.device).map_err(kernel("look at /sys/fs/bpf"))? {
        let found = Pinned::open(facts.device);
        let trouble = found.map_or_else(Some, |pinned| epoch::mismatch(&pinned, &facts));
        return match trouble {
            None => Ok(TrackingStart::WasThere),
            Some(why) => Err(TrackingError::Unreliable(why)),
        };
    }
    let objects = load(&facts, tracking_id, seconds)?;
    pins::create(facts.device, &objects).map_err(kernel("attach its programs"))?;
    // What was submitted before the programs were there has ended by then, or is marked as it does.
    write_back(&facts);
    Ok(TrackingStart::Begun)
}

/// Arrays and programs of a device, which nobody calls yet.
fn load(facts: &DiskFacts, tracking_id: u64, seconds: i64) -> Result<NewObjects, TrackingError> {
    let bytes = read_types().map_err(|error| TrackingError::TypesOfKernel(error.to_string()))?;
    let of_types = |error: KernelTypesError| TrackingError::TypesOfKernel(error.to_string());
    let types = KernelTypes::parse(&bytes).map_err(of_types)?;
    let running = Kernel::of(&types).map_err(of_types)?;
    let sectors = facts.sectors.end - facts.sectors.start;
    let (blocks, stretches) = pins::entries(sectors);
    let array = |entries: u64, words: usize| {
        let entries = u32::try_from(entries).expect("of a device of bounded length");
        bpf::create_array(entries, words as u32).map_err(kernel("have memory for its marks"))
    };
    let control = array(1, program::CONTROL_WORDS)?;
    let blocks = array(blocks, 1)?;
    let stretches = array(stretches, 1)?;
    let shared = bpf::SharedWords::map(std::os::fd::AsFd::as_fd(&control));
    let shared = shared.map_err(kernel("share memory with the kernel"))?;
    let disk = u64::from(facts.disk.0) << 32 | u64::from(facts.disk.1);
    for (place, word) in [
        (program::EPOCH, 1),
        (program::TRACKING_ID, tracking_id),
        (program::DISK, disk),
        (program::DISK_SEQUENCE, facts.sequence),
        (program::FIRST_SECTOR, facts.sectors.start),
        (program::SECTORS, sectors),
        (program::STARTED, seconds as u64),
        (program::LAYOUT, program::LAYOUT_VERSION),
    ] {
        shared.words()[place].store(word, Ordering::SeqCst);
    }
    let range = TrackedRange {
        major: facts.disk.0,
        minor: facts.disk.1,
        sectors: facts.sectors.clone(),
    };
    let arrays = Arrays {
        control: control.as_raw_fd(),
        blocks: blocks.as_raw_fd(),
        stretches: stretches.as_raw_fd(),
    };
    let load = |instructions: Vec<u64>, id: u32| {
        let program = bpf::load_at_tracepoint(&instructions, id);
        program.map_err(kernel("load its programs into the kernel"))
    };
    let queued = load(running.queued_program(&range, arrays), running.queued.id)?;
    let ended = load(running.ended_program(&range, arrays), running.ended.id)?;
    let info = bpf::program_info(std::os::fd::AsFd::as_fd(&queued));
    info.map_err(kernel("ask what its programs miss"))?;
    Ok(NewObjects {
        control,
        blocks,
        stretches,
        programs: [queued, ended],
    })
}

fn read_types() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(KERNEL_TYPES)?;
    file.take(KERNEL_TYPES_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Ends tracking; false: it was not tracked. Of a device that is gone, its numbers are in the name
/// that its status has.
pub fn stop_tracking(path: &Path) -> Result<bool, TrackingError> {
    let device = device_of(path)?;
    pins::remove(device).map_err(kernel("remove its programs from /sys/fs/bpf"))
}

/// How a device is tracked; `None`: it is not.
pub fn tracking_status(path: &Path) -> Result<Option<TrackingStatus>, TrackingError> {
    let device = device_of(path)?;
    let look = kernel("look at /sys/fs/bpf");
    let is_there = pins::exists(device).map_err(look)? || pins::is_unfinished(device);
    Ok(is_there.then(|| status_of(device)))
}

/// All devices that are tracked.
pub fn tracked_devices() -> Result<Vec<TrackingStatus>, TrackingError> {
    let devices = pins::devices().map_err(kernel("look at /sys/fs/bpf"))?;
    Ok(devices.into_iter().map(status_of).collect())
}

fn status_of(device: (u32, u32)) -> TrackingStatus {
    let facts = DiskFacts::of(Path::new(SYS), makedev(device.0, device.1)).ok();
    let mut status = TrackingStatus {
        device: name_of(device),
        len_bytes: facts.as_ref().map(DiskFacts::len_bytes),
        started: None,
        epoch: 0,
        changed_bytes: 0,
        misses: 0,
        marks_bytes: 0,
        trouble: None,
    };
    let pinned = match Pinned::open(device) {
        Ok(pinned) => pinned,
        Err(why) => {
            status.trouble = Some(why);
            return status;
        }
    };
    status.started = Some(pinned.word(program::STARTED) as i64);
    status.epoch = pinned.word(program::EPOCH);
    status.misses = pinned.misses().unwrap_or(u64::MAX);
    let sectors = pinned.word(program::SECTORS);
    let (blocks, stretches) = pins::entries(sectors);
    status.marks_bytes = (blocks + stretches) * 8;
    let first = pinned.word(program::FIRST_SECTOR);
    let whole = first..first + sectors;
    let len = sectors * SECTOR_BYTES;
    let changed = epoch::changed_blocks(&pinned, &whole, status.epoch).unwrap_or_default();
    let lens = changed.iter().map(|range| range.end.min(len) - range.start);
    status.changed_bytes = lens.sum();
    status.trouble = match facts {
        None => Some("the device is gone".to_owned()),
        Some(facts) => epoch::mismatch(&pinned, &facts),
    };
    status
}

/// As `/dev` names it, or would.
fn name_of(device: (u32, u32)) -> PathBuf {
    let directory = format!("{SYS}/dev/block/{}:{}", device.0, device.1);
    let text = fs::read_to_string(Path::new(&directory).join("uevent")).unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    match name {
        Some(name) => Path::new("/dev").join(name),
        None => format!("/dev/block/{}:{}", device.0, device.1).into(),
    }
}

/// Begins an epoch for a backup of this device, or a part of it, after what is in memory alone was
/// written back; `None`: it is not tracked. To be called before anything of it is read, with an id
/// that no epoch had.
pub fn begin_epoch(path: &Path, epoch_id: u64) -> Option<EpochTracker> {
    let device = fs::metadata(path).ok();
    let device = device.filter(|meta| meta.file_type().is_block_device())?;
    let facts = DiskFacts::of(Path::new(SYS), device.rdev()).ok()?;
    for candidate in [facts.device, facts.disk] {
        match pins::exists(candidate) {
            // Who may not look does without.
            Ok(false) | Err(_) => continue,
            Ok(true) => {}
        }
        let number = makedev(candidate.0, candidate.1);
        let tracker = match DiskFacts::of(Path::new(SYS), number) {
            Err(error) => EpochTracker::of_nothing(error.to_string()),
            Ok(tracked) => {
                write_back(&facts);
                EpochTracker::begin(candidate, (&facts, &tracked), epoch_id)
            }
        };
        return Some(tracker);
    }
    None
}

/// Has what is in memory alone written: what programs wrote to the device or its partitions, and
/// file systems on them that are mounted. What cannot be is written later, and marked then.
fn write_back(facts: &DiskFacts) {
    let parts = match facts.device == facts.disk {
        true => facts.parts(),
        false => vec![facts.device],
    };
    for part in parts {
        for mount in mounts_of_device(makedev(part.0, part.1)) {
            if let Ok(mount) = File::open(mount) {
                let _written_later = rustix::fs::syncfs(mount);
            }
        }
        if let Ok(device) = File::open(name_of(part)) {
            let _written_later = device.sync_all();
        }
    }
}

fn facts_of(path: &Path) -> Result<DiskFacts, TrackingError> {
    let (major, minor) = device_of(path)?;
    DiskFacts::of(Path::new(SYS), makedev(major, minor)).map_err(TrackingError::Device)
}

/// Numbers of a device, also of one that is gone and is named by them (`/dev/block/8:0`).
fn device_of(path: &Path) -> Result<(u32, u32), TrackingError> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().and_then(|name| name.to_str());
            let numbers = name.and_then(|name| name.split_once(':'));
            let parsed = numbers.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            return parsed.ok_or(TrackingError::Device(error));
        }
        metadata => metadata.map_err(TrackingError::Device)?,
    };
    let number = metadata.rdev();
    match metadata.file_type().is_block_device() {
        true => Ok((rustix::fs::major(number), rustix::fs::minor(number))),
        false => Err(TrackingError::NoDevice),
    }
}
