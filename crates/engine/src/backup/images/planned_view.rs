//! Views that images will have: of which file systems they are, and what the parent has of them.

use bale_format::snapshot::{ImageView, PathText};
use bale_fsimage::allocated::DiskFileSystem;
use bale_fsimage::recognize::Recognized;
use bytes::Bytes;
use std::sync::Arc;

/// What is to be listed.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) views: Vec<Planned>,
    /// Positions of images, and what of them is not listed as it could not be read what it is.
    pub(super) unlisted: Vec<(usize, String)>,
}

/// A view that is to be.
pub(super) struct Planned {
    /// Position of its image.
    pub(super) image: usize,
    pub(super) name: Bytes,
    pub(super) file_system: Arc<DiskFileSystem>,
    /// As the parent has it, if that is whole.
    pub(super) before: Option<ImageView>,
    /// Something that it depends on is other than in the parent.
    pub(super) is_changed: bool,
}

impl Planned {
    /// The parent's view that stays as it is.
    pub(super) fn kept(&self) -> Option<&ImageView> {
        self.before.as_ref().filter(|_| !self.is_changed)
    }

    /// Of its row.
    pub(super) fn path(&self) -> PathText {
        PathText([b"/", &self.name[..]].concat())
    }

    /// Of what it depends on.
    pub(super) fn bytes(&self) -> u64 {
        let ranges = self.file_system.depends_on();
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// The kind of its file system, as a scan names it.
    pub(super) fn kind(&self) -> String {
        let kind = match self.file_system.content {
            Recognized::Xfs => "xfs",
            Recognized::Ntfs => "ntfs",
            _ => "ext4",
        };
        kind.to_owned()
    }
}
