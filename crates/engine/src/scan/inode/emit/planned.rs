//! Which small files a backup with nothing to compare with will read from the device, in its order.
//!
//! What [`super::make`] would decide of each file, without its entry: the device waits until all is planned.

use super::ImageScanner;
use super::make::Maker;
use super::order::{ListedChildren, OrderItem, SomeChildren};
use crate::image::{ContentMap, Extents, Place, Span};
use crate::read::{SMALL_BYTES_MAX, Wanted};
use crate::scan::{Batch, ScanItem};
use bale_format::Kind;
use bale_format::entry::Entry;

/// Those with one extent, which are almost all. The others are read one by one.
pub fn planned_reads(scanner: ImageScanner) -> impl Iterator<Item = Wanted> + Send {
    let (ordered, mut maker) = scanner.into_parts();
    ordered.flat_map(move |item| match item {
        OrderItem::Children(listed) => wanted_children(&listed, &mut maker),
        OrderItem::Item(ScanItem::Entries(Batch { places, entries })) => {
            let all = entries.iter().enumerate();
            all.filter_map(|(at, entry)| wanted_entry(entry, &places.of(at)))
                .collect()
        }
        OrderItem::Item(_) => Vec::new(),
    })
}

fn wanted_children(listed: &ListedChildren, maker: &mut Maker) -> Vec<Wanted> {
    let mut bytes = &listed.bytes[..];
    let wanted = listed.children.iter().filter_map(|child| match child {
        SomeChildren::Made(entry, place) => wanted_entry(entry, place),
        SomeChildren::Same(_) => None,
        SomeChildren::Later {
            inode,
            name_bytes,
            packed_bytes,
        } => {
            let (child, behind) = bytes.split_at(usize::from(*name_bytes) + *packed_bytes as usize);
            bytes = behind;
            wanted_packed(*inode, &child[usize::from(*name_bytes)..], maker)
        }
    });
    wanted.collect()
}

fn wanted_packed(number: u64, packed: &[u8], maker: &mut Maker) -> Option<Wanted> {
    let inode = maker.unpacked(number, packed).ok()?;
    let kind = Kind::from_mode(inode.mode)?;
    let extents = || maker.extents_on_device(kind, &inode);
    let span = only_span(kind, inode.size, inode.nlink, extents)?;
    Some(Wanted {
        inode: number,
        span,
    })
}

fn wanted_entry(entry: &Entry, place: &Place) -> Option<Wanted> {
    let Place::Image(inode) = place else {
        return None;
    };
    let extents = || match inode.content(0) {
        Ok(ContentMap::Extents(extents)) => Some(extents),
        _ => None,
    };
    let span = only_span(entry.kind, entry.size, entry.nlink, extents)?;
    Some(Wanted {
        inode: inode.number,
        span,
    })
}

/// Where all of a small file is.
fn only_span(
    kind: Kind,
    size: u64,
    nlink: u32,
    extents: impl FnOnce() -> Option<Extents>,
) -> Option<Span> {
    let is_small = kind == Kind::File && (1..=SMALL_BYTES_MAX).contains(&size) && nlink <= 1;
    let extents = if is_small { extents()? } else { return None };
    let [extent] = extents.written[..] else {
        return None;
    };
    (extent.file_offset == 0 && extent.len == size).then_some(Span {
        offset: extent.device_offset,
        len: size as u32,
    })
}
