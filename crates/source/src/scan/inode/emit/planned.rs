//! Which small files a backup with nothing to compare with will read from the device, in its order.
//!
//! What [`super::make`] would decide of each file, without its entry: the device waits until all is
//! planned. A file with several names is read under the first of them.

use super::ImageScanner;
use super::make::Maker;
use super::order::{ListedChildren, OrderItem, SomeChildren};
use crate::image::{ContentMap, EntryPlace, Extents, Span};
use crate::read::{FirstNames, PlannedRead, SMALL_BYTES_MAX};
use crate::scan::{Batch, ScanItem};
use bale_format::Kind;
use bale_format::entry::Entry;
use bale_pipeline::memory::MemoryPlan;

/// Those with one extent, which are almost all. The others are read one by one.
pub fn planned_reads(
    scanner: ImageScanner,
    memory: &MemoryPlan,
) -> impl Iterator<Item = PlannedRead> + Send + use<> {
    let (ordered, maker) = scanner.into_parts();
    let mut plan = Plan {
        maker,
        first_names: FirstNames::within(memory),
    };
    ordered.flat_map(move |item| plan.of_item(item))
}

struct Plan {
    maker: Maker,
    /// All are of the one file system that is scanned.
    first_names: FirstNames,
}

impl Plan {
    fn of_item(&mut self, item: OrderItem) -> Vec<PlannedRead> {
        match item {
            OrderItem::Children(listed) => self.of_children(&listed),
            OrderItem::Item(ScanItem::Entries(Batch { places, entries })) => {
                let all = entries.iter().enumerate();
                all.filter_map(|(at, entry)| self.of_entry(entry, &places.of(at)))
                    .collect()
            }
            OrderItem::Item(_) => Vec::new(),
        }
    }

    fn of_children(&mut self, listed: &ListedChildren) -> Vec<PlannedRead> {
        let mut bytes = &listed.bytes[..];
        let wanted = listed.children.iter().filter_map(|child| match child {
            SomeChildren::Made(entry, place) => self.of_entry(entry, place),
            SomeChildren::Unchanged(_) => None,
            SomeChildren::Later {
                inode,
                name_bytes,
                packed_bytes,
            } => {
                let (child, behind) =
                    bytes.split_at(usize::from(*name_bytes) + *packed_bytes as usize);
                bytes = behind;
                self.of_packed(*inode, &child[usize::from(*name_bytes)..])
            }
        });
        wanted.collect()
    }

    fn of_packed(&mut self, number: u64, packed: &[u8]) -> Option<PlannedRead> {
        // Most names of a link farm are further ones.
        if self.first_names.has(0, number) {
            return None;
        }
        let inode = self.maker.unpacked(number, packed).ok()?;
        let kind = Kind::from_mode(inode.mode)?;
        if !self.is_first(kind, inode.nlink, number) {
            return None;
        }
        let extents = || self.maker.extents_on_device(kind, &inode);
        let span = only_span(inode.size, extents)?;
        Some(PlannedRead {
            inode: number,
            span,
        })
    }

    fn of_entry(&mut self, entry: &Entry, place: &EntryPlace) -> Option<PlannedRead> {
        let EntryPlace::Image(inode) = place else {
            return None;
        };
        if !self.is_first(entry.kind, entry.nlink, inode.number) {
            return None;
        }
        let extents = || match inode.content(0) {
            Ok(ContentMap::Extents(extents)) => Some(extents),
            _ => None,
        };
        let span = only_span(entry.size, extents)?;
        Some(PlannedRead {
            inode: inode.number,
            span,
        })
    }

    /// Is it the first name of a file?
    fn is_first(&mut self, kind: Kind, nlink: u32, inode: u64) -> bool {
        kind == Kind::File && (nlink <= 1 || self.first_names.is_first(0, inode))
    }
}

/// Where all of a small file is.
fn only_span(size: u64, extents: impl FnOnce() -> Option<Extents>) -> Option<Span> {
    let is_small = (1..=SMALL_BYTES_MAX).contains(&size);
    let extents = if is_small { extents()? } else { return None };
    let [extent] = extents.written[..] else {
        return None;
    };
    (extent.file_offset == 0 && extent.len == size).then_some(Span {
        offset: extent.device_offset,
        len: size as u32,
    })
}
