//! One pass over images: read, compare with the parent's rows, store.
//!
//! Threads read blocks and hash them, ahead of the one that compares; those that compress are
//! behind it. So an image that did not change costs reading and hashing, and one block more or less
//! takes the same memory.

mod block;
mod parts;

use super::super::checkpoint::{Checkpoints, Resumable};
use super::super::commit::StoredPass;
use super::super::compare::Scanned;
use super::super::parent::Parent;
use super::super::recount::Class;
use super::super::run::{BackupOptions, BackupRun};
use super::super::tally::Tally;
use super::block_map::BlockMap;
use super::block_runs::BlockRuns;
use super::early_scan::Begin;
use super::extent_rows::ExtentRows;
use super::parent_images::ParentImage;
use super::passed::{Passed, PassedImage};
use super::prepare::{Prepared, prepare};
use super::view_names::ViewNames;
use crate::limits::image_ahead;
use bale_format::extent::extent_name;
use bale_format::{Entry, EntryFlags, Key};
use bale_pipeline::ordered::in_order_within;
use bale_repository::catalog::{KeyRange, ParentCursor, Partial};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_source::raw::{BlockWork, Changes, DeviceRanges, RawBlock, RawImage, plan};
use block::last_name;
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Flags of a row of an image of which not everything was read.
pub(super) const LACKING: EntryFlags =
    EntryFlags(EntryFlags::INCOMPLETE.0 | EntryFlags::UNREADABLE.0);

/// Flags of a row of an image of which not everything is as it was at one moment.
pub(super) const TROUBLE: EntryFlags = EntryFlags(EntryFlags::CHANGED.0 | LACKING.0);

/// Sorts behind the names of all extents.
const BEHIND_EXTENTS: &[u8] = b"\xff";

/// An image, and what of it is read.
pub(super) struct ImagePass<'a> {
    pub(super) image: &'a RawImage,
    pub(super) data: DeviceRanges,
    /// `None`: all.
    pub(super) in_use: Option<DeviceRanges>,
    pub(super) changes: Changes,
    /// Blocks that do not count as changed, and of which what is free may be other.
    pub(super) stale: BlockRuns,
    /// To be filled, if the files in the image are listed.
    pub(super) map: Option<BlockMap>,
    /// As the parent has it, to compare with, and to take from if nothing but what changed may be
    /// read of it.
    pub(super) parent: Option<Arc<ParentImage>>,
}

/// Reads and stores images, which are in the order of their names. `begin` learns of changes.
pub(super) fn pass(
    run: &BackupRun,
    parent: &Parent,
    (store, tally): (&Arc<ChunkWriter>, &Tally<'_>),
    options: &BackupOptions,
    images: Vec<ImagePass<'_>>,
    begin: Option<Begin>,
) -> Result<Passed> {
    let repository = &run.repository;
    let views = ViewNames::of_parent(parent);
    // Millions of rows, perhaps, that stay whatever the blocks are.
    let passed_by = views.below(|name| images.iter().any(|pass| pass.image.name() == name));
    let ranges = KeyRange::all_but(passed_by.collect());
    let mut writer = ImageWriter {
        store,
        tally,
        rows: ExtentRows::new(&parent.catalog, store),
        cursor: ParentCursor::open_ranges(&parent.catalog, ranges),
        scanned: Scanned::new(repository.spill_dir()?, &repository.memory()),
        looks: !parent.is_reusable_whole(),
        views,
        passed: Vec::new(),
        begin,
        last_key: None,
        bytes_done: 0,
    };
    let every = (!options.dry_run).then_some(options.checkpoint_every);
    let mut checkpoints =
        every.map(|every| Checkpoints::new(run, store, tally, None, &parent.index_objects, every));
    let written = writer.write_all(images, checkpoints.as_mut());
    if let (Err(Error::Interrupted), Some(checkpoints)) = (&written, &mut checkpoints) {
        // What is finished is kept, so that the next run need not begin anew.
        checkpoints.write_last(&mut writer)?;
    }
    written?;
    writer.finish()
}

/// Why an image is not read any further.
enum Stop {
    /// The rest of it cannot be had, which was reported.
    Ended,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

struct ImageWriter<'a> {
    store: &'a Arc<ChunkWriter>,
    tally: &'a Tally<'a>,
    rows: ExtentRows,
    cursor: ParentCursor,
    scanned: Scanned,
    /// Rows of the parent are looked at before they stay: some of what they point at may be gone.
    looks: bool,
    /// Of the parent: rows that stay as they are here.
    views: ViewNames,
    /// Of each image, the last one being that which is read.
    passed: Vec<PassedImage>,
    /// Lets a file system be scanned once it changed.
    begin: Option<Begin>,
    last_key: Option<Key>,
    bytes_done: u64,
}

impl ImageWriter<'_> {
    fn write_all(
        &mut self,
        images: Vec<ImagePass<'_>>,
        mut checkpoints: Option<&mut Checkpoints<'_>>,
    ) -> Result<()> {
        let mut before = Vec::new();
        for pass in &images {
            before.push(self.put_row(pass.image)?);
        }
        for (pass, old) in images.into_iter().zip(before) {
            let (image, changes_before) = (pass.image, self.rows.changes());
            self.write_extents(pass, &mut checkpoints)?;
            let row = image.row();
            let class = match &old {
                None => Class::New,
                Some(old) if *old == row && self.rows.changes() == changes_before => {
                    Class::Unmodified
                }
                Some(_) => Class::Changed,
            };
            self.tally.stored(&row, class);
            if class != Class::Unmodified {
                self.tally.report_difference(&row, old.as_ref());
            }
        }
        Ok(())
    }

    /// The row of the image, and the one that the parent had.
    fn put_row(&mut self, image: &RawImage) -> Result<Option<Entry>> {
        let row = image.row();
        let old = self.advance(&row.parent, &row.name, false)?;
        if let Some(old) = old
            .as_ref()
            .filter(|old| old.is_image() && old.size != row.size)
        {
            self.tally.note(&format!(
                "{} has {} bytes now, and had {} in the snapshot before",
                image.path().display(),
                row.size,
                old.size
            ));
        }
        if old.as_ref() != Some(&row) {
            self.rows.put(&row)?;
        }
        self.last_key = Some(row.key());
        Ok(old)
    }

    fn write_extents(
        &mut self,
        pass: ImagePass<'_>,
        checkpoints: &mut Option<&mut Checkpoints<'_>>,
    ) -> Result<()> {
        let ImagePass {
            image,
            data,
            in_use,
            changes,
            stale,
            map,
            parent,
        } = pass;
        let mut passed = PassedImage::begun(image.name().clone(), map);
        passed.stale = stale;
        self.passed.push(passed);
        let (store, parent) = (self.store.clone(), parent.as_deref());
        let work = |_: &mut (), work: BlockWork| prepare((image, parent), &store, work);
        let ahead = image_ahead(&self.store.repository().memory());
        let blocks = plan(image.len_bytes(), data, in_use, changes);
        let taken = in_order_within(
            ahead,
            blocks,
            || (),
            work,
            |prepared| {
                self.take((image, parent), prepared)?;
                self.tell_settled()?;
                match checkpoints {
                    Some(checkpoints) => Ok(checkpoints.when_due(self)?),
                    None => Ok(()),
                }
            },
        );
        match taken {
            Ok(()) => {}
            Err(Stop::Ended) => {
                let passed = self.passed.last_mut();
                passed.expect("begun with its row").is_whole = false;
            }
            Err(Stop::Failed(error)) => return Err(error),
        }
        // What the parent has behind the end of the image.
        self.advance(image.name(), BEHIND_EXTENTS, false)?;
        self.rows.settle()?;
        self.tell_settled()
    }

    fn take(
        &mut self,
        (image, parent): (&RawImage, Option<&ParentImage>),
        prepared: Prepared,
    ) -> std::result::Result<(), Stop> {
        if self.tally.interrupted() {
            return Err(Stop::Failed(Error::Interrupted));
        }
        let bytes = match prepared {
            Prepared::Zeros(range) => {
                self.at_image().knows_zeros(&range)?;
                range.end - range.start
            }
            Prepared::Free(range) => {
                self.at_image().left_out.push(&range);
                range.end - range.start
            }
            Prepared::Unchanged(range) => match parent.filter(|_| image.is_changes_only()) {
                None if self.looks => self.pass_if_there(image, None, range)?,
                None => self.pass_unchanged(image, range)?,
                parent => self.pass_if_there(image, parent, range)?,
            },
            Prepared::Read {
                range,
                block,
                id,
                before,
            } => self.take_block(image, (range, block, id), before)?,
            Prepared::Failed(range, error) => {
                let text = format!("byte {} and all behind it: {error}", range.start);
                return self.end(image, EntryFlags::INCOMPLETE, text);
            }
        };
        if let (Some(begin), Some(image)) = (&mut self.begin, self.passed.last()) {
            begin.look(self.passed.len() - 1, &image.changed);
        }
        self.bytes_done += bytes;
        self.tally.report_bytes(self.bytes_done);
        Ok(())
    }

    /// Rows of the parent that stay.
    fn pass_unchanged(&mut self, image: &RawImage, range: Range<u64>) -> Result<u64> {
        let (name, bytes) = (image.name(), range.end - range.start);
        // What has no row was zeros then: blocks that were left out count as changed.
        self.at_image().knows_zeros(&range)?;
        let first = self.advance(name, &extent_name(range.start), false)?;
        if let Some(first) = first {
            self.at_image().knows(&first)?;
        }
        // Behind the last byte of the range, and in front of what follows.
        let last = last_name(&range);
        self.advance(name, &last, true)?;
        self.last_key = Some(Key {
            parent: name.clone(),
            name: last,
        });
        Ok(bytes)
    }

    /// What the device did not give is zeros, named, and read again next time.
    fn report_bad(&mut self, image: &RawImage, start: u64, block: &RawBlock) -> Result<()> {
        for bad in &block.bad {
            let (from, to) = (start + bad.start as u64, start + bad.end as u64);
            let why = block.error.as_ref().map(io::Error::to_string);
            let why = why.unwrap_or_default();
            self.problem(image, format!("bytes {from} to {to}: {why}"));
        }
        self.at_image().has_gaps |= !block.bad.is_empty();
        self.amend_if(!block.bad.is_empty(), image)
    }

    /// Flags the row of an image that is not all there.
    fn amend_if(&mut self, is_incomplete: bool, image: &RawImage) -> Result<()> {
        if is_incomplete {
            let (key, flags) = (image.row().key(), EntryFlags::INCOMPLETE);
            self.scanned.amendments.add(&key, flags)?;
        }
        Ok(())
    }

    fn end(
        &mut self,
        image: &RawImage,
        flags: EntryFlags,
        text: String,
    ) -> std::result::Result<(), Stop> {
        self.problem(image, text);
        let added = self.scanned.amendments.add(&image.row().key(), flags);
        added.map_err(Stop::Failed)?;
        Err(Stop::Ended)
    }

    fn problem(&self, image: &RawImage, text: String) {
        let path = image.path().as_os_str().as_bytes();
        let path = path.strip_prefix(b"/").unwrap_or(path);
        self.tally.report_problem(path, "read", text);
    }

    /// The parent's row of this key. Those before it go, unless they are passed over unchanged.
    fn advance(&mut self, parent: &Bytes, name: &[u8], stays: bool) -> Result<Option<Entry>> {
        let (rows, views) = (&mut self.rows, &self.views);
        let mut passed = self.passed.last_mut();
        let old = self.cursor.advance_to(parent, name, |row| {
            if views.have(&row) {
                return Ok(());
            }
            match (&mut passed, stays) {
                (Some(image), true) => image.knows(&row),
                (Some(image), false) => image.loses(&row).and_then(|()| rows.remove(&row)),
                (None, true) => Ok(()),
                (None, false) => rows.remove(&row),
            }
        })?;
        Ok(old.map(|old| old.entry()))
    }

    /// What is known of the image that is read.
    fn at_image(&mut self) -> &mut PassedImage {
        self.passed.last_mut().expect("one of each image")
    }

    /// Parts of blocks whose chunk is known now.
    fn tell_settled(&mut self) -> Result<()> {
        let settled = self.rows.take_settled();
        settled
            .iter()
            .try_for_each(|row| self.at_image().knows(row))
    }

    fn finish(self) -> Result<Passed> {
        let ImageWriter {
            mut rows,
            cursor,
            scanned,
            views,
            passed,
            ..
        } = self;
        // What is no image of this backup, and nothing of it.
        cursor.finish(|row| match views.have(&row) {
            true => Ok(()),
            false => rows.remove(&row),
        })?;
        let (layers, changes) = rows.finish()?;
        let stored = StoredPass {
            scanned,
            layers,
            changes,
        };
        Ok(Passed {
            stored,
            images: passed,
        })
    }
}

impl Resumable for ImageWriter<'_> {
    fn checkpoint(&mut self, holds_all: bool) -> Result<Option<Partial>> {
        let partial = self.rows.checkpoint(self.last_key.as_ref(), holds_all)?;
        self.tell_settled()?;
        Ok(partial)
    }

    fn bytes_in_bundles(&self) -> u64 {
        self.rows.bytes_in_bundle()
    }
}
