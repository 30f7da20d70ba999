//! The rows that go into an image, in its order: those of the catalog that are wanted, with paths
//! relative to the root of the image, and the directories above them.
//!
//! The catalog is read several times, and every reading gives the same rows: those that can be no
//! row of an image end here.

use super::work::{TroubleReports, Work};
use crate::losses;
use crate::names::{check_name, check_path};
use crate::rows_ahead::{RowReads, RowsAhead};
use crate::scratch::{PairSorter, SortedPairs};
use crate::select::{Above, VAIN_LOOKUPS_MAX, above, above_anew, chosen};
use crate::{CatalogRows, RestoreError, row};
use bale_format::entry::is_below;
use bale_format::{Content, Entry, EntryFlags, Key, Kind};
use bytes::Bytes;
use std::cmp::Ordering;
use std::iter::Peekable;

/// Memory of the sorter of directories above what is wanted.
const SORTER_BYTES: usize = 8 << 20;

/// Unreadable stretches of one catalog after which reading ends.
const CATALOG_TROUBLES_MAX: u64 = 100_000;

/// Rows between two looks whether to stop.
const STOP_EVERY_ROWS: u64 = 1 << 14;

/// One reading of the rows.
pub struct WantedRows<'a> {
    work: &'a Work<'a>,
    reading: TroubleReports,
    strip: Bytes,
    rows: CatalogRows<'a>,
    troubles: u64,
    taken: u64,
    parent: Option<ParentPath>,
    /// Directories above what is wanted, by their keys.
    above: Option<Peekable<SortedPairs>>,
    held: Option<Entry>,
    last: Option<Key>,
}

/// The parent of the last row: as in the snapshot, relative to the image, and what the selection
/// says of it.
struct ParentPath {
    path: Bytes,
    relative: Option<Bytes>,
    verdict: Above,
}

impl<'a> WantedRows<'a> {
    /// Reads the catalog from its beginning. `above` is what [`directories_above`] found.
    pub fn new(
        work: &'a Work<'a>,
        reading: TroubleReports,
        above: Option<SortedPairs>,
    ) -> Result<WantedRows<'a>, RestoreError> {
        let root = &work.options.below;
        check_path(root).map_err(|bad| RestoreError::Catalog(bad.into()))?;
        Ok(WantedRows {
            work,
            reading,
            strip: strip_of(work, root)?,
            rows: work.catalog.rows(root).map_err(RestoreError::Catalog)?,
            troubles: 0,
            taken: 0,
            parent: None,
            above: above.map(Iterator::peekable),
            held: None,
            last: None,
        })
    }

    /// The next row; keys ascend. The root of the image has neither parent nor name.
    pub fn next_row(&mut self) -> Result<Option<Entry>, RestoreError> {
        if self.held.is_none() {
            self.held = self.next_of_catalog()?;
        }
        let Some(above) = self.next_above()? else {
            return Ok(self.held.take());
        };
        let order = match &self.held {
            Some(held) => order_of(&above, held),
            None => Ordering::Less,
        };
        match order {
            Ordering::Less => Ok(Some(above)),
            // Wanted for itself too; `next_above` has passed it.
            Ordering::Equal => Ok(self.held.take()),
            Ordering::Greater => {
                unreachable!("next_above gives none that comes after what is held")
            }
        }
    }

    /// The rows in turn. Where chunks are far away, lists are fetched before they are wanted.
    pub fn ahead(
        mut self,
        ahead: RowReads,
    ) -> impl Iterator<Item = Result<Entry, RestoreError>> + use<'a> {
        let chunks = self.work.chunks;
        let rows = std::iter::from_fn(move || self.next_row().transpose());
        RowsAhead::new(rows, chunks, ahead)
    }

    /// Takes the first of the directories above if it does not come after the row that is held.
    fn next_above(&mut self) -> Result<Option<Entry>, RestoreError> {
        let Some(above) = &mut self.above else {
            return Ok(None);
        };
        let held = self.held.as_ref().map(|held| key(&held.parent, &held.name));
        let is_due = |pair: &std::io::Result<(Vec<u8>, Vec<u8>)>| match (pair, &held) {
            (Ok((place, _)), Some(held)) => place <= held,
            _ => true,
        };
        let Some(pair) = above.next_if(is_due) else {
            return Ok(None);
        };
        let (place, row) = pair.map_err(RestoreError::Scratch)?;
        // One that is wanted for several things below it comes several times.
        while above
            .next_if(|next| matches!(next, Ok((again, _)) if *again == place))
            .is_some()
        {}
        row::decode(row).map(Some).map_err(RestoreError::Scratch)
    }

    fn next_of_catalog(&mut self) -> Result<Option<Entry>, RestoreError> {
        loop {
            self.taken += 1;
            if self.taken.is_multiple_of(STOP_EVERY_ROWS) && self.work.monitor.interrupted() {
                return Err(RestoreError::Stopped);
            }
            match self.rows.next() {
                None => return Ok(None),
                Some(Ok(entry)) => {
                    if let Some(entry) = self.take(entry) {
                        return Ok(Some(entry));
                    }
                }
                Some(Err(trouble)) => {
                    self.troubles += 1;
                    self.problem(&[], "read the catalog", &trouble.to_string());
                    if self.troubles == CATALOG_TROUBLES_MAX {
                        return Err(RestoreError::Catalog(trouble));
                    }
                }
            }
        }
    }

    fn problem(&self, path: &[u8], action: &'static str, text: &str) {
        if self.reading == TroubleReports::Report {
            self.work.problem(path, action, text);
        }
    }

    /// The row as the image has it, if it is wanted and possible.
    fn take(&mut self, mut entry: Entry) -> Option<Entry> {
        let path_bytes =
            entry.parent.len() + usize::from(!entry.parent.is_empty()) + entry.name.len();
        // Paths of other lengths, almost all, need not be joined to be told apart.
        let may_be_root = path_bytes == self.strip.len() && entry.path() == self.strip[..];
        if entry.name.is_empty() || may_be_root {
            return self.take_root(entry);
        }
        self.enter(&entry.parent);
        let parent = self.parent.as_ref().expect("just entered");
        let relative = parent.relative.clone()?;
        if let Err(bad) = check_name(&entry.name) {
            self.problem(&entry.path(), "restore", &format!("refused: {bad}"));
            return None;
        }
        let select = self.work.options.select;
        let is_directory = entry.kind == Kind::Directory;
        if !select.is_everything() && !chosen(select, parent.verdict, &entry.path(), is_directory) {
            return None;
        }
        let key = Key {
            parent: relative.clone(),
            name: entry.name.clone(),
        };
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            self.problem(
                &entry.path(),
                "restore",
                "refused: out of the catalog's order",
            );
            return None;
        }
        self.last = Some(key);
        let unreadable = entry.flags.has(EntryFlags::UNREADABLE);
        self.report_flags(&entry);
        let has_bytes = entry.kind == Kind::File && (entry.size > 0 || unreadable);
        if entry.is_image() {
            let text = "left out: it is an image of a device; restore it by itself, to a file or a \
                device";
            self.problem(&entry.path(), "restore", text);
            return None;
        }
        if has_bytes && entry.content == Content::None {
            let text = "its content could not be read by the backup";
            self.problem(&entry.path(), "restore", text);
            return None;
        }
        entry.parent = relative;
        Some(entry)
    }

    /// Tells what the backup did not have of a row.
    fn report_flags(&self, entry: &Entry) {
        if entry.flags.0 == 0 || self.reading == TroubleReports::Quiet {
            return;
        }
        if let Some(text) = losses::missing_content(entry) {
            self.problem(&entry.path(), "restore", text);
        }
        for (kind, text) in losses::of_flags(entry.flags) {
            self.work.lose(kind, &entry.path(), text);
        }
    }

    /// The row that is the root of the image.
    fn take_root(&self, mut entry: Entry) -> Option<Entry> {
        let path = entry.path();
        let select = self.work.options.select;
        let wanted = select.is_everything() || chosen(select, above(select, &path), &path, true);
        if entry.kind != Kind::Directory || path != self.strip[..] || !wanted {
            return None;
        }
        self.report_flags(&entry);
        entry.parent = Bytes::new();
        entry.name = Bytes::new();
        Some(entry)
    }

    /// Looks at a run of rows of one parent.
    fn enter(&mut self, path: &Bytes) {
        if self.parent.as_ref().is_some_and(|last| last.path == path) {
            return;
        }
        let relative = if !is_below(path, &self.strip) {
            self.problem(path, "restore", "refused: outside the requested path");
            None
        } else if let Err(bad) = check_path(path) {
            let text = format!("refused with all below it: {bad}");
            self.problem(path, "restore", &text);
            None
        } else {
            Some(path.slice(cut_of(&self.strip).min(path.len())..))
        };
        let select = self.work.options.select;
        let verdict = match select.is_everything() {
            true => Above::Included,
            false => above(select, path),
        };
        self.parent = Some(ParentPath {
            path: path.clone(),
            relative,
            verdict,
        });
    }
}

/// Directories that are not wanted themselves, but something in them is; `readings` times the same.
/// `None` if everything is wanted.
pub fn directories_above(
    work: &Work,
    readings: usize,
) -> Result<Option<Vec<SortedPairs>>, RestoreError> {
    if work.options.select.is_everything() {
        return Ok(None);
    }
    let sorter = |_| work.scratch.sorter(SORTER_BYTES);
    let mut sorters: Vec<PairSorter> = (0..readings).map(sorter).collect();
    let mut rows = WantedRows::new(work, TroubleReports::Quiet, None)?;
    let mut last = Bytes::new();
    while rows.next_row()?.is_some() {
        let Some(parent) = &rows.parent else { continue };
        if parent.verdict == Above::Open && parent.path != last {
            let before = std::mem::replace(&mut last, parent.path.clone());
            let mut in_vain = 0;
            // Those of the directory before were pushed with it.
            for path in above_anew(&last, &before, rows.strip.len()) {
                match push_above(work, path, &rows.strip, &mut sorters)? {
                    true => in_vain = 0,
                    false => in_vain += 1,
                }
                if in_vain == VAIN_LOOKUPS_MAX {
                    break;
                }
            }
        }
    }
    let sorted = sorters
        .into_iter()
        .map(PairSorter::finish)
        .collect::<Result<_, _>>();
    sorted.map(Some).map_err(RestoreError::Scratch)
}

/// Is there such a directory?
fn push_above(
    work: &Work,
    path: &[u8],
    strip: &[u8],
    sorters: &mut [PairSorter],
) -> Result<bool, RestoreError> {
    let row = match work.catalog.lookup(path) {
        Ok(row) => row.filter(|entry| entry.kind == Kind::Directory),
        Err(trouble) => {
            work.problem(path, "read the catalog", &trouble.to_string());
            None
        }
    };
    let Some(mut entry) = row else {
        return Ok(false);
    };
    let relative = Key::of_path(&path[cut_of(strip).min(path.len())..]);
    let place = key(&relative.parent, &relative.name);
    (entry.parent, entry.name) = (relative.parent, relative.name);
    let mut bytes = Vec::new();
    row::encode(&entry, &mut bytes);
    for sorter in sorters {
        sorter.push(&place, &bytes).map_err(RestoreError::Scratch)?;
    }
    Ok(true)
}

/// What is cut off paths: the directory asked for, or the directory of the file asked for.
fn strip_of(work: &Work, root: &Bytes) -> Result<Bytes, RestoreError> {
    if root.is_empty() {
        return Ok(root.clone());
    }
    match work.catalog.lookup(root).map_err(RestoreError::Catalog)? {
        None => Err(RestoreError::NotFound),
        Some(entry) if entry.kind == Kind::Directory => Ok(root.clone()),
        Some(_) => Ok(Key::of_path(root).parent),
    }
}

/// Bytes cut off a path below `strip`, with the slash.
fn cut_of(strip: &[u8]) -> usize {
    match strip.len() {
        0 => 0,
        len => len + 1,
    }
}

fn order_of(one: &Entry, other: &Entry) -> Ordering {
    one.key().cmp(&other.key())
}

/// Bytes that sort as the catalog does.
fn key(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(parent.len() + 2 + name.len());
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    key.extend(parent.iter().map(rank));
    key.extend_from_slice(&[0, 0]);
    key.extend_from_slice(name);
    key
}
