//! What a pass over the blocks of images came to: what was left out, what changed, what is where.

use super::super::commit::StoredPass;
use super::block_map::BlockMap;
use super::block_runs::BlockRuns;
use bale_format::{Entry, ImageExtent};
use bale_repository::error::{Error, Result};
use bytes::Bytes;
use std::io;
use std::ops::Range;

/// What a pass came to.
pub(super) struct Passed {
    pub(super) stored: StoredPass,
    pub(super) images: Vec<PassedImage>,
}

/// Of one image.
pub(super) struct PassedImage {
    name: Bytes,
    /// Blocks that are free.
    pub(super) left_out: BlockRuns,
    /// Blocks of which some is free and was not read.
    pub(super) stale: BlockRuns,
    /// Blocks whose rows are other than the parent's.
    pub(super) changed: BlockRuns,
    pub(super) map: Option<BlockMap>,
    /// It was read to its end.
    pub(super) is_whole: bool,
    /// Some of it could not be read, which was reported.
    pub(super) has_gaps: bool,
}

impl PassedImage {
    /// Nothing is known of it.
    pub(super) fn begun(name: Bytes, map: Option<BlockMap>) -> PassedImage {
        PassedImage {
            name,
            left_out: BlockRuns::default(),
            stale: BlockRuns::default(),
            changed: BlockRuns::default(),
            map,
            is_whole: true,
            has_gaps: false,
        }
    }

    /// Blocks in which anything may be other than the parent has it, whether or not they have rows:
    /// of those that are free nothing is known.
    pub(super) fn replaced(&self) -> BlockRuns {
        let mut replaced = self.changed.clone();
        replaced.join(self.left_out.clone());
        replaced
    }

    /// A row that the new snapshot has.
    pub(super) fn knows(&mut self, row: &Entry) -> Result<()> {
        match (&mut self.map, ImageExtent::of(row)) {
            (Some(map), Some(extent)) if row.parent == self.name => {
                map.put(&extent).map_err(unknown)
            }
            _ => Ok(()),
        }
    }

    /// Blocks that hold nothing but zeros.
    pub(super) fn knows_zeros(&mut self, range: &Range<u64>) -> Result<()> {
        match &mut self.map {
            Some(map) => map.put_zeros(range).map_err(unknown),
            None => Ok(()),
        }
    }

    /// A row of the parent goes, which may be of another image.
    pub(super) fn loses(&mut self, row: &Entry) -> Result<()> {
        if let Some(extent) = ImageExtent::of(row).filter(|_| row.parent == self.name) {
            let end = extent.start.saturating_add(extent.bytes);
            self.changed.push(&(extent.start..end));
        }
        Ok(())
    }
}

fn unknown(error: io::Error) -> Error {
    Error::Other(format!(
        "note in a temporary file where blocks are: {error}"
    ))
}
