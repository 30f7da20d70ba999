//! The plan: one reading of the catalog, sorted three ways, before anything is written.
//!
//! Directories by path, contents by the place of their chunk, further names of inodes by their
//! first name. All of it is in sorters, so memory does not grow with the number of files. Rows that
//! must not be restored end here.

mod groups;
mod parents;

pub use groups::{GROUP_KEY_BYTES, group_key};

use crate::losses::{self, Losses};
use crate::names::{check_name, check_path, is_part_name};
use crate::progress::report_problem;
use crate::scratch::{PairSorter, ScratchSpace, SortedPairs};
use crate::select::{Above, above, chosen};
use crate::totals::PlanTotals;
use crate::{CatalogSource, ChunkSource, Overwrite, RestoreError, RestoreOptions};
use crate::{extents, pieces, row};
use bale_format::entry::{is_below, join};
use bale_format::snapshot::IMAGES_MAX;
use bale_format::{Content, Entry, EntryFlags, Key, Kind};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bytes::Bytes;

/// Memory of each sorter while the plan is made.
const SORTER_BYTES: usize = 16 << 20;

/// Rows between two looks at whether to stop.
const STOP_EVERY_ROWS: u64 = 65_536;

/// Unreadable stretches of one catalog after which reading ends.
const CATALOG_TROUBLES_MAX: u64 = 100_000;

/// The plan and its rows.
pub struct Planned {
    pub plan: PlanTotals,
    /// What was cut off the snapshot's paths.
    pub strip: Bytes,
    /// By path of the directory: the ones above come first.
    pub directories: SortedPairs,
    /// By phase and place; see [`ContentPhase`].
    pub content: SortedPairs,
    /// By group; first the row that was sent to `content`, then the other names.
    pub links: SortedPairs,
    /// Few, and each a work of its own.
    pub images: Vec<PlannedImage>,
    /// Problems met while planning.
    pub problems: u64,
    /// Was part of the repository the reason of some?
    pub has_damage: bool,
    /// What the backup did not have.
    pub losses: Losses,
    /// Was every row read? Else nothing may be deleted for want of a row.
    pub complete: bool,
}

/// An image, whose bytes are rows of the catalog.
pub struct PlannedImage {
    /// In the catalog.
    pub path: Vec<u8>,
    /// Relative to the target.
    pub entry: Entry,
}

/// Order of work on contents; the first byte of a key. The second half is the same again for
/// entries whose names look like our temporary ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentPhase {
    /// Entries that need no chunk.
    Bare = 0,
    /// Files inside a chunk.
    Bundled = 1,
    /// Files made of pieces.
    Pieces = 2,
}

/// Added to the phase of late entries.
pub const LATE: u8 = 8;

/// Phase, pack and offset: rows whose keys begin alike are in one chunk.
pub const CHUNK_KEY_BYTES: usize = 13;

fn late_of(entry: &Entry) -> u8 {
    if is_part_name(&entry.name) { LATE } else { 0 }
}

/// Reads the catalog and sorts what is wanted of it.
pub fn plan(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<Planned, RestoreError> {
    let root = options.below.clone();
    check_path(&root).map_err(|bad| RestoreError::Catalog(bad.into()))?;
    let strip = strip_of(catalog, &root)?;
    let sorter = || scratch.sorter(SORTER_BYTES);
    let mut planner = Planner {
        catalog,
        chunks,
        options,
        monitor,
        strip,
        plan: PlanTotals::default(),
        problems: 0,
        has_damage: false,
        losses: Losses::default(),
        parent: None,
        above: Above::Open,
        parent_bad: false,
        above_pushed: false,
        above_last: Bytes::new(),
        bare: 0,
        directories: sorter(),
        content: sorter(),
        groups: sorter(),
        images: Vec::new(),
        buffer: Vec::new(),
    };
    let complete = planner.read(&root)?;
    planner.finish(scratch, complete)
}

/// What is cut off paths: the directory asked for, or the directory of the file asked for.
fn strip_of(catalog: &dyn CatalogSource, root: &Bytes) -> Result<Bytes, RestoreError> {
    if root.is_empty() {
        return Ok(root.clone());
    }
    match catalog.lookup(root).map_err(RestoreError::Catalog)? {
        None => Err(RestoreError::NotFound),
        Some(entry) if entry.kind == Kind::Directory => Ok(root.clone()),
        Some(_) => Ok(Key::of_path(root).parent),
    }
}

struct Planner<'a> {
    catalog: &'a dyn CatalogSource,
    chunks: &'a dyn ChunkSource,
    options: &'a RestoreOptions<'a>,
    monitor: &'a dyn Monitor,
    strip: Bytes,
    plan: PlanTotals,
    problems: u64,
    has_damage: bool,
    losses: Losses,
    /// Parent of the last row, as in the snapshot; its verdict; and the same parent relative to the
    /// target.
    parent: Option<(Bytes, Bytes)>,
    above: Above,
    parent_bad: bool,
    above_pushed: bool,
    /// The last directory that was pushed, with those above it, for what is in it.
    above_last: Bytes,
    bare: u64,
    directories: PairSorter,
    content: PairSorter,
    groups: PairSorter,
    images: Vec<PlannedImage>,
    buffer: Vec<u8>,
}

impl Planner<'_> {
    /// Takes every row that may be wanted; tells whether all could be read.
    fn read(&mut self, root: &[u8]) -> Result<bool, RestoreError> {
        let (catalog, mut number, mut troubles) = (self.catalog, 0u64, 0);
        let within = self.options.select.within();
        let roots = within.unwrap_or_else(|| vec![root.to_vec()]);
        for path in roots.iter().filter(|path| is_below(path, root)) {
            for item in catalog.rows(path).map_err(RestoreError::Catalog)? {
                let is_told = number.is_multiple_of(STOP_EVERY_ROWS);
                if is_told && self.monitor.interrupted() {
                    return Err(RestoreError::Stopped);
                }
                number += 1;
                match item {
                    Ok(entry) => {
                        if is_told {
                            self.report_progress(number, &entry.parent);
                        }
                        self.take(entry)?;
                    }
                    Err(trouble) => {
                        troubles += 1;
                        self.damage(&[], "read the catalog", &trouble.to_string());
                        if troubles == CATALOG_TROUBLES_MAX {
                            return Err(RestoreError::Catalog(trouble));
                        }
                    }
                }
            }
        }
        Ok(troubles == 0)
    }

    /// How much of the snapshot is wanted shows only at the end.
    fn report_progress(&self, rows: u64, parent: &[u8]) {
        self.monitor.place(&[b"/", parent].concat());
        let progress = Progress {
            done: rows,
            ..Progress::default()
        };
        self.monitor.progress(Phase::Plan, progress);
    }

    fn problem(&mut self, path: &[u8], action: &'static str, text: &str) {
        self.problems += 1;
        if !self.options.is_plan_reported {
            self.options.was_reported(path, action, text);
            report_problem(self.monitor, path, action, text);
        }
    }

    /// A problem for which the repository is the reason.
    fn damage(&mut self, path: &[u8], action: &'static str, text: &str) {
        self.has_damage = true;
        self.problem(path, action, text);
    }

    fn take(&mut self, mut entry: Entry) -> Result<(), RestoreError> {
        if entry.name.is_empty() || entry.path() == self.strip[..] {
            return self.take_root(entry);
        }
        self.enter(&entry.parent)?;
        let path = entry.path();
        if self.parent_bad {
            return Ok(());
        }
        if let Err(bad) = check_name(&entry.name) {
            self.problem(&path, "restore", &format!("refused: {bad}"));
            return Ok(());
        }
        let select = self.options.select;
        let wanted = select.is_everything()
            || chosen(select, self.above, &path, entry.kind == Kind::Directory);
        if !wanted {
            return Ok(());
        }
        if self.above == Above::Open && !select.is_everything() && !self.above_pushed {
            self.above_pushed = true;
            self.directories_above(&entry.parent)?;
        }
        let (_, relative) = self.parent.as_ref().expect("a row's parent was entered");
        entry.parent = relative.clone();
        if self.options.overwrite == Overwrite::MetadataOnly {
            return self.push_metadata(entry);
        }
        if entry.kind != Kind::Directory {
            self.report_flags(&entry);
        }
        match entry.kind {
            Kind::Directory => self.push_directory(&entry),
            // Not a path: rows of a catalog come without them.
            Kind::Extent => Ok(()),
            _ if entry.is_image() => {
                self.push_image(path, entry);
                Ok(())
            }
            _ if entry.is_hard_link() => self.push_group(&entry),
            _ => self.push_content(&entry),
        }
    }

    /// Each name for itself, and none needs a chunk.
    fn push_metadata(&mut self, mut entry: Entry) -> Result<(), RestoreError> {
        match entry.kind {
            Kind::Directory => return self.push_directory(&entry),
            Kind::Extent => return Ok(()),
            _ => {}
        }
        entry.content = Content::None;
        let key = self.bare_key(&entry);
        self.encode(&entry);
        self.content
            .push(&key, &self.buffer)
            .map_err(RestoreError::Scratch)
    }

    /// The row that is the target itself.
    fn take_root(&mut self, mut entry: Entry) -> Result<(), RestoreError> {
        let path = entry.path();
        let select = self.options.select;
        let wanted = select.is_everything() || chosen(select, above(select, &path), &path, true);
        if entry.kind != Kind::Directory || path != self.strip[..] || !wanted {
            return Ok(());
        }
        entry.parent = Bytes::new();
        entry.name = Bytes::new();
        self.push_directory(&entry)
    }

    /// Tells what the backup did not have of a row.
    fn report_flags(&mut self, entry: &Entry) {
        if entry.flags.0 == 0 {
            return;
        }
        if let Some(text) = losses::missing_content(entry) {
            self.problem(&entry.path(), "restore", text);
        }
        for (kind, text) in losses::of_flags(entry.flags) {
            self.losses.add(kind, &entry.path(), text);
        }
    }

    fn push_directory(&mut self, entry: &Entry) -> Result<(), RestoreError> {
        self.report_flags(entry);
        let mut key = join(&entry.parent, &entry.name);
        key.iter_mut()
            .filter(|byte| **byte == b'/')
            .for_each(|byte| *byte = 0);
        self.plan.directories += 1;
        self.encode(entry);
        self.directories
            .push(&key, &self.buffer)
            .map_err(RestoreError::Scratch)
    }

    fn push_image(&mut self, path: Vec<u8>, entry: Entry) {
        if self.images.len() == IMAGES_MAX {
            let text = format!("refused: a snapshot has at most {IMAGES_MAX} images");
            return self.problem(&path, "restore", &text);
        }
        let bytes = extents::stored_bytes(self.catalog, &path, entry.size);
        self.count(&entry, bytes);
        self.images.push(PlannedImage { path, entry });
    }

    fn push_group(&mut self, entry: &Entry) -> Result<(), RestoreError> {
        self.encode(entry);
        self.groups
            .push(&group_key(entry), &self.buffer)
            .map_err(RestoreError::Scratch)
    }

    fn push_content(&mut self, entry: &Entry) -> Result<(), RestoreError> {
        let Some(key) = self.content_key(entry)? else {
            return Ok(());
        };
        self.encode(entry);
        self.content
            .push(&key, &self.buffer)
            .map_err(RestoreError::Scratch)
    }

    /// Where in the work this entry comes; `None` if its content cannot be had, which is then a
    /// problem.
    fn content_key(&mut self, entry: &Entry) -> Result<Option<Vec<u8>>, RestoreError> {
        if entry.kind != Kind::File || (entry.size == 0 && !entry.flags.has(EntryFlags::UNREADABLE))
        {
            return Ok(Some(self.bare_key(entry)));
        }
        let late = late_of(entry);
        let (phase, chunk, inside) = match &entry.content {
            Content::None | Content::Image => {
                self.problem(
                    &entry.path(),
                    "restore",
                    "its content could not be read by the backup",
                );
                return Ok(None);
            }
            Content::Bundled { chunk, offset } => (ContentPhase::Bundled, chunk, *offset),
            Content::Pieces { list } => (ContentPhase::Pieces, list, 0),
        };
        let Some(place) = self.chunks.place(chunk) else {
            let text = format!("chunk {} is in no index", chunk.short());
            self.damage(&entry.path(), "restore", &text);
            return Ok(None);
        };
        let bytes = match phase {
            // What cannot be read is found again, and told, when the file's turn comes.
            ContentPhase::Pieces if entry.flags.has(EntryFlags::SPARSE) => {
                pieces::data_bytes(chunk, entry.size, self.chunks)
            }
            _ => entry.size,
        };
        self.count(entry, bytes);
        let mut key = Vec::with_capacity(CHUNK_KEY_BYTES + 4);
        key.push(phase as u8 + late);
        key.extend_from_slice(&place.sort_key());
        key.extend_from_slice(&inside.to_be_bytes());
        Ok(Some(key))
    }

    /// Of an entry that needs no chunk.
    fn bare_key(&mut self, entry: &Entry) -> Vec<u8> {
        self.count(entry, 0);
        self.bare += 1;
        let mut key = vec![ContentPhase::Bare as u8 + late_of(entry)];
        key.extend_from_slice(&self.bare.to_be_bytes());
        key
    }

    fn count(&mut self, entry: &Entry, bytes: u64) {
        match entry.kind {
            Kind::File => self.plan.files += 1,
            _ => self.plan.others += 1,
        }
        self.plan.bytes = self.plan.bytes.saturating_add(bytes);
    }

    fn encode(&mut self, entry: &Entry) {
        self.buffer.clear();
        row::encode(entry, &mut self.buffer);
    }

    /// Sends the names of inodes where they belong, then closes the sorters.
    fn finish(mut self, scratch: &ScratchSpace, complete: bool) -> Result<Planned, RestoreError> {
        let links = self.take_groups(scratch)?;
        let is_nothing = self.plan.entries() == 0 && self.problems == 0;
        if is_nothing && !self.options.select.is_everything() {
            return Err(RestoreError::NothingSelected);
        }
        let directories = self.directories.finish().map_err(RestoreError::Scratch)?;
        let content = self.content.finish().map_err(RestoreError::Scratch)?;
        Ok(Planned {
            plan: self.plan,
            strip: self.strip,
            directories,
            content,
            links,
            images: self.images,
            problems: if self.options.is_plan_reported {
                0
            } else {
                self.problems
            },
            has_damage: self.has_damage,
            losses: self.losses,
            complete,
        })
    }
}
