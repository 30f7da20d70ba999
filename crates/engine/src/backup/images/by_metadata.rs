//! What changed of an image by the metadata of its file systems, where nobody kept account of it.
//!
//! A block is left unread if all of it that is in use is content of files whose inodes are as they
//! were in the parent, which has it stored. Metadata is always read, and so is all that no file
//! system explains. What is free in such a block may be other than on the device; it counts as left
//! out, so that it is read once it comes into use, whatever a tracker says.

use super::super::parent::Parent;
use super::ImageSource;
use super::block_runs::BlockRuns;
use super::marked_granules::MarkedGranules;
use super::parent_images::ParentImage;
use super::pass;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::snapshot::{ImageRecord, ImageState};
use bale_fsimage::ByteSource;
use bale_fsimage::allocated::{AllocatedRanges, DiskFileSystem};
use bale_fsimage::unchanged::{StateSource, compare_states};
use bale_pipeline::error::with_causes;
use bale_source::raw::BlockRanges;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

/// What is to be read.
pub(super) struct ByMetadata {
    pub(super) changes: Vec<Range<u64>>,
    /// Blocks that are not read and of which some is free.
    pub(super) stale: BlockRuns,
    /// Of file systems that could not be compared: which, and why.
    pub(super) not_compared: Vec<String>,
}

/// Compares an image with what the parent has of it. The inner error: why that cannot be done.
pub(super) fn changed_by_metadata(
    source: &ImageSource,
    parent: &Parent,
    before: &Arc<ParentImage>,
    directory: &Path,
) -> io::Result<Result<ByMetadata, String>> {
    let was_frozen = match comparable(source, parent) {
        Err(why) => return Ok(Err(why.to_owned())),
        Ok(record) => [record.how, source.state()].map(|how| how == ImageState::Frozen),
    };
    let image = &source.image;
    let old: Arc<dyn ByteSource> = before.clone();
    let (new, sector) = (image.byte_source(), image.sector_bytes());
    let mut marks = MarkedGranules::new(directory, image.len_bytes())?;
    let (of_old, of_new) = (
        AllocatedRanges::of(old, sector),
        AllocatedRanges::of(new, sector),
    );
    let mut not_compared = Vec::new();
    let mut are_some = false;
    for file_system in of_new.file_systems() {
        let mut others = of_old.file_systems().iter();
        let other = others.find(|other| other.lies_as(file_system));
        let why = match other {
            None => Err("it was not there".to_owned()),
            Some(other) => mark_unchanged(other, file_system, was_frozen, &mut marks)?,
        };
        are_some |= why.is_ok();
        if let Err(why) = why {
            let name = file_system.name.escape_debug();
            not_compared.push(format!("{name} is read as a whole: {why}"));
        }
    }
    if !are_some {
        return Ok(Err(match not_compared.is_empty() {
            true => "no file system is found in it".to_owned(),
            false => not_compared.join("; "),
        }));
    }
    let (changes, stale) = sweep(of_old, of_new, &mut marks, image.len_bytes())?;
    Ok(Ok(ByMetadata {
        changes,
        stale,
        not_compared,
    }))
}

/// What the parent records of it.
fn comparable<'a>(
    source: &ImageSource,
    parent: &'a Parent,
) -> Result<&'a ImageRecord, &'static str> {
    let image = &source.image;
    let row = parent.catalog.lookup(image.name()).ok().flatten();
    let row = row.filter(|row| row.is_image() && !row.flags.has_any(pass::TROUBLE));
    let path = [b"/", &image.name()[..]].concat();
    let record = parent.images.iter().find(|other| other.path.0 == path);
    match (record, row) {
        _ if parent.run.is_some() => Err("the run before did not end"),
        (Some(record), Some(row)) if row.size == image.len_bytes() => {
            match record.how == ImageState::Fuzzy || source.state() == ImageState::Fuzzy {
                true => Err("it is not of one moment, or the one before was not"),
                false => Ok(record),
            }
        }
        (Some(_), Some(_)) => Err("the image has another length"),
        _ => Err("the parent does not have all of the image"),
    }
}

/// The inner error: why nothing is marked.
fn mark_unchanged(
    old: &DiskFileSystem,
    new: &DiskFileSystem,
    was_frozen: [bool; 2],
    marks: &mut MarkedGranules,
) -> io::Result<Result<(), String>> {
    let [of_old, of_new] = [(old, was_frozen[0]), (new, was_frozen[1])].map(|(of, was_frozen)| {
        let source = of.source();
        StateSource { source, was_frozen }
    });
    // `lies_as` has seen to it that they are of one kind.
    let states = match compare_states(new.content, of_old, of_new) {
        Err(error) => return Ok(Err(with_causes(&error))),
        Ok(states) => states,
    };
    let mut marked = Ok(());
    let walked = states.walk(&mut |range| {
        for disk in new.on_disk(range) {
            if marked.is_ok() {
                marked = marks.mark(&disk);
            }
        }
        match marked.is_ok() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    marked?;
    // What was marked before a table that cannot be read is right all the same.
    let walked = walked.map(drop);
    Ok(walked.map_err(|error| with_causes(&error)))
}

/// What is in use and not both marked and in use before.
fn sweep(
    old: AllocatedRanges,
    new: AllocatedRanges,
    marks: &mut MarkedGranules,
    len_bytes: u64,
) -> io::Result<(Vec<Range<u64>>, BlockRuns)> {
    let mut sweep = Sweep {
        len_bytes,
        block: 0,
        used: 0,
        is_changed: false,
        changes: BlockRanges::default(),
        stale: BlockRuns::default(),
    };
    let mut old = old.peekable();
    for range in new {
        let mut at = range.start;
        while at < range.end {
            let end = (at - at % IMAGE_BLOCK_BYTES + IMAGE_BLOCK_BYTES).min(range.end);
            while old.next_if(|old| old.end <= at).is_some() {}
            let was_used = old
                .peek()
                .is_some_and(|old| old.start <= at && end <= old.end);
            let stays = was_used && marks.are_marked(&(at..end))?;
            sweep.take(at..end, stays);
            at = end;
        }
    }
    sweep.close();
    Ok((sweep.changes.finish(), sweep.stale))
}

struct Sweep {
    len_bytes: u64,
    block: u64,
    /// Bytes of the block that are in use.
    used: u64,
    is_changed: bool,
    changes: BlockRanges,
    stale: BlockRuns,
}

impl Sweep {
    /// A piece of a block.
    fn take(&mut self, piece: Range<u64>, stays: bool) {
        let block = piece.start / IMAGE_BLOCK_BYTES;
        if block != self.block {
            self.close();
            self.block = block;
        }
        self.used += piece.end - piece.start;
        self.is_changed |= !stays;
    }

    fn close(&mut self) {
        let start = self.block * IMAGE_BLOCK_BYTES;
        let range = start..(start + IMAGE_BLOCK_BYTES).min(self.len_bytes);
        if self.is_changed {
            self.changes.push(range);
        } else if self.used > 0 && self.used < range.end - range.start {
            self.stale.push(&range);
        }
        (self.used, self.is_changed) = (0, false);
    }
}
