//! Counts of the second pass: new, changed and unmodified are relative to the parent snapshot, not
//! to the first pass.

use super::tally::Tally;
use bale_format::{Entry, EntryFlags, Key, Kind};
use bale_repository::catalog::{CatalogError, CatalogReader, KeyRange, ParentCursor};
use bale_repository::error::Result;
use bytes::Bytes;

/// What a file is against the snapshot compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    New,
    Changed,
    Unmodified,
}

impl Class {
    pub(super) fn of(new: &Entry, old: Option<&Entry>) -> Class {
        match old {
            None => Class::New,
            Some(old) if *old == *new || is_no_change(old, new) => Class::Unmodified,
            Some(_) => Class::Changed,
        }
    }
}

/// The same file, and a row that says it otherwise: RACY differs between runs, to read a file is
/// not to change it, and the same bytes, by their hash, are in another chunk, because theirs is
/// gone or little used.
fn is_no_change(old: &Entry, new: &Entry) -> bool {
    let is_all_else_equal = || {
        *new == Entry {
            flags: new.flags,
            content: new.content,
            atime: new.atime,
            ..old.clone()
        }
    };
    (old.flags.0 ^ new.flags.0) & !EntryFlags::RACY.0 == 0 && is_all_else_equal()
}

/// Goes through the catalog of the snapshot compared with, beside the rows that a second pass
/// makes.
pub(super) struct Recount<'a> {
    catalog: &'a CatalogReader,
    /// Opened at the first row that is asked for.
    cursor: Option<ParentCursor>,
}

impl<'a> Recount<'a> {
    pub(super) fn new(catalog: &'a CatalogReader) -> Recount<'a> {
        Recount {
            catalog,
            cursor: None,
        }
    }

    /// The first pass had `first`, and this one has `now`; at least one of them. In the order of
    /// keys.
    pub(super) fn count(
        &mut self,
        first: Option<&Entry>,
        now: Option<&Entry>,
        tally: &Tally<'_>,
    ) -> Result<()> {
        let Some(row) = now.or(first) else {
            return Ok(());
        };
        let original = self.original(&row.parent, &row.name)?;
        let is_file = |row: &&Entry| row.kind == Kind::File;
        if let Some(first) = first.filter(is_file) {
            tally.take_back(Class::of(first, original.as_ref()));
        }
        if let Some(now) = now {
            tally.stored(now, Class::of(now, original.as_ref()));
        }
        Ok(())
    }

    fn original(&mut self, parent: &Bytes, name: &Bytes) -> Result<Option<Entry>> {
        let cursor = self.cursor.get_or_insert_with(|| {
            let start = Key {
                parent: parent.clone(),
                name: name.clone(),
            };
            let range = KeyRange {
                start: Some(start),
                end: None,
            };
            ParentCursor::open(self.catalog, range)
        });
        let row = cursor.advance_to(parent, name, |_| Ok::<(), CatalogError>(()))?;
        Ok(row.map(|row| row.entry()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::{ChunkId, Content};

    #[test]
    fn what_is_stored_again_with_the_same_bytes_is_unmodified() {
        let mut old = Entry::new(Bytes::new(), Bytes::from_static(b"a"), Kind::File);
        old.content_hash = Some([1; 16]);
        let bundled = |number| Content::Bundled {
            chunk: ChunkId([number; 32]),
            offset: 0,
        };
        old.content = bundled(1);
        let mut new = old.clone();
        new.content = bundled(2);
        new.flags.set(EntryFlags::RACY);
        assert_eq!(Class::of(&new, Some(&old)), Class::Unmodified);
        new.content_hash = Some([2; 16]);
        assert_eq!(Class::of(&new, Some(&old)), Class::Changed);
        new.content_hash = old.content_hash;
        new.flags.set(EntryFlags::CHANGED);
        assert_eq!(Class::of(&new, Some(&old)), Class::Changed);
    }
}
