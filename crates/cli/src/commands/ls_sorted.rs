//! `bale ls --sort`: all that is listed in one order, whatever directory it is in.

use super::listing::Listing;
use super::sorted_rows::{RowSorter, path_key};
use crate::args::SortBy;
use crate::interrupt;
use anyhow::Result;
use bale_format::Entry;
use bale_repository::catalog::Rows;
use bale_repository::error::Error;
use bale_repository::repository::Repository;

/// What the rows are sorted by, and which way.
#[derive(Clone, Copy)]
pub struct SortOrder {
    pub by: SortBy,
    pub is_reverse: bool,
}

impl SortOrder {
    /// Rows of equal keys differ in their paths, so that equal catalogs give equal lists.
    fn key(self, entry: &Entry) -> Vec<u8> {
        let mut key = match self.by {
            SortBy::Name => Vec::new(),
            SortBy::Size => entry.size.to_be_bytes().to_vec(),
            SortBy::Time => {
                // In the order of numbers with a sign.
                let seconds = entry.mtime.seconds as u64 ^ 1 << 63;
                let nanos = entry.mtime.nanos.to_be_bytes();
                [&seconds.to_be_bytes()[..], &nanos].concat()
            }
            SortBy::Extension => [extension(&entry.name), &[0, 0]].concat(),
        };
        key.extend_from_slice(&path_key(&entry.path()));
        if self.is_reverse {
            // No key is the beginning of another, so this is the exact reverse.
            key.iter_mut().for_each(|byte| *byte = !*byte);
        }
        key
    }
}

/// What follows the last dot; a dot in front hides a file and is none.
fn extension(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|byte| *byte == b'.') {
        None | Some(0) => &[],
        Some(dot) => &name[dot + 1..],
    }
}

pub fn print(repository: &Repository, rows: Rows, order: SortOrder, lines: &Listing) -> Result<()> {
    let mut sorter = RowSorter::new(repository)?;
    for entry in rows {
        if interrupt::is_requested() {
            return Err(Error::Interrupted.into());
        }
        let entry = entry?;
        sorter.push(&order.key(&entry), &entry)?;
    }
    for pair in sorter.finish()? {
        if interrupt::is_requested() {
            return Err(Error::Interrupted.into());
        }
        lines.print(&pair?.1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::{Kind, Time};

    fn entry(path: &str, size: u64, seconds: i64) -> Entry {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let bytes = |text: &str| text.as_bytes().to_vec().into();
        let mut entry = Entry::new(bytes(parent), bytes(name), Kind::File);
        (entry.size, entry.mtime) = (size, Time { seconds, nanos: 1 });
        entry
    }

    fn sorted(by: SortBy, is_reverse: bool) -> Vec<String> {
        let mut entries = [
            entry("d/b.txt", 300, 5),
            entry("d/a.tar", 300, -5),
            entry("d", 0, 0),
            entry("d/.hidden", 2, 9),
            entry("d/b", 256, 1),
            entry("d/b/x.t", 1, 2),
            entry("d.c/y.tx", 9, 3),
        ];
        let order = SortOrder { by, is_reverse };
        entries.sort_by_key(|entry| order.key(entry));
        let path = |entry: &Entry| String::from_utf8(entry.path()).unwrap();
        entries.iter().map(path).collect()
    }

    #[test]
    fn each_order_and_its_reverse() {
        for (by, expected) in [
            (
                SortBy::Name,
                "d d/.hidden d/a.tar d/b d/b/x.t d/b.txt d.c/y.tx",
            ),
            (
                SortBy::Size,
                "d d/b/x.t d/.hidden d.c/y.tx d/b d/a.tar d/b.txt",
            ),
            (
                SortBy::Time,
                "d/a.tar d d/b d/b/x.t d.c/y.tx d/b.txt d/.hidden",
            ),
            (
                SortBy::Extension,
                "d d/.hidden d/b d/b/x.t d/a.tar d.c/y.tx d/b.txt",
            ),
        ] {
            assert_eq!(sorted(by, false).join(" "), expected, "{by:?}");
            let mut reverse: Vec<_> = expected.split(' ').collect();
            reverse.reverse();
            assert_eq!(sorted(by, true), reverse, "{by:?}");
        }
    }
}
