//! Inode scan of a storage snapshot that is a block device: read like an image, recorded as the
//! file system it is a snapshot of.
//!
//! The scan goes down from `/` as ever. Where it comes to the file system that the source is on, it
//! takes what the device says instead, from its root directory on: inode numbers are the same.
//! Nothing writes to the device, so there is no second look, and the kernel knows nothing of it
//! that could be asked.

use super::filesystems::{describe, uuid_text};
use super::identity::identity_of;
use super::image_stamp::ImageStamp;
use super::inode::{EmitOptions, Gather, MountContext};
use super::live::MountOf;
use super::started::{
    Emitter, InodeScan, LookAgain, StartedScan, UnchangedTables, gather, nobody_asked,
};
use super::statx::{mount_of, stat_at};
use super::{ScanOptions, Sources, barrier_now};
use crate::image::{Image, OpenedAs};
use bale_format::entry::Time;
use bale_format::snapshot::Filesystem;
use bale_pipeline::error::{Failure, Result};
use bale_pipeline::monitor::Monitor;
use rustix::fs::CWD;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Kinds of file systems that are read from a device.
const KINDS: [&str; 4] = ["ext2", "ext3", "ext4", "xfs"];

/// Is a file system of this kind, as the table of mounts calls it, read from a device?
pub(super) fn is_read_from_device(kind: &str) -> bool {
    KINDS.contains(&kind)
}

/// What the snapshot is of: device number, and how it is described.
struct Original {
    device: u64,
    filesystem: Filesystem,
}

impl Original {
    fn of(source: &Path, barrier: Time) -> io::Result<Original> {
        let directory = std::fs::File::open(source)?;
        let stat = stat_at(&directory, c".")?;
        let device = identity_of(&stat).device;
        let described = describe(device, mount_of(&stat), directory.as_fd(), c".", barrier);
        Ok(Original {
            device,
            filesystem: Filesystem {
                scanner: "inode".to_owned(),
                ..described
            },
        })
    }

    /// A device with another file system is a mistake of who named it.
    fn open(&self, device: &Path) -> std::result::Result<Image, String> {
        let image = Image::open(device, OpenedAs::Still).map_err(|error| error.to_string())?;
        let (told, expected) = (uuid_text(&image.facts().uuid), &self.filesystem.uuid);
        // A kernel may know none.
        match told == *expected || expected.is_empty() || expected.starts_with("fsid-") {
            true => Ok(image),
            false => Err("it holds another file system than the source is on".to_owned()),
        }
    }
}

/// Can the source be read from this device? Otherwise a sentence says why not.
pub(super) fn check(source: &Path, device: &Path) -> std::result::Result<(), String> {
    let original = Original::of(source, Time::default()).map_err(|error| error.to_string())?;
    original.open(device).map(drop)
}

/// By name nothing is found in the file system behind a mount that begins on the way to the source,
/// from the first directory of its file system on.
fn check_way(source: &Path, device: u64) -> std::result::Result<(), String> {
    let mut first = None;
    let mut ancestors: Vec<_> = source.ancestors().collect();
    ancestors.reverse();
    for path in ancestors {
        let stat = CString::new(path.as_os_str().as_bytes())
            .map_err(io::Error::from)
            .and_then(|name| Ok(stat_at(CWD, &name)?))
            .map_err(|error| format!("look at {}: {error}", path.display()))?;
        let mount = mount_of(&stat);
        match first {
            None if identity_of(&stat).device == device => first = Some(mount),
            Some(first) if first != mount => {
                return Err(format!(
                    "the way to {} leads through {}, where a directory of the same file system is \
                     mounted: back it up by its path in that file system",
                    source.display(),
                    path.display()
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Begins to scan `device` for the one source.
pub(super) fn begin(
    sources: &Sources,
    source: &Path,
    device: &Path,
    options: ScanOptions,
    monitor: &dyn Monitor,
) -> Result<StartedScan> {
    let began = std::time::Instant::now();
    let barrier = options.barrier.unwrap_or_else(barrier_now);
    let stamp = ImageStamp::of(device).map_err(Failure::local("look at", device))?;
    let original = Original::of(source, barrier).map_err(Failure::local("look at", source))?;
    let refused = |why| Failure::Other(format!("read the snapshot in {}: {why}", device.display()));
    let image = original.open(device).map_err(refused)?;
    let image = Arc::new(image.keeping_atimes(options.with_atime));
    let mount = MountOf::directory(source).map_err(Failure::local("look at", source))?;
    check_way(source, original.device).map_err(refused)?;
    let gathered = match gather(&image, device, &mount.path_inside, &options, monitor)? {
        Gather::Whole(gathered) => *gathered,
        Gather::Few(_) | Gather::Much => return Err(nobody_asked()),
        Gather::Unchanged(state) => {
            let tables = UnchangedTables {
                filesystem: original.filesystem,
                state,
                stamp: Some(stamp),
            };
            return Ok(StartedScan::tables_unchanged(tables, monitor));
        }
    };
    if !gathered
        .has_path(&mount.path_inside)
        .map_err(Failure::local("look for the source in", device))?
    {
        return Err(refused(format!("{} is not in it", source.display())));
    }
    let totals = gathered.totals();
    monitor.note(&format!(
        "inode scan of the snapshot of {} ({} with {} inodes, read from {} in {:.1} s)",
        mount.point.display(),
        image.facts().kind,
        totals.inodes(),
        device.display(),
        began.elapsed().as_secs_f64()
    ));
    let context = MountContext {
        filesystem: original.filesystem,
        device: original.device,
        image_path: None,
        barrier: None,
        changed: Arc::default(),
        handles: None,
    };
    let emitter = Emitter {
        sources,
        gathered: &gathered,
        context: &context,
        options: &EmitOptions::from(options),
        path: device,
    };
    let whole = mount.path_inside.as_os_str().is_empty();
    Ok(StartedScan::Inodes(Box::new(InodeScan {
        expected: whole.then(|| totals.expected()),
        arranged: Some(emitter.arranged()?),
        items: emitter.stream()?,
        digests: gathered.digests().clone(),
        state: gathered.state(),
        look_again: LookAgain::Image(stamp),
    })))
}
