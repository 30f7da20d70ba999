//! Content that nothing changed between two states of a file system, by its metadata.
//!
//! A write to a file changes its inode, so the content of one whose inode is as it was is as it
//! was, and so are the blocks that it is in. That holds for states in which all that was written
//! was on the device. In any other a block may have been written and its inode not yet, or the
//! other way round; such states are refused. Times of inodes are as coarse as the kernel's clock:
//! one that changed close to the earlier state may have changed right behind it too, and is taken
//! for changed.
//!
//! What is written past the file system is not seen: to a swap file, or to the device itself. Nor
//! is a crash in between: of what was written shortly before it, content may have come to the
//! device, and the inode not.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::ByteSource;
use crate::ext4::{Ext4Error, Ext4States};
use crate::recognize::Recognized;
use crate::xfs::{XfsError, XfsStates};

/// Bytes with inodes that are compared at once.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// Inodes that changed so close to the end of the earlier state are taken for changed: many times
/// what a kernel's clock advances at once.
pub(crate) const MARGIN_SECONDS: i64 = 2;
/// Of states that have other marks or another geometry.
pub(crate) const OTHER_FILE_SYSTEM: &str = "it is another file system than in the snapshot before";

/// Two states of a file system that can be compared.
pub trait UnchangedContent {
    /// Hands out what did not change: where the content of files is, and what of their metadata was
    /// compared and found equal, in bytes of the file system, not sorted. `Break` ends it. What was
    /// handed out before an error is right all the same.
    fn walk(
        &self,
        found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> Result<Compared, NotCompared>;
}

/// One of two states.
#[derive(Clone, Copy)]
pub struct StateSource<'a> {
    /// It begins there.
    pub source: &'a Arc<dyn ByteSource>,
    /// Somebody knows that it was frozen, or unmounted: of XFS that cannot always be seen.
    pub was_frozen: bool,
}

/// What a comparison came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Inodes whose content could be left unread.
    pub files: u64,
    /// Of which nothing changed.
    pub unchanged: u64,
}

/// Why nothing, or nothing more, can be said of two states.
#[derive(Debug, thiserror::Error)]
pub enum NotCompared {
    #[error("{0}")]
    Because(&'static str),
    #[error(transparent)]
    Ext4(#[from] Ext4Error),
    #[error(transparent)]
    Xfs(#[from] XfsError),
}

/// Opens two states of a file system of one kind.
pub fn compare_states(
    kind: Recognized,
    old: StateSource<'_>,
    new: StateSource<'_>,
) -> Result<Box<dyn UnchangedContent>, NotCompared> {
    Ok(match kind {
        Recognized::Ext => Box::new(Ext4States::between(old.source, new.source)?),
        Recognized::Xfs => Box::new(XfsStates::between(old, new)?),
        _ => return Err(NotCompared::Because("its kind is not compared")),
    })
}

/// Ranges that are handed out as one where they follow each other.
pub(crate) struct JoinedRanges<'a> {
    found: &'a mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    run: Range<u64>,
}

impl<'a> JoinedRanges<'a> {
    pub(crate) fn new(found: &'a mut dyn FnMut(Range<u64>) -> ControlFlow<()>) -> JoinedRanges<'a> {
        JoinedRanges { found, run: 0..0 }
    }

    pub(crate) fn push(&mut self, next: Range<u64>) -> ControlFlow<()> {
        if self.run.end == next.start {
            self.run.end = next.end;
            return ControlFlow::Continue(());
        }
        let run = std::mem::replace(&mut self.run, next);
        hand_out(self.found, run)
    }

    pub(crate) fn finish(self) -> ControlFlow<()> {
        hand_out(self.found, self.run)
    }
}

fn hand_out(
    found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    run: Range<u64>,
) -> ControlFlow<()> {
    match run.is_empty() {
        true => ControlFlow::Continue(()),
        false => found(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_follow_each_other_are_handed_out_as_one_and_none_is_empty() {
        let mut found = Vec::new();
        let mut take = |range| {
            found.push(range);
            match found.len() < 3 {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let mut joined = JoinedRanges::new(&mut take);
        for range in [4..8, 8..9, 20..24, 12..14] {
            assert!(joined.push(range).is_continue());
        }
        assert!(joined.push(30..31).is_break());
        assert!(joined.finish().is_break());
        assert_eq!(found, [4..9, 20..24, 12..14, 30..31]);
    }
}
