//! What of a disk is to be read: ranges in its order, without those that are certainly free.
//!
//! A superset, always: a byte is left out only if the file system that it belongs to has it as
//! free, by a bitmap or tree that agrees with itself, and was left cleanly (or has a journal that
//! can be replayed here). Tables, what is between partitions, what is not recognized, what is
//! recognized twice and what is doubtful are read whole, each with its reason. Of swap space only
//! the header is read.
//!
//! Memory does not grow with the disk: bitmaps and trees are read a portion at a time, as the
//! ranges come. What is read must stand still meanwhile; of a disk that is written to, the ranges
//! are those of no moment.

mod content;
mod file_systems;
mod layout;
mod part;
mod swap;

pub use file_systems::DiskFileSystem;
pub use part::{DiskPart, PartContent, WholeReason};

use crate::ByteSource;
use crate::in_use::UsePortion;
use content::PartUse;
use layout::{DiskLayout, Stretch};
use std::ops::Range;
use std::sync::Arc;

/// The ranges of a disk to be read: sorted, apart from each other. An iterator.
pub struct AllocatedRanges {
    parts: Vec<DiskPart>,
    file_systems: Vec<DiskFileSystem>,
    uses: Vec<PartUse>,
    stretches: std::vec::IntoIter<Stretch>,
    /// What is left of the stretch that is looked at.
    current: Option<Stretch>,
    /// Ranges of the last portion, in the order of the disk.
    portion: std::vec::IntoIter<Range<u64>>,
    /// A range that may go on.
    pending: Option<Range<u64>>,
}

impl AllocatedRanges {
    /// Looks at what there is on a disk, or at the file system that a source is. The size of
    /// sectors is that of the device, where it is one. Never fails: what cannot be read is to be
    /// read, and who does will find out.
    pub fn of(disk: Arc<dyn ByteSource>, sector_bytes: Option<u32>) -> AllocatedRanges {
        let layout = DiskLayout::read(disk, sector_bytes);
        AllocatedRanges {
            parts: layout.parts,
            file_systems: layout.file_systems,
            uses: layout.uses,
            stretches: layout.stretches.into_iter(),
            current: None,
            portion: Vec::new().into_iter(),
            pending: None,
        }
    }

    /// The parts of the disk, the disk itself first. What is allocated is complete once the ranges
    /// have come to their end.
    pub fn parts(&self) -> &[DiskPart] {
        &self.parts
    }

    /// The file systems that can be read by themselves, in the order of the parts.
    pub fn file_systems(&self) -> &[DiskFileSystem] {
        &self.file_systems
    }

    pub fn into_file_systems(self) -> Vec<DiskFileSystem> {
        self.file_systems
    }

    pub fn into_parts(self) -> Vec<DiskPart> {
        self.parts
    }

    /// The next ranges of the current stretch, or of the one behind it; `None` behind the last.
    fn next_portion(&mut self) -> Option<Vec<Range<u64>>> {
        let mut stretch = match self.current.take() {
            Some(stretch) => stretch,
            None => self.stretches.next()?,
        };
        let len = stretch.disk.end - stretch.disk.start;
        let part = &mut self.parts[stretch.part];
        let Some(in_use) = &mut self.uses[stretch.part] else {
            part.allocated_bytes += len;
            return Some(vec![stretch.disk]);
        };
        let mut portion = in_use.portion(stretch.at);
        if portion.end <= stretch.at {
            // Whoever answers so is not believed any further.
            portion = UsePortion::whole(stretch.at..stretch.at + len, portion.doubt);
        }
        let end = portion.end.min(stretch.at + len);
        if let Some(doubt) = portion.doubt {
            part.doubtful_portions += 1;
            part.first_doubt.get_or_insert(doubt);
        }
        let mut ranges = Vec::with_capacity(portion.used.len());
        for used in portion.used {
            let inside = used.start.max(stretch.at)..used.end.min(end);
            if !inside.is_empty() {
                part.allocated_bytes += inside.end - inside.start;
                let start = stretch.disk.start + (inside.start - stretch.at);
                ranges.push(start..start + (inside.end - inside.start));
            }
        }
        stretch.disk.start += end - stretch.at;
        stretch.at = end;
        if !stretch.disk.is_empty() {
            self.current = Some(stretch);
        }
        Some(ranges)
    }
}

impl Iterator for AllocatedRanges {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        loop {
            let Some(range) = self.portion.next() else {
                match self.next_portion() {
                    Some(ranges) => self.portion = ranges.into_iter(),
                    None => return self.pending.take(),
                }
                continue;
            };
            match &mut self.pending {
                Some(pending) if pending.end == range.start => pending.end = range.end,
                pending => {
                    if let Some(before) = pending.replace(range) {
                        return Some(before);
                    }
                }
            }
        }
    }
}
