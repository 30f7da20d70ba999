//! Rows of a view of which little changed: those of the inodes that did, found among the rows that
//! the parent has, and those that came and went with the names of directories. All others stay,
//! and are looked at once, without a look at the file system.
//!
//! What the rows do not bear out is no matter of rows: then all files are listed anew. So it is
//! where a directory has another path, since what is in it changed not at all.

use super::super::rule;
use super::view_rows::count;
use crate::limits::FEW_ROWS_BYTES_MAX;
use bale_format::entry::{compare_keys, join};
use bale_format::snapshot::Totals;
use bale_format::{Entry, Kind};
use bale_pipeline::monitor::Monitor;
use bale_repository::catalog::{CatalogReader, DensestDirectories, KeyRange, ParentCursor};
use bale_repository::error::{Error, Result};
use bale_source::scan::inode::{FewChanged, NamedInode, NamesSum};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Rows between two looks whether the run is interrupted.
const LOOK_EVERY: u64 = 4096;
/// Held beside the bytes of a row, and for a path.
const ITEM_BYTES: usize = 128;

/// What the rows of a view say.
pub(super) struct FewRows {
    /// In the order of the catalog.
    pub(super) rows: Vec<FewRow>,
    /// Of all rows that stay.
    pub(super) totals: Totals,
    /// Of all rows that will be.
    pub(super) densest: DensestDirectories,
}

/// A row that does not stay.
pub(super) enum FewRow {
    /// One of the inode at this position among those that changed, perhaps in place of another.
    Made {
        position: usize,
        parent: Bytes,
        name: Bytes,
        old: Option<Entry>,
    },
    Gone(Entry),
}

impl FewRow {
    fn key(&self) -> (&[u8], &[u8]) {
        match self {
            FewRow::Made { parent, name, .. } => (parent, name),
            FewRow::Gone(old) => (&old.parent, &old.name),
        }
    }
}

/// What becomes of the rows of a directory.
enum Fate {
    /// All of them stay, or are of inodes that changed.
    Stay,
    /// The same, if this is the sum of the names of this directory.
    Summed(u64, NamesSum),
    /// This directory has names of which so many have come.
    Merged(u64, usize),
    /// The directory is no more.
    Gone,
}

/// A directory whose rows come.
struct Group {
    path: Bytes,
    fate: Fate,
}

struct Search<'a> {
    few: &'a FewChanged,
    found: FewRows,
    /// Names of each inode that changed.
    names: Vec<u32>,
    /// Directories in doubt whose rows did not come yet, by path.
    doubted: BTreeMap<Vec<u8>, u64>,
    /// Directories that are no more, and whose rows did not come yet.
    gone: BTreeSet<Vec<u8>>,
    /// Directories of which the parent has no row.
    new: Vec<(Bytes, u64)>,
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
    let mut search = Search::of(few);
    let has_trouble = top.flags.0 & rule::TROUBLE_FLAGS != 0 || top.filesystem != filesystem;
    search.is_other = has_trouble || top.inode != few.root();
    let (parent, name_of_top) = (top.parent.clone(), top.name.clone());
    search.row(&parent, &name_of_top, Looked::of(&top), || top);
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

impl<'a> Search<'a> {
    fn of(few: &'a FewChanged) -> Search<'a> {
        Search {
            few,
            found: FewRows {
                rows: Vec::new(),
                totals: Totals::default(),
                densest: DensestDirectories::default(),
            },
            names: vec![0; few.count()],
            doubted: BTreeMap::new(),
            gone: BTreeSet::new(),
            new: Vec::new(),
            group: Group {
                path: Bytes::new(),
                fate: Fate::Stay,
            },
            held_bytes: 0,
            is_other: false,
        }
    }

    /// Takes the next row of the parent.
    fn row(&mut self, parent: &[u8], name: &[u8], row: Looked, entry: impl FnOnce() -> Entry) {
        if self.group.path != parent {
            self.begin_group(parent);
        }
        match &mut self.group.fate {
            Fate::Stay => self.same_name(name, row, entry),
            Fate::Summed(_, sum) => {
                self.few.add_name(sum, row.inode, name);
                self.same_name(name, row, entry);
            }
            Fate::Merged(..) => self.merge(name, row, entry),
            Fate::Gone => self.gone(row, entry()),
        }
    }

    fn begin_group(&mut self, path: &[u8]) {
        self.end_group();
        let fate = match (self.doubted.remove(path), self.gone.remove(path)) {
            (_, true) => Fate::Gone,
            (None, false) => Fate::Stay,
            (Some(inode), false) => match self.few.names(inode) {
                Some(_) => Fate::Merged(inode, 0),
                None => Fate::Summed(inode, NamesSum::default()),
            },
        };
        let path = Bytes::copy_from_slice(path);
        self.group = Group { path, fate };
    }

    fn end_group(&mut self) {
        match std::mem::replace(&mut self.group.fate, Fate::Stay) {
            Fate::Summed(inode, sum) => self.is_other |= !self.few.has_names(inode, sum),
            Fate::Merged(inode, come) => {
                let path = self.group.path.clone();
                let rest = self.few.names(inode).unwrap_or_default();
                rest[come..].iter().for_each(|one| self.came(&path, one));
            }
            Fate::Stay | Fate::Gone => {}
        }
    }

    /// A row of a directory whose names are known.
    fn merge(&mut self, name: &[u8], row: Looked, entry: impl FnOnce() -> Entry) {
        let Fate::Merged(inode, come) = self.group.fate else {
            unreachable!("asked for where names are merged");
        };
        let names = &self.few.names(inode).unwrap_or_default()[come..];
        let new = names.iter().take_while(|one| &*one.name < name).count();
        let (new, rest) = names.split_at(new);
        let path = self.group.path.clone();
        new.iter().for_each(|one| self.came(&path, one));
        let same = rest.first().filter(|one| *one.name == *name);
        self.group.fate = Fate::Merged(inode, come + new.len() + usize::from(same.is_some()));
        match same {
            Some(one) if one.inode == row.inode => self.same_name(name, row, entry),
            Some(one) => self.exchanged(&path, one, row, entry()),
            None => self.gone(row, entry()),
        }
    }

    /// The row stays, unless its inode changed.
    fn same_name(&mut self, name: &[u8], row: Looked, entry: impl FnOnce() -> Entry) {
        if self.few.position(row.inode).is_some() {
            let (parent, inode, name) = (self.group.path.clone(), row.inode, name.into());
            return self.exchanged(&parent, &NamedInode { name, inode }, row, entry());
        }
        self.is_other |= self.few.is_gone(row.inode);
        self.found.densest.add_child(&self.group.path);
        count(&mut self.found.totals, row.kind, row.size, row.is_hard_link);
    }

    /// A name leads to an inode that changed, or to another one than it did.
    fn exchanged(&mut self, parent: &Bytes, one: &NamedInode, row: Looked, old: Entry) {
        self.is_other |= !self.is_told(row.inode);
        match (row.kind == Kind::Directory, self.is_directory(one.inode)) {
            (true, true) => {
                let path = self.path_held(parent, &one.name);
                self.doubted.insert(path, one.inode);
            }
            (true, false) => {
                let path = self.path_held(parent, &one.name);
                self.gone.insert(path);
            }
            (false, true) => self.directory_came(parent, one),
            (false, false) => {}
        }
        self.made(parent, one, Some(old));
    }

    /// A name of which the parent has no row.
    fn came(&mut self, parent: &Bytes, one: &NamedInode) {
        if self.is_directory(one.inode) {
            self.directory_came(parent, one);
        }
        self.made(parent, one, None);
    }

    fn directory_came(&mut self, parent: &Bytes, one: &NamedInode) {
        let path = self.path_held(parent, &one.name).into();
        self.new.push((path, one.inode));
    }

    /// A row to be made of an inode that changed.
    fn made(&mut self, parent: &Bytes, one: &NamedInode, old: Option<Entry>) {
        let Some(position) = self.few.position(one.inode) else {
            self.is_other = true;
            return;
        };
        self.found.densest.add_child(parent);
        self.names[position] = self.names[position].saturating_add(1);
        // More names than one of a directory lead in a circle.
        self.is_other |= self.names[position] > 1 && self.few.is_directory(position);
        self.holds(old.as_ref().map_or(0, Entry::own_bytes) + one.name.len());
        self.push(FewRow::Made {
            position,
            parent: parent.clone(),
            name: Bytes::copy_from_slice(&one.name),
            old,
        });
    }

    /// There is no such name any more.
    fn gone(&mut self, row: Looked, old: Entry) {
        self.is_other |= !self.is_told(row.inode);
        if row.kind == Kind::Directory {
            let path = self.path_held(&old.parent, &old.name);
            self.gone.insert(path);
        }
        self.holds(old.own_bytes());
        self.push(FewRow::Gone(old));
    }

    /// Is this inode among those that changed, or are no more?
    fn is_told(&self, inode: u64) -> bool {
        self.few.is_gone(inode) || self.few.position(inode).is_some()
    }

    fn is_directory(&self, inode: u64) -> bool {
        let position = self.few.position(inode);
        position.is_some_and(|position| self.few.is_directory(position))
    }

    fn path_held(&mut self, parent: &[u8], name: &[u8]) -> Vec<u8> {
        let path = join(parent, name);
        self.holds(path.len());
        path
    }

    fn holds(&mut self, bytes: usize) {
        self.held_bytes += bytes + ITEM_BYTES;
        self.is_other |= self.held_bytes > FEW_ROWS_BYTES_MAX;
    }

    fn push(&mut self, row: FewRow) {
        if !self.is_other {
            self.found.rows.push(row);
        }
    }

    /// All rows of the parent have come.
    fn finish(mut self) -> Option<FewRows> {
        self.end_group();
        // Those without a row in them.
        for (path, inode) in std::mem::take(&mut self.doubted) {
            self.whole_directory(&path.into(), inode);
        }
        while let Some((path, inode)) = self.new.pop() {
            if self.is_other {
                return None;
            }
            self.whole_directory(&path, inode);
        }
        let mut names = self.names.iter().enumerate();
        self.is_other |= !names.all(|(position, names)| self.few.is_named(position, *names));
        if self.is_other {
            return None;
        }
        (self.found.rows).sort_by(|one, other| {
            let (one, other) = (one.key(), other.key());
            compare_keys(one.0, one.1, other.0, other.1)
        });
        Some(self.found)
    }

    /// A directory of which the parent has no rows.
    fn whole_directory(&mut self, path: &Bytes, inode: u64) {
        match self.few.names(inode) {
            Some(names) => names.iter().for_each(|one| self.came(path, one)),
            None => self.is_other |= !self.few.has_names(inode, NamesSum::default()),
        }
    }
}
