//! Compares a scan with the parent's catalog: both are sorted, so it is a merge.

use super::cursor::{LayerMerge, RowRun};
use super::{CatalogError, CatalogReader, KeyRange, Result};
use bale_format::entry::compare_keys;
use bale_format::{Entry, Key, RowView, Segment, Time};
use bale_pipeline::ahead::Ahead;
use bytes::Bytes;
use std::cmp::Ordering;

/// Rows that are decoded ahead, in batches.
const ROWS_OF_A_BATCH: usize = 4096;
/// Batches of these.
const BATCHES_AHEAD_MAX: usize = 4;

/// A place in the parent's catalog. It moves only by being asked for keys in order, and every row
/// it passes is either the answer or reported as vanished: none is lost silently.
pub struct ParentCursor {
    runs: Ahead<Result<RowRun>>,
    /// What is left of the run at hand.
    run: Option<RowRun>,
    /// The key asked for last.
    last: Option<(Bytes, Vec<u8>)>,
}

/// A row of the parent, where it was decoded.
#[derive(Clone, Copy)]
pub struct ParentRow<'a> {
    segment: &'a Segment,
    row: usize,
}

impl<'a> ParentRow<'a> {
    /// What is compared.
    pub fn view(self) -> RowView<'a> {
        self.segment.view(self.row)
    }

    /// When it was last accessed, if that is stored.
    pub fn atime(self) -> Option<Time> {
        self.segment.atime(self.row)
    }

    /// The whole row, which keeps nothing of its segment: rows wait by the ten thousand, and where
    /// changes are spread over everything each is of another segment.
    pub fn entry(self) -> Entry {
        self.segment.entry(self.row).with_own_bytes()
    }

    pub fn key(self) -> Key {
        self.segment.keys().key(self.row)
    }

    /// Path of its directory.
    pub fn parent(self) -> &'a [u8] {
        self.segment.keys().parent(self.row)
    }

    pub fn name(self) -> &'a [u8] {
        self.segment.keys().name(self.row)
    }
}

/// Runs of a catalog's rows. Ends after an error.
struct Runs {
    catalog: CatalogReader,
    /// Those that were not begun, in order.
    ranges: std::vec::IntoIter<KeyRange>,
    merge: Option<LayerMerge>,
    failed: bool,
}

impl Runs {
    fn take_run(&mut self) -> Result<Option<RowRun>> {
        loop {
            if let Some(merge) = &mut self.merge
                && let Some(run) = merge.take_run(ROWS_OF_A_BATCH)?
            {
                return Ok(Some(run));
            }
            let Some(range) = self.ranges.next() else {
                return Ok(None);
            };
            let mut merge = self.catalog.all_rows(range).into_merge();
            merge.load_ahead();
            self.merge = Some(merge);
        }
    }
}

impl Iterator for Runs {
    type Item = Result<RowRun>;

    fn next(&mut self) -> Option<Result<RowRun>> {
        if self.failed {
            return None;
        }
        let run = self.take_run();
        self.failed = run.is_err();
        run.transpose()
    }
}

impl ParentCursor {
    /// Before the first row of a range; threads of its own load and decode ahead.
    pub fn open(parent: &CatalogReader, range: KeyRange) -> ParentCursor {
        ParentCursor::open_ranges(parent, vec![range])
    }

    /// Before the first row of several ranges, which are in order. Rows between them are not read.
    pub fn open_ranges(parent: &CatalogReader, ranges: Vec<KeyRange>) -> ParentCursor {
        let runs = Runs {
            catalog: parent.clone(),
            ranges: ranges.into_iter(),
            merge: None,
            failed: false,
        };
        let rows_of = |run: &Result<RowRun>| run.as_ref().map_or(1, |run| run.rows.len());
        ParentCursor {
            runs: Ahead::start_weighed(runs, rows_of, ROWS_OF_A_BATCH, BATCHES_AHEAD_MAX),
            run: None,
            last: None,
        }
    }

    /// The parent's row of this key, if it has one. Calls `vanished` for every row before it that
    /// was not asked for, up to its first error. Keys must come in strictly increasing order.
    pub fn advance_to<E: From<CatalogError>>(
        &mut self,
        parent: &Bytes,
        name: &[u8],
        vanished: impl FnMut(Entry) -> std::result::Result<(), E>,
    ) -> std::result::Result<Option<ParentRow<'_>>, E> {
        self.remember(parent, name)?;
        let is_here = self.pass(Some((parent, name)), vanished)?;
        Ok(match &mut self.run {
            Some(run) if is_here => {
                run.rows.start += 1;
                Some(ParentRow {
                    segment: &run.segment,
                    row: run.rows.start - 1,
                })
            }
            _ => None,
        })
    }

    /// The next row, for whoever looks at all of them.
    pub fn next_row(&mut self) -> Result<Option<ParentRow<'_>>> {
        while self.run.as_ref().is_none_or(|run| run.rows.is_empty()) {
            self.run = self.runs.next().transpose()?;
            if self.run.is_none() {
                return Ok(None);
            }
        }
        Ok(self.run.as_mut().map(|run| {
            run.rows.start += 1;
            ParentRow {
                segment: &run.segment,
                row: run.rows.start - 1,
            }
        }))
    }

    /// Calls `vanished` for all rows that are left, up to its first error.
    pub fn finish<E: From<CatalogError>>(
        mut self,
        vanished: impl FnMut(Entry) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.pass(None, vanished).map(drop)
    }

    /// Notes a key that is asked for.
    fn remember(&mut self, parent: &Bytes, name: &[u8]) -> Result<()> {
        let Some((last_parent, last_name)) = &mut self.last else {
            self.last = Some((parent.clone(), name.to_vec()));
            return Ok(());
        };
        if compare_keys(parent, name, last_parent, last_name).is_le() {
            return Err(CatalogError::Order {
                path: bale_format::entry::join(parent, name),
            });
        }
        if last_parent != parent {
            *last_parent = parent.clone();
        }
        last_name.clear();
        last_name.extend_from_slice(name);
        Ok(())
    }

    /// Goes to the first row that is not before a key, and says whether it has this key.
    fn pass<E: From<CatalogError>>(
        &mut self,
        end: Option<(&[u8], &[u8])>,
        mut vanished: impl FnMut(Entry) -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        loop {
            let Some(run) = self.run.as_mut().filter(|run| !run.rows.is_empty()) else {
                self.run = self.runs.next().transpose()?;
                match &self.run {
                    Some(_) => continue,
                    None => return Ok(false),
                }
            };
            let row = run.rows.start;
            if let Some((parent, name)) = end {
                let keys = run.segment.keys();
                match compare_keys(keys.parent(row), keys.name(row), parent, name) {
                    Ordering::Less => {}
                    order => return Ok(order.is_eq()),
                }
            }
            run.rows.start += 1;
            let segment = &run.segment;
            vanished(ParentRow { segment, row }.entry())?;
        }
    }
}
