//! The keys of a segment's rows: parents and names, in order, without the rest.

use super::SegmentError;
use super::check::{check_name, check_parent};
use super::columns::Columns;
use super::values::BytesColumn;
use crate::entry::{Key, compare_keys};
use std::cmp::Ordering;

/// The keys of a segment's rows, without the rest: for look-ups.
#[derive(Clone, Debug)]
pub struct SegmentKeys {
    pub(super) parents: BytesColumn,
    pub(super) names: BytesColumn,
}

impl SegmentKeys {
    /// Reads and checks the key columns of an untrusted segment.
    pub fn decode(file: &[u8]) -> Result<SegmentKeys, SegmentError> {
        SegmentKeys::read(&Columns::open(file)?)
    }

    pub(super) fn read(columns: &Columns<'_>) -> Result<SegmentKeys, SegmentError> {
        let keys = SegmentKeys {
            parents: columns.bytes("parent", &(0..columns.rows))?,
            names: columns.bytes("name", &(0..columns.rows))?,
        };
        for row in 0..keys.rows() {
            keys.check(row).map_err(SegmentError::Damaged)?;
        }
        Ok(keys)
    }

    /// Checks a row's key, and its order after the row before.
    fn check(&self, row: usize) -> Result<(), &'static str> {
        let (parent, name) = (self.parent(row), self.name(row));
        check_name(parent, name)?;
        let before = row.checked_sub(1);
        if before
            .is_some_and(|before| self.parents.spans.get(before) == self.parents.spans.get(row))
        {
            // Same parent: checked already, and most rows come this way.
            if self.name(row - 1) >= name {
                return Err("rows are not in order");
            }
            return Ok(());
        }
        check_parent(parent)?;
        if let Some(before) = before
            && compare_keys(self.parent(before), self.name(before), parent, name) != Ordering::Less
        {
            return Err("rows are not in order");
        }
        Ok(())
    }

    /// Number of rows; never 0.
    pub fn rows(&self) -> usize {
        self.names.spans.rows()
    }

    pub fn parent(&self, row: usize) -> &[u8] {
        self.parents.get(row)
    }

    pub fn name(&self, row: usize) -> &[u8] {
        self.names.get(row)
    }

    /// Key of a row, sharing the segment's bytes.
    pub fn key(&self, row: usize) -> Key {
        Key {
            parent: self.parents.shared(row),
            name: self.names.shared(row),
        }
    }

    /// The row of a key, or where it would be.
    pub fn find(&self, key: &Key) -> Result<usize, usize> {
        let row = self.lower_bound(key);
        let found =
            row < self.rows() && self.parent(row) == key.parent && self.name(row) == key.name;
        if found { Ok(row) } else { Err(row) }
    }

    /// The first row at or after a key.
    pub fn lower_bound(&self, key: &Key) -> usize {
        self.partition(|parent, name| {
            compare_keys(parent, name, &key.parent, &key.name) == Ordering::Less
        })
    }

    /// Number of rows at the beginning for which `before` holds; it must hold for no row after one
    /// where it does not.
    pub fn partition(&self, before: impl Fn(&[u8], &[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.rows());
        while low < high {
            let middle = low + (high - low) / 2;
            match before(self.parent(middle), self.name(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}
