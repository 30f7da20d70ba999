//! Which small files a backup with nothing to compare with will read from the device, in its order.

use super::ImageScanner;
use crate::image::{ContentMap, ImageInode, Place, Span};
use crate::read::{SMALL_BYTES_MAX, Wanted};
use crate::scan::{Batch, ScanItem};
use bale_format::Kind;
use bale_format::entry::Entry;

/// Those with one extent, which are almost all. The others are read one by one.
pub fn planned_reads(scanner: ImageScanner) -> impl Iterator<Item = Wanted> + Send {
    // Deciding what is wanted, and sorting it, takes as long as the scanner.
    let batches = scanner.ahead().filter_map(|item| match item {
        ScanItem::Entries(batch) => Some(batch),
        _ => None,
    });
    batches.flat_map(|Batch { places, entries }| {
        let wanted = entries.into_iter().enumerate();
        wanted.filter_map(move |(at, entry)| match places.of(at) {
            Place::Image(inode) => wanted_of(&inode, &entry),
            Place::Directory(_) => None,
        })
    })
}

fn wanted_of(inode: &ImageInode, entry: &Entry) -> Option<Wanted> {
    let is_small =
        entry.kind == Kind::File && (1..=SMALL_BYTES_MAX).contains(&entry.size) && entry.nlink <= 1;
    if !is_small {
        return None;
    }
    let Ok(ContentMap::Extents(extents)) = inode.content(0) else {
        return None;
    };
    let [extent] = extents.written[..] else {
        return None;
    };
    (extent.file_offset == 0 && extent.len == entry.size).then_some(Wanted {
        inode: inode.number,
        span: Span {
            offset: extent.device_offset,
            len: entry.size as u32,
        },
    })
}
