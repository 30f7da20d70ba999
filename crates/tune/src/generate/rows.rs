//! Directories with everything that is in them, made by workers and handed on in catalog order.

use bale_fsimage::mkext4::{NewEntry, NewKind, NewXattr, NoData, TotalsCounter};

use super::content::Pool;
use super::error::Result;
use super::file::{Attributes, FileShape, Kind, XATTR_NAME, version_seen_in};
use super::options::GenerateOptions;
use super::tree::DirectoryPlan;
use super::workers::in_order;

/// A batch is closed when it has this many names.
const BATCH_NAMES: u64 = 512;

/// A directory, or a part of a large one, and its rows, ascending by name.
pub(super) struct FilledDirectory {
    pub plan: DirectoryPlan,
    pub rows: Vec<Row>,
}

/// One name.
pub(super) struct Row {
    pub name: Vec<u8>,
    pub what: What,
}

pub(super) enum What {
    Directory(Attributes),
    File(FileRow),
}

pub(super) struct FileRow {
    pub shape: FileShape,
    /// Position among the files of a snapshot.
    pub position: u64,
    /// The snapshot in which it was written. An earlier one than this: a further name of that file.
    pub version: u32,
}

impl FilledDirectory {
    pub fn new(plan: DirectoryPlan, options: &GenerateOptions) -> FilledDirectory {
        let rows = plan.children(options).into_iter().map(|child| {
            let what = match child.file {
                None => What::Directory(Attributes::of_directory(child.dice, options)),
                Some(position) => {
                    let version = version_seen_in(child.dice, plan.snapshot, options);
                    What::File(FileRow {
                        shape: FileShape::new(child.dice, version, options),
                        position,
                        version,
                    })
                }
            };
            Row {
                name: child.name,
                what,
            }
        });
        FilledDirectory {
            rows: rows.collect(),
            plan,
        }
    }

    /// Whether a row is a further name of a file of an earlier snapshot. Symbolic links are made
    /// anew.
    pub fn is_link(&self, file: &FileRow) -> bool {
        file.version < self.plan.snapshot && matches!(file.shape.kind, Kind::Regular { .. })
    }

    /// Whether a later snapshot may link to a row.
    pub fn may_be_linked(&self, file: &FileRow, options: &GenerateOptions) -> bool {
        self.plan.snapshot + 1 < options.snapshots
            && matches!(file.shape.kind, Kind::Regular { .. })
    }

    /// Counts all rows.
    pub fn count(&self, options: &GenerateOptions, counter: &mut TotalsCounter, pool: &Pool) {
        for row in &self.rows {
            match &row.what {
                What::File(file) if self.is_link(file) => {
                    counter.add_link(&self.plan.path, &row.name)
                }
                What::File(file) => {
                    let more_links = self.may_be_linked(file, options);
                    with_file_entry(
                        &self.plan.path,
                        &row.name,
                        &file.shape,
                        more_links,
                        |entry| {
                            counter.add(entry, &mut file.shape.content(pool));
                        },
                    );
                }
                What::Directory(attributes) => {
                    counter.add(
                        &directory_entry(&self.plan.path, &row.name, attributes),
                        &mut NoData,
                    );
                }
            }
        }
    }
}

/// A directory as the ext4 writer wants it.
pub(super) fn directory_entry<'a>(
    parent: &'a [u8],
    name: &'a [u8],
    attributes: &Attributes,
) -> NewEntry<'a> {
    entry(parent, name, NewKind::Directory, attributes)
}

/// A file as the ext4 writer wants it, for as long as `each` runs.
pub(super) fn with_file_entry<T>(
    parent: &[u8],
    name: &[u8],
    shape: &FileShape,
    more_links: bool,
    each: impl FnOnce(&NewEntry<'_>) -> T,
) -> T {
    let content = match &shape.kind {
        Kind::Regular { size_bytes, .. } => NewKind::Regular {
            size_bytes: *size_bytes,
        },
        Kind::Symlink { target } => NewKind::Symlink { target },
    };
    let mut entry = entry(parent, name, content, &shape.attributes);
    if matches!(content, NewKind::Symlink { .. }) {
        entry.permissions = 0o777;
    }
    entry.more_links = more_links;
    match &shape.xattr {
        Some(value) => each(&NewEntry {
            xattrs: &[NewXattr {
                name: XATTR_NAME,
                value,
            }],
            ..entry
        }),
        None => each(&entry),
    }
}

fn entry<'a>(
    parent: &'a [u8],
    name: &'a [u8],
    content: NewKind<'a>,
    attributes: &Attributes,
) -> NewEntry<'a> {
    NewEntry {
        parent,
        name,
        content,
        permissions: attributes.permissions,
        uid: attributes.uid,
        gid: attributes.gid,
        atime: attributes.mtime,
        mtime: attributes.mtime,
        ctime: attributes.mtime,
        crtime: None,
        flags: 0,
        project: 0,
        generation: 0,
        xattrs: &[],
        more_links: false,
    }
}

/// Fills directories on `threads` workers, does `work` with each batch there, one directory at a
/// time, and hands the results on in order.
pub(super) fn for_each_filled<R: Send>(
    options: &GenerateOptions,
    threads: usize,
    batches: impl Iterator<Item = Vec<DirectoryPlan>>,
    work: impl Fn(&mut dyn Iterator<Item = FilledDirectory>) -> R + Sync,
    each: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    let fill = |plans: Vec<DirectoryPlan>| {
        let plans = plans.into_iter();
        work(&mut plans.map(|plan| FilledDirectory::new(plan, options)))
    };
    in_order(threads, batches, fill, each)
}

/// Several small directories, or a part of a large one, at a time.
pub(super) fn batches(
    plans: impl Iterator<Item = DirectoryPlan>,
) -> impl Iterator<Item = Vec<DirectoryPlan>> {
    batched(plans, |_| true)
}

/// All parts of a directory are in one batch.
pub(super) fn batches_of_whole_directories(
    plans: impl Iterator<Item = DirectoryPlan>,
) -> impl Iterator<Item = Vec<DirectoryPlan>> {
    batched(plans, |next| next.is_first_part)
}

/// A batch that is large enough ends where it `may_end_before` the next plan.
fn batched(
    plans: impl Iterator<Item = DirectoryPlan>,
    may_end_before: impl Fn(&DirectoryPlan) -> bool,
) -> impl Iterator<Item = Vec<DirectoryPlan>> {
    let mut plans = plans.peekable();
    std::iter::from_fn(move || {
        let (mut batch, mut names) = (Vec::new(), 0);
        while let Some(plan) = plans.next_if(|next| names < BATCH_NAMES || !may_end_before(next)) {
            names += 1 + plan.files + plan.subdirectories.len() as u64;
            batch.push(plan);
        }
        (!batch.is_empty()).then_some(batch)
    })
}
