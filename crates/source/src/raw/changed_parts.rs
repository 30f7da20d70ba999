//! What the bitmap of an export says changed, and images of which nothing else may be read.
//!
//! Some servers (Proxmox VE) give the ranges that are in a bitmap and fail everything else. Those
//! are finer than a block of an image, so the rest of a block comes from whoever has the image as
//! it was: here it is only put together.

use super::changes::{ChangeTracker, Changes};
use super::device::DeviceRead;
use super::{RawBlock, RawImage};
use bale_format::ObjectId;
use std::io;
use std::ops::Range;

/// Bytes of an image that could not be had, and are zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadPart {
    pub range: Range<u64>,
    /// Why.
    pub text: String,
}

impl RawImage {
    /// What the bitmap that its URI names says changed; `None`: it names none.
    pub fn bitmap_changes(&self) -> io::Result<Option<Changes>> {
        let tracked = self.device.tracked();
        tracked.map(|export| export.changes()).transpose()
    }

    /// May nothing be read but what its bitmap has as changed?
    pub fn is_changes_only(&self) -> bool {
        self.changes_only
    }

    /// Reads what changed within one block. `rest` fills what did not, and says what of that it
    /// does not have. `None`: nothing changed there.
    pub fn read_changed(
        &self,
        range: Range<u64>,
        mut rest: impl FnMut(u64, &mut [u8]) -> Vec<UnreadPart>,
    ) -> io::Result<Option<RawBlock>> {
        let none = "it has no bitmap that says what changed";
        let export = self.device.tracked();
        let export = export.ok_or_else(|| io::Error::other(none))?;
        let changed = export.changes_in(range.clone())?;
        if changed.is_empty() {
            return Ok(None);
        }
        let wanted = (range.end - range.start) as usize;
        let mut buffer = self.buffer();
        let bytes = buffer.block_mut();
        let mut read = DeviceRead {
            len: wanted,
            ..DeviceRead::default()
        };
        let behind = range.end..range.end;
        let mut at = range.start;
        for part in changed.into_iter().chain([behind]) {
            let place = |at: u64| (at - range.start) as usize;
            if at < part.start {
                let unread = rest(at, &mut bytes[place(at)..place(part.start)]);
                for unread in unread {
                    let bad = place(unread.range.start)..place(unread.range.end);
                    read.bad.push(bad);
                    let error = io::Error::other(unread.text);
                    read.error.get_or_insert(error);
                }
            }
            if !part.is_empty() {
                let (from, to) = (place(part.start), place(part.end));
                let found = export.read_into(part.start, &mut bytes[from..to], to - from)?;
                let bad = found.bad.iter();
                read.bad
                    .extend(bad.map(|bad| from + bad.start..from + bad.end));
                read.error = read.error.or(found.error);
            }
            at = part.end;
        }
        Ok(Some(self.block(buffer, read, wanted)))
    }
}

/// What a bitmap says changed since a snapshot that its user named.
#[derive(Clone, Debug)]
pub struct BitmapChanges {
    pub since: ObjectId,
    pub changes: Changes,
}

impl ChangeTracker for BitmapChanges {
    fn name(&self) -> &'static str {
        "bitmap"
    }

    fn changed_since(&mut self, _basis: Option<&str>) -> Changes {
        self.changes.clone()
    }

    fn next_basis(&self) -> Option<String> {
        None
    }

    fn since_snapshot(&self) -> Option<ObjectId> {
        Some(self.since)
    }
}
