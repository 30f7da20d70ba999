//! Inode scan of a source that is an image: a file or a block device that holds a file system.
//!
//! It is read whole, as if it were mounted at its own path. Nobody should write to it meanwhile;
//! its stamp notices. This module does not read storage snapshots of what is mounted elsewhere
//! ([`super::device_copy`]).

use super::image_stamp::{ImageStamp, without_slash};
use super::inode::{EmitOptions, Gather, IMAGE_DEVICE, MountContext, TablesState};

use super::started::{
    Emitter, InodeScan, LookAgain, StartedScan, UnchangedTables, gather, nobody_asked,
};
use super::{ScanOptions, Sources, barrier_now};
use crate::image::{Image, OpenedAs};
use bale_format::entry::Time;
use bale_format::snapshot::{Filesystem, PathText};
use bale_pipeline::error::{Failure, Result};
use bale_pipeline::monitor::Monitor;
use bale_pipeline::users::{mount_of_device, writer_of_image};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Of an image that was neither unmounted nor frozen, what had changed in this time before its
/// newest change is read again by the next backup: what is overwritten in place has its new time in
/// the journal within seconds, and its bytes on the disk when the kernel comes to it.
pub const IN_USE_RACY_SECONDS: i64 = 3_600;

/// The one source, if it is a file or a block device.
pub(super) fn find(sources: &Sources) -> Option<PathBuf> {
    let [path] = sources.paths() else {
        return None;
    };
    let kind = std::fs::metadata(path).ok()?.file_type();
    (kind.is_file() || kind.is_block_device()).then(|| path.clone())
}

/// Begins to scan the image that is the source.
pub(super) fn begin(
    sources: &Sources,
    path: &Path,
    options: ScanOptions,
    monitor: &dyn Monitor,
) -> Result<StartedScan> {
    let began = Instant::now();
    refuse_mounted(path)?;
    let barrier = barrier_now();
    let stamp = ImageStamp::of(path).and_then(ImageStamp::with_users);
    let stamp = stamp.map_err(Failure::local("look at", path))?;
    let image = Image::open(path, OpenedAs::Still).map_err(|error| {
        Failure::Other(format!(
            "read the file system in {}: {error} (ext2/3/4 and XFS without partitions can be read \
             so; --image backs up anything)",
            path.display()
        ))
    })?;
    let image = Arc::new(image.keeping_atimes(options.with_atime));
    let gathered = match gather(&image, path, Path::new(""), &options, monitor)? {
        Gather::Whole(gathered) => gathered,
        Gather::Few(_) | Gather::Much => return Err(nobody_asked()),
        Gather::Unchanged(state) => {
            let tables = UnchangedTables {
                filesystem: filesystem(&image, path, state, barrier),
                state,
                stamp: Some(stamp),
            };
            return Ok(StartedScan::tables_unchanged(tables, monitor));
        }
    };
    let totals = gathered.totals();
    monitor.note(&format!(
        "inode scan of {}: {} with {} inodes, read from the device in {:.1} s",
        path.display(),
        image.facts().kind,
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
    let emitter = Emitter {
        sources,
        gathered: &gathered,
        context: &context,
        options: &EmitOptions::from(options),
        path,
    };
    Ok(StartedScan::Inodes(Box::new(InodeScan {
        expected: Some(totals.expected()),
        arranged: Some(emitter.arranged()?),
        items: emitter.stream()?,
        digests: gathered.digests().clone(),
        state: gathered.state(),
        look_again: LookAgain::Image(stamp),
    })))
}

/// What is mounted changes, and the kernel keeps what is new from the image for a while.
fn refuse_mounted(path: &Path) -> Result<()> {
    let meta = std::fs::metadata(path).map_err(Failure::local("look at", path))?;
    let own = match meta.file_type().is_block_device() {
        true => mount_of_device(meta.rdev()),
        false => None,
    };
    let (what, place) = match (own, writer_of_image(&meta)) {
        (Some(place), _) => (path.display().to_string(), place),
        (None, Some((device, place))) => {
            let text = format!(
                "{} is what {} shows, which",
                path.display(),
                device.display()
            );
            (text, place)
        }
        (None, None) => return Ok(()),
    };
    let place = place.display();
    Err(Failure::Other(format!(
        "{what} is mounted at {place}: what it holds changes, and is written to it later. Back up \
         {place} instead, or unmount it first"
    )))
}

pub(super) fn filesystem(
    image: &Image,
    mount: &Path,
    state: TablesState,
    opened: Time,
) -> Filesystem {
    let barrier = if image.facts().was_never_mounted {
        None
    } else if image.facts().was_in_use {
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
        uuid: match (image.facts().kind, image.facts().uuid.first_chunk()) {
            // As other programs write it.
            ("ntfs", Some(serial)) => format!("{:016X}", u64::from_be_bytes(*serial)),
            _ => super::filesystems::uuid_text(&image.facts().uuid),
        },
        kind: image.facts().kind.to_owned(),
        mount: PathText(mount.as_os_str().as_bytes().to_vec()),
        scanner: "image".to_owned(),
        barrier,
    }
}
