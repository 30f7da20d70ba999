//! What a scan of a view finds, made ready in a thread of its own: rows as they are stored, but for
//! their content, and where that begins on the device. Whoever writes the catalog has enough to do.

use bale_format::{Entry, Kind};
use bale_pipeline::ahead::Ahead;
use bale_source::image::{ContentMap, EntryPlace};
use bale_source::scan::{Batch, ScanItem, ScanItems, ScanProblem};
use std::io;

/// Rows in a batch on its way, or those of one directory more.
const ROWS_AHEAD: usize = 192;
/// Batches on their way.
const BATCHES_AHEAD_MAX: usize = 4;

/// A row, and what else is known of it.
pub(super) struct ReadyRow {
    pub(super) entry: Entry,
    pub(super) place: EntryPlace,
    /// What could not be filled in.
    pub(super) problem: Option<ScanProblem>,
    /// Of a regular file that is not empty: where its content is, from its first byte on.
    pub(super) content: Option<io::Result<ContentMap>>,
}

impl ReadyRow {
    pub(super) fn of(mut entry: Entry, place: EntryPlace) -> ReadyRow {
        let problem = place.complete(&mut entry).err();
        let has_content = entry.kind == Kind::File && entry.size > 0;
        let content = match &place {
            EntryPlace::Image(inode) if has_content => Some(inode.content(0)),
            _ => None,
        };
        ReadyRow {
            entry,
            place,
            problem,
            content,
        }
    }
}

pub(super) enum ReadyItem {
    Rows(Vec<ReadyRow>),
    /// No batch of entries.
    Other(ScanItem),
}

/// The same items in the same order.
pub(super) fn ready(items: ScanItems) -> Ahead<ReadyItem> {
    let items = items.map(|item| match item {
        ScanItem::Entries(batch) => ReadyItem::Rows(rows_of(batch)),
        other => ReadyItem::Other(other),
    });
    let weight = |item: &ReadyItem| match item {
        ReadyItem::Rows(rows) => rows.len(),
        ReadyItem::Other(_) => 1,
    };
    Ahead::start_weighed(items, weight, ROWS_AHEAD, BATCHES_AHEAD_MAX)
}

fn rows_of(batch: Batch) -> Vec<ReadyRow> {
    let Batch { places, entries } = batch;
    let entries = entries.into_iter().enumerate();
    let rows = entries.map(|(at, entry)| ReadyRow::of(entry, places.of(at)));
    rows.collect()
}
