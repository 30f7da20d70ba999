//! What a scan of a view finds, made ready in a thread of its own: rows as they are stored, but for
//! their content, and where that begins on the device. Whoever writes the catalog has enough to do.

use bale_format::Entry;
use bale_pipeline::ahead::Ahead;
use bale_source::image::{ContentMap, EntryPlace};
use bale_source::scan::{Batch, ScanItem, ScanItems, ScanProblem};
use std::io;

/// Rows in a batch on its way, or those of one directory more.
const ROWS_AHEAD: usize = 192;
/// Batches on their way.
const BATCHES_AHEAD_MAX: usize = 4;

/// What a look at its inode tells of a row and is not in it.
pub(super) struct Looked {
    /// What could not be filled in.
    pub(super) problem: Option<Box<ScanProblem>>,
    /// Of a regular file on the device that is not empty: where its content is, from its first byte
    /// on.
    pub(super) content: Option<io::Result<ContentMap>>,
}

impl Looked {
    /// Fills in what the scan left out of a row.
    pub(super) fn at(place: &EntryPlace, entry: &mut Entry) -> Looked {
        let (filled, content) = place.complete_with_content(entry);
        let problem = filled.err().map(Box::new);
        Looked { problem, content }
    }
}

/// Rows one after the other: they are moved nowhere until they are in the catalog.
pub(super) struct ReadyRows {
    pub(super) entries: Vec<Entry>,
    /// As many.
    pub(super) places: Vec<EntryPlace>,
    /// As many.
    pub(super) looked: Vec<Looked>,
}

pub(super) enum ReadyItem {
    Rows(ReadyRows),
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
        ReadyItem::Rows(rows) => rows.entries.len(),
        ReadyItem::Other(_) => 1,
    };
    Ahead::start_weighed(items, weight, ROWS_AHEAD, BATCHES_AHEAD_MAX)
}

fn rows_of(batch: Batch) -> ReadyRows {
    let Batch {
        places,
        mut entries,
    } = batch;
    let places = places.into_each(entries.len());
    let look = |(entry, place): (&mut Entry, &EntryPlace)| Looked::at(place, entry);
    let looked = entries.iter_mut().zip(&places).map(look).collect();
    ReadyRows {
        entries,
        places,
        looked,
    }
}
