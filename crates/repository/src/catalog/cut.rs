//! Cuts a sequence of rows into segments, at places that depend on the rows near them.
//!
//! After an insertion the cuts fall into step again, so the segments behind it are the same as
//! before. The rule is format: docs/FORMAT.md, section 8.

use super::{CatalogError, Result, SegmentSink};
use bale_format::{Entry, SegmentBuilder, SegmentError, SegmentRef};
use bytes::Bytes;
use std::ops::Range;

/// Bytes of names and other byte strings that weigh as much as a row.
const WEIGHT_BYTES: u64 = 64;

/// Where segments end.
#[derive(Clone, Copy, Debug)]
pub struct CutRule {
    /// Weight of a segment at which it may end. The weight of a usual row is 1.
    pub weight_min: u64,
    /// Weight at which it must end.
    pub weight_max: u64,
    /// Once a segment may end, it ends after one row of weight 1 in so many.
    pub one_in: u64,
}

impl CutRule {
    /// The format's.
    pub const FORMAT: CutRule = CutRule {
        weight_min: 32_768,
        weight_max: 131_072,
        one_in: 32_768,
    };

    /// Does a segment end after this row, if it may?
    fn ends_after(&self, entry: &Entry, weight: u64) -> bool {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(&entry.parent)
            .update(b"\0")
            .update(&entry.name);
        let hash = hasher.finalize();
        let first = hash
            .as_bytes()
            .first_chunk::<8>()
            .expect("a hash has 32 bytes");
        let hashes_of_one = u64::MAX / self.one_in + 1;
        u64::from_le_bytes(*first) < weight.saturating_mul(hashes_of_one)
    }
}

/// Collects sorted rows and stores them as segments. Holds the rows of one segment.
pub struct SegmentWriter {
    rule: CutRule,
    builder: SegmentBuilder,
    /// Of the rows in the builder.
    weight: u64,
    /// Of the row before, in this segment or the one before.
    parent: Option<Bytes>,
    finished: Vec<SegmentRef>,
}

impl Default for SegmentWriter {
    fn default() -> SegmentWriter {
        SegmentWriter::new()
    }
}

impl SegmentWriter {
    /// Without rows.
    pub fn new() -> SegmentWriter {
        SegmentWriter::with_rule(CutRule::FORMAT)
    }

    /// Cuts by another rule than the format's: for tests.
    pub fn with_rule(rule: CutRule) -> SegmentWriter {
        SegmentWriter {
            rule,
            builder: SegmentBuilder::new(),
            weight: 0,
            parent: None,
            finished: Vec::new(),
        }
    }

    /// Adds a row after those before.
    pub fn push(&mut self, entry: &Entry, sink: &mut dyn SegmentSink) -> Result<()> {
        self.builder.push(entry).map_err(CatalogError::Row)?;
        let is_new_parent = self.parent.as_ref() != Some(&entry.parent);
        let weight = weight(entry, is_new_parent);
        if is_new_parent {
            self.parent = Some(entry.parent.clone());
        }
        self.weight += weight;
        let may_end = self.weight >= self.rule.weight_min;
        if self.weight >= self.rule.weight_max || may_end && self.rule.ends_after(entry, weight) {
            self.close(sink)?;
        }
        Ok(())
    }

    /// Ends the segment here.
    pub fn close(&mut self, sink: &mut dyn SegmentSink) -> Result<()> {
        if self.builder.rows() > 0 {
            self.store(0..self.builder.rows(), sink)?;
            self.builder.clear();
            self.weight = 0;
        }
        Ok(())
    }

    /// Stores the rows that are in no finished segment yet for somebody who may not see the end of
    /// it. They stay, and the segment ends where it would.
    pub fn provisional(&mut self, sink: &mut dyn SegmentSink) -> Result<Vec<SegmentRef>> {
        let finished = self.take_finished();
        let stored = match self.builder.rows() {
            0 => Ok(()),
            rows => self.store(0..rows, sink),
        };
        let provisional = std::mem::replace(&mut self.finished, finished);
        stored.map(|()| provisional)
    }

    /// Stores rows as one segment, or as two if they would not fit: rows of an unusual kind.
    fn store(&mut self, rows: Range<usize>, sink: &mut dyn SegmentSink) -> Result<()> {
        let segment = match self.builder.encode(rows.clone()) {
            Err(SegmentError::TooLarge { .. }) if rows.len() > 1 => {
                let middle = rows.start + rows.len() / 2;
                self.store(rows.start..middle, sink)?;
                return self.store(middle..rows.end, sink);
            }
            encoded => encoded.map_err(CatalogError::Row)?,
        };
        self.finished.push(SegmentRef {
            id: sink.store_segment(segment).map_err(CatalogError::Store)?,
            rows: rows.len() as u32,
            bytes: self.builder.file_bytes(rows.clone()),
            first: self.builder.key(rows.start),
            last: self.builder.key(rows.end - 1),
            from: None,
            to: None,
        });
        Ok(())
    }

    /// Weight of the rows that are in no finished segment yet.
    pub fn pending_weight(&self) -> u64 {
        self.weight
    }

    /// Key of the first row that is in no finished segment yet.
    pub fn pending_key(&self) -> Option<bale_format::Key> {
        (self.builder.rows() > 0).then(|| self.builder.key(0))
    }

    /// Segments finished since `take_finished`.
    pub fn finished(&self) -> &[SegmentRef] {
        &self.finished
    }

    /// Segments finished since the last call.
    pub fn take_finished(&mut self) -> Vec<SegmentRef> {
        std::mem::take(&mut self.finished)
    }
}

fn weight(entry: &Entry, is_new_parent: bool) -> u64 {
    let parent_bytes = if is_new_parent { entry.parent.len() } else { 0 };
    let bytes = entry.name.len() + entry.target.len() + entry.xattrs.len() + parent_bytes;
    1 + bytes as u64 / WEIGHT_BYTES
}
