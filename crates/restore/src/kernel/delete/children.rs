//! The rows of the snapshot, directory by directory, for those who look for what it does not have.

use crate::CatalogRows;
use crate::kernel::outcome::EntryFailure;
use bale_format::Entry;
use bale_format::entry::{compare_parents, is_below};
use bytes::Bytes;
use std::cmp::Ordering;

/// The catalog's rows, asked directory by directory in their own order.
pub struct Children<'c> {
    rows: CatalogRows<'c>,
    next: Option<Entry>,
    below: Bytes,
}

impl<'c> Children<'c> {
    /// `below` is the path of the target in the snapshot.
    pub fn new(rows: CatalogRows<'c>, below: Bytes) -> Children<'c> {
        Children {
            rows,
            next: None,
            below,
        }
    }

    /// Goes to the rows of this directory.
    pub fn enter(&mut self, path: &[u8]) -> Result<(), String> {
        self.skip(|parent, _| compare_parents(parent, path) == Ordering::Less)
    }

    /// Is there a row of this name? Names must be asked in order.
    pub fn has(&mut self, path: &[u8], name: &[u8]) -> Result<bool, String> {
        self.skip(|parent, row| parent == path && row.name[..] < *name)?;
        let below = &self.below;
        Ok(self
            .next
            .as_ref()
            .is_some_and(|row| relative(below, &row.parent) == Some(path) && row.name == name))
    }

    /// Takes the next row of this directory, if it is before `name`; before `None` are all.
    pub fn take_before(
        &mut self,
        path: &[u8],
        name: Option<&[u8]>,
    ) -> Result<Option<Bytes>, String> {
        self.skip(|_, _| false)?;
        let below = &self.below;
        let is_before = |row: &mut Entry| {
            relative(below, &row.parent) == Some(path)
                && name.is_none_or(|name| row.name[..] < *name)
        };
        Ok(self.next.take_if(is_before).map(|row| row.name))
    }

    fn skip(&mut self, unwanted: impl Fn(&[u8], &Entry) -> bool) -> Result<(), String> {
        loop {
            if let Some(row) = &self.next {
                match relative(&self.below, &row.parent) {
                    Some(parent) if !row.name.is_empty() && !unwanted(parent, row) => return Ok(()),
                    _ => {}
                }
            }
            self.next = match self.rows.next() {
                None => None,
                Some(Ok(row)) => Some(row),
                Some(Err(trouble)) => return Err(trouble.to_string()),
            };
            if self.next.is_none() {
                return Ok(());
            }
        }
    }
}

/// A parent as seen from the target; `None` if it is not below `below`.
fn relative<'p>(below: &[u8], parent: &'p [u8]) -> Option<&'p [u8]> {
    if !is_below(parent, below) {
        return None;
    }
    match below.len() {
        0 => Some(parent),
        len => Some(&parent[(len + 1).min(parent.len())..]),
    }
}

/// Why deleting ends.
pub enum DeleteStop {
    Directory(EntryFailure),
    /// For all: what is not known to be absent must stay.
    All(String),
}

impl From<EntryFailure> for DeleteStop {
    fn from(failure: EntryFailure) -> DeleteStop {
        DeleteStop::Directory(failure)
    }
}
