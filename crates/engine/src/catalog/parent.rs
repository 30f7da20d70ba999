//! Compares a scan with the parent's catalog: both are sorted, so it is a merge.

use super::{CatalogError, CatalogReader, KeyRange, Result};
use crate::ahead::Ahead;
use bale_format::{Entry, Key};
use std::iter::Peekable;

/// Rows that are decoded ahead, in batches.
const ROWS_OF_A_BATCH: usize = 512;
/// Batches of these.
const BATCHES_AHEAD_MAX: usize = 4;

/// A place in the parent's catalog. It moves only by being asked for keys in order, and every row it passes is either
/// the answer or reported as vanished: none is lost silently.
pub struct ParentCursor {
    rows: Peekable<Ahead<Result<Entry>>>,
    last: Option<Key>,
}

impl ParentCursor {
    /// Before the first row of a range; a thread of its own decodes ahead.
    pub fn open(parent: &CatalogReader, range: KeyRange) -> ParentCursor {
        ParentCursor {
            rows: Ahead::start(parent.rows(range), ROWS_OF_A_BATCH, BATCHES_AHEAD_MAX).peekable(),
            last: None,
        }
    }

    /// The parent's row of this key, if it has one. Calls `vanished` for every row before it that was not asked for.
    /// Keys must come in strictly increasing order.
    pub fn advance_to(
        &mut self,
        key: &Key,
        vanished: impl FnMut(Entry) -> Result<()>,
    ) -> Result<Option<Entry>> {
        if self.last.as_ref().is_some_and(|last| key <= last) {
            return Err(CatalogError::Order {
                path: bale_format::entry::join(&key.parent, &key.name),
            });
        }
        self.last = Some(key.clone());
        self.pass(Some(key), vanished)?;
        let is_here = |row: &Result<Entry>| {
            row.as_ref().map_or(true, |entry| {
                // Names differ sooner than long paths.
                entry.name == key.name && entry.parent == key.parent
            })
        };
        self.rows.next_if(is_here).transpose()
    }

    /// Calls `vanished` for all rows that are left.
    pub fn finish(mut self, vanished: impl FnMut(Entry) -> Result<()>) -> Result<()> {
        self.pass(None, vanished)
    }

    fn pass(
        &mut self,
        end: Option<&Key>,
        mut vanished: impl FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let is_before = |row: &Result<Entry>| match (row, end) {
            (Ok(entry), Some(end)) => is_before(entry, end),
            _ => true,
        };
        while let Some(row) = self.rows.next_if(is_before) {
            vanished(row?)?;
        }
        Ok(())
    }
}

fn is_before(entry: &Entry, key: &Key) -> bool {
    // Equal paths are told quickly as bytes; only different ones are compared by component.
    match entry.parent == key.parent {
        true => entry.name < key.name,
        false => bale_format::entry::compare_parents(&entry.parent, &key.parent).is_lt(),
    }
}
