//! Rows of a view of which little changed: those of the inodes that did, found among the rows that
//! the parent has. All others stay, and are looked at once, without a look at the file system.
//!
//! What the rows do not bear out is no matter of rows: then all files are listed anew.

use super::super::rule;
use super::view_rows::count;
use crate::limits::FEW_ROWS_BYTES_MAX;
use bale_format::snapshot::Totals;
use bale_format::{Entry, Kind};
use bale_pipeline::monitor::Monitor;
use bale_repository::catalog::{CatalogReader, DensestDirectories, KeyRange, ParentCursor};
use bale_repository::error::{Error, Result};
use bale_source::scan::inode::{FewChanged, NamesSum};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Rows between two looks whether the run is interrupted.
const LOOK_EVERY: u64 = 4096;

/// What the rows of a view say.
pub(super) struct FewRows {
    /// Of inodes that changed: the position of each, and the row, in the order of the catalog.
    pub(super) changed: Vec<(usize, Entry)>,
    /// Of all other rows.
    pub(super) totals: Totals,
    /// Of all rows.
    pub(super) densest: DensestDirectories,
}

/// A directory whose rows come.
struct Group {
    path: Bytes,
    /// Its inode, and what its names come to, if they are in doubt.
    doubted: Option<(u64, NamesSum)>,
}

struct Search<'a> {
    few: &'a FewChanged,
    found: FewRows,
    /// Names of each inode that changed.
    names: Vec<u32>,
    /// Directories in doubt whose rows did not come yet, by path.
    doubted: BTreeMap<Vec<u8>, u64>,
    group: Group,
    /// Of rows and paths that are held.
    held_bytes: usize,
    /// What the rows do not bear out.
    is_other: bool,
}

/// Goes through the rows of the view of a name. `None`: something is other than few changes
/// explain.
pub(super) fn find(
    (catalog, name): (&CatalogReader, &[u8]),
    few: &FewChanged,
    filesystem: u32,
    monitor: &dyn Monitor,
) -> Result<Option<FewRows>> {
    let Some(top) = catalog.lookup(name)? else {
        return Ok(None);
    };
    let mut search = Search {
        few,
        found: FewRows {
            changed: Vec::new(),
            totals: Totals::default(),
            densest: DensestDirectories::default(),
        },
        names: vec![0; few.count()],
        doubted: BTreeMap::new(),
        group: Group {
            path: Bytes::new(),
            doubted: None,
        },
        held_bytes: 0,
        is_other: top.inode != few.root(),
    };
    let has_trouble = top.flags.0 & rule::TROUBLE_FLAGS != 0 || top.filesystem != filesystem;
    search.is_other |= has_trouble;
    search.row(
        &top.parent.clone(),
        &top.name.clone(),
        Looked::of(&top),
        || top,
    );
    let mut cursor = ParentCursor::open(catalog, KeyRange::below(name));
    let mut rows = 0;
    while let Some(row) = cursor.next_row()? {
        let view = row.view();
        search.is_other |= !rule::has_no_trouble(&view) || view.filesystem != filesystem;
        let looked = Looked {
            kind: view.kind,
            size: view.size,
            inode: view.inode,
            is_hard_link: view.is_hard_link(),
        };
        search.row(row.parent(), row.name(), looked, || row.entry());
        if search.is_other {
            return Ok(None);
        }
        rows += 1;
        if rows % LOOK_EVERY == 0 && monitor.interrupted() {
            return Err(Error::Interrupted);
        }
    }
    Ok(search.finish())
}

/// What counts of a row.
#[derive(Clone, Copy)]
struct Looked {
    kind: Kind,
    size: u64,
    inode: u64,
    is_hard_link: bool,
}

impl Looked {
    fn of(row: &Entry) -> Looked {
        Looked {
            kind: row.kind,
            size: row.size,
            inode: row.inode,
            is_hard_link: row.is_hard_link(),
        }
    }
}

impl Search<'_> {
    fn row(&mut self, parent: &[u8], name: &[u8], row: Looked, entry: impl FnOnce() -> Entry) {
        if self.group.path != parent {
            self.end_group();
            self.group = Group {
                path: Bytes::copy_from_slice(parent),
                doubted: self
                    .doubted
                    .remove(parent)
                    .map(|inode| (inode, NamesSum::default())),
            };
        }
        if let Some((_, sum)) = &mut self.group.doubted {
            self.few.add_name(sum, row.inode, name);
        }
        self.found.densest.add_child(&self.group.path);
        let Some(position) = self.few.position(row.inode) else {
            count(&mut self.found.totals, row.kind, row.size, row.is_hard_link);
            return;
        };
        self.names[position] = self.names[position].saturating_add(1);
        if row.kind == Kind::Directory {
            let path = bale_format::entry::join(parent, name);
            self.held_bytes += path.len();
            self.doubted.insert(path, row.inode);
        }
        let old = entry().with_own_bytes();
        self.held_bytes += old.own_bytes();
        if self.held_bytes > FEW_ROWS_BYTES_MAX {
            self.is_other = true;
            return;
        }
        let is_directory = old.kind == Kind::Directory;
        self.is_other |= is_directory != self.few.is_directory(position);
        self.found.changed.push((position, old));
    }

    fn end_group(&mut self) {
        if let Some((inode, sum)) = self.group.doubted.take() {
            self.is_other |= !self.few.has_names(inode, sum);
        }
    }

    fn finish(mut self) -> Option<FewRows> {
        self.end_group();
        // Those without a row in them.
        let empty = NamesSum::default();
        let mut rest = self.doubted.values();
        self.is_other |= !rest.all(|inode| self.few.has_names(*inode, empty));
        let mut names = self.names.iter().enumerate();
        self.is_other |= !names.all(|(position, names)| self.few.is_named(position, *names));
        (!self.is_other).then_some(self.found)
    }
}
