//! Inode scan of the file system in a part of an image that is backed up as it is.
//!
//! It is read whole, as a directory of a name that is given, below the root. Nothing writes to the
//! image, which is for the caller to know.

use super::image_source::filesystem;
use super::inode::{
    Digests, EmitOptions, FewChanged, Gather, IMAGE_DEVICE, ImageScanner, InodeTotals,
    MountContext, ParentDigests,
};
use super::started::{ScanItems, gather};
use super::{OpenParentDigests, ScanOptions, barrier_now};
use crate::image::Image;
use bale_format::snapshot::Filesystem;
use bale_pipeline::error::{Failure, Result};
use bale_pipeline::monitor::Monitor;
use bytes::Bytes;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// What there is, before a byte of content is read.
pub struct PartScan {
    /// The stream, in the order of the catalog. Its first entry is the directory of the name that
    /// was given, and all are found in the image.
    pub items: ScanItems,
    pub filesystem: Filesystem,
    pub totals: InodeTotals,
    /// What the inode tables said, for the next scan.
    pub digests: Arc<Digests>,
}

/// The inodes that changed, where they are few and that was asked for
/// ([`ParentDigests::noting_changes`]).
///
/// [`ParentDigests::noting_changes`]: super::inode::ParentDigests::noting_changes
pub struct PartFew {
    pub filesystem: Filesystem,
    pub changed: FewChanged,
}

/// What there is, or what of it changed.
pub enum PartFound {
    Whole(PartScan),
    Few(PartFew),
}

impl PartScan {
    /// Reads inode tables and directories. Of the options count memory, the directory for temporary
    /// files, what keys digests, and those of the parent.
    pub fn start(
        image: &Arc<Image>,
        name: &Bytes,
        options: ScanOptions,
        monitor: &dyn Monitor,
    ) -> Result<PartFound> {
        let shown = [b"/", &name[..]].concat();
        let place = Path::new(OsStr::from_bytes(&shown));
        let gather = |options: &ScanOptions| gather(image, place, Path::new(""), options, monitor);
        let mut options = options;
        let mut found = gather(&options)?;
        if matches!(found, Gather::Much) {
            options.parent_digests = options.parent_digests.map(of_everything);
            found = gather(&options)?;
        }
        let gathered = match found {
            Gather::Whole(gathered) => gathered,
            Gather::Few(changed) => {
                let filesystem = filesystem(image, place, changed.state, barrier_now());
                return Ok(PartFound::Few(PartFew {
                    filesystem,
                    changed: FewChanged::of(*changed),
                }));
            }
            Gather::Unchanged(_) | Gather::Much => {
                return Err(Failure::Other("nothing to compare tables with".to_owned()));
            }
        };
        let filesystem = filesystem(image, place, gathered.state(), barrier_now());
        let context = MountContext {
            filesystem: filesystem.clone(),
            device: IMAGE_DEVICE,
            image_path: None,
            barrier: None,
            changed: Arc::default(),
            handles: None,
        };
        let totals = gathered.totals();
        let emit_options = EmitOptions::from(options);
        let scanner = ImageScanner::start_as(name.clone(), &gathered, context, &emit_options);
        let scanner = scanner.map_err(Failure::local("scan", place))?;
        Ok(PartFound::Whole(PartScan {
            items: Box::new(scanner.ahead()),
            filesystem,
            totals,
            digests: gathered.digests().clone(),
        }))
    }
}

/// The same digests, asking for everything.
fn of_everything(open: OpenParentDigests) -> OpenParentDigests {
    Arc::new(move || open().map(ParentDigests::noting_nothing))
}
