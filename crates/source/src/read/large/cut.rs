//! Pieces of a block, and what stands for bytes in it that the device did not give.

use super::{LargeFile, ReadPiece};
use crate::read::blocks::FileBlock;
use std::ops::Range;

impl LargeFile {
    /// Cuts what could not be read out of a block.
    pub(super) fn cut_block(
        &mut self,
        block: FileBlock,
        range: Range<usize>,
        bad: &[Range<usize>],
    ) {
        if bad.is_empty() {
            self.cut.push_back(ReadPiece::Data(block.narrowed(range)));
            return;
        }
        let mut at = range.start;
        for hole in bad {
            let (start, end) = (hole.start.max(at), hole.end.min(range.end));
            if start >= end {
                continue;
            }
            self.cut_data(&block, at..start);
            self.cut.push_back(ReadPiece::Bad((end - start) as u64));
            at = end;
        }
        self.cut_data(&block, at..range.end);
    }

    fn cut_data(&mut self, block: &FileBlock, range: Range<usize>) {
        if !range.is_empty() {
            let copy = self.pool.copy_of(&block[range]);
            self.cut.push_back(ReadPiece::Data(copy));
        }
    }
}
